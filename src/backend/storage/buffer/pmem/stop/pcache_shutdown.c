/*-------------------------------------------------------------------------
 *
 * pcache_shutdown.c
 *	  Save the cache at a clean shutdown.
 *
 * Runs in the checkpointer, as the last thing it does: all processes that
 * could pin, change or evict a buffer are gone by then, walsenders and I/O
 * workers included.  Statistics are written before the save, because a save may
 * take seconds, and somebody may kill the server meanwhile.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/stop/pcache_shutdown.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/pcache_stop.h"
#include "storage/sync.h"

/* Each time, a page at least is left out for which there was a memory error. */
#define MAX_SAVES	16

/*
 * On a standby, write out and fsync what is dirty.
 *
 * A restartpoint at shutdown is skipped if the last one is still current,
 * and then leaves dirty buffers, or written ones that were not fsynced; they
 * would come back by redo.  To be kept, a page must equal what is durably on
 * disk, as on a primary after its shutdown checkpoint.
 *
 * Called after the restartpoint; redo has ended, and minRecoveryPoint is
 * beyond any LSN that we write.  Returns false after an error, which must not
 * make the stop fail, because PostgreSQL would not have written anything.  What
 * it leaves behind is cleaned up when the process exits, as after a FATAL.
 */
static bool
FlushStandby(void)
{
	volatile bool done = false;
	bool		save_exit = ExitOnAnyError;

	ExitOnAnyError = false;
	PG_TRY();
	{
		PCacheSpareCopied();
		CheckPointBuffers(CHECKPOINT_IS_SHUTDOWN | CHECKPOINT_IMMEDIATE);
		ProcessSyncRequests();
		done = true;
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	ExitOnAnyError = save_exit;
	return done;
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
	PCacheVerdict verdict;

	PCacheForetellStart(PCACHE_NEXT_RESTART, &verdict);
	if (verdict.refusal == PCACHE_REFUSED)
		ereport(LOG,
				(errmsg("persistent cache: the server will not start again: %s",
						verdict.why.message),
				 verdict.why.hint[0] != '\0' ?
				 errhint_internal("%s", verdict.why.hint) : 0));
	else if (verdict.refusal == PCACHE_OFF)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be without it, because persistent_cache_mode is off")));
	else if (verdict.refusal != PCACHE_WARM)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be cold: %s",
						verdict.why.message)));
}

/*
 * Save all buffers durably, then say so in the superblock.  Whatever goes
 * wrong, the pool stays marked dirty, and in planned_restart the next start is
 * cold.
 *
 * Called when the checkpointer exits, after what was registered by
 * before_shmem_exit().
 */
static void
SaveCache(int code, Datum arg)
{
	PCacheSuperblock *sb;
	ControlFileData *control;
	bool		crc_ok;
	PCacheSaveResult result = PCACHE_SAVE_AGAIN;
	uint64		saved = 0;
	uint64		scrubbed;
	uint64		untrusted;
	int			helpers = 0;
	instr_time	start;
	instr_time	elapsed;

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

	for (int i = 0; i < MAX_SAVES && result == PCACHE_SAVE_AGAIN; i++)
	{
		if (i > 0)
			ereport(LOG,
					(errmsg("persistent cache: the save begins anew without helpers"),
					 PCacheScrubs() ? errdetail("Free slots are not overwritten.") : 0));
		/* Blocks may have gone bad meanwhile: do not touch them. */
		PCacheQueryMedia();
		if (!PCacheRememberBadDescriptors())
		{
			ForbidNextStart();
			return;
		}
		result = PCacheSaveAll(i > 0,
							   control->state == DB_SHUTDOWNED ?
							   control->checkPoint : InvalidXLogRecPtr,
							   &saved, &helpers);
	}
	if (result == PCACHE_SAVE_FAILED)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("persistent cache: not saved: could not write pool \"%s\": %m",
						PCacheThePool.path)));
	if (result == PCACHE_SAVE_AGAIN)
		ereport(LOG,
				(errmsg("persistent cache: not saved: there are too many memory errors in pool \"%s\"",
						PCacheThePool.path)));
	if (result != PCACHE_SAVED)
		return;

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
	scrubbed = pg_atomic_read_u64(&PCacheSaveCtl->scrubbed);
	if (scrubbed > 0)
		ereport(LOG,
				(errmsg_plural("persistent cache: overwrote %llu free slot",
							   "persistent cache: overwrote %llu free slots",
							   scrubbed, (unsigned long long) scrubbed)));
	untrusted = PCacheCountUntrusted();
	if (untrusted > 0)
		ereport(LOG,
				(errmsg_plural("persistent cache: %llu page was not saved because it had been read with errors",
							   "persistent cache: %llu pages were not saved because they had been read with errors",
							   untrusted, (unsigned long long) untrusted)));
	if (PersistentCacheDescriptors != NULL)
		ereport(LOG,
				(errmsg("persistent cache: sealed " UINT64_FORMAT " pages while running, " UINT64_FORMAT " were changed meanwhile, " UINT64_FORMAT " MB flushed, " UINT64_FORMAT " marks, " UINT64_FORMAT " drains, " UINT64_FORMAT " left in the queue",
						pg_atomic_read_u64(&PCacheSealerCtl->seals),
						pg_atomic_read_u64(&PCacheSealerCtl->failed_seals),
						pg_atomic_read_u64(&PCacheSealerCtl->flushed_bytes) >> 20,
						PCacheCountMarks(), PCacheCountDrains(),
						PCacheQueueLength())));
	LogNextStart();
}

/*
 * Have the cache saved.  Called by the checkpointer once all other users of
 * shared buffers are gone, right before it exits.
 */
void
PersistentCacheShutdown(void)
{
	if (!PersistentCacheEnabled() || PersistentCacheStartGivenUp())
		return;

	if (PCacheCtl->superblock.state == PCACHE_STATE_DIRTY &&
		RecoveryInProgress() && !FlushStandby())
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: could not write what the restartpoint had left")));
		return;
	}
	on_shmem_exit(SaveCache, 0);
}
