/*-------------------------------------------------------------------------
 *
 * pcache_missing.h
 *	  May a pool that is not there be created?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_missing.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_MISSING_H
#define PCACHE_MISSING_H

#include "storage/pcache_pool.h"

/* Where a pool that is not there is to be created. */
typedef struct PCacheMissing
{
	char		directory[MAXPGPATH];
	PCacheFsKind fs_kind;
	uint64		capacity;		/* in blocks */
} PCacheMissing;

extern bool PCacheMayCreateMissing(const char *directory, uint64 size,
								   uint64 nbuffers, PCacheMissing *plan,
								   PCacheError *err);

#endif							/* PCACHE_MISSING_H */
