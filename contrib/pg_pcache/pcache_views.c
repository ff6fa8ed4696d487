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
#include "storage/bufmgr.h"
#include "storage/pcache_library.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

/* Number of output arguments (columns) of each function that returns rows */
#define PG_PCACHE_POOL_COLS			32
/* of them, between buffers and last_start */
#define PG_PCACHE_POOL_PLACE_COLS	7
#define PG_PCACHE_RELATIONS_COLS	5
#define PG_PCACHE_NEXT_START_COLS	4
#define PG_PCACHE_MAX_COLS			PG_PCACHE_POOL_COLS /* maximum of above */

/* A scan can be interrupted after so many buffers. */
#define SLOTS_PER_INTERRUPT			65536

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

/* A name that is made for readers, as a key; pg_pcache's JSON has the same keys. */
static void
AppendKey(StringInfo json, const char *name)
{
	for (; *name != '\0'; name++)
		appendStringInfoChar(json, *name == ' ' ? '_' : pg_ascii_tolower((unsigned char) *name));
}

/* The reasons, named as by pg_pcache verify --json, with their counts. */
static Datum
DroppedByReason(void)
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
		appendStringInfo(&json, "\": " UINT64_FORMAT, PCacheStart.pages[i]);
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
AddLastStart(Row *row)
{
	uint64		dropped = 0;
	bool		warm = PCacheStart.verdict.refusal == PCACHE_WARM;

	AddText(row, warm ? "warm" : "cold");
	AddDatum(row, TimestampTzGetDatum(PCacheStart.started_at));
	AddDetail(row, warm ? "" : PCacheRefusalName(PCacheStart.verdict.refusal));
	AddDetail(row, PCacheStart.verdict.why.message);

	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i != PCACHE_PAGE_KEPT && i != PCACHE_PAGE_FREE)
			dropped += PCacheStart.pages[i];
	}
	AddDatum(row, Int64GetDatum(PCacheStart.pages[PCACHE_PAGE_KEPT]));
	AddDatum(row, Int64GetDatum(dropped));
	AddDatum(row, DroppedByReason());
	AddDatum(row, Int32GetDatum(PCacheStart.retired));
	AddDatum(row, Float8GetDatum(PCacheStart.startup_usec / 1000.0));
	AddDatum(row, Float8GetDatum(PCacheStart.rebuild_usec / 1000.0));
	AddDatum(row, Int64GetDatum(PCacheStart.young));
	AddDatum(row, Int64GetDatum(PCacheLibrary->redo_skipped));
	AddDatum(row, Int64GetDatum(PCacheLibrary->redo_called));
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
	AddDetail(row, PCacheWhyUnavailable());
}

static void
AddMedia(Row *row)
{
	const PCacheMediaReport *media = &PCacheStart.media;
	uint64		bad_bytes = 0;
	char		health[PCACHE_MEDIA_HEALTH_LEN];

	if (PCacheStart.media_checked == 0)
		return;

	AddDatum(row, TimestampTzGetDatum(PCacheStart.media_checked));
	AddText(row, PCacheMediaAnswerName(media->blocks));
	AddDetail(row, media->blocks_why);
	for (uint32 i = 0; i < media->bad.n_ranges; i++)
		bad_bytes += media->bad.ranges[i].length;
	if (media->blocks == PCACHE_MEDIA_UNKNOWN || media->bad.truncated)
		AddNull(row);
	else
		AddDatum(row, Int64GetDatum(bad_bytes));
	AddText(row, PCacheMediaAnswerName(media->dimms_state));
	AddDetail(row, media->dimms_why);
	if (media->n_dimms == 0)
		AddNull(row);
	else
		AddText(row, PCacheMediaHealthText(media->health, health, sizeof(health)));
	AddText(row, PCachePersistenceDomainName(media->domain));
	AddText(row, PCachePowerRuleName(PCacheLibrary->superblock.power_rule));
	AddDetail(row, PCacheStart.power_cold.message);
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

	InitRow(&row);
	AddText(&row, !PCacheIsPreloaded ? "off" : GetConfigOption("pcache.mode", false, false));
	AddDatum(&row, Int32GetDatum(NBuffers));
	if (!PCacheStart.in_use)
	{
		if (PCacheWhyUnavailable() != NULL)
			AddUnavailable(&row);
		PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_POOL_COLS));
	}

	AddText(&row, PCacheThePool.path);
	AddText(&row, PCacheFsKindName(PCacheLibrary->superblock.fs_kind));
	AddDatum(&row, Int64GetDatum(PCacheLibrary->superblock.capacity));
	AddDatum(&row, Int64GetDatum(PCacheLibrary->superblock.pool_size));
	AddRoom(&row, PCacheThePool.path);
	AddText(&row, PCacheStateName(PCacheLibrary->superblock.state));
	AddLastStart(&row);
	AddMedia(&row);
	PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_POOL_COLS));
}

