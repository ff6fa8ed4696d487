/*-------------------------------------------------------------------------
 *
 * pcache_without.c
 *	  Memory for the server's own buffers, which it has beside its pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_without.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <unistd.h>

#include "storage/pcache_pool.h"

/*
 * An open pool, which is ours and which the caller has locked, is of no use to
 * this start.  If it is in memory, its blocks are given back: a start without it
 * makes its contents worthless.  The pool stays there, empty, and the next start
 * allocates it again.
 *
 * The pool is not mapped afterwards.  Returns false, with err filled in, if that
 * fails.
 */
bool
PCachePoolGiveBack(PCachePool *pool, PCacheError *err)
{
	PCacheSuperblocks superblocks;
	uint64		size = TYPEALIGN64(pool->page_size, PCACHE_DESCRIPTORS_OFFSET);

	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if (!PCacheFsIsMemory(pool->fs_kind) || pool->file_size <= size)
		return true;
	PCacheReadSuperblocks(pool->fd, &superblocks);
	if (!PCachePoolMarkEmpty(pool, &superblocks.chosen, err))
		return false;
	if (ftruncate(pool->fd, size) < 0)
	{
		PCacheSetError(err, _("could not truncate file \"%s\" to %llu MB: %m"),
					   pool->path, (unsigned long long) (size >> 20));
		return false;
	}
	return true;
}

/* Does memory count as used when it is reserved (vm.overcommit_memory = 2)? */
bool
PCacheReservationCounts(void)
{
	uint64		mode;

	return PCacheReadNumber("/proc/sys/vm/overcommit_memory", "", &mode) && mode == 2;
}

/*
 * May the server reserve so many bytes of shared memory, although it will not use all of
 * them, and may a pool on tmpfs get what it lacks?  Both count with
 * vm.overcommit_memory = 2, where the server would not start otherwise.
 */
bool
PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err)
{
	uint64		limit;
	uint64		committed;
	uint64		free_kb;

	if (!PCacheReservationCounts() ||
		!PCacheReadNumber("/proc/meminfo", "CommitLimit:", &limit) ||
		!PCacheReadNumber("/proc/meminfo", "Committed_AS:", &committed))
		return true;
	free_kb = limit - Min(limit, committed);
	if ((reserved + lacking) / 1024 <= free_kb)
		return true;
	PCacheSetError(err, _("\"vm.overcommit_memory\" is 2, and %llu MB can be reserved: too little for %llu MB of shared memory, which the server reserves beside its pool, and %llu MB that the pool lacks"),
				   (unsigned long long) (free_kb >> 10),
				   (unsigned long long) (reserved >> 20),
				   (unsigned long long) (lacking >> 20));
	PCacheSetHint(err, _("Increase \"vm.overcommit_ratio\", decrease \"shared_buffers\", or use a pool on hugetlbfs."));
	return false;
}
