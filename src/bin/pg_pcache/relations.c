/*-------------------------------------------------------------------------
 *
 * relations.c
 *	  Which relations the pages of the pool belong to, and their names.
 *
 * The pool knows numbers only.  Their names are in the catalogs, so they are
 * to be had only while a server runs.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/relations.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>

#include "catalog/pg_tablespace_d.h"
#include "common/hashfn.h"
#include "common/logging.h"
#include "fe_utils/connect_utils.h"
#include "fe_utils/query_utils.h"
#include "pg_pcache.h"
#include "pqexpbuffer.h"

#define SH_PREFIX		relations
#define SH_ELEMENT_TYPE	RelationCount
#define SH_KEY_TYPE		RelFileLocator
#define SH_KEY			rlocator
#define SH_HASH_KEY(tb, k) \
	((uint32) hash_bytes_extended((const unsigned char *) &(k), sizeof(RelFileLocator), HashSeed()))
#define SH_EQUAL(tb, a, b)	RelFileLocatorEquals(a, b)
#define SH_SCOPE		static inline
#define SH_RAW_ALLOCATOR	pg_malloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct RelationCounter
{
	relations_hash *hash;
	RelationCount *last;		/* neighbouring slots often hold the same one */
};

struct RelationCounter *
CreateRelationCounter(void)
{
	struct RelationCounter *counter = pg_malloc0_object(struct RelationCounter);

	counter->hash = relations_create(256, NULL);
	return counter;
}

/*
 * The counts of the relation that a page belongs to, made if need be; valid
 * until the next call.
 */
RelationCount *
CountRelation(struct RelationCounter *counter, const PCacheDescriptor *desc)
{
	RelFileLocator rlocator = {
		.spcOid = desc->spc_oid,
		.dbOid = desc->db_oid,
		.relNumber = desc->rel_number,
	};
	RelationCount *relation = counter->last;
	bool		found;

	if (relation == NULL || !RelFileLocatorEquals(relation->rlocator, rlocator))
	{
		relation = relations_insert(counter->hash, rlocator, &found);
		if (!found)
		{
			char		status = relation->status;

			memset(relation, 0, sizeof(*relation));
			relation->rlocator = rlocator;
			relation->status = status;
		}
		counter->last = relation;
	}
	return relation;
}

static int
CompareRelations(const void *a, const void *b)
{
	const RelationCount *left = a;
	const RelationCount *right = b;

	if (left->pages != right->pages)
		return left->pages > right->pages ? -1 : 1;
	if (left->rlocator.dbOid != right->rlocator.dbOid)
		return left->rlocator.dbOid < right->rlocator.dbOid ? -1 : 1;
	if (left->rlocator.relNumber != right->rlocator.relNumber)
		return left->rlocator.relNumber < right->rlocator.relNumber ? -1 : 1;
	if (left->rlocator.spcOid != right->rlocator.spcOid)
		return left->rlocator.spcOid < right->rlocator.spcOid ? -1 : 1;
	return 0;
}

/*
 * End of counting: an array of the relations, those with most pages first.
 * Frees the counter.
 */
RelationCount *
FinishRelationCounter(struct RelationCounter *counter, int *n)
{
	RelationCount *result = pg_malloc_array(RelationCount,
											Max(counter->hash->members, 1));
	relations_iterator iterator;
	RelationCount *relation;

	*n = 0;
	relations_start_iterate(counter->hash, &iterator);
	while ((relation = relations_iterate(counter->hash, &iterator)) != NULL)
		result[(*n)++] = *relation;
	qsort(result, *n, sizeof(RelationCount), CompareRelations);
	relations_destroy(counter->hash);
	pg_free(counter);
	return result;
}

/* Connect to a database of this cluster; NULL, after a warning, if not. */
static PGconn *
Connect(const PCacheOptions *options, ConnParams *params,
		const char *override_dbname, uint64 system_identifier)
{
	PGconn	   *conn;
	PGresult   *res;
	bool		is_ours;

	params->override_dbname = override_dbname;
	conn = connectDatabase(params, options->progname, false, true, true);
	if (conn == NULL)
	{
		pg_log_warning("could not connect to database \"%s\" to look up names",
					   override_dbname != NULL ? override_dbname : params->dbname);
		return NULL;
	}
	res = executeQuery(conn, "SELECT system_identifier FROM pg_catalog.pg_control_system()", false);
	is_ours = PQntuples(res) == 1 &&
		strtoull(PQgetvalue(res, 0, 0), NULL, 10) == system_identifier;
	PQclear(res);
	if (!is_ours)
	{
		pg_log_warning("the server that was connected to is that of another cluster");
		disconnectDatabase(conn);
		return NULL;
	}
	return conn;
}

