/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  Format damaged descriptors, restore superblocks and size.
 *
 * Part of "pg_pcache rebuild"; what is looked at, and in which order, is in
 * rebuild.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/repair.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "rebuild.h"

/* Is this descriptor one that has to be formatted? */
bool
IsDamaged(PCachePageVerdict verdict)
{
	switch (verdict)
	{
		case PCACHE_PAGE_CRC:
		case PCACHE_PAGE_TAG:
		case PCACHE_PAGE_BAD_BLOCK:
		case PCACHE_PAGE_DUPLICATE:
			return true;
		default:
			/* sound, even if the next start has no use for it */
			return false;
	}
}

/*
 * Format the descriptors that the page gates found damaged.
 *
 * Of two with the same tag none is right, and each would be believed if only
 * the other one were gone: then the pool must be cold meanwhile.
 */
static void
FormatDamaged(Rebuild *r)
{
	const PageScan *scan = &r->scan;
	PCacheSuperblock *sb = RebuildSuperblock(r);
	uint32		state = sb->state;
	bool		twins = scan->counts[PCACHE_PAGE_DUPLICATE] > 0;

	for (int verdict = 0; verdict < PCACHE_NUM_PAGE_VERDICTS; verdict++)
	{
		if (IsDamaged(verdict))
			r->result.formatted += scan->counts[verdict];
	}
	r->result.lost = scan->counts[PCACHE_PAGE_BAD_BLOCK];
	if (r->options->dry_run || r->result.formatted == 0)
		return;

	if (twins)
	{
		sb->state = PCACHE_STATE_ATTACHING;
		StoreSuperblock(r);
		RebuildStep("marked-for-twins");
	}
	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		if (IsDamaged(scan->verdicts[slot]) && !SlotIsBad(r, sb, slot))
		{
			FreeSlot(r, slot);
			ForgetHeader(r, slot);
			RebuildStep("slot-formatted");
		}
	}
	DrainPool(r);
	RebuildStep("slots-formatted");
	if (twins)
	{
		sb->state = state;
		StoreSuperblock(r);
		RebuildStep("unmarked");
	}
}

/* Bad blocks, descriptors and superblocks of a pool that can be repaired. */
void
Repair(Rebuild *r)
{
	bool		dry_run = r->options->dry_run;
	bool		usable = SuperblockIsUsable(r);
	uint64		lost;
	PCacheError err;

	if (usable)
		r->result.cut_off_bytes = RebuildSuperblock(r)->pool_size - r->pool.file_size;
	if (usable && !dry_run && !r->options->reset &&
		(r->result.cut_off_bytes > 0 || PCachePoolHasHoles(&r->pool)))
	{
		if (!PCachePoolRestoreSize(&r->pool, RebuildSuperblock(r), false, &lost, &err))
			FailWith(&err);
		RebuildStep("size-restored");
	}
	r->result.superblock_restored = usable && !r->superblocks.first_intact;
	r->result.copy_restored = usable && !r->superblocks.copy_intact;
	if (!dry_run)
		MapPool(r);
	ClearBadBlocks(r);
	if (!usable || r->options->reset)
		return;
	if (!dry_run && r->result.bad_ranges > 0)
	{
		PCacheSuperblocks now;

		PCacheReadSuperblocks(r->pool.fd, &now);
		r->result.superblock_restored |= !now.first_intact;
		r->result.copy_restored |= !now.copy_intact;
	}
	if (!dry_run && (r->result.superblock_restored || r->result.copy_restored))
	{
		StoreSuperblock(r);
		RebuildStep("superblock-restored");
	}
	FormatDamaged(r);
}
