/*-------------------------------------------------------------------------
 *
 * pcache_sum_none.c
 *	  Without libxxhash no page has a sum.  A start after a loss of power is cold then,
 *	  unless the platform saves the CPU caches.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_sum_none.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_sum.h"

#ifndef USE_XXHASH

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

#endif							/* !USE_XXHASH */
