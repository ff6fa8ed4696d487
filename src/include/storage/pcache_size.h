/*-------------------------------------------------------------------------
 *
 * pcache_size.h
 *	  Does the pool have the size that pcache.size asks for?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_size.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SIZE_H
#define PCACHE_SIZE_H

#include "storage/pcache_pool.h"

extern bool PCacheSizeDiffers(const PCachePool *pool, const PCacheSuperblock *sb,
							  uint64 size, uint64 nbuffers, PCacheError *err);

#endif							/* PCACHE_SIZE_H */
