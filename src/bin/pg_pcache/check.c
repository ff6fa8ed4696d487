/*-------------------------------------------------------------------------
 *
 * check.c
 *	  pg_pcache verify and check: how will the next start be?
 *
 * Both ask the same gates as a start does, about the same facts, and change nothing.  open.c,
 * judge.c and scan.c find the answer, and pages.c with --pages.
 *
 * check also asks about a server that runs, as if that was shut down cleanly now, with
 * the configuration as it is on disk.  Besides, it tells what a start after a kill or a loss of
 * power would keep, and whether there is the memory that all of that takes.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pg_pcache.h"

typedef struct CheckResult
{
	PCacheVerdict verdict;
	PageComparisons compared;	/* with --pages */
	uint64		memory_limit;	/* of the control group, in bytes */
	bool		killed_known;	/* in mode always: the rest is */
	PCacheVerdict killed;		/* the start after processes were killed */
	PCacheVerdict power_lost;	/* the start after power was lost; likewise */
	bool		is_listed;		/* what it may keep is in the ledger */
	uint64		listed;			/* how many pages that is */
} CheckResult;

#define ENTRIES_PER_READ	16384	/* 1 MB of them */

/* How many pages are listed for pg_control as it is? */
static uint64
CountListed(const Cluster *c)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	uint64		generation = PCacheLedgerGeneration(sb, c->control);
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor, ENTRIES_PER_READ);
	uint64		listed = 0;

	for (uint64 start = 0; start < sb->slots_used; start += ENTRIES_PER_READ)
	{
		uint32		n = Min(ENTRIES_PER_READ, sb->slots_used - start);

		(void) PCacheReadDescriptors(c->pool.fd, start, n, chunk);
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
JudgeKilled(Cluster *c, CheckResult *result)
{
	result->power_lost = ForetellStart(c, PCACHE_NEXT_HOST_CRASH);
	result->is_listed = c->superblocks.chosen.power_rule == PCACHE_POWER_LEDGER;
	if (result->is_listed)
		result->listed = CountListed(c);
	result->killed = ForetellStart(c, PCACHE_NEXT_CRASH);
	result->killed_known = true;
	if (result->killed.refusal == PCACHE_WARM)
		ScanPages(c, c->conf.nbuffers, c->options->progress, &c->scan);
}

/*
 * Can the control group hold the pool?  It is that of the server that runs, or else
 * ours, which need not be the server's.  A page on tmpfs counts for the group that has
 * touched it first, and nobody tells which one that was.  So the worker of the server asks
 * for what the pool lacks, and so do we, but a limit below that of all is never right.
 */
static void
CheckMemoryLimit(const Cluster *c, CheckResult *result)
{
	bool		is_open = c->pool.fd >= 0;
	uint64		capacity = Max(Max(c->conf.nbuffers, 0), is_open ? 0 : c->conf.pool_size);
	uint64		size = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT).pool_size;
	const PCacheDir no_dir = {.fd = -1};
	PCacheFsKind kind;
	uint64		page_size;
	uint64		lacking;
	struct stat st;
	PCacheError err;
	bool		is_tmpfs;
	int			fd;

	result->memory_limit = PCacheReadCgroup(PCacheCgroupFile(), PCACHE_CGROUP_ROOT).limit;
	if (is_open)
		size = Max(size, c->pool.file_size);
	lacking = size;
	if (is_open && fstat(c->pool.fd, &st) == 0)
		lacking -= Min(size, (uint64) st.st_blocks * 512);
	if (result->memory_limit >= size + PCACHE_MEMORY_BESIDE(size) &&
		PCacheMemoryWillDo(lacking, size, &err))
		return;
	/* not to be trusted for anything else */
	fd = open(c->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	is_tmpfs = fd >= 0 && PCacheFsKindOf(&no_dir, fd, &kind, &page_size) && kind == PCACHE_FS_TMPFS;
	if (fd >= 0)
		close(fd);
	if (!is_tmpfs)
		return;
	if (result->memory_limit >= size + PCACHE_MEMORY_BESIDE(size))
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
}

/* The server uses the pool.  If it could not, would it start? */
static void
CheckHugePages(const Cluster *c)
{
	PCacheError lacking;

	if (!HugePagesAreLacking(c, &lacking))
		return;
	pg_log_warning("if the pool could not be used, the server would not start: %s",
				   lacking.message);
	pg_log_warning_hint("%s", lacking.hint);
}

/*
 * The pool cannot be used.  The server starts without it, unless it insists on huge pages
 * that are not there.
 */
static void
RefuseWithoutHugePages(const Cluster *c, const PCacheError *why)
{
	PCacheError lacking;

	if (!HugePagesAreLacking(c, &lacking))
		return;
	pg_log_error("%s", why->message);
	pg_log_error_detail("Without the pool the server does not start: %s.", lacking.message);
	if (why->hint[0] != '\0')
		pg_log_error_hint("%s", why->hint);
	pg_log_error_hint("%s", lacking.hint);
	exit(EXIT_ERROR);
}

/*
 * How will the next start be, for verbs that only tell?  Gives up if the server would not
 * start.
 */
static PCacheVerdict
ForetellOrFail(Cluster *c)
{
	PCacheVerdict verdict = Foretell(c);

	if (verdict.refusal == PCACHE_REFUSED)
		FailWith(&verdict.why);
	if (verdict.refusal == PCACHE_UNAVAILABLE)
		RefuseWithoutHugePages(c, &verdict.why);
	if (c->superblocks.source == PCACHE_SB_COPY && c->event == PCACHE_NEXT_NOTHING)
		pg_log_info("using the copy of the superblock: the first one is damaged: %s",
					c->superblocks.first_error.message);
	/* a warm start has nothing else to hint at */
	if (verdict.refusal == PCACHE_WARM)
		(void) PCacheSizeDiffers(&c->pool, &c->superblocks.chosen, c->conf.pool_size,
								 c->conf.nbuffers, &verdict.why);
	return verdict;
}

/* Ask all that there is to know of the next start. */
static void
Check(Cluster *c, CheckResult *result)
{
	PCacheError err;

	result->verdict = ForetellOrFail(c);
	if (c->options->pages && c->scan.verdicts != NULL)
		ComparePool(c, &result->compared);
	if (c->options->verb == VERB_VERIFY)
		return;
	if (c->options->verb == VERB_CHECK && c->event == PCACHE_NEXT_RESTART &&
		c->superblocks.chosen.mode == PERSISTENT_CACHE_ALWAYS && SettingsAllowPool(c, &err))
		JudgeKilled(c, result);
	if (result->verdict.refusal == PCACHE_OFF)
		return;
	CheckMemoryLimit(c, result);
	if (result->verdict.refusal != PCACHE_UNAVAILABLE)
		CheckHugePages(c);
}

/*
 * What would a restart of the running server be, for verbs that go on with it?  Fills in c as
 * OpenCluster() does, but the pool is closed.
 */
PCacheVerdict
ForetellRestart(const PCacheOptions *options, Cluster *c)
{
	CheckResult result = {.memory_limit = PG_UINT64_MAX};

	OpenCluster(options, c);
	Check(c, &result);
	PCachePoolClose(&c->pool);
	return result.verdict;
}

/* The pages by what becomes of them. */
static void
PrintCounts(const PageScan *scan)
{
	OpenObject("pages");
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PrintField(PCachePageVerdictName(i), SnakeCase(PCachePageVerdictName(i)),
				   AsNumber(scan->counts[i]));
	CloseObject();
}

/* What becomes of the slots of a pool that no server uses, if that was found out. */
static void
PrintScan(const PageScan *scan)
{
	if (scan->verdicts == NULL)
		return;
	Text("\n");
	PrintField("slots", "slots", AsNumber(scan->slots));
	PrintField(NULL, "saved_pages", AsNumber(scan->saved));
	PrintCounts(scan);
}

/* How many pages will be there, nobody knows before they are read. */
static void
PrintPowerLost(const CheckResult *result)
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
PrintKilled(const PageScan *scan, const CheckResult *result)
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
		cached += i != PCACHE_PAGE_FREE ? scan->counts[i] : 0;
	OpenObject("killed");
	PrintVerdict(&result->killed, NULL);
	if (is_warm)
	{
		Text(_("if it is killed now: %llu of %llu cached pages will be kept\n"),
			 (unsigned long long) scan->counts[PCACHE_PAGE_KEPT], (unsigned long long) cached);
		PrintCounts(scan);
	}
	else
	{
		Text(_("if it is killed now: COLD: %s\n"), result->killed.why.message);
		PrintField(NULL, "pages", AsString(NULL));
	}
	CloseObject();
	PrintPowerLost(result);
}

