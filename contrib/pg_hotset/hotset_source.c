/*-------------------------------------------------------------------------
 *
 * hotset_source.c
 *	  Gets a list from the server that pg_hotset.source names.
 *
 * Each step has its own time limit, pg_hotset.timeout, so a server that accepts
 * connections but answers nothing costs that time and nothing else.  Then the
 * next host of the string is asked: libpq goes on if a host refuses, but not if
 * it says nothing.  Failures are told to the caller as text; connection strings,
 * which may contain a password, are never part of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_source.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "hotset.h"
#include "common/string.h"
#include "libpq-fe.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* more than a conninfo can have, and those that we add */
#define MAX_OPTIONS		100
/* No more bytes of a message than this go to the log. */
#define MAX_MESSAGE		500

/* so many hosts of the string go to its end, because they have said nothing */
static int	passed_hosts = 0;

/* Has a step taken too long? */
static bool silent;

/*
 * Wait for the socket.  Returns false if the step, which began at that time, has
 * taken too long, or if the server stops.
 */
static bool
WaitFor(PGconn *conn, int events, instr_time began, StringInfo problem)
{
	for (;;)
	{
		instr_time	elapsed;
		long		left;
		int			rc;

		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, began);
		left = hotset_timeout * 1000L - (long) INSTR_TIME_GET_MILLISEC(elapsed);

		if (ShutdownRequestPending)
		{
			appendStringInfoString(problem, "the server stops");
			return false;
		}
		if (left <= 0)
		{
			silent = true;
			appendStringInfo(problem, "there was no answer for %d s", hotset_timeout);
			return false;
		}
		rc = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | events,
							   PQsocket(conn), left, PG_WAIT_EXTENSION);
		if (rc & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		if (rc & events)
			return true;
	}
}

/*
 * Append libpq's message, on one line.  The other server may have written it, in any
 * language and encoding and of any length.  So it is shortened and made ASCII.
 */
static void
AppendMessage(StringInfo problem, const char *message)
{
	char	   *line = pnstrdup(message, MAX_MESSAGE);
	char	   *clean;

	for (char *c = line; *c != '\0'; c++)
		if (isspace((unsigned char) *c))
			*c = ' ';
	while (line[0] != '\0' && line[strlen(line) - 1] == ' ')
		line[strlen(line) - 1] = '\0';
	clean = pg_clean_ascii(line, 0);
	appendStringInfoString(problem, clean);
	pfree(clean);
	pfree(line);
}

/* A list with commas, of which the first items go to its end.  *items is their number if it is more. */
static char *
PassHosts(const char *list, int *items)
{
	char	   *passed = pstrdup(list);
	int			n = 1;

	for (const char *c = list; *c != '\0'; c++)
		n += *c == ',';
	for (int i = 0; n > 1 && i < passed_hosts % n; i++)
	{
		char	   *comma = strchr(passed, ',');

		passed = psprintf("%s,%.*s", comma + 1, (int) (comma - passed), passed);
	}
	*items = Max(*items, n);
	return passed;
}

/*
 * What to connect to: pg_hotset.source or, if that is empty, primary_conninfo,
 * with pg_hotset.dbname as the database if the string names none, or if it is
 * primary_conninfo, whose database means something else.
 */
static bool
ConnectionOptions(const char **keywords, const char **values, int *hosts, StringInfo problem)
{
	bool		own = hotset_source[0] != '\0';
	const char *conninfo = own ? hotset_source : PrimaryConnInfo;
	PQconninfoOption *options;
	bool		has_dbname = false;
	int			n = 0;

	if (conninfo == NULL || conninfo[0] == '\0')
	{
		appendStringInfoString(problem, "neither pg_hotset.source nor primary_conninfo names a server");
		return false;
	}
	options = PQconninfoParse(conninfo, NULL);
	if (options == NULL)
	{
		appendStringInfo(problem, "%s is no connection string", own ? "pg_hotset.source" : "primary_conninfo");
		return false;
	}
	for (PQconninfoOption *option = options; option->keyword != NULL && n < MAX_OPTIONS - 2; option++)
	{
		if (option->val == NULL || option->val[0] == '\0' || strcmp(option->keyword, "replication") == 0 ||
			strcmp(option->keyword, "application_name") == 0 || (!own && strcmp(option->keyword, "dbname") == 0))
			continue;
		has_dbname |= strcmp(option->keyword, "dbname") == 0;
		keywords[n] = pstrdup(option->keyword);
		if (strcmp(option->keyword, "host") == 0 || strcmp(option->keyword, "hostaddr") == 0 ||
			strcmp(option->keyword, "port") == 0)
			values[n++] = PassHosts(option->val, hosts);
		else
			values[n++] = pstrdup(option->val);
	}
	PQconninfoFree(options);
	if (!has_dbname)
	{
		keywords[n] = "dbname";
		values[n++] = hotset_dbname;
	}
	keywords[n] = "application_name";
	values[n++] = "pg_hotset";
	keywords[n] = values[n] = NULL;
	return true;
}

/* Drop the notices of the other server, which libpq would write to stderr, our log. */
static void
IgnoreNotice(void *arg, const char *message)
{
}

