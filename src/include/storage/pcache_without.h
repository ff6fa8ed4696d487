/*-------------------------------------------------------------------------
 *
 * pcache_without.h
 *	  May the server start without its pool?
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

extern uint64 PCachePoolHeldMemory(const char *directory, bool *huge);
extern bool PCachePoolIsOurs(const char *directory, const PCacheRecord *record);
extern bool PCachePoolGiveBack(PCachePool *pool, PCacheError *err);
extern bool PCacheMemoryForBuffers(const char *directory, uint64 needed,
								   bool huge_pages, bool gives_back,
								   PCacheError *err);
extern bool PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err);

#endif							/* PCACHE_WITHOUT_H */
