/*-------------------------------------------------------------------------
 *
 * pcache_server_facts.c
 *	  What the server knows of the things that the pool gates look at.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_server_facts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/pcache_core.h"

/*
 * What the server adds to the facts of an open pool.  facts must be zeroed; it
 * is going to point to record, and to PCacheMedia.
 */
void
PCacheGatherServerFacts(const PCachePool *pool, PCacheRecord *record,
						PCacheGateFacts *facts)
{
	PCacheError err;

	PCacheGatherFacts(pool, &PCacheMedia, facts);
	facts->cold_on_media_unknown =
		persistent_cache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD;

	/* a damaged one was reported when the pool was opened */
	if (PCacheRecordRead(DataDir, record, &err) == PCACHE_RECORD_OK)
		facts->record = record;
}
