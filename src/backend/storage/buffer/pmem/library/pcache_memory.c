/*-------------------------------------------------------------------------
 *
 * pcache_memory.c
 *	  The server's own segment of shared memory, while buffers lie in the pool.
 *
 * A part of it is reserved for buffers.  That takes address space only, as long as
 * nobody touches it and it is not in huge pages.  The rest of it is moved into huge
 * pages, if these are asked for: looking up buffers is as fast as with the
 * server's own then.
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
#include <unistd.h>

#include "storage/bufmgr.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pg_shmem.h"
#include "utils/guc.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB	(21 << 26)
#endif

/* What huge_pages is set to, while it is turned off; otherwise -1. */
static int	huge_pages_set_to = -1;

/* The headers that the server has made. */
static char *own_headers = NULL;

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
 * Map memory in huge pages, of which length is a multiple: those that are reserved for
 * hugetlbfs, as the server would have used.  If there are not enough, and it insists
 * on some, such as a pool on tmpfs has, which takes more time at each start.  Returns
 * NULL if there are none, and the file that they belong to.
 */
static char *
MapHugePages(const PCachePool *pool, Size length, int *fd)
{
	PCachePool	rest = {.fs_kind = PCACHE_FS_TMPFS};
	PCacheError ignored;
	char	   *base = MAP_FAILED;

	rest.fd = memfd_create("pg_pcache", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	if (rest.fd >= 0 && ftruncate(rest.fd, length) == 0)
		base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, rest.fd, 0);
	if (base == MAP_FAILED && huge_pages_set_to == HUGE_PAGES_ON &&
		pool->fs_kind == PCACHE_FS_TMPFS)
	{
		if (rest.fd >= 0)
			close(rest.fd);
		rest.fd = memfd_create("pg_pcache", MFD_CLOEXEC);
		rest.file_size = length;
		if (rest.fd >= 0 && ftruncate(rest.fd, length) == 0 && PCachePoolMap(&rest, &ignored))
		{
			if (PCachePoolAllocate(&rest, 0, length, &ignored) && PCachePoolUseHugePages(&rest))
				base = rest.map.base;
			else
				(void) PCacheUnmap(&rest.map);
		}
	}
	*fd = rest.fd;
	return base == MAP_FAILED ? NULL : base;
}

/* A mapping of this process. */
typedef struct Mapping
{
	char	   *start;
	char	   *end;
	unsigned long swapped_kb;	/* of it; not 0 if that is unknown */
} Mapping;

/* Which mapping does an address belong to?  Returns false if that is not told. */
static bool
FindMapping(const char *address, Mapping *mapping)
{
	FILE	   *maps = fopen("/proc/self/smaps", "r");
	char		line[MAXPGPATH + 128];
	unsigned long low;
	unsigned long high;
	bool		found = false;

	/* without smaps, something is taken to be swapped out */
	if (maps == NULL)
		maps = fopen("/proc/self/maps", "r");
	mapping->swapped_kb = 1;
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
	{
		if (sscanf(line, "%lx-%lx", &low, &high) == 2)
		{
			if (found)
				break;
			mapping->start = (char *) low;
			mapping->end = (char *) high;
			found = mapping->start <= address && address < mapping->end;
		}
		else if (found && sscanf(line, "Swap: %lu kB", &mapping->swapped_kb) == 1)
			break;
	}
	if (maps != NULL)
		fclose(maps);
	return found;
}

/*
 * Copy a part of the segment to memory that is all zeros.  Pages that nobody has used, of
 * which min_dynamic_shared_memory has many, would take memory if they were read.
 */
static void
CopyUsed(char *to, char *from, Size length)
{
	Size		page_size = sysconf(_SC_PAGESIZE);
	unsigned char *used = malloc(length / page_size);
	bool		is_known = used != NULL && mincore(from, length, used) == 0;
	Mapping		segment;

	for (Size i = 0; is_known && i < length / page_size; i++)
	{
		if ((used[i] & 1) != 0)
			memcpy(to + i * page_size, from + i * page_size, page_size);
	}

	/*
	 * mincore() takes a page that is swapped out for one that was never used,
	 * and one may have been swapped out until now
	 */
	if (!is_known || !FindMapping(from, &segment) || segment.swapped_kb > 0)
		memcpy(to, from, length);
	free(used);
}

/*
 * Move a part of the segment into huge pages, at the same addresses.  There is only
 * this process, and its signal handlers store nothing there.  Returns how many bytes
 * were moved.
 */
