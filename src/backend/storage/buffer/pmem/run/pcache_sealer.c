/*-------------------------------------------------------------------------
 *
 * pcache_sealer.c
 *	  The background worker that seals changed pages.
 *
 * It reads like a seqlock reader: no pin and no lock held, so it never
 * delays a cleanup lock, an eviction or a writer.  If it is slow, or dies,
 * nothing is lost but warmth.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_sealer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/bgworker_internals.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pcache_run.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/wait_event.h"

#define SEAL_BATCH			256

/* Sleep longer when nothing was queued for that many rounds. */
#define IDLE_ROUNDS			100
#define IDLE_FACTOR			20

/* The slow pass goes round once in about so many rounds. */
#define SLOW_PASS_ROUNDS	6000
#define SLOW_PASS_USAGE		2

/* A slot on its way to be sealed. */
typedef struct SealCandidate
{
	int			slot;
	uint64		seq;
	PCacheDescriptor desc;
} SealCandidate;

typedef enum SealLook
{
	SEAL_READY,
	SEAL_LATER,					/* queue again */
	SEAL_NEVER,					/* nothing to seal */
} SealLook;

/*
 * Look at a slot: can it be sealed now, and as what?
 *
 * The order matters.  seq is read first.  Then the content lock: if nobody
 * holds it exclusively now, all changes made under marks up to seq are
 * complete, and marked dirty; any later writer bumps seq before it changes
 * anything.  The epoch is read after that, so a change is never counted to a
 * checkpoint that may not have seen it dirty.
 */
static SealLook
LookAtSlot(int slot, SealCandidate *candidate)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state;
	uint64		epoch;

	candidate->slot = slot;
	candidate->seq = pg_atomic_read_u64(PCacheSeq(&PersistentCacheDescriptors[slot]));
	if (PCacheSeqIsSealed(candidate->seq))
		return SEAL_NEVER;
	if (LWLockIsHeldExclusive(BufferDescriptorGetContentLock(buf)))
		return SEAL_LATER;
	pg_read_barrier();
	epoch = pg_atomic_read_u64(&PCacheCtl->epoch);

	state = LockBufHdr(buf);
	PCacheDescribe(&candidate->desc, slot, &buf->tag, state,
				   InvalidXLogRecPtr);
	UnlockBufHdr(buf, state);
	candidate->desc.dirty_epoch = epoch;
	candidate->desc.crc = PCacheDescriptorCrc(&candidate->desc);

	if ((state & BM_TAG_VALID) == 0)
		return SEAL_NEVER;		/* evicted meanwhile */
	if ((state & BM_PERMANENT) == 0)
		return SEAL_NEVER;		/* a crash resets it anyway */
	if (PCacheIsUntrusted(slot))
		return SEAL_NEVER;		/* it was read with errors */
	if ((state & BM_VALID) == 0 || (state & BM_IO_IN_PROGRESS) != 0)
		return (state & BM_IO_IN_PROGRESS) != 0 ||
			BUF_STATE_GET_REFCOUNT(state) != 0 ? SEAL_LATER : SEAL_NEVER;
	return SEAL_READY;
}

/*
 * Seal what can be sealed of a batch, with one drain for all of its pages.
 */
static void
SealBatch(const int *slots, int nslots)
{
	static SealCandidate candidates[SEAL_BATCH];
	const PCacheMapping *map = &PCacheThePool.map;
	int			n = 0;
	uint64		failed = 0;

	for (int i = 0; i < nslots; i++)
	{
		switch (LookAtSlot(slots[i], &candidates[n]))
		{
			case SEAL_READY:
				PCacheFlush(map, BufferGetBlock(slots[i] + 1), BLCKSZ);
				n++;
				break;
			case SEAL_LATER:
				PCacheEnqueue(slots[i]);
				break;
			case SEAL_NEVER:
				break;
		}
	}
	if (n == 0)
		return;
	PCacheFlushWatermark();
	if (!PCacheDrain(map))
		elog(ERROR, "could not drain persistent cache pool: %m");

	for (int i = 0; i < n; i++)
	{
		PCacheDescriptor *desc = &PersistentCacheDescriptors[candidates[i].slot];
		uint64		expected = candidates[i].seq;

		/* seq is odd on media; only we write the rest */
		PCacheDescriptorStorePayload(desc, &candidates[i].desc);
		if (!pg_atomic_compare_exchange_u64(PCacheSeq(desc), &expected,
											candidates[i].seq + 1))
		{
			/* whoever marked it took it for queued */
			PCacheEnqueue(candidates[i].slot);
			failed++;
		}
		PCacheFlush(map, desc, sizeof(*desc));
	}
	if (!PCacheDrain(map))
		elog(ERROR, "could not drain persistent cache pool: %m");

	PCacheCountSeals(n - failed, failed);
}

/*
 * Queue some of the slots that nobody queued although they are worth it:
 * pages that a ring read and others used since, and what an error left.
 * rounds is for how many the caller has slept.
 */
