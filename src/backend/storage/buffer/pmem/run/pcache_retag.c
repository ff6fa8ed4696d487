/*-------------------------------------------------------------------------
 *
 * pcache_retag.c
 *	  A buffer is about to hold another page.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_retag.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/pcache_run.h"

/*
 * A buffer is about to get a new tag.  It is queued unless it belongs to a
 * ring, whose pages are not worth it.  Called in each mode but off.
 */
void
PersistentCacheRetagBuffer(int buf_id, bool ring)
{
	PCacheTrustAgain(buf_id);
	if (PersistentCacheDescriptors == NULL)
		return;
	if (PCacheIsKept(buf_id))
		PCacheClearKept(buf_id);
	PersistentCacheMarkBuffer(buf_id);
	if (!ring)
		PCacheEnqueue(buf_id);
}
