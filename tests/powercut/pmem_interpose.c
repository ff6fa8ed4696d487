/*-------------------------------------------------------------------------
 *
 * pmem_interpose.c
 *	  Which of libpmem's functions map, flush and drain what?
 *
 * Those that the server calls, as pmem_interpose.h describes it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/pmem_interpose.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pmem_interpose.h"

/* Declared here, because libpmem.h need not be installed. */
#define PMEM_F_MEM_NODRAIN	(1U << 0)
#define PMEM_F_MEM_NOFLUSH	(1U << 5)

/* modules of the server are compiled with hidden symbols */
#pragma GCC visibility push(default)

extern void *pmem_map_file(const char *path, size_t len, int flags, mode_t mode,
						   size_t *mapped_len, int *is_pmem);
extern int	pmem_unmap(void *addr, size_t len);
extern void pmem_flush(const void *addr, size_t len);
extern void pmem_drain(void);
extern void pmem_persist(const void *addr, size_t len);
extern int	pmem_msync(const void *addr, size_t len);
extern void *pmem_memcpy_nodrain(void *dest, const void *src, size_t len);
extern void *pmem_memcpy_persist(void *dest, const void *src, size_t len);
extern void *pmem_memcpy(void *dest, const void *src, size_t len, unsigned flags);

#pragma GCC visibility pop

void
die(const char *fmt,...)
{
	va_list		ap;

	fprintf(stderr, "%s: ", shim_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	abort();
}

void *
map_shared_file(const char *path, size_t size)
{
	int			fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void	   *p;

	if (fd < 0 || ftruncate(fd, size) < 0 ||
		(p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		die("could not map %s: %s", path, strerror(errno));
	close(fd);
	return p;
}

void *
pmem_map_file(const char *path, size_t len, int flags, mode_t mode,
			  size_t *mapped_len, int *is_pmem)
{
	size_t		mapped;
	void	   *p;

	REAL(pmem_map_file);
	p = real(path, len, flags, mode, &mapped, is_pmem);
	if (mapped_len != NULL)
		*mapped_len = mapped;
	if (p != NULL)
		media_mapped(path, p, mapped);
	return p;
}

int
pmem_unmap(void *addr, size_t len)
{
	REAL(pmem_unmap);
	media_unmapping(addr);
	return real(addr, len);
}

void
pmem_flush(const void *addr, size_t len)
{
	REAL(pmem_flush);
	if (!media_flush(addr, len))
		real(addr, len);
}

void
pmem_drain(void)
{
	REAL(pmem_drain);
	media_drain();
	real();
}

void
pmem_persist(const void *addr, size_t len)
{
	pmem_flush(addr, len);
	pmem_drain();
}

int
pmem_msync(const void *addr, size_t len)
{
	REAL(pmem_msync);
	if (!media_flush(addr, len))
		return real(addr, len);
	media_drain();
	return 0;
}

void *
pmem_memcpy_nodrain(void *dest, const void *src, size_t len)
{
	void	   *p;

	REAL(pmem_memcpy_nodrain);
	p = real(dest, src, len);
	(void) media_flush(dest, len);
	return p;
}

void *
pmem_memcpy_persist(void *dest, const void *src, size_t len)
{
	void	   *p;

	REAL(pmem_memcpy_persist);
	p = real(dest, src, len);
	if (media_flush(dest, len))
		media_drain();
	return p;
}

void *
pmem_memcpy(void *dest, const void *src, size_t len, unsigned flags)
{
	void	   *p;

	REAL(pmem_memcpy);
	p = real(dest, src, len, flags);
	if ((flags & PMEM_F_MEM_NOFLUSH) == 0 && media_flush(dest, len) &&
		(flags & PMEM_F_MEM_NODRAIN) == 0)
		media_drain();
	return p;
}
