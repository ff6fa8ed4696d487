/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  pg_pcache verify and check: will the next start be warm?
 *
 * Both ask the same gates as pcache_startup.c does, about the same facts, and
 * change nothing.  verify looks at what a server has left, and refuses one that
 * runs.  check is also for a server that runs: it tells how the next start will
 * be if that is shut down cleanly now, with the configuration as it is on disk.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/verify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"
#include "storage/pcache_cgroup.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_harvest.h"
#include "storage/pcache_witness.h"

/* Pages that are named one by one; the others are only counted. */
#define MAX_PAGES_TOLD	20

/* The pool cannot be used: does the server start without it? */
static PCacheVerdict
JudgeUnavailable(const Rebuild *r, const PCacheError *err)
{
	PCacheNextConfig config = NextConfig(&r->conf);
	PCacheVerdict verdict = {PCACHE_REFUSED, *err};

	PCacheForetellWithout(&config, &verdict);
	return verdict;
}

/* Does the server create a missing pool?  If not, it cannot use any. */
static PCacheVerdict
JudgeMissingPool(Rebuild *r)
{
	PCacheNextConfig config = NextConfig(&r->conf);
	PCacheVerdict verdict;

	if (r->options->directory != NULL)
	{
		PCacheSetHint(&r->open_error, _("Run \"pg_pcache init\" to create the persistent cache."));
		FailWith(&r->open_error);
	}
	PCacheForetellMissing(r->directory, &config, &r->open_error, &verdict);
	PCacheForetellWithout(&config, &verdict);
	return verdict;
}

/*
 * Power was lost.  May the file have what came after the redo point, which redo repeats from
 * an image or on top of the page that is kept?  If power was lost in the middle of the write,
 * a part of it.
 */
static bool
MayBeWrittenAfter(PGIOAlignedBlock *stored, const PCacheDescriptor *desc,
				  XLogRecPtr redo, bool checksums)
{
	const PageHeaderData *header = (const PageHeaderData *) stored->data;

	return PageXLogRecPtrGet(header->pd_lsn) >= redo ||
		ChecksumIsWrong(stored, desc->block_number, checksums);
}

/*
 * Compare each page that will be kept with what its data file has.  By read(),
 * so that a bad block is an error, of one page.
 */
static void
ComparePool(const Rebuild *r, const PageScan *scan, VerifyResult *result)
{
	const PCacheOptions *options = r->options;
	const PCacheSuperblock *sb = &r->superblocks.chosen;
	SegmentFile file = {.fd = -1};
	bool		by_sums = PCacheSourceOf(sb, PCacheWasOtherBoot(sb)) == PCACHE_SOURCE_SUMS;
	PGIOAlignedBlock cached;
	PGIOAlignedBlock stored;
	int			n_told = 0;

	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		PCacheDescriptor desc;
		PageComparison comparison;

		if (options->progress && slot % 1024 == 0)
			ReportProgress(slot * BLCKSZ, scan->slots * BLCKSZ, false);
		if (scan->verdicts[slot] != PCACHE_PAGE_KEPT ||
			!PCacheReadLedger(r->pool.fd, sb, scan->generation, slot, 1, &desc))
			continue;
		if (!PCacheReadExact(r->pool.fd, cached.data, BLCKSZ,
							 sb->blocks_offset + slot * BLCKSZ) ||
			!ReadRelationBlock(&file, &desc, &stored))
			comparison = PAGE_UNREADABLE;
		else
			comparison = ComparePages(&cached, &stored, &desc,
									  r->control->data_checksum_version != 0);
		if (comparison == PAGE_IMPOSSIBLE && by_sums &&
			MayBeWrittenAfter(&stored, &desc, scan->redo, r->control->data_checksum_version != 0))
			comparison = PAGE_OLDER;
		result->comparisons[comparison]++;

		if (comparison == PAGE_IMPOSSIBLE || comparison == PAGE_UNREADABLE ||
			comparison == PAGE_STORED_CHECKSUM)
		{
			if (n_told++ < MAX_PAGES_TOLD)
				pg_log_error("page in slot %llu: %s: %s, block %u",
							 (unsigned long long) slot,
							 PageComparisonName(comparison),
							 RelationPath(&desc).str,
							 desc.block_number);
		}
	}
	if (n_told > MAX_PAGES_TOLD)
		pg_log_error_detail(ngettext("There is %d more such page.",
									 "There are %d more such pages.",
									 n_told - MAX_PAGES_TOLD),
							n_told - MAX_PAGES_TOLD);
	if (options->progress)
		ReportProgress(scan->slots * BLCKSZ, scan->slots * BLCKSZ, true);
	CloseSegment(&file);
	result->compared = true;
}

