/*-------------------------------------------------------------------------
 *
 * pcache_buffers.c
 *	  The buffers of a server that runs without its pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_buffers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "miscadmin.h"
#include "storage/pcache_core.h"
#include "storage/pg_shmem.h"

static void *buffers = NULL;
static Size buffers_size;

/*
 * Map shared memory for buffers, in huge pages if they are to be had.
 *
 * PostgreSQL's own shared memory was sized without buffers.  huge_pages = on is
 * taken as "try" here: the administrator has reserved them for the pool.
 */
char *
PCacheMapBuffers(void)
{
	Size		size = NBuffers * (Size) BLCKSZ;
	int			flags = MAP_SHARED | MAP_ANONYMOUS;
	void	   *memory = MAP_FAILED;

#ifdef MAP_HUGETLB
	if (huge_pages != HUGE_PAGES_OFF)
	{
		Size		page_size;
		int			huge_flags;

		GetHugePageSize(&page_size, &huge_flags);
		buffers_size = TYPEALIGN(page_size, size);
		memory = mmap(NULL, buffers_size, PROT_READ | PROT_WRITE,
					  flags | huge_flags, -1, 0);
	}
#endif
	if (memory == MAP_FAILED)
	{
		buffers_size = size;
		memory = mmap(NULL, buffers_size, PROT_READ | PROT_WRITE, flags, -1, 0);
	}
	if (memory == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map %zu MB of shared memory for buffers: %m", size >> 20)));
	buffers = memory;
	return buffers;
}

/* Unmap the buffers of a server without its pool, if there are any. */
void
PCacheUnmapBuffers(void)
{
	if (buffers != NULL)
		munmap(buffers, buffers_size);
	buffers = NULL;
}
