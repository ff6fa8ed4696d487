/*-------------------------------------------------------------------------
 *
 * pcache_table.c
 *	  Fill buffer headers and the mapping table from the ledger.
 *
 * Only the ledger is read, and no page, so a start after a clean stop of a
 * primary touches none.  What takes time is the mapping table: pages are entered
 * group by group of its buckets, so that each group's lines are in the CPU's
 * cache, and within a group by free list of the hash table, whose entries lie
 * side by side.  In the order of buffers it takes four times as long.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_table.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

#define ENTRIES_PER_READ	1024
#define PREFETCH_DISTANCE	16

/* so many buckets are a group, and so many free lists has a hash table */
#define GROUP_SHIFT			12
#define N_FREE_LISTS		32

/* A page that passed its gate. */
typedef struct KeptPage
{
	uint32		slot;
	uint32		hashcode;
} KeptPage;

/*
 * Make a header, which is initialized, that of a page that is kept.  Nobody else
 * is there, so it needs no lock.
 */
static uint32
FillHeader(BufferDesc *buf, const PCacheDescriptor *entry)
{
	uint32		state = BM_TAG_VALID | BM_VALID |
		BUF_USAGECOUNT_ONE * Min(entry->usage_count, BM_MAX_USAGE_COUNT);

	if (entry->flags & PCACHE_DESC_PERMANENT)
		state |= BM_PERMANENT;
	if (entry->flags & PCACHE_DESC_DIRTY)
		state |= BM_DIRTY | BM_JUST_DIRTIED;
	memcpy(&buf->tag, &entry->spc_oid, sizeof(BufferTag));
	pg_atomic_init_u32(&buf->state, state);
	return BufTableHashCode(&buf->tag);
}

/*
 * Chain the headers without a page, as a server has them when it starts.  The first
 * buffer is the head of its free list, whatever is in it.
 */
static void
ChainFree(BufferDescPadded *headers)
{
	int			last = 0;

	for (int slot = 1; slot < NBuffers; slot++)
	{
		BufferDesc *buf = &headers[slot].bufferdesc;

		if (pg_atomic_read_u32(&buf->state) & BM_TAG_VALID)
		{
			buf->freeNext = FREENEXT_NOT_IN_LIST;
			continue;
		}
		headers[last].bufferdesc.freeNext = slot;
		last = slot;
	}
	headers[last].bufferdesc.freeNext = FREENEXT_END_OF_LIST;
}

/* By which of the groups is a page entered? */
static inline uint32
GroupOf(uint32 hashcode, uint32 mask)
{
	return ((hashcode & mask) >> GROUP_SHIFT) * N_FREE_LISTS + hashcode % N_FREE_LISTS;
}

/* Put pages into the order in which they are entered: a counting sort. */
static void
SortPages(const KeptPage *pages, uint32 npages, KeptPage *sorted, uint32 mask)
{
	uint32		ngroups = ((mask >> GROUP_SHIFT) + 1) * N_FREE_LISTS;
	uint32	   *next = palloc0(sizeof(uint32) * ngroups);
	uint32		begin = 0;

	for (uint32 i = 0; i < npages; i++)
		next[GroupOf(pages[i].hashcode, mask)]++;
	for (uint32 group = 0; group < ngroups; group++)
	{
		uint32		n = next[group];

		next[group] = begin;
		begin += n;
	}
	for (uint32 i = 0; i < npages; i++)
		sorted[next[GroupOf(pages[i].hashcode, mask)]++] = pages[i];
	pfree(next);
}

/*
 * Enter the pages.  Of two slots that claim the same page the first one that is
 * entered wins: after a clean stop there are no two, and both would be right.
 */
static void
EnterPages(BufferDescPadded *headers, const KeptPage *pages, uint32 npages,
		   uint64 *counts)
{
	for (uint32 i = 0; i < npages; i++)
	{
		BufferDesc *buf = &headers[pages[i].slot].bufferdesc;

		if (i + PREFETCH_DISTANCE < npages)
			__builtin_prefetch(&headers[pages[i + PREFETCH_DISTANCE].slot], 0);
		if (BufTableInsert(&buf->tag, pages[i].hashcode, pages[i].slot) < 0)
			continue;
		ClearBufferTag(&buf->tag);
		pg_atomic_write_u32(&buf->state, 0);
		counts[PCACHE_PAGE_KEPT]--;
		counts[PCACHE_PAGE_DUPLICATE]++;
	}
}

/* Initialize headers in the pool, as the server has initialized its own ones. */
void
PCacheInitializeHeaders(const PCachePool *pool, const PCacheSuperblock *sb,
						uint32 first, uint32 n)
{
	memcpy(PCacheHeadersOf(pool, sb) + first, BufferDescriptors + first,
		   sizeof(BufferDescPadded) * (Size) n);
}

/*
 * A page is dropped.  If its entry has a sum, the start after this one must not keep it for
 * that: it may not know why any more.  The superblock's store drains.
 */
