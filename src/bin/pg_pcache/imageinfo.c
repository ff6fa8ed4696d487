/*-------------------------------------------------------------------------
 *
 * imageinfo.c
 *	  pg_pcache status and verify of an image.
 *
 * status tells what is in it.  verify reads all of it, and asks the pool gates
 * whether "pg_pcache load" would load it now.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imageinfo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "image.h"
#include "workers.h"

/* What the threads of verify share. */
typedef struct Checking
{
	Image	   *image;
	ImageInfo  *info;			/* counted when a worker ends */
} Checking;

/* What one of them has. */
typedef struct CheckWorker
{
	ImageBuffer raw;
	ImageBuffer stored;
	uint64		damaged_chunks;
	uint64		damaged_pages;
} CheckWorker;

static void
BeginWorker(Work *work, void *state)
{
	const Checking *c = work->arg;
	CheckWorker *worker = state;

	AllocateChunkBuffers(c->image, &worker->raw, &worker->stored);
}

static void
CheckChunk(Work *work, uint64 number, void *state)
{
	const Checking *c = work->arg;
	CheckWorker *worker = state;
	const PCacheImageEntry *entry = &c->image->entries[number];
	char		why[256];

	if (!ReadChunk(c->image, entry, &worker->stored, &worker->raw, why, sizeof(why)))
	{
		WarnWork(work, _("chunk %llu of image \"%s\" %s, which costs %u pages"),
				 (unsigned long long) number, c->image->path, why, entry->n_pages);
		worker->damaged_chunks++;
		worker->damaged_pages += entry->n_pages;
	}
	NoteProgress(work, (uint64) entry->n_pages * BLCKSZ);
}

static void
EndWorker(Work *work, void *state)
{
	const Checking *c = work->arg;
	CheckWorker *worker = state;

	c->info->damaged_chunks += worker->damaged_chunks;
	c->info->damaged_pages += worker->damaged_pages;
	free(worker->raw.data);
	free(worker->stored.data);
}

/* Read all chunks. */
static void
CheckChunks(const PCacheOptions *options, Image *image, ImageInfo *info)
{
	Checking	checking = {.image = image,.info = info};
	Work		work = {
		.n_workers = 1,
		.n_tasks = image->header.n_chunks,
		.total_bytes = image->header.n_pages * BLCKSZ,
		.progress = options->progress,
		.state_size = sizeof(CheckWorker),
		.begin = BeginWorker,
		.task = CheckChunk,
		.end = EndWorker,
		.arg = &checking,
	};

	if (!DoWork(&work))
		pg_fatal("%s", work.failure);
}

/*
 * Would the pool gates keep what is in the image, in a pool on media without any flaw?
 * Of r only what the cluster tells is looked at, and which pool there is.
 */
PCacheVerdict
JudgeImage(const Rebuild *r, const Image *image)
{
	const PCacheSuperblock *pool = &r->superblocks.chosen;
	const PCacheSuperblock *sb = &image->superblock;
	PCacheVerdict verdict;
	Judge		judge;

	GatherClusterFacts(r, &judge);
	judge.media.blocks = PCACHE_MEDIA_CLEAN;
	judge.facts.media = &judge.media;
	judge.facts.file_size = sb->pool_size;
	verdict = PCachePoolGate(sb, &judge.facts);
	if (verdict.refusal == PCACHE_WARM && sb->state == PCACHE_STATE_CLEAN)
		return verdict;
	if (verdict.refusal == PCACHE_WARM)
		return PCacheRefuse(PCACHE_COLD_IMAGE,
							_("it is not the image of a pool that was saved by a clean shutdown"));
	if (PoolIsOurs(r) && pool->format_version == PCACHE_FORMAT_VERSION &&
		memcmp(sb->pool_uuid, pool->pool_uuid, PCACHE_UUID_LEN) == 0 &&
		pool->incarnation != 0 && sb->incarnation != pool->incarnation)
		return PCacheRefuse(verdict.refusal,
							_("the server has been run since it was saved (%s)"), verdict.why.message);
	return verdict;
}

