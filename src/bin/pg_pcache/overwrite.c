/*-------------------------------------------------------------------------
 *
 * overwrite.c
 *	  Overwrite a file that is about to be removed from persistent memory.
 *
 * What a file system frees there keeps its contents, and a pool has pages of the
 * cluster.  Memory that is freed is cleared by the kernel before anybody gets it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/overwrite.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "drop.h"

#define OVERWRITE_AT_ONCE	(1024 * 1024)

/* A file system clears a bad block if all of it is written. */
#define OVERWRITE_BAD		4096

/* Is an open file on persistent memory? */
bool
IsOnPersistentMemory(int fd)
{
	char		name[64];
	PCacheMapping map;
	bool		is_pmem;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (!PCacheMap(name, true, &map))
		return false;
	is_pmem = map.kind == PCACHE_PERSIST_PMEM;
	PCacheUnmap(&map);
	return is_pmem;
}

static bool
WriteZeros(int fd, size_t len, off_t offset)
{
	static const char zeros[OVERWRITE_AT_ONCE];

	for (size_t done = 0; done < len;)
	{
		ssize_t		n = pg_pwrite(fd, zeros, len - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += n;
	}
	return true;
}

/*
 * Overwrite an open file with zeros, durably.  It is written to and not mapped,
 * lest bad blocks be met.  Those that cannot be written stay as they are, with a
 * warning.  *done counts, of total bytes, for the report of progress.
 */
void
OverwriteFile(const PCacheOptions *options, int fd, const char *path,
			  uint64 *done, uint64 total)
{
	uint64		left = 0;
	struct stat st;

	if (fstat(fd, &st) < 0)
		pg_fatal("could not stat file \"%s\": %m", path);
	for (off_t offset = 0; offset < st.st_size; offset += OVERWRITE_AT_ONCE)
	{
		size_t		len = Min(OVERWRITE_AT_ONCE, st.st_size - offset);

		if (!WriteZeros(fd, len, offset))
		{
			for (size_t at = 0; at < len; at += OVERWRITE_BAD)
			{
				if (!WriteZeros(fd, Min(OVERWRITE_BAD, len - at), offset + at))
					left += Min(OVERWRITE_BAD, len - at);
			}
		}
		*done += len;
		if (options->progress)
			ReportProgress(*done, total, *done == total);
	}
	if (fsync(fd) < 0)
		pg_fatal("could not fsync file \"%s\": %m", path);
	if (left > 0)
		pg_log_warning("could not overwrite %llu bytes of file \"%s\"",
					   (unsigned long long) left, path);
}
