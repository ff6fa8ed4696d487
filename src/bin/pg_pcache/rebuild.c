/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  pg_pcache rebuild: mend a pool in place.
 *
 * All is looked at before anything is changed.  Then, each only if asked for
 * or needed: clear bad blocks, format damaged descriptors, restore damaged
 * superblocks, and empty the pool (--reset).
 *
 * At any point of this the tool, or the machine, may die.  Most steps leave
 * the pool valid, since to drop a page is always right.  Where they would not
 * it is first durably marked as "empty", so that the next start is cold; that
 * mark goes last.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/rebuild.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "pg_pcache.h"

/* What was mended, or would be. */
typedef struct RebuildResult
{
	bool		superblock_restored;
	bool		copy_restored;
	ClearedBlocks bad;
	uint64		cut_off_bytes;	/* that the file was short of */
	uint64		formatted;		/* descriptors */
	uint64		lost;			/* of them, to bad blocks or cut off */
	uint64		capacity;		/* in blocks */
	uint64		file_size;
	PCacheVerdict verdict;		/* not in a dry run, as what follows */
	uint64		kept;			/* pages */
} RebuildResult;

/*
 * Only the pool that goes with the data directory is touched, unless the user
 * insists, and then none of its pages is worth anything.
 */
static void
CheckIdentity(const Cluster *c)
{
	const char *foreign = WhyForeign(&c->superblocks, c->control);

	if (foreign == NULL || (c->options->force && c->options->reset))
		return;
	pg_log_error("persistent cache pool \"%s\" does not go with this data directory",
				 c->pool.path);
	pg_log_error_detail("%s", foreign);
	pg_log_error_hint("To make it an empty pool of this cluster, use options %s and %s.",
					  "--reset", "--force");
	exit(EXIT_ERROR);
}

static void
RefuseUnusable(const Cluster *c)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;

	if (SuperblockIsUsable(c) || c->options->reset)
		return;
	pg_log_error("persistent cache pool \"%s\" cannot be repaired", c->pool.path);
	if (c->superblocks.source == PCACHE_SB_NONE)
		pg_log_error_detail("Both superblocks are damaged.  The first one: %s.  The copy: %s.",
							c->superblocks.first_error.message,
							c->superblocks.copy_error.message);
	else if (sb->format_version != PCACHE_FORMAT_VERSION)
		pg_log_error_detail("It has format version %u; this program has %u.",
							sb->format_version, PCACHE_FORMAT_VERSION);
	else
		pg_log_error_detail("%s", PCacheGeometryGate(sb, c->pool.file_size).why.message);
	pg_log_error_hint("To make it an empty pool, use option %s.", "--reset");
	exit(EXIT_ERROR);
}

/* What the pool is to be able to hold. */
static uint64
ChooseCapacity(const Cluster *c)
{
	uint64		capacity;

	if (SuperblockIsUsable(c))
		return c->superblocks.chosen.capacity;
	capacity = PCacheCapacityFor(c->pool.file_size);

	/*
	 * one of an older format may be too short by what the new one needs
	 * beside blocks, and one that was cut off by more
	 */
	if (c->conf.nbuffers >= 0 && capacity < (uint64) c->conf.nbuffers &&
		PCachePoolHasRoom(&c->pool, PCacheComputeGeometry(c->conf.nbuffers, c->pool.page_size).pool_size))
		capacity = c->conf.nbuffers;
	if (capacity == 0)
		Refuse(_("Run \"pg_pcache init --force\" to make a new one."),
			   _("could not determine the size of the pool"));
	return capacity;
}

/* Is this descriptor one that has to be formatted? */
static bool
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
FormatDamaged(Cluster *c, RebuildResult *result)
{
	const PageScan *scan = &c->scan;
	PCacheSuperblock *sb = &c->superblocks.chosen;
	uint32		state = sb->state;
	bool		twins = scan->counts[PCACHE_PAGE_DUPLICATE] > 0;

	for (int verdict = 0; verdict < PCACHE_NUM_PAGE_VERDICTS; verdict++)
	{
		if (IsDamaged(verdict))
			result->formatted += scan->counts[verdict];
	}
	result->lost = scan->counts[PCACHE_PAGE_BAD_BLOCK];
	if (c->options->dry_run || result->formatted == 0)
		return;

	if (twins)
	{
		sb->state = PCACHE_STATE_EMPTY;
		StoreSuperblock(c);
		Step("marked-for-twins");
	}
	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		if (IsDamaged(scan->verdicts[slot]) && !SlotIsBad(c, sb, slot))
		{
			FreeSlot(c, slot);
			ForgetHeader(c, slot);
			Step("slot-formatted");
		}
	}
	DrainPool(c);
	Step("slots-formatted");
	if (twins)
	{
		sb->state = state;
		StoreSuperblock(c);
		Step("unmarked");
	}
}

