/*-------------------------------------------------------------------------
 *
 * load.c
 *	  pg_pcache load: make a pool of an image that was saved of it.
 *
 * The pool gates are asked with the image's superblock before anything else is
 * read, and once more when there is a pool.  The pool becomes the one that was
 * saved, with its UUID and incarnation.  While it is filled it is durably "empty", and has a
 * temporary name: who is interrupted leaves a cold start, and the image.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/load.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/mman.h>

#include "image.h"
#include "workers.h"

/* Everything about a load on its way. */
typedef struct Loading
{
	Cluster		cluster;		/* the pool, and what it goes with */
	PCachePool	old_pool;		/* the one that is replaced, if there is one */
	bool		old_must_go;	/* before, as there is no room for both */
	PCacheCreation creation;
	Image		image;

	char		pool[MAXPGPATH];	/* of the file */
	bool		already;		/* the pool needs no image */
	bool		loaded;
	bool		removed;		/* the image, afterwards */
	uint64		pages;			/* as what follows, counted by the threads */
	uint64		damaged_chunks;
	uint64		damaged_pages;	/* in them */
	uint64		bad_slots;		/* pages whose slot is on a bad block */
	PCacheVerdict verdict;
	uint64		kept;			/* pages */
	double		seconds;
} Loading;

/* What the next start makes of the pool as it is now. */
static void
ConcludeByPool(Loading *l)
{
	Cluster    *c = &l->cluster;

	l->verdict = ForetellChanged(c);
	l->kept = c->scan.verdicts != NULL ? c->scan.counts[PCACHE_PAGE_KEPT] : 0;
}

/* Is the next start warm already?  Then all of the pool is to stay. */
static bool
PoolIsWarm(Loading *l)
{
	Cluster    *c = &l->cluster;

	if (c->opened == PCACHE_OPEN_MISSING)
		return false;
	ConcludeByPool(l);
	return l->kept > 0;
}

/*
 * A pool of this cluster that is there is replaced if it is empty, or is the one that
 * was saved.
 */
static void
RefuseForeignPool(const Loading *l)
{
	const Cluster *c = &l->cluster;
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	const uint8 *uuid = l->image.superblock.pool_uuid;
	const char *foreign = WhyForeign(&c->superblocks, c->control);
	PCacheError err;

	if (!PCachePoolMayFormat(&c->pool, &err))
		FailWith(&err);
	if (foreign == NULL &&
		(sb->state == PCACHE_STATE_EMPTY ||
		 memcmp(sb->pool_uuid, uuid, PCACHE_UUID_LEN) == 0))
		return;
	pg_log_error("persistent cache pool \"%s\" is not the one that was saved", c->pool.path);
	if (foreign != NULL)
		pg_log_error_detail("%s", foreign);
	else
		pg_log_error_detail("Its UUID is %s; that of the image is %s.",
							FormatUuid(sb->pool_uuid), FormatUuid(uuid));
	pg_log_error_hint("Run \"pg_pcache drop\" to remove the pool, if no other cluster uses it.");
	exit(EXIT_ERROR);
}

/* What the pool is to be able to hold. */
static uint64
ChooseCapacity(const Loading *l)
{
	PCacheNextConfig config = NextConfig(&l->cluster.conf);

	if (l->cluster.opened != PCACHE_OPEN_MISSING)
		return l->image.superblock.capacity;
	return Max(PCacheNewCapacity(&config), l->image.superblock.slots_used);
}

/* Decide where the pool is created, as the server does if it is missing. */
static void
PlanPool(Loading *l, PCacheFsKind *fs_kind)
{
	Cluster    *c = &l->cluster;
	PCacheNextConfig config = NextConfig(&c->conf);
	PCacheDir	existing;
	PCacheGeometry geometry;

	l->old_pool.fd = -1;
	if (c->opened != PCACHE_OPEN_MISSING)
	{
		RefuseForeignPool(l);
		if (!PCacheOpenExistingPart(c->directory, &existing, fs_kind, &c->open_error))
			FailWith(&c->open_error);
		l->old_must_go = OldPoolMustGo(&existing, *fs_kind, ChooseCapacity(l), &c->pool, &geometry);
		PCacheDirClose(&existing);
	}
	else if (!PCacheDirectoryIsAllowed(c->options->pgdata, c->directory, &c->open_error) ||
			 !PCacheMayCreateMissing(c->directory, PCacheNewCapacity(&config), fs_kind,
									 &c->open_error))
		FailWith(&c->open_error);
}

