/*-------------------------------------------------------------------------
 *
 * wal_direct.c
 *	  A shim to preload: a kernel that is difficult about direct I/O.
 *
 *	 WAL_DIRECT_LOG		file that gets a line for each file that is opened, and
 *						each write, with O_DIRECT, below pg_wal, or for a trial:
 *						"open PATH FLAGS" (1: direct, 2: synced)
 *						"write PATH OFFSET LENGTH PIECES FLAGS RESULT"
 *	 WAL_DIRECT_FAULT	file whose first word says what happens to direct I/O;
 *						it may change while the server runs:
 *		no_open			the file is created, but not opened (EINVAL)
 *		no_write		nothing can be written (EINVAL)
 *		align			the kernel wants 64 kB
 *		silent			it goes through the page cache, and the kernel says so
 *		full			nothing can be written (ENOSPC)
 *		full_trial		trial files cannot be written (ENOSPC), also those of pmem
 *		short			writes are too short, by any multiple of 512 bytes, or
 *						are interrupted
 *		futile			no write gets further than 512 bytes
 *		checksums		a write takes a millisecond longer, and if its bytes
 *						have changed meanwhile, the log gets a line
 *						"changed PATH OFFSET"
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  tests/modules/wal_direct/wal_direct.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE 1
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
#include <sys/uio.h>
#include <unistd.h>

#define MAX_PIECES	8

#define REAL(name) \
	static __typeof__(name) *real; \
	if (real == NULL && (real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)) == NULL) \
		abort()

static unsigned int calls;

/* All bytes of a write in one piece. */
static char *
gather(const struct iovec *iov, int iovcnt, size_t len)
{
	char	   *bytes = malloc(len);
	char	   *p = bytes;

	if (bytes == NULL)
		abort();
	for (int i = 0; i < iovcnt; i++)
	{
		memcpy(p, iov[i].iov_base, iov[i].iov_len);
		p += iov[i].iov_len;
	}
	return bytes;
}

/* Is this the fault that is wanted now? */
static bool
fault_is(const char *name)
{
	const char *path = getenv("WAL_DIRECT_FAULT");
	char		word[32] = "";
	FILE	   *file;

	if (path == NULL || (file = fopen(path, "r")) == NULL)
		return false;
	if (fscanf(file, "%31s", word) != 1)
		word[0] = '\0';
	fclose(file);
	return strcmp(word, name) == 0;
}

static int
mode_of(int flags)
{
	return (flags & O_DIRECT ? 1 : 0) | (flags & O_DSYNC ? 2 : 0);
}

__attribute__((format(printf, 1, 2)))
static void
note(const char *fmt,...)
{
	const char *path = getenv("WAL_DIRECT_LOG");
	int			save_errno = errno;
	FILE	   *file;
	va_list		args;

	if (path != NULL && (file = fopen(path, "a")) != NULL)
	{
		va_start(args, fmt);
		vfprintf(file, fmt, args);
		va_end(args);
		fclose(file);
	}
	errno = save_errno;
}

/* modules of the server are compiled with hidden symbols */
#pragma GCC visibility push(default)

int
open(const char *path, int flags,...)
{
	va_list		args;
	mode_t		mode = 0;
	int			fd;

	REAL(open);
	if (flags & (O_CREAT | O_TMPFILE))
	{
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if ((flags & O_DIRECT) && fault_is("no_open"))
	{
		fd = real(path, flags & ~O_DIRECT, mode);
		if (fd >= 0)
			close(fd);
		errno = EINVAL;
		fd = -1;
	}
	else
		fd = real(path, flags, mode);
	if (flags & O_DIRECT)
		note("open %s %d\n", path, mode_of(flags));
	return fd;
}

int
statx(int dir, const char *path, int flags, unsigned int mask, struct statx *buf)
{
	int			rc;

	REAL(statx);
	rc = real(dir, path, flags, mask, buf);
#ifdef STATX_DIOALIGN
	if (rc == 0 && (mask & STATX_DIOALIGN))
	{
		bool		align = fault_is("align");

		if (align || fault_is("silent"))
		{
			buf->stx_mask |= STATX_DIOALIGN;
			buf->stx_dio_mem_align = align ? 512 : 0;
			buf->stx_dio_offset_align = align ? 65536 : 0;
		}
	}
#endif
	return rc;
}

ssize_t
pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	struct iovec part[MAX_PIECES];
	char		link[64];
	char		path[PATH_MAX];
	int			flags = fcntl(fd, F_GETFL);
	size_t		len = 0;
	size_t		limit;
	int			pieces = 0;
	ssize_t		rc;
	ssize_t		path_len;
	int			fail = 0;
	char	   *before = NULL;

	REAL(pwritev);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	path_len = readlink(link, path, sizeof(path) - 1);
	path[path_len > 0 ? path_len : 0] = '\0';
	if (iovcnt > MAX_PIECES ||
		(!(flags & O_DIRECT) && strstr(path, "/pg_wal/") == NULL &&
		 strstr(path, "/xlogtemp.") == NULL))
		return real(fd, iov, iovcnt, offset);
	for (int i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;

	limit = len;
	if (strstr(path, "/xlogtemp.") != NULL && fault_is("full_trial"))
		fail = ENOSPC;
	else if (!(flags & O_DIRECT))
		;
	else if (fault_is("no_write"))
		fail = EINVAL;
	else if (fault_is("full"))
		fail = ENOSPC;
	else if (fault_is("futile"))
		limit = 512;
	else if (fault_is("short"))
	{
		calls++;
		if (calls % 5 == 0)
			fail = EINTR;
		else if (calls % 5 != 4)
			limit = calls * 2654435761u % (len / 512) * 512 + 512;
	}
	if (fail != 0)
	{
		errno = fail;
		rc = -1;
	}
	else
	{
		if ((flags & O_DIRECT) && fault_is("checksums"))
			before = gather(iov, iovcnt, len);
		for (size_t left = limit; left > 0; pieces++)
		{
			part[pieces] = iov[pieces];
			if (part[pieces].iov_len > left)
				part[pieces].iov_len = left;
			left -= part[pieces].iov_len;
		}
		rc = real(fd, part, pieces, offset);
	}
	if (before != NULL)
	{
		char	   *after;

		usleep(1000);
		after = gather(iov, iovcnt, len);
		if (memcmp(before, after, len) != 0)
			note("changed %s %lld\n", path, (long long) offset);
		free(before);
		free(after);
	}
	note("write %s %lld %zu %d %d %zd\n", path, (long long) offset, len, iovcnt,
		 mode_of(flags), rc);
	return rc;
}

ssize_t
pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	struct iovec iov = {.iov_base = (void *) buf,.iov_len = len};

	return pwritev(fd, &iov, 1, offset);
}

#pragma GCC visibility pop
