/*-------------------------------------------------------------------------
 *
 * setupfile.c
 *	  pg_pcache setup: replace a file as a whole, or not at all.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "setup.h"

/* Neither the server nor systemd reads a file whose name begins with a dot. */
#define TEMPORARY	".pg_pcache-setup.tmp"

static bool
WriteAndSync(int fd, const char *text)
{
	size_t		left = strlen(text);

	while (left > 0)
	{
		ssize_t		written = write(fd, text, left);

		if (written < 0)
			return false;
		text += written;
		left -= written;
	}
	/* whatever the umask is */
	return fchmod(fd, 0644) == 0 && fsync(fd) == 0;
}

static void
SyncDirectory(int dir_fd)
{
	int			fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* the descriptor may be one that only names the directory */
	if (fd >= 0)
	{
		(void) fsync(fd);
		close(fd);
	}
}

/*
 * Have the file of that name in an open directory contain the text, durably; with ""
 * for a text, remove it.  Returns false, with the reason in err, if that cannot be, and
 * then the file is what it was.
 */
bool
ReplaceFile(int dir_fd, const char *name, const char *text, PCacheError *err)
{
	int			fd;

	err->hint[0] = '\0';
	if (text[0] == '\0')
	{
		if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		{
			PCacheSetError(err, _("could not remove file \"%s\": %m"), name);
			return false;
		}
		SyncDirectory(dir_fd);
		return true;
	}
	/* what an earlier run has left that was killed */
	(void) unlinkat(dir_fd, TEMPORARY, 0);
	fd = openat(dir_fd, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
	{
		PCacheSetError(err, _("could not create file \"%s\": %m"), TEMPORARY);
		return false;
	}
	if (!WriteAndSync(fd, text) || renameat(dir_fd, TEMPORARY, dir_fd, name) < 0)
	{
		PCacheSetError(err, _("could not write file \"%s\": %m"), name);
		close(fd);
		(void) unlinkat(dir_fd, TEMPORARY, 0);
		return false;
	}
	close(fd);
	SyncDirectory(dir_fd);
	return true;
}
