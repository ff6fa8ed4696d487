/*-------------------------------------------------------------------------
 *
 * pcache_prepare.c
 *	  Have a pool with room for shared buffers: open, create, format, mend it
 *	  or make it larger, as the start's plan says.
 *
 * Nothing here judges whether what is in the pool can be kept.  Everything that is
 * wrong with the set-up is an error, with which the server starts without it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_prepare.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/catversion.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "utils/guc.h"

/*
 * Open and lock the pool that pcache.directory names.  Returns false with err
 * filled in if it cannot be used, or could not be created.  pool->fd is -1 if it is not
 * open.
 */
bool
PCacheOpenLibraryPool(PCachePool *pool, PCacheError *err)
{
	PCacheOpenResult opened;

	if (!PCacheDirectoryIsAllowed(DataDir, pcache_directory, err))
		return false;
	opened = PCachePoolOpen(pcache_directory, PCACHE_OPEN_WRITE, pool, err);
	return (opened == PCACHE_OPEN_OK || opened == PCACHE_OPEN_MISSING) &&
		PCacheReadsEndWithProcess(GetConfigOption("io_method", true, false),
								  GetConfigOption("debug_io_direct", true, false),
								  err);
}

/*
 * Create the pool.  One on tmpfs gets no blocks here, which could take many
 * seconds: the worker allocates them while the server runs.
 */
static bool
CreatePool(PCachePool *pool, PCacheSuperblock *sb, const PCachePlan *plan, PCacheError *err)
{
	PCacheCreation creation;

	if (!PCacheMakeDirectory(pcache_directory, plan->fs_kind, err) ||
		!PCachePoolBeginCreate(&creation, pcache_directory, false, plan->capacity,
							   GetSystemIdentifier(), CATALOG_VERSION_NO, pool, sb, err) ||
		!PCachePoolFinishCreate(&creation, false, err))
		return false;
	PCacheStart.verdict = PCacheRefuse(PCACHE_COLD_NEW, _("the pool was created by this start"));
	ereport(LOG,
			(errmsg("created persistent cache pool \"%s\", for %llu blocks",
					pool->path, (unsigned long long) plan->capacity)));
	return true;
}

/* Make the pool an empty one, whether or not it can be used as it is. */
static bool
ReformatPool(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity, PCacheError *err)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, pool->page_size);

	if (!PCachePoolMayFormat(pool, err))
		return false;

	/* a superblock that is believed must not speak of what is allocated anew */
	if (sb->format_version == PCACHE_FORMAT_VERSION &&
		!PCachePoolMarkEmpty(pool, sb, err))
		return false;
	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if ((pool->file_size != g.pool_size || PCachePoolHasHoles(pool)) &&
		!PCachePoolSetSize(pool, g.pool_size, g.blocks_offset, err))
		return false;
	return PCachePoolMap(pool, err) &&
		PCachePoolFormat(pool, capacity, GetSystemIdentifier(), CATALOG_VERSION_NO,
						 sb, err);
}

/*
 * The file was cut off, or has holes where no store must fail.  What is missing
 * is allocated, empty; but the blocks of a pool on tmpfs are left to the worker.
 */
static bool
MendPool(PCachePool *pool, PCacheSuperblock *sb, PCacheError *err)
{
	uint64		lost = 0;

	if (PCachePoolHeadIsLost(pool) && !PCachePoolMarkEmpty(pool, sb, err))
		return false;
	if (pool->file_size == sb->pool_size && pool->fs_kind == PCACHE_FS_TMPFS)
		return PCachePoolMap(pool, err) &&
			PCachePoolAllocate(pool, 0, sb->blocks_offset, err);

	ereport(LOG,
			(errmsg("persistent cache pool \"%s\" is incomplete: it has %llu of %llu bytes, or holes",
					pool->path, (unsigned long long) pool->file_size,
					(unsigned long long) sb->pool_size)));
	if (!PCachePoolRestoreSize(pool, sb, true, &lost, err) || !PCachePoolMap(pool, err))
		return false;
	PCacheStart.pages[PCACHE_PAGE_BAD_BLOCK] = lost;
	return true;
}

/*
 * The pool has become too small for shared_buffers: make it larger.  Only
 * pg_pcache clears bad blocks, which must not be met here.  On tmpfs the worker
 * allocates what is new.  holes are those in the file.  If nothing of the pool is kept, it
 * is made a new one.
 */
bool
PCacheMakeLarger(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity,
				 const PCacheRangeList *holes, PCacheError *err)
{
	uint64		old_capacity = sb->capacity;

	if (PCacheStart.verdict.refusal == PCACHE_WARM ?
		!PCachePoolGrow(pool, sb, capacity, holes, &PCacheStart.pages[PCACHE_PAGE_NOT_FITTING], err) :
		!ReformatPool(pool, sb, capacity, err))
		return false;
	ereport(LOG,
			(errmsg("made persistent cache pool \"%s\" larger, from %llu to %llu blocks",
					pool->path, (unsigned long long) old_capacity,
					(unsigned long long) capacity)));
	return true;
}

/*
 * Have a pool, mapped and with a superblock of ours, as planned, but perhaps too small.  It
 * was opened by PCacheOpenLibraryPool(), and has the superblock that is given.  Returns
 * false with err filled in.
 */
bool
PCachePreparePool(PCachePool *pool, PCacheSuperblock *sb, const PCachePlan *plan, PCacheError *err)
{
	switch (plan->action)
	{
		case PCACHE_PLAN_CREATE:
			return CreatePool(pool, sb, plan, err);
		case PCACHE_PLAN_FORMAT:
			return ReformatPool(pool, sb, plan->capacity, err);
		case PCACHE_PLAN_MEND:
			return MendPool(pool, sb, err);
		case PCACHE_PLAN_USE:
			break;
	}
	return PCachePoolMap(pool, err);
}
