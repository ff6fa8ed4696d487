/*-------------------------------------------------------------------------
 *
 * pcache_shared.c
 *	  What all files of the library know: the pool, and what the start has made of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_shared.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/pcache_library.h"

bool		PCacheIsPreloaded = false;
PCachePool	PCacheThePool = {.fd = -1};
PCacheLibraryControl *PCacheLibrary = NULL;
PCacheLibraryStart PCacheStart;

/* Where the pool has the server's buffer headers. */
BufferDescPadded *
PCacheHeadersOf(const PCachePool *pool, const PCacheSuperblock *sb)
{
	return (BufferDescPadded *) (pool->map.base + PCacheHeaderOffset(sb, 0));
}

/* And the ledger, an entry for each slot. */
PCacheDescriptor *
PCacheLedgerOf(const PCachePool *pool)
{
	return (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET);
}

/* How long has it taken so far? */
uint64
PCacheMicrosecondsSince(instr_time start)
{
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	return INSTR_TIME_GET_MICROSEC(elapsed);
}
