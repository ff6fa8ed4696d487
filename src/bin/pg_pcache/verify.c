/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  pg_pcache verify: will the next start be warm?
 *
 * Asks the same gates as a start does, about the same facts, and changes nothing.
 * The way of the answer is open.c, judge.c, scan.c, and with --pages pages.c; check.c
 * asks in the same way about a server that runs.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/verify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "pg_pcache.h"

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
PCacheVerdict
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

/* The pages by what becomes of them. */
void
PrintCounts(const PageScan *scan)
{
	OpenObject("pages");
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PrintField(PCachePageVerdictName(i), SnakeCase(PCachePageVerdictName(i)),
				   AsNumber(scan->counts[i]));
	CloseObject();
}

/* What becomes of the slots of a pool that no server uses, if that was found out. */
void
PrintScan(const PageScan *scan)
{
	if (scan->verdicts == NULL)
		return;
	Text("\n");
	PrintField("slots", "slots", AsNumber(scan->slots));
	PrintField(NULL, "saved_pages", AsNumber(scan->saved));
	PrintCounts(scan);
}

/* The file of an open pool, or null. */
void
PrintPool(const Cluster *c)
{
	PrintField(NULL, "pool", AsString(c->pool.fd < 0 ? NULL :
									  psprintf("%s/%s", c->pool.directory, PCACHE_POOL_FILE)));
}

static void
PrintResult(const Cluster *c, const PCacheVerdict *verdict, const PageComparisons *compared)
{
	const PageScan *scan = &c->scan;

	PrintVerdict(verdict, FormatKept(scan->counts[PCACHE_PAGE_KEPT], scan->saved));
	PrintPool(c);
	PrintScan(scan);
	if (scan->verdicts == NULL || !c->options->pages)
		return;
	Text(_("\nkept pages, compared with the data files:\n"));
	OpenObject("compared");
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		PrintField(PageComparisonName(i), SnakeCase(PageComparisonName(i)),
				   AsNumber(compared->counts[i]));
	CloseObject();
}

int
DoVerify(const PCacheOptions *options)
{
	Cluster		c = {0};
	PCacheVerdict verdict;
	PageComparisons compared = {{0}};

	OpenCluster(options, &c);
	verdict = ForetellOrFail(&c);
	if (options->pages && c.scan.verdicts != NULL)
		ComparePool(&c, &compared);

	BeginOutput(options);
	PrintResult(&c, &verdict, &compared);
	EndOutput();
	PCachePoolClose(&c.pool);

	/* pages that must not be there are worse than a cold start */
	if (compared.counts[PAGE_IMPOSSIBLE] > 0 ||
		compared.counts[PAGE_UNREADABLE] > 0 ||
		compared.counts[PAGE_STORED_CHECKSUM] > 0)
		return EXIT_ERROR;

	return ExitStatus(&verdict);
}
