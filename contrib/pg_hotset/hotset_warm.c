/*-------------------------------------------------------------------------
 *
 * hotset_warm.c
 *	  Reads a database's missing pages into shared buffers.
 *
 * A block that stayed in shared buffers after its relation was dropped or
 * truncated would be a wrong page once the number is used again.  So pages are
 * read only while the relation is locked, which both a backend and replay
 * respect; the relation that was opened must have the file that the list
 * names, and its size is asked then.
 *
 * Replay and queries go first.  Locks and pins are held for a slice of time
 * only, nothing is held while the worker waits because of pg_hotset.max_rate,
 * and a lock that somebody else has is not waited for.  No snapshot is kept.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_warm.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "hotset.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/read_stream.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/injection_point.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relfilenumbermap.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* What PostgreSQL 17 has in another form */
#if PG_VERSION_NUM >= 180000
#define HOTSET_INJECTION_POINT(name)	INJECTION_POINT(name, NULL)
#else
#define HOTSET_INJECTION_POINT(name)	INJECTION_POINT(name)
#define EvictUnpinnedBuffer(buffer, flushed)	((void) (flushed), EvictUnpinnedBuffer(buffer))
#define READ_STREAM_USE_BATCHING		0
#endif

/* for how long a lock may be held before the last read is started */
#define SLICE_MS		50
/* pages of a slice, if the rate has no limit */
#define SLICE_MAX_PAGES	1024
/* so many pages that cannot be read are enough for a relation and a round */
#define MAX_UNREADABLE	3

typedef struct WarmState
{
	HotsetJob  *job;
	bits8	   *was_read;
	HotsetSet  *set;

	/* the slice */
	const HotsetRelation *relation;
	uint32		pos;			/* next page, in set->pages */
	int			budget;			/* pages that it may still read */
	BlockNumber nblocks;
	TimestampTz started;
	int			unreadable;		/* slices of the relation that have failed so */
} WarmState;

PGDLLEXPORT void hotset_warm_main(Datum main_arg);

static uint32
RelationEnd(const WarmState *warm)
{
	return warm->relation->first + warm->relation->npages;
}

/* Which page is read next in this slice? */
static BlockNumber
NextBlock(ReadStream *stream, void *callback_private_data, void *per_buffer_data)
{
	WarmState  *warm = callback_private_data;

	while (warm->pos < RelationEnd(warm))
	{
		uint64		page = warm->set->pages[warm->pos];

		if (HotsetBlock(page) >= warm->nblocks)
		{
			warm->pos++;
			continue;
		}
		/* A read without a free buffer would take somebody else's. */
		if (warm->budget <= 0 || !have_free_buffer() ||
			TimestampDifferenceExceeds(warm->started, GetCurrentTimestamp(), SLICE_MS))
			return InvalidBlockNumber;
		warm->budget--;
		*(uint32 *) per_buffer_data = warm->pos++;
		return HotsetBlock(page);
	}
	return InvalidBlockNumber;
}

/* Give a page that we have pinned the usage count that it has on the primary. */
static void
TakeOverHeat(Buffer buffer, int heat)
{
	BufferDesc *header = GetBufferDescriptor(buffer - 1);
	uint32		state = LockBufHdr(header);

	heat = Min(heat, BM_MAX_USAGE_COUNT);
	/* Our own pin counts as one use. */
	if (BUF_STATE_GET_USAGECOUNT(state) <= 1 || BUF_STATE_GET_USAGECOUNT(state) < heat)
		state = (state & ~BUF_USAGECOUNT_MASK) | ((uint32) heat << BUF_USAGECOUNT_SHIFT);
	UnlockBufHdr(header, state);
}

/*
 * Move as many buffers of the plan as the slice may read to the free list, if
 * that is empty, until the slice's time is over.  A buffer that was evicted but is
 * not there would be found only by a clock sweep, which lowers the usage counts of
 * others on its way.
 */
static void
MakeRoom(WarmState *warm)
{
	HotsetJob  *job = warm->job;
	int			wanted = warm->budget;

	if (have_free_buffer())
		return;
	while (wanted > 0 && job->next_victim < job->nvictims &&
		   !TimestampDifferenceExceeds(warm->started, GetCurrentTimestamp(), SLICE_MS))
	{
		BufferDesc *header = GetBufferDescriptor(HotsetJobVictims(job)[job->next_victim++]);
		uint32		state = pg_atomic_read_u32(&header->state);
		bool		flushed;

		if (BUF_STATE_GET_REFCOUNT(state) > 0 || (state & BM_DIRTY) ||
			(int) BUF_STATE_GET_USAGECOUNT(state) > job->victim_heat)
			continue;
		if (state & BM_TAG_VALID)
		{
			if (!EvictUnpinnedBuffer(BufferDescriptorGetBuffer(header), &flushed))
				continue;
			job->counts.evicted++;
		}
		StrategyFreeBuffer(header);
		wanted--;
	}
}

/*
 * Open and lock the relation that has this file, or return NULL if there is
 * none, if somebody has locked it, or if it has another file by now.  ALTER
 * SEQUENCE gives a sequence a new file without AccessExclusiveLock, the only
 * lock that replay takes, so no lock of ours would keep the old one.
 */
