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
 * it is first durably marked as "attaching", as it is while a server starts,
 * so that the next start is cold; that mark goes last.
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
#include "rebuild.h"

/*
 * Only the pool that goes with the data directory is touched, unless the user
 * insists, and then none of its pages is worth anything.
 */
static void
CheckIdentity(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;
	const PCacheOptions *options = r->options;
	bool		known = r->superblocks.source != PCACHE_SB_NONE;
	char		detail[1024];

	if (known && sb->system_identifier != r->control->system_identifier)
		snprintf(detail, sizeof(detail),
				 _("It belongs to another cluster, with system identifier %llu; this one has %llu."),
				 (unsigned long long) sb->system_identifier,
				 (unsigned long long) r->control->system_identifier);
	else if (!known)
		snprintf(detail, sizeof(detail),
				 _("Its superblock is damaged, so the cluster it belongs to is not known."));
	else
		return;

	if (options->force && options->reset)
		return;
	pg_log_error("persistent cache pool \"%s\" does not go with this data directory",
				 r->pool.path);
	pg_log_error_detail("%s", detail);
	pg_log_error_hint("To make it an empty pool of this cluster, use options %s and %s.",
					  "--reset", "--force");
	exit(EXIT_ERROR);
}

static void
RefuseUnusable(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;

	if (SuperblockIsUsable(r) || r->options->reset)
		return;
	pg_log_error("persistent cache pool \"%s\" cannot be repaired", r->pool.path);
	if (r->superblocks.source == PCACHE_SB_NONE)
		pg_log_error_detail("Both superblocks are damaged.  The first one: %s.  The copy: %s.",
							r->superblocks.first_error.message,
							r->superblocks.copy_error.message);
	else if (sb->format_version != PCACHE_FORMAT_VERSION)
		pg_log_error_detail("It has format version %u; this program has %u.",
							sb->format_version, PCACHE_FORMAT_VERSION);
	else
		pg_log_error_detail("%s", PCacheGeometryGate(sb, r->pool.file_size).why.message);
	pg_log_error_hint("To make it an empty pool, use option %s.", "--reset");
	exit(EXIT_ERROR);
}

/* What the pool is to be able to hold. */
static uint64
ChooseCapacity(const Rebuild *r)
{
	uint64		capacity;

	if (SuperblockIsUsable(r))
		return r->superblocks.chosen.capacity;
	capacity = PCacheCapacityFor(r->pool.file_size);

	/*
	 * one of an older format may be too short by what the new one needs
	 * beside blocks, and one that was cut off by more
	 */
	if (r->conf.nbuffers >= 0 && capacity < (uint64) r->conf.nbuffers &&
		PCachePoolHasRoom(&r->pool, GeometryFor(&r->pool, r->conf.nbuffers).pool_size))
		capacity = r->conf.nbuffers;
	if (capacity == 0)
	{
		pg_log_error("could not determine the size of the pool");
		pg_log_error_hint("Run \"pg_pcache init --force\" to make a new one.");
		exit(EXIT_ERROR);
	}
	return capacity;
}

/* What the next start will make of it now. */
void
ConcludeRebuild(Rebuild *r)
{
	RebuildResult *result = &r->result;
	PCacheVerdict *verdict = &result->verdict;
	PCacheVerdict foretold;

	PCacheReadSuperblocks(r->pool.fd, &r->superblocks);
	JudgePool(r);
	*verdict = r->judge.verdict;
	if (verdict->refusal == PCACHE_WARM)
	{
		PageScan	scan;

		ScanPages(r, r->conf.nbuffers, false, &scan);
		result->kept = scan.counts[PCACHE_PAGE_KEPT];
		*verdict = JudgePages(RebuildSuperblock(r), &scan);
		FreeScan(&scan);
	}
	/* whatever is in it, can the server use it? */
	foretold = ForetellStart(r);
	if (verdict->refusal == PCACHE_WARM || foretold.refusal == PCACHE_UNAVAILABLE ||
		foretold.refusal == PCACHE_REFUSED)
		*verdict = foretold;
	/* that is no failure of ours */
	if (verdict->refusal == PCACHE_REFUSED)
		verdict->refusal = PCACHE_UNAVAILABLE;
	if (verdict->refusal == PCACHE_WARM || ModeIsOff(&r->conf))
		*verdict = JudgeConfiguration(&r->conf);
}

