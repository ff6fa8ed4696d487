/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  pg_pcache rebuild: give the pool other memory where it has bad blocks.
 *
 * All else that can be wrong with a pool is mended by the next start.  What is around a bad
 * block stays, and a page that touches one is lost.
 *
 * All is looked at before anything is changed.  At any point of this the tool, or the
 * machine, may die.  So the pool is durably "empty" meanwhile, and the next start cold.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/rebuild.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "pg_pcache.h"

/* In which parts of this size metadata is saved around a bad block. */
#define SECTOR_SIZE		512

/* Less than the kernel's page is never given back. */
#define MIN_UNIT		4096

/* What was mended, or would be. */
typedef struct RebuildResult
{
	uint32		ranges;			/* of bad blocks */
	uint64		bytes;			/* in them */
	uint64		still_bad;		/* in bytes */
	uint64		lost;			/* pages */
	PCacheVerdict verdict;		/* not in a dry run, as what follows */
	uint64		kept;			/* pages */
} RebuildResult;

/*
 * Only the pool that goes with the data directory is touched, and only one whose superblock
 * tells what is where.
 */
static void
RefuseUnusable(const Cluster *c)
{
	const char *detail = WhyForeign(&c->superblocks, c->control);
	bool		is_foreign = detail != NULL;
	PCacheVerdict verdict;
	PCacheError err;

	if (!is_foreign && SuperblockIsUsable(c))
		return;
	if (!PCachePoolMayFormat(&c->pool, &err))
		FailWith(&err);
	verdict = AskPoolGates(c);
	if (!is_foreign)
		detail = verdict.why.message;
	pg_log_error("persistent cache pool \"%s\" cannot be repaired", c->pool.path);
	pg_log_error_detail("%s", detail);
	if (is_foreign)
		pg_log_error_hint("If no other cluster uses the pool, run \"pg_pcache init --force\" to have a new, empty one.");
	else
		pg_log_error_hint("To have a new, empty pool, run \"pg_pcache init --force\".");
	exit(EXIT_ERROR);
}

static bool
SuperblockIsBad(const Cluster *c, uint64 offset)
{
	return PCacheMediaRangeIsBad(&c->judge.media, offset, PCACHE_SUPERBLOCK_SIZE);
}

/*
 * The ranges to punch: the bad ones, extended to what the file system can
 * give back.  The list is malloc'd.
 */
static PCacheRangeList
RangesToClear(const Cluster *c)
{
	const PCacheRangeList *bad = &c->judge.media.bad;
	PCacheRangeList list = {0};
	struct statvfs vfs;
	uint64		unit;

	if (bad->truncated ||
		(SuperblockIsBad(c, PCACHE_SUPERBLOCK_OFFSET) && SuperblockIsBad(c, PCACHE_COPY_OFFSET)))
		Refuse(_("To have a new, empty pool, run \"pg_pcache init --force\"."),
			   bad->truncated ? _("persistent cache pool \"%s\" has too many bad blocks to list") :
			   _("both superblocks of persistent cache pool \"%s\" are on bad blocks"), c->pool.path);
	if (fstatvfs(c->pool.fd, &vfs) < 0)
		pg_fatal("could not stat file system of \"%s\": %m", c->pool.path);
	unit = Max(vfs.f_bsize, MIN_UNIT);
	for (uint32 i = 0; i < bad->n_ranges; i++)
	{
		uint64		start = bad->ranges[i].offset - bad->ranges[i].offset % unit;
		uint64		end = TYPEALIGN64(unit, bad->ranges[i].offset + bad->ranges[i].length);

		end = Min(end, c->pool.file_size);
		if (start < end)
			PCacheRangeAdd(&list, start, end - start);
	}
	PCacheRangeMerge(&list);
	return list;
}

/* The superblocks get this state, as far as they can be written to. */
static void
SetState(Cluster *c, uint32 state)
{
	const bool	bad[2] = {
		SuperblockIsBad(c, PCACHE_SUPERBLOCK_OFFSET), SuperblockIsBad(c, PCACHE_COPY_OFFSET)
	};

	c->superblocks.chosen.state = state;
	if (!PCacheSuperblockStoreAvoiding(&c->pool.map, &c->superblocks.chosen, bad))
		FailToWrite(c);
}

