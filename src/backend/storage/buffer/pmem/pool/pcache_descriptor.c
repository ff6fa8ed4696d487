/*-------------------------------------------------------------------------
 *
 * pcache_descriptor.c
 *	  The descriptor of one slot of the pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_descriptor.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "catalog/pg_tablespace_d.h"
#include "storage/block.h"
#include "storage/pcache_pool.h"

/*
 * CRC-32C over all but seq, which changes without the rest.  So it tells
 * nothing of whether seq and the rest go together: the order of stores does,
 * see PCacheDescriptorStore().
 */
uint32
PCacheDescriptorCrc(const PCacheDescriptor *desc)
{
	return PCacheCrc((const char *) desc + sizeof(desc->seq),
					 offsetof(PCacheDescriptor, crc) - sizeof(desc->seq));
}

/* Make it the descriptor of a slot without a page. */
void
PCacheDescriptorSetFree(PCacheDescriptor *desc)
{
	memset(desc, 0, sizeof(*desc));
	desc->seq = PCACHE_DESC_FREE_SEQ;
}

/* Have a descriptor trusted once it is durable. */
void
PCacheDescriptorSetSealed(PCacheDescriptor *desc)
{
	desc->crc = PCacheDescriptorCrc(desc);
	desc->seq = PCACHE_DESC_SAVED_SEQ;
}

/* Store all of a descriptor but seq, which must be odd on media. */
static void
StorePayload(PCacheDescriptor *dest, const PCacheDescriptor *desc)
{
	memcpy((char *) dest + sizeof(desc->seq),
		   (const char *) desc + sizeof(desc->seq),
		   sizeof(*desc) - sizeof(desc->seq));
	/* before seq, for the compiler as well as for the processor */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/*
 * Store the descriptor of a slot, and flush it; the caller drains.  Nobody
 * else may store to it.
 *
 * We may be killed between any two stores, and the line may be evicted there:
 * so seq is odd from before the first store of the payload until after the
 * last one, see rule "the final seq is stored last".  A descriptor that is
 * there already is only flushed, because whoever stored it may have been
 * killed before it was.
 */
void
PCacheDescriptorStore(const PCacheMapping *map, PCacheDescriptor *dest,
					  const PCacheDescriptor *desc)
{
	uint64		old = __atomic_load_n(&dest->seq, __ATOMIC_RELAXED);

	/* one with the same payload may be about another generation */
	if (old != desc->seq ||
		memcmp((const char *) dest + sizeof(desc->seq),
			   (const char *) desc + sizeof(desc->seq),
			   sizeof(*desc) - sizeof(desc->seq)) != 0)
	{
		if (PCacheSeqIsSealed(old))
		{
			__atomic_store_n(&dest->seq, old + 1, __ATOMIC_RELAXED);
			__atomic_thread_fence(__ATOMIC_RELEASE);
		}
		StorePayload(dest, desc);
		__atomic_store_n(&dest->seq, desc->seq, __ATOMIC_RELAXED);
	}
	PCacheFlush(map, dest, sizeof(*dest));
}

/* Is this what was stored for this slot?  (Sealed or not.) */
bool
PCacheDescriptorIsIntact(const PCacheDescriptor *desc, uint32 slot)
{
	return desc->version == PCACHE_DESC_VERSION &&
		desc->slot == slot &&
		desc->crc == PCacheDescriptorCrc(desc);
}

PCachePageKey
PCacheDescriptorKey(const PCacheDescriptor *desc)
{
	PCachePageKey key;

	key.spc_oid = desc->spc_oid;
	key.db_oid = desc->db_oid;
	key.rel_number = desc->rel_number;
	key.fork_number = desc->fork_number;
	key.block_number = desc->block_number;
	return key;
}

/* Can this be the tag of a page in shared buffers? */
bool
PCacheDescriptorHasSaneTag(const PCacheDescriptor *desc)
{
	if (desc->fork_number < 0 || desc->fork_number > MAX_FORKNUM)
		return false;
	if (desc->rel_number == InvalidRelFileNumber ||
		desc->spc_oid == InvalidOid ||
		desc->block_number == InvalidBlockNumber)
		return false;
	return (desc->db_oid == InvalidOid) == (desc->spc_oid == GLOBALTABLESPACE_OID);
}

/*
 * Read count descriptors, beginning with slot first.
 *
 * By read(), not through the mapping, so that a bad block is an error and
 * not a SIGBUS.  Descriptors that cannot be read come back damaged, which
 * drops their pages and no others.  Returns false if there was any.
 */
bool
PCacheReadDescriptors(int fd, uint32 first, uint32 count,
					  PCacheDescriptor *descs)
{
	off_t		offset = PCACHE_DESCRIPTORS_OFFSET +
		(off_t) first * sizeof(PCacheDescriptor);
	bool		complete = true;

	if (PCacheReadExact(fd, descs, count * sizeof(PCacheDescriptor), offset))
		return true;

	for (uint32 i = 0; i < count; i++)
	{
		if (!PCacheReadExact(fd, &descs[i], sizeof(PCacheDescriptor),
							 offset + i * sizeof(PCacheDescriptor)))
		{
			memset(&descs[i], 0, sizeof(PCacheDescriptor));
			complete = false;
		}
	}
	return complete;
}
