/*-------------------------------------------------------------------------
 *
 * pcache_internal.h
 *	  What the server side of the persistent cache shares among its files.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/backend/storage/buffer/pmem/pcache_internal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_INTERNAL_H
#define PCACHE_INTERNAL_H

#include "storage/pcache.h"
#include "storage/pcache_media.h"
#include "storage/pcache_pool.h"

/*
 * In shared memory.
 *
 * superblock is what the first superblock and its copy on the media say; who
 * changes it holds PersistentCacheLock exclusively and stores it before the
 * lock is released.  The rest is written by the postmaster or by the startup
 * process before anybody else looks.
 */
typedef struct PersistentCacheControl
{
	PCacheSuperblock superblock;

	/* Why the pool had to be formatted when it was opened, if it had to. */
	PCacheVerdict opened;

	/* The outcome of the last start. */
	PCacheVerdict verdict;
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		startup_usec;	/* spent on all of it */
	uint64		rebuild_usec;	/* of it, on the mapping table and freelist */
	uint32		retired;		/* slots on bad blocks, never to be used */
} PersistentCacheControl;

/* NULL, and pool.fd is -1, unless PersistentCacheEnabled(). */
extern PersistentCacheControl *PCacheCtl;
extern PCachePool PCacheThePool;
extern char PCachePoolDirectory[MAXPGPATH];

static inline PCacheDescriptor *
PCacheGetDescriptor(uint32 slot)
{
	return (PCacheDescriptor *) (PCacheThePool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

/* pcache_shmem.c */
extern bool PCacheStoreSuperblock(int elevel);
extern void PCacheReportError(int elevel, const PCacheError *err);

/* pcache_health.c */
extern PCacheMediaReport PCacheMedia;
extern void PCacheQueryMedia(void);
extern bool PCacheBlockIsBad(uint32 slot);
extern bool PCacheDescriptorIsBad(uint32 slot);

/* pcache_numa.c */
extern void PCacheApplyNuma(int node);

#endif							/* PCACHE_INTERNAL_H */
