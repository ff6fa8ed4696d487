/*-------------------------------------------------------------------------
 *
 * pcache_mapping.c
 *	  Make the buffer mapping table of what the pool's descriptors say.
 *
 * Runs in the startup process and in its helpers (pcache_rebuild.c), before
 * anybody uses a buffer.  Page contents are not touched.
 *
 * The pool may have been forged by whoever can write to it.  That must not make
 * the start slow out of proportion: all that is done here for a slot takes the
 * same time whatever the other slots say, but for the lookup in the mapping
 * table (rule 71 in README).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_mapping.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pcache_chunk.h"
#include "pcache_internal.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "utils/injection_point.h"

/* How many pages ahead are a bucket and its first element prefetched? */
#define BUCKET_DISTANCE			24
#define ELEMENT_DISTANCE		12

/* Make a header again what it was before its page was judged. */
static void
ClearHeader(uint32 slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);

	ClearBufferTag(&buf->tag);
	UnlockBufHdr(buf, state & ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK));
	if (PersistentCacheDescriptors != NULL)
		PCacheClearKept(slot);
}

/* The page in this buffer was counted as kept, but another slot claims it, too. */
static void
CountDuplicate(uint32 slot, PCacheRebuildTotals *totals)
{
	if (pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_DIRTY)
		totals->kept_dirty--;
	totals->pages[PCACHE_PAGE_KEPT]--;
	totals->pages[PCACHE_PAGE_DUPLICATE]++;
}

/*
 * The page in this buffer is claimed by another slot as well.  It must not be
 * found, nor written by the background writer, but its entry stays in the
 * mapping table so that a third claim is found out.
 *
 * The caller holds the partition's lock exclusively.
 */
static void
DoubtPage(int buf_id)
{
	BufferDesc *buf = GetBufferDescriptor(buf_id);
	uint32		state = LockBufHdr(buf);

	UnlockBufHdr(buf, state & ~BM_VALID);
}

/*
 * Put a page that passed its gate into the mapping table, unless another slot
 * claims to have it, too.  Two slots with the same tag cannot both be right,
 * and nothing tells which one is: both go.
 *
 * The caller holds the partition's lock exclusively.
 */
static void
KeepPage(PCacheJudgedPage *page, PCacheRebuildTotals *totals)
{
	int			existing = BufTableInsert(&page->tag, page->hash, page->slot);

	if (existing < 0)
		return;
	CountDuplicate(page->slot, totals);
	ClearHeader(page->slot);
	DoubtPage(existing);
}

/* Keep the pages of a chunk that belong to a family, which is locked. */
static void
KeepFamily(int family, PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	PCacheJudgedPage *page = &chunk->sorted[PCacheFamilyBegin(chunk, family)];
	PCacheJudgedPage *end = &chunk->sorted[PCacheFamilyBegin(chunk, family + 1)];

	for (int i = 0; i < Min(BUCKET_DISTANCE, end - page); i++)
		BufTablePrefetch(page[i].hash, false);
	for (; page < end; page++)
	{
		if (end - page > BUCKET_DISTANCE)
			BufTablePrefetch(page[BUCKET_DISTANCE].hash, false);
		if (end - page > ELEMENT_DISTANCE)
			BufTablePrefetch(page[ELEMENT_DISTANCE].hash, true);
		KeepPage(page, totals);
	}
}

/*
 * Lock the partitions of a family exclusively, in the order of their numbers, so
 * that whoever has the first one gets the others.  Returns false if another
 * process has it, and the caller does not want to wait.
 */
static bool
LockFamily(int family, bool wait)
{
	bool		locked = false;

	for (int p = 0; p < NUM_BUFFER_PARTITIONS; p++)
	{
		LWLock	   *lock = BufMappingPartitionLockByIndex(p);

		if (PCacheHashFamily(p) != family)
			continue;
		if (locked || wait)
			LWLockAcquire(lock, LW_EXCLUSIVE);
		else if (!LWLockConditionalAcquire(lock, LW_EXCLUSIVE))
			return false;
		locked = true;
	}
	return true;
}

static void
UnlockFamily(int family)
{
	/* LWLockRelease() looks for the lock that was taken last first */
	for (int p = NUM_BUFFER_PARTITIONS - 1; p >= 0; p--)
	{
		if (PCacheHashFamily(p) == family)
			LWLockRelease(BufMappingPartitionLockByIndex(p));
	}
}

/*
 * Put what passed the gates, of a chunk that begins with slot first, into the
 * mapping table, a family at a time.
 *
 * Processes begin with different families, and come back later to one that
 * another process has locked.
 */
static void
KeepChunk(uint32 first, PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	static const int begin_with[PCACHE_NUM_FAMILIES] = {0, 2, 1, 3};
	int			begin = begin_with[first / chunk->nslots % PCACHE_NUM_FAMILIES];
	bool		done[PCACHE_NUM_FAMILIES] = {0};

	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < PCACHE_NUM_FAMILIES; i++)
		{
			int			family = (begin + i) % PCACHE_NUM_FAMILIES;

			if (done[family] ||
				PCacheFamilyBegin(chunk, family) == PCacheFamilyBegin(chunk, family + 1) ||
				!LockFamily(family, pass > 0))
				continue;
			KeepFamily(family, chunk, totals);
			UnlockFamily(family);
			done[family] = true;
		}
	}
}

/*
 * Judge n slots, beginning with slot first, put the pages that are kept into
 * the mapping table, and add them all to totals.  No lock is required.
 */
void
PCacheMapChunk(const PCachePageFacts *facts, uint32 first, uint32 n,
			   PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	PCacheJudgeChunk(facts, first, n, chunk, totals);
	INJECTION_POINT("persistent-cache-judged", NULL);
	PCacheRebuildInterrupts();
	KeepChunk(first, chunk, totals);
	INJECTION_POINT("persistent-cache-mapped", NULL);
}

/* Take the page of a slot out again, from the mapping table if it got there. */
static void
ForgetPage(uint32 slot)
{
	BufferTag	tag = GetBufferDescriptor(slot)->tag;
	uint32		hash = BufTableHashCode(&tag);
	LWLock	   *lock = BufMappingPartitionLock(hash);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (BufTableLookup(&tag, hash) == slot)
		BufTableDelete(&tag, hash);
	ClearHeader(slot);
	LWLockRelease(lock);
}

/*
 * Forget the pages of the first nslots slots that are claimed by other slots as
 * well, see DoubtPage().  There is none unless the pool is damaged or forged.
 * All chunks must have been mapped.
 */
void
PCacheForgetDuplicates(uint32 nslots, PCacheRebuildTotals *totals)
{
	if (totals->pages[PCACHE_PAGE_DUPLICATE] == 0)
		return;
	for (uint32 slot = 0; slot < nslots; slot++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);

		if (slot % PCACHE_SLOTS_PER_CHECK == 0)
			PCacheStartInterrupts();
		if ((state & BM_TAG_VALID) == 0 || (state & BM_VALID) != 0)
			continue;
		CountDuplicate(slot, totals);
		ForgetPage(slot);
	}
}

/*
 * Forget the pages of the first nslots slots, as if no chunk had been mapped.
 * Nobody else may be mapping one.
 */
void
PCacheForgetAll(uint32 nslots)
{
	for (uint32 slot = 0; slot < nslots; slot++)
	{
		if (slot % PCACHE_SLOTS_PER_CHECK == 0)
			PCacheStartInterrupts();
		if (pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_TAG_VALID)
			ForgetPage(slot);
	}
}
