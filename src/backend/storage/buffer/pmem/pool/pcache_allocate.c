/*-------------------------------------------------------------------------
 *
 * pcache_allocate.c
 *	  The size of a pool's file, its room, and its huge pages on tmpfs.
 *
 * Huge pages stay with the file.  Without them each process would fault in each
 * 4 kB of the pool again after a restart, which takes longer than many a query
 * on pages that are all there.  The kernel makes them on request (MADV_COLLAPSE,
 * Linux 6.1), whether or not the mount has the option "huge".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_allocate.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_pool.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25		/* glibc has it since 2.37 */
#endif

/* How much is allocated, or collapsed, before we look for an interrupt, in bytes. */
#define ALLOCATE_AT_ONCE	(UINT64CONST(1) << 30)
#define COLLAPSE_AT_ONCE	(UINT64CONST(1) << 24)

/*
 * Is there room for what the file lacks of that many bytes?  Fails with ENOSPC
 * if not, and with EFBIG if this process may not make a file that large.  A
 * file system that does not say how large it is has room.
 */
bool
PCachePoolHasRoom(const PCachePool *pool, uint64 size)
{
	PCacheRoom	room;
	struct stat st;

	if (fstat(pool->fd, &st) < 0)
		return false;
	/* a file that is too large already can be used, and so can its holes */
	if (size > (uint64) st.st_size && size > PCacheFileSizeLimit())
	{
		errno = EFBIG;
		return false;
	}
	if (!PCacheFsRoom(pool->fd, &room))
		return false;
	/* hugetlbfs also counts blocks of 512 bytes */
	if (size - Min(size, (uint64) st.st_blocks * 512) <= room.bytes)
		return true;
	errno = ENOSPC;
	return false;
}

/*
 * Is there memory for what the file of an open pool lacks of that many bytes?  Only tmpfs
 * takes it from what everybody uses.  If not, err says why.
 */
bool
PCachePoolHasMemory(const PCachePool *pool, uint64 size, PCacheError *err)
{
	struct stat st;

	return pool->fs_kind != PCACHE_FS_TMPFS || fstat(pool->fd, &st) < 0 ||
		PCacheMemoryWillDo(size - Min(size, (uint64) st.st_blocks * 512), size, err);
}

/*
 * Nothing of a mapped pool is kept.  If there is no memory for all of its blocks, it gives
 * back those that it has, as a server gives back its shared memory when it begins anew.
 */
void
PCachePoolShedBlocks(const PCachePool *pool, uint64 blocks_offset)
{
	PCacheError ignored;

	if (!PCachePoolHasMemory(pool, pool->file_size, &ignored))
		(void) fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						 blocks_offset, pool->file_size - blocks_offset);
}

/*
 * Is a part of an open pool's file not allocated?  A store there is SIGBUS once
 * the file system is full, and what is read there is no page.
 *
 * That is so on tmpfs of a pool that is new, was made larger or was mended, until the
 * worker has allocated it, and on fsdax if somebody was killed in "pg_pcache rebuild"
 * between punching and allocating.  An ordinary file system may compress, so it is not
 * asked.
 */
bool
PCachePoolHasHoles(const PCachePool *pool)
{
	struct stat st;

	if (!PCacheFsIsMemory(pool->fs_kind) && pool->fs_kind != PCACHE_FS_FSDAX)
		return false;
	/* if that fails, so does what is done about holes, and tells */
	return fstat(pool->fd, &st) < 0 || (uint64) st.st_blocks * 512 < pool->file_size;
}

/*
 * Has an open pool less than the file of that many bytes that it should be?  Then
 * what is missing needs room, whoever allocates it.
 */
bool
PCachePoolIsIncomplete(const PCachePool *pool, uint64 size)
{
	return pool->file_size < size || PCachePoolHasHoles(pool);
}

/*
 * Is there a hole between the superblocks and the descriptors?  What was there
 * may have been a reason not to believe the pool.
 *
 * Each page is asked for.  To look for the next hole would go through all that is allocated
 * behind.  Where the kernel does not tell, which is so on hugetlbfs, it is lost.
 */