/* Connect.  The connection is NULL, or has to be finished by Disconnect(). */
static PGconn *
Connect(int *hosts, StringInfo problem)
{
	const char *keywords[MAX_OPTIONS];
	const char *values[MAX_OPTIONS];
	instr_time	began;
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	PGconn	   *conn;

	if (!ConnectionOptions(keywords, values, hosts, problem))
		return NULL;
	if (!AcquireExternalFD())
	{
		appendStringInfoString(problem, "there are too many open files");
		return NULL;
	}
	INSTR_TIME_SET_CURRENT(began);
	conn = PQconnectStartParams(keywords, values, false);
	if (conn == NULL)
	{
		ReleaseExternalFD();
		appendStringInfoString(problem, "out of memory");
		return NULL;
	}
	PQsetNoticeProcessor(conn, IgnoreNotice, NULL);
	if (PQstatus(conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		if (!WaitFor(conn, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE,
					 began, problem))
			return conn;
		status = PQconnectPoll(conn);
	}
	if (status == PGRES_POLLING_FAILED)
	{
		AppendMessage(problem, PQerrorMessage(conn));
		if (strstr(problem->data, "pg_hba.conf") != NULL)
			appendStringInfo(problem, "; that server's pg_hba.conf has to let the role connect to a database, which \"replication\" is not");
	}
	return conn;
}

static void
Disconnect(PGconn *conn)
{
	if (conn == NULL)
		return;
	PQfinish(conn);
	ReleaseExternalFD();
}

/* Run a query, and return its only result, or NULL. */
static PGresult *
Run(PGconn *conn, const char *query, int format, StringInfo problem)
{
	instr_time	began;
	PGresult   *result;

	INSTR_TIME_SET_CURRENT(began);
	if (!PQsendQueryParams(conn, query, 0, NULL, NULL, NULL, NULL, format))
	{
		AppendMessage(problem, PQerrorMessage(conn));
		return NULL;
	}
	while (PQisBusy(conn))
	{
		if (!WaitFor(conn, WL_SOCKET_READABLE, began, problem))
			return NULL;
		if (!PQconsumeInput(conn))
			break;
	}
	result = PQgetResult(conn);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		AppendMessage(problem, result != NULL ? PQresultErrorMessage(result) : PQerrorMessage(conn));
		PQclear(result);
		return NULL;
	}
	/* The end of the query. */
	while (PQisBusy(conn))
	{
		if (!WaitFor(conn, WL_SOCKET_READABLE, began, problem) || !PQconsumeInput(conn))
		{
			if (problem->len == 0)
				AppendMessage(problem, PQerrorMessage(conn));
			PQclear(result);
			return NULL;
		}
	}
	PQclear(PQgetResult(conn));
	return result;
}

/* The query that gets a list; the extension may be in any schema. */
static char *
ListQuery(PGconn *conn, StringInfo problem)
{
	PGresult   *result = Run(conn,
							 "SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e"
							 " JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace"
							 " WHERE e.extname OPERATOR(pg_catalog.=) 'pg_hotset'", 0, problem);
	char	   *query = NULL;

	if (result == NULL)
		return NULL;
	if (PQntuples(result) != 1)
		appendStringInfo(problem, "the extension pg_hotset is not in database \"%s\" there; CREATE EXTENSION pg_hotset makes it",
						 PQdb(conn));
	else
		query = psprintf("SELECT %s.pg_hotset()", PQgetvalue(result, 0, 0));
	PQclear(result);
	return query;
}

/* Get a list of the first host that answers. */
static bool
FetchOnce(StringInfo list, StringInfo from, StringInfo problem, int *hosts)
{
	PGconn	   *conn;
	PGresult   *result = NULL;
	char	   *query;

	resetStringInfo(list);
	resetStringInfo(from);
	resetStringInfo(problem);
	silent = false;
	conn = Connect(hosts, problem);
	if (conn != NULL)
		appendStringInfo(from, "%s:%s", PQhost(conn), PQport(conn));
	if (problem->len == 0 && (query = ListQuery(conn, problem)) != NULL)
		result = Run(conn, query, 1, problem);
	if (result != NULL && PQntuples(result) == 1 && PQnfields(result) == 1 && !PQgetisnull(result, 0, 0))
		appendBinaryStringInfo(list, PQgetvalue(result, 0, 0), PQgetlength(result, 0, 0));
	else if (problem->len == 0)
		appendStringInfoString(problem, "the server has no list");
	PQclear(result);
	Disconnect(conn);
	return problem->len == 0;
}

/*
 * Get a list.  "list" gets its bytes, which nobody has looked at yet, and
 * "from" the server's host and port.  Returns false if there is none, and then
 * "problem" says why.
 */
bool
HotsetFetch(StringInfo list, StringInfo from, StringInfo problem)
{
	int			hosts = 1;

	for (int asked = 1; !FetchOnce(list, from, problem, &hosts); asked++)
	{
		if (!silent || asked >= hosts)
			return false;
		ereport(LOG,
				(errmsg("pg_hotset got no list from %s, and asks the next host: %s",
						from->data, problem->data)));
		passed_hosts = (passed_hosts + 1) % hosts;
	}
	return true;
}