/* Look up those of the relations that are in one database. */
static void
ResolveInDatabase(PGconn *conn, Oid database, const char *database_name,
				  RelationCount *relations, int n)
{
	PQExpBufferData query;
	PGresult   *res;
	bool		any = false;

	initPQExpBuffer(&query);
	appendPQExpBufferStr(&query,
						 "SELECT i, pg_catalog.pg_filenode_relation(spc, rel) FROM (VALUES ");
	for (int i = 0; i < n; i++)
	{
		if (relations[i].rlocator.dbOid != database)
			continue;
		appendPQExpBuffer(&query, "%s(%d, '%u'::pg_catalog.oid, '%u'::pg_catalog.oid)",
						  any ? ", " : "", i,
						  relations[i].rlocator.spcOid,
						  relations[i].rlocator.relNumber);
		any = true;
	}
	appendPQExpBufferStr(&query, ") v (i, spc, rel)");
	if (any)
	{
		res = executeQuery(conn, query.data, false);
		for (int row = 0; row < PQntuples(res); row++)
		{
			RelationCount *relation = &relations[atoi(PQgetvalue(res, row, 0))];

			relation->database = database_name;
			if (!PQgetisnull(res, row, 1))
				relation->name = pg_strdup(PQgetvalue(res, row, 1));
		}
		PQclear(res);
	}
	termPQExpBuffer(&query);
}

/*
 * Look up the names of the first n relations.  Without a connection, which is
 * told of, they stay without.
 */
void
ResolveRelationNames(const PCacheOptions *options, uint64 system_identifier,
					 RelationCount *relations, int n)
{
	ConnParams	params = {
		.dbname = options->dbname != NULL ? options->dbname : "postgres",
		.pghost = options->host,
		.pgport = options->port,
		.pguser = options->username,
		.prompt_password = options->prompt_password,
	};
	PGconn	   *conn;
	PGresult   *databases;

	FindServer(options, &params);
	conn = Connect(options, &params, NULL, system_identifier);
	if (conn == NULL)
		return;

	ResolveInDatabase(conn, InvalidOid, "", relations, n);
	databases = executeQuery(conn,
							 "SELECT oid, datname FROM pg_catalog.pg_database WHERE datallowconn AND datconnlimit <> -2",
							 false);
	disconnectDatabase(conn);
	for (int row = 0; row < PQntuples(databases); row++)
	{
		Oid			oid = strtoul(PQgetvalue(databases, row, 0), NULL, 10);
		const char *name = pg_strdup(PQgetvalue(databases, row, 1));
		bool		wanted = false;

		for (int i = 0; i < n && !wanted; i++)
			wanted = (relations[i].rlocator.dbOid == oid);
		if (!wanted)
			continue;
		conn = Connect(options, &params, name, system_identifier);
		if (conn == NULL)
			continue;
		ResolveInDatabase(conn, oid, name, relations, n);
		disconnectDatabase(conn);
	}
	PQclear(databases);
}

/* "5/1259", "5/1259 in 16384" with a tablespace, and the name if known. */
const char *
FormatRelation(const RelationCount *relation)
{
	const RelFileLocator *r = &relation->rlocator;
	char	   *numbers;

	if (r->spcOid == DEFAULTTABLESPACE_OID || r->spcOid == GLOBALTABLESPACE_OID)
		numbers = psprintf("%u/%u", r->dbOid, r->relNumber);
	else
		numbers = psprintf("%u/%u (tablespace %u)", r->dbOid, r->relNumber,
						   r->spcOid);
	if (relation->name == NULL)
		return numbers;
	if (relation->database == NULL || relation->database[0] == '\0')
		return psprintf("%s %s", numbers, relation->name);
	return psprintf("%s %s in %s", numbers, relation->name, relation->database);
}

/* In JSON, of one relation what verify and status both count, as an open object. */
void
OpenRelation(const RelationCount *relation)
{
	OpenObject(NULL);
	PrintField(NULL, "tablespace", AsNumber(relation->rlocator.spcOid));
	PrintField(NULL, "database", AsNumber(relation->rlocator.dbOid));
	PrintField(NULL, "relfilenode", AsNumber(relation->rlocator.relNumber));
	PrintField(NULL, "database_name", AsString(relation->database));
	PrintField(NULL, "name", AsString(relation->name));
	PrintField(NULL, "pages", AsNumber(relation->pages));
	OpenObject("forks");
	for (ForkNumber fork = 0; fork <= MAX_FORKNUM; fork++)
		PrintField(NULL, forkNames[fork], AsNumber(relation->forks[fork]));
	CloseObject();
	PrintField(NULL, "usage_count", AsNumber(relation->usage));
}
