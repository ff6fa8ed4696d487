/*-------------------------------------------------------------------------
 *
 * hotset_load.c
 *	  pg_hotset_load() reads the pages that a file names, of any kind that we
 *	  know.
 *
 * A list of another cluster may be from the one that pg_upgrade made this one
 * of.  As hotset_text.c says, pages of catalogs are left out then.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_load.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_authid_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "hotset.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(pg_hotset_load);

static void
RefuseFile(const char *path, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("could not use file \"%s\" as a list of pages", path),
			 errdetail_internal("%s", problem)));
}

/* Make a set of a text file's contents, which are changed by that. */
static HotsetSet *
ReadText(const char *path, char *data, Size length, uint64 *skipped)
{
	HotsetForkMap *map = HotsetForkMapCreate();
	HotsetText	text;
	uint32		nkeys = 0;
	Size		capacity = 1;
	uint64	   *keys;

	/* Lines are at most as many as bytes, of which there are less than 2^30. */
	for (const char *c = data; *c != '\0'; c++)
		capacity += *c == '\n';
	keys = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * capacity);
	HotsetTextBegin(&text, data, length);
	while (HotsetTextNext(&text))
		keys[nkeys++] = HotsetKey(HotsetForkMapAdd(map, &text.fork), text.block, text.heat);
	if (text.problem != NULL)
		RefuseFile(path, text.problem);
	*skipped += text.catalogs + text.impossible;
	return HotsetSort(map, keys, nkeys);
}

/* Leave out the catalogs' pages of a list that is from another cluster. */
static void
LeaveOutCatalogs(HotsetSet *set, uint64 *skipped)
{
	uint32		nrelations = 0;
	uint32		npages = 0;

	for (uint32 r = 0; r < set->nrelations; r++)
	{
		HotsetRelation relation = set->relations[r];

		if (relation.fork.locator.relNumber < FirstNormalObjectId)
		{
			*skipped += relation.npages;
			continue;
		}
		memmove(set->pages + npages, set->pages + relation.first, sizeof(uint64) * relation.npages);
		relation.first = npages;
		npages += relation.npages;
		set->relations[nrelations++] = relation;
	}
	set->nrelations = nrelations;
	set->npages = npages;
}

/*
 * Read a file of any kind that we know into the current memory context, or fail
 * with an ERROR.  Adds to *skipped the pages that were left out.
 */
static HotsetSet *
ReadForeignFile(const char *path, uint64 *skipped)
{
	StringInfoData raw;
	const char *problem;
	HotsetSet  *set;

	initStringInfo(&raw);
	set = HotsetReadFile(path, &raw, &problem);
	if (set != NULL)
	{
		if (set->origin.system_identifier != GetSystemIdentifier())
			LeaveOutCatalogs(set, skipped);
		return set;
	}
	if (problem == NULL)
		problem = "There is no such file.";
	if (raw.len == 0 || HotsetIsList(raw.data, raw.len))
		RefuseFile(path, problem);
	return ReadText(path, raw.data, raw.len, skipped);
}

static bool
NeverStop(void)
{
	return false;
}

/*
 * pg_hotset_load(file text): read the pages of a list into shared buffers, as
 * far as there is room.  Returns how many were read, how many were there, and
 * how many were left out.
 */
Datum
pg_hotset_load(PG_FUNCTION_ARGS)
{
	char	   *path = text_to_cstring(PG_GETARG_TEXT_PP(0));
	HotsetCounts counts = {0};
	StringInfoData memory;
	HotsetComparison *comparison;
	HotsetPlan *plan;
	HotsetSet  *set;
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to read file \"%s\"", path),
				 errdetail("Only roles with privileges of the \"%s\" role may read files of the server.",
						   "pg_read_server_files")));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE || tupdesc->natts != 3)
		elog(ERROR, "pg_hotset_load() has other columns than its library");

	initStringInfo(&memory);
	set = ReadForeignFile(path, &counts.skipped);
	comparison = HotsetCompare(set, false);
	plan = HotsetMakePlan(set, comparison, &memory);
	HotsetRunJob(plan, &counts, NeverStop);
	values[0] = Int64GetDatum(counts.read);
	values[1] = Int64GetDatum(comparison->nhere);
	values[2] = Int64GetDatum(counts.skipped + plan->no_room);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
