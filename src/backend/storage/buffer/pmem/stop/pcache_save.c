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
 *	  src/backend/storage/buffer/pmem/stop/pcache_save.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/pcache_stop.h"

#define PREFETCH_DISTANCE	16

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
DescribeBuffer(uint32 slot, PCacheDescriptor *desc, XLogRecPtr lsn_bound)
{
	uint32		state = BufferState(slot);

	PCacheDescriptorSetFree(desc);
	if (!CanBeKept(slot, state))
		return false;

	PCacheDescribe(desc, slot, &GetBufferDescriptor(slot)->tag, state, lsn_bound);
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
SaveSlot(uint32 slot, bool flush_page, XLogRecPtr lsn_bound)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheDescriptor desc;
	bool		keep = DescribeBuffer(slot, &desc, lsn_bound);

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
 * ordinary file is refused (PCacheKindSurvives).  In planned_restart nothing is
 * believed before the superblock says so, and one pass does.
 *
 * With lsn_bound, see PCacheDescribe(), no page is mapped for its header.
 */
bool
PCacheSaveSlots(uint32 first, uint32 n, XLogRecPtr lsn_bound, uint64 *saved)
{
	bool		always = PersistentCacheDescriptors != NULL;
	bool		reads_pages = XLogRecPtrIsInvalid(lsn_bound);

	*saved = 0;
	if (reads_pages)
		Populate(first, n);
	if (always && PCacheThePool.map.kind == PCACHE_PERSIST_PMEM &&
		!FlushUnsealed(first, n))
		return false;
	for (uint32 slot = first; slot < first + n; slot++)
	{
		uint32		next = slot + PREFETCH_DISTANCE;

		/* fetching what is looked at is most of what a save costs */
		if (next < NBuffers)
		{
			__builtin_prefetch(GetBufferDescriptor(next), 0);
			__builtin_prefetch(PCacheGetDescriptor(next), 1);
			if (reads_pages)
				__builtin_prefetch(BufferGetBlock(next + 1), 0);
		}
		if (!PCacheDescriptorIsBad(slot) && SaveSlot(slot, !always, lsn_bound))
			(*saved)++;
	}
	return true;
}
