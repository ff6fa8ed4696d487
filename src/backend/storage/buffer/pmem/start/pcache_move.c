/*-------------------------------------------------------------------------
 *
 * pcache_move.c
 *	  Move the hottest pages to the slots that stay when shared buffers get
 *	  smaller.
 *
 * Runs in the startup process, before the mapping table is rebuilt, and only
 * if the pool's last user had more slots than this server has buffers.  Which
 * pages are moved is decided in pool/pcache_shrink.c.
 *
 * The pool is durably "attaching" by then, so after a crash nothing in it is
 * believed.  But it is going to leave that state, so pages and descriptors
 * must be durable, and go together, before that (rule "the hottest pages are
 * kept, wherever they lie").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_move.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "portability/instr_time.h"
#include "storage/pcache_shrink.h"
#include "storage/pcache_start.h"
#include "utils/injection_point.h"

/* 8 MB of pages, which take some milliseconds */
#ifndef MOVES_PER_DRAIN
#define MOVES_PER_DRAIN		1024
#endif

/*
 * Count the dropped pages in slots that go; those in slots that stay are for
 * PCacheRebuildMapping().
 */
static void
CountGoing(uint64 slot, PCachePageVerdict verdict, void *arg)
{
	if (slot >= NBuffers &&
		verdict != PCACHE_PAGE_KEPT && verdict != PCACHE_PAGE_FREE)
		PCacheCtl->start.pages[verdict]++;
}

/* Ask the gates about all slots, and choose. */
static PCacheShrink *
ChoosePages(const PCachePageFacts *facts, uint64 slots_used)
{
	PCacheShrink *shrink = PCacheShrinkCreate(slots_used, NBuffers);

	shrink->seen = CountGoing;
	shrink->interrupts = PCacheStartInterrupts;
	PCacheShrinkDecide(shrink, PCacheThePool.fd, facts);
	PCacheCtl->start.pages[PCACHE_PAGE_NOT_FITTING] += shrink->not_fitting;
	return shrink;
}

/* A page that moves. */
typedef struct PageMove
{
	uint32		from;
	uint32		to;
	PCacheDescriptor desc;		/* the new one; free if there is no page */
} PageMove;

/* The page in this slot, if there is one, makes room. */
static void
MakeRoom(const PCachePageFacts *facts, uint32 slot)
{
	PCachePageVerdict verdict =
		PCachePageGate(PCacheGetDescriptor(slot), slot, facts);

	/* one that could be kept was counted as not fitting */
	if (verdict != PCACHE_PAGE_KEPT && verdict != PCACHE_PAGE_FREE)
		PCacheCtl->start.pages[verdict]++;
	PCacheUnseal(slot);
}

/* Copy a page, and make its new descriptor. */
static void
CopyPage(const PCachePageFacts *facts, PageMove *move)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheDescriptor *desc = &move->desc;
	PGIOAlignedBlock page;

	/* asked again, because the new CRC would hide what has gone wrong */
	(void) PCacheReadDescriptors(PCacheThePool.fd, move->from, 1, desc);
	if (PCachePageGate(desc, move->from, facts) != PCACHE_PAGE_KEPT ||
		!PCacheReadExact(PCacheThePool.fd, page.data, BLCKSZ,
						 facts->blocks_offset + (uint64) move->from * BLCKSZ))
	{
		PCacheDescriptorSetFree(desc);
		PCacheCtl->start.pages[PCACHE_PAGE_BAD_BLOCK]++;
		return;
	}
	PCacheMemcpyNodrain(map, map->base + facts->blocks_offset + (uint64) move->to * BLCKSZ,
						page.data, BLCKSZ);
	desc->slot = move->to;
	desc->crc = PCacheDescriptorCrc(desc);
	desc->seq = pg_atomic_read_u64(PCacheSeq(PCacheGetDescriptor(move->to))) + 1;
}

/*
 * Move some pages, durably.  At no moment is there a descriptor on the media
 * that says something wrong.  In the end each page is in one slot.
 */
static void
MoveBatch(const PCachePageFacts *facts, PageMove *moves, int n)
{
	for (int i = 0; i < n; i++)
		MakeRoom(facts, moves[i].to);
	PCacheDrainForStart();

	for (int i = 0; i < n; i++)
		CopyPage(facts, &moves[i]);
	INJECTION_POINT("persistent-cache-moving", NULL);
	PCacheDrainForStart();

	for (int i = 0; i < n; i++)
	{
		if (PCacheSeqIsSealed(moves[i].desc.seq))
		{
			PCacheDescriptorStore(&PCacheThePool.map,
								  PCacheGetDescriptor(moves[i].to), &moves[i].desc);
			PCacheCtl->start.moved++;
		}
		PCacheUnseal(moves[i].from);
	}
	PCacheDrainForStart();
}

/*
 * Drop the pages that two slots claim, before one of the two makes room and the
 * other one would be believed.  They leave more room than the moves need, so
 * whatever was to make room does so here.
 */
static void
DropTwins(const PCacheShrink *shrink)
{
	if (shrink->twins == 0)
		return;
	PCacheKeepPool();
	PCacheCtl->start.pages[PCACHE_PAGE_DUPLICATE] += shrink->twins;
	for (uint64 slot = 0; slot < NBuffers; slot++)
	{
		if (PCacheShrinkIsTwin(shrink, slot) || PCacheShrinkMakesRoom(shrink, slot))
			PCacheUnseal(slot);
	}
	PCacheDrainForStart();
}

/*
 * Have the hottest pages of the first slots_used slots in the first NBuffers
 * ones.  The pool must be adopted, and no buffer be in use.
 *
 * Counts pages that are dropped, but for those that PCacheRebuildMapping() is
 * going to see.  Does not return if the server is to be stopped
 * (PCacheStartInterrupts).
 */
void
PCacheMovePages(const PCachePageFacts *facts, uint64 slots_used)
{
	PCacheShrink *shrink;
	PageMove   *moves;
	int			n = 0;
	instr_time	start;
	instr_time	elapsed;

	if (slots_used <= NBuffers)
		return;

	INSTR_TIME_SET_CURRENT(start);
	shrink = ChoosePages(facts, slots_used);
	DropTwins(shrink);
	moves = palloc_array(PageMove, MOVES_PER_DRAIN);
	do
	{
		PCacheStartInterrupts();
		n = 0;
		while (n < MOVES_PER_DRAIN &&
			   PCacheShrinkNextMove(shrink, &moves[n].from, &moves[n].to))
			n++;
		if (n > 0)
			MoveBatch(facts, moves, n);
	} while (n == MOVES_PER_DRAIN);
	pfree(moves);
	PCacheShrinkFree(shrink);
	if (PCacheCtl->start.moved == 0)
		return;

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	ereport(LOG,
			(errmsg_plural("persistent cache: moved %llu page to the %d slots that are left, %.3f ms",
						   "persistent cache: moved %llu pages to the %d slots that are left, %.3f ms",
						   PCacheCtl->start.moved,
						   (unsigned long long) PCacheCtl->start.moved, NBuffers,
						   INSTR_TIME_GET_MILLISEC(elapsed))));
}
