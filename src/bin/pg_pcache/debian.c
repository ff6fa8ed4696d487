/*-------------------------------------------------------------------------
 *
 * debian.c
 *	  Clusters in the layout of Debian's packages: --cluster, and the only one.
 *
 * The configuration of cluster VERSION/NAME is in /etc/postgresql/VERSION/NAME.  Root
 * learns from that directory whose cluster it is.  So nobody but root and that user
 * may be able to exchange it: root would become whoever the directory says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/debian.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "debian.h"
#include "lib/stringinfo.h"

#define CONFIG_FILE			"postgresql.conf"

/* Debian's tools have the same default and environment variable. */
#define DEBIAN_ROOT			"/etc/postgresql"
#define DEBIAN_ROOT_VAR		"PG_CLUSTER_CONF_ROOT"

/* Where Debian's packages have the program of each version. */
#define DEBIAN_PROGRAM		"/usr/lib/postgresql/%s/bin/pg_pcache"

static const char *
DebianRoot(void)
{
	const char *root = getenv(DEBIAN_ROOT_VAR);

	return root != NULL && root[0] != '\0' ? root : DEBIAN_ROOT;
}

/*
 * Find the only cluster that Debian's packages have of this major version, by
 * its configuration.  Returns its name, as --cluster takes it, or NULL if there is none.
 */
char *
FindOnlyCluster(void)
{
	char	   *version = psprintf("%s/%s", DebianRoot(), PG_MAJORVERSION);
	char	   *found = NULL;
	StringInfoData names;
	int			n = 0;
	DIR		   *clusters;
	struct dirent *entry;

	clusters = opendir(version);
	if (clusters == NULL)
		return NULL;
	initStringInfo(&names);
	while ((entry = readdir(clusters)) != NULL)
	{
		char	   *file = psprintf("%s/%s/%s", version, entry->d_name, CONFIG_FILE);
		struct stat st;

		if (entry->d_name[0] == '.' || stat(file, &st) < 0)
			continue;
		found = psprintf("%s/%s", PG_MAJORVERSION, entry->d_name);
		appendStringInfo(&names, "%s\"%s\"", n == 0 ? "" : ", ", found);
		n++;
	}
	closedir(clusters);
	if (n > 1)
	{
		pg_log_error("no data directory specified");
		pg_log_error_detail("There are several clusters: %s.", names.data);
		pg_log_error_hint("Choose one of them with %s, for example %s/main.", "--cluster", PG_MAJORVERSION);
		exit(EXIT_ERROR);
	}
	return found;
}

/* The directory with its configuration. */
char *
FindOnlyConfiguration(void)
{
	char	   *name = FindOnlyCluster();

	return name != NULL ? psprintf("%s/%s", DebianRoot(), name) : NULL;
}

/* Split VERSION/NAME.  What is in it becomes part of names of files and units. */
static void
ParseClusterName(const char *given, DebianCluster *cluster)
{
	static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyz"
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ_.-";
	const char *slash = strchr(given, '/');
	size_t		digits = strspn(given, "0123456789");

	if (slash == NULL || digits == 0 || given + digits != slash ||
		digits >= sizeof(cluster->version) ||
		slash[1] == '\0' || strchr(".-", slash[1]) != NULL ||
		slash[1 + strspn(slash + 1, allowed)] != '\0' ||
		strlen(slash + 1) >= sizeof(cluster->name))
		Refuse(psprintf(_("It has the form VERSION/NAME, for example %s/main; pg_lsclusters lists all clusters."), PG_MAJORVERSION),
			   _("invalid name of a cluster: \"%s\""), given);
	strlcpy(cluster->version, given, digits + 1);
	strlcpy(cluster->name, slash + 1, sizeof(cluster->name));
}

/* A pool, its superblock and pg_control are those of one major version. */
static void
RequireOwnVersion(const PCacheOptions *options, const DebianCluster *cluster)
{
	char	   *program;

	if (strcmp(cluster->version, PG_MAJORVERSION) == 0)
		return;
	program = psprintf(DEBIAN_PROGRAM, cluster->version);
	pg_log_error("cluster \"%s\" is not of version %s, for which this %s is",
				 options->cluster, PG_MAJORVERSION, options->progname);
	if (access(program, X_OK) == 0)
		pg_log_error_hint("Use \"%s\".", program);
	else
		pg_log_error_hint("Install the package %s, which has \"%s\".",
						  psprintf("postgresql-%s-pcache", cluster->version), program);
	exit(EXIT_ERROR);
}

/* Can others than its owner change what is in it?  The sticky bit keeps names from them. */
static bool
IsShared(const struct stat *st)
{
	return (st->st_mode & (S_IWGRP | S_IWOTH)) != 0 && (st->st_mode & S_ISVTX) == 0;
}

