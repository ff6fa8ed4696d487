/*-------------------------------------------------------------------------
 *
 * pcache_gather.c
 *	  What a start goes by, as this server finds it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_gather.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/pcache.h"
#include "storage/pcache_foretell.h"
#include "storage/pcache_library.h"

/*
 * Gather what the gates look at, from pg_control as it is on disk, into facts that are
 * zeroed.  Used for a start, and for the answer about the next one.
 */
bool
PCacheGatherLibraryFacts(const PCachePool *pool, PCacheLibraryFacts *facts, PCacheError *err)
{
	PCacheGateFacts *gate = &facts->gate;

	if (!PCacheReadControl(&facts->control))
	{
		PCacheSetError(err, _("\"pg_control\" cannot be read"));
		return false;
	}
	PCacheMediaQuery(pool->path, pool->fd, pool->fs_kind, &facts->media);
	PCacheGatherFacts(pool, &facts->media, gate);
	gate->control = &facts->control;
	gate->cold_on_media_unknown = pcache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD;
	PCacheReadSignals(DataDir, &facts->signals);
	PCacheSetRecovery(gate, &facts->signals, recoveryTarget != RECOVERY_TARGET_UNSET);
	return true;
}

void
PCacheForgetLibraryFacts(PCacheLibraryFacts *facts)
{
	PCacheMediaReportFree(&facts->media);
	memset(facts, 0, sizeof(*facts));
}
