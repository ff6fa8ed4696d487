/*-------------------------------------------------------------------------
 *
 * pcache_prepare.c
 *	  Have a pool with room for shared buffers: open, create, format, mend it
 *	  or make it larger.
 *
 * Nothing here judges whether what is in the pool can be kept.  A pool that was
 * created or formatted has a verdict, which is cold, and everything that is
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
#include "storage/pcache_setting.h"
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

	PCacheDirPgdata = DataDir;
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
CreatePool(PCachePool *pool, PCacheSuperblock *sb, PCacheVerdict *verdict,
		   PCacheError *err)
{
	PCacheMissing plan;
	PCacheCreation creation;

	/* it is going to say why the pool could not be opened */
	(void) PCachePoolOpen(pcache_directory, PCACHE_OPEN_PEEK, pool, err);
	if (!PCacheMayCreateMissing(pcache_directory, pcache_size, NBuffers, &plan, err) ||
		!PCacheMakeDirectory(plan.directory, plan.fs_kind, err) ||
		!PCachePoolBeginCreate(&creation, plan.directory, false, true, plan.capacity,
							   GetSystemIdentifier(), CATALOG_VERSION_NO, pool, sb, err))
		return false;
	creation.sparse = false;
	if (!PCachePoolFinishCreate(&creation, err))
		return false;
	*verdict = PCacheRefuse(PCACHE_COLD_NEW, _("the pool was created by this start"));
	ereport(LOG,
			(errmsg("created persistent cache pool \"%s\", for %llu blocks",
					pool->path, (unsigned long long) plan.capacity)));
	return true;
}

/* The pool cannot be used as it is, as the verdict says: make it an empty one. */
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
		!PCachePoolSetSizeSparse(pool, g.pool_size, g.blocks_offset, err))
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
MendPool(PCachePool *pool, PCacheSuperblock *sb, PCacheVerdict *verdict,
		 PCacheError *err)
{
	bool		head_is_lost = PCachePoolHeadIsLost(pool);
	uint64		lost = 0;

	*verdict = PCacheHoleGate(head_is_lost);
	if (head_is_lost && !PCachePoolMarkEmpty(pool, sb, err))
		return false;
	if (!PCachePoolHasRoom(pool, sb->pool_size))
	{
		PCachePoolSetAllocationError(pool, sb->pool_size, err);
		return false;
	}
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
PCacheMakeLarger(PCachePool *pool, PCacheSuperblock *sb, const PCacheMediaReport *media,
				 const PCacheRangeList *holes, PCacheError *err)
{
	uint64		old_capacity = sb->capacity;
	uint64		capacity;

	if (!PCachePoolMayGrow(pool, old_capacity, NBuffers, pcache_size, media, &capacity, err))
		return false;
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
 * Have a pool, mapped and with a superblock of ours, but perhaps too small.  It was
 * opened by PCacheOpenLibraryPool(), and has these superblocks.  verdict is warm unless
 * the pool is new, or had to be formatted.  changed is set if the file is not as it was.
 * Returns false with err filled in.
 */
bool
PCachePreparePool(PCachePool *pool, const PCacheSuperblocks *superblocks,
				  PCacheSuperblock *sb, PCacheVerdict *verdict,
				  bool *changed, PCacheError *err)
{
	*changed = true;
	memset(verdict, 0, sizeof(*verdict));
	memset(sb, 0, sizeof(*sb));
	if (pool->fd < 0)
		return CreatePool(pool, sb, verdict, err);

	*sb = superblocks->chosen;
	if (superblocks->source == PCACHE_SB_NONE)
	{
		*verdict = PCacheRefuse(PCACHE_COLD_SUPERBLOCK, "%s", superblocks->first_error.message);
		PCachePoolSetDamagedHint(pool, &verdict->why);
	}
	else if (PCachePoolIsCopied(pool, sb, err))
		return false;
	/* the geometry decides what is touched, so it is looked at already here */
	else if (sb->format_version != PCACHE_FORMAT_VERSION)
		*verdict = PCacheRefuse(PCACHE_COLD_VERSION,
								_("the pool has format version %u, this server has %u"),
								sb->format_version, PCACHE_FORMAT_VERSION);
	else
		*verdict = PCacheGeometryGate(sb, pool->file_size);
	/* a start without the pool has taken its memory back */
	if (verdict->refusal == PCACHE_COLD_GEOMETRY && sb->state == PCACHE_STATE_EMPTY)
		*verdict = PCacheRefuse(PCACHE_COLD_NEW, _("the pool is empty"));
	if (verdict->refusal != PCACHE_WARM)
		return ReformatPool(pool, sb, PCacheReformatCapacity(pool, NBuffers, pcache_size), err);
	if (PCachePoolIsIncomplete(pool, sb->pool_size))
		return MendPool(pool, sb, verdict, err);
	*changed = false;
	return PCachePoolMap(pool, err);
}
