/*-------------------------------------------------------------------------
 *
 * pcache_harvest.h
 *	  Make entries of the ledger from a server's buffer headers.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_harvest.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_HARVEST_H
#define PCACHE_HARVEST_H

#include "storage/bufpage.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_pool.h"

extern bool PCacheHeaderLayoutIsSane(const PCacheHeaderLayout *layout);
extern bool PCacheHarvestHeader(const PCacheHeaderLayout *layout,
								const char *header, uint32 slot,
								PCacheDescriptor *entry);
extern void PCacheHarvestLsn(PCacheDescriptor *entry, const PageHeaderData *page);
extern bool PCacheReadLedger(int fd, const PCacheSuperblock *sb, uint32 first,
							 uint32 n, PCacheDescriptor *entries);

#endif							/* PCACHE_HARVEST_H */
