/*-------------------------------------------------------------------------
 *
 * open.c
 *	  Find the cluster that a verb is about, and its pool, and open that.
 *
 * Before that are the data directory and the configuration (locate.c, config.c), and
 * after it what the start will make of it (judge.c).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/open.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pg_pcache.h"

/* A superblock that a server is just writing looks damaged, but not long. */
#define READ_ATTEMPTS		5
#define READ_RETRY_USEC		20000L

/* That a server is ready is noted by its worker, which looks every 100 ms. */
#define READY_ATTEMPTS		50

/* Read the superblocks of a pool that a server may be writing to. */
void
ReadLiveSuperblocks(const PCachePool *pool, PCacheSuperblocks *superblocks)
{
	PCacheReadSuperblocks(pool->fd, superblocks);
	for (int i = 1; i < READ_ATTEMPTS &&
		 !(superblocks->first_intact && superblocks->copy_intact); i++)
	{
		pg_usleep(READ_RETRY_USEC);
		PCacheReadSuperblocks(pool->fd, superblocks);
	}
}

/*
 * Does the server with this PID use the file of an open pool?  It holds that open
 * as long as it runs, whatever has become of the name.  Returns false if that is unknown,
 * with errno set.
 */
bool
ServerUsesPool(int pid, const PCachePool *pool, bool *uses)
{
	char		path[MAXPGPATH];
	struct stat ours;
	DIR		   *files;
	struct dirent *entry;
	bool		known = true;

	*uses = false;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	files = opendir(path);
	if (files == NULL || fstat(pool->fd, &ours) < 0)
		return false;
	while (known && !*uses && (entry = readdir(files)) != NULL)
	{
		struct stat theirs;

		/*
		 * the server may close a file meanwhile, and then it is not the
		 * pool's
		 */
		if (fstatat(dirfd(files), entry->d_name, &theirs, 0) == 0)
			*uses = theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
		else
			known = errno != EACCES && errno != EPERM;
	}
	closedir(files);
	return known;
}

/*
 * Open the pool in that directory, or give up.  Returns false, with the reason in err, if there
 * is none.
 */
bool
OpenPoolOrFail(const char *directory, PCacheOpenMode mode, PCachePool *pool, PCacheError *err)
{
	PCacheOpenResult opened = PCachePoolOpen(directory, mode, pool, err);

	if (opened == PCACHE_OPEN_LOCKED || opened == PCACHE_OPEN_ERROR)
		FailWith(err);
	return opened == PCACHE_OPEN_OK;
}

/*
 * Open the pool, and read its superblocks.  For verbs that only look, what the
 * server that runs has locked is read as it is; any other pool that is locked
 * keeps the next start from it.
 */
static PCacheOpenResult
OpenPool(Cluster *c)
{
	PCacheOpenMode mode = PCACHE_OPEN_READ;
	PCacheOpenResult opened;
	bool		uses = false;

	c->event = PCACHE_NEXT_NOTHING;
	if (c->server_pid != 0)
	{
		opened = PCachePoolOpen(c->directory, PCACHE_OPEN_PEEK, &c->pool, &c->open_error);
		if (opened == PCACHE_OPEN_ERROR)
			return opened;
		if (opened == PCACHE_OPEN_OK && !ServerUsesPool(c->server_pid, &c->pool, &uses))
		{
			pg_log_error("could not find out whether the server with PID %d uses persistent cache pool \"%s\": %m",
						 c->server_pid, c->pool.path);
			if (errno == EACCES || errno == EPERM)
				pg_log_error_hint("Run pg_pcache as the user that runs the server, and outside of a sandbox.");
			exit(EXIT_ERROR);
		}
		if (uses)
		{
			c->event = PCACHE_NEXT_RESTART;
			ReadLiveSuperblocks(&c->pool, &c->superblocks);
			/* or else a restart just after a start would look cold */
			for (int i = 1; i < READY_ATTEMPTS && c->superblocks.chosen.starts_from != 0; i++)
			{
				pg_usleep(READ_RETRY_USEC);
				ReadLiveSuperblocks(&c->pool, &c->superblocks);
			}
			return PCACHE_OPEN_OK;
		}
		c->event = PCACHE_NEXT_RESTART_APART;
		if (opened == PCACHE_OPEN_OK)
			PCachePoolClose(&c->pool);
		mode = PCACHE_OPEN_TRY;
	}
	else if ((c->options->verb & VERBS_THAT_FORETELL) == 0 && !c->options->dry_run)
		mode = PCACHE_OPEN_WRITE;
	opened = PCachePoolOpen(c->directory, mode, &c->pool, &c->open_error);
	if (opened == PCACHE_OPEN_OK)
		PCacheReadSuperblocks(c->pool.fd, &c->superblocks);
	return opened;
}

/*
 * Find the pool of the cluster, open it, read what it says of itself, and gather the facts
 * for the gates.  Gives up if a server runs, but for the verbs that are about one,
 * and if a pool that is to be changed or copied is locked or cannot be opened.  That it is not
 * there is for the caller to judge.
 */
void
OpenCluster(const PCacheOptions *options, Cluster *c)
{
	bool		looks = (options->verb & VERBS_THAT_FORETELL) != 0;

	c->options = options;
	c->pool.fd = -1;
	c->opened = PCACHE_OPEN_MISSING;
	c->control = ReadControlFile(options);
	if ((options->verb & VERBS_OF_A_RUNNING_SERVER) != 0)
		c->server_pid = RunningServer(options->pgdata);
	else
		RefuseRunningServer(options->pgdata);
	PCacheServerToStop = c->server_pid;
	/* a restart gives them again, and a start does not */
	if (c->server_pid != 0)
		AskWithArguments(ServerArguments(options));
	ReadConfiguration(options, &c->conf);
	/* that is all there is to tell */
	if (looks && ModeIsOff(&c->conf))
		return;

	FindDirectory(options, c->conf.directory, c->directory);
	/* the caller says why there can be none */
	if (!is_absolute_path(c->directory))
		return;
	c->opened = OpenPool(c);
	if (!looks && (c->opened == PCACHE_OPEN_LOCKED || c->opened == PCACHE_OPEN_ERROR))
		FailWith(&c->open_error);
	if (c->opened != PCACHE_OPEN_OK)
		return;
	if (!looks)
	{
		strlcpy(c->directory, c->pool.directory, sizeof(c->directory));
		snprintf(c->pool.path, sizeof(c->pool.path), "%s/%s", c->directory, PCACHE_POOL_FILE);
	}
	GatherPoolFacts(c);
}
