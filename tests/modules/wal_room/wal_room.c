/*-------------------------------------------------------------------------
 *
 * wal_room.c
 *	  A shim to preload: a pg_wal whose file system is small.
 *
 * A file can be created in pg_wal only if a whole segment has room beside all
 * that is there.  So a server meets ENOSPC where it would on a real file system
 * of that size, which is when it makes a new segment.  statvfs() and fallocate()
 * agree with that.  Programs are concerned if they call the directory "pg_wal",
 * as the server does, which works in its data directory.
 *
 *	 WAL_ROOM_FILE	file with the number of bytes that pg_wal may take; it may
 *					change while the server runs.  Without it pg_wal is not limited.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  tests/modules/wal_room/wal_room.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define WAL_DIR	"pg_wal"

#define REAL(name) \
	static __typeof__(name) *real; \
	if (real == NULL && (real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)) == NULL) \
		abort()

/*
 * How many bytes are free?  Sets *segment to the size of the largest file, which
 * is that of a segment.  Returns false if pg_wal is not limited.
 */
static bool
free_room(unsigned long long *room, unsigned long long *segment)
{
	const char *path = getenv("WAL_ROOM_FILE");
	unsigned long long limit;
	unsigned long long used = 0;
	FILE	   *file = path == NULL ? NULL : fopen(path, "r");
	DIR		   *dir;
	struct dirent *entry;
	int			found;

	if (file == NULL)
		return false;
	found = fscanf(file, "%llu", &limit);
	fclose(file);
	if (found != 1 || (dir = opendir(WAL_DIR)) == NULL)
		return false;

	*segment = 0;
	while ((entry = readdir(dir)) != NULL)
	{
		struct stat st;

		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			!S_ISREG(st.st_mode))
			continue;
		used += st.st_size;
		if ((unsigned long long) st.st_size > *segment)
			*segment = st.st_size;
	}
	closedir(dir);
	*room = used < limit ? limit - used : 0;
	return true;
}

/* Is a file to be created in pg_wal for which there is no room? */
static bool
has_no_room(const char *path, int flags)
{
	unsigned long long room;
	unsigned long long segment;

	return (flags & O_CREAT) != 0 &&
		strncmp(path, WAL_DIR "/", strlen(WAL_DIR "/")) == 0 &&
		access(path, F_OK) < 0 &&
		free_room(&room, &segment) && room < segment;
}

/* Is this an open file of pg_wal, and are there less than so many bytes? */
static bool
is_too_long(int fd, unsigned long long length)
{
	char		name[64];
	char		path[PATH_MAX];
	unsigned long long room;
	unsigned long long segment;
	ssize_t		n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	return strstr(path, "/" WAL_DIR "/") != NULL &&
		free_room(&room, &segment) && room < length;
}

#pragma GCC visibility push(default)

#define OPEN(name) \
int \
name(const char *path, int flags, ...) \
{ \
	va_list		args; \
	mode_t		mode = 0; \
	REAL(name); \
\
	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) \
	{ \
		va_start(args, flags); \
		mode = va_arg(args, mode_t); \
		va_end(args); \
	} \
	if (has_no_room(path, flags)) \
	{ \
		errno = ENOSPC; \
		return -1; \
	} \
	return real(path, flags, mode); \
}

OPEN(open)
OPEN(open64)

#define STATVFS(name, type) \
int \
name(const char *path, struct type *buf) \
{ \
	unsigned long long room; \
	unsigned long long segment; \
	int			result; \
	REAL(name); \
\
	result = real(path, buf); \
	if (result == 0 && strcmp(path, WAL_DIR) == 0 && free_room(&room, &segment)) \
		buf->f_bavail = buf->f_bfree = room / buf->f_frsize; \
	return result; \
}

STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)

#define FALLOCATE(name, type) \
int \
name(int fd, int mode, type offset, type length) \
{ \
	REAL(name); \
\
	if (is_too_long(fd, length)) \
	{ \
		errno = ENOSPC; \
		return -1; \
	} \
	return real(fd, mode, offset, length); \
}

FALLOCATE(fallocate, off_t)
FALLOCATE(fallocate64, off64_t)
