/*-------------------------------------------------------------------------
 *
 * hotset_worker.c
 *	  The background worker that keeps a standby as warm as its primary.
 *
 * Every pg_hotset.interval it asks for a list, and has read what is missing.
 * The last good list stays in the data directory.  It is used as long as there
 * is no better one: when the primary is gone, and after a restart.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "hotset.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* A server that runs no longer than this may not be warm itself. */
#define SETTLED_AFTER_S		300
/* so many lists in a row that are much shorter than before are believed */
#define SHORT_LISTS			10
/* A worker that waits checks this often whether it still follows a primary, in ms. */
#define LOOK_INTERVAL		5000

/* What lasts from round to round */
typedef struct Leader
{
	HotsetStats *stats;
	StringInfoData list;		/* the last good one; empty: none */
	StringInfoData memory;		/* what HotsetRemember() has made */
	StringInfoData problem;		/* logged last */
	uint32		list_pages;
	int			short_lists;	/* that were refused in a row */
	bool		no_room;		/* was there too little in the last round? */
} Leader;

PGDLLEXPORT void hotset_worker_main(Datum main_arg);

/* Should the round end?  After a promotion, the list must not decide what is read. */
static bool
ShouldStop(void)
{
	return ShutdownRequestPending || !RecoveryInProgress();
}

/* Note why there is no new list.  The log has it when it is another reason than before. */
static void
NoteProblem(Leader *leader, const char *problem)
{
	HotsetStats *stats = leader->stats;
	bool		changed = strcmp(leader->problem.data, problem) != 0;

	if (changed)
	{
		resetStringInfo(&leader->problem);
		appendStringInfoString(&leader->problem, problem);
		if (problem[0] != '\0')
			ereport(LOG,
					(errmsg("pg_hotset could not get a list: %s", problem)));
		else
			ereport(LOG,
					(errmsg("pg_hotset gets lists again")));
	}
	LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
	if (changed)
	{
		strlcpy(stats->problem, problem, sizeof(stats->problem));
		stats->problem_since = problem[0] != '\0' ? GetCurrentTimestamp() : 0;
	}
	if (problem[0] != '\0')
		stats->failures++;
	LWLockRelease(&stats->lock);
}

/* Use this list from now on. */
static void
Adopt(Leader *leader, const StringInfo list, const HotsetSet *set, const char *from)
{
	HotsetStats *stats = leader->stats;

	resetStringInfo(&leader->list);
	appendBinaryStringInfo(&leader->list, list->data, list->len);
	leader->list_pages = set->npages;
	leader->short_lists = 0;
	LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
	stats->origin = set->origin;
	stats->list_bytes = list->len;
	stats->list_pages = set->npages;
	stats->received = GetCurrentTimestamp();
	strlcpy(stats->from, from, sizeof(stats->from));
	LWLockRelease(&stats->lock);
}

/*
 * Is this list better than the last one?  If not, *problem says why.  A server
 * that has just started, or has dropped its buffers, is colder than the list that
 * we have.  If it stays so, its list is believed: then the tables are gone.
 */
static bool
IsBetter(Leader *leader, const HotsetSet *set, const char **problem)
{
	long		seconds;
	int			microseconds;

	TimestampDifference(set->origin.server_start, set->origin.taken, &seconds, &microseconds);
	if (set->origin.system_identifier != GetSystemIdentifier())
		*problem = "the list is from another cluster";
	else if (set->npages >= leader->list_pages - leader->list_pages / 10)
		return true;
	else if (seconds < SETTLED_AFTER_S)
		*problem = "the server has just started, and has fewer pages than the last list";
	else if (set->npages >= leader->list_pages / 2 || ++leader->short_lists >= SHORT_LISTS)
		return true;
	else
		*problem = "the list has far fewer pages than the last one";
	return false;
}

/* Ask for a list.  The last one stays if that fails. */
static void
Ask(Leader *leader)
{
	StringInfoData list;
	StringInfoData from;
	StringInfoData text;
	const char *problem = NULL;
	HotsetSet  *set;

	initStringInfo(&list);
	initStringInfo(&from);
	initStringInfo(&text);
	HotsetSetState(HOTSET_ASKING);
	if (!HotsetFetch(&list, &from, &text))
	{
		if (!ShutdownRequestPending)
			NoteProblem(leader, text.data);
		return;
	}
	set = HotsetDecode(list.data, list.len, &problem);
	if (set != NULL)
	{
		problem = NULL;
		(void) IsBetter(leader, set, &problem);
	}
	NoteProblem(leader, problem != NULL ? problem : "");
	if (problem != NULL)
		return;
	Adopt(leader, &list, set, from.data);
	LWLockAcquire(&leader->stats->lock, LW_EXCLUSIVE);
	leader->stats->lists++;
	LWLockRelease(&leader->stats->lock);
	HotsetWriteFile(HOTSET_FILE, list.data, list.len);
}