/* A relation fork: the first four fields of a buffer's tag */
typedef struct ForkKey
{
	Oid			spc_oid;
	Oid			db_oid;
	Oid			rel_number;
	int32		fork;
} ForkKey;

StaticAssertDecl(sizeof(ForkKey) == offsetof(BufferTag, blockNum), "ForkKey");

typedef struct ForkCount
{
	ForkKey		key;
	uint32		buffers;
} ForkCount;

/*
 * Count the cached pages of each relation fork.
 *
 * A header is read without its lock, so a page that is replaced just now may be
 * counted for a relation that it does not belong to.  It is a statistic only.
 */
static HTAB *
CountForks(void)
{
	HASHCTL		ctl = {.keysize = sizeof(ForkKey),.entrysize = sizeof(ForkCount)};
	HTAB	   *counts = hash_create("relations in shared buffers", 1024, &ctl,
									 HASH_ELEM | HASH_BLOBS);
	ForkCount  *count = NULL;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state = pg_atomic_read_u32(&buf->state);
		ForkKey		key;
		bool		found;

		if (slot % SLOTS_PER_INTERRUPT == 0)
			CHECK_FOR_INTERRUPTS();
		if ((state & (BM_VALID | BM_TAG_VALID)) != (BM_VALID | BM_TAG_VALID))
			continue;
		memcpy(&key, &buf->tag, sizeof(key));
		if (count == NULL || memcmp(&count->key, &key, sizeof(key)) != 0)
		{
			count = hash_search(counts, &key, HASH_ENTER, &found);
			if (!found)
				count->buffers = 0;
		}
		count->buffers++;
	}
	return counts;
}

/*
 * A row for each relation fork that has pages in shared buffers.
 */
PG_FUNCTION_INFO_V1(pg_pcache_relations);

Datum
pg_pcache_relations(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HTAB	   *counts;
	ForkCount  *count;
	HASH_SEQ_STATUS scan;

	InitMaterializedSRF(fcinfo, 0);
	CheckColumns(rsinfo->setDesc, PG_PCACHE_RELATIONS_COLS);
	counts = CountForks();
	hash_seq_init(&scan, counts);
	while ((count = hash_seq_search(&scan)) != NULL)
	{
		Row			row;

		InitRow(&row);
		AddDatum(&row, ObjectIdGetDatum(count->key.rel_number));
		AddDatum(&row, ObjectIdGetDatum(count->key.spc_oid));
		AddDatum(&row, ObjectIdGetDatum(count->key.db_oid));
		AddDatum(&row, Int16GetDatum(count->key.fork));
		AddDatum(&row, Int64GetDatum(count->buffers));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 row.values, row.nulls);
	}
	hash_destroy(counts);
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

	PCacheNextStart(GetEvent(text_to_cstring(PG_GETARG_TEXT_PP(0))), &verdict);

	InitRow(&row);
	AddDatum(&row, BoolGetDatum(verdict.refusal == PCACHE_WARM));
	AddText(&row, PCacheRefusalName(verdict.refusal));
	AddDetail(&row, verdict.why.message);
	AddDetail(&row, verdict.why.hint);
	PG_RETURN_DATUM(RowToDatum(fcinfo, &row, PG_PCACHE_NEXT_START_COLS));
}
