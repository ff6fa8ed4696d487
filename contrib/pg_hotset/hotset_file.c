/*-------------------------------------------------------------------------
 *
 * hotset_file.c
 *	  The last good list, as a file of the data directory.
 *
 * It is written under another name and renamed, so there is always a whole one.
 * The file goes along with base backups and pg_rewind: a server that is made
 * of its primary's copy then has a list before it can ask anybody.  It has at
 * most a byte for each buffer, no contents of pages, and nothing of it is
 * believed before the relations themselves were asked.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_file.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "hotset.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/*
 * Read a list, whose bytes go to raw, and unpack it into the current memory
 * context.  Returns NULL if there is no such file, or no good list in it;
 * *problem is NULL in the first case, and otherwise says why.
 */
HotsetSet *
HotsetReadFile(const char *path, StringInfo raw, const char **problem)
{
	struct stat status;
	HotsetSet  *set;
	int			fd;
	ssize_t		got = 0;

	resetStringInfo(raw);
	*problem = NULL;
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
	{
		if (errno != ENOENT)
			*problem = psprintf("could not open file \"%s\": %m", path);
		return NULL;
	}
	if (fstat(fd, &status) != 0)
		*problem = psprintf("could not stat file \"%s\": %m", path);
	else if (!S_ISREG(status.st_mode) || status.st_size > MaxAllocSize - 1)
		*problem = psprintf("\"%s\" is not a list of pg_hotset", path);
	else
	{
		enlargeStringInfo(raw, status.st_size);
		while (raw->len < status.st_size &&
			   (got = read(fd, raw->data + raw->len, status.st_size - raw->len)) > 0)
			raw->len += got;
		raw->data[raw->len] = '\0';
		if (got < 0)
			*problem = psprintf("could not read file \"%s\": %m", path);
	}
	CloseTransientFile(fd);
	if (*problem != NULL)
		return NULL;

	set = HotsetDecode(raw->data, raw->len, problem);
	if (set != NULL)
		*problem = NULL;
	return set;
}

/*
 * Replace a file by these bytes, durably.  Fails with a WARNING, and the old
 * file stays then.
 */
void
HotsetWriteFile(const char *path, const char *data, Size length)
{
	char		temporary[MAXPGPATH];
	int			fd;
	bool		written;

	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	fd = OpenTransientFile(temporary, O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	if (fd < 0)
	{
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", temporary)));
		return;
	}
	errno = 0;
	written = write(fd, data, length) == (ssize_t) length;
	if (!written && errno == 0)
		errno = ENOSPC;
	if (!written)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", temporary)));
	CloseTransientFile(fd);
	/* This syncs the file before it renames it, and the directory afterwards. */
	if (!written || durable_rename(temporary, path, WARNING) != 0)
		(void) unlink(temporary);
}
