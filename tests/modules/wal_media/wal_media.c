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
 * its own process only.
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
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* modules are compiled with hidden symbols */
#pragma GCC visibility push(default)

#define MAX_MAPPINGS	128
#define LINE			64

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

static void
give_up(const char *what)
{
	fprintf(stderr, "wal_media: %s: %m\n", what);
	abort();
}

static void *
next_symbol(const char *name)
{
	void	   *symbol = dlsym(RTLD_NEXT, name);

	if (symbol == NULL)
		give_up(name);
	return symbol;
}

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
	int			image_fd;
	char	   *image;

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
	image_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (image_fd < 0)
		give_up(path);
	if (ftruncate(image_fd, st.st_size) < 0)
		give_up("ftruncate");
	image = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, image_fd, 0);
	if (image == MAP_FAILED)
		give_up("mmap");
	close(image_fd);
	return image;
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
			give_up("pread");
		done += n;
	}
	munmap(image, length);
}

int
fsync(int fd)
{
	static int	(*real) (int);

	if (real == NULL)
		real = next_symbol("fsync");
	sync_image(fd);
	return real(fd);
}

int
fdatasync(int fd)
{
	static int	(*real) (int);

	if (real == NULL)
		real = next_symbol("fdatasync");
	sync_image(fd);
	return real(fd);
}

void *
pmem_map_file(const char *path, size_t len, int flags, mode_t mode,
			  size_t *mapped_len, int *is_pmem)
{
	static void *(*real) (const char *, size_t, int, mode_t, size_t *, int *);
	void	   *base;
	int			fd;

	if (real == NULL)
		real = next_symbol("pmem_map_file");
	base = real(path, len, flags, mode, mapped_len, is_pmem);
	if (base == NULL)
		return base;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		give_up(path);
	for (int i = 0; i < MAX_MAPPINGS; i++)
	{
		if (mappings[i].base != NULL)
			continue;
		mappings[i].image = open_image(fd, &mappings[i].length);
		if (mappings[i].image != NULL)
			mappings[i].base = base;
		close(fd);
		return base;
	}
	give_up("too many mappings");
	return NULL;
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
			give_up(path);
		count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (count == MAP_FAILED)
			give_up(path);
		close(fd);
	}
	__atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
}

void
pmem_drain(void)
{
	static void (*real) (void);
	const char *drain = getenv("WAL_MEDIA_DRAIN");
	const char *delay = getenv("WAL_MEDIA_DELAY");

	if (real == NULL)
		real = next_symbol("pmem_drain");
	real();
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

int
pmem_unmap(void *addr, size_t len)
{
	static int	(*real) (void *, size_t);
	Mapping    *mapping = find_mapping(addr);

	if (real == NULL)
		real = next_symbol("pmem_unmap");
	if (mapping != NULL)
	{
		/* what is still pending will never be drained: forget it */
		for (Pending *p; (p = pending_first) != NULL; free(p))
			pending_first = p->next;
		pending_last = &pending_first;
		munmap(mapping->image, mapping->length);
		mapping->base = NULL;
	}
	return real(addr, len);
}

/* Take the cache lines of a range as they are now. */
static void
note_flush(const char *addr, size_t len)
{
	Mapping    *mapping = find_mapping(addr);
	size_t		start,
				end;
	Pending    *p;

	if (mapping == NULL || len == 0)
		return;
	start = (addr - mapping->base) / LINE * LINE;
	end = (addr - mapping->base + len + LINE - 1) / LINE * LINE;
	p = malloc(sizeof(Pending) + end - start);
	if (p == NULL)
		give_up("malloc");
	p->next = NULL;
	p->to = mapping->image + start;
	p->length = end - start;
	memcpy(p->bytes, mapping->base + start, end - start);
	*pending_last = p;
	pending_last = &p->next;
}

void *
pmem_memcpy_nodrain(void *dest, const void *src, size_t len)
{
	static void *(*real) (void *, const void *, size_t);

	if (real == NULL)
		real = next_symbol("pmem_memcpy_nodrain");
	real(dest, src, len);
	note_flush(dest, len);
	return dest;
}

/* Always flushes; who copies with flags drains by himself. */
void *
pmem_memcpy(void *dest, const void *src, size_t len, unsigned flags)
{
	static void *(*real) (void *, const void *, size_t, unsigned);

	if (real == NULL)
		real = next_symbol("pmem_memcpy");
	real(dest, src, len, flags);
	note_flush(dest, len);
	return dest;
}

void
pmem_flush(const void *addr, size_t len)
{
	static void (*real) (const void *, size_t);

	if (real == NULL)
		real = next_symbol("pmem_flush");
	real(addr, len);
	note_flush(addr, len);
}

void
pmem_persist(const void *addr, size_t len)
{
	pmem_flush(addr, len);
	pmem_drain();
}