static Size
MovePart(const PCachePool *pool, char *from, char *to)
{
	char	   *start = (char *) TYPEALIGN(PCACHE_ALIGNMENT, from);
	char	   *end = (char *) TYPEALIGN_DOWN(PCACHE_ALIGNMENT, to);
	Size		length = end > start ? end - start : 0;
	Size		moved = 0;
	int			fd = -1;
	char	   *huge = length > 0 ? MapHugePages(pool, length, &fd) : NULL;
	char	   *old;

	if (huge != NULL)
	{
		CopyUsed(huge, start, length);

		/* once more, to have an address by which these pages are given back */
		old = mremap(start, 0, length, MREMAP_MAYMOVE);

		/*
		 * Not by mremap(): before Linux 5.16 it does not move huge pages, and
		 * has unmapped the target by the time that it says so.
		 */
		if (old != MAP_FAILED &&
			mmap(start, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
		{
			moved = length;
			(void) madvise(old, length, MADV_REMOVE);
			(void) munmap(old, length);
		}
		else if (old != MAP_FAILED)
			(void) mremap(old, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start);
		(void) munmap(huge, length);
	}
	if (fd >= 0)
		close(fd);
	return moved;
}

/*
 * Have the rest of the segment in huge pages, if huge_pages asks for them: all but what
 * is from reserved to reserved_end.  Only where a crash restart unmaps by address
 * what we have mapped; and not what the kernel knows by its physical address, as the
 * rings of io_uring.
 */
static Size
MoveRest(const PCachePool *pool, char *reserved, char *reserved_end)
{
	const char *io_method = GetConfigOption("io_method", true, false);
	Mapping		segment;

	if (huge_pages_set_to < 0 || shared_memory_type != SHMEM_TYPE_MMAP ||
		(io_method != NULL && strcmp(io_method, "io_uring") == 0) ||
		!FindMapping(reserved, &segment) || segment.end < reserved_end)
		return 0;
	return MovePart(pool, segment.start, reserved) +
		MovePart(pool, reserved_end, segment.end);
}

/*
 * Map the pool over the reservation, to be read only, so that whoever looks at all of
 * shared memory (pg_shmem_allocations_numa) does not allocate it, and keep it out of
 * core dumps.  If that fails it costs memory, and only then.
 */
static void
CoverReservation(const PCachePool *pool, const PCacheSuperblock *sb, char *blocks)
{
	/* a huge page cannot be mapped in part, nor beside its boundaries */
	Size		align = pool->fs_kind == PCACHE_FS_HUGETLBFS ? pool->page_size : BLCKSZ;
	char	   *start = (char *) TYPEALIGN(align, blocks);
	char	   *end = (char *) TYPEALIGN_DOWN(align, blocks + (Size) NBuffers * BLCKSZ);
	off_t		offset = TYPEALIGN_DOWN(align, sb->blocks_offset);
	void	   *trial;

	if (end <= start)
		return;
	(void) madvise(start, end - start, MADV_DONTDUMP);
	/* what fails elsewhere leaves the reservation as it is; see MovePart() */
	trial = mmap(NULL, end - start, PROT_READ, MAP_SHARED, pool->fd, offset);
	if (trial == MAP_FAILED)
		return;
	(void) munmap(trial, end - start);
	if (mmap(start, end - start, PROT_READ, MAP_SHARED | MAP_FIXED, pool->fd, offset) == MAP_FAILED)
		return;
	(void) madvise(start, end - start, MADV_DONTDUMP);
	cover = start;
	cover_length = end - start;
}

/*
 * Shared buffers lie in the pool from now on.  headers and blocks are where the
 * server has reserved room for them.  Nothing that fails here is an error.  Returns
 * how many bytes of the segment are in huge pages.
 */
Size
PCacheArrangeSegment(const PCachePool *pool, const PCacheSuperblock *sb,
					 char *headers, char *blocks)
{
	/*
	 * what lies behind the blocks is seldom used: only while a checkpoint
	 * sorts
	 */
	char	   *end = Max(blocks + (Size) NBuffers * BLCKSZ, (char *) (CkptBufferIds + NBuffers));
	Size		moved = MoveRest(pool, Min(headers, blocks), end);

	own_headers = headers;
	CoverReservation(pool, sb, blocks);
	return moved;
}

/*
 * Give back the memory of the headers that the server has initialized and that nobody
 * uses any more.  For the worker, as it takes time.
 */
void
PCacheGiveHeadersBack(void)
{
	char	   *start = (char *) TYPEALIGN(BLCKSZ, own_headers);
	char	   *end = (char *) TYPEALIGN_DOWN(BLCKSZ, own_headers + (Size) NBuffers * sizeof(BufferDescPadded));

	if (end > start)
		(void) madvise(start, end - start, MADV_REMOVE);
}

/* The segment is about to be given up, which may leave our mapping. */
void
PCacheUncoverReservation(void)
{
	if (cover != NULL)
		(void) munmap(cover, cover_length);
	cover = NULL;
}
