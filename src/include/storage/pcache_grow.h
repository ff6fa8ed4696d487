/*-------------------------------------------------------------------------
 *
 * pcache_grow.h
 *	  Make a pool larger, and keep its pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_grow.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_GROW_H
#define PCACHE_GROW_H

#include "storage/pcache_media.h"
#include "storage/pcache_pool.h"

extern bool PCachePoolMayGrow(const PCachePool *pool, uint64 nbuffers,
							  uint64 size, const PCacheMediaReport *media,
							  uint64 *capacity, PCacheError *err);
extern bool PCachePoolGrow(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity,
						   const PCacheRangeList *holes, uint64 *given_up,
						   PCacheError *err);

#endif							/* PCACHE_GROW_H */
