/*-------------------------------------------------------------------------
 *
 * pcache_persist_none.c
 *	  Stores to the pool without libpmem.
 *
 * The twin of pcache_persist_libpmem.c for builds without the library: no
 * MAP_SYNC and no cache line flushes, so a pool on persistent memory is made
 * durable with msync() like any other file.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/pmem/pcache_persist_none.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifndef USE_LIBPMEM

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_persist.h"

#define MAPPING_ALIGNMENT	((uint64) 2 * 1024 * 1024)

/*
 * Map at a 2 MiB boundary, so that huge pages can be used: reserve too much
 * address space, then place the file inside it.
 */
static void *
MapAligned(int fd, size_t length)
{
	size_t		reserved = length + MAPPING_ALIGNMENT;
	char	   *start;
	char	   *aligned;
	void	   *result;

	start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		return MAP_FAILED;
	aligned = (char *) TYPEALIGN(MAPPING_ALIGNMENT, start);
	result = mmap(aligned, length, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, fd, 0);
	if (result == MAP_FAILED)
	{
		int			save_errno = errno;

		munmap(start, reserved);
		errno = save_errno;
		return MAP_FAILED;
	}
	if (aligned > start)
		munmap(start, aligned - start);
	munmap(aligned + length, start + reserved - (aligned + length));
	return result;
}

bool
PCacheMap(const char *path, bool volatile_memory, PCacheMapping *mapping)
{
	int			fd;
	struct stat st;
	void	   *base;
	int			save_errno;

	mapping->base = NULL;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) < 0)
		base = MAP_FAILED;
	else
		base = MapAligned(fd, st.st_size);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	if (base == MAP_FAILED)
		return false;

	mapping->base = base;
	mapping->length = st.st_size;
	mapping->kind = volatile_memory ? PCACHE_PERSIST_MEMORY : PCACHE_PERSIST_FILE;
	return true;
}

bool
PCacheUnmap(PCacheMapping *mapping)
{
	int			rc = munmap(mapping->base, mapping->length);

	mapping->base = NULL;
	return rc == 0;
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	/* PCacheDrain() does it all */
}

bool
PCacheDrain(const PCacheMapping *mapping)
{
	if (mapping->kind == PCACHE_PERSIST_MEMORY)
		return true;
	return msync(mapping->base, mapping->length, MS_SYNC) == 0;
}

bool
PCachePersist(const PCacheMapping *mapping, const void *addr, size_t len)
{
	uintptr_t	start;

	if (mapping->kind == PCACHE_PERSIST_MEMORY)
		return true;
	/* msync() wants the start of a page */
	start = TYPEALIGN_DOWN(sysconf(_SC_PAGESIZE), (uintptr_t) addr);
	return msync((void *) start, (uintptr_t) addr + len - start, MS_SYNC) == 0;
}

void
PCacheMemcpyNodrain(const PCacheMapping *mapping,
					void *dest, const void *src, size_t len)
{
	memcpy(dest, src, len);
}

void
PCacheStreamNodrain(const PCacheMapping *mapping,
					void *dest, const void *src, size_t len)
{
	memcpy(dest, src, len);
}

#endif							/* !USE_LIBPMEM */