static void
PrintSuperblock(const char *label, const char *key, bool restored, bool reset)
{
	PrintField(label, key, Shown(AsBoolean(restored), restored ? "restored" :
								 reset ? "formatted" : "intact"));
}

static void
PrintResult(const RebuildResult *result)
{
	if (result->dry_run)
		Text(_("Dry run: nothing was changed.  This would be done:\n\n"));
	PrintField(NULL, "dry_run", AsBoolean(result->dry_run));
	PrintField("pool", "pool", AsString(result->pool));
	PrintSuperblock("superblock", "superblock_restored",
					result->superblock_restored, result->reset);
	PrintSuperblock("superblock copy", "superblock_copy_restored",
					result->copy_restored, result->reset);
	PrintField("bad blocks", "bad_ranges",
			   Shown(AsNumber(result->bad_ranges),
					 psprintf(ngettext("%s in %u range", "%s in %u ranges", result->bad_ranges),
							  FormatBytes(result->bad_bytes), result->bad_ranges)));
	PrintField(NULL, "bad_bytes", AsBytes(result->bad_bytes));
	PrintField(result->still_bad_bytes > 0 ? "still bad" : NULL, "still_bad_bytes",
			   AsBytes(result->still_bad_bytes));
	PrintField(result->cut_off_bytes > 0 ? "cut off" : NULL, "cut_off_bytes",
			   AsBytes(result->cut_off_bytes));
	PrintField("descriptors formatted", "descriptors_formatted", AsNumber(result->formatted));
	PrintField("lost", "pages_lost", AsPages(result->lost));
	PrintField(result->reset ? "reset" : NULL, "reset",
			   Shown(AsBoolean(result->reset), "all pages dropped"));
	PrintField("capacity", "capacity", AsBlocks(result->capacity));
	PrintField("cached data", "cached_data", AsBytes(result->capacity * BLCKSZ));
	PrintField("file size", "file_size", AsBytes(result->file_size));
	if (result->dry_run)
		return;
	Text("\n");
	PrintVerdict(&result->verdict, FormatKept(result->kept, result->kept));
	PrintField(NULL, "pages_kept", AsNumber(result->kept));
}

int
DoRebuild(const PCacheOptions *options)
{
	Rebuild		r = {0};
	PCacheError err;
	uint64		capacity;

	OpenAndJudge(options, &r);
	if (r.opened == PCACHE_OPEN_MISSING)
	{
		PCacheSetHint(&r.open_error, _("Is its file system mounted?  Otherwise run \"pg_pcache init\" to create the pool."));
		FailWith(&r.open_error);
	}
	strlcpy(r.result.pool, r.pool.path, sizeof(r.result.pool));
	CheckIdentity(&r);
	if (options->reset &&
		!PCachePoolMayFormat(&r.pool, &err))
		FailWith(&err);
	RefuseUnusable(&r);
	capacity = ChooseCapacity(&r);

	r.result.dry_run = options->dry_run;
	r.result.reset = options->reset;
	r.result.capacity = capacity;
	if (SuperblockIsUsable(&r))
	{
		/* all slots: verdicts beyond shared_buffers matter, too */
		ScanPages(&r, -1, false, &r.scan);
	}

	Repair(&r);
	if (options->reset && !options->dry_run)
		EmptyPool(&r.pool, &r.superblocks, r.control, capacity);
	r.judge.facts.file_size = r.pool.file_size;
	r.result.file_size = options->dry_run ? GeometryFor(&r.pool, capacity).pool_size :
		r.pool.file_size;
	if (!options->dry_run)
		ConcludeRebuild(&r);

	BeginOutput(options);
	PrintResult(&r.result);
	EndOutput();
	PCachePoolClose(&r.pool);

	if (options->dry_run || options->reset)
		return EXIT_WARM;
	return ExitStatus(&r.result.verdict);
}
