/*-------------------------------------------------------------------------
 *
 * pcache_mapping.c
 *	  Make the buffer mapping table of what the pool's descriptors say.
 *
 * Runs in the startup process and in its helpers (pcache_rebuild.c), before
 * anybody uses a buffer.  Page contents are not touched.
 *
 * Nearly all the time of a rebuild would go into waiting for memory, since each
 * page needs another bucket of the table.  So a chunk of slots is gone through
 * several times, and each time fetches what the next one looks at.  A chunk and
 * what belongs to it fit into the processor's second cache.
 *
 * The pool may have been forged by whoever can write to it.  That must not
 * make the start slow out of proportion: all that is done here for a slot
 * takes the same time whatever the other slots say, but for the walk along a
 * chain of the mapping table (rule "a forged pool does not slow the start").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_mapping.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/pcache_start.h"
#include "utils/injection_point.h"

/* A page that has passed its gate. */
typedef struct KeptPage
{
	uint32		slot;
	uint32		hashcode;
} KeptPage;

/*
 * Fill the header of a buffer whose page passed its gate, dirty if its file may
 * not have it.
 *
 * Neither the background writer nor the checkpointer writes anything yet:
 * kept_limit is unknown (PersistentCacheAheadOfReplay), and the pool not in use.
 * So it does not matter that the page is not in the mapping table yet, or that
 * another slot may claim to have it.  The lock is for who looks at any header,
 * such as a worker of an extension.
 *
 * Nobody is allocating buffers, so freeNext can be set without the lock that
 * protects it.  StrategyRebuildFreeList() relies on its being set.
 */
static void
FillHeader(BufferDesc *buf, const PCacheDescriptor *desc, bool dirty)
{
	uint32		state = LockBufHdr(buf);
	RelFileLocator rlocator;

	Assert((state & BM_TAG_VALID) == 0);
	rlocator.spcOid = desc->spc_oid;
	rlocator.dbOid = desc->db_oid;
	rlocator.relNumber = desc->rel_number;
	InitBufferTag(&buf->tag, &rlocator, desc->fork_number, desc->block_number);
	buf->freeNext = FREENEXT_NOT_IN_LIST;
	state |= BM_TAG_VALID | BM_VALID;
	if (desc->flags & PCACHE_DESC_PERMANENT)
		state |= BM_PERMANENT;
	if (dirty)
		state |= BM_DIRTY | BM_JUST_DIRTIED;
	state += BUF_USAGECOUNT_ONE * Min(desc->usage_count, BM_MAX_USAGE_COUNT);
	UnlockBufHdr(buf, state);
}

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

/* A page passed its gate: fill its header, and count it. */
static void
KeepPage(KeptPage *page, const PCacheDescriptor *desc,
		 const PCachePageFacts *facts, PCacheRebuildTotals *totals)
{
	BufferDesc *buf = GetBufferDescriptor(page->slot);
	bool		dirty = PCachePageIsDirty(desc, facts);

	FillHeader(buf, desc, dirty);
	if (dirty)
		totals->kept_dirty++;
	totals->max_lsn = Max(totals->max_lsn, desc->page_lsn);
	if (PersistentCacheDescriptors != NULL)
		PCacheSetKept(page->slot);
	page->hashcode = BufTableHashCode(&buf->tag);
}

/*
 * The page in this buffer is claimed by another slot as well.  It must not be
 * found, nor written by the background writer, but the buffer stays in the
 * mapping table, with its tag, so that a third claim is found out.
 */
static void
DoubtPage(uint32 slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);

	UnlockBufHdr(buf, state & ~BM_VALID);
}

/*
 * Put a page that passed its gate into the mapping table.  Two slots with the
 * same tag cannot both be right, and nothing tells which one is: both will go.
 */
static void
LinkPage(const KeptPage *page, PCacheRebuildTotals *totals)
{
	int			twin = BufTableLinkBuffer(page->slot, page->hashcode);

	if (twin < 0)
		return;
	DoubtPage(page->slot);
	DoubtPage(twin);
	totals->doubts = true;
}

/*
 * Judge n slots, beginning with slot first, at most PCACHE_SLOTS_PER_CHUNK, put
 * the pages that are kept into the mapping table, and add them all to totals, as
 * if no slot claimed the page of another one.  Their buffer headers must be
 * initialized.  No lock is required.
 */
void
PCacheMapChunk(const PCachePageFacts *facts, uint32 first, uint32 n,
			   PCacheRebuildTotals *totals)
{
	static PCacheDescriptor descs[PCACHE_SLOTS_PER_CHUNK];
	KeptPage	pages[PCACHE_SLOTS_PER_CHUNK];
	uint32		npages = 0;

	Assert(n > 0 && n <= PCACHE_SLOTS_PER_CHUNK);
	(void) PCacheReadDescriptors(PCacheThePool.fd, first, n, descs);
	for (uint32 i = 0; i < n; i++)
	{
		PCachePageVerdict verdict = PCachePageGate(&descs[i], first + i, facts);

		totals->pages[verdict]++;
		if (verdict == PCACHE_PAGE_KEPT)
			pages[npages++].slot = first + i;
	}
	for (uint32 i = 0; i < npages; i++)
	{
		KeepPage(&pages[i], &descs[pages[i].slot - first], facts, totals);
		BufTablePrefetch(pages[i].hashcode, false);
	}
	INJECTION_POINT("persistent-cache-mapping", NULL);
	for (uint32 i = 0; i < npages; i++)
		BufTablePrefetch(pages[i].hashcode, true);
	for (uint32 i = 0; i < npages; i++)
		LinkPage(&pages[i], totals);
}

/*
 * Is a buffer in the mapping table to stay there?  If not, it is made free, and
 * counted: its page was taken for one that is kept, but was claimed twice.
 */
static bool
IsOnlyClaim(int slot, void *arg)
{
	PCacheRebuildTotals *totals = arg;
	uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);

	if (state & BM_VALID)
		return true;
	if (state & BM_DIRTY)
		totals->kept_dirty--;
	totals->pages[PCACHE_PAGE_KEPT]--;
	totals->pages[PCACHE_PAGE_DUPLICATE]++;
	ClearHeader(slot);
	return false;
}

/*
 * Forget the pages of the first nslots slots that are claimed by other slots as
 * well, see DoubtPage().  There is none unless the pool is damaged or forged.
 * All chunks must have been mapped, and the helpers gone.
 *
 * All claims of a page are in the same chain, and go with the first one that is
 * met, so that no chain is walked once for each of its buffers.
 */
void
PCacheForgetDuplicates(uint32 nslots, PCacheRebuildTotals *totals)
{
	if (!totals->doubts)
		return;
	for (uint32 slot = 0; slot < nslots; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state = pg_atomic_read_u32(&buf->state);

		if (slot % PCACHE_SLOTS_PER_CHECK == 0)
			PCacheStartInterrupts();
		if ((state & BM_TAG_VALID) != 0 && (state & BM_VALID) == 0)
			BufTableFilterChain(BufTableHashCode(&buf->tag), IsOnlyClaim, totals);
	}
}

/*
 * Forget the pages of the first nslots slots, as if no chunk had been mapped.
 * The helpers must be gone.
 */
void
PCacheForgetAll(uint32 nslots)
{
	BufTableReset();
	for (uint32 slot = 0; slot < nslots; slot++)
	{
		if (slot % PCACHE_SLOTS_PER_CHECK == 0)
			PCacheStartInterrupts();
		if (pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_TAG_VALID)
			ClearHeader(slot);
	}
}
