/*-------------------------------------------------------------------------
 *
 * pcache_shutdown.c
 *	  Save the cache at a clean shutdown.
 *
 * Runs in the checkpointer, as the last thing it does: all processes that
 * could pin, change or evict a buffer are gone by then, walsenders and I/O
 * workers included.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_shutdown.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/sync.h"

/*
 * On a standby, write out and fsync what is dirty.
 *
 * A restartpoint at shutdown is skipped if the last one is still current,
 * and then leaves dirty buffers, or written ones that were not fsynced; they
 * would come back by redo.  To be kept, a page must equal what is durably on
 * disk, as on a primary after its shutdown checkpoint.
 *
 * Called after the restartpoint; redo has ended, and minRecoveryPoint is
 * beyond any LSN that we write.
 */
void
PersistentCacheFlushStandby(void)
{
	if (!PersistentCacheEnabled() || PersistentCacheStartGivenUp() ||
		PCacheCtl->superblock.state != PCACHE_STATE_DIRTY)
		return;

	CheckPointBuffers(CHECKPOINT_IS_SHUTDOWN | CHECKPOINT_IMMEDIATE);
	ProcessSyncRequests();
}

/*
 * There are descriptors that cannot be stored, and no room to record that.  In
 * mode always a pool in use is believed, so it must not be in that state.
 */
static void
ForbidNextStart(void)
{
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheCtl->superblock.state = PCACHE_STATE_ATTACHING;
	(void) PCacheStoreSuperblock(LOG);
	LWLockRelease(PersistentCacheLock);
	ereport(LOG,
			(errmsg("persistent cache: not saved: too many blocks of pool \"%s\" are bad",
					PCacheThePool.path)));
}

/*
 * Tell now if the next start will not be warm, or none, because somebody has
 * changed the configuration or the set-up.
 */
static void
LogNextStart(void)
{
	PCacheForecast forecast;

	PCacheForetellStart(PCACHE_NEXT_RESTART, &forecast);
	if (!forecast.starts)
		ereport(LOG,
				(errmsg("persistent cache: the server will not start again: %s",
						forecast.error.message),
				 forecast.error.hint[0] != '\0' ?
				 errhint_internal("%s", forecast.error.hint) : 0));
	else if (forecast.is_off)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be without it, because persistent_cache_mode is off")));
	else if (forecast.verdict.refusal != PCACHE_WARM)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be cold: %s",
						forecast.verdict.detail)));
}

/*
 * Save all buffers durably, then say so in the superblock.  Whatever goes
 * wrong, the pool stays marked dirty, and the next start is cold.
 */
void
PersistentCacheShutdown(void)
{
	PCacheSuperblock *sb;
	ControlFileData *control;
	bool		crc_ok;
	uint64		saved;
	uint64		untrusted;
	int			helpers;
	instr_time	start;
	instr_time	elapsed;

	if (!PersistentCacheEnabled() || PersistentCacheStartGivenUp())
		return;

	sb = &PCacheCtl->superblock;
	if (sb->state != PCACHE_STATE_DIRTY)
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: the server did not reach a consistent state")));
		return;
	}
	control = get_controlfile(DataDir, &crc_ok);
	if (!crc_ok ||
		(control->state != DB_SHUTDOWNED &&
		 control->state != DB_SHUTDOWNED_IN_RECOVERY))
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: the cluster was not shut down cleanly")));
		return;
	}

	INSTR_TIME_SET_CURRENT(start);

	/* Blocks may have gone bad meanwhile: do not touch them. */
	PCacheQueryMedia();
	if (!PCacheRememberBadDescriptors())
	{
		ForbidNextStart();
		return;
	}
	if (!PCacheSaveAll(&saved, &helpers))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("persistent cache: not saved: could not write pool \"%s\": %m",
						PCacheThePool.path)));
		return;
	}

	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheSuperblockSetClean(sb, control, saved);
	if (!PCacheStoreSuperblock(LOG))
	{
		LWLockRelease(PersistentCacheLock);
		return;
	}
	LWLockRelease(PersistentCacheLock);

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	ereport(LOG,
			(errmsg("persistent cache: saved " UINT64_FORMAT " pages in %d slots, %.3f ms, helpers: %d",
					saved, NBuffers, INSTR_TIME_GET_MILLISEC(elapsed), helpers)));
	untrusted = PCacheCountUntrusted();
	if (untrusted > 0)
		ereport(LOG,
				(errmsg_plural("persistent cache: %llu page was not saved because it had been read with errors",
							   "persistent cache: %llu pages were not saved because they had been read with errors",
							   untrusted, (unsigned long long) untrusted)));
	if (PersistentCacheDescriptors != NULL)
		ereport(LOG,
				(errmsg("persistent cache: sealed " UINT64_FORMAT " pages while running, " UINT64_FORMAT " were changed meanwhile, " UINT64_FORMAT " MB flushed, " UINT64_FORMAT " marks, " UINT64_FORMAT " drains, " UINT64_FORMAT " left in the queue",
						pg_atomic_read_u64(&PCacheCtl->sealer.seals),
						pg_atomic_read_u64(&PCacheCtl->sealer.failed_seals),
						pg_atomic_read_u64(&PCacheCtl->sealer.flushed_bytes) >> 20,
						PCacheCountMarks(), PCacheCountDrains(),
						PCacheQueueLength())));
	LogNextStart();
}
