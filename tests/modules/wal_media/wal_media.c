/*-------------------------------------------------------------------------
 *
 * wal_media.c
 *	  A shim to preload: keeps apart what of WAL would be on media.
 *
 * WAL segments on tmpfs, mapped as persistent memory (PMEM_IS_PMEM_FORCE=1),
 * show all stores at once.  For each of them this keeps an image, in which
 * only those bytes are that were flushed and drained, or synced with a system
 * call.  A test then cuts the power: it kills the server and puts the images
 * in place of the files.
 *
 * A flush takes the bytes as they are then; a drain waits for the flushes of
 * its own process only.  tests/powercut/pmem_interpose.c tells of both.  Unlike
 * tests/powercut/shim.c, which draws what arrives and when, this does the same in
 * each run: what is not drained never arrives.
 *
 *	 WAL_MEDIA_WAL		directory of the segments, canonical
 *	 WAL_MEDIA_IMAGES	directory of the images, named by inode number
 *	 WAL_MEDIA_COUNT	file whose first 8 bytes count the drains
 *	 WAL_MEDIA_DELAY	drains take up to so many microseconds, so that a kill
 *						is likely to come before one
 *	 WAL_MEDIA_DRAIN	"no": drains do nothing, as if the server had none
 *
 * Without the first two it keeps no images.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  tests/modules/wal_media/wal_media.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pmem_interpose.h"

#define MAX_MAPPINGS	128

typedef struct Mapping
{
	char	   *base;			/* NULL: unused */
	size_t		length;
	char	   *image;
} Mapping;

/* Flushed, but not drained. */
typedef struct Pending
{
	struct Pending *next;
	char	   *to;
	size_t		length;
	char		bytes[];
} Pending;

static Mapping mappings[MAX_MAPPINGS];
static Pending *pending_first,
		  **pending_last = &pending_first;

const char *const shim_name = "wal_media";

/* The image of an open WAL segment, mapped; NULL if fd is something else. */
static char *
open_image(int fd, size_t *length)
{
	const char *wal = getenv("WAL_MEDIA_WAL");
	const char *images = getenv("WAL_MEDIA_IMAGES");
	char		link[64];
	char		path[PATH_MAX];
	struct stat st;
	ssize_t		len;

	if (wal == NULL || images == NULL)
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return NULL;
	path[len] = '\0';
	if (strncmp(path, wal, strlen(wal)) != 0 || path[strlen(wal)] != '/' ||
		strchr(path + strlen(wal) + 1, '/') != NULL)
		return NULL;

	*length = st.st_size;
	snprintf(path, sizeof(path), "%s/%lu", images, (unsigned long) st.st_ino);
	return map_shared_file(path, st.st_size);
}

/* All that the file holds is on media. */
static void
sync_image(int fd)
{
	size_t		length;
	char	   *image = open_image(fd, &length);
	size_t		done = 0;

	if (image == NULL)
		return;
	while (done < length)
	{
		ssize_t		n = pread(fd, image + done, length - done, done);

		if (n <= 0)
			die("could not read a WAL segment: %s", strerror(errno));
		done += n;
	}
	munmap(image, length);
}

/* Bytes were written; if that was with O_DSYNC, they are on media. */
static void
wrote(int fd, const struct iovec *iov, ssize_t written, off_t offset)
{
	int			save_errno = errno;
	size_t		length;
	char	   *image;

	if (written <= 0 || !(fcntl(fd, F_GETFL) & O_DSYNC) ||
		(image = open_image(fd, &length)) == NULL)
	{
		errno = save_errno;
		return;
	}
	for (char *to = image + offset; written > 0; iov++)
	{
		size_t		n = (size_t) written < iov->iov_len ? (size_t) written : iov->iov_len;

		memcpy(to, iov->iov_base, n);
		to += n;
		written -= n;
	}
	munmap(image, length);
}

/* modules of the server are compiled with hidden symbols */
#pragma GCC visibility push(default)

int
fsync(int fd)
{
	REAL(fsync);
	sync_image(fd);
	return real(fd);
}

int
fdatasync(int fd)
{
	REAL(fdatasync);
	sync_image(fd);
	return real(fd);
}

ssize_t
pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	struct iovec iov = {.iov_base = (void *) buf,.iov_len = len};
	ssize_t		rc;

	REAL(pwrite);
	rc = real(fd, buf, len, offset);
	wrote(fd, &iov, rc, offset);
	return rc;
}

ssize_t
pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	ssize_t		rc;

	REAL(pwritev);
	rc = real(fd, iov, iovcnt, offset);
	wrote(fd, iov, rc, offset);
	return rc;
}

#pragma GCC visibility pop

void
media_mapped(const char *path, char *base, size_t length)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("could not open %s: %s", path, strerror(errno));
	for (int i = 0; i < MAX_MAPPINGS; i++)
	{
		if (mappings[i].base != NULL)
			continue;
		mappings[i].image = open_image(fd, &mappings[i].length);
		if (mappings[i].image != NULL)
			mappings[i].base = base;
		close(fd);
		return;
	}
	die("too many mappings");
}

static Mapping *
find_mapping(const char *addr)
{
	for (int i = 0; i < MAX_MAPPINGS; i++)
	{
		if (mappings[i].base != NULL && addr >= mappings[i].base &&
			addr < mappings[i].base + mappings[i].length)
			return &mappings[i];
	}
	return NULL;
}

static void
count_drain(void)
{
	static uint64_t *count;
	const char *path = getenv("WAL_MEDIA_COUNT");

	if (path == NULL)
		return;
	if (count == NULL)
	{
		int			fd = open(path, O_RDWR | O_CLOEXEC);

		if (fd < 0)
			die("could not open %s: %s", path, strerror(errno));
		count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (count == MAP_FAILED)
			die("could not map %s: %s", path, strerror(errno));
		close(fd);
	}
	__atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
}

void
media_drain(void)
{
	const char *drain = getenv("WAL_MEDIA_DRAIN");
	const char *delay = getenv("WAL_MEDIA_DELAY");

	count_drain();
	if (pending_first != NULL && delay != NULL && atoi(delay) > 0)
		usleep(rand() % atoi(delay));
	while (pending_first != NULL)
	{
		Pending    *p = pending_first;

		if (drain == NULL || strcmp(drain, "no") != 0)
			memcpy(p->to, p->bytes, p->length);
		pending_first = p->next;
		free(p);
	}
	pending_last = &pending_first;
}

void
media_unmapping(const void *base)
{
	Mapping    *mapping = find_mapping(base);

	if (mapping == NULL)
		return;
	/* what is still pending will never be drained: forget it */
	for (Pending *p; (p = pending_first) != NULL; free(p))
		pending_first = p->next;
	pending_last = &pending_first;
	munmap(mapping->image, mapping->length);
	mapping->base = NULL;
}

/* Take the cache lines of a range as they are now. */
bool
media_flush(const void *addr, size_t len)
{
	Mapping    *mapping = find_mapping(addr);
	size_t		offset,
				start,
				end;
	Pending    *p;

	if (mapping == NULL)
		return false;
	if (len == 0)
		return true;
	offset = (const char *) addr - mapping->base;
	start = offset / LINE_SIZE * LINE_SIZE;
	end = (offset + len + LINE_SIZE - 1) / LINE_SIZE * LINE_SIZE;
	p = malloc(sizeof(Pending) + end - start);
	if (p == NULL)
		die("out of memory");
	p->next = NULL;
	p->to = mapping->image + start;
	p->length = end - start;
	memcpy(p->bytes, mapping->base + start, end - start);
	*pending_last = p;
	pending_last = &p->next;
	return true;
}
