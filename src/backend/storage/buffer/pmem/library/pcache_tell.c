/*-------------------------------------------------------------------------
 *
 * pcache_tell.c
 *	  What the library tells about itself; contrib/pg_pcache/pcache_views.c shows it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_tell.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"
#include "utils/guc.h"

/*
 * Why has this server not its shared buffers in the pool, although it is configured?  NULL if it
 * has, or is not.
 */
const char *
PCacheWhyUnavailable(void)
{
	if (!PCacheIsPreloaded)
		return _("pg_pcache is not in \"shared_preload_libraries\"");
	if (PCacheLibrary == NULL && pcache_mode != PERSISTENT_CACHE_OFF)
		return _("another library in \"shared_preload_libraries\" does not call the hooks of pg_pcache");
	return PCacheStart.verdict.refusal == PCACHE_UNAVAILABLE ? PCacheStart.verdict.why.message : NULL;
}

/*
 * Gather what the gates look at, from pg_control as it is on disk, into facts that are
 * zeroed.  Used for a start, and for the answer about the next one.
 */
bool
PCacheGatherLibraryFacts(const PCachePool *pool, PCacheLibraryFacts *facts, PCacheError *err)
{
	PCacheGateFacts *gate = &facts->gate;

	if (!PCacheReadControl(&facts->control))
		return PCacheSetError(err, _("\"pg_control\" cannot be read"));
	PCacheReadSuperblocks(pool->fd, &facts->superblocks);
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

/*
 * How will the start after this event be?  By the settings of this server.  For its own start,
 * event is PCACHE_NEXT_NOTHING or PCACHE_NEXT_CRASH_RESTART: it has opened the pool, if there
 * is one, and has done nothing to it.  facts are zeroed, and get what a start goes by.
 */
PCachePlan
PCacheForetellLibrary(PCacheNextEvent event, PCacheLibraryFacts *facts)
{
	const PCacheNextConfig config = {
		.size = pcache_size,
		.nbuffers = NBuffers,
		.cold_on_media_unknown = pcache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD,
		.required = pcache_required,
	};
	PCachePlan	plan = {{PCacheWithoutPool(pcache_required)}};
	PCacheError not_opened;
	PCachePool	pool;

	if (PCacheThePool.fd < 0)
	{
		(void) PCachePoolOpen(pcache_directory, PCACHE_OPEN_PEEK, &pool, &not_opened);
		return PCacheForetellMissing(pcache_directory, &config, &not_opened);
	}
	if (PCacheGatherLibraryFacts(&PCacheThePool, facts, &plan.verdict.why))
		plan = PCacheForetellPool(&PCacheThePool, &facts->superblocks, &facts->gate, &config, event);
	return plan;
}

/*
 * How will the start be that follows this event?  If a setting waits for a restart, the
 * answer says which.
 */
void
PCacheNextStart(PCacheNextEvent event, PCacheVerdict *verdict)
{
	static const char *const settings[] = {
		"pcache.mode", "pcache.directory", "pcache.size", "pcache.required", "shared_buffers"
	};

	if (pcache_mode == PERSISTENT_CACHE_OFF || !PCacheIsPreloaded)
	{
		*verdict = PCacheRefuse(PCACHE_OFF, _("%s is off"), PCacheSetting("mode"));
		return;
	}
	if (PCacheStart.in_use)
	{
		PCacheLibraryFacts *facts = palloc0_object(PCacheLibraryFacts);

		*verdict = PCacheForetellLibrary(event, facts).verdict;
		PCacheForgetLibraryFacts(facts);
		pfree(facts);
	}
	else
	{
		*verdict = PCacheStart.verdict;
		if (PCacheLibrary == NULL)
			PCacheSetError(&verdict->why, "%s", PCacheWhyUnavailable());
		verdict->refusal = PCacheWithoutPool(pcache_required);
	}
	for (int i = 0; verdict->why.hint[0] == '\0' && i < lengthof(settings); i++)
	{
		if (PCacheSettingIsPending(settings[i]))
			PCacheSetHint(&verdict->why,
						  _("\"%s\" will change with the restart, and this answer does not consider that."),
						  settings[i]);
	}
	if (verdict->refusal == PCACHE_WARM && verdict->why.hint[0] == '\0')
		(void) PCacheSizeDiffers(&PCacheThePool, &PCacheLibrary->superblock,
								 pcache_size, NBuffers, &verdict->why);
}
