/*-------------------------------------------------------------------------
 *
 * pcache_scrub.c
 *	  Overwrite at a clean stop what is left in free slots.
 *
 * A page of a relation that was dropped stays in its slot until another page
 * takes that.  In the shared memory of an unpatched server it would be gone with
 * the server, but a pool keeps it, and persistent memory even without power.
 *
 * Nothing remembers which slots were used since.  A slot is read instead, and
 * written only if there is something in it, which also finds what a server with
 * larger shared_buffers, or one that has crashed, has left.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/stop/pcache_scrub.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/pcache_stop.h"
#include "utils/memutils.h"

/* Does a clean stop overwrite free slots? */
bool
PCacheScrubs(void)
{
	return persistent_cache_scrub == PERSISTENT_CACHE_SCRUB_ON ||
		(persistent_cache_scrub == PERSISTENT_CACHE_SCRUB_AUTO &&
		 PCacheThePool.map.kind == PCACHE_PERSIST_PMEM);
}

/*
 * Is nothing in a slot that anybody needs?  Slots behind those in use have no
 * buffers, and what a larger server has left there is not looked at any more.
 */
static bool
IsFree(uint32 slot)
{
	uint32		state;

	/* neither read nor written; what is there stays */
	if (PCacheBlockIsBad(slot))
		return false;
	if (slot >= NBuffers)
		return slot >= PCacheCtl->superblock.slots_used;

	state = pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);
	return !PCacheDescriptorIsBad(slot) &&
		(state & (BM_VALID | BM_DIRTY | BM_IO_IN_PROGRESS | BM_LOCKED)) == 0 &&
		BUF_STATE_GET_REFCOUNT(state) == 0;
}

/*
 * Fill those of n slots with zeros that are free and are not zero already.  Returns
 * how many.  They are durable once this process has drained.
 *
 * For a process that saves.  In mode always, a pool in use is believed, but a
 * slot was durably marked before its page left it (rule "a mark is durable
 * before the page changes").
 */
uint64
PCacheScrubSlots(uint32 first, uint32 n)
{
	static const PGIOAlignedBlock zeros;
	const PCacheMapping *map = &PCacheThePool.map;
	char	   *block = map->base + PCacheCtl->superblock.blocks_offset +
		(uint64) first * BLCKSZ;
	uint64		scrubbed = 0;

	for (uint32 slot = first; slot < first + n; slot++, block += BLCKSZ)
	{
		if (!IsFree(slot) || pg_memory_is_all_zeros(block, BLCKSZ))
			continue;
		PCacheStreamNodrain(map, block, zeros.data, BLCKSZ);
		scrubbed++;
	}
	return scrubbed;
}