/*
 * Open a directory by its absolute name, following no link.  It and those above it have
 * to belong to root or to one user, and nobody else may be able to change or exchange
 * them.  That user is *user, or is returned there if it was UNKNOWN_USER; 0 if all belong to
 * root.  Returns the descriptor, or -1 with the reason in err; errno is ENOENT if a
 * directory does not exist.
 */
int
OpenTrustedDirectory(const char *path, uid_t *user, PCacheError *err)
{
	char	   *rest = pg_strdup(path);
	char	   *next = NULL;
	char	   *name = strtok_r(rest, "/", &next);
	StringInfoData sofar;
	int			fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	initStringInfo(&sofar);
	err->hint[0] = '\0';
	for (;;)
	{
		struct stat st;
		int			below;
		int			save_errno;

		if (fd < 0 || fstat(fd, &st) < 0)
		{
			save_errno = errno;
			PCacheSetError(err, _("could not open directory \"%s\": %m"), sofar.data);
			errno = save_errno;
			return -1;
		}
		if (st.st_uid != 0 && *user == UNKNOWN_USER)
			*user = st.st_uid;
		if ((st.st_uid != 0 && st.st_uid != *user) || IsShared(&st))
		{
			PCacheSetError(err, _("directory \"%s\" can be changed by other users"),
						   sofar.len > 0 ? sofar.data : "/");
			close(fd);
			errno = EPERM;
			return -1;
		}
		if (name == NULL)
			break;
		appendStringInfo(&sofar, "/%s", name);
		below = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		save_errno = errno;
		close(fd);
		errno = save_errno;
		fd = below;
		name = strtok_r(NULL, "/", &next);
	}
	if (*user == UNKNOWN_USER)
		*user = 0;
	return fd;
}

/*
 * Whose cluster is it?  pg_createcluster gives the configuration to the server's user.
 * If somebody has given its directory to root, the file in it says so.
 */
static void
FindOwner(DebianCluster *cluster)
{
	PCacheError err;
	uid_t		user = UNKNOWN_USER;
	int			fd = OpenTrustedDirectory(cluster->config_dir, &user, &err);
	struct passwd *pw;

	if (fd < 0)
		Refuse(_("Run the command as the server's user, or let root or that user alone change the directory."),
			   _("could not find out whose cluster \"%s/%s\" is: %s"), cluster->version, cluster->name, err.message);
	if (user == 0)
	{
		struct stat st;

		if (fstatat(fd, CONFIG_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
			pg_fatal("could not stat file \"%s/%s\": %m", cluster->config_dir, CONFIG_FILE);
		user = st.st_uid;
	}
	close(fd);
	if (user == 0)
		Refuse(psprintf(_("Run the command as the server's user, or give \"%s/%s\" to that user."), cluster->config_dir, CONFIG_FILE),
			   _("could not find out whose cluster \"%s/%s\" is: its configuration belongs to root"),
			   cluster->version, cluster->name);
	pw = getpwuid(user);
	if (pw == NULL || strlen(pw->pw_name) >= sizeof(cluster->user))
		pg_fatal("directory \"%s\" belongs to user ID %ld, who does not exist",
				 cluster->config_dir, (long) user);
	cluster->uid = pw->pw_uid;
	cluster->gid = pw->pw_gid;
	strlcpy(cluster->user, pw->pw_name, sizeof(cluster->user));
	strlcpy(cluster->home, pw->pw_dir, sizeof(cluster->home));
}

/*
 * Find the cluster that --cluster names, and have its configuration take the place of
 * -D.  Exits with a message if there is none, or if it is of another major version.
 */
void
FindNamedCluster(PCacheOptions *options, DebianCluster *cluster)
{
	struct stat st;
	char	   *file;

	memset(cluster, 0, sizeof(*cluster));
	ParseClusterName(options->cluster, cluster);
	RequireOwnVersion(options, cluster);
	snprintf(cluster->config_dir, sizeof(cluster->config_dir), "%s/%s/%s",
			 DebianRoot(), cluster->version, cluster->name);
	canonicalize_path(cluster->config_dir);
	file = psprintf("%s/%s", cluster->config_dir, CONFIG_FILE);
	if (stat(file, &st) < 0)
		Refuse(_("pg_lsclusters lists all clusters."),
			   _("could not find cluster \"%s\": could not stat file \"%s\": %m"), options->cluster, file);
	if (geteuid() == 0 || options->verb == VERB_SETUP)
		FindOwner(cluster);
	options->datadir = cluster->config_dir;
}
