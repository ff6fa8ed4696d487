/*-------------------------------------------------------------------------
 *
 * pcache_shared.c
 *	  The pool, and what all processes know of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_shared.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/pcache_core.h"

PersistentCacheControl *PCacheCtl = NULL;
PCachePool	PCacheThePool = {.fd = -1};
char		PCachePoolDirectory[MAXPGPATH];

/* NULL unless persistent_cache_mode is always. */
PCacheDescriptor *PersistentCacheDescriptors = NULL;

/*
 * Is this server to run with a pool?  Single-user mode and bootstrap never
 * do; that they ran shows in pg_control.
 */
bool
PersistentCacheConfigured(void)
{
	return persistent_cache_mode != PERSISTENT_CACHE_OFF &&
		IsPostmasterEnvironment && !IsBootstrapProcessingMode();
}

/* Does it?  Not if the pool is unavailable, see pcache_unavailable.c. */
bool
PersistentCacheEnabled(void)
{
	return PCacheCtl != NULL;
}

void
PCacheReportError(int elevel, const PCacheError *err)
{
	ereport(elevel,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg_internal("%s", err->message),
			 err->hint[0] != '\0' ? errhint_internal("%s", err->hint) : 0));
}

/*
 * Store the superblock durably.  The caller holds PersistentCacheLock, or is
 * the only process.  Returns false after a report below ERROR.
 */
bool
PCacheStoreSuperblock(int elevel)
{
	if (PCacheSuperblockStoreAvoiding(&PCacheThePool.map, &PCacheCtl->superblock,
									  PCacheCtl->health.superblock_bad))
		return true;
	ereport(elevel,
			(errcode_for_file_access(),
			 errmsg("could not write superblock of persistent cache pool \"%s\": %m",
					PCacheThePool.path)));
	return false;
}

/*
 * This process has no use for shared memory.  It must not be able to change
 * the pool either, because its death is none that the postmaster minds.
 */
void
PersistentCacheDetach(void)
{
	PCachePoolClose(&PCacheThePool);
	PCacheUnmapBuffers();
	PersistentCacheDescriptors = NULL;
	PCacheCtl = NULL;
}
