/*-------------------------------------------------------------------------
 *
 * pcache_chunk.c
 *	  Find the pages of a chunk of slots that are to be kept, and sort them as
 *	  the mapping table has them.
 *
 * Nearly all the time of a rebuild would go into waiting for memory, if pages
 * were put into the mapping table in the order of their slots, in which each one
 * needs another bucket and another element somewhere.  So they are sorted by
 * bucket beforehand, a chunk of slots at a time.  A chunk is as large as to let
 * the pages of neighbouring buckets meet, and so small that sorting it does not
 * cost more than that gains: 1 MB of pages at 8 GB, 7 MB from 64 GB on.  A radix
 * hash join partitions its input for the same reason (Manegold, Boncz and Kersten,
 * "Optimizing Main-Memory Join on Modern Hardware", 2002).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_chunk.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pcache_chunk.h"
#include "pcache_internal.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"

/* 64 kB */
#define DESCRIPTORS_PER_READ	PCACHE_SLOTS_PER_CHECK

/*
 * Many chunks, so that no process waits long for the last one, but not too many
 * pages that end up far from each other in a large mapping table.
 */
#define CHUNKS_PER_POOL			32
#define MIN_SLOTS_PER_CHUNK		1024
#define MAX_SLOTS_PER_CHUNK		262144

/* On average, a chunk without free slots has that many pages in a bin. */
#define SLOTS_PER_BIN			8

/* How many slots has a chunk, if nslots have to be mapped?  A power of two. */
uint32
PCacheSlotsPerChunk(uint32 nslots)
{
	uint32		wanted = Max(nslots / CHUNKS_PER_POOL, MIN_SLOTS_PER_CHUNK);

	return pg_prevpower2_32(Min(wanted, MAX_SLOTS_PER_CHUNK));
}

/*
 * Allocate memory for chunks of nslots slots, a power of two and at least
 * MIN_SLOTS_PER_CHUNK, in the current memory context.
 */
PCacheJudgedChunk *
PCacheChunkCreate(uint32 nslots)
{
	PCacheJudgedChunk *chunk = palloc(sizeof(PCacheJudgedChunk));

	/*
	 * dynahash.c has as many, but never more than 2^30; only the order
	 * depends on it
	 */
	uint32		nbuckets = pg_nextpower2_32(NBuffers + NUM_BUFFER_PARTITIONS);

	chunk->nslots = nslots;
	chunk->descs = palloc_array(PCacheDescriptor, DESCRIPTORS_PER_READ);
	chunk->pages = palloc_array(PCacheJudgedPage, nslots);
	chunk->sorted = palloc_array(PCacheJudgedPage, nslots);
	chunk->nranges = Min(nslots / SLOTS_PER_BIN / PCACHE_NUM_FAMILIES, nbuckets);
	chunk->begin = palloc_array(uint32, PCACHE_NUM_FAMILIES * chunk->nranges + 1);
	chunk->bucket_mask = nbuckets - 1;
	chunk->range_shift = pg_leftmost_one_pos32(nbuckets / chunk->nranges);
	return chunk;
}

void
PCacheChunkFree(PCacheJudgedChunk *chunk)
{
	pfree(chunk->begin);
	pfree(chunk->sorted);
	pfree(chunk->pages);
	pfree(chunk->descs);
	pfree(chunk);
}

/*
 * Fill the header of a buffer whose page passed its gate, dirty if its file may
 * not have it.
 *
 * The background writer may be looking at headers already, but it writes
 * nothing yet, nor does the checkpointer: kept_limit is unknown
 * (PersistentCacheAheadOfReplay), and the pool not in use.  So it does not
 * matter that the page is not in the mapping table yet, or that another slot
 * may claim to have it.
 */
static void
FillHeader(uint32 slot, const PCacheDescriptor *desc, const BufferTag *tag,
		   bool dirty)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);

	Assert((state & BM_TAG_VALID) == 0);
	buf->tag = *tag;
	state |= BM_TAG_VALID | BM_VALID;
	if (desc->flags & PCACHE_DESC_PERMANENT)
		state |= BM_PERMANENT;
	if (dirty)
		state |= BM_DIRTY | BM_JUST_DIRTIED;
	state += BUF_USAGECOUNT_ONE * Min(desc->usage_count, BM_MAX_USAGE_COUNT);
	UnlockBufHdr(buf, state);
}

