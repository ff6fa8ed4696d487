/*-------------------------------------------------------------------------
 *
 * save.c
 *	  pg_pcache save: write an image of a cleanly stopped pool.
 *
 * Only what the next start would keep is saved, so all gates are asked first.
 * The pool is read with read(), so that a bad block is an error of one page.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/save.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "image.h"
#include "workers.h"

/* Everything about a save on its way. */
typedef struct Saving
{
	Cluster		cluster;		/* the pool, and what it goes with */
	Image		image;
	uint64		next_offset;	/* in the image; of the next chunk */

	bool		host_stays;		/* --if-host-stops: the rest is not known */
	PCacheVerdict verdict;		/* warm if there is something to save */
	uint32		compression;	/* PCacheImageCompression */
	uint64		pages;			/* in the image */
	uint64		unreadable;		/* not in it; counted by the threads */
	uint64		raw_size;		/* of the chunks uncompressed */
	double		seconds;
} Saving;

/*
 * Is the host going down?  Only systemd knows.
 */
static bool
HostStops(void)
{
	char		state[64];
	FILE	   *pipe;

	/* the exit status says no more than that the state is not "running" */
	fflush(NULL);
	pipe = popen("systemctl is-system-running 2>/dev/null", "r");
	if (pipe == NULL)
		pg_fatal("could not execute command \"%s\": %m", "systemctl");
	if (fgets(state, sizeof(state), pipe) == NULL)
		state[0] = '\0';
	(void) pclose(pipe);
	state[strcspn(state, "\n")] = '\0';

	/*
	 * else it is "unknown" (the bus does not answer) or "offline" (no
	 * systemd)
	 */
	if (strcmp(state, "initializing") != 0 && strcmp(state, "starting") != 0 &&
		strcmp(state, "running") != 0 && strcmp(state, "degraded") != 0 &&
		strcmp(state, "maintenance") != 0 && strcmp(state, "stopping") != 0)
		Refuse(psprintf(_("Option %s needs systemd.  Leave it out to save the pool in any case."), "--if-host-stops"),
			   _("could not find out whether the host is going down"));
	return strcmp(state, "stopping") == 0;
}

/*
 * Read the pages of a chunk, whose descriptors are the first n in raw, into it
 * behind where n descriptors end.  Those that can't be read are left out, and
 * what remains is moved together.  Returns how many there are.
 */
static uint32
ReadPages(Saving *s, const ImageBuffer *raw, uint32 n)
{
	PCacheDescriptor *descs = (PCacheDescriptor *) raw->data;
	char	   *pages = raw->data + ChunkPagesOffset(n);
	uint32		kept = 0;
	uint32		run;

	for (uint32 i = 0; i < n; i += run)
	{
		uint64		offset = s->cluster.superblocks.chosen.blocks_offset + (uint64) descs[i].slot * BLCKSZ;
		bool		all;

		/* neighbours in one go, and one by one if that fails */
		for (run = 1; i + run < n && descs[i + run].slot == descs[i].slot + run;)
			run++;
		all = PCacheReadExact(s->cluster.pool.fd, pages + (size_t) kept * BLCKSZ,
							  (size_t) run * BLCKSZ, offset);
		for (uint32 j = 0; j < run; j++)
		{
			if (!all && !PCacheReadExact(s->cluster.pool.fd, pages + (size_t) kept * BLCKSZ, BLCKSZ,
										 offset + (uint64) j * BLCKSZ))
				continue;
			descs[kept++] = descs[i + j];
		}
	}
	if (kept < n && kept > 0)
		memmove(raw->data + ChunkPagesOffset(kept), pages, (size_t) kept * BLCKSZ);
	AddToCount(&s->unreadable, n - kept);
	return kept;
}

