/*-------------------------------------------------------------------------
 *
 * pcache_views.c
 *	  SQL access to what the persistent cache does and holds.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_pcache/pcache_views.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/htup_details.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_stat.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

/* Number of output arguments (columns) of each function that returns rows */
#define PG_PCACHE_POOL_COLS			32
/* of them, between buffers and last_start */
#define PG_PCACHE_POOL_PLACE_COLS	7
#define PG_PCACHE_RELATIONS_COLS	5
#define PG_PCACHE_NEXT_START_COLS	4
#define PG_PCACHE_MAX_COLS			PG_PCACHE_POOL_COLS /* maximum of above */

/* A row's columns, which are filled in from left to right. */
typedef struct Row
{
	Datum		values[PG_PCACHE_MAX_COLS];
	bool		nulls[PG_PCACHE_MAX_COLS];
	int			n;				/* columns filled in so far */
} Row;

/* All columns are null until something else is said of them. */
static void
InitRow(Row *row)
{
	memset(row->values, 0, sizeof(row->values));
	memset(row->nulls, true, sizeof(row->nulls));
	row->n = 0;
}

static void
AddNull(Row *row)
{
	row->n++;
}

static void
AddDatum(Row *row, Datum value)
{
	row->nulls[row->n] = false;
	row->values[row->n++] = value;
}

static void
AddText(Row *row, const char *text)
{
	AddDatum(row, CStringGetTextDatum(text));
}

/* "" stands for nothing to say */
static void
AddDetail(Row *row, const char *text)
{
	if (text[0] == '\0')
		AddNull(row);
	else
		AddText(row, text);
}

/* The extension of a database may be older than the library. */
static void
CheckColumns(TupleDesc tupdesc, int ncols)
{
	if (tupdesc->natts == ncols)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("extension \"pg_pcache\" of this database has another version than the library"),
			 errhint("Run ALTER EXTENSION pg_pcache UPDATE.")));
}

/* The row as a function's result; columns that were not filled in are null. */
static Datum
RowToDatum(FunctionCallInfo fcinfo, Row *row, int ncols)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	CheckColumns(tupdesc, ncols);
	Assert(row->n <= ncols);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, row->values, row->nulls));
}

static const char *
StateName(uint32 state)
{
	switch ((PCacheState) state)
	{
		case PCACHE_STATE_EMPTY:
			return "empty";
		case PCACHE_STATE_ATTACHING:
			return "attaching";
		case PCACHE_STATE_DIRTY:
			return "dirty";
		case PCACHE_STATE_CLEAN:
			return "clean";
	}
	return "unknown";
}

/* A name that is made for readers, as a key; pg_pcache's JSON has the same keys. */
static void
AppendKey(StringInfo json, const char *name)
{
	for (; *name != '\0'; name++)
		appendStringInfoChar(json, *name == ' ' ? '_' : pg_ascii_tolower((unsigned char) *name));
}

/* The reasons, named as by pg_pcache verify --json, with their counts. */
static Datum
DroppedByReason(const PersistentCacheStats *stats)
{
	StringInfoData json;
	const char *separator = "";

	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i == PCACHE_PAGE_KEPT || i == PCACHE_PAGE_FREE)
			continue;
		appendStringInfo(&json, "%s\"", separator);
		AppendKey(&json, PCachePageVerdictName(i));
		appendStringInfo(&json, "\": " UINT64_FORMAT, stats->pages[i]);
		separator = ", ";
	}
	appendStringInfoChar(&json, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}

/*
 * The size of the pool's file system, and what is free of it.  Null if it has no
 * size of its own, as a tmpfs without a limit, or if the pool is gone.
 */
static void
AddRoom(Row *row, const char *path)
{
	struct statvfs vfs;

	if (statvfs(path, &vfs) < 0 || vfs.f_blocks == 0)
	{
		AddNull(row);
		AddNull(row);
		return;
	}
	AddDatum(row, Int64GetDatum((int64) vfs.f_blocks * vfs.f_frsize));
	AddDatum(row, Int64GetDatum((int64) vfs.f_bavail * vfs.f_frsize));
}

static void
AddLastStart(Row *row, const PersistentCacheStats *stats)
{
	uint64		dropped = 0;
	bool		warm = stats->start.refusal == PCACHE_WARM;

	AddText(row, warm ? "warm" : "cold");
	AddDatum(row, TimestampTzGetDatum(stats->started_at));
	AddDetail(row, warm ? "" : PCacheRefusalName(stats->start.refusal));
	AddDetail(row, stats->start.why.message);

	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i != PCACHE_PAGE_KEPT && i != PCACHE_PAGE_FREE)
			dropped += stats->pages[i];
	}
	AddDatum(row, Int64GetDatum(stats->pages[PCACHE_PAGE_KEPT]));
	AddDatum(row, Int64GetDatum(dropped));
	AddDatum(row, DroppedByReason(stats));
	AddDatum(row, Int32GetDatum(stats->retired));
	AddDatum(row, Float8GetDatum(stats->startup_usec / 1000.0));
	AddDatum(row, Float8GetDatum(stats->rebuild_usec / 1000.0));
	AddDatum(row, Int64GetDatum(stats->younger));
	AddDatum(row, Int64GetDatum(stats->redo_skipped));
	AddDatum(row, Int64GetDatum(stats->redo_called));
}

