/*-------------------------------------------------------------------------
 *
 * hotset_text.c
 *	  Reads lists of pages that others have made: pg_prewarm's
 *	  autoprewarm.blocks, and pg_buffercache as CSV.
 *
 * They may be from the cluster that pg_upgrade made this one of.  It keeps the
 * numbers of databases, tablespaces and files, except for those of the system
 * catalogs, so pages of these are left out.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_text.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/transam.h"
#include "hotset_set.h"
#include "miscadmin.h"

#define MAX_FIELDS		32
/* of a page whose usage count the file does not tell */
#define UNKNOWN_HEAT	1

static const char *const column_names[HOTSET_COLUMNS] = {
	"reldatabase", "reltablespace", "relfilenode", "relforknumber", "relblocknumber", "usagecount"
};

/* What a line says */
typedef enum LineKind
{
	LINE_PAGE,
	LINE_EMPTY_BUFFER,
	LINE_DAMAGED,
} LineKind;

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

/* Is this a number, and nothing else, up to max? */
static bool
ParseNumber(const char *field, uint64 max, uint64 *number)
{
	char	   *end;

	errno = 0;
	*number = strtou64(field, &end, 10);
	return errno == 0 && isdigit((unsigned char) *field) && *end == '\0' && *number <= max;
}

/* The next line, without its end; NULL if there is none. */
static char *
NextLine(HotsetText *text)
{
	char	   *line = text->rest;
	char	   *end;

	if (*line == '\0')
		return NULL;
	end = strchr(line, '\n');
	if (end == NULL)
		text->rest = line + strlen(line);
	else
	{
		text->rest = end + 1;
		*end = '\0';
		if (end > line && end[-1] == '\r')
			end[-1] = '\0';
	}
	return line;
}

/* "<<N>>" is the first line of autoprewarm.blocks, and says how many follow. */
static bool
ReadPromise(HotsetText *text, char *line)
{
	char	   *end = strstr(line, ">>");

	if (strncmp(line, "<<", 2) != 0 || end == NULL || end[2] != '\0')
		return false;
	*end = '\0';
	for (HotsetColumn column = 0; column < HOTSET_COLUMNS; column++)
		text->places[column] = column != HOTSET_HEAT ? (int) column : -1;
	text->is_autoprewarm = true;
	return ParseNumber(line + 2, PG_INT64_MAX, &text->promised);
}

/* A header says which column is where. */
static bool
ReadHeader(HotsetText *text, char *line)
{
	char	   *fields[MAX_FIELDS];
	int			n = SplitLine(line, fields);

	for (HotsetColumn column = 0; column < HOTSET_COLUMNS; column++)
	{
		text->places[column] = -1;
		for (int i = 0; i < n; i++)
			if (strcmp(fields[i], column_names[column]) == 0)
				text->places[column] = i;
		if (text->places[column] < 0 && column != HOTSET_HEAT)
			return false;
	}
	return true;
}

static LineKind
ReadLine(HotsetText *text, char *line)
{
	uint64		numbers[HOTSET_COLUMNS];
	char	   *fields[MAX_FIELDS];
	int			n = SplitLine(line, fields);
	int			empty = 0;

	numbers[HOTSET_HEAT] = UNKNOWN_HEAT;
	for (HotsetColumn column = 0; column < HOTSET_COLUMNS; column++)
	{
		int			place = text->places[column];

		if (place < 0)
			continue;
		if (place >= n)
			return LINE_DAMAGED;
		if (fields[place][0] == '\0')
			empty++;
		else if (!ParseNumber(fields[place], PG_UINT32_MAX, &numbers[column]))
			return LINE_DAMAGED;
	}
	/* the usage count of an empty buffer may be there */
	if (empty > 0)
		return empty < HOTSET_HEAT ? LINE_DAMAGED : LINE_EMPTY_BUFFER;
	text->fork.locator.dbOid = numbers[HOTSET_DATABASE];
	text->fork.locator.spcOid = numbers[HOTSET_TABLESPACE];
	text->fork.locator.relNumber = numbers[HOTSET_RELATION];
	text->fork.number = Min(numbers[HOTSET_FORK], INIT_FORKNUM);
	text->block = numbers[HOTSET_BLOCK];
	text->heat = Min(numbers[HOTSET_HEAT], HOTSET_MAX_HEAT);
	return LINE_PAGE;
}

/*
 * Begin to read a file's contents, which are changed by that and end with a
 * null byte.  Sets text->problem if they are no text that we know.
 */
void
HotsetTextBegin(HotsetText *text, char *data, Size length)
{
	char	   *line;

	memset(text, 0, sizeof(*text));
	text->rest = data;
	if (strlen(data) != length)
	{
		text->problem = psprintf("There is a null byte at offset %zu.", strlen(data));
		return;
	}
	line = NextLine(text);
	if (line == NULL)
		text->problem = "It is empty.";
	else if (!ReadPromise(text, line) && !ReadHeader(text, line))
		text->problem = "It is neither a list of pg_hotset, nor \"autoprewarm.blocks\" of pg_prewarm, nor \"pg_buffercache\" as CSV with a header.";
}

/*
 * Read the next page that this cluster may have.  False at the end, and if
 * text->problem is set.
 */
bool
HotsetTextNext(HotsetText *text)
{
	char	   *line;

	while (text->problem == NULL && (line = NextLine(text)) != NULL)
	{
		LineKind	kind = ReadLine(text, line);

		if (++text->nlines % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		if (kind == LINE_DAMAGED)
			text->problem = psprintf("Line " UINT64_FORMAT " is damaged.", text->nlines + 1);
		if (kind != LINE_PAGE)
			continue;
		if (!HotsetForkCanBe(&text->fork) || text->block > MaxBlockNumber)
			text->impossible++;
		else if (text->fork.locator.relNumber < FirstNormalObjectId)
			text->catalogs++;
		else
			return true;
	}
	if (text->problem == NULL && text->is_autoprewarm && text->promised != text->nlines)
		text->problem = psprintf("It is not complete: its first line promises " UINT64_FORMAT " lines, and " UINT64_FORMAT " follow.",
								 text->promised, text->nlines);
	return false;
}