/* Bad blocks, descriptors and superblocks of a pool that can be repaired. */
static void
Repair(Cluster *c, RebuildResult *result)
{
	bool		dry_run = c->options->dry_run;
	bool		usable = SuperblockIsUsable(c);
	uint64		lost;
	PCacheError err;

	if (usable)
		result->cut_off_bytes = c->superblocks.chosen.pool_size - c->pool.file_size;
	if (usable && !dry_run && !c->options->reset &&
		(result->cut_off_bytes > 0 || PCachePoolHasHoles(&c->pool)))
	{
		if (!PCachePoolRestoreSize(&c->pool, &c->superblocks.chosen, false, &lost, &err))
			FailWith(&err);
		Step("size-restored");
	}
	result->superblock_restored = usable && !c->superblocks.first_intact;
	result->copy_restored = usable && !c->superblocks.copy_intact;
	if (!dry_run)
		MapPool(c);
	ClearBadBlocks(c, &result->bad);
	if (!usable || c->options->reset)
		return;
	if (!dry_run && result->bad.ranges > 0)
	{
		PCacheSuperblocks now;

		PCacheReadSuperblocks(c->pool.fd, &now);
		result->superblock_restored |= !now.first_intact;
		result->copy_restored |= !now.copy_intact;
	}
	if (!dry_run && (result->superblock_restored || result->copy_restored))
	{
		StoreSuperblock(c);
		Step("superblock-restored");
	}
	FormatDamaged(c, result);
}

static void
PrintSuperblock(const char *label, const char *key, bool restored, bool reset)
{
	PrintField(label, key, Shown(AsBoolean(restored), restored ? "restored" :
								 reset ? "formatted" : "intact"));
}

static void
PrintResult(const Cluster *c, const RebuildResult *result)
{
	bool		dry_run = c->options->dry_run;
	bool		reset = c->options->reset;

	if (dry_run)
		Text(_("Dry run: nothing was changed.  This would be done:\n\n"));
	PrintField(NULL, "dry_run", AsBoolean(dry_run));
	PrintField("pool", "pool", AsString(c->pool.path));
	PrintSuperblock("superblock", "superblock_restored",
					result->superblock_restored, reset);
	PrintSuperblock("superblock copy", "superblock_copy_restored",
					result->copy_restored, reset);
	PrintField("bad blocks", "bad_ranges",
			   Shown(AsNumber(result->bad.ranges),
					 psprintf(ngettext("%s in %u range", "%s in %u ranges", result->bad.ranges),
							  FormatBytes(result->bad.bytes), result->bad.ranges)));
	PrintField(NULL, "bad_bytes", AsBytes(result->bad.bytes));
	PrintField(result->bad.still_bad > 0 ? "still bad" : NULL, "still_bad_bytes",
			   AsBytes(result->bad.still_bad));
	PrintField(result->cut_off_bytes > 0 ? "cut off" : NULL, "cut_off_bytes",
			   AsBytes(result->cut_off_bytes));
	PrintField("descriptors formatted", "descriptors_formatted", AsNumber(result->formatted));
	PrintField("lost", "pages_lost", AsPages(result->lost));
	PrintField(reset ? "reset" : NULL, "reset",
			   Shown(AsBoolean(reset), "all pages dropped"));
	PrintField("capacity", "capacity", AsBlocks(result->capacity));
	PrintField("cached data", "cached_data", AsBytes(result->capacity * BLCKSZ));
	PrintField("file size", "file_size", AsBytes(result->file_size));
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
	PCacheError err;

	OpenCluster(options, &c);
	if (c.opened == PCACHE_OPEN_MISSING)
		Refuse(_("Is its file system mounted?  Otherwise run \"pg_pcache init\" to create the pool."),
			   "%s", c.open_error.message);
	CheckIdentity(&c);
	if (options->reset && !PCachePoolMayFormat(&c.pool, &err))
		FailWith(&err);
	RefuseUnusable(&c);
	result.capacity = ChooseCapacity(&c);
	/* all slots: verdicts beyond shared_buffers matter, too */
	if (SuperblockIsUsable(&c))
		ScanPages(&c, -1, false, &c.scan);

	Repair(&c, &result);
	if (options->reset && !options->dry_run)
		EmptyPool(&c.pool, &c.superblocks, c.control, result.capacity);
	result.file_size = options->dry_run ? PCacheComputeGeometry(result.capacity, c.pool.page_size).pool_size :
		c.pool.file_size;
	if (!options->dry_run)
	{
		result.verdict = ForetellChanged(&c);
		result.kept = c.scan.verdicts != NULL ? c.scan.counts[PCACHE_PAGE_KEPT] : 0;
	}

	BeginOutput(options);
	PrintResult(&c, &result);
	EndOutput();
	PCachePoolClose(&c.pool);

	if (options->dry_run || options->reset)
		return EXIT_WARM;
	return ExitStatus(&result.verdict);
}
