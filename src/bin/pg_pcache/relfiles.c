/*-------------------------------------------------------------------------
 *
 * relfiles.c
 *	  The relation files of a cluster that is down.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/relfiles.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>
#include <dirent.h>

#include "catalog/pg_tablespace_d.h"
#include "common/logging.h"
#include "pg_pcache.h"

/* What one --relations entry asks for; InvalidOid for any. */
typedef struct RelationChoice
{
	const char *text;
	Oid			spc_oid;
	Oid			db_oid;
	RelFileNumber rel_number;
	bool		found;
} RelationChoice;

struct RelationChoices
{
	RelationChoice *choices;
	int			n;
};

/* A decimal number that ends at the given character; moves *text behind it. */
static bool
ParseNumber(const char **text, char terminator, Oid *number)
{
	char	   *end;
	unsigned long value;

	if (!isdigit((unsigned char) **text))
		return false;
	errno = 0;
	value = strtoul(*text, &end, 10);
	if (errno != 0 || value > PG_UINT32_MAX || *end != terminator)
		return false;
	*number = value;
	*text = (terminator == '\0') ? end : end + 1;
	return true;
}

/*
 * DBOID/RELFILENODE, or a path as pg_relation_filepath() gives it:
 * base/DBOID/RELFILENODE, global/RELFILENODE,
 * pg_tblspc/SPCOID/VERSION/DBOID/RELFILENODE.
 */
static bool
ParseChoice(const char *text, RelationChoice *choice)
{
	const char *p = text;

	memset(choice, 0, sizeof(*choice));
	choice->text = text;
	if (strncmp(p, "global/", 7) == 0)
	{
		choice->spc_oid = GLOBALTABLESPACE_OID;
		p += 7;
		return ParseNumber(&p, '\0', &choice->rel_number);
	}
	if (strncmp(p, "base/", 5) == 0)
	{
		choice->spc_oid = DEFAULTTABLESPACE_OID;
		p += 5;
	}
	else if (strncmp(p, "pg_tblspc/", 10) == 0)
	{
		p += 10;
		if (!ParseNumber(&p, '/', &choice->spc_oid) ||
			strncmp(p, TABLESPACE_VERSION_DIRECTORY "/",
					strlen(TABLESPACE_VERSION_DIRECTORY) + 1) != 0)
			return false;
		p += strlen(TABLESPACE_VERSION_DIRECTORY) + 1;
	}
	return ParseNumber(&p, '/', &choice->db_oid) &&
		ParseNumber(&p, '\0', &choice->rel_number) &&
		choice->rel_number != InvalidRelFileNumber;
}

/*
 * Parse the value of --relations, a list separated by commas or white space.
 * Gives up if it is wrong.
 */
struct RelationChoices *
ParseRelationChoices(const char *list)
{
	struct RelationChoices *result = pg_malloc0_object(struct RelationChoices);
	char	   *copy = pg_strdup(list);

	for (char *item = strtok(copy, ", \t\n"); item != NULL;
		 item = strtok(NULL, ", \t\n"))
	{
		result->choices = pg_realloc_array(result->choices, RelationChoice,
										   result->n + 1);
		if (!ParseChoice(item, &result->choices[result->n]))
		{
			pg_log_error("invalid relation \"%s\" for option %s", item, "--relations");
			pg_log_error_hint("A relation is DBOID/RELFILENODE, or a path as the function pg_relation_filepath() returns it.");
			exit(EXIT_ERROR);
		}
		result->n++;
	}
	if (result->n == 0)
	{
		pg_log_error("option %s names no relation", "--relations");
		pg_log_error_hint("A relation is DBOID/RELFILENODE, or a path as the function pg_relation_filepath() returns it.");
		exit(EXIT_ERROR);
	}
	return result;
}

