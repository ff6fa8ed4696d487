/*-------------------------------------------------------------------------
 *
 * trusted.c
 *	  Directories that root can rely on: nobody else can exchange them.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/trusted.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "debian.h"
#include "lib/stringinfo.h"

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
	free(rest);
	pfree(sofar.data);
	return fd;
}
