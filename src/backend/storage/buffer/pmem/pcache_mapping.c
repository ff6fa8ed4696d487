/*-------------------------------------------------------------------------
 *
 * pcache_mapping.c
 *	  Make the buffer mapping table of what the pool's descriptors say.
 *
 * Runs in the startup process, before anybody uses a buffer.  Page contents
 * are not touched.
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

#include <sys/mman.h>

#include "pcache_internal.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "storage/pg_shmem.h"
#include "utils/injection_point.h"

/* 64 kB of them */
#define DESCRIPTORS_PER_READ	1024
#define PREFETCH_DISTANCE		12

/*
 * Put a page that passed its gate into the buffer manager's tables, dirty if
 * its file may not have it.  Returns -1, or the buffer that already has this
 * tag.
 */
static int
KeepPage(uint32 slot, const PCacheDescriptor *desc, BufferTag *tag, uint32 hash,
		 bool dirty)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state;
	int			existing;

	existing = BufTableInsert(tag, hash, slot);
	if (existing >= 0)
		return existing;

	/*
	 * The background writer may be looking at this header already, but it
	 * writes nothing yet, nor does the checkpointer: kept_limit is unknown
	 * (PersistentCacheAheadOfReplay), and the pool not in use.  So a page
	 * that is going to be forgotten as a duplicate may well be dirty
	 * meanwhile.
	 */
	state = LockBufHdr(buf);
	Assert((state & BM_TAG_VALID) == 0);
	buf->tag = *tag;
	state |= BM_TAG_VALID | BM_VALID;
	if (desc->flags & PCACHE_DESC_PERMANENT)
		state |= BM_PERMANENT;
	if (dirty)
		state |= BM_DIRTY | BM_JUST_DIRTIED;
	state += BUF_USAGECOUNT_ONE * Min(desc->usage_count, BM_MAX_USAGE_COUNT);
	UnlockBufHdr(buf, state);
	return -1;
}

/* Take a page out again: another slot claims the same tag. */
static void
ForgetPage(uint32 slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	BufferTag	tag = buf->tag;
	uint32		state = LockBufHdr(buf);

	if (state & BM_DIRTY)
		PCacheCtl->kept_dirty--;
	ClearBufferTag(&buf->tag);
	state &= ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK);
	UnlockBufHdr(buf, state);
	BufTableDelete(&tag, BufTableHashCode(&tag));
	if (PersistentCacheDescriptors != NULL)
		PCacheClearKept(slot);
	PCacheCtl->pages[PCACHE_PAGE_KEPT]--;
	PCacheCtl->pages[PCACHE_PAGE_DUPLICATE]++;
}

/*
 * Forget the pages of all slots that are claimed by other slots as well.  There
 * is none unless the pool is damaged or forged.
 */
static void
ForgetDuplicates(PCacheSlotSet *duplicates)
{
	for (uint32 slot = 0; PCacheSlotSetNext(duplicates, &slot); slot++)
		ForgetPage(slot);
	PCacheSlotSetFree(duplicates);
}

/* What the page gates say of a chunk of slots. */
typedef struct JudgedChunk
{
	PCacheDescriptor descs[DESCRIPTORS_PER_READ];
	PCachePageVerdict verdicts[DESCRIPTORS_PER_READ];
	BufferTag	tags[DESCRIPTORS_PER_READ];
	uint32		hashes[DESCRIPTORS_PER_READ];
} JudgedChunk;

/* Read n descriptors, beginning with slot first, and ask the page gates. */
static void
JudgeChunk(const PCachePageFacts *facts, uint32 first, int n,
		   JudgedChunk *chunk)
{
	(void) PCacheReadDescriptors(PCacheThePool.fd, first, n, chunk->descs);

	for (int i = 0; i < n; i++)
	{
		const PCacheDescriptor *desc = &chunk->descs[i];
		RelFileLocator rlocator;

		chunk->verdicts[i] = PCachePageGate(desc, first + i, facts);
		if (chunk->verdicts[i] != PCACHE_PAGE_KEPT)
			continue;

		rlocator.spcOid = desc->spc_oid;
		rlocator.dbOid = desc->db_oid;
		rlocator.relNumber = desc->rel_number;
		InitBufferTag(&chunk->tags[i], &rlocator, desc->fork_number,
					  desc->block_number);
		chunk->hashes[i] = BufTableHashCode(&chunk->tags[i]);
		BufTablePrefetch(chunk->hashes[i], false);
	}
}