/* A page passed its gate: remember it, fill its header, and count it. */
static inline void
AddPage(const PCachePageFacts *facts, uint32 slot, const PCacheDescriptor *desc,
		PCacheJudgedPage *page, PCacheRebuildTotals *totals)
{
	bool		dirty = PCachePageIsDirty(desc, facts);
	RelFileLocator rlocator;

	rlocator.spcOid = desc->spc_oid;
	rlocator.dbOid = desc->db_oid;
	rlocator.relNumber = desc->rel_number;
	InitBufferTag(&page->tag, &rlocator, desc->fork_number, desc->block_number);
	page->slot = slot;
	page->hash = BufTableHashCode(&page->tag);
	FillHeader(slot, desc, &page->tag, dirty);

	if (dirty)
		totals->kept_dirty++;
	totals->max_lsn = Max(totals->max_lsn, desc->page_lsn);
	if (PersistentCacheDescriptors != NULL)
		PCacheSetKept(slot);
}

/* Judge n slots, at most DESCRIPTORS_PER_READ.  Returns how many pages passed. */
static uint32
JudgeSlots(const PCachePageFacts *facts, uint32 first, uint32 n,
		   PCacheDescriptor *descs, PCacheJudgedPage *pages,
		   PCacheRebuildTotals *totals)
{
	uint32		npages = 0;

	(void) PCacheReadDescriptors(PCacheThePool.fd, first, n, descs);
	for (uint32 i = 0; i < n; i++)
	{
		PCachePageVerdict verdict = PCachePageGate(&descs[i], first + i, facts);

		totals->pages[verdict]++;
		if (verdict == PCACHE_PAGE_KEPT)
			AddPage(facts, first + i, &descs[i], &pages[npages++], totals);
	}
	return npages;
}

/* Which bin does a page with this hash code belong to? */
static inline uint32
BinOf(const PCacheJudgedChunk *chunk, uint32 hash)
{
	return PCacheHashFamily(hash) * chunk->nranges +
		((hash & chunk->bucket_mask) >> chunk->range_shift);
}

/* A counting sort. */
static void
SortPages(PCacheJudgedChunk *chunk)
{
	const PCacheJudgedPage *pages = chunk->pages;
	uint32		npages = chunk->npages;
	uint32		nbins = PCACHE_NUM_FAMILIES * chunk->nranges;
	uint32	   *begin = chunk->begin;

	/* Each bin's begin is counted one up first ... */
	memset(begin, 0, (nbins + 1) * sizeof(uint32));
	for (uint32 i = 0; i < npages; i++)
		begin[BinOf(chunk, pages[i].hash) + 1]++;
	for (uint32 b = 0; b < nbins; b++)
		begin[b + 1] += begin[b];

	/* ... and then moves up to the next one's. */
	for (uint32 i = 0; i < npages; i++)
		chunk->sorted[begin[BinOf(chunk, pages[i].hash)]++] = pages[i];
	memmove(&begin[1], &begin[0], nbins * sizeof(uint32));
	begin[0] = 0;
}

/*
 * Ask the page gates about n slots, beginning with slot first, and sort the
 * pages that pass, whose buffer headers are filled.  Adds all to totals, as if no
 * slot claimed the page of another one.
 *
 * n is at most what the chunk was created for.  No lock is required.
 */
void
PCacheJudgeChunk(const PCachePageFacts *facts, uint32 first, uint32 n,
				 PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	Assert(n <= chunk->nslots);
	chunk->npages = 0;
	for (uint32 done = 0; done < n; done += DESCRIPTORS_PER_READ)
	{
		PCacheRebuildInterrupts();
		chunk->npages += JudgeSlots(facts, first + done,
									Min(n - done, DESCRIPTORS_PER_READ),
									chunk->descs, &chunk->pages[chunk->npages],
									totals);
	}
	SortPages(chunk);
}
