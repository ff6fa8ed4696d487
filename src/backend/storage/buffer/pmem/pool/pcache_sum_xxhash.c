/*-------------------------------------------------------------------------
 *
 * pcache_sum_xxhash.c
 *	  The sum by which a page is recognized after power was lost, by libxxhash.
 *
 * It has to tell a page that is all there from one that lacks some cache lines, and
 * from an older version of it.  Nobody who could make two pages with one sum could
 * not store a wrong page, with its sum, just as well.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_sum_xxhash.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_sum.h"

#ifdef USE_XXHASH

#include <xxhash.h>

bool
PCacheHasSums(void)
{
	return true;
}

/* The sum of a page, BLCKSZ bytes.  Never 0, which stands for none. */
uint64
PCacheSumOf(const char *page)
{
	uint64		sum = XXH3_64bits(page, BLCKSZ);

	return sum != 0 ? sum : 1;
}

#endif							/* USE_XXHASH */
