/*-------------------------------------------------------------------------
 *
 * pcache_save.c
 *	  Store the descriptors of slots at a clean shutdown.
 *
 * Nobody else uses a buffer by then, so a header that is read without a lock
 * stays what it is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_save.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "pcache_internal.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"

#define PREFETCH_DISTANCE	16

/*
 * Fill in a descriptor for a buffer with the given tag and state, but for
 * seq, epoch and CRC.  The caller makes sure that the three go together.
 */
void
PCacheDescribe(PCacheDescriptor *desc, uint32 slot, const BufferTag *tag,
			   uint32 state)
{
	PCacheDescriptorDescribe(desc, slot, BufTagGetRelFileLocator(tag),
							 BufTagGetForkNum(tag), tag->blockNum,
							 PageGetLSN(BufferGetPage(slot + 1)),
							 (state & BM_PERMANENT) != 0,
							 BUF_STATE_GET_USAGECOUNT(state));
	if (PCacheNamesBlocks(tag, BufferGetPage(slot + 1)))
		desc->flags |= PCACHE_DESC_NAMES_BLOCKS;
}

/*
 * Does a buffer hold a page that can be kept?  A dirty one has a change (a hint
 * bit, say, set after the shutdown checkpoint) that is not on disk, and one that
 * was read with errors is not what the file has.
 */
static inline bool
CanBeKept(uint32 slot, uint32 state)
{
	return (state & (BM_VALID | BM_TAG_VALID)) == (BM_VALID | BM_TAG_VALID) &&
		(state & (BM_DIRTY | BM_IO_IN_PROGRESS | BM_LOCKED)) == 0 &&
		BUF_STATE_GET_REFCOUNT(state) == 0 &&
		!PCacheIsUntrusted(slot) &&
		!PCacheBlockIsBad(slot);
}

static inline uint32
BufferState(uint32 slot)
{
	return pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);
}

/*
 * Describe one buffer for the next start.  Returns false if it holds no page
 * that can be kept.
 */
static bool
DescribeBuffer(uint32 slot, PCacheDescriptor *desc)
{
	uint32		state = BufferState(slot);

	PCacheDescriptorSetFree(desc);
	if (!CanBeKept(slot, state))
		return false;

	PCacheDescribe(desc, slot, &GetBufferDescriptor(slot)->tag, state);
	PCacheDescriptorSetSealed(desc);
	return true;
}

/*
 * In mode always: flush and drain the pages of n slots that the sealer has not
 * flushed, whose seq is odd.  Returns false, with errno set, if a drain failed.
 */
static bool
FlushUnsealed(uint32 first, uint32 n)
{
	const PCacheMapping *map = &PCacheThePool.map;
	bool		flushed = false;

	for (uint32 slot = first; slot < first + n; slot++)
	{
		if (PCacheDescriptorIsBad(slot) ||
			PCacheSeqIsSealed(PCacheGetDescriptor(slot)->seq) ||
			!CanBeKept(slot, BufferState(slot)))
			continue;
		PCacheFlush(map, BufferGetBlock(slot + 1), BLCKSZ);
		flushed = true;
	}
	return !flushed || PCacheDrain(map);
}

/*
 * Tell the kernel which pages are looked at next, as one system call for many
 * costs less than page faults.
 */
static void
Populate(uint32 first, uint32 n)
{
#ifdef MADV_POPULATE_READ
	/* memory errors are met one by one; this would meet them all at once */
	if (PCacheMedia.bad.n_ranges == 0)
		(void) madvise(BufferGetBlock(first + 1), (Size) n * BLCKSZ,
					   MADV_POPULATE_READ);
#endif
}

/*
 * Store the descriptor of a slot, after its page was flushed if flush_page says
 * so.  Returns whether its page is saved by that.
 */
static bool
SaveSlot(uint32 slot, bool flush_page)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheDescriptor desc;
	bool		keep = DescribeBuffer(slot, &desc);

	if (keep && flush_page)
		PCacheFlush(map, BufferGetBlock(slot + 1), BLCKSZ);
	PCacheDescriptorStore(map, PCacheGetDescriptor(slot), &desc);
	return keep;
}

/*
 * Store the descriptors of n slots, and flush pages that may not be durable.
 * Once this process has drained, the next start may keep the pages, of which
 * there are *saved.  Returns false, with errno set, if a drain failed.
 *
 * In mode always a pool in use is believed, so a page must be durable before its
 * descriptor is stored.  In memory there is nothing to be flushed for that, and an
 * ordinary file is refused (RequireSurvival).  In planned_restart nothing is
 * believed before the superblock says so, and one pass does.
 */
bool
PCacheSaveSlots(uint32 first, uint32 n, uint64 *saved)
{
	bool		always = PersistentCacheDescriptors != NULL;

	*saved = 0;
	Populate(first, n);
	if (always && PCacheThePool.map.kind == PCACHE_PERSIST_PMEM &&
		!FlushUnsealed(first, n))
		return false;
	for (uint32 slot = first; slot < first + n; slot++)
	{
		/* fetching page headers is all that a save in memory costs */
		if (slot + PREFETCH_DISTANCE < NBuffers)
			__builtin_prefetch(BufferGetBlock(slot + PREFETCH_DISTANCE + 1));
		if (!PCacheDescriptorIsBad(slot) && SaveSlot(slot, !always))
			(*saved)++;
	}
	return true;
}
