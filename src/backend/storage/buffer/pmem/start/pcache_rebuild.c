/*-------------------------------------------------------------------------
 *
 * pcache_rebuild.c
 *	  Rebuild the mapping table with the help of other processes.
 *
 * The startup process claims one chunk of slots after the other, and maps it
 * (pcache_mapping.c).  Helpers are background workers that do the same
 * meanwhile.  The startup process never waits for a helper to come, so without
 * helpers, or if they come late, it maps all chunks.  It only waits for those
 * that are in the midst of a chunk when none is left to be claimed.
 *
 * If a helper fails, the startup process begins anew without helpers (rule
 * "the mapping does not depend on helpers").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_rebuild.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/pcache_start.h"
#include "storage/pmsignal.h"
#include "storage/spin.h"
#include "utils/injection_point.h"
#include "utils/wait_event.h"

/* A lost wakeup costs that much. */
#define WAIT_MSEC				10

/* There are more regions than processes by default, see ClaimChunk(). */
#define REGIONS					16

PCacheRebuildControl *PCacheRebuildCtl = NULL;

/* In the startup process: those who were asked to help. */
static BackgroundWorkerHandle *handles[PCACHE_MAX_WORKERS];
static int	nhandles = 0;

/* What this helper has done, and whether it is in the midst of a chunk. */
static PCacheRebuildTotals helper_totals;
static bool helper_joined = false;
static bool helper_in_chunk = false;

/*
 * Called by the postmaster when it starts, and when it reinitializes after a
 * crash.  It starts no worker until recovery begins in the latter case.
 */
void
PCacheRebuildShmemInit(void)
{
	static bool after_crash = false;

	PCacheRebuildCtl->alone = after_crash;
	after_crash = true;
	SpinLockInit(&PCacheRebuildCtl->mutex);
	ConditionVariableInit(&PCacheRebuildCtl->changed);
	pg_atomic_init_u64(&PCacheRebuildCtl->next_slot, 0);
}

/*
 * Have the postmaster start helpers for the rebuild of slots_used slots.
 *
 * Called by the startup process once the pool has passed its gates, which is
 * before the rebuild, so that helpers are there when it begins.
 */
void
PCacheRebuildLaunchHelpers(uint64 slots_used)
{
	int			nhelpers;
	BackgroundWorker worker;

	/* helpers know of no bad block, nor would it be worth the trouble */
	if (PCacheRebuildCtl->alone || PCacheMedia.bad.n_ranges > 0)
		return;
#ifdef PG_HAVE_ATOMIC_U64_SIMULATION
	/* one process at a time, see BufTableLinkBuffer() */
	return;
#endif

	nhelpers = PCacheHelpersFor(Min(slots_used, NBuffers));
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, MAXPGPATH, "postgres");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "PersistentCacheRebuildMain");
	snprintf(worker.bgw_name, BGW_MAXLEN, "persistent cache rebuild");
	snprintf(worker.bgw_type, BGW_MAXLEN, "persistent cache rebuild");

	while (nhandles < nhelpers &&
		   RegisterDynamicBackgroundWorker(&worker, &handles[nhandles]))
		nhandles++;
	if (nhandles < nhelpers)
		ereport(persistent_cache_workers > 0 ? LOG : DEBUG1,
				(errmsg("persistent cache: only %d of %d helpers can be started, because there are too few worker processes",
						nhandles, nhelpers),
				 errhint("You might need to increase \"%s\".", "max_worker_processes")));
}

/* Those who have not come in time need not come any more. */
static void
DismissHelpers(void)
{
	for (int i = 0; i < nhandles; i++)
	{
		TerminateBackgroundWorker(handles[i]);
		pfree(handles[i]);
	}
	nhandles = 0;
}

/* The mutex is held. */
static void
AddTotals(PCacheRebuildTotals *to, const PCacheRebuildTotals *from)
{
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		to->pages[i] += from->pages[i];
	to->kept_dirty += from->kept_dirty;
	to->max_lsn = Max(to->max_lsn, from->max_lsn);
	to->doubts |= from->doubts;
}

/*
 * Wait until the rebuild begins, and take part in it.  Returns false if the
 * helper is not needed (any more).
 */
static bool
JoinRebuild(PCachePageFacts *facts, uint32 *nslots)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;

	ConditionVariablePrepareToSleep(&rebuild->changed);
	while (!ShutdownRequestPending)
	{
		bool		begun;

		SpinLockAcquire(&rebuild->mutex);
		begun = rebuild->begun;
		if (begun && !rebuild->ended)
		{
			*facts = rebuild->facts;
			*nslots = rebuild->nslots;
			rebuild->busy++;
			helper_joined = true;
		}
		SpinLockRelease(&rebuild->mutex);
		if (begun)
			break;
		(void) ConditionVariableTimedSleep(&rebuild->changed, WAIT_MSEC,
										   WAIT_EVENT_PERSISTENT_CACHE_REBUILD);
	}
	ConditionVariableCancelSleep();
	return helper_joined;
}

/* Called when a helper exits, for whatever reason. */
static void
LeaveRebuild(int code, Datum arg)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;

	if (!helper_joined)
		return;
	SpinLockAcquire(&rebuild->mutex);
	AddTotals(&rebuild->totals, &helper_totals);
	if (helper_totals.pages[PCACHE_PAGE_KEPT] > 0)
		rebuild->helpers++;
	if (helper_in_chunk)
		rebuild->failed = true;
	rebuild->busy--;
	rebuild->left++;
	SpinLockRelease(&rebuild->mutex);
	ConditionVariableBroadcast(&rebuild->changed);
}

/*
 * Claim a chunk of the buffers, beginning with *first.  Returns how many buffers it
 * has; 0 if no chunk is left.
 *
 * As far as possible, consecutive claims are in different regions of the buffers.
 * Otherwise all processes would need the same huge page of headers next, and wait
 * for the one that has caused the page fault.
 */