/* Have an empty pool.  It is sparse and has a temporary name until FinishPool() is called. */
static void
CreatePool(Loading *l, PCacheFsKind fs_kind)
{
	Cluster    *c = &l->cluster;
	PCacheError err;

	if (c->opened != PCACHE_OPEN_MISSING)
	{
		l->old_pool = c->pool;
		if (l->old_must_go)
			ShedPool(&l->old_pool);
	}
	PCachePoolFileMade = WatchPoolFile;
	if (!PCacheMakeDirectory(c->directory, fs_kind, &err) ||
		!PCachePoolBeginCreate(&l->creation, c->directory, l->old_pool.fd >= 0, ChooseCapacity(l),
							   c->control->system_identifier,
							   c->control->catalog_version_no, &c->pool,
							   &c->superblocks.chosen, &err))
	{
		/* it has removed what there was */
		NoteUnfinished(false);
		FailWith(&err);
	}
	strlcpy(c->directory, c->pool.directory, sizeof(c->directory));
	c->superblocks.source = PCACHE_SB_FIRST;
	Step("load-created");
}

/* Give the pool its name. */
static void
FinishPool(Loading *l)
{
	PCacheError err;
	bool		finished = PCachePoolFinishCreate(&l->creation, true, &err);

	/* or it has removed what there was */
	NoteUnfinished(false);
	if (!finished)
		FailWith(&err);
	PCachePoolClose(&l->old_pool);
	Step("load-named");
}

/*
 * Have a pool that is durably "empty", and becomes the one that was saved.
 * False if no page would be kept in it.
 */
static bool
MakePool(Loading *l, PCacheFsKind fs_kind)
{
	Cluster    *c = &l->cluster;
	PCacheSuperblock *sb = &c->superblocks.chosen;

	CreatePool(l, fs_kind);
	PCacheSuperblockBecome(sb, &l->image.superblock);
	GatherPoolFacts(c);
	l->verdict = AskPoolGates(c);
	PCacheMediaRememberDimms(&c->judge.media, sb);
	sb->state = PCACHE_STATE_EMPTY;
	StoreSuperblock(c);
	Step("load-marked");
	return l->verdict.refusal == PCACHE_WARM;
}

/* Where in the pool the slots of a chunk begin; behind the last one it ends. */
static uint64
ChunkStart(const Loading *l, uint64 number)
{
	if (number == l->image.header.n_chunks)
		return l->cluster.pool.file_size;
	return l->cluster.superblocks.chosen.blocks_offset + l->image.entries[number].first_slot * BLCKSZ;
}

/*
 * Allocate the slots of a chunk in the pool, which is sparse, and those up to the next one.  So
 * one thread does that while another one waits for what it reads.
 */
static bool
AllocateSlots(const Loading *l, uint64 number, PCacheError *err)
{
	const PCachePool *pool = &l->cluster.pool;
	uint64		start = ChunkStart(l, number);
	uint64		end = Min(TYPEALIGN64(PCACHE_ALIGNMENT, ChunkStart(l, number + 1)), pool->file_size);

	start -= start % PCACHE_ALIGNMENT;
	return PCachePoolAllocate(pool, start, end - start, err);
}

/* Put the pages of a chunk into their slots. */
static void
StorePages(Loading *l, const ImageBuffer *raw, const PCacheImageEntry *entry)
{
	const Cluster *c = &l->cluster;
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	const PCacheMapping *map = &c->pool.map;
	const PCacheDescriptor *descs = (PCacheDescriptor *) raw->data;
	const char *pages = raw->data + ChunkPagesOffset(entry->n_pages);
	char	   *blocks = map->base + sb->blocks_offset;
	uint32		bad_slots = 0;

#ifdef MADV_POPULATE_WRITE
	/* fault them in at once; only a hint */
	(void) madvise(blocks + (uint64) descs[0].slot * BLCKSZ,
				   (size_t) (descs[entry->n_pages - 1].slot - descs[0].slot + 1) * BLCKSZ,
				   MADV_POPULATE_WRITE);
#endif
	for (uint32 i = 0; i < entry->n_pages; i++)
	{
		uint64		slot = descs[i].slot;

		if (PCacheMediaSlotIsBad(&c->judge.media, sb, slot))
		{
			bad_slots++;
			continue;
		}
		PCacheMemcpyNodrain(map, blocks + slot * BLCKSZ, pages + (size_t) i * BLCKSZ, BLCKSZ);
		PCacheDescriptorStore(map, MappedDescriptor(c, slot), &descs[i]);
	}
	AddToCount(&l->bad_slots, bad_slots);
	AddToCount(&l->pages, entry->n_pages - bad_slots);
}