bool
PCachePoolHeadIsLost(const PCachePool *pool)
{
	if (!PCachePoolHasHoles(pool))
		return false;
	if (pool->fs_kind == PCACHE_FS_HUGETLBFS)
		return true;
	for (uint64 at = PCACHE_NOTES_OFFSET;
		 at < Min(PCACHE_DESCRIPTORS_OFFSET, pool->file_size); at += PCACHE_SUPERBLOCK_SIZE)
	{
		if (lseek(pool->fd, at, SEEK_DATA) != (off_t) at)
			return true;
	}
	return false;
}

/*
 * Find the first hole from an offset on.  What is allocated but was never stored
 * to counts as one, too.  Where the kernel does not tell, which is so on
 * hugetlbfs, all of the rest does.  For a file that has holes only.
 */
bool
PCachePoolNextHole(const PCachePool *pool, uint64 offset, uint64 *start, uint64 *end)
{
	off_t		hole = pool->fs_kind == PCACHE_FS_HUGETLBFS ? -1 :
		lseek(pool->fd, offset, SEEK_HOLE);
	off_t		data;

	if (offset >= pool->file_size)
		return false;
	if (hole < 0)
	{
		*start = offset;
		*end = pool->file_size;
		return true;
	}
	/* each file ends in a hole */
	if ((uint64) hole >= pool->file_size)
		return false;
	data = lseek(pool->fd, hole, SEEK_DATA);
	*start = hole;
	*end = data < 0 ? pool->file_size : (uint64) data;
	return true;
}

/*
 * Which parts of an open pool's file are holes, see PCachePoolNextHole()?  There is no
 * page in them.
 */
void
PCachePoolListHoles(const PCachePool *pool, PCacheRangeList *holes)
{
	uint64		start;
	uint64		end = 0;

	if (!PCachePoolHasHoles(pool))
		return;
	while (PCachePoolNextHole(pool, end, &start, &end))
		PCacheRangeAdd(holes, start, end - start);
	PCacheRangeMerge(holes);
}

/*
 * Collapse a part of a mapped pool.  Returns whether all of it is in huge pages now;
 * otherwise errno says why.
 */
static bool
Collapse(const PCachePool *pool, uint64 offset, uint64 length)
{
	int			rc = madvise(pool->map.base + offset, length, MADV_COLLAPSE);
	int			save_errno = errno;

	/* that has touched all of it */
	PCachePoolLetGo(pool, offset, length);
	errno = save_errno;
	return rc == 0;
}

/*
 * Put a mapped pool on tmpfs into huge pages, as far as the kernel has some.
 * Returns, and sets in pool, whether all of it is in huge pages.
 */
bool
PCachePoolUseHugePages(PCachePool *pool)
{
	pool->huge_pages = pool->fs_kind == PCACHE_FS_TMPFS;
	for (uint64 done = 0; pool->fs_kind == PCACHE_FS_TMPFS && done < pool->map.length;
		 done += COLLAPSE_AT_ONCE)
	{
		bool		interrupted = PCachePoolInterrupted != NULL && PCachePoolInterrupted();

		if (!interrupted &&
			Collapse(pool, done, Min(COLLAPSE_AT_ONCE, pool->map.length - done)))
			continue;
		pool->huge_pages = false;

		/* it is about this part; anything else is want of memory */
		if (interrupted || errno != EINVAL)
			break;
	}
	return pool->huge_pages;
}

/*
 * Allocate a part of a mapped pool on tmpfs in huge pages, as far as the kernel
 * has some.  What is there already stays as it is.
 *
 * It is enough to allocate the first small page of each of them.  The kernel
 * then collapses it without those that are missing, which takes a quarter of
 * the time that it takes to allocate all of them and to collapse them.
 */
static void
AllocateHugePages(const PCachePool *pool, uint64 offset, uint64 length)
{
	for (uint64 at = offset; at < offset + length; at += PCACHE_ALIGNMENT)
	{
		if (posix_fallocate(pool->fd, at, 1) != 0)
			return;
	}
	(void) Collapse(pool, offset, length);
}

/*
 * Set the hint of an error that comes of want of room, with errno as
 * PCachePoolHasRoom() and the kernel set it.
 */
