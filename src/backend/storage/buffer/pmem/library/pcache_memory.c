/*-------------------------------------------------------------------------
 *
 * pcache_memory.c
 *	  What the server reserves for shared buffers that lie in the pool.
 *
 * The reservation is a part of the server's own segment of shared memory.  It takes
 * address space only, as long as nobody touches it and it is not in huge pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_memory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "storage/bufmgr.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_library.h"
#include "storage/pg_shmem.h"

/* What huge_pages is set to, while it is turned off; otherwise -1. */
static int	huge_pages_set_to = -1;

/* Where the pool is mapped over the reservation, if it is. */
static char *cover = NULL;
static Size cover_length = 0;

/*
 * Turn huge_pages off while the segment is made.  Not by SetConfigOption(): a setting
 * that the configuration file contradicts would be reported at each reload, and
 * wait for a restart for ever.
 */
void
PCacheTurnHugePagesOff(void)
{
	ereport(LOG,
			(errmsg("persistent cache: \"huge_pages\" is turned off for the rest of shared memory"),
			 errdetail("Shared buffers are in huge pages if those of the pool are.")));
	huge_pages_set_to = huge_pages;
	huge_pages = HUGE_PAGES_OFF;
}

/* The segment has been made. */
void
PCacheRestoreHugePages(void)
{
	if (huge_pages_set_to >= 0)
		huge_pages = huge_pages_set_to;
}

/* A crash restart is about to make the segment again: the same as at the start. */
void
PCacheTurnHugePagesOffAgain(void)
{
	if (huge_pages_set_to >= 0)
		huge_pages = HUGE_PAGES_OFF;
}

/*
 * Map the pool over the reservation, to be read only, so that whoever looks at all of
 * shared memory (pg_shmem_allocations_numa) does not allocate it, and keep it out of
 * core dumps.  If that fails it costs memory, and only then.
 */
void
PCacheCoverReservation(const PCachePool *pool, const PCacheSuperblock *sb,
					   char *reserved)
{
#ifdef __linux__
	/* a huge page cannot be mapped in part, nor beside its boundaries */
	Size		align = pool->fs_kind == PCACHE_FS_HUGETLBFS ? pool->page_size : BLCKSZ;
	char	   *start = (char *) TYPEALIGN(align, reserved);
	char	   *end = (char *) TYPEALIGN_DOWN(align, reserved + (Size) NBuffers * BLCKSZ);
	void	   *mapped;

	if (end <= start)
		return;
	(void) madvise(start, end - start, MADV_DONTDUMP);
	mapped = mmap(NULL, end - start, PROT_READ, MAP_SHARED, pool->fd,
				  TYPEALIGN_DOWN(align, sb->blocks_offset));
	if (mapped == MAP_FAILED)
		return;
	if (mremap(mapped, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED)
	{
		(void) munmap(mapped, end - start);
		return;
	}
	(void) madvise(start, end - start, MADV_DONTDUMP);
	cover = start;
	cover_length = end - start;
#endif
}

/* The segment is about to be given up, which may leave our mapping. */
void
PCacheUncoverReservation(void)
{
	if (cover != NULL)
		(void) munmap(cover, cover_length);
	cover = NULL;
}