static Relation
OpenRelation(const RelFileLocator *locator)
{
	Oid			oid = RelidByRelfilenumber(locator->spcOid, locator->relNumber);
	Relation	relation;

	HOTSET_INJECTION_POINT("pg-hotset-before-lock");
	if (!OidIsValid(oid) || !ConditionalLockRelationOid(oid, AccessShareLock))
		return NULL;
	relation = try_relation_open(oid, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(oid, AccessShareLock);
		return NULL;
	}
	if (!RelFileLocatorEquals(relation->rd_locator, *locator) ||
		relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		relation->rd_rel->relkind == RELKIND_SEQUENCE)
	{
		relation_close(relation, AccessShareLock);
		return NULL;
	}
	return relation;
}

/* Read some pages of the relation, in a transaction of its own. */
static void
WarmSlice(WarmState *warm)
{
	ForkNumber	fork = warm->relation->fork.number;
	Relation	relation;
	bool		exists;
	ReadStream *stream;
	Buffer		buffer;
	void	   *data;

	StartTransactionCommand();
	relation = OpenRelation(&warm->relation->fork.locator);
	exists = relation != NULL && smgrexists(RelationGetSmgr(relation), fork);
	if (exists)
	{
		warm->started = GetCurrentTimestamp();
		MakeRoom(warm);
	}
	if (!exists ||
		(!have_free_buffer() && warm->job->next_victim >= warm->job->nvictims))
	{
		if (relation != NULL)
			relation_close(relation, AccessShareLock);
		warm->pos = RelationEnd(warm);
		CommitTransactionCommand();
		return;
	}
	/* That of the search in pg_class. */
	InvalidateCatalogSnapshot();
	warm->nblocks = RelationGetNumberOfBlocksInFork(relation, fork);
	HOTSET_INJECTION_POINT("pg-hotset-locked");
	stream = read_stream_begin_relation(READ_STREAM_MAINTENANCE | READ_STREAM_DEFAULT | READ_STREAM_USE_BATCHING,
										NULL, relation, fork, NextBlock, warm, sizeof(uint32));
	while ((buffer = read_stream_next_buffer(stream, &data)) != InvalidBuffer)
	{
		uint32		index = *(uint32 *) data;

		TakeOverHeat(buffer, HotsetHeat(warm->set->pages[index]));
		ReleaseBuffer(buffer);
		warm->was_read[index / 8] |= 1 << (index % 8);
		warm->job->counts.read++;
	}
	read_stream_end(stream);
	relation_close(relation, AccessShareLock);
	CommitTransactionCommand();
}

/*
 * If a slice fails, the rest of the relation is skipped in this round, because
 * replay may be waiting for our lock.  But if a page could not be read, the next
 * slice continues behind the pages that were requested, unless there are many
 * such pages.
 */
static void
TryWarmSlice(WarmState *warm)
{
	uint32		first = warm->pos;

	PG_TRY();
	{
		WarmSlice(warm);
	}
	PG_CATCH();
	{
		int			code = geterrcode();

		MemoryContextSwitchTo(TopMemoryContext);
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		if ((code != ERRCODE_DATA_CORRUPTED && code != ERRCODE_IO_ERROR) ||
			++warm->unreadable >= MAX_UNREADABLE || warm->pos == first)
			warm->pos = RelationEnd(warm);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(TopMemoryContext);
}

/* Microseconds since some time, which no change of the clock moves. */
static int64
MonotonicTime(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Wait until so many pages per second are not more than the setting allows. */
static void
Throttle(int64 *due, uint64 npages)
{
	int64		began = Max(*due, MonotonicTime() - SLICE_MS * INT64CONST(1000));

	for (;;)
	{
		int64		wait;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		*due = began;
		if (hotset_max_rate == 0)
			return;
		*due += (int64) (npages * BLCKSZ * INT64CONST(1000000) / ((uint64) hotset_max_rate * 1024 * 1024));
		wait = (*due - MonotonicTime()) / 1000;
		if (wait <= 0)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The worker for one database.  Its arguments are a HotsetWorkerArgs. */
void
hotset_warm_main(Datum main_arg)
{
	HotsetWorkerArgs args;
	WarmState	warm = {0};
	dsm_segment *segment;
	const char *problem;
	int64		due = 0;

	memcpy(&args, MyBgworkerEntry->bgw_extra, sizeof(args));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	segment = dsm_attach(args.segment);
	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not map dynamic shared memory segment")));
	warm.job = dsm_segment_address(segment);
	warm.was_read = (bits8 *) warm.job + warm.job->bits_offset;
	BackgroundWorkerInitializeConnectionByOid(args.connection, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	MemoryContextSwitchTo(TopMemoryContext);
	warm.set = HotsetDecode((char *) warm.job + warm.job->list_offset, warm.job->list_length, &problem);
	if (warm.set == NULL)
		elog(ERROR, "could not use the list of pages to be read: %s", problem);

	for (uint32 r = 0; r < warm.set->nrelations; r++)
	{
		warm.relation = &warm.set->relations[r];
		if (warm.relation->fork.locator.dbOid != args.database)
			continue;
		warm.pos = warm.relation->first;
		warm.unreadable = 0;
		while (warm.pos < RelationEnd(&warm))
		{
			uint64		before = warm.job->counts.read;

			warm.budget = SLICE_MAX_PAGES;
			if (hotset_max_rate > 0)
				warm.budget = Max(1, Min(SLICE_MAX_PAGES,
										 (int64) hotset_max_rate * 1024 * 1024 / BLCKSZ * SLICE_MS / 1000));
			CHECK_FOR_INTERRUPTS();
			TryWarmSlice(&warm);
			Throttle(&due, warm.job->counts.read - before);
		}
	}
	dsm_detach(segment);
}
