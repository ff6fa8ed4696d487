/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Ask the page gates about each slot of a pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/scan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/hashfn.h"
#include "pg_pcache.h"


#define DESCRIPTORS_PER_READ	16384	/* 1 MB of them */

/* A page that passed its gate; to find duplicates. */
typedef struct KeptPage
{
	PCachePageKey key;
	char		status;			/* for simplehash */
} KeptPage;

/* So that nobody can forge a pool whose pages have the same hash values. */
static uint64
HashSeed(void)
{
	static uint64 seed;

	if (seed == 0 && !pg_strong_random(&seed, sizeof(seed)))
		pg_fatal("could not generate a random number");
	return seed;
}

#define SH_PREFIX		kept
#define SH_ELEMENT_TYPE	KeptPage
#define SH_KEY_TYPE		PCachePageKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k) \
	((uint32) hash_bytes_extended((const unsigned char *) &(k), sizeof(PCachePageKey), HashSeed()))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(PCachePageKey)) == 0)
#define SH_SCOPE		static inline
#define SH_RAW_ALLOCATOR	pg_malloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/*
 * Ask the page gates for each slot that the pool's last user had.  The next one, with
 * nbuffers, may have fewer (-1: that is not known), and then pages beyond do not fit.
 * progress tells whether to report that.
 *
 * The pool's superblock must have passed the geometry gate.  If it did not
 * pass all pool gates the answers tell what is wrong with descriptors, not
 * what will be kept.
 */
void
ScanPages(const Cluster *c, int64 nbuffers, bool progress, PageScan *scan)
{
	const PCachePool *pool = &c->pool;
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	const Judge *judge = &c->judge;
	PCachePageFacts facts = {0};
	uint64		given_up = 0;
	uint64		larger;
	PCacheError ignored;
	uint64		slots_used = sb->slots_used;
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor,
											  DESCRIPTORS_PER_READ);
	kept_hash  *pages;
	bool		found;

	pages = kept_create(1024, NULL);

	PCacheSetPageFacts(&facts, sb, &judge->facts);
	facts.drop_unlogged = judge->drop_unlogged;
	facts.sizes = PCacheRelSizesCreate(facts.unchanged_since, facts.only_written);
	facts.media = &judge->media;
	facts.blocks_offset = sb->blocks_offset;
	facts.file_size = pool->file_size;
	PCachePoolListHoles(pool, &facts.holes);

	memset(scan, 0, sizeof(*scan));
	scan->slots = (nbuffers < 0) ? slots_used : Min(slots_used, nbuffers);
	if (nbuffers > (int64) sb->capacity &&
		PCachePoolMayGrow(pool, sb->capacity, nbuffers, c->conf.pool_size, &judge->media, &larger, &ignored))
		given_up = PCachePoolSlotsGivenUp(pool, sb, larger);
	scan->verdicts = pg_malloc0(Max(scan->slots, 1));
	scan->redo = facts.redo;
	scan->generation = facts.generation;
	for (uint64 start = 0; start < slots_used; start += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, slots_used - start);

		/* descriptors that can't be read come back damaged */
		(void) PCacheReadLedger(pool->fd, sb, facts.generation, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
		{
			const PCacheDescriptor *desc = &chunk[i];
			uint64		slot = start + i;
			PCachePageVerdict verdict;

			if (PCacheSeqIsSealed(desc->seq))
				scan->sealed++;
			if (slot >= scan->slots || slot < given_up)
			{
				if (slot < scan->slots)
					scan->verdicts[slot] = PCACHE_PAGE_NOT_FITTING;
				scan->counts[PCACHE_PAGE_NOT_FITTING] += PCacheSeqIsSealed(desc->seq);
				continue;
			}
			verdict = PCachePageGate(desc, slot, &facts);
			scan->verdicts[slot] = verdict;
			scan->counts[verdict]++;
			if (verdict != PCACHE_PAGE_KEPT)
				continue;

			/* of pages with the same tag the first one is kept */
			(void) kept_insert(pages, PCacheDescriptorKey(desc), &found);
			if (!found)
				continue;
			scan->verdicts[slot] = PCACHE_PAGE_DUPLICATE;
			scan->counts[PCACHE_PAGE_KEPT]--;
			scan->counts[PCACHE_PAGE_DUPLICATE]++;
		}
		if (progress)
			ReportProgress((start + n) * BLCKSZ, slots_used * BLCKSZ, false);
	}
	if (progress)
		ReportProgress(slots_used * BLCKSZ, slots_used * BLCKSZ, true);

	/*
	 * A damaged descriptor may look free.  After a clean stop the superblock
	 * knows better; what it says in a pool in use is of an earlier one.
	 */
	scan->saved = scan->sealed;
	if (sb->state == PCACHE_STATE_CLEAN)
		scan->saved = Max(scan->saved, sb->saved_pages);
	kept_destroy(pages);
	PCacheRelSizesFree(facts.sizes);
	free(facts.holes.ranges);
	pg_free(chunk);
}

/* Is there a page that can be kept?  Otherwise the next start is cold. */
PCacheVerdict
JudgePages(const PCacheSuperblock *sb, const PageScan *scan)
{
	return PCacheEmptyGate(sb->state == PCACHE_STATE_CLEAN, scan->saved,
						   scan->counts[PCACHE_PAGE_KEPT]);
}
