/*-------------------------------------------------------------------------
 *
 * pg_hotset.c
 *	  The settings of pg_hotset, and its SQL functions.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/pg_hotset.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "hotset.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "varatt.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(
					.name = "pg_hotset",
					.version = PG_VERSION
);
#else
PG_MODULE_MAGIC;				/* PostgreSQL 17 */
#endif

#define HOTSET_PAGES_COLS	6
#define HOTSET_INFO_COLS	8
/* a list of the smallest server may have so many bytes */
#define LIST_MIN_BYTES		65536

int			hotset_interval = 60;
int			hotset_max_rate = 100;
int			hotset_timeout = 10;
char	   *hotset_source;
char	   *hotset_dbname;

PG_FUNCTION_INFO_V1(pg_hotset);
PG_FUNCTION_INFO_V1(pg_hotset_pages);
PG_FUNCTION_INFO_V1(pg_hotset_info);

void
_PG_init(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = 10,
	};

	DefineCustomIntVariable("pg_hotset.interval",
							"Sets how often a standby asks for the pages that its primary has in shared buffers.",
							"Zero means never.",
							&hotset_interval, 60, 0, 86400, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_hotset.max_rate",
							"Sets how many megabytes per second are read at most to warm shared buffers.",
							"Zero means no limit.",
							&hotset_max_rate, 100, 0, 1000000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_hotset.timeout",
							"Sets how long to wait for a connection and for each answer.",
							NULL,
							&hotset_timeout, 10, 1, 3600, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomStringVariable("pg_hotset.source",
							   "Connection string of the server to ask.",
							   "An empty string means that of primary_conninfo.",
							   &hotset_source, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("pg_hotset.dbname",
							   "Sets the database to connect to, in which the extension pg_hotset is.",
							   NULL,
							   &hotset_dbname, "postgres", PGC_SIGHUP, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pg_hotset");

	if (!process_shared_preload_libraries_in_progress)
		return;
	strlcpy(worker.bgw_library_name, "pg_hotset", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "hotset_worker_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "pg_hotset", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "pg_hotset", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

/* Append the list that this standby has got from its primary. */
static void
ReadPrimarysList(StringInfo list)
{
	const char *problem;

	if (HotsetReadFile(HOTSET_FILE, list, &problem) != NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("this standby has no list of its primary"),
			 problem != NULL ? errdetail_internal("%s", problem) : 0,
			 errhint("A standby passes on its primary's list, which its worker gets if \"pg_hotset\" is in \"%s\".",
					 "shared_preload_libraries")));
}

/*
 * pg_hotset() returns bytea
 *
 * The pages in shared buffers as a list, or on a standby the primary's list.
 * If there is more than a byte for each buffer, the coldest pages are left out.
 */
Datum
pg_hotset(PG_FUNCTION_ARGS)
{
	StringInfoData list;
	bytea	   *result;

	initStringInfo(&list);
	if (RecoveryInProgress())
		ReadPrimarysList(&list);
	else
		HotsetEncode(HotsetScan(), Max(NBuffers, LIST_MIN_BYTES), &list);
	result = palloc(VARHDRSZ + list.len);
	SET_VARSIZE(result, VARHDRSZ + list.len);
	memcpy(VARDATA(result), list.data, list.len);
	PG_RETURN_BYTEA_P(result);
}

static HotsetSet *
DecodeArgument(bytea *list)
{
	const char *problem;
	HotsetSet  *set = HotsetDecode(VARDATA_ANY(list), VARSIZE_ANY_EXHDR(list), &problem);

	if (set == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid list of pages"),
				 errdetail_internal("%s", problem)));
	return set;
}

/* pg_hotset_pages(list bytea): the pages of a list, one a row */
Datum
pg_hotset_pages(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HotsetSet  *set = DecodeArgument(PG_GETARG_BYTEA_PP(0));
	bool		nulls[HOTSET_PAGES_COLS] = {0};

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 r = 0; r < set->nrelations; r++)
	{
		const HotsetRelation *relation = &set->relations[r];

		for (uint32 i = relation->first; i < relation->first + relation->npages; i++)
		{
			Datum		values[HOTSET_PAGES_COLS] = {
				ObjectIdGetDatum(relation->fork.locator.spcOid),
				ObjectIdGetDatum(relation->fork.locator.dbOid),
				ObjectIdGetDatum(relation->fork.locator.relNumber),
				Int16GetDatum(relation->fork.number),
				Int64GetDatum(HotsetBlock(set->pages[i])),
				Int16GetDatum(HotsetHeat(set->pages[i])),
			};

			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
			if (i % 4096 == 0)
				CHECK_FOR_INTERRUPTS();
		}
	}
	return (Datum) 0;
}

/* pg_hotset_info(list bytea): of whom and when a list is, as a row */
Datum
pg_hotset_info(PG_FUNCTION_ARGS)
{
	HotsetSet  *set = DecodeArgument(PG_GETARG_BYTEA_PP(0));
	bool		nulls[HOTSET_INFO_COLS] = {0};
	TupleDesc	tupdesc;
	Datum		values[HOTSET_INFO_COLS] = {
		Int64GetDatum((int64) set->origin.system_identifier),
		Int32GetDatum(set->origin.timeline),
		Int64GetDatum(set->origin.lsn),
		TimestampTzGetDatum(set->origin.taken),
		TimestampTzGetDatum(set->origin.server_start),
		Int64GetDatum(set->origin.nbuffers),
		Int64GetDatum(set->nrelations),
		Int64GetDatum(set->npages),
	};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE || tupdesc->natts != HOTSET_INFO_COLS)
		elog(ERROR, "pg_hotset_info() has other columns than its library");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