/* Have read what is missing of the list that we have. */
static void
Warm(Leader *leader)
{
	HotsetStats *stats = leader->stats;
	TimestampTz start = GetCurrentTimestamp();
	HotsetCounts counts = {0};
	HotsetComparison *comparison;
	HotsetPlan *plan;
	HotsetSet  *set;
	const char *problem;
	uint32		here;

	if (leader->list.len == 0 ||
		(set = HotsetDecode(leader->list.data, leader->list.len, &problem)) == NULL)
		return;
	comparison = HotsetCompare(set, leader->no_room);
	plan = HotsetMakePlan(set, comparison, &leader->memory);
	leader->no_room = plan->no_room > 0;
	if (plan->missing->npages > 0)
	{
		HotsetSetState(HOTSET_WARMING);
		HotsetRunJob(plan, &counts, ShouldStop);
	}
	HotsetRemember(set, comparison, plan, &leader->memory);
	/* what was evicted for other pages may have been of the list, too */
	here = counts.evicted > 0 ? HotsetCompare(set, false)->nhere : comparison->nhere + counts.read;

	LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
	stats->pages_here = here;
	stats->no_room = plan->no_room;
	stats->compared = GetCurrentTimestamp();
	stats->read += counts.read;
	stats->skipped += counts.skipped;
	stats->evicted += counts.evicted;
	stats->evicted_again += plan->evicted_again;
	LWLockRelease(&stats->lock);
	if (counts.read > 0)
		ereport(LOG,
				(errmsg("pg_hotset read " UINT64_FORMAT " pages in %.1f s: %.1f %% of the hot set is in shared buffers",
						counts.read, (GetCurrentTimestamp() - start) / 1000000.0,
						100.0 * here / set->npages),
				 errdetail("Of %u pages, %u were there, " UINT64_FORMAT " were skipped, and for %u there was no room; " UINT64_FORMAT " colder pages were evicted.",
						   set->npages, comparison->nhere, counts.skipped, plan->no_room, counts.evicted)));
}

/* The list that an earlier run has left, if there is a good one. */
static void
UseFile(Leader *leader)
{
	StringInfoData raw;
	const char *problem;
	HotsetSet  *set;

	initStringInfo(&raw);
	set = HotsetReadFile(HOTSET_FILE, &raw, &problem);
	if (set != NULL && set->origin.system_identifier != GetSystemIdentifier())
	{
		set = NULL;
		problem = "The list is from another cluster.";
	}
	if (set != NULL)
		Adopt(leader, &raw, set, HOTSET_FILE);
	else if (problem != NULL)
		ereport(LOG,
				(errmsg("pg_hotset does not use file \"%s\"", HOTSET_FILE),
				 errdetail_internal("%s", problem)));
}

static void
ForgetPid(int code, Datum arg)
{
	HotsetStats *stats = (HotsetStats *) DatumGetPointer(arg);

	LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
	stats->pid = 0;
	stats->state = HOTSET_OFF;
	LWLockRelease(&stats->lock);
}

/* Sleep until the next round, or until somebody wakes us up. */
static void
WaitForNextRound(TimestampTz last, bool standby)
{
	long		wait = -1;
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	HotsetSetState(!standby ? HOTSET_PRIMARY : hotset_interval > 0 ? HOTSET_WAITING : HOTSET_OFF);
	if (standby && hotset_interval > 0)
	{
		wait = TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
											   TimestampTzPlusSeconds(last, hotset_interval));
		wait = Min(wait, LOOK_INTERVAL);
		events |= WL_TIMEOUT;
	}
	if (wait != 0)
		(void) WaitLatch(MyLatch, events, wait, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* The worker that shared_preload_libraries starts. */
void
hotset_worker_main(Datum main_arg)
{
	MemoryContext round_context = AllocSetContextCreate(TopMemoryContext, "pg_hotset round", ALLOCSET_DEFAULT_SIZES);
	Leader		leader = {0};
	TimestampTz last = 0;
	bool		first = true;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* with this signal, the postmaster says that a worker has ended */
	pqsignal(SIGUSR1, procsignal_sigusr1_handler);
	BackgroundWorkerUnblockSignals();

	MemoryContextSwitchTo(TopMemoryContext);
	initStringInfo(&leader.list);
	initStringInfo(&leader.memory);
	initStringInfo(&leader.problem);
	leader.stats = HotsetAttachStats();
	before_shmem_exit(ForgetPid, PointerGetDatum(leader.stats));
	LWLockAcquire(&leader.stats->lock, LW_EXCLUSIVE);
	leader.stats->pid = MyProcPid;
	LWLockRelease(&leader.stats->lock);

	while (!ShutdownRequestPending)
	{
		bool		standby = RecoveryInProgress();

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			last = 0;
		}
		/* the clock may have been set back */
		if (last > GetCurrentTimestamp())
			last = 0;
		if (standby && hotset_interval > 0 &&
			TimestampDifferenceExceeds(last, GetCurrentTimestamp(), hotset_interval * 1000))
		{
			last = GetCurrentTimestamp();
			MemoryContextSwitchTo(round_context);
			if (first)
				UseFile(&leader);
			first = false;
			Ask(&leader);
			if (!ShouldStop())
				Warm(&leader);
			MemoryContextSwitchTo(TopMemoryContext);
			MemoryContextReset(round_context);
		}
		if (!ShutdownRequestPending)
			WaitForNextRound(last, standby);
	}
}