static void
SlowPass(int rounds)
{
	static int	next = 0;
	int			n = Max(NBuffers / SLOW_PASS_ROUNDS, 64);

	n = Min(n * rounds, NBuffers);

	for (int i = 0; i < n; i++)
	{
		uint32		state;

		if (next >= NBuffers)
			next = 0;
		state = pg_atomic_read_u32(&GetBufferDescriptor(next)->state);
		if ((state & BM_VALID) && (state & BM_PERMANENT) &&
			BUF_STATE_GET_USAGECOUNT(state) >= SLOW_PASS_USAGE &&
			!PCacheSeqIsSealed(pg_atomic_read_u64(PCacheSeq(&PersistentCacheDescriptors[next]))))
			PCacheEnqueue(next);
		next++;
	}
}

/* Seal all that is queued now.  Returns how many slots were looked at. */
static uint64
SealQueued(void)
{
	int			slots[SEAL_BATCH];
	PCacheQueueWalk walk;
	uint64		total = 0;
	int			n;

	PCacheRoundBegin();
	PCacheDequeueStart(&walk);
	while ((n = PCacheDequeue(&walk, slots, SEAL_BATCH)) > 0)
	{
		SealBatch(slots, n);
		total += n;
		CHECK_FOR_INTERRUPTS();
		/* whoever waits for this round waits for the next sealer */
		if (ShutdownRequestPending)
			return total;
	}
	PCacheRoundDone();
	return total;
}

/*
 * Is anything to be sealed yet?  Not before the startup process has decided
 * about the pool, nor before the pool is in use (rule "the sealer begins when
 * the pool is in use").
 */
static bool
MaySeal(void)
{
	return pg_atomic_read_membarrier_u64(&PCacheCtl->attached) != 0 &&
		PCacheCtl->superblock.state == PCACHE_STATE_DIRTY;
}

void
PersistentCacheSealerMain(Datum main_arg)
{
	int			idle_rounds = 0;
	int			rounds = 1;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/*
	 * We connect to no database, but want to be seen in pg_stat_activity with
	 * what we wait for, and to be found by pg_terminate_backend(): both look
	 * in the process array.  An entry without transaction and xmin holds back
	 * nobody, and recovery does not wait for it; as we have no slot for
	 * ProcSignal, nobody waits for us to absorb a barrier.
	 */
	InitProcessPhase2();
	InitializeSessionUserIdStandalone();
	pgstat_beinit();
	pgstat_bestart_initial();
	pgstat_bestart_final();

	/*
	 * the start after a crash may have the pool again, and needs a sealer
	 * then
	 */
	while (!ShutdownRequestPending && PersistentCacheDescriptors == NULL)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 WAIT_EVENT_PERSISTENT_CACHE_SEALER_MAIN);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	if (ShutdownRequestPending)
		proc_exit(1);

	PCacheQueueRecover();
	PCacheSealerBegin();

	while (!ShutdownRequestPending)
	{
		long		delay = persistent_cache_seal_delay;
		uint64		looked_at = 0;
		bool		may_seal = MaySeal();

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		if (may_seal)
		{
			looked_at = SealQueued();
			SlowPass(rounds);
		}
		idle_rounds = may_seal && looked_at == 0 ? idle_rounds + 1 : 0;
		rounds = idle_rounds > IDLE_ROUNDS ? IDLE_FACTOR : 1;
		delay *= rounds;

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(delay, 1), WAIT_EVENT_PERSISTENT_CACHE_SEALER_MAIN);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	/* not 0, which would tell the postmaster not to start another one */
	proc_exit(1);
}

/* Will the postmaster start a worker of this name? */
static bool
IsRegistered(const char *name)
{
	dlist_iter	iter;

	dlist_foreach(iter, &BackgroundWorkerList)
	{
		RegisteredBgWorker *worker = dlist_container(RegisteredBgWorker,
													 rw_lnode, iter.cur);

		if (strcmp(worker->rw_worker.bgw_name, name) == 0)
			return true;
	}
	return false;
}

/* Have the postmaster start the sealer, from the start and again if it dies. */
void
PersistentCacheSealerRegister(void)
{
	BackgroundWorker worker;

	if (persistent_cache_mode != PERSISTENT_CACHE_ALWAYS)
		return;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 1;
	snprintf(worker.bgw_library_name, MAXPGPATH, "postgres");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "PersistentCacheSealerMain");
	snprintf(worker.bgw_name, BGW_MAXLEN, "persistent cache sealer");
	snprintf(worker.bgw_type, BGW_MAXLEN, "persistent cache sealer");
	RegisterBackgroundWorker(&worker);

	/* which tells of it to the log only, and not what it means */
	if (!IsRegistered(worker.bgw_name))
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the persistent cache sealer cannot run, because there are too few worker processes"),
				 errdetail("Without it a start after a crash keeps no page that was read or changed since the last start."),
				 errhint("Increase \"max_worker_processes\", or set \"persistent_cache_mode\" to \"planned_restart\".")));
}
