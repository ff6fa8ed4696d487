/*-------------------------------------------------------------------------
 *
 * pcache.h
 *	  A shared buffer cache that survives restarts: values of its settings.
 *
 * What it does is described in src/backend/storage/buffer/pmem/README.
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

typedef enum PersistentCacheRecovery
{
	PERSISTENT_CACHE_RECOVERY_FULL,
	PERSISTENT_CACHE_RECOVERY_SHORT,
} PersistentCacheRecovery;

typedef enum PersistentCacheOnMediaUnknown
{
	PERSISTENT_CACHE_MEDIA_USE,
	PERSISTENT_CACHE_MEDIA_COLD,
} PersistentCacheOnMediaUnknown;

#endif							/* PCACHE_H */
