/*-------------------------------------------------------------------------
 *
 * loadlist.c
 *	  pg_pcache load of an image that is a list of pages.
 *
 * The list proposes which pages the pool is filled with; see pagelist.c.  What
 * they contain comes from the data files, so the cluster must have been shut
 * down cleanly, but not by the stop that the list was saved after.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/loadlist.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "load.h"

/*
 * The same question as JudgeImage() answers: would the pool gates keep what
 * the list proposes, in a pool on media without any flaw?
 */
PCacheVerdict
JudgeList(const Rebuild *cluster, const Image *image)
{
	const ControlFileData *control = cluster->control;
	Rebuild		r = {.options = cluster->options,.control = control,.conf = cluster->conf};
	uint64		capacity = Max(image->superblock.capacity, Max(r.conf.nbuffers, 0));

	if (image->header.system_identifier != control->system_identifier)
		return PCacheRefuse(PCACHE_COLD_SYSTEM_IDENTIFIER,
							_("it was saved for the cluster with system identifier %llu"),
							(unsigned long long) image->header.system_identifier);
	GatherClusterFacts(cluster, &r.judge);
	r.judge.media.blocks = PCACHE_MEDIA_CLEAN;
	r.judge.facts.media = &r.judge.media;
	r.pool.fs_kind = PoolIsOurs(cluster) ? cluster->pool.fs_kind : PCACHE_FS_TMPFS;
	/* whether it is known is another question */
	r.conf.nbuffers = capacity;
	return JudgeWarming(&r, capacity);
}

/* Read all chunks that are sound. */
static struct PageList *
ReadPageList(Loading *l)
{
	struct PageList *list = CreatePageList();
	ImageBuffer raw;
	ImageBuffer stored;
	char		why[256];

	AllocateChunkBuffers(&l->image, &raw, &stored);
	for (uint32 i = 0; i < l->image.header.n_chunks; i++)
	{
		const PCacheImageEntry *entry = &l->image.entries[i];
		const PCacheDescriptor *descs = (PCacheDescriptor *) raw.data;

		if (ReadChunk(&l->image, entry, &stored, &raw, why, sizeof(why)))
		{
			/* ReadChunk() has asked whether a file can have these pages */
			for (uint32 page = 0; page < entry->n_pages; page++)
			{
				PCachePageKey key = PCacheDescriptorKey(&descs[page]);

				AddToPageList(list, &key, descs[page].usage_count);
			}
			continue;
		}
		if (l->r.options->strict)
			pg_fatal("chunk %u of image \"%s\" %s", i, l->image.path, why);
		pg_log_warning("chunk %u of image \"%s\" %s, which costs %u pages",
					   i, l->image.path, why, entry->n_pages);
		l->result.damaged_chunks++;
		l->result.damaged_pages += entry->n_pages;
	}
	free(raw.data);
	free(stored.data);
	return list;
}

/* Ask all that can be asked before the pool is there.  Returns its capacity. */
static uint64
PlanList(Loading *l, PCacheMissing *plan)
{
	Rebuild    *r = &l->r;
	uint64		capacity;

	PlanPool(l, plan);
	if (r->opened == PCACHE_OPEN_MISSING)
	{
		capacity = plan->capacity;
		GatherClusterFacts(r, &r->judge);
		r->judge.media.blocks = PCACHE_MEDIA_CLEAN;
		r->judge.facts.media = &r->judge.media;
		r->pool.fs_kind = plan->fs_kind;
	}
	else
	{
		capacity = SuperblockIsUsable(r) ? RebuildSuperblock(r)->capacity :
			PCacheCapacityFor(r->pool.file_size);
		JudgePool(r);
	}
	PlanWarming(r, capacity);
	return capacity;
}

/* Fill a new pool with the pages of the list, which would be kept. */
void
LoadList(Loading *l)
{
	Rebuild    *r = &l->r;
	PCacheMissing plan;
	uint64		capacity;

	l->result.is_list = true;
	r->list = ReadPageList(l);
	capacity = PlanList(l, &plan);
	if (!r->options->dry_run)
	{
		CreatePool(l, &plan, false, capacity);
		FinishPool(l);
		JudgePool(r);
		capacity = RebuildSuperblock(r)->capacity;
		l->result.verdict = JudgeWarming(r, capacity);
		if (l->result.verdict.refusal != PCACHE_WARM)
			return;
	}
	r->result.capacity = capacity;
	WarmFromFiles(r);
	FreePageList(r->list);
	l->result.warm = r->result.warm;
	l->result.pages = r->result.warm.read;
	if (r->options->dry_run)
		return;
	l->result.loaded = true;
	ConcludeByPool(l);
	if (ExitStatus(&l->result.verdict) != EXIT_COLD)
		Discard(l);
}
