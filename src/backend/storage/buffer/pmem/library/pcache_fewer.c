/*-------------------------------------------------------------------------
 *
 * pcache_fewer.c
 *	  There are fewer shared buffers than before: the hottest pages stay.
 *
 * pool/pcache_shrink.c decides which pages stay, and which of them have to move.
 * The pool is in state "attaching", so the order of stores does not matter: after
 * a crash nothing in it is believed.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_fewer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_library.h"
#include "storage/pcache_shrink.h"

/*
 * Count the pages that are dropped from slots that go.  PCacheFillTable() sees
 * the others.
 */
static void
CountGoing(uint64 slot, PCachePageVerdict verdict, void *arg)
{
	uint64	   *counts = arg;

	if (slot >= NBuffers &&
		verdict != PCACHE_PAGE_KEPT && verdict != PCACHE_PAGE_FREE)
		counts[verdict]++;
}

/* Copy a page and its entry.  What is in the other slot is not kept. */
static bool
MovePage(PCachePool *pool, const PCacheSuperblock *sb, uint32 from, uint32 to)
{
	PCacheDescriptor *entry = PCacheLedgerOf(pool) + to;
	PGIOAlignedBlock page;

	if (!PCacheReadDescriptors(pool->fd, from, 1, entry) ||
		!PCacheDescriptorIsIntact(entry, from) ||
		!PCacheReadExact(pool->fd, page.data, BLCKSZ,
						 sb->blocks_offset + (uint64) from * BLCKSZ))
	{
		PCacheDescriptorSetFree(entry);
		return false;
	}
	PCacheMemcpyNodrain(&pool->map, pool->map.base + sb->blocks_offset + (uint64) to * BLCKSZ,
						page.data, BLCKSZ);
	entry->slot = to;
	entry->crc = PCacheDescriptorCrc(entry);
	return true;
}

/*
 * Have the hottest of the first slots_used pages in the first NBuffers slots, and
 * add to counts what is dropped for that.  Returns how many were moved.
 */
uint64
PCacheMoveHottest(PCachePool *pool, const PCacheSuperblock *sb,
				  const PCachePageFacts *facts, uint64 slots_used, uint64 *counts)
{
	PCacheDescriptor *ledger = PCacheLedgerOf(pool);
	PCacheShrink *shrink = PCacheShrinkCreate(slots_used, NBuffers);
	uint64		moved = 0;
	uint32		from;
	uint32		to;

	shrink->seen = CountGoing;
	shrink->arg = counts;
	PCacheShrinkDecide(shrink, pool->fd, facts);
	counts[PCACHE_PAGE_NOT_FITTING] += shrink->not_fitting;
	counts[PCACHE_PAGE_DUPLICATE] += shrink->twins;
	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		if (PCacheShrinkIsTwin(shrink, slot) || PCacheShrinkMakesRoom(shrink, slot))
			PCacheDescriptorSetFree(&ledger[slot]);
	}
	while (PCacheShrinkNextMove(shrink, &from, &to))
	{
		PCachePageVerdict verdict = PCachePageGate(&ledger[to], to, facts);

		if (verdict != PCACHE_PAGE_KEPT && verdict != PCACHE_PAGE_FREE)
			counts[verdict]++;
		if (MovePage(pool, sb, from, to))
			moved++;
		else
			counts[PCACHE_PAGE_BAD_BLOCK]++;
	}
	PCacheShrinkFree(shrink);
	return moved;
}