void
PCachePoolSetRoomHint(const PCachePool *pool, PCacheError *err)
{
	PCacheRoom	room;

	if (errno == EFBIG)
		PCacheSetHint(err, _("Raise the limit on the size of files (ulimit -f) that the server is started with."));
	else if (errno != ENOSPC)
		return;
	else if (PCacheFsRoom(pool->fd, &room) && room.hint != NULL)
		PCacheSetHint(err, "%s", room.hint);
	else if (pool->fs_kind == PCACHE_FS_TMPFS)
		PCacheSetHint(err, _("Enlarge its file system (mount -o remount,size=...), or decrease \"shared_buffers\"."));
	else
		PCacheSetHint(err, _("Enlarge its file system, or decrease \"shared_buffers\"."));
}

/* Tell that memory could not be allocated; errno says why, and is left as it is. */
void
PCachePoolSetAllocationError(const PCachePool *pool, uint64 size, PCacheError *err)
{
	int			save_errno = errno;

	PCacheSetError(err, _("could not allocate %llu MB for file \"%s\": %m"),
				   (unsigned long long) (size >> 20), pool->path);
	PCachePoolSetRoomHint(pool, err);
	errno = save_errno;
}

/*
 * Allocate a part of a pool's file, where it has a hole.  Both offset and length
 * are multiples of PCACHE_ALIGNMENT, unless the pool is not mapped.
 *
 * In parts, since tmpfs begins anew after a signal.
 */
bool
PCachePoolAllocate(const PCachePool *pool, uint64 offset, uint64 length,
				   PCacheError *err)
{
	for (uint64 end = offset + length; offset < end; offset += ALLOCATE_AT_ONCE)
	{
		uint64		part = Min(ALLOCATE_AT_ONCE, end - offset);

		do
		{
			if (PCachePoolIsInterrupted(err))
				return false;
			if (pool->fs_kind == PCACHE_FS_TMPFS && pool->map.base != NULL)
				AllocateHugePages(pool, offset, part);
			errno = posix_fallocate(pool->fd, offset, part);
		} while (errno == EINTR);
		if (errno != 0)
		{
			PCachePoolSetAllocationError(pool, length, err);
			return false;
		}
	}
	return true;
}

/*
 * Give the file of an open pool that many bytes.  The first of them, as many as
 * allocated says, are allocated, holes that it had included; unless it is on
 * tmpfs, all of them are.  If that fails, or is interrupted, it has the size that
 * it had before, unless the hint says that this failed as well.
 *
 * The pool must not be mapped.  Its superblock is the caller's business: with
 * another size than it says the pool is cold.
 */
bool
PCachePoolSetSize(PCachePool *pool, uint64 size, uint64 allocated,
				  PCacheError *err)
{
	bool		ok;
	int			save_errno;

	if (size < pool->file_size && ftruncate(pool->fd, size) < 0)
		return PCacheSetError(err, _("could not truncate file \"%s\" to %llu MB: %m"),
							  pool->path, (unsigned long long) (size >> 20));

	/*
	 * We have to ask first: what does not fit must not fill the memory of the
	 * host before that is found out.
	 */
	ok = PCachePoolHasRoom(pool, size);
	if (!ok)
		PCachePoolSetAllocationError(pool, size, err);
	else
	{
		/* a hole that is mapped can be allocated in huge pages */
		PCacheError ignored;
		bool		mapped = pool->fs_kind == PCACHE_FS_TMPFS &&
			(size <= pool->file_size || ftruncate(pool->fd, size) == 0) &&
			PCachePoolMap(pool, &ignored);

		ok = PCachePoolAllocate(pool, 0, mapped ? allocated : size, err);
		save_errno = errno;
		if (mapped)
			PCacheUnmap(&pool->map);
		errno = save_errno;
	}
	if (!ok)
	{
		save_errno = errno;
		/* some file systems have extended it by a part */
		if (size > pool->file_size && ftruncate(pool->fd, pool->file_size) < 0)
			PCacheSetHint(err, _("The file could not be given its former size either: %m"));
		errno = save_errno;
		return false;
	}
	pool->file_size = size;
	return true;
}
