/*-------------------------------------------------------------------------
 *
 * hotset_stat.c
 *	  pg_stat_hotset: how warm would a promotion be now?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_stat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "hotset.h"
#include "miscadmin.h"
#include "storage/dsm_registry.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#define STAT_HOTSET_COLS	22

PG_FUNCTION_INFO_V1(pg_stat_hotset);

static HotsetStats *stats = NULL;

static void
InitStats(void *area)
{
	HotsetStats *new_stats = area;

	memset(new_stats, 0, sizeof(HotsetStats));
	LWLockInitialize(&new_stats->lock, LWLockNewTrancheId());
}

/* The statistics in shared memory.  They are made by whoever is first. */
HotsetStats *
HotsetAttachStats(void)
{
	bool		found;

	if (stats == NULL)
	{
		stats = GetNamedDSMSegment("pg_hotset", sizeof(HotsetStats), InitStats, &found);
		LWLockRegisterTranche(stats->lock.tranche, "pg_hotset");
	}
	return stats;
}

void
HotsetSetState(HotsetState state)
{
	LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
	stats->state = state;
	LWLockRelease(&stats->lock);
}

static const char *
StateName(HotsetState state)
{
	switch (state)
	{
		case HOTSET_OFF:
			return "off";
		case HOTSET_WAITING:
			return "waiting";
		case HOTSET_ASKING:
			return "asking";
		case HOTSET_WARMING:
			return "warming";
		case HOTSET_PRIMARY:
			return "primary";
	}
	return "unknown";
}

/* The share of the list that was in shared buffers after the last round. */
static double
PercentWarm(const HotsetStats *of)
{
	return of->list_pages > 0 ? 100.0 * Min(of->pages_here, of->list_pages) / of->list_pages : 100.0;
}

/* The row of pg_stat_hotset. */
Datum
pg_stat_hotset(PG_FUNCTION_ARGS)
{
	Datum		values[STAT_HOTSET_COLS] = {0};
	bool		nulls[STAT_HOTSET_COLS] = {0};
	HotsetStats copy;
	TupleDesc	tupdesc;
	int			n = 0;
	bool		has_list;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE || tupdesc->natts != STAT_HOTSET_COLS)
		elog(ERROR, "pg_stat_hotset() has other columns than its library");
	(void) HotsetAttachStats();
	LWLockAcquire(&stats->lock, LW_SHARED);
	copy = *stats;
	LWLockRelease(&stats->lock);
	has_list = copy.received != 0;

#define COLUMN(value, is_null) (nulls[n] = (is_null), values[n] = nulls[n] ? (Datum) 0 : (value), n++)
	COLUMN(Int32GetDatum(copy.pid), copy.pid == 0);
	COLUMN(CStringGetTextDatum(StateName(copy.state)), false);
	COLUMN(CStringGetTextDatum(copy.from), !has_list);
	COLUMN(TimestampTzGetDatum(copy.received), !has_list);
	COLUMN(TimestampTzGetDatum(copy.origin.taken), !has_list);
	COLUMN(Int64GetDatum(copy.origin.lsn), !has_list);
	COLUMN(Int32GetDatum(copy.origin.timeline), !has_list);
	COLUMN(Int64GetDatum(copy.list_bytes), !has_list);
	COLUMN(Int64GetDatum(copy.list_pages), !has_list);
	COLUMN(Int64GetDatum(copy.pages_here), copy.compared == 0);
	COLUMN(Float8GetDatum(PercentWarm(&copy)), copy.compared == 0);
	COLUMN(Int64GetDatum(copy.no_room), copy.compared == 0);
	COLUMN(TimestampTzGetDatum(copy.compared), copy.compared == 0);
	COLUMN(Int64GetDatum(copy.lists), false);
	COLUMN(Int64GetDatum(copy.failures), false);
	COLUMN(Int64GetDatum(copy.read), false);
	COLUMN(Int64GetDatum(copy.skipped), false);
	COLUMN(Int64GetDatum(copy.evicted), false);
	COLUMN(Int64GetDatum(copy.evicted_again), false);
	COLUMN(CStringGetTextDatum(copy.problem), copy.problem[0] == '\0');
	COLUMN(TimestampTzGetDatum(copy.problem_since), copy.problem[0] == '\0');
	COLUMN(Int64GetDatum(copy.origin.nbuffers), !has_list);
#undef COLUMN
	Assert(n == STAT_HOTSET_COLS);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
