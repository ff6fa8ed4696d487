/*-------------------------------------------------------------------------
 *
 * pcache_round.c
 *	  What the sealer has done, and who waits for it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_round.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/pcache_run.h"

PCacheSealerControl *PCacheSealerCtl = NULL;

/* For counters that only one process writes at a time. */
static inline void
AddTo(pg_atomic_uint64 *counter, uint64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

/* For the postmaster, before it has children. */
void
PCacheRoundShmemInit(void)
{
	pg_atomic_write_u32(&PCacheSealerCtl->procno, INVALID_PROC_NUMBER);
	ConditionVariableInit(&PCacheSealerCtl->round_done);
}

static void
SealerEnd(int code, Datum arg)
{
	pg_atomic_write_u32(&PCacheSealerCtl->procno, INVALID_PROC_NUMBER);
}

/* The sealer is ready to work: others may set its latch. */
void
PCacheSealerBegin(void)
{
	before_shmem_exit(SealerEnd, 0);
	pg_atomic_write_u32(&PCacheSealerCtl->procno, MyProcNumber);
}

/* The sealer's process, or NULL. */
PGPROC *
PCacheSealerProc(void)
{
	ProcNumber	procno = pg_atomic_read_u32(&PCacheSealerCtl->procno);

	return procno == INVALID_PROC_NUMBER ? NULL : GetPGProcByNumber(procno);
}

/* The sealer is about to go through the queue. */
void
PCacheRoundBegin(void)
{
	(void) pg_atomic_fetch_add_u64(&PCacheSealerCtl->rounds_begun, 1);
}

/* It has looked at all that was in the queue when it began. */
void
PCacheRoundDone(void)
{
	pg_atomic_write_membarrier_u64(&PCacheSealerCtl->rounds_done,
								   pg_atomic_read_u64(&PCacheSealerCtl->rounds_begun));
	ConditionVariableBroadcast(&PCacheSealerCtl->round_done);
}

/*
 * The sealer has sealed a batch, which took two drains; failed pages were
 * flushed as well, but changed meanwhile.
 */
void
PCacheCountSeals(uint64 seals, uint64 failed)
{
	PCacheSealerControl *sealer = PCacheSealerCtl;

	AddTo(&sealer->seals, seals);
	AddTo(&sealer->failed_seals, failed);
	AddTo(&sealer->flushed_bytes,
		  (seals + failed) * (BLCKSZ + sizeof(PCacheDescriptor)));
	AddTo(&sealer->drains, 2);
}

/* Drains by all processes: the sealer's, one per mark, one per watermark. */
uint64
PCacheCountDrains(void)
{
	return pg_atomic_read_u64(&PCacheSealerCtl->drains) +
		pg_atomic_read_u64(&PCacheWatermarkCtl->updates) +
		PCacheCountMarks();
}

/*
 * How many slots are sealed.  The sealer and those who mark count apart, so it
 * is a little wrong while they are at work.
 */
uint64
PCacheCountSealed(void)
{
	uint64		marks = PCacheCountMarks();
	uint64		sealed = PCacheCtl->start.pages[PCACHE_PAGE_KEPT] +
		pg_atomic_read_u64(&PCacheSealerCtl->seals);

	return Min(sealed - Min(sealed, marks), NBuffers);
}