#define ENTRIES_PER_READ	16384	/* 1 MB of them */

/* How many pages are listed for pg_control as it is? */
static uint64
CountListed(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;
	uint64		generation = PCacheLedgerGeneration(sb, r->control);
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor, ENTRIES_PER_READ);
	uint64		listed = 0;

	for (uint64 start = 0; start < sb->slots_used; start += ENTRIES_PER_READ)
	{
		uint32		n = Min(ENTRIES_PER_READ, sb->slots_used - start);

		(void) PCacheReadDescriptors(r->pool.fd, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
			listed += chunk[i].seq == generation;
	}
	pg_free(chunk);
	return listed;
}

/*
 * What would the next start keep if all processes of the running server were killed
 * now?  It goes on meanwhile, so the numbers are not exact.
 */
static void
JudgeKilled(Rebuild *r, VerifyResult *result)
{
	r->event = PCACHE_NEXT_HOST_CRASH;
	result->power_lost = ForetellStart(r);
	result->is_listed = r->superblocks.chosen.power_rule == PCACHE_POWER_LEDGER;
	if (result->is_listed)
		result->listed = CountListed(r);
	r->event = PCACHE_NEXT_CRASH;
	result->killed = ForetellStart(r);
	r->event = PCACHE_NEXT_RESTART;
	result->killed_known = true;
	if (result->killed.refusal != PCACHE_WARM)
		return;
	ScanPages(r, r->conf.nbuffers, r->options->progress, &r->scan);
	memcpy(result->counts, r->scan.counts, sizeof(result->counts));
	FreeScan(&r->scan);
}

/* Look at the pool, as the server will at its next start. */
static void
Verify(Rebuild *r, VerifyResult *result)
{
	const PCacheOptions *options = r->options;
	PCacheError err;

	if (!SettingsAllowPool(r, &err))
	{
		result->verdict = JudgeUnavailable(r, &err);
		return;
	}

	switch (r->opened)
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			result->verdict = JudgeMissingPool(r);
			return;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			result->verdict = JudgeUnavailable(r, &r->open_error);
			return;
	}
	snprintf(result->pool, sizeof(result->pool), "%s/%s", r->pool.directory, PCACHE_POOL_FILE);

	result->verdict = ForetellStart(r);
	if (r->superblocks.source == PCACHE_SB_COPY && r->event == PCACHE_NEXT_NOTHING)
		pg_log_info("using the copy of the superblock: the first one is damaged: %s",
					r->superblocks.first_error.message);
	if (options->verb == VERB_CHECK && r->event == PCACHE_NEXT_RESTART &&
		r->superblocks.chosen.mode == PERSISTENT_CACHE_ALWAYS)
		JudgeKilled(r, result);
	/* which pages there will be is not known as long as a server runs */
	if (result->verdict.refusal != PCACHE_WARM || r->event != PCACHE_NEXT_NOTHING)
		return;
	ScanPages(r, r->conf.nbuffers, options->progress, &r->scan);
	result->scanned = true;
	result->slots = r->scan.slots;
	result->saved = r->scan.saved;
	memcpy(result->counts, r->scan.counts, sizeof(result->counts));
	result->verdict = JudgePages(&r->superblocks.chosen, &r->scan);
	if (options->pages)
		ComparePool(r, &r->scan, result);
	FreeScan(&r->scan);
}

/*
 * Can the control group hold the pool?  It is that of the server that runs, or else
 * ours, which need not be the server's.  A page on tmpfs counts for the group that has
 * touched it first, and nobody tells which one that was.  So the worker of the server asks
 * for what the pool lacks, and so do we, but a limit below that of all is never right.
 */