static void
ForgetEntry(const PCachePool *pool, const PCachePageFacts *facts,
			const PCacheDescriptor *dropped, uint32 slot)
{
	PCacheDescriptor *entry = &PCacheLedgerOf(pool)[slot];

	/* one that cannot be read must not be touched */
	if (dropped->seq != facts->generation)
		return;
	PCacheDescriptorSetFree(entry);
	PCacheFlush(&pool->map, entry, sizeof(*entry));
}

/* There are fewer shared buffers than before: what is in the other slots is dropped. */
static uint64
CountNotFitting(const PCachePool *pool, uint64 slots_used, PCacheDescriptor *entries)
{
	uint64		sealed = 0;

	for (uint64 first = NBuffers; first < slots_used; first += ENTRIES_PER_READ)
	{
		uint32		n = Min(ENTRIES_PER_READ, slots_used - first);

		(void) PCacheReadDescriptors(pool->fd, first, n, entries);
		for (uint32 i = 0; i < n; i++)
			sealed += PCacheSeqIsSealed(entries[i].seq);
	}
	return sealed;
}

/*
 * Judge the first slots, initialize their headers, fill in those of the pages that are
 * kept, and enter these into the mapping table, which is empty.  Adds to counts what
 * was decided.
 *
 * All memory is allocated before the first page is entered, so that an error
 * leaves the table empty.
 */
void
PCacheFillTable(const PCachePool *pool, const PCacheSuperblock *sb,
				const PCachePageFacts *facts, uint64 slots_used, uint64 *counts)
{
	BufferDescPadded *headers = PCacheHeadersOf(pool, sb);
	uint32		nslots = Min(slots_used, (uint64) NBuffers);
	uint32		mask = pg_nextpower2_32(NBuffers + NUM_BUFFER_PARTITIONS) - 1;
	KeptPage   *pages;
	KeptPage   *sorted;
	PCacheDescriptor *entries = palloc(sizeof(PCacheDescriptor) * ENTRIES_PER_READ);
	PCachePageVerdict *verdicts = palloc(sizeof(PCachePageVerdict) * ENTRIES_PER_READ);
	uint32		npages = 0;

	pages = palloc_extended(sizeof(KeptPage) * Max(nslots, 1), MCXT_ALLOC_HUGE);
	sorted = palloc_extended(sizeof(KeptPage) * Max(nslots, 1), MCXT_ALLOC_HUGE);
	for (uint32 first = 0; first < nslots; first += ENTRIES_PER_READ)
	{
		uint32		n = Min(ENTRIES_PER_READ, nslots - first);

		(void) PCacheReadDescriptors(pool->fd, first, n, entries);
		for (uint32 i = 0; i < n; i++)
		{
			verdicts[i] = PCachePageGate(&entries[i], first + i, facts);
			if (facts->young_up_to != 0 &&
				PCacheTakeYoung(pool, sb, facts, verdicts[i], first + i, &entries[i]))
				verdicts[i] = PCACHE_PAGE_KEPT;
		}
		PCacheInitializeHeaders(pool, sb, first, n);
		for (uint32 i = 0; i < n; i++)
		{
			uint32		slot = first + i;

			counts[verdicts[i]]++;
			if (verdicts[i] != PCACHE_PAGE_KEPT)
			{
				ForgetEntry(pool, facts, &entries[i], slot);
				continue;
			}
			pages[npages].slot = slot;
			pages[npages++].hashcode = FillHeader(&headers[slot].bufferdesc, &entries[i]);
		}
	}
	counts[PCACHE_PAGE_NOT_FITTING] += CountNotFitting(pool, slots_used, entries);
	SortPages(pages, npages, sorted, mask);
	PCacheInitializeHeaders(pool, sb, nslots, NBuffers - nslots);

	/*
	 * a mapping table without tags of its own compares those in the server's
	 * headers
	 */
	BufferDescriptors = headers;
	EnterPages(headers, sorted, npages, counts);
	ChainFree(headers);
	pfree(sorted);
	pfree(pages);
	pfree(entries);
	pfree(verdicts);
}

/*
 * Never use the slots that touch a bad block: a pin that nobody releases keeps the
 * clock sweep away from a buffer.  Returns how many there are.
 */
uint32
PCacheRetireSlots(const PCachePool *pool, const PCacheSuperblock *sb,
				  const PCacheMediaReport *media)
{
	BufferDescPadded *headers = PCacheHeadersOf(pool, sb);
	uint32		retired = 0;

	if (media->bad.n_ranges == 0)
		return 0;
	for (int slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = &headers[slot].bufferdesc;

		if (!PCacheMediaRangeIsBad(media, sb->blocks_offset + (uint64) slot * BLCKSZ, BLCKSZ))
			continue;
		pg_atomic_fetch_add_u32(&buf->state, BUF_REFCOUNT_ONE);
		retired++;
	}
	return retired;
}

/*
 * From here on shared buffers lie in the pool.  The headers that the server has
 * made are not needed any more.
 */
void
PCacheUseHeaders(const PCachePool *pool, const PCacheSuperblock *sb)
{
	BufferDescriptors = PCacheHeadersOf(pool, sb);
	BufferBlocks = pool->map.base + sb->blocks_offset;
}