/*
 * Have the main shared memory segment, which holds the mapping table and the
 * buffer headers but no blocks, mapped into this process at once: faulting in
 * each page on its own takes longer than the rest of the rebuild, and a
 * prefetch of an absent page does nothing.  Only a hint.
 */
static void
PopulateSharedMemory(void)
{
#ifdef MADV_POPULATE_WRITE
	const PGShmemHeader *segment = UsedShmemSegAddr;

	(void) madvise(UsedShmemSegAddr, segment->totalsize, MADV_POPULATE_WRITE);
#endif
}

/*
 * Put what passed the gates, of a chunk that begins with slot first, into the
 * mapping table, and count it.  Returns the highest LSN of a page that is kept.
 */
static XLogRecPtr
KeepChunk(const PCachePageFacts *facts, uint32 first, int n, JudgedChunk *chunk,
		  PCacheSlotSet *duplicates)
{
	XLogRecPtr	max_lsn = InvalidXLogRecPtr;

	for (int i = 0; i < n; i++)
	{
		if (i + PREFETCH_DISTANCE < n &&
			chunk->verdicts[i + PREFETCH_DISTANCE] == PCACHE_PAGE_KEPT)
			BufTablePrefetch(chunk->hashes[i + PREFETCH_DISTANCE], true);

		if (chunk->verdicts[i] == PCACHE_PAGE_KEPT)
		{
			const PCacheDescriptor *desc = &chunk->descs[i];
			bool		dirty = PCachePageIsDirty(desc, facts);
			int			existing = KeepPage(first + i, desc, &chunk->tags[i],
											chunk->hashes[i], dirty);

			if (existing >= 0)
			{
				chunk->verdicts[i] = PCACHE_PAGE_DUPLICATE;
				PCacheSlotSetAdd(duplicates, existing);
			}
			else
			{
				if (dirty)
					PCacheCtl->kept_dirty++;
				max_lsn = Max(max_lsn, desc->page_lsn);
				if (PersistentCacheDescriptors != NULL)
					PCacheSetKept(first + i);
			}
		}
		PCacheCtl->pages[chunk->verdicts[i]]++;
	}
	return max_lsn;
}

/*
 * Rebuild the mapping table from the descriptors of the first slots_used
 * slots.  Returns the highest LSN of a page that is kept, or a later one.
 *
 * Nearly all the time goes into cache misses in the mapping table, so the
 * buckets of a chunk are prefetched while its pages are judged.
 *
 * Two slots with the same tag cannot both be right, and nothing tells which
 * one is: both go.  The first one stays in the table to the end so that a
 * third one is found out as well.
 *
 * Does not return if the server is to be stopped (PCacheStartInterrupts).
 */
XLogRecPtr
PCacheRebuildMapping(const PCachePageFacts *facts, uint64 slots_used)
{
	XLogRecPtr	max_lsn = InvalidXLogRecPtr;
	uint32		nslots = Min(slots_used, NBuffers);
	PCacheSlotSet duplicates = {.nslots = nslots};
	JudgedChunk *chunk = palloc(sizeof(JudgedChunk));

	PCacheCtl->kept_over_crash = PCacheIsAfterCrash(facts);
	PopulateSharedMemory();
	for (int i = 0; i < NUM_BUFFER_PARTITIONS; i++)
		LWLockAcquire(BufMappingPartitionLockByIndex(i), LW_EXCLUSIVE);

	for (uint32 first = 0; first < nslots; first += DESCRIPTORS_PER_READ)
	{
		int			n = Min(DESCRIPTORS_PER_READ, nslots - first);
		XLogRecPtr	lsn;

		JudgeChunk(facts, first, n, chunk);
		lsn = KeepChunk(facts, first, n, chunk, &duplicates);
		max_lsn = Max(max_lsn, lsn);
		INJECTION_POINT("persistent-cache-rebuilding", NULL);
		PCacheStartInterrupts();
	}
	ForgetDuplicates(&duplicates);

	for (int i = 0; i < NUM_BUFFER_PARTITIONS; i++)
		LWLockRelease(BufMappingPartitionLockByIndex(i));
	pfree(chunk);
	return max_lsn;
}