static void
CheckMemoryLimit(const Rebuild *r, VerifyResult *result)
{
	const char *groups = r->server_pid == 0 ? "/proc/self/cgroup" :
		psprintf("/proc/%d/cgroup", r->server_pid);
	bool		is_open = r->pool.fd >= 0;
	uint64		capacity = Max(Max(r->conf.nbuffers, 0), is_open ? 0 : r->conf.pool_size);
	uint64		size = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT).pool_size;
	const PCacheDir no_dir = {.fd = -1};
	PCacheFsKind kind;
	uint64		page_size;
	uint64		lacking;
	struct stat st;
	PCacheError err;
	int			fd;

	result->memory_limit = PCacheReadCgroup(groups, PCACHE_CGROUP_ROOT).limit;
	if (is_open)
		size = Max(size, r->pool.file_size);
	lacking = size;
	if (is_open && fstat(r->pool.fd, &st) == 0)
		lacking -= Min(size, (uint64) st.st_blocks * 512);
	if (result->memory_limit >= size + PCACHE_MEMORY_BESIDE(size) &&
		PCacheMemoryWillDo(lacking, size, groups, &err))
		return;
	/* not to be trusted for anything else */
	fd = open(r->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!PCacheFsKindOf(&no_dir, fd, &kind, &page_size) || kind != PCACHE_FS_TMPFS)
		;
	else if (result->memory_limit >= size + PCACHE_MEMORY_BESIDE(size))
	{
		pg_log_warning("not all of the pool will be allocated: %s", err.message);
		pg_log_warning_hint("%s", err.hint);
	}
	else
	{
		pg_log_warning("the control group may use %s of memory, and the pool takes %s of it",
					   FormatBytes(result->memory_limit), FormatBytes(size));
		pg_log_warning_hint("Set the limit of the unit or container to %s at least, or decrease \"shared_buffers\".",
							FormatBytes(size + PCACHE_MEMORY_BESIDE(size)));
	}
	close(fd);
}

/*
 * The pool cannot be used.  The server starts without it, unless it insists on huge pages
 * that are not there.
 */
static void
RefuseWithoutHugePages(const Rebuild *r, const PCacheError *why)
{
	PCacheError lacking;

	if (!HugePagesAreLacking(r, &lacking))
		return;
	pg_log_error("%s", why->message);
	pg_log_error_detail("Without the pool the server does not start: %s.", lacking.message);
	if (why->hint[0] != '\0')
		pg_log_error_hint("%s", why->hint);
	pg_log_error_hint("%s", lacking.hint);
	exit(EXIT_ERROR);
}

/* The server uses the pool.  If it could not, would it start? */
static void
CheckHugePages(const Rebuild *r)
{
	PCacheError lacking;

	if (!HugePagesAreLacking(r, &lacking))
		return;
	pg_log_warning("if the pool could not be used, the server would not start: %s",
				   lacking.message);
	pg_log_warning_hint("%s", lacking.hint);
}

/* The pages by what becomes of them. */
static void
PrintCounts(const VerifyResult *result)
{
	OpenObject("pages");
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PrintField(PCachePageVerdictName(i), SnakeCase(PCachePageVerdictName(i)),
				   AsNumber(result->counts[i]));
	CloseObject();
}

/* How many pages will be there, nobody knows before they are read. */
static void
PrintPowerLost(const VerifyResult *result)
{
	const PCacheVerdict *verdict = &result->power_lost;
	bool		is_warm = verdict->refusal == PCACHE_WARM;

	OpenObject("power_lost");
	PrintVerdict(verdict, NULL);
	PrintField(NULL, "listed", is_warm && result->is_listed ? AsNumber(result->listed) : AsString(NULL));
	CloseObject();
	if (is_warm && !result->is_listed)
		Text(_("if power is lost now: as if it is killed, because the platform saves the CPU caches\n"));
	else if (is_warm)
		Text(_("if power is lost now: %llu pages are listed, and those that are not changed or lost will be kept\n"),
			 (unsigned long long) result->listed);
	else
		Text(_("if power is lost now: COLD: %s\n"), verdict->why.message);
}

