/*-------------------------------------------------------------------------
 *
 * pcache_without.h
 *	  Memory for the server's own buffers.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_without.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_WITHOUT_H
#define PCACHE_WITHOUT_H

#include "storage/pcache_pool.h"

extern bool PCachePoolGiveBack(PCachePool *pool, PCacheError *err);
extern bool PCacheReservationCounts(void);
extern bool PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err);

#endif							/* PCACHE_WITHOUT_H */