/* Load a chunk, if it is sound.  The last one comes first: it also allocates what is behind. */
static void
LoadChunk(Work *work, uint64 task, ImageBuffer *raw, ImageBuffer *stored)
{
	Loading    *l = work->arg;
	uint64		number = l->image.header.n_chunks - 1 - task;
	const PCacheImageEntry *entry = &l->image.entries[number];
	char		why[256];
	PCacheError err;

	if (ReadChunk(&l->image, entry, stored, raw, why, sizeof(why)))
	{
		if (AllocateSlots(l, number, &err))
			StorePages(l, raw, entry);
		else
			FailWork(work, "%s", err.message);
	}
	else
	{
		WarnWork(work, _("chunk %llu of image \"%s\" %s, which costs %u pages"),
				 (unsigned long long) number, l->image.path, why, entry->n_pages);
		AddToCount(&l->damaged_chunks, 1);
		AddToCount(&l->damaged_pages, entry->n_pages);
	}
	AddToCount(&work->done_bytes, (uint64) entry->n_pages * BLCKSZ);
	Step("load-chunk");
}

/* A drain waits only for what its own thread has flushed. */
static void
EndThread(Work *work)
{
	const Loading *l = work->arg;

	if (!PCacheDrain(&l->cluster.pool.map))
		FailWork(work, _("could not write persistent cache pool \"%s\": %m"), l->cluster.pool.path);
}

/* Fill the pool, and say that it is complete. */
static void
FillPool(Loading *l)
{
	Cluster    *c = &l->cluster;
	Work		work = {
		.n_workers = c->options->jobs,
		.n_tasks = l->image.header.n_chunks,
		.total_bytes = l->image.header.n_pages * BLCKSZ,
		.progress = c->options->progress,
		.image = &l->image,
		.task = LoadChunk,
		.end = EndThread,
		.arg = l,
	};

	if (!DoWork(&work))
		pg_fatal("%s", work.failure);
	DrainPool(c);
	Step("load-filled");
	CheckClusterUnchanged(c->options, c->control);
	/* saved_pages stays: the server tells what of it is missing */
	c->superblocks.chosen.state = PCACHE_STATE_CLEAN;
	StoreSuperblock(c);
	FinishPool(l);
	Step("load-done");
}

/* The image is of no use any more: once the server runs it is a stale one. */
static void
Discard(Loading *l)
{
	if (l->cluster.options->keep)
		return;
	if (!RemoveImage(&l->image))
		pg_log_warning("could not remove image \"%s\": %m", l->image.path);
	else
		l->removed = true;
	Step("load-removed");
}

/* Load pages, which would be kept. */
static void
LoadPages(Loading *l)
{
	Cluster    *c = &l->cluster;
	PCacheFsKind fs_kind;

	PlanPool(l, &fs_kind);
	if (c->options->dry_run)
	{
		l->pages = l->image.header.n_pages;
		return;
	}
	if (!MakePool(l, fs_kind))
	{
		PCachePoolAbortCreate(&l->creation);
		NoteUnfinished(false);
		return;
	}
	FillPool(l);
	l->loaded = true;
	ConcludeByPool(l);
	if (l->verdict.refusal == PCACHE_WARM ||
		l->verdict.refusal == PCACHE_UNKNOWN_CONFIGURATION)
		Discard(l);
}

/*
 * Would the pool gates keep what is in the image, in a pool on media without any flaw?
 * Of c only what the cluster tells is looked at, and which pool there is.
 */
static PCacheVerdict
JudgeImage(const Cluster *c, const Image *image)
{
	const PCacheSuperblock *pool = &c->superblocks.chosen;
	const PCacheSuperblock *sb = &image->superblock;
	PCacheVerdict verdict;
	Judge		judge;

	GatherClusterFacts(c, &judge);
	judge.media.blocks = PCACHE_MEDIA_CLEAN;
	judge.facts.media = &judge.media;
	judge.facts.file_size = sb->pool_size;
	verdict = PCachePoolGate(sb, &judge.facts);
	if (verdict.refusal == PCACHE_WARM && sb->state == PCACHE_STATE_CLEAN)
		return verdict;
	if (verdict.refusal == PCACHE_WARM)
		return PCacheRefuse(PCACHE_COLD_IMAGE,
							_("it is not the image of a pool that was saved by a clean shutdown"));
	if (WhyForeign(&c->superblocks, c->control) == NULL && pool->format_version == PCACHE_FORMAT_VERSION &&
		memcmp(sb->pool_uuid, pool->pool_uuid, PCACHE_UUID_LEN) == 0 &&
		pool->incarnation != 0 && sb->incarnation != pool->incarnation)
		return PCacheRefuse(verdict.refusal,
							_("the server has been run since it was saved (%s)"), verdict.why.message);
	return verdict;
}