/* The place of a relation in the list of choices, or -1: not chosen. */
static int
FindChoice(struct RelationChoices *choices, RelFileLocator rlocator)
{
	if (choices == NULL)
		return 0;
	for (int i = 0; i < choices->n; i++)
	{
		RelationChoice *choice = &choices->choices[i];

		if (choice->rel_number == rlocator.relNumber &&
			choice->db_oid == rlocator.dbOid &&
			(choice->spc_oid == InvalidOid || choice->spc_oid == rlocator.spcOid))
		{
			choice->found = true;
			return i;
		}
	}
	return -1;
}

/*
 * Is this the name of the first segment of a fork of a relation that is not
 * temporary?  "1259", "1259_fsm", but not "1259.1" or "t3_1259".
 */
static bool
ParseFileName(const char *name, RelFileNumber *number, ForkNumber *fork)
{
	char		forkname[16];
	char	   *end;
	unsigned long value;

	if (!isdigit((unsigned char) name[0]) || name[0] == '0')
		return false;
	errno = 0;
	value = strtoul(name, &end, 10);
	if (errno != 0 || value > PG_UINT32_MAX)
		return false;
	*number = value;
	*fork = MAIN_FORKNUM;
	if (*end == '\0')
		return true;
	if (*end != '_' || strlcpy(forkname, end + 1, sizeof(forkname)) >= sizeof(forkname))
		return false;
	for (ForkNumber f = MAIN_FORKNUM + 1; f <= MAX_FORKNUM; f++)
	{
		if (strcmp(forkname, forkNames[f]) == 0)
		{
			*fork = f;
			return true;
		}
	}
	return false;
}

/* Add the relation forks in one directory. */
static void
ScanDirectory(const char *path, Oid spc_oid, Oid db_oid,
			  struct RelationChoices *choices, RelationFiles *files)
{
	DIR		   *dir = opendir(path);
	struct dirent *entry;

	if (dir == NULL)
		pg_fatal("could not open directory \"%s\": %m", path);
	while (errno = 0, (entry = readdir(dir)) != NULL)
	{
		RelationFile file = {{0}};

		if (!ParseFileName(entry->d_name, &file.rlocator.relNumber, &file.fork))
			continue;
		file.rlocator.spcOid = spc_oid;
		file.rlocator.dbOid = db_oid;
		file.choice = FindChoice(choices, file.rlocator);
		if (file.choice < 0)
			continue;
		if (files->n == files->allocated)
		{
			files->allocated = Max(1024, files->allocated * 2);
			files->files = pg_realloc_array(files->files, RelationFile,
											files->allocated);
		}
		files->files[files->n++] = file;
	}
	if (errno != 0)
		pg_fatal("could not read directory \"%s\": %m", path);
	closedir(dir);
}

/* Add the databases in one directory. */
static void
ScanDatabases(const char *path, Oid spc_oid, struct RelationChoices *choices,
			  RelationFiles *files)
{
	DIR		   *dir = opendir(path);
	struct dirent *entry;

	if (dir == NULL)
		pg_fatal("could not open directory \"%s\": %m", path);
	while (errno = 0, (entry = readdir(dir)) != NULL)
	{
		const char *name = entry->d_name;
		char		database[MAXPGPATH];
		Oid			db_oid;

		if (!ParseNumber(&name, '\0', &db_oid))
			continue;
		snprintf(database, sizeof(database), "%s/%s", path, entry->d_name);
		ScanDirectory(database, spc_oid, db_oid, choices, files);
	}
	if (errno != 0)
		pg_fatal("could not read directory \"%s\": %m", path);
	closedir(dir);
}

/* One relation's forks together, its init fork before them. */
static int
CompareByRelation(const void *a, const void *b)
{
	const RelationFile *left = a;
	const RelationFile *right = b;

	if (left->rlocator.spcOid != right->rlocator.spcOid)
		return left->rlocator.spcOid < right->rlocator.spcOid ? -1 : 1;
	if (left->rlocator.dbOid != right->rlocator.dbOid)
		return left->rlocator.dbOid < right->rlocator.dbOid ? -1 : 1;
	if (left->rlocator.relNumber != right->rlocator.relNumber)
		return left->rlocator.relNumber < right->rlocator.relNumber ? -1 : 1;
	return right->fork - left->fork;
}