/* Save the pages of a range of slots. */
static void
SaveChunk(Work *work, uint64 number, ImageBuffer *raw, ImageBuffer *stored)
{
	Saving	   *s = work->arg;
	Image	   *image = &s->image;
	const PCacheImageHeader *header = &image->header;
	PCacheImageEntry *entry = &image->entries[number];
	uint64		first = number * header->slots_per_chunk;
	uint32		n_slots = Min(header->slots_per_chunk, s->cluster.superblocks.chosen.slots_used - first);
	PCacheDescriptor *descs = (PCacheDescriptor *) raw->data;
	ImageBuffer *out = raw;
	size_t		size;
	uint32		n = 0;

	/* what the gates have read may be another page's by now only by an error */
	(void) PCacheReadDescriptors(s->cluster.pool.fd, first, n_slots, descs);
	for (uint32 i = 0; i < n_slots; i++)
	{
		if (s->cluster.scan.verdicts[first + i] == PCACHE_PAGE_KEPT &&
			PCacheDescriptorIsIntact(&descs[i], first + i))
			descs[n++] = descs[i];
	}
	n = ReadPages(s, raw, n);
	AddToCount(&work->done_bytes, (uint64) n_slots * BLCKSZ);
	if (n == 0)
		return;

	size = ChunkRawSize(n);
	memset(&descs[n], 0, ChunkPagesOffset(n) - n * sizeof(PCacheDescriptor));
	if (header->compression != PCACHE_IMAGE_PLAIN)
	{
		out = stored;
		if (!CompressChunk(header->compression, raw, ChunkRawSize(n), out, &size))
		{
			FailWork(work, _("could not compress the image"));
			return;
		}
	}
	memset(out->data + size, 0, ImageAlign(size) - size);

	entry->offset = __atomic_fetch_add(&s->next_offset, ImageAlign(size), __ATOMIC_RELAXED);
	entry->first_slot = first;
	entry->n_pages = n;
	entry->stored_size = size;
	ChunkDigest(out->data, size, entry->digest);
	if (!WriteImage(image, out->data, ImageAlign(size), entry->offset))
	{
		FailWork(work, _("could not write image \"%s\": %m"), image->path);
		return;
	}
	Step("save-chunk");
}

/* Ask now for the room that the image takes, if that is known. */
static void
AllocateSpace(const Saving *s, uint64 size)
{
	int			rc;

	if (s->image.header.compression != PCACHE_IMAGE_PLAIN)
		return;
	do
	{
		rc = posix_fallocate(s->image.fd, 0, size);
	} while (rc == EINTR);
	if (rc == 0 || rc == EINVAL || rc == EOPNOTSUPP)
		return;
	errno = rc;
	pg_fatal("could not allocate %llu bytes for image \"%s\": %m",
			 (unsigned long long) size, s->image.path);
}

/* Write all of it. */
static void
Save(Saving *s)
{
	Image	   *image = &s->image;
	uint64		slots_used = s->cluster.superblocks.chosen.slots_used;
	uint32		n_chunks = (slots_used + PCACHE_IMAGE_SLOTS_PER_CHUNK - 1) / PCACHE_IMAGE_SLOTS_PER_CHUNK;
	uint32		n = 0;
	Work		work = {
		.n_workers = s->cluster.options->jobs,
		.n_tasks = n_chunks,
		.total_bytes = slots_used * BLCKSZ,
		.progress = s->cluster.options->progress,
		.image = image,
		.task = SaveChunk,
		.arg = s,
	};

	CreateImage(image, s->cluster.options->pgdata, s->compression, &s->cluster.superblocks.chosen,
				n_chunks);
	AllocateSpace(s, PCACHE_IMAGE_CHUNKS_OFFSET + s->cluster.scan.counts[PCACHE_PAGE_KEPT] * BLCKSZ);
	s->next_offset = PCACHE_IMAGE_CHUNKS_OFFSET;
	if (!DoWork(&work))
		pg_fatal("%s", work.failure);

	/* ranges without a page have no entry */
	for (uint32 i = 0; i < n_chunks; i++)
	{
		if (image->entries[i].n_pages == 0)
			continue;
		s->pages += image->entries[i].n_pages;
		s->raw_size += ChunkRawSize(image->entries[i].n_pages);
		image->entries[n++] = image->entries[i];
	}
	memset(&image->entries[n], 0, (n_chunks - n) * sizeof(PCacheImageEntry));
	image->header.n_chunks = n;
	image->header.n_pages = s->pages;
	image->header.raw_size = s->raw_size;
	CompleteImage(image, s->next_offset);

	/*
	 * who was started with the cache off meanwhile would not have waited for
	 * us
	 */
	CheckClusterUnchanged(s->cluster.options, s->cluster.control);
	PublishImage(image);
	CloseImage(image);
}

