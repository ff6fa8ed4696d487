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
 * Fill in what the gates look at and an open pool, its media, PGDATA and the
 * host tell.  The rest, about the cluster and its recovery, is for the caller.
 *
 * facts must be zeroed; it is going to point to media and to state.
 */
void
PCacheGatherFacts(const PCachePool *pool, const PCacheMediaReport *media,
				  PCacheStateFile *state, PCacheGateFacts *facts)
{
	PCacheWatermark slots[2];
	PCacheError err;

	facts->file_size = pool->file_size;
	facts->media = media;
	facts->cold_on_media_unknown =
		persistent_cache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD;
	(void) PCacheReadBootId(facts->boot_id);
	if (!PCacheReadExact(pool->fd, slots, sizeof(slots), PCACHE_WATERMARK_OFFSET) ||
		!PCacheWatermarkChoose(slots, &facts->watermark))
		facts->watermark.flushed = 0;
	PCacheReadControlSeen(pool->fd, facts->control_seen);

	PCacheSuspectRead(pool->fd, &facts->suspect);

	/* a damaged state file was reported when the pool was opened */
	if (PCacheStateFileRead(DataDir, state, &err) == PCACHE_STATEFILE_OK)
		facts->state = state;
}

/*
 * How the next start will recover, by the files that ask for it, in the way
 * of InitWalRecovery().
 */
static void
ForeseeRecovery(PCacheGateFacts *facts)
{
	bool		standby = access(STANDBY_SIGNAL_FILE, F_OK) == 0;
	bool		recovery = access(RECOVERY_SIGNAL_FILE, F_OK) == 0;
	const ControlFileData *control = facts->control;

	facts->backup_label = access(BACKUP_LABEL_FILE, F_OK) == 0;
	facts->recovery_target = standby ?
		recoveryTarget != RECOVERY_TARGET_UNSET : recovery;
	facts->recovery_timeline = Max(control->checkPointCopy.ThisTimeLineID,
								   control->minRecoveryPointTLI);
	if (!standby && !recovery)
		return;
	if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_LATEST)
		facts->recovery_timeline = findNewestTimeLine(facts->recovery_timeline);
	else if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_NUMERIC)
		facts->recovery_timeline = recoveryTargetTLIRequested;
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
JudgeCrashNow(const PCachePool *pool, PCacheMediaReport *media, bool host_crash)
{
	static PCacheStateFile state;
	static PCacheSuperblock superblocks[2];
	static PCacheSuperblock sb;
	PCacheGateFacts facts = {0};
	PCacheSuperblockSource source;
	PCacheVerdict verdict;
	PCacheError err;
	ControlFileData *control;
	bool		crc_ok;

	/*
	 * Superblock and pg_control, neither of them in the middle of a change.
	 * In the order in which a checkpoint takes the locks.
	 */
	LWLockAcquire(ControlFileLock, LW_SHARED);
	LWLockAcquire(PersistentCacheLock, LW_SHARED);
	control = get_controlfile(DataDir, &crc_ok);
	for (int i = 0; i < 2; i++)
	{
		if (!PCacheReadExact(pool->fd, &superblocks[i], sizeof(sb),
							 i == 0 ? PCACHE_SUPERBLOCK_OFFSET : PCACHE_COPY_OFFSET))
			memset(&superblocks[i], 0, sizeof(sb));
	}
	PCacheGatherFacts(pool, media, &state, &facts);
	LWLockRelease(PersistentCacheLock);
	LWLockRelease(ControlFileLock);

	if (!crc_ok)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("incorrect checksum in control file")));
	source = PCacheSuperblockChoose(&superblocks[0], &superblocks[1], &sb, &err);
	if (source == PCACHE_SB_NONE)
		return Cold(PCACHE_COLD_SUPERBLOCK, err.message);

	facts.control = control;
	ForeseeRecovery(&facts);
	/* after a crash of the host it is another boot */
	if (host_crash)
		facts.boot_id[0] ^= 0xFF;
	verdict = PCachePoolGate(&sb, &facts);
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
		verdict = JudgeCrashNow(&pool, &PCacheMedia, host_crash);
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