/* The pool is configured, and the server runs without it. */
static void
AddUnavailable(Row *row)
{
	for (int i = 0; i < PG_PCACHE_POOL_PLACE_COLS; i++)
		AddNull(row);
	AddText(row, PCacheRefusalName(PCACHE_UNAVAILABLE));
	AddDatum(row, TimestampTzGetDatum(PgStartTime));
	AddText(row, PCacheRefusalName(PCACHE_UNAVAILABLE));
	AddDetail(row, PersistentCacheUnavailable());
}

static void
AddMedia(Row *row, const PersistentCacheStats *stats)
{
	const PCacheMediaSummary *media = &stats->media;
	char		health[PCACHE_MEDIA_HEALTH_LEN];

	if (media->checked_at == 0)
		return;

	AddDatum(row, TimestampTzGetDatum(media->checked_at));
	AddText(row, PCacheMediaAnswerName(media->blocks));
	AddDetail(row, media->blocks_why);
	if (media->blocks == PCACHE_MEDIA_UNKNOWN || media->bad_truncated)
		AddNull(row);
	else
		AddDatum(row, Int64GetDatum(media->bad_bytes));
	AddText(row, PCacheMediaAnswerName(media->dimms_state));
	AddDetail(row, media->dimms_why);
	if (media->n_dimms == 0)
		AddNull(row);
	else
		AddText(row, PCacheMediaHealthText(media->health, health, sizeof(health)));
	AddText(row, PCachePersistenceDomainName(media->domain));
	AddText(row, PCachePowerRuleName(stats->superblock.power_rule));
	AddDetail(row, stats->power_cold.message);
}

/*
 * One row with the pool: how it is configured, what the last start made of it,
 * and what is known of its media.
 */
PG_FUNCTION_INFO_V1(pg_pcache_pool);

Datum
pg_pcache_pool(PG_FUNCTION_ARGS)
{
	Row			row;
	PersistentCacheStats *stats;

	InitRow(&row);
	AddText(&row, PersistentCacheModeName());
	AddDatum(&row, Int32GetDatum(NBuffers));
	if (!PersistentCacheEnabled())
	{
		if (PersistentCacheUnavailable() != NULL)
			AddUnavailable(&row);
		PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_POOL_COLS));
	}

	stats = palloc(sizeof(PersistentCacheStats));
	PersistentCacheGetStats(stats);
	AddText(&row, stats->path);
	AddText(&row, PCacheFsKindName(stats->superblock.fs_kind));
	AddDatum(&row, Int64GetDatum(stats->superblock.capacity));
	AddDatum(&row, Int64GetDatum(stats->superblock.pool_size));
	AddRoom(&row, stats->path);
	AddText(&row, StateName(stats->superblock.state));
	AddLastStart(&row, stats);
	AddMedia(&row, stats);
	PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_POOL_COLS));
}

/*
 * A row for each relation fork that has pages in shared buffers.
 */
PG_FUNCTION_INFO_V1(pg_pcache_relations);

Datum
pg_pcache_relations(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PersistentCacheRelation *relations;
	uint32		n;

	InitMaterializedSRF(fcinfo, 0);
	CheckColumns(rsinfo->setDesc, PG_PCACHE_RELATIONS_COLS);
	relations = PersistentCacheGetRelations(&n);
	for (uint32 i = 0; i < n; i++)
	{
		const PersistentCacheRelation *relation = &relations[i];
		Row			row;

		InitRow(&row);
		AddDatum(&row, ObjectIdGetDatum(relation->rlocator.relNumber));
		AddDatum(&row, ObjectIdGetDatum(relation->rlocator.spcOid));
		AddDatum(&row, ObjectIdGetDatum(relation->rlocator.dbOid));
		AddDatum(&row, Int16GetDatum(relation->fork));
		AddDatum(&row, Int64GetDatum(relation->buffers));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 row.values, row.nulls);
	}
	return (Datum) 0;
}

/*
 * How will the next start be, after what the argument names?
 */
PG_FUNCTION_INFO_V1(pg_pcache_next_start);

static PCacheNextEvent
GetEvent(const char *what)
{
	if (strcmp(what, "restart") == 0)
		return PCACHE_NEXT_RESTART;
	if (strcmp(what, "crash") == 0)
		return PCACHE_NEXT_CRASH;
	if (strcmp(what, "host crash") == 0)
		return PCACHE_NEXT_HOST_CRASH;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized event: \"%s\"", what),
			 errhint("Valid events are \"restart\", \"crash\", and \"host crash\".")));
}

Datum
pg_pcache_next_start(PG_FUNCTION_ARGS)
{
	Row			row;
	PCacheVerdict verdict;

	PersistentCacheNextStart(GetEvent(text_to_cstring(PG_GETARG_TEXT_PP(0))), &verdict);

	InitRow(&row);
	AddDatum(&row, BoolGetDatum(verdict.refusal == PCACHE_WARM));
	AddText(&row, PCacheRefusalName(verdict.refusal));
	AddDetail(&row, verdict.why.message);
	AddDetail(&row, verdict.why.hint);
	PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_NEXT_START_COLS));
}
