/*-------------------------------------------------------------------------
 *
 * pcache_format.h
 *	  What makes a file a pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_format.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_FORMAT_H
#define PCACHE_FORMAT_H

#include "storage/pcache_pool.h"

extern uint64 PCacheCapacityFor(uint64 file_size);
extern uint64 PCacheReformatCapacity(const PCachePool *pool, uint64 nbuffers);
extern void PCachePoolSetDamagedHint(const PCachePool *pool, PCacheError *err);
extern bool PCacheForgetHeader(const PCachePool *pool, const PCacheSuperblock *sb,
							   uint64 slot);
extern bool PCachePoolRestoreSize(PCachePool *pool, PCacheSuperblock *sb, bool sparse,
								  uint64 *lost, PCacheError *err);
extern bool PCachePoolMarkEmpty(PCachePool *pool, PCacheSuperblock *sb,
								PCacheError *err);
extern bool PCachePoolFormat(PCachePool *pool, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCacheSuperblock *sb, PCacheError *err);

#endif							/* PCACHE_FORMAT_H */
