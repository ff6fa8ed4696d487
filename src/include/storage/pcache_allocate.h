/*-------------------------------------------------------------------------
 *
 * pcache_allocate.h
 *	  The size of a pool's file, its room, and its huge pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_allocate.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_ALLOCATE_H
#define PCACHE_ALLOCATE_H

#include "storage/pcache_pool.h"
#include "storage/pcache_range.h"

extern bool PCachePoolHasRoom(const PCachePool *pool, uint64 size);
extern bool PCachePoolHasMemory(const PCachePool *pool, uint64 size, PCacheError *err);
extern void PCachePoolShedBlocks(const PCachePool *pool, uint64 blocks_offset);
extern bool PCachePoolHasHoles(const PCachePool *pool);
extern bool PCachePoolIsIncomplete(const PCachePool *pool, uint64 size);
extern bool PCachePoolHeadIsLost(const PCachePool *pool);
extern void PCachePoolSetRoomHint(const PCachePool *pool, PCacheError *err);
extern void PCachePoolSetAllocationError(const PCachePool *pool, uint64 size,
										 PCacheError *err);
extern bool PCachePoolNextHole(const PCachePool *pool, uint64 offset,
							   uint64 *start, uint64 *end);
extern void PCachePoolListHoles(const PCachePool *pool, PCacheRangeList *holes);
extern bool PCachePoolUseHugePages(PCachePool *pool);
extern bool PCachePoolAllocate(const PCachePool *pool, uint64 offset,
							   uint64 length, PCacheError *err);
extern bool PCachePoolSetSizeSparse(PCachePool *pool, uint64 size,
									uint64 allocated, PCacheError *err);
extern bool PCachePoolSetSize(PCachePool *pool, uint64 size, PCacheError *err);

#endif							/* PCACHE_ALLOCATE_H */
