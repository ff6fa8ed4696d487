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
	bool		again;			/* it was lost with its file system */
} PCacheMissing;

extern bool PCacheMayCreateMissing(const char *directory, bool is_default,
								   const PCacheRecord *record, uint64 size,
								   uint64 nbuffers, PCacheMissing *plan,
								   PCacheError *err);

#endif							/* PCACHE_MISSING_H */