/* Load what is in the open image, if it would be kept. */
static void
LoadImage(Loading *l)
{
	const Cluster *c = &l->cluster;
	PCacheVerdict *verdict = &l->verdict;
	PCacheError why;

	*verdict = JudgeConfiguration(&c->conf);
	if (verdict->refusal == PCACHE_OFF)
		return;
	if (!SettingsAllowPool(c, &verdict->why))
	{
		verdict->refusal = PCacheWithoutPool(c->conf.required);
		return;
	}
	*verdict = JudgeImage(c, &l->image);
	why = verdict->why;
	if (verdict->refusal != PCACHE_WARM)
		snprintf(verdict->why.message, sizeof(why.message), _("image \"%s\": %s"),
				 l->image.path, why.message);
	else
		LoadPages(l);
}

static void
PrintResult(const Loading *l)
{
	const PCacheOptions *options = l->cluster.options;
	uint64		saved = l->image.superblock.saved_pages;
	bool		would_be_warm = options->dry_run && l->verdict.refusal == PCACHE_WARM;
	bool		loads = l->loaded || (options->dry_run && l->pages > 0);

	if (options->dry_run)
		Text("%s", would_be_warm ?
			 _("Dry run: nothing was changed.  This would be done:\n\n") :
			 _("Dry run: nothing was changed, and nothing would be.\n\n"));
	PrintField(NULL, "dry_run", AsBoolean(options->dry_run));
	PrintField("pool", "pool", AsString(l->pool));
	PrintField("image", "image", AsString(l->image.path));
	PrintField(NULL, "already_warm", AsBoolean(l->already));
	PrintField(NULL, "loaded", AsBoolean(l->loaded));
	PrintField(loads ? "loaded" : NULL, "pages_loaded", AsPages(l->pages));
	PrintField(loads ? "image size" : NULL, "image_size", AsBytes(l->image.header.image_size));
	PrintField(l->damaged_chunks > 0 ? "damaged chunks" : NULL, "damaged_chunks",
			   Shown(AsNumber(l->damaged_chunks),
					 psprintf("%llu with %llu pages", (unsigned long long) l->damaged_chunks,
							  (unsigned long long) l->damaged_pages)));
	PrintField(NULL, "damaged_pages", AsNumber(l->damaged_pages));
	PrintField(l->bad_slots > 0 ? "on bad blocks" : NULL, "pages_on_bad_blocks", AsNumber(l->bad_slots));
	PrintField(NULL, "pages_in_pool", AsNumber(saved));
	PrintField(l->loaded ? "time" : NULL, "seconds", AsSeconds(l->seconds));
	PrintField(l->removed ? "image removed" : NULL, "image_removed", Shown(AsBoolean(l->removed), "yes"));
	if (!would_be_warm)
		Text("\n");
	PrintVerdict(&l->verdict, would_be_warm ? NULL : FormatKept(l->kept, Max(saved, l->kept)));
	PrintField(NULL, "pages_kept", AsNumber(l->kept));
}

int
DoLoad(const PCacheOptions *options)
{
	Loading		l = {0};
	Cluster    *c = &l.cluster;
	ImageOpened opened;
	PCacheError err;
	double		start = NowMs();

	LocateImage(options, &l.image);
	OpenCluster(options, c);
	if (c->opened == PCACHE_OPEN_MISSING)
		snprintf(c->pool.path, sizeof(c->pool.path), "%s/%s", c->directory, PCACHE_POOL_FILE);
	strlcpy(l.pool, c->pool.path, sizeof(l.pool));

	if (PoolIsWarm(&l))
		l.already = true;
	else if ((opened = OpenImage(&l.image, &err)) == IMAGE_MISSING)
		l.verdict = PCacheRefuse(PCACHE_COLD_IMAGE, _("there is no image \"%s\""), l.image.path);
	else if (opened == IMAGE_UNUSABLE)
		FailWith(&err);
	else
		LoadImage(&l);
	CloseImage(&l.image);
	PCachePoolClose(&c->pool);

	l.seconds = (NowMs() - start) / 1000;
	BeginOutput(options);
	PrintResult(&l);
	EndOutput();
	return ExitStatus(&l.verdict);
}
