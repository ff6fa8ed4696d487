/*-------------------------------------------------------------------------
 *
 * pcache_unseal.c
 *	  Have descriptors not trusted any more, durably, before slots are used.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_unseal.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/pcache_start.h"
#include "utils/injection_point.h"

/*
 * Have a slot's descriptor not trusted any more, as far as the caller's drain is
 * concerned.  Nobody uses the slot yet.
 */
void
PCacheUnseal(uint32 slot)
{
	PCacheDescriptor *desc = PCacheGetDescriptor(slot);
	uint64		seq = pg_atomic_read_u64(PCacheSeq(desc));

	if (PCacheSeqIsSealed(seq))
		pg_atomic_write_u64(PCacheSeq(desc), seq + 1);
	PCacheFlush(&PCacheThePool.map, desc, sizeof(desc->seq));
}

/* Wait until all stores of this start are durable, or do without the pool. */
void
PCacheDrainForStart(void)
{
	if (!PCacheDrain(&PCacheThePool.map))
		PCacheStartAgainUnwritten();
}

/*
 * Make sure that no descriptor is trusted whose page was not kept, before
 * its slot is used.
 *
 * One that is odd in memory need not be on the media: whoever made it odd may
 * have been killed before it was flushed.  Nobody who marks it again would
 * flush it.
 */
void
PCacheUnsealOthers(void)
{
	/*
	 * of two slots with the same page, one would be believed without the
	 * other
	 */
	if (PCacheCtl->start.pages[PCACHE_PAGE_DUPLICATE] > 0)
		PCacheKeepPool();
	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		if (slot % PCACHE_SLOTS_PER_CHECK == 0)
		{
			INJECTION_POINT("persistent-cache-unsealing", NULL);
			PCacheStartInterrupts();
		}
		if (pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_TAG_VALID)
			continue;
		if (PCacheDescriptorIsBad(slot))
			continue;
		PCacheUnseal(slot);
	}
	PCacheDrainForStart();
}
