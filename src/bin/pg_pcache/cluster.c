/*-------------------------------------------------------------------------
 *
 * cluster.c
 *	  What pg_pcache has to know of the cluster and its pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/cluster.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/catversion.h"
#include "common/controldata_utils.h"
#include "common/string.h"
#include "fe_utils/string_utils.h"
#include "pg_pcache.h"
#include "utils/pidfile.h"

/* Read pg_control, and refuse a cluster that is not one of ours. */
ControlFileData *
ReadControlFile(const PCacheOptions *options)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(options->pgdata, &crc_ok);

	if (control->pg_control_version != PG_CONTROL_VERSION)
		pg_fatal("cluster is not compatible with this version of %s",
				 options->progname);
	if (!crc_ok)
		pg_fatal("pg_control CRC value is incorrect");
	if (control->catalog_version_no != CATALOG_VERSION_NO)
	{
		pg_log_error("cluster is not compatible with this version of %s",
					 options->progname);
		pg_log_error_detail("The database cluster has catalog version %u, but %s was compiled with catalog version %u.",
							control->catalog_version_no, options->progname,
							(unsigned int) CATALOG_VERSION_NO);
		exit(EXIT_ERROR);
	}
	if (control->blcksz != BLCKSZ || control->relseg_size != RELSEG_SIZE)
	{
		pg_log_error("database cluster is not compatible");
		pg_log_error_detail("The database cluster was initialized with block size %u and segments of %u blocks, but %s was compiled with block size %u and segments of %u blocks.",
							control->blcksz, control->relseg_size,
							options->progname, BLCKSZ, RELSEG_SIZE);
		exit(EXIT_ERROR);
	}
	return control;
}

/*
 * The PID of the server (or of the single-user backend) that runs on this
 * data directory, or 0.
 */
int
RunningServer(const char *pgdata)
{
	char		path[MAXPGPATH];
	char		buf[32];
	int			fd;
	ssize_t		len;
	long		pid;

	snprintf(path, sizeof(path), "%s/postmaster.pid", pgdata);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
	{
		if (errno == ENOENT)
			return 0;
		pg_fatal("could not open file \"%s\" for reading: %m", path);
	}
	len = read(fd, buf, sizeof(buf) - 1);
	if (len < 0)
		pg_fatal("could not read file \"%s\": %m", path);
	close(fd);
	buf[len] = '\0';

	if (len == 0)
		Refuse(_("Either a server is starting, or the lock file is the remnant of a previous server startup crash."),
			   _("lock file \"%s\" is empty"), path);
	/* negative in single-user mode */
	pid = labs(strtol(buf, NULL, 10));
	if (pid <= 0 || pid > INT_MAX)
		pg_fatal("invalid data in PID file \"%s\"", path);

	/* see CreateLockFile() on EPERM, and on ourselves and our parent */
	if (pid != getpid() && pid != getppid() &&
		(kill((pid_t) pid, 0) == 0 || (errno != ESRCH && errno != EPERM)))
		return (int) pid;

	pg_log_info("ignoring stale lock file \"%s\": there is no server with PID %ld",
				path, pid);
	return 0;
}

/* A line of a file in the data directory, from 1 on; NULL if it is empty or not there. */
char *
LineOf(const char *pgdata, const char *name, int number)
{
	char	   *path = psprintf("%s/%s", pgdata, name);
	FILE	   *file = fopen(path, "r");
	char	   *line = NULL;

	pfree(path);
	if (file == NULL)
		return NULL;
	for (int i = 1; i <= number; i++)
	{
		free(line);
		if ((line = pg_get_line(file, NULL)) == NULL)
			break;
	}
	fclose(file);
	return line != NULL && pg_strip_crlf(line) > 0 ? line : NULL;
}

/* The same of the lock file of the server that runs, counted as in pidfile.h. */
char *
LockFileLine(const char *pgdata, int number)
{
	return LineOf(pgdata, "postmaster.pid", number);
}

/*
 * Where the server on this data directory listens, by its postmaster.pid.
 * Leaves alone what the user gave.
 */
void
FindServer(const PCacheOptions *options, ConnParams *params)
{
	char	   *address;

	if (params->pgport == NULL)
		params->pgport = LockFileLine(options->pgdata, LOCK_FILE_LINE_PORT);
	if (params->pghost == NULL)
		params->pghost = LockFileLine(options->pgdata, LOCK_FILE_LINE_SOCKET_DIR);
	if (params->pghost == NULL)
	{
		address = LockFileLine(options->pgdata, LOCK_FILE_LINE_LISTEN_ADDR);
		params->pghost = address != NULL && strcmp(address, "*") == 0 ? pg_strdup("localhost") : address;
	}
}

/* Give up if a server runs on this data directory. */
void
RefuseRunningServer(const char *pgdata)
{
	int			pid = RunningServer(pgdata);

	if (pid == 0)
		return;
	pg_log_error("cluster must be shut down");
	pg_log_error_detail("A server with PID %d is running in data directory \"%s\".",
						pid, pgdata);
	exit(EXIT_ERROR);
}

/*
 * Has anybody used the cluster since pg_control was read?  It is not ours to lock.
 */
void
CheckClusterUnchanged(const PCacheOptions *options, const ControlFileData *before)
{
	bool		crc_ok;
	ControlFileData *control;

	RefuseRunningServer(options->pgdata);
	control = get_controlfile(options->pgdata, &crc_ok);
	if (!crc_ok || control->crc != before->crc)
		pg_fatal("the cluster was started meanwhile");
	pfree(control);
}

bool
FileExists(const char *directory, const char *name)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (stat(path, &st) == 0)
		return true;
	if (errno != ENOENT)
		pg_fatal("could not stat file \"%s\": %m", path);
	return false;
}

/* What --directory names, as an absolute path; directory has MAXPGPATH bytes. */
void
TakeDirectory(const char *given, char *directory)
{
	if (strlcpy(directory, given, MAXPGPATH) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", given);
	canonicalize_path(directory);
	if (!is_absolute_path(directory))
		pg_fatal("persistent cache directory location must be an absolute path");
}

/*
 * Where the pool is, or will be: what --directory names, or else the configuration.  Fills in
 * directory, which has MAXPGPATH bytes.
 */
void
FindDirectory(const PCacheOptions *options, const char *configured, char *directory)
{
	PCacheError err;

	if (options->directory != NULL)
	{
		TakeDirectory(options->directory, directory);
		return;
	}
	RequireReadableConfiguration();
	strlcpy(directory, configured != NULL ? configured : "", MAXPGPATH);
	canonicalize_path(directory);
	/* verify and check tell how the server starts without one */
	if ((options->verb & VERBS_THAT_FORETELL) == 0 &&
		!PCacheDirectoryIsAllowed(options->pgdata, directory, &err))
		FailWith(&err);
}

/*
 * Is a pool that of the cluster with this pg_control?  If not, returns why, as a detail
 * of a message.
 *
 * A copy of the cluster, such as a standby, has the same system identifier.
 */
const char *
WhyForeign(const PCacheSuperblocks *superblocks, const ControlFileData *control)
{
	const PCacheSuperblock *sb = &superblocks->chosen;

	if (superblocks->source == PCACHE_SB_NONE)
		return _("Its superblock is damaged, so the cluster it belongs to is not known.");
	if (sb->system_identifier != control->system_identifier)
		return psprintf(_("It belongs to another cluster, with system identifier %llu; this one has %llu."),
						(unsigned long long) sb->system_identifier,
						(unsigned long long) control->system_identifier);
	return NULL;
}
