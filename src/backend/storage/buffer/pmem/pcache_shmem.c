/*-------------------------------------------------------------------------
 *
 * pcache_shmem.c
 *	  The shared memory of the persistent cache, topic by topic.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_shmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogdrain.h"
#include "storage/pcache_start.h"
#include "storage/pcache_stop.h"
#include "storage/shmem.h"

/* What has the same size whatever the settings say. */
static const struct
{
	const char *name;
	Size		size;
	void	  **memory;
}			topics[] = {
	{"Persistent Cache", sizeof(PersistentCacheControl), (void **) &PCacheCtl},
	{"Persistent Cache Sealer", sizeof(PCacheSealerControl), (void **) &PCacheSealerCtl},
	{"Persistent Cache Watermark", sizeof(PCacheWatermarkControl), (void **) &PCacheWatermarkCtl},
	{"Persistent Cache Recovery", sizeof(PCacheRecoveryControl), (void **) &PCacheRecoveryCtl},
	{"Persistent Cache Rebuild", sizeof(PCacheRebuildControl), (void **) &PCacheRebuildCtl},
	{"Persistent Cache Save", sizeof(PCacheSaveControl), (void **) &PCacheSaveCtl},
};

Size
PersistentCacheShmemSize(void)
{
	Size		size = 0;

	if (PersistentCacheConfigured())
	{
		for (int i = 0; i < lengthof(topics); i++)
			size = add_size(size, CACHELINEALIGN(topics[i].size));
		size = add_size(size, PCacheUntrustedShmemSize());
	}
	if (PersistentCacheConfigured() &&
		persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
	{
		size = add_size(size, PCacheKeptShmemSize());
		size = add_size(size, PCacheMarkShmemSize());
		size = add_size(size, PCacheQueueShmemSize());
	}
	return size;
}

/*
 * Allocate shared state, and map the pool.  Returns where BufferBlocks is, which
 * is in ordinary memory if the pool is unavailable.
 *
 * Called by the postmaster when it starts, and again when it reinitializes
 * after a crash, which decides anew; only if PersistentCacheConfigured().
 */
char *
PersistentCacheShmemInit(void)
{
	bool		found;
	bool		opened;
	bool		locked_by_us = false;
	PCacheRecord record = {0};
	PCacheError err;

#ifdef EXEC_BACKEND
	ereport(FATAL,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the persistent cache is not supported on this platform")));
#endif
	for (int i = 0; i < lengthof(topics); i++)
	{
		*topics[i].memory = ShmemInitStruct(topics[i].name, topics[i].size, &found);
		Assert(!found);
		memset(*topics[i].memory, 0, topics[i].size);
	}
	PCacheRoundShmemInit();
	PCacheRecoveryShmemInit();
	PCacheRebuildShmemInit();

	/*
	 * After a crash, look at the file anew: it may be what caused the crash.
	 * No child is left that could use the old mapping.
	 */
	PCachePoolClose(&PCacheThePool);
	PersistentCacheDescriptors = NULL;
	PersistentCacheUntrusted = NULL;
	PCachePoolInterrupted = PCachePostmasterInterrupted;
	if (PCacheDoWithout(&err))
	{
		PCacheOpenUnusedPool(&record);
		opened = false;
	}
	else
		opened = PCacheOpenPool(&record, &locked_by_us, &err);
	PCachePoolInterrupted = NULL;
	if (!opened)
		return PCacheRunWithout(&record, locked_by_us, &err);
	PCacheUntrustedShmemInit();

	if (persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
	{
		PCacheKeptShmemInit();
		PCacheMarkShmemInit();
		PCacheQueueShmemInit();
		PersistentCacheDescriptors = PCacheGetDescriptor(0);
		WalDrainHook = PCacheFlushWatermark;
	}
	return PCacheThePool.map.base + PCacheCtl->superblock.blocks_offset;
}
