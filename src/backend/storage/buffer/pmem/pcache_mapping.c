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

#include "pcache_internal.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "utils/injection_point.h"

#define PREFETCH_DISTANCE		12

/* Two processes at work on neighbouring chunks are that many partitions apart. */
#define PARTITION_STRIDE		37

/* What the page gates say of a chunk of slots, and where its pages belong. */
struct PCacheJudgedChunk
{
	PCacheDescriptor descs[PCACHE_SLOTS_PER_CHUNK];
	PCachePageVerdict verdicts[PCACHE_SLOTS_PER_CHUNK];
	BufferTag	tags[PCACHE_SLOTS_PER_CHUNK];
	uint32		hashes[PCACHE_SLOTS_PER_CHUNK];

	/*
	 * Those to be kept, by partition of the mapping table: in order, the ones
	 * of partition p begin at begin[p], and end before begin[p + 1].
	 */
	uint16		order[PCACHE_SLOTS_PER_CHUNK];
	uint16		begin[NUM_BUFFER_PARTITIONS + 1];
};

StaticAssertDecl(PCACHE_SLOTS_PER_CHUNK <= PG_UINT16_MAX,
				 "a slot of a chunk must fit into 16 bits");

/* Allocate memory for chunks, in the current memory context. */
PCacheJudgedChunk *
PCacheChunkCreate(void)
{
	return palloc(sizeof(PCacheJudgedChunk));
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

/* Make a header again what it was before FillHeader(). */
static void
ClearHeader(uint32 slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);

	ClearBufferTag(&buf->tag);
	UnlockBufHdr(buf, state & ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK));
}

/*
 * Read n descriptors, beginning with slot first, and ask the page gates.  The
 * headers of pages that pass are filled here, because this goes through them in
 * the order of memory.
 */
static void
JudgeChunk(const PCachePageFacts *facts, uint32 first, int n,
		   PCacheJudgedChunk *chunk)
{
	(void) PCacheReadDescriptors(PCacheThePool.fd, first, n, chunk->descs);

	for (int i = 0; i < n; i++)
	{
		const PCacheDescriptor *desc = &chunk->descs[i];
		BufferTag  *tag = &chunk->tags[i];
		RelFileLocator rlocator;

		chunk->verdicts[i] = PCachePageGate(desc, first + i, facts);
		if (chunk->verdicts[i] != PCACHE_PAGE_KEPT)
			continue;

		rlocator.spcOid = desc->spc_oid;
		rlocator.dbOid = desc->db_oid;
		rlocator.relNumber = desc->rel_number;
		InitBufferTag(tag, &rlocator, desc->fork_number, desc->block_number);
		chunk->hashes[i] = BufTableHashCode(tag);
		BufTablePrefetch(chunk->hashes[i], false);
		FillHeader(first + i, desc, tag, PCachePageIsDirty(desc, facts));
	}
}

