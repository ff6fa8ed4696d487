/*-------------------------------------------------------------------------
 *
 * resize.c
 *	  Give a pool another size, and keep its pages.
 *
 * Part of "pg_pcache rebuild --resize".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/resize.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "rebuild.h"

/*
 * Give the pool another capacity, and keep the pages in the slots that the
 * new one has as well.
 *
 * The descriptor array in front of the blocks may grow or shrink, so the
 * blocks' offset moves by a number of slots.  Instead of the blocks the
 * numbering moves: the page in slot s of n will be in slot (s - shift) mod n,
 * which nearly always is where it lies.  The others, as many as the offset
 * moves by, are copied to where the old layout has no page.
 */
void
Resize(Rebuild *r, uint64 capacity)
{
	PCacheSuperblock *sb = RebuildSuperblock(r);
	PCacheGeometry g = GeometryFor(&r->pool, capacity);
	uint64		n = Min(sb->slots_used, capacity);
	int64		shift = ((int64) g.blocks_offset - (int64) sb->blocks_offset) / BLCKSZ;
	uint64		old_offset = sb->blocks_offset;
	uint32		state = sb->state;
	PCacheDescriptor *descs;
	PGIOAlignedBlock page;

	for (uint64 slot = n; slot < r->scan.slots; slot++)
		r->result.not_fitting += (r->scan.verdicts[slot] == PCACHE_PAGE_KEPT);
	if (r->options->dry_run)
		return;

	descs = pg_malloc_array(PCacheDescriptor, Max(n, 1));
	for (uint64 slot = 0; slot < n; slot++)
		PCacheDescriptorSetFree(&descs[slot]);
	if (g.pool_size > r->pool.file_size)
		SetPoolSize(&r->pool, g.pool_size);
	RebuildStep("resize-allocated");
	sb->state = PCACHE_STATE_ATTACHING;
	StoreSuperblock(r);
	RebuildStep("resize-marked");

	for (uint64 slot = 0; slot < n; slot++)
	{
		uint64		new_slot = ((int64) slot - shift % (int64) n + n) % n;
		uint64		from = old_offset + slot * BLCKSZ;
		uint64		to = g.blocks_offset + new_slot * BLCKSZ;
		PCacheDescriptor *desc = &descs[new_slot];

		if (IsDamaged(r->scan.verdicts[slot]) ||
			r->scan.verdicts[slot] == PCACHE_PAGE_FREE ||
			!PCacheReadDescriptors(r->pool.fd, slot, 1, desc))
		{
			PCacheDescriptorSetFree(desc);
			continue;
		}
		if (from != to)
		{
			if (PCacheMediaRangeIsBad(&r->judge.media, to, BLCKSZ) ||
				!PCacheReadExact(r->pool.fd, page.data, BLCKSZ, from))
			{
				PCacheDescriptorSetFree(desc);
				continue;
			}
			PCacheMemcpyNodrain(&r->pool.map, r->pool.map.base + to, page.data, BLCKSZ);
			r->result.moved++;
		}
		desc->slot = new_slot;
		desc->crc = PCacheDescriptorCrc(desc);
	}
	DrainPool(r);
	RebuildStep("resize-copied");

	for (uint64 slot = 0; slot < capacity; slot++)
	{
		if (slot < n)
			PCacheDescriptorStore(&r->pool.map, MappedDescriptor(r, slot),
								  &descs[slot]);
		else
			FreeSlot(r, slot);
		if (slot == capacity / 2)
			RebuildStep("resize-half-described");
	}
	DrainPool(r);
	pg_free(descs);
	RebuildStep("resize-described");

	if (g.pool_size != r->pool.file_size)
		SetPoolSize(&r->pool, g.pool_size);
	RebuildStep("resize-sized");
	(void) PCachePoolUseHugePages(&r->pool);
	sb->capacity = capacity;
	sb->blocks_offset = g.blocks_offset;
	sb->pool_size = g.pool_size;
	sb->slots_used = n;
	/* still to be marked when the cluster knows of the new size */
	StoreSuperblock(r);
	RebuildStep("resize-new-layout");
	StoreRecord(r, r->record.incarnation);
	RebuildStep("resize-recorded");
	sb->state = state;
	StoreSuperblock(r);
	RebuildStep("resize-done");
}