/*
 * What is to be in a part of the metadata that is exchanged: what can still be read, and
 * otherwise zeros, with which a superblock is damaged and a header speaks of no page.  But
 * nobody knows what notes said that could not be read.  They are filled with 0xFF, with which
 * the next start is cold.  What was last seen of the cluster is damaged as well.
 */
static char *
SaveMetadata(const Cluster *c, uint64 offset, uint64 length)
{
	char	   *saved = pg_malloc0(Max(length, 1));

	for (uint64 done = 0; done < length; done += SECTOR_SIZE)
	{
		uint64		start = Max(offset + done, PCACHE_SUSPECT_OFFSET);
		uint64		end = Min(offset + done + SECTOR_SIZE, PCACHE_NOTES_END);

		if (!PCacheMediaRangeIsBad(&c->judge.media, offset + done, SECTOR_SIZE) &&
			PCacheReadExact(c->pool.fd, saved + done, SECTOR_SIZE, offset + done))
			continue;
		memset(saved + done, 0, SECTOR_SIZE);
		if (start < end)
			memset(saved + (start - offset), 0xFF, end - start);
	}
	return saved;
}

static void
PunchAndAllocate(const Cluster *c, const PCacheByteRange *range)
{
	int			rc;

	do
	{
		rc = fallocate(c->pool.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   range->offset, range->length);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		pg_fatal("could not punch a hole of %llu bytes at offset %llu into file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, c->pool.path);
	Step("punched");
	do
	{
		rc = posix_fallocate(c->pool.fd, range->offset, range->length);
	} while (rc == EINTR);
	if (rc != 0)
	{
		errno = rc;
		pg_fatal("could not allocate %llu bytes at offset %llu of file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, c->pool.path);
	}
	Step("allocated");
}

/* Exchange a part of the file, and forget what the pool remembers of memory errors there. */
static void
ClearRange(Cluster *c, const PCacheByteRange *range)
{
	uint64		blocks_offset = c->superblocks.chosen.blocks_offset;
	uint64		length = Min(range->length, blocks_offset - Min(range->offset, blocks_offset));
	char	   *saved = SaveMetadata(c, range->offset, length);

	PunchAndAllocate(c, range);
	if (!PCacheForgetMemoryErrors(&c->pool.map, range->offset, range->length))
		FailToWrite(c);
	Step("forgotten");
	/* what is still bad must not be touched */
	QueryMedia(&c->pool, &c->judge.media);
	if (PCacheMediaRangeIsBad(&c->judge.media, range->offset, length))
		Refuse(_("Create a pool on other media with \"pg_pcache init --force\"."),
			   _("could not clear bad blocks at offset %llu of persistent cache pool \"%s\""),
			   (unsigned long long) range->offset, c->pool.path);
	PCacheMemcpyNodrain(&c->pool.map, c->pool.map.base + range->offset, saved, length);
	DrainPool(c);
	Step("put-back");
	pg_free(saved);
}

/* Free the slots whose page was punched, or whose entry was bad. */
static void
FreeSlots(const Cluster *c, const PCacheRangeList *punched, const PCacheRangeList *bad)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	PCacheDescriptor free_slot;

	PCacheDescriptorSetFree(&free_slot);
	for (uint64 slot = 0; slot < sb->capacity; slot++)
	{
		if (!PCacheRangeOverlaps(punched, sb->blocks_offset + slot * BLCKSZ, BLCKSZ) &&
			!PCacheRangeOverlaps(bad, PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor),
								 sizeof(PCacheDescriptor)))
			continue;
		PCacheDescriptorStore(&c->pool.map, MappedDescriptor(c, slot), &free_slot);
		/* the start after a kill makes its entries of the headers */
		if (!PCacheForgetHeader(&c->pool, sb, slot))
			FailToWrite(c);
	}
	DrainPool(c);
	Step("slots-freed");
}

static uint64
CountBytes(const PCacheRangeList *list)
{
	uint64		bytes = 0;

	for (uint32 i = 0; i < list->n_ranges; i++)
		bytes += list->ranges[i].length;
	return bytes;
}

/* Clear bad blocks, and what the pool remembers of memory errors. */
static void
ClearBadBlocks(Cluster *c, RebuildResult *result)
{
	PCacheMediaReport *media = &c->judge.media;
	PCacheRangeList punched = RangesToClear(c);
	PCacheRangeList bad = {0};
	uint32		state = c->superblocks.chosen.state;
	PCacheError err;

	for (uint32 i = 0; i < media->bad.n_ranges; i++)
		PCacheRangeAdd(&bad, media->bad.ranges[i].offset, media->bad.ranges[i].length);
	result->ranges = bad.n_ranges;
	result->bytes = CountBytes(&bad);
	if (c->options->dry_run || punched.n_ranges == 0)
		return;

	if (!PCachePoolMap(&c->pool, &err))
		FailWith(&err);
	SetState(c, PCACHE_STATE_EMPTY);
	Step("marked");
	for (uint32 i = 0; i < punched.n_ranges; i++)
		ClearRange(c, &punched.ranges[i]);
	FreeSlots(c, &punched, &bad);
	SetState(c, state);
	Step("unmarked");
	free(punched.ranges);
	free(bad.ranges);

	result->still_bad = media->bad.truncated ? result->bytes : CountBytes(&media->bad);
	if (result->still_bad > 0)
	{
		pg_log_warning("%llu bytes of persistent cache pool \"%s\" are still bad",
					   (unsigned long long) result->still_bad, c->pool.path);
		pg_log_warning_detail("The server does not use the slots that they are in.");
	}
}

static void
PrintResult(const Cluster *c, const RebuildResult *result)
{
	bool		dry_run = c->options->dry_run;

	if (dry_run)
		Text(_("Dry run: nothing was changed.  This would be done:\n\n"));
	PrintField(NULL, "dry_run", AsBoolean(dry_run));
	PrintField("pool", "pool", AsString(c->pool.path));
	PrintField("bad blocks", "bad_ranges",
			   Shown(AsNumber(result->ranges),
					 psprintf(ngettext("%s in %u range", "%s in %u ranges", result->ranges),
							  FormatBytes(result->bytes), result->ranges)));
	PrintField(NULL, "bad_bytes", AsBytes(result->bytes));
	PrintField(result->still_bad > 0 ? "still bad" : NULL, "still_bad_bytes",
			   AsBytes(result->still_bad));
	PrintField("lost", "pages_lost", AsPages(result->lost));
	if (dry_run)
		return;
	Text("\n");
	PrintVerdict(&result->verdict, FormatKept(result->kept, result->kept));
	PrintField(NULL, "pages_kept", AsNumber(result->kept));
}

int
DoRebuild(const PCacheOptions *options)
{
	Cluster		c = {0};
	RebuildResult result = {0};

	OpenCluster(options, &c);
	if (c.opened == PCACHE_OPEN_MISSING)
		Refuse(_("Is its file system mounted?  Otherwise run \"pg_pcache init\" to create the pool."),
			   "%s", c.open_error.message);
	RefuseUnusable(&c);
	/* all slots: those beyond shared_buffers may be on bad blocks, too */
	ScanPages(&c, -1, false, &c.scan);
	result.lost = c.scan.counts[PCACHE_PAGE_BAD_BLOCK];
	ClearBadBlocks(&c, &result);
	if (!options->dry_run)
	{
		result.verdict = ForetellChanged(&c);
		result.kept = c.scan.verdicts != NULL ? c.scan.counts[PCACHE_PAGE_KEPT] : 0;
	}

	BeginOutput(options);
	PrintResult(&c, &result);
	EndOutput();
	PCachePoolClose(&c.pool);
	return options->dry_run ? EXIT_WARM : ExitStatus(&result.verdict);
}
