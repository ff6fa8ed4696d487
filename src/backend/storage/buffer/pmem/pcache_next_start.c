/*-------------------------------------------------------------------------
 *
 * pcache_next_start.c
 *	  What the pool gates have to know, and what they would say of a crash
 *	  that happened now.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_next_start.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "storage/lwlock.h"

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

/* How the next start will recover, in the way of InitWalRecovery(). */
static void
ForeseeRecovery(PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;
	PCacheSignals signals;
	TimeLineID	timeline = Max(control->checkPointCopy.ThisTimeLineID,
							   control->minRecoveryPointTLI);

	PCacheReadSignals(DataDir, &signals);
	if (signals.standby || signals.recovery)
	{
		if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_LATEST)
			timeline = findNewestTimeLine(timeline);
		else if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_NUMERIC)
			timeline = recoveryTargetTLIRequested;
	}
	PCacheSetRecovery(facts, &signals, recoveryTarget != RECOVERY_TARGET_UNSET,
					  timeline);
}

static PCacheVerdict
Cold(PCacheRefusal refusal, const char *detail)
{
	PCacheVerdict verdict;

	verdict.refusal = refusal;
	strlcpy(verdict.detail, detail, sizeof(verdict.detail));
	return verdict;
}

/*
 * Ask the gates about an open pool as it is on its media.
 */
static PCacheVerdict
JudgeCrashNow(const PCachePool *pool, bool host_crash)
{
	static PCacheRecord record;
	static PCacheSuperblocks superblocks;
	PCacheGateFacts facts = {0};
	PCacheVerdict verdict;
	ControlFileData *control;
	bool		crc_ok;

	/*
	 * Superblock and pg_control, neither of them in the middle of a change.
	 * In the order in which a checkpoint takes the locks.
	 */
	LWLockAcquire(ControlFileLock, LW_SHARED);
	LWLockAcquire(PersistentCacheLock, LW_SHARED);
	control = get_controlfile(DataDir, &crc_ok);
	PCacheReadSuperblocks(pool->fd, &superblocks);
	PCacheGatherServerFacts(pool, &record, &facts);
	LWLockRelease(PersistentCacheLock);
	LWLockRelease(ControlFileLock);

	if (!crc_ok)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("incorrect checksum in control file")));
	if (superblocks.source == PCACHE_SB_NONE)
		return Cold(PCACHE_COLD_SUPERBLOCK, superblocks.first_error.message);

	facts.control = control;
	ForeseeRecovery(&facts);
	/* after a crash of the host it is another boot */
	if (host_crash)
		facts.boot_id[0] ^= 0xFF;
	verdict = PCachePoolGate(&superblocks.chosen, &facts);
	pfree(control);
	return verdict;
}

/*
 * If all processes of the server died now, or if the host did: would the next
 * start keep pages, and if not, why not?
 *
 * This asks for the state of the media anew.  Only if PersistentCacheEnabled().
 */
PCacheVerdict
PersistentCacheNextStart(bool host_crash)
{
	PCachePool	pool;
	PCacheVerdict verdict;
	PCacheError err;

	switch (PCachePoolOpen(PCachePoolDirectory, PCACHE_OPEN_PEEK, &pool, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			return Cold(PCACHE_COLD_NEW, err.message);
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			return Cold(PCACHE_COLD_SUPERBLOCK, err.message);
	}

	PG_TRY();
	{
		PCacheAskMedia();
		verdict = JudgeCrashNow(&pool, host_crash);
		if (verdict.refusal == PCACHE_WARM)
		{
			PersistentCacheStats stats;

			PersistentCacheGetStats(&stats);
			verdict = PCacheEmptyGate(false, stats.sealed);
		}
	}
	PG_FINALLY();
	{
		PCachePoolClose(&pool);
	}
	PG_END_TRY();
	return verdict;
}
