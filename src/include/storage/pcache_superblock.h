/*-------------------------------------------------------------------------
 *
 * pcache_superblock.h
 *	  The superblock of the pool, and its copy.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_superblock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SUPERBLOCK_H
#define PCACHE_SUPERBLOCK_H

#include "catalog/pg_control.h"
#include "storage/pcache_error.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"

typedef enum PCacheSuperblockSource
{
	PCACHE_SB_NONE,				/* neither can be used */
	PCACHE_SB_FIRST,
	PCACHE_SB_COPY,				/* the first one is damaged */
} PCacheSuperblockSource;

/* The two superblocks of a pool, and which of them to believe. */
typedef struct PCacheSuperblocks
{
	PCacheSuperblockSource source;
	PCacheSuperblock chosen;	/* zeros if the source is none */
	bool		first_intact;
	bool		copy_intact;
	PCacheError first_error;	/* set if it is not intact */
	PCacheError copy_error;
} PCacheSuperblocks;

extern void PCacheReadSuperblocks(int fd, PCacheSuperblocks *superblocks);
extern void PCacheSuperblockSetCrc(PCacheSuperblock *sb);
extern PCacheSuperblockSource PCacheSuperblockChoose(const PCacheSuperblock *first,
													 const PCacheSuperblock *copy,
													 PCacheSuperblock *chosen,
													 PCacheError *err);
extern bool PCacheSuperblockStore(const PCacheMapping *map,
								  PCacheSuperblock *sb);
extern bool PCacheSuperblockAdopt(PCacheSuperblock *sb,
								  const ControlFileData *control,
								  PCacheFsKind fs_kind,
								  PersistentCacheMode mode, uint64 slots_used);
extern void PCacheSuperblockSetClean(PCacheSuperblock *sb,
									 const ControlFileData *control,
									 uint64 saved_pages);
extern void PCacheSuperblockBecome(PCacheSuperblock *sb,
								   const PCacheSuperblock *saved);
extern bool PCacheSuperblockStoreAvoiding(const PCacheMapping *map,
										  PCacheSuperblock *sb,
										  const bool bad[2]);

#endif							/* PCACHE_SUPERBLOCK_H */
