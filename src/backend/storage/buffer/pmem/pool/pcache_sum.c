/*-------------------------------------------------------------------------
 *
 * pcache_sum.c
 *	  The sum by which a page is recognized after power was lost, by libxxhash.
 *
 * It has to tell a page that is all there from one that lacks some cache lines, and
 * from an older version of it.  Nobody who could make two pages with one sum could
 * not store a wrong page, with its sum, just as well.
 *
 * Without libxxhash no page has a sum.  A start after a loss of power is cold then,
 * unless the platform saves the CPU caches.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_sum.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_pool.h"

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

#else							/* !USE_XXHASH */

bool
PCacheHasSums(void)
{
	return false;
}

/* Nobody has made one, so this fits none. */
uint64
PCacheSumOf(const char *page)
{
	return 0;
}

#endif							/* USE_XXHASH */
