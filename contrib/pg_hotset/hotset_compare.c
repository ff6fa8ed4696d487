/*-------------------------------------------------------------------------
 *
 * hotset_compare.c
 *	  What of a list is in shared buffers, and what could be given up for the
 *	  rest?
 *
 * One scan of the headers answers that.  Nothing is pinned, because that would
 * raise usage counts.  The same scan gives the pages of the list the usage
 * counts that they have on the primary, if these are higher, so that this
 * server evicts as the primary would.  As in hotset_scan.c, no lock is taken; a
 * usage count that is changed at a wrong page by mistake does no harm.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_compare.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "hotset.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "utils/memutils.h"

/* Index of the page in the list's pages, or -1. */
static int64
FindPage(HotsetForkMap *map, const HotsetSet *list, const BufferTag *tag)
{
	HotsetFork	fork = {.locator = BufTagGetRelFileLocator(tag),.number = BufTagGetForkNum(tag)};
	uint32		number;
	uint32		low;
	uint32		high;

	if (!HotsetForkMapFind(map, &fork, &number))
		return -1;
	low = list->relations[number].first;
	high = low + list->relations[number].npages;
	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;
		BlockNumber block = HotsetBlock(list->pages[middle]);

		if (block == tag->blockNum)
			return middle;
		if (block < tag->blockNum)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

/* Set the usage count to "to", if the header has not changed since "state". */
static uint32
SetHeat(BufferDesc *header, uint32 state, int to)
{
	uint32		wanted = (state & ~BUF_USAGECOUNT_MASK) | ((uint32) to << BUF_USAGECOUNT_SHIFT);

	return pg_atomic_compare_exchange_u32(&header->state, &state, wanted) ? wanted : state;
}

/*
 * Compare a list with shared buffers.  If cool, the usage counts that are
 * higher than the list's fall by one, as the clock sweep would take them down
 * if somebody needed the buffers; pages that are not on the list have 0 there.
 */
HotsetComparison *
HotsetCompare(const HotsetSet *list, bool cool)
{
	HotsetComparison *comparison = palloc0(sizeof(HotsetComparison));
	HotsetForkMap *map = HotsetForkMapCreate();
	uint8	   *heats = MemoryContextAllocExtended(CurrentMemoryContext, NBuffers, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	int			starts[HOTSET_HEAT_MASK + 2];

	comparison->here = MemoryContextAllocExtended(CurrentMemoryContext, list->npages / 8 + 1,
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 i = 0; i < list->nrelations; i++)
		(void) HotsetForkMapAdd(map, &list->relations[i].fork);

	/*
	 * heats: 0 if the buffer is no candidate, else its usage count plus 2, or
	 * 1 if empty
	 */
	for (int i = 0; i < NBuffers; i++)
	{
		BufferDesc *header = GetBufferDescriptor(i);
		uint32		state = pg_atomic_read_u32(&header->state);
		BufferTag	tag;
		int64		index;
		int			heat;
		int			wanted = 0;

		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		if (state & BM_LOCKED)
			continue;
		if (!(state & BM_TAG_VALID))
		{
			if (BUF_STATE_GET_REFCOUNT(state) > 0)
				continue;
			if (header->freeNext != FREENEXT_NOT_IN_LIST)
				comparison->nfree++;
			else
				heats[i] = 1;
			continue;
		}
		pg_read_barrier();
		tag = header->tag;
		if (!(state & BM_VALID) || !(state & BM_PERMANENT))
			continue;
		index = FindPage(map, list, &tag);
		if (index >= 0)
		{
			wanted = Min(HotsetHeat(list->pages[index]), BM_MAX_USAGE_COUNT);
			if (!(comparison->here[index / 8] & (1 << (index % 8))))
				comparison->nhere++;
			comparison->here[index / 8] |= 1 << (index % 8);
		}
		heat = BUF_STATE_GET_USAGECOUNT(state);
		if (heat < wanted)
			state = SetHeat(header, state, wanted);
		else if (cool && heat > wanted)
			state = SetHeat(header, state, heat - 1);
		if (BUF_STATE_GET_REFCOUNT(state) == 0 && !(state & BM_DIRTY))
			heats[i] = Min(BUF_STATE_GET_USAGECOUNT(state), HOTSET_HEAT_MASK - 1) + 2;
	}

	/*
	 * Sort the candidates by heat; colder[h] counts those with heats up to h
	 * + 1.
	 */
	memset(starts, 0, sizeof(starts));
	for (int i = 0; i < NBuffers; i++)
		if (heats[i] > 0)
			comparison->colder[heats[i] - 1]++;
	for (int h = 0; h < lengthof(starts); h++)
	{
		starts[h] = comparison->ncandidates;
		comparison->ncandidates += comparison->colder[h];
		comparison->colder[h] = comparison->ncandidates;
	}
	comparison->candidates = MemoryContextAllocHuge(CurrentMemoryContext,
													sizeof(int) * Max(comparison->ncandidates, 1));
	for (int i = 0; i < NBuffers; i++)
		if (heats[i] > 0)
			comparison->candidates[starts[heats[i] - 1]++] = i;
	pfree(heats);
	return comparison;
}
