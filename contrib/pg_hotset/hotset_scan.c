/*-------------------------------------------------------------------------
 *
 * hotset_scan.c
 *	  Which pages are in shared buffers?
 *
 * The headers are read without any lock.  A tag may therefore be torn, half of
 * an old one and half of a new one.  A set is advice: who reads pages by it
 * asks each relation under a lock whether it has such a page.  A torn tag costs
 * one wrong line at worst, whereas the header locks of a million buffers would
 * cost everybody who pins one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_scan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "hotset.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define RADIX_BITS		11
#define RADIX_SIZE		(1 << RADIX_BITS)

/* bits of a key, from the left: number of the fork, block, usage count */
#define FORK_SHIFT		(32 + HOTSET_HEAT_BITS)

StaticAssertDecl(BM_MAX_USAGE_COUNT == HOTSET_MAX_HEAT && HOTSET_MAX_HEAT <= HOTSET_HEAT_MASK, "usage counts have another maximum");

/* A page of a fork that has a number, as HotsetSort() wants it. */
uint64
HotsetKey(uint32 fork_number, BlockNumber block, int heat)
{
	return ((uint64) fork_number << FORK_SHIFT) | HotsetPage(block, heat);
}

/*
 * Sort keys by everything above the usage count, and let go of those of the two
 * arrays that does not have the result.  Digits in which all keys agree are
 * left out, so a server with few relations needs two or three passes.
 */
static uint64 *
RadixSort(uint64 *keys, uint32 nkeys)
{
	uint64	   *other = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * Max(nkeys, 1));
	uint64		differ = 0;

	for (uint32 i = 1; i < nkeys; i++)
		differ |= keys[0] ^ keys[i];
	for (int shift = HOTSET_HEAT_BITS; shift < 64 && (differ >> shift) != 0; shift += RADIX_BITS)
	{
		uint32		starts[RADIX_SIZE] = {0};
		uint32		sum = 0;
		uint64	   *swap;

		if (((differ >> shift) & (RADIX_SIZE - 1)) == 0)
			continue;
		for (uint32 i = 0; i < nkeys; i++)
			starts[(keys[i] >> shift) & (RADIX_SIZE - 1)]++;
		for (int digit = 0; digit < RADIX_SIZE; digit++)
		{
			uint32		count = starts[digit];

			starts[digit] = sum;
			sum += count;
		}
		for (uint32 i = 0; i < nkeys; i++)
			other[starts[(keys[i] >> shift) & (RADIX_SIZE - 1)]++] = keys[i];
		swap = keys;
		keys = other;
		other = swap;
		CHECK_FOR_INTERRUPTS();
	}
	pfree(other);
	return keys;
}

static int
CompareRelations(const void *a, const void *b)
{
	return HotsetForkCompare(&((const HotsetRelation *) a)->fork, &((const HotsetRelation *) b)->fork);
}

/*
 * Make a set of keys, whose fork numbers are the map's.  Of two keys for one
 * page, one goes.  The array is taken over.
 */
HotsetSet *
HotsetSort(HotsetForkMap *map, uint64 *keys, uint32 nkeys)
{
	HotsetSet  *set = palloc0(sizeof(HotsetSet));
	uint32		kept = 0;

	set->nrelations = HotsetForkMapCount(map);
	set->relations = MemoryContextAllocExtended(CurrentMemoryContext, sizeof(HotsetRelation) * Max(set->nrelations, 1),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	HotsetForkMapList(map, set->relations);
	keys = RadixSort(keys, nkeys);

	/* The numbers are ascending now, so each fork's pages are together. */
	for (uint32 i = 0; i < nkeys; i++)
	{
		HotsetRelation *relation = &set->relations[keys[i] >> FORK_SHIFT];
		uint64		page = keys[i] & ((UINT64CONST(1) << FORK_SHIFT) - 1);

		if (relation->npages == 0)
			relation->first = kept;
		else if (HotsetBlock(keys[kept - 1]) == HotsetBlock(page))
			continue;
		keys[kept++] = page;
		relation->npages++;
	}
	set->pages = keys;
	set->npages = kept;
	qsort(set->relations, set->nrelations, sizeof(HotsetRelation), CompareRelations);
	return set;
}

/* Where and when are we? */
static void
SetOrigin(HotsetOrigin *origin)
{
	origin->system_identifier = GetSystemIdentifier();
	origin->taken = GetCurrentTimestamp();
	origin->server_start = PgStartTime;
	origin->nbuffers = NBuffers;
	if (RecoveryInProgress())
		origin->lsn = GetXLogReplayRecPtr(&origin->timeline);
	else
	{
		origin->lsn = GetXLogWriteRecPtr();
		origin->timeline = GetWALInsertionTimeLine();
	}
}

/*
 * The pages of permanent relations that are in shared buffers now.  Temporary
 * relations have other buffers, and unlogged ones, including their init forks,
 * are left out.  Takes no lock.
 */
HotsetSet *
HotsetScan(void)
{
	HotsetForkMap *map = HotsetForkMapCreate();
	uint64	   *keys = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * NBuffers);
	uint32		nkeys = 0;
	HotsetSet  *set;

	for (int i = 0; i < NBuffers; i++)
	{
		const uint32 wanted = BM_VALID | BM_TAG_VALID | BM_PERMANENT;
		BufferDesc *header = GetBufferDescriptor(i);
		uint32		state = pg_atomic_read_u32(&header->state);
		BufferTag	tag;
		HotsetFork	fork;

		if ((state & (wanted | BM_LOCKED)) != wanted)
			continue;
		pg_read_barrier();
		tag = header->tag;
		pg_read_barrier();

		/*
		 * Most of what changed meanwhile is seen here; see above for the
		 * rest.
		 */
		if ((pg_atomic_read_u32(&header->state) & (wanted | BM_LOCKED)) != wanted)
			continue;
		fork.locator = BufTagGetRelFileLocator(&tag);
		fork.number = BufTagGetForkNum(&tag);
		if (!HotsetForkCanBe(&fork) || tag.blockNum == InvalidBlockNumber)
			continue;
		keys[nkeys++] = HotsetKey(HotsetForkMapAdd(map, &fork), tag.blockNum, BUF_STATE_GET_USAGECOUNT(state));
		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	set = HotsetSort(map, keys, nkeys);
	SetOrigin(&set->origin);
	return set;
}