static uint32
ClaimChunk(uint32 *first)
{
	uint32		region_size = NBuffers / PCACHE_SLOTS_PER_CHUNK / REGIONS;
	uint32		chunk;

	if (PCacheClaimSlots(&PCacheRebuildCtl->next_slot, NBuffers,
						 PCACHE_SLOTS_PER_CHUNK, first) == 0)
		return 0;
	chunk = *first / PCACHE_SLOTS_PER_CHUNK;
	if (chunk < REGIONS * region_size)
		*first = (chunk % REGIONS * region_size + chunk / REGIONS) * PCACHE_SLOTS_PER_CHUNK;
	return Min(PCACHE_SLOTS_PER_CHUNK, NBuffers - *first);
}

/*
 * Initialize the headers of a chunk, and map what is below nslots.
 *
 * Nobody has touched the headers before, so the helpers take their share of the
 * page faults.  And the headers are in this processor's cache when they are filled.
 */
static void
MapChunk(const PCachePageFacts *facts, uint32 nslots, uint32 first, uint32 n,
		 PCacheRebuildTotals *totals)
{
	InitBufferHeaders(first, n);
	if (first < nslots)
		PCacheMapChunk(facts, first, Min(n, nslots - first), totals);
}

/* Entry point of a helper. */
void
PersistentCacheRebuildMain(Datum main_arg)
{
	PCacheMediaReport no_bad_blocks = {0};
	PCachePageFacts facts;
	uint32		nslots = 0;
	uint32		first;
	uint32		n;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(LeaveRebuild, 0);

	if (!JoinRebuild(&facts, &nslots))
		proc_exit(0);
	facts.media = &no_bad_blocks;
	facts.sizes = PCacheRelSizesCreate(0);

	while (!ShutdownRequestPending && PostmasterIsAlive() &&
		   (n = ClaimChunk(&first)) > 0)
	{
		helper_in_chunk = true;
		MapChunk(&facts, nslots, first, n, &helper_totals);
		helper_in_chunk = false;
	}
	proc_exit(0);
}

/* Let helpers begin.  next_slot has been 0 since the postmaster set it. */
static void
BeginRebuild(const PCachePageFacts *facts, uint32 nslots)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;

	SpinLockAcquire(&rebuild->mutex);
	rebuild->facts = *facts;
	rebuild->facts.media = NULL;
	rebuild->facts.sizes = NULL;
	memset(&rebuild->facts.holes, 0, sizeof(rebuild->facts.holes));
	rebuild->nslots = nslots;
	rebuild->begun = true;
	SpinLockRelease(&rebuild->mutex);
	ConditionVariableBroadcast(&rebuild->changed);
}

/* Nothing is left to be claimed: wait for those who are at work. */
static void
WaitForHelpers(void)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;

	ConditionVariablePrepareToSleep(&rebuild->changed);
	for (;;)
	{
		bool		ended;

		SpinLockAcquire(&rebuild->mutex);
		ended = rebuild->ended = rebuild->busy == 0;
		SpinLockRelease(&rebuild->mutex);
		if (ended)
			break;
		(void) ConditionVariableTimedSleep(&rebuild->changed, WAIT_MSEC,
										   WAIT_EVENT_PERSISTENT_CACHE_REBUILD);
		PCacheStartInterrupts();
	}
	ConditionVariableCancelSleep();
}

/* Map chunks until none is left to be claimed. */
static void
MapChunks(const PCachePageFacts *facts, uint32 nslots, PCacheRebuildTotals *totals)
{
	uint32		first;
	uint32		n;

	while ((n = ClaimChunk(&first)) > 0)
	{
		MapChunk(facts, nslots, first, n, totals);
		INJECTION_POINT("persistent-cache-rebuilding", NULL);
		PCacheStartInterrupts();
	}
}

/* Without helpers, since one has left a chunk half done. */
static void
BeginAnew(const PCachePageFacts *facts, uint32 nslots, PCacheRebuildTotals *totals)
{
	ereport(LOG,
			(errmsg("persistent cache: a helper has failed, so the rebuild of the mapping table begins anew without helpers")));
	PCacheForgetAll(nslots);
	memset(totals, 0, sizeof(*totals));
	pg_atomic_write_u64(&PCacheRebuildCtl->next_slot, 0);
	MapChunks(facts, nslots, totals);
}

/*
 * Rebuild the mapping table from the descriptors of the first slots_used
 * slots.  Returns the highest LSN of a page that is kept, or a later one.
 *
 * Called once by the startup process.  Does not return if the server is to be
 * stopped (PCacheStartInterrupts).
 */
XLogRecPtr
PCacheRebuildMapping(const PCachePageFacts *facts, uint64 slots_used)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;
	uint32		nslots = Min(slots_used, NBuffers);
	PCacheRebuildTotals totals = {0};

	PCacheRecoveryCtl->kept_over_crash = PCacheIsAfterCrash(facts);
	/* page faults take as long if they are shared with helpers */
	if (nhandles == 0)
		BufTablePopulate();
	BeginRebuild(facts, nslots);
	MapChunks(facts, nslots, &totals);
	WaitForHelpers();
	DismissHelpers();

	/* From here on, nobody else changes what mutex protects. */
	if (rebuild->failed)
	{
		rebuild->helpers = 0;
		BeginAnew(facts, nslots, &totals);
	}
	else
		AddTotals(&totals, &rebuild->totals);
	PCacheForgetDuplicates(nslots, &totals);

	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PCacheCtl->start.pages[i] += totals.pages[i];
	PCacheCtl->start.kept_dirty += totals.kept_dirty;
	return totals.max_lsn;
}