/* Is there something to save?  If not, the verdict tells why. */
static bool
IsWorthSaving(Saving *s)
{
	Cluster    *c = &s->cluster;
	PCacheVerdict *verdict = &s->verdict;

	if (c->opened == PCACHE_OPEN_MISSING)
		*verdict = PCacheRefuse(PCACHE_UNAVAILABLE, "%s", c->open_error.message);
	else if (ModeIsOff(&c->conf))
		*verdict = JudgeConfiguration(&c->conf);
	else
	{
		*verdict = AskPoolGates(c);
		if (verdict->refusal == PCACHE_WARM && c->superblocks.chosen.state != PCACHE_STATE_CLEAN)
			*verdict = PCacheRefuse(PCACHE_COLD_DIRTY,
									_("the server was not shut down cleanly, and memory that is loaded does not tell what was in change"));
	}
	if (verdict->refusal != PCACHE_WARM)
		return false;
	/* all slots: what the next start will have room for is not known here */
	ScanPages(c, -1, false, &c->scan);
	*verdict = JudgePages(&c->superblocks.chosen, &c->scan);
	return verdict->refusal == PCACHE_WARM;
}

static void
PrintResult(const Saving *s)
{
	const Cluster *c = &s->cluster;
	bool		dry_run = c->options->dry_run;
	bool		nothing = s->verdict.refusal != PCACHE_WARM;
	const char *detail = s->verdict.why.message;
	bool		done = !nothing && !dry_run;

	PrintField(NULL, "dry_run", AsBoolean(dry_run));
	PrintField(NULL, "host_stays", AsBoolean(s->host_stays));
	if (s->host_stays)
	{
		Text(_("The host is not going down, so nothing was saved.\n"));
		return;
	}
	if (dry_run && !nothing)
		Text(_("Dry run: nothing was changed.  This would be done:\n\n"));
	PrintField("pool", "pool", AsString(c->opened == PCACHE_OPEN_OK ? c->pool.path : c->directory));
	if (nothing)
		PrintField("image", "image", Shown(AsString(NULL), psprintf("none: %s", detail)));
	else
		PrintField("image", "image", AsString(s->image.path));
	PrintField(NULL, "detail", AsString(nothing ? detail : NULL));
	PrintField(nothing ? NULL : "compression", "compression", AsString(CompressionName(s->compression)));
	PrintField(NULL, "pages_in_pool", AsNumber(c->scan.saved));
	PrintField(nothing ? NULL : "pages", "pages_saved",
			   Shown(AsNumber(s->pages), psprintf("%llu of %llu", (unsigned long long) s->pages,
												  (unsigned long long) c->scan.saved)));
	PrintField(done && s->unreadable > 0 ? "unreadable" : NULL, "pages_unreadable", AsNumber(s->unreadable));
	PrintField(done ? "image size" : NULL, "image_size", AsBytes(s->image.header.image_size));
	PrintField(done ? "uncompressed" : NULL, "uncompressed_size", AsBytes(s->raw_size));
	PrintField(done ? "time" : NULL, "seconds", AsSeconds(s->seconds));
}

/* What is in the data directory is copied by base backups. */
static void
RefusePgdata(const PCacheOptions *options, const Image *image)
{
	if (!PCacheIsInside(image->dir.path, options->pgdata))
		return;
	Refuse(psprintf(_("Base backups would copy it.  Choose another place with option %s."), "--to"),
		   _("image \"%s\" would be inside the data directory"), image->path);
}

int
DoSave(const PCacheOptions *options)
{
	Saving		s = {.cluster.options = options};
	double		start = NowMs();

	s.compression = ParseCompression(options->compress);
	s.host_stays = options->if_host_stops && !HostStops();
	if (!s.host_stays)
	{
		LocateImage(options, &s.image);
		RefusePgdata(options, &s.image);
		OpenCluster(options, &s.cluster);
		if (IsWorthSaving(&s) && !options->dry_run)
			Save(&s);
		else
			s.pages = s.verdict.refusal == PCACHE_WARM ? s.cluster.scan.counts[PCACHE_PAGE_KEPT] : 0;
		PCachePoolClose(&s.cluster.pool);
	}
	s.seconds = (NowMs() - start) / 1000;

	BeginOutput(options);
	PrintResult(&s);
	EndOutput();
	return ExitStatus(&s.verdict);
}