static void
PrintKilled(const VerifyResult *result)
{
	bool		is_warm = result->killed.refusal == PCACHE_WARM;
	uint64		cached = 0;

	if (!result->killed_known)
	{
		PrintField(NULL, "killed", AsString(NULL));
		PrintField(NULL, "power_lost", AsString(NULL));
		return;
	}
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		cached += i != PCACHE_PAGE_FREE ? result->counts[i] : 0;
	OpenObject("killed");
	PrintVerdict(&result->killed, NULL);
	if (is_warm)
	{
		Text(_("if it is killed now: %llu of %llu cached pages will be kept\n"),
			 (unsigned long long) result->counts[PCACHE_PAGE_KEPT], (unsigned long long) cached);
		PrintCounts(result);
	}
	else
	{
		Text(_("if it is killed now: COLD: %s\n"), result->killed.why.message);
		PrintField(NULL, "pages", AsString(NULL));
	}
	CloseObject();
	PrintPowerLost(result);
}

static void
PrintResult(const PCacheOptions *options, const VerifyResult *result)
{
	PrintVerdict(&result->verdict,
				 result->scanned ? FormatKept(result->counts[PCACHE_PAGE_KEPT], result->saved) :
				 _("if the server is shut down cleanly"));
	if (options->verb == VERB_CHECK)
	{
		PrintKilled(result);
		PrintField(NULL, "memory_limit",
				   result->memory_limit == PG_UINT64_MAX ? AsString(NULL) : AsBytes(result->memory_limit));
	}
	PrintField(NULL, "pool", AsString(result->pool[0] != '\0' ? result->pool : NULL));
	if (!result->scanned)
		return;

	Text("\n");
	PrintField("slots", "slots", AsNumber(result->slots));
	PrintField(NULL, "saved_pages", AsNumber(result->saved));
	PrintCounts(result);
	if (!result->compared)
		return;
	Text(_("\nkept pages, compared with the data files:\n"));
	OpenObject("compared");
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		PrintField(PageComparisonName(i), SnakeCase(PageComparisonName(i)),
				   AsNumber(result->comparisons[i]));
	CloseObject();
}

/*
 * Ask all that the verb wants to know of the next start.  Gives up if the server would not
 * start.  The pool is closed then.
 */
static void
FindOut(Rebuild *r, VerifyResult *result)
{
	const PCacheOptions *options = r->options;

	if (!ModeIsOff(&r->conf))
		Verify(r, result);
	if (result->verdict.refusal == PCACHE_REFUSED)
		FailWith(&result->verdict.why);
	if (result->verdict.refusal == PCACHE_UNAVAILABLE)
		RefuseWithoutHugePages(r, &result->verdict.why);

	if (result->verdict.refusal == PCACHE_WARM)
		result->verdict = JudgeConfiguration(&r->conf);
	/* a warm start has nothing else to hint at */
	if (result->verdict.refusal == PCACHE_WARM)
		(void) PCacheSizeDiffers(&r->pool, &r->superblocks.chosen, r->conf.pool_size,
								 r->conf.nbuffers, &result->verdict.why);
	if ((options->verb & VERBS_OF_A_RUNNING_SERVER) != 0 && result->verdict.refusal != PCACHE_OFF)
	{
		CheckMemoryLimit(r, result);
		if (result->verdict.refusal != PCACHE_UNAVAILABLE)
			CheckHugePages(r);
	}
	PCachePoolClose(&r->pool);
}

/*
 * What would a restart of the running server be, for verbs that go on with it?  Fills in r as
 * OpenAndJudge() does, but the pool is closed.
 */
PCacheVerdict
ForetellRestart(const PCacheOptions *options, Rebuild *r)
{
	VerifyResult result = {.memory_limit = PG_UINT64_MAX};

	OpenAndJudge(options, r);
	FindOut(r, &result);
	return result.verdict;
}

int
DoVerify(const PCacheOptions *options)
{
	Rebuild		r = {0};
	VerifyResult result = {.memory_limit = PG_UINT64_MAX};

	OpenAndJudge(options, &r);
	FindOut(&r, &result);

	BeginOutput(options);
	PrintResult(options, &result);
	EndOutput();

	/* pages that must not be there are worse than a cold start */
	if (result.comparisons[PAGE_IMPOSSIBLE] > 0 ||
		result.comparisons[PAGE_UNREADABLE] > 0 ||
		result.comparisons[PAGE_STORED_CHECKSUM] > 0)
		return EXIT_ERROR;

	return ExitStatus(&result.verdict);
}
