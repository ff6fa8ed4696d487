/*-------------------------------------------------------------------------
 *
 * hotset_load.c
 *	  Lists that others have made: pg_prewarm's autoprewarm.blocks, and
 *	  pg_buffercache as CSV.
 *
 * They may be from the cluster that pg_upgrade made this one of.  It keeps the
 * numbers of databases, tablespaces and files, except for those of the system
 * catalogs, so pages of these are left out.
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

#define MAX_FIELDS		32
/* of a page whose usage count the file does not tell */
#define UNKNOWN_HEAT	1

/* What a field of a line means */
typedef enum FieldKind
{
	FIELD_DATABASE,
	FIELD_TABLESPACE,
	FIELD_RELATION,
	FIELD_FORK,
	FIELD_BLOCK,
	FIELD_HEAT,					/* optional */
	FIELD_KINDS
} FieldKind;

static const char *const field_names[FIELD_KINDS] = {
	"reldatabase", "reltablespace", "relfilenode", "relforknumber", "relblocknumber", "usagecount"
};

PG_FUNCTION_INFO_V1(pg_hotset_load);

/* Split a line at its commas, in place; returns the number of fields. */
static int
SplitLine(char *line, char **fields)
{
	int			n = 0;

	for (char *next; n < MAX_FIELDS; line = next + 1)
	{
		fields[n++] = line;
		if ((next = strchr(line, ',')) == NULL)
			return n;
		*next = '\0';
	}
	return n;
}

/* Is the field a number that fits? */
static bool
ParseNumber(const char *field, uint32 *number)
{
	char	   *end;
	unsigned long value;

	errno = 0;
	value = strtoul(field, &end, 10);
	*number = (uint32) value;
	return errno == 0 && isdigit((unsigned char) *field) && *end == '\0' && value <= PG_UINT32_MAX;
}

/*
 * Find out from the first line where which field is.  False if this is no file
 * that we know.
 */
static bool
ReadFirstLine(char *line, int *places)
{
	char	   *fields[MAX_FIELDS];
	int			n;

	if (strncmp(line, "<<", 2) == 0)
	{
		for (int kind = 0; kind < FIELD_HEAT; kind++)
			places[kind] = kind;
		places[FIELD_HEAT] = -1;
		return true;
	}
	n = SplitLine(line, fields);
	for (int kind = 0; kind < FIELD_KINDS; kind++)
	{
		places[kind] = -1;
		for (int i = 0; i < n; i++)
			if (strcmp(fields[i], field_names[kind]) == 0)
				places[kind] = i;
		if (places[kind] < 0 && kind != FIELD_HEAT)
			return false;
	}
	return true;
}

/*
 * Read one line.  False if it has no page, as the line of an empty buffer;
 * *problem is set if it is none at all.
 */
static bool
ReadPage(char *line, const int *places, HotsetFork *fork, uint32 *block, uint32 *heat, bool *problem)
{
	uint32		numbers[FIELD_KINDS];
	char	   *fields[MAX_FIELDS];
	int			n = SplitLine(line, fields);
	int			empty = 0;

	numbers[FIELD_HEAT] = UNKNOWN_HEAT;
	for (int kind = 0; kind < FIELD_KINDS; kind++)
	{
		if (places[kind] < 0)
			continue;
		if (places[kind] >= n)
			*problem = true;
		else if (fields[places[kind]][0] == '\0')
			empty++;
		else if (!ParseNumber(fields[places[kind]], &numbers[kind]))
			*problem = true;
	}
	if (*problem || empty > 0)
	{
		*problem |= empty > 0 && empty < FIELD_HEAT;
		return false;
	}
	fork->locator.dbOid = numbers[FIELD_DATABASE];
	fork->locator.spcOid = numbers[FIELD_TABLESPACE];
	fork->locator.relNumber = numbers[FIELD_RELATION];
	fork->number = numbers[FIELD_FORK];
	*block = numbers[FIELD_BLOCK];
	*heat = Min(numbers[FIELD_HEAT], HOTSET_HEAT_MASK);
	return true;
}

/* The text behind autoprewarm's first line has to be as long as that says. */
static void
CheckPromise(const char *path, const char *first_line, uint64 nlines)
{
	uint64		promised;

	if (sscanf(first_line, "<<" UINT64_FORMAT ">>", &promised) != 1 || promised != nlines)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is not complete", path),
				 errdetail("Its first line is \"%s\", and " UINT64_FORMAT " lines follow.", first_line, nlines)));
}

static void
NoList(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("file \"%s\" is no list of pages", path),
			 errhint("It has to be a list of pg_hotset, \"autoprewarm.blocks\" of pg_prewarm, or \"pg_buffercache\" as CSV with a header.")));
}

/* Make a set of a text file's contents, which are changed by that. */
static HotsetSet *
ReadText(const char *path, char *text, Size length, uint64 *skipped)
{
	HotsetForkMap *map = HotsetForkMapCreate();
	char	   *first_line = text;
	int			places[FIELD_KINDS];
	uint64		nlines = 0;
	uint32		nkeys = 0;
	Size		capacity = 1;
	uint64	   *keys;
	bool		autoprewarm = strncmp(text, "<<", 2) == 0;

	if (strlen(text) != length)
		NoList(path);
	for (const char *c = text; *c != '\0'; c++)
		capacity += *c == '\n';
	if (capacity > PG_UINT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("file \"%s\" has too many lines", path)));
	keys = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * capacity);

	for (char *line = text, *next; line != NULL && *line != '\0'; line = next)
	{
		HotsetFork	fork;
		uint32		block;
		uint32		heat;
		bool		problem = false;

		next = strchr(line, '\n');
		if (next != NULL)
		{
			if (next > line && next[-1] == '\r')
				next[-1] = '\0';
			*next++ = '\0';
		}
		if (line == text)
		{
			if (!ReadFirstLine(line, places))
				NoList(path);
			continue;
		}
		nlines++;
		if (ReadPage(line, places, &fork, &block, &heat, &problem))
		{
			if (fork.number < 0 || fork.number >= INIT_FORKNUM || block > MaxBlockNumber ||
				!OidIsValid(fork.locator.spcOid) || fork.locator.relNumber < FirstNormalObjectId)
				(*skipped)++;
			else
				keys[nkeys++] = HotsetKey(HotsetForkMapAdd(map, &fork), block, heat);
		}
		else if (problem)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("line " UINT64_FORMAT " of file \"%s\" is damaged", nlines + 1, path)));
		if (nlines % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	if (autoprewarm)
		CheckPromise(path, first_line, nlines);
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
HotsetSet *
HotsetReadForeignFile(const char *path, uint64 *skipped)
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
	if (raw.len == 0 || memcmp(raw.data, "PGHOTSET", Min(raw.len, 8)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("could not use file \"%s\"", path),
				 errdetail_internal("%s", raw.len == 0 && problem == NULL ? "There is no such file." : problem)));
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
	set = HotsetReadForeignFile(path, &counts.skipped);
	comparison = HotsetCompare(set, false);
	plan = HotsetMakePlan(set, comparison, &memory);
	HotsetRunJob(plan, &counts, NeverStop);
	values[0] = Int64GetDatum(counts.read);
	values[1] = Int64GetDatum(comparison->nhere);
	values[2] = Int64GetDatum(counts.skipped + plan->no_room);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
