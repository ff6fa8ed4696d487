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

/* Where a start finds what is in a pool. */
typedef enum PCacheSource
{
	PCACHE_SOURCE_SAVED,		/* in the ledger, which says so of each page */
	PCACHE_SOURCE_HEADERS,		/* in the headers of a server that was killed */
	PCACHE_SOURCE_SUMS,			/* in the ledger, if the sums fit */
} PCacheSource;

extern PCacheSource PCacheSourceOf(const PCacheSuperblock *sb, bool host_restarted);
extern void PCacheCheckSums(int fd, const PCacheSuperblock *sb, uint64 generation,
							uint32 first, uint32 n, PCacheDescriptor *entries);
extern bool PCacheHeaderLayoutIsSane(const PCacheHeaderLayout *layout);
extern bool PCacheHarvestHeader(const PCacheHeaderLayout *layout,
								const char *header, uint32 slot,
								PCacheDescriptor *entry);
extern bool PCacheHarvestYoung(const PCacheHeaderLayout *layout,
							   const char *header, uint32 slot,
							   PCacheDescriptor *entry);
extern bool PCacheIsFirstOfIndex(const PCacheDescriptor *entry,
								 const PageHeaderData *page);
extern void PCacheSetFreeBecause(PCacheDescriptor *entry, uint8 why);
extern void PCacheHarvestLsn(PCacheDescriptor *entry, const PageHeaderData *page);
extern bool PCacheReadLedger(int fd, const PCacheSuperblock *sb, uint64 generation,
							 uint32 first, uint32 n, PCacheDescriptor *entries);

#endif							/* PCACHE_HARVEST_H */
