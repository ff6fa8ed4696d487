/*-------------------------------------------------------------------------
 *
 * pcache_seal_now.c
 *	  Have all pages sealed that can be, because somebody asks for it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_seal_now.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/pcache_run.h"
#include "storage/pcache_stat.h"
#include "storage/proc.h"

/* A scan can be interrupted after so many slots. */
#define SLOTS_PER_INTERRUPT	65536

/* How long to wait for a sealer that does not run, and in steps of what. */
#define SEALER_WAIT_MS		10000
#define SEALER_STEP_MS		100

/*
 * Queue all that could be sealed and is not.  Returns how many.
 */
static uint32
QueueUnsealed(void)
{
	uint32		n = 0;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);

		if (slot % SLOTS_PER_INTERRUPT == 0)
			CHECK_FOR_INTERRUPTS();
		if ((state & (BM_VALID | BM_PERMANENT)) != (BM_VALID | BM_PERMANENT))
			continue;
		if (PCacheIsUntrusted(slot))
			continue;
		if (PCacheSeqIsSealed(pg_atomic_read_u64(PCacheSeq(&PersistentCacheDescriptors[slot]))))
			continue;
		PCacheEnqueue(slot);
		n++;
	}
	return n;
}

/* Wait for the sealer to go through the queue as it is now. */
static void
WaitForRound(uint32 wait_event_info)
{
	PCacheSealerControl *sealer = PCacheSealerCtl;
	int			waited = 0;
	uint64		round;

	/* the round that is under way may be past what was just queued */
	pg_memory_barrier();
	round = pg_atomic_read_u64(&sealer->rounds_begun) + 1;

	ConditionVariablePrepareToSleep(&sealer->round_done);
	while (pg_atomic_read_u64(&sealer->rounds_done) < round)
	{
		PGPROC	   *proc = PCacheSealerProc();

		if (proc != NULL)
		{
			SetLatch(&proc->procLatch);
			waited = 0;
		}
		else if (waited >= SEALER_WAIT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the persistent cache sealer is not running"),
					 errhint("It needs one of \"max_worker_processes\".")));
		if (ConditionVariableTimedSleep(&sealer->round_done, SEALER_STEP_MS,
										wait_event_info))
			waited += SEALER_STEP_MS;
	}
	ConditionVariableCancelSleep();
}

/*
 * Make the WAL of all pages that are sealed now durable: a page is kept only
 * if its WAL is.  That of a session that has only read, and pruned a page, may
 * not be.  A record of our own tells where all that is inserted ends.
 */
static void
FlushWalOfSealed(void)
{
	char		nothing = 0;

	/* a standby has flushed what it replays */
	if (RecoveryInProgress())
		return;
	XLogBeginInsert();
	XLogRegisterData(&nothing, sizeof(nothing));
	XLogFlush(XLogInsert(RM_XLOG_ID, XLOG_NOOP));
}

/*
 * Have all pages sealed that can be, and their WAL durable.  Goes on as long as that helps: a busy
 * server always has some that are in change.  wait_event_info is what to show
 * meanwhile.
 *
 * Returns how many permanent pages are left unsealed.  Can be interrupted.
 * Only in mode always.
 */
uint32
PersistentCacheSealNow(uint32 wait_event_info)
{
	uint32		left = QueueUnsealed();
	uint32		before = left + 1;

	while (left > 0 && left < before)
	{
		before = left;
		WaitForRound(wait_event_info);
		left = QueueUnsealed();
	}
	FlushWalOfSealed();
	return left;
}
