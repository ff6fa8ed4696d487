/*-------------------------------------------------------------------------
 *
 * pcache_shmem.c
 *	  Settings of the persistent cache, and its shared memory.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_shmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogdrain.h"
#include "catalog/catversion.h"
#include "common/file_perm.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "port.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/procnumber.h"
#include "storage/shmem.h"
#include "utils/guc_hooks.h"

int			persistent_cache_mode = PERSISTENT_CACHE_OFF;
int			persistent_cache_numa = PERSISTENT_CACHE_NUMA_WARN;
int			persistent_cache_scrub = PERSISTENT_CACHE_SCRUB_AUTO;
int			persistent_cache_seal_delay = 10;
int			persistent_cache_on_media_unknown = PERSISTENT_CACHE_MEDIA_USE;
int			persistent_cache_size = 0;
char	   *persistent_cache_directory = NULL;

const struct config_enum_entry persistent_cache_mode_options[] = {
	{"off", PERSISTENT_CACHE_OFF, false},
	{"planned_restart", PERSISTENT_CACHE_PLANNED_RESTART, false},
	{"always", PERSISTENT_CACHE_ALWAYS, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_numa_options[] = {
	{"off", PERSISTENT_CACHE_NUMA_OFF, false},
	{"warn", PERSISTENT_CACHE_NUMA_WARN, false},
	{"bind", PERSISTENT_CACHE_NUMA_BIND, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_scrub_options[] = {
	{"auto", PERSISTENT_CACHE_SCRUB_AUTO, false},
	{"on", PERSISTENT_CACHE_SCRUB_ON, false},
	{"off", PERSISTENT_CACHE_SCRUB_OFF, false},
	{"true", PERSISTENT_CACHE_SCRUB_ON, true},
	{"false", PERSISTENT_CACHE_SCRUB_OFF, true},
	{"yes", PERSISTENT_CACHE_SCRUB_ON, true},
	{"no", PERSISTENT_CACHE_SCRUB_OFF, true},
	{"1", PERSISTENT_CACHE_SCRUB_ON, true},
	{"0", PERSISTENT_CACHE_SCRUB_OFF, true},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_on_media_unknown_options[] = {
	{"use", PERSISTENT_CACHE_MEDIA_USE, false},
	{"cold", PERSISTENT_CACHE_MEDIA_COLD, false},
	{NULL, 0, false}
};

PersistentCacheControl *PCacheCtl = NULL;
PCachePool	PCacheThePool = {.fd = -1};
char		PCachePoolDirectory[MAXPGPATH];

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

Size
PersistentCacheShmemSize(void)
{
	Size		size = 0;

	if (PersistentCacheConfigured())
	{
		size = add_size(size, MAXALIGN(sizeof(PersistentCacheControl)));
		size = add_size(size, PCacheUntrustedShmemSize());
	}
	if (PersistentCacheConfigured() &&
		persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
		size = add_size(size, PCacheQueueShmemSize());
	return size;
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
									  PCacheCtl->superblock_bad))
		return true;
	ereport(elevel,
			(errcode_for_file_access(),
			 errmsg("could not write superblock of persistent cache pool \"%s\": %m",
					PCacheThePool.path)));
	return false;
}

/*
 * GUC check hook for persistent_cache_directory.
 *
 * The place of the pool must not depend on where the server is started, nor on
 * what ".." means beyond a symbolic link.
 */
bool
check_persistent_cache_directory(char **newval, void **extra, GucSource source)
{
	char		canonical[MAXPGPATH];

	for (const char *name = *newval; name != NULL; name = strchr(name, '/'))
	{
		name += strspn(name, "/");
		if (strncmp(name, "..", 2) == 0 && (name[2] == '/' || name[2] == '\0'))
		{
			GUC_check_errdetail("The path must not contain \"..\".");
			return false;
		}
	}

	/* the data directory could not remember it */
	if (strchr(*newval, '\n') != NULL)
	{
		GUC_check_errdetail("The path must not contain a newline.");
		return false;
	}

	if (strlcpy(canonical, *newval, sizeof(canonical)) >= MAXPGPATH - PCACHE_PATH_RESERVE)
	{
		GUC_check_errdetail("The path must be shorter than %d bytes.",
							MAXPGPATH - PCACHE_PATH_RESERVE);
		return false;
	}
	canonicalize_path(canonical);
	if (!is_absolute_path(canonical) &&
		strcmp(canonical, PCACHE_DEFAULT_DIRECTORY) != 0)
	{
		GUC_check_errdetail("The directory must be an absolute path, or \"%s\", which stands for the directory of that name in the data directory.",
							PCACHE_DEFAULT_DIRECTORY);
		return false;
	}
	strcpy(*newval, canonical); /* which is not longer */
	return true;
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
	PCacheCtl = ShmemInitStruct("Persistent Cache",
								sizeof(PersistentCacheControl), &found);
	Assert(!found);
	memset(PCacheCtl, 0, sizeof(PersistentCacheControl));
	pg_atomic_write_u32(&PCacheCtl->sealer.procno, INVALID_PROC_NUMBER);
	ConditionVariableInit(&PCacheCtl->sealer.round_done);
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
	if (PCacheBeginAgain(&err))
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
		PCacheQueueShmemInit();
		PersistentCacheDescriptors = PCacheGetDescriptor(0);
		WalDrainHook = PCacheFlushWatermark;
	}
	return PCacheThePool.map.base + PCacheCtl->superblock.blocks_offset;
}