/* Sort what is to be kept by partition (a counting sort). */
static void
SortChunk(int n, PCacheJudgedChunk *chunk)
{
	uint16		next[NUM_BUFFER_PARTITIONS] = {0};

	for (int i = 0; i < n; i++)
	{
		if (chunk->verdicts[i] == PCACHE_PAGE_KEPT)
			next[BufTableHashPartition(chunk->hashes[i])]++;
	}
	chunk->begin[0] = 0;
	for (int p = 0; p < NUM_BUFFER_PARTITIONS; p++)
	{
		chunk->begin[p + 1] = chunk->begin[p] + next[p];
		next[p] = chunk->begin[p];
	}
	for (int i = 0; i < n; i++)
	{
		if (chunk->verdicts[i] == PCACHE_PAGE_KEPT)
			chunk->order[next[BufTableHashPartition(chunk->hashes[i])]++] = i;
	}
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
KeepPage(uint32 slot, int i, PCacheJudgedChunk *chunk)
{
	int			existing = BufTableInsert(&chunk->tags[i], chunk->hashes[i], slot);

	if (existing < 0)
		return;
	chunk->verdicts[i] = PCACHE_PAGE_DUPLICATE;
	ClearHeader(slot);
	DoubtPage(existing);
}

/* Keep the pages of a chunk that belong to a partition, which is locked. */
static void
KeepPartition(uint32 first, int partition, PCacheJudgedChunk *chunk)
{
	int			all = chunk->begin[NUM_BUFFER_PARTITIONS];

	for (int k = chunk->begin[partition]; k < chunk->begin[partition + 1]; k++)
	{
		if (k + PREFETCH_DISTANCE < all)
			BufTablePrefetch(chunk->hashes[chunk->order[k + PREFETCH_DISTANCE]],
							 true);
		KeepPage(first + chunk->order[k], chunk->order[k], chunk);
	}
}

/*
 * Put what passed the gates, of a chunk that begins with slot first, into the
 * mapping table, a partition at a time.
 *
 * Processes begin with different partitions, and come back later to one that
 * another process has locked, since to sleep takes longer than a chunk.
 */
static void
KeepChunk(uint32 first, PCacheJudgedChunk *chunk)
{
	bool		done[NUM_BUFFER_PARTITIONS] = {0};

	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < NUM_BUFFER_PARTITIONS; i++)
		{
			int			p = (first / PCACHE_SLOTS_PER_CHUNK * PARTITION_STRIDE + i) %
				NUM_BUFFER_PARTITIONS;
			LWLock	   *lock = BufMappingPartitionLockByIndex(p);

			if (done[p] || chunk->begin[p] == chunk->begin[p + 1])
				continue;
			if (pass > 0)
				LWLockAcquire(lock, LW_EXCLUSIVE);
			else if (!LWLockConditionalAcquire(lock, LW_EXCLUSIVE))
				continue;
			KeepPartition(first, p, chunk);
			LWLockRelease(lock);
			done[p] = true;
		}
	}
}

/* Count what became of the slots of a chunk that begins with slot first. */
static void
CountChunk(const PCachePageFacts *facts, uint32 first, int n,
		   const PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	for (int i = 0; i < n; i++)
	{
		const PCacheDescriptor *desc = &chunk->descs[i];

		totals->pages[chunk->verdicts[i]]++;
		if (chunk->verdicts[i] != PCACHE_PAGE_KEPT)
			continue;
		if (PCachePageIsDirty(desc, facts))
			totals->kept_dirty++;
		totals->max_lsn = Max(totals->max_lsn, desc->page_lsn);
		if (PersistentCacheDescriptors != NULL)
			PCacheSetKept(first + i);
	}
}

/*
 * Judge n slots, beginning with slot first, put the pages that are kept into
 * the mapping table, and add them all to totals.  At most PCACHE_SLOTS_PER_CHUNK
 * slots.  No lock is required.
 *
 * Nearly all the time goes into cache misses in the mapping table, so its
 * buckets are prefetched while the pages of the chunk are judged.
 */
void
PCacheMapChunk(const PCachePageFacts *facts, uint32 first, int n,
			   PCacheJudgedChunk *chunk, PCacheRebuildTotals *totals)
{
	JudgeChunk(facts, first, n, chunk);
	SortChunk(n, chunk);
	KeepChunk(first, chunk);
	INJECTION_POINT("persistent-cache-mapped", NULL);
	CountChunk(facts, first, n, chunk, totals);
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
	if (PersistentCacheDescriptors != NULL)
		PCacheClearKept(slot);
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

		if ((state & BM_TAG_VALID) == 0 || (state & BM_VALID) != 0)
			continue;
		ForgetPage(slot);
		if (state & BM_DIRTY)
			totals->kept_dirty--;
		totals->pages[PCACHE_PAGE_KEPT]--;
		totals->pages[PCACHE_PAGE_DUPLICATE]++;
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
		if (pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_TAG_VALID)
			ForgetPage(slot);
	}
}