/* Pages of the pool, by what their data files have. */
static void
PrintCompared(const uint64 *compared)
{
	Text(_("\nkept pages, compared with the data files:\n"));
	OpenObject("compared");
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		PrintField(PageComparisonName(i), SnakeCase(PageComparisonName(i)), AsNumber(compared[i]));
	CloseObject();
}

/* Both verbs. */
int
DoCheck(const PCacheOptions *options)
{
	Cluster		c = {0};
	CheckResult result = {.memory_limit = PG_UINT64_MAX};
	const uint64 *compared = result.compared.counts;
	bool		runs;

	OpenCluster(options, &c);
	Check(&c, &result);
	runs = c.event != PCACHE_NEXT_NOTHING;

	BeginOutput(options);
	PrintVerdict(&result.verdict, runs ? _("if the server is shut down cleanly") :
				 FormatKept(c.scan.counts[PCACHE_PAGE_KEPT], c.scan.saved));
	if (options->verb == VERB_CHECK)
	{
		PrintKilled(&c.scan, &result);
		PrintField(NULL, "memory_limit",
				   result.memory_limit == PG_UINT64_MAX ? AsString(NULL) : AsBytes(result.memory_limit));
	}
	PrintField(NULL, "pool", AsString(c.pool.fd < 0 ? NULL :
									  psprintf("%s/%s", c.pool.directory, PCACHE_POOL_FILE)));
	if (!runs)
		PrintScan(&c.scan);
	if (options->pages && c.scan.verdicts != NULL)
		PrintCompared(compared);
	EndOutput();
	PCachePoolClose(&c.pool);

	/* pages that must not be there are worse than a cold start */
	if (compared[PAGE_IMPOSSIBLE] > 0 || compared[PAGE_UNREADABLE] > 0 ||
		compared[PAGE_STORED_CHECKSUM] > 0)
		return EXIT_ERROR;
	return ExitStatus(&result.verdict);
}
