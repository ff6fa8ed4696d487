/*-------------------------------------------------------------------------
 *
 * setupfile.c
 *	  pg_pcache setup: where its files are; read one, and replace it as a whole, or not at all.
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

/* Where the mount's unit is, and the file in conf.d. */
char *
SetupUnitFile(const SetupFacts *facts)
{
	return psprintf("%s/%s", SETUP_UNITS, facts->unit);
}

char *
SetupConfDir(const SetupFacts *facts)
{
	return psprintf("%s/%s", facts->cluster.config_dir, SETUP_CONF_DIR);
}

char *
SetupConfFile(const SetupFacts *facts)
{
	return psprintf("%s/%s", SetupConfDir(facts), SETUP_CONF_FILE);
}

/*
 * Read a file into a buffer of SETUP_MAX_FILE bytes; "" if there is none.  Of a longer
 * file, which is none of ours, only the beginning is read.  Returns false, with errno,
 * if it cannot be read.
 */
bool
ReadWholeFile(const char *path, char *text)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	ssize_t		len;
	size_t		total = 0;

	text[0] = '\0';
	if (fd < 0)
		return errno == ENOENT;
	while ((len = read(fd, text + total, SETUP_MAX_FILE - 1 - total)) > 0)
		total += len;
	text[total] = '\0';
	close(fd);
	/* one that is there is not "" */
	if (len == 0 && total == 0)
		strlcpy(text, "\n", SETUP_MAX_FILE);
	return len == 0;
}

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

/*
 * Have the file of that name in an open directory contain the text, durably; with ""
 * for a text, remove it.  Returns false, after a message, if that cannot be, and
 * then the file is what it was, unless the directory could not be synced.
 */
bool
ReplaceFile(int dir_fd, const char *directory, const char *name, const char *text)
{
	const PCacheDir dir = {.fd = dir_fd};
	int			fd;

	if (text[0] == '\0')
	{
		if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		{
			pg_log_error("could not remove file \"%s/%s\": %m", directory, name);
			return false;
		}
	}
	else
	{
		/* what an earlier run has left that was killed */
		(void) unlinkat(dir_fd, TEMPORARY, 0);
		fd = openat(dir_fd, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd < 0)
		{
			pg_log_error("could not create file \"%s/%s\": %m", directory, TEMPORARY);
			return false;
		}
		if (!WriteAndSync(fd, text) || renameat(dir_fd, TEMPORARY, dir_fd, name) < 0)
		{
			pg_log_error("could not write file \"%s/%s\": %m", directory, name);
			close(fd);
			(void) unlinkat(dir_fd, TEMPORARY, 0);
			return false;
		}
		close(fd);
	}
	if (PCacheDirSync(&dir))
		return true;
	pg_log_error("could not fsync file \"%s/%s\": %m", directory, name);
	return false;
}
