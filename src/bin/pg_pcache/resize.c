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

#include "rebuild.h"
#include "storage/pcache_resize.h"

/* Does this slot have a page that can be kept? */
static bool
HasPage(uint64 slot, void *arg)
{
	const Rebuild *r = arg;
	PCachePageVerdict verdict = r->scan.verdicts[slot];

	return !IsDamaged(verdict) && verdict != PCACHE_PAGE_FREE;
}

/* Give the pool another capacity, as PCachePoolResize() does. */
void
Resize(Rebuild *r, uint64 capacity)
{
	PCacheSuperblock *sb = RebuildSuperblock(r);
	uint32		state = sb->state;
	PCacheResize resize = {
		.capacity = capacity,
		.media = &r->judge.media,
		.keep = HasPage,
		.arg = r,
		.step = RebuildStep,
	};
	PCacheError err;

	for (uint64 slot = capacity; slot < r->scan.slots; slot++)
		r->result.not_fitting += (r->scan.verdicts[slot] == PCACHE_PAGE_KEPT);
	if (r->options->dry_run)
		return;

	if (!PCachePoolResize(&r->pool, sb, &resize, &err))
		FailWith(&err);
	r->result.moved = resize.moved;

	/*
	 * the headers of a server that was killed are not moved, nor are they any
	 * more where a pool of this size has them
	 */
	if (state == PCACHE_STATE_DIRTY)
		state = PCACHE_STATE_EMPTY;
	sb->state = state;
	StoreSuperblock(r);
	RebuildStep("resize-done");
}