/*
 * In the order of the choices.  Without them small relations first, catalogs
 * and indexes among them, so that as many as possible are there as a whole.
 */
static int
CompareByUse(const void *a, const void *b)
{
	const RelationFile *left = a;
	const RelationFile *right = b;

	if (left->choice != right->choice)
		return left->choice < right->choice ? -1 : 1;
	if (left->relation_blocks != right->relation_blocks)
		return left->relation_blocks < right->relation_blocks ? -1 : 1;
	return CompareByRelation(a, b);
}

/* Drop init forks, mark what belongs to them, and add up each relation. */
static void
DigestRelations(RelationFiles *files)
{
	struct PCacheRelSizes *sizes = PCacheRelSizesCreate(0);
	int			kept = 0;

	qsort(files->files, files->n, sizeof(RelationFile), CompareByRelation);
	for (int first = 0, next; first < files->n; first = next)
	{
		bool		unlogged = false;
		uint64		blocks = 0;
		int			first_kept = kept;

		for (next = first; next < files->n &&
			 RelFileLocatorEquals(files->files[first].rlocator,
								  files->files[next].rlocator); next++)
		{
			RelationFile file = files->files[next];

			if (file.fork == INIT_FORKNUM)
			{
				unlogged = true;
				continue;
			}
			file.nblocks = Max(0, PCacheRelSize(sizes, file.rlocator, file.fork));
			file.unlogged = unlogged;
			blocks += file.nblocks;
			files->files[kept++] = file;
		}
		for (int i = first_kept; i < kept; i++)
			files->files[i].relation_blocks = blocks;
		files->n_relations += (kept > first_kept);
		files->n_blocks += blocks;
	}
	files->n = kept;
	PCacheRelSizesFree(sizes);
}

/*
 * List the main, free space map and visibility map forks of all relations
 * that are not temporary, or of those chosen, in the order in which they are
 * to be cached.  choices may be NULL.  The working directory must be PGDATA.
 */
void
ListRelationFiles(struct RelationChoices *choices, RelationFiles *files)
{
	DIR		   *dir;
	struct dirent *entry;

	memset(files, 0, sizeof(*files));
	ScanDirectory("global", GLOBALTABLESPACE_OID, InvalidOid, choices, files);
	ScanDatabases("base", DEFAULTTABLESPACE_OID, choices, files);
	dir = opendir(PG_TBLSPC_DIR);
	if (dir == NULL)
		pg_fatal("could not open directory \"%s\": %m", PG_TBLSPC_DIR);
	while (errno = 0, (entry = readdir(dir)) != NULL)
	{
		const char *name = entry->d_name;
		char		path[MAXPGPATH];
		Oid			spc_oid;

		if (!ParseNumber(&name, '\0', &spc_oid))
			continue;
		snprintf(path, sizeof(path), PG_TBLSPC_DIR "/%s/" TABLESPACE_VERSION_DIRECTORY,
				 entry->d_name);
		if (!FileExists(PG_TBLSPC_DIR, psprintf("%s/" TABLESPACE_VERSION_DIRECTORY, entry->d_name)))
			continue;
		ScanDatabases(path, spc_oid, choices, files);
	}
	if (errno != 0)
		pg_fatal("could not read directory \"%s\": %m", PG_TBLSPC_DIR);
	closedir(dir);

	for (int i = 0; choices != NULL && i < choices->n; i++)
	{
		if (!choices->choices[i].found)
		{
			pg_log_error("there is no relation \"%s\" in the data directory",
						 choices->choices[i].text);
			pg_log_error_hint("A relation gets another file when it is rewritten, as by VACUUM FULL or TRUNCATE; see pg_relation_filepath().");
			exit(EXIT_ERROR);
		}
	}
	DigestRelations(files);
	qsort(files->files, files->n, sizeof(RelationFile), CompareByUse);
}
