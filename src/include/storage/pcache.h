/*-------------------------------------------------------------------------
 *
 * pcache.h
 *	  A shared buffer cache that survives restarts: interface to the rest of
 *	  the server.
 *
 * The protocol is described in src/backend/storage/buffer/pmem/README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_H
#define PCACHE_H

#include "storage/pcache_layout.h"
#include "utils/guc.h"

typedef enum PersistentCacheNuma
{
	PERSISTENT_CACHE_NUMA_OFF,
	PERSISTENT_CACHE_NUMA_WARN,
	PERSISTENT_CACHE_NUMA_BIND,
} PersistentCacheNuma;

typedef enum PersistentCacheOnMediaUnknown
{
	PERSISTENT_CACHE_MEDIA_USE,
	PERSISTENT_CACHE_MEDIA_COLD,
} PersistentCacheOnMediaUnknown;

/* GUCs */
extern PGDLLIMPORT int persistent_cache_mode;
extern PGDLLIMPORT int persistent_cache_numa;
extern PGDLLIMPORT int persistent_cache_on_media_unknown;
extern PGDLLIMPORT char *persistent_cache_directory;
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_mode_options[];
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_numa_options[];
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_on_media_unknown_options[];

/* pcache_shmem.c: postmaster, while shared memory is created */
extern bool PersistentCacheEnabled(void);
extern Size PersistentCacheShmemSize(void);
extern char *PersistentCacheShmemInit(void);

/* pcache_startup.c: startup process */
extern void PersistentCacheStartup(bool have_backup_label);
extern void PersistentCacheReachedConsistency(void);

/* pcache_shutdown.c: checkpointer */
extern void PersistentCacheFlushStandby(void);
extern void PersistentCacheShutdown(void);

#endif							/* PCACHE_H */