/* Would it be loaded, now, and would the server look at it? */
static void
VerifyImage(const PCacheOptions *options, const Image *image, ImageInfo *info)
{
	Rebuild		r = {.options = options};

	r.control = ReadControlFile(options);
	ReadConfiguration(options, &r.conf);
	info->verdict = JudgeImage(&r, image);
	if (info->verdict.refusal != PCACHE_WARM)
		return;
	if (info->damaged_pages == image->header.n_pages)
		info->verdict = PCacheRefuse(PCACHE_COLD_PAGES, _("none of the %llu saved pages can be kept"),
									 (unsigned long long) image->superblock.saved_pages);
	else
		info->verdict = JudgeConfiguration(&r.conf);
}

static void
PrintInfo(const ImageInfo *info)
{
	const PCacheImageHeader *header = &info->image.header;
	const PCacheSuperblock *sb = &info->image.superblock;

	PrintField("image", "image", AsString(info->image.path));
	PrintField("format version", "format_version", AsNumber(header->format_version));
	PrintField("compression", "compression", AsString(CompressionName(header->compression)));
	PrintField("image size", "image_size", AsBytes(header->image_size));
	PrintField("uncompressed", "uncompressed_size", AsBytes(header->raw_size));
	PrintField("chunks", "chunks", AsNumber(header->n_chunks));
	PrintField("pages", "pages",
			   Shown(AsNumber(header->n_pages),
					 psprintf("%llu of %llu", (unsigned long long) header->n_pages,
							  (unsigned long long) sb->saved_pages)));
	PrintField(NULL, "pages_saved", AsNumber(sb->saved_pages));
	PrintField("created", "created", AsTime(header->created_at));
	PrintField("image uuid", "image_uuid", AsString(FormatUuid(header->image_uuid)));
	PrintField("pool uuid", "pool_uuid", AsString(FormatUuid(sb->pool_uuid)));
	PrintField("system identifier", "system_identifier", AsIdentifier(header->system_identifier));
	PrintField("postgresql version", "postgresql_version", AsNumber(header->pg_major));
	PrintField("capacity", "capacity", AsBlocks(sb->capacity));
	PrintField("slots used", "slots_used", AsNumber(sb->slots_used));
	PrintField("checkpoint", "checkpoint",
			   Shown(AsLsn(sb->saved.location),
					 psprintf("%X/%X, redo %X/%X, timeline %u",
							  LSN_FORMAT_ARGS(sb->saved.location),
							  LSN_FORMAT_ARGS(sb->saved.redo), sb->saved.timeline)));
	PrintField("saved", "saved", AsTime(sb->saved_at));
	if (!info->verified)
		return;
	PrintField("damaged chunks", "damaged_chunks",
			   Shown(AsNumber(info->damaged_chunks),
					 psprintf("%llu with %llu pages", (unsigned long long) info->damaged_chunks,
							  (unsigned long long) info->damaged_pages)));
	PrintField(NULL, "damaged_pages", AsNumber(info->damaged_pages));
	Text("\n");
	if (info->verdict.refusal == PCACHE_UNKNOWN_CONFIGURATION)
		Text(_("\"pg_pcache load\" would load it, but how the next start will be is not known: %s.\n"),
			 info->verdict.why.message);
	else if (info->verdict.refusal != PCACHE_WARM)
		Text(_("\"pg_pcache load\" would not load it: %s.\n"), info->verdict.why.message);
	else
		Text(_("\"pg_pcache load\" would load %llu of %llu saved pages.\n"),
			 (unsigned long long) (header->n_pages - info->damaged_pages),
			 (unsigned long long) sb->saved_pages);
	PrintVerdict(&info->verdict, NULL);
}

/* Status and verify with --image; returns the exit status. */
int
ShowImage(const PCacheOptions *options)
{
	ImageInfo	info = {.verified = options->verb == VERB_VERIFY};
	Image	   *image = &info.image;
	PCacheError err;

	LocateImage(options, image);
	switch (OpenImage(image, &err))
	{
		case IMAGE_OPENED:
			break;
		case IMAGE_MISSING:
			pg_fatal("there is no image \"%s\"", image->path);
		case IMAGE_UNUSABLE:
			FailWith(&err);
	}
	if (info.verified)
	{
		RefuseRunningServer(options->pgdata);
		CheckChunks(options, image, &info);
		VerifyImage(options, image, &info);
	}
	BeginOutput(options);
	PrintInfo(&info);
	EndOutput();
	CloseImage(image);
	return ExitStatus(&info.verdict);
}
