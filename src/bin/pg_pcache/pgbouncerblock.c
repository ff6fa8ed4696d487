/*-------------------------------------------------------------------------
 *
 * pgbouncerblock.c
 *	  Whose transactions keep a PgBouncer from being paused?
 *
 * The pooler knows which of its connections are in use, and of which process of the server.
 * The server knows what that process does.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pgbouncerblock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "pgbouncer.h"
#include "pqexpbuffer.h"

/* As many are named. */
#define MAX_NAMED		10

/* The processes that the pooler uses for databases that are to be paused, as "{1,2}". */
static char *
ProcessesInUse(const Pooler *pooler)
{
	PGresult   *res = AskConsole(pooler->control, "SHOW SERVERS");
	PQExpBuffer list = createPQExpBuffer();

	for (int i = 0; PQresultStatus(res) == PGRES_TUPLES_OK && i < PQntuples(res); i++)
	{
		const char *state = ColumnOf(res, i, "state");
		const char *database = ColumnOf(res, i, "database");
		const char *pid = ColumnOf(res, i, "remote_pid");

		if (state != NULL && strncmp(state, "active", 6) == 0 && pid != NULL && atoi(pid) > 0 &&
			database != NULL && IsTarget(pooler, database))
			appendPQExpBuffer(list, "%s%d", list->len > 0 ? "," : "", atoi(pid));
	}
	PQclear(res);
	return psprintf("{%s}", list->data);
}

/*
 * Name those whose transaction is longer than so many milliseconds, or all if that is
 * negative, as details of an error.  Returns whether there are any.
 */
bool
TellWhoBlocks(const Restart *restart, const Pooler *pooler, double longer_than)
{
	PQExpBuffer query = createPQExpBuffer();
	PGresult   *res;
	int			n;

	appendPQExpBuffer(query,
					  "SELECT pid, usename, datname, state, "
					  "coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(xact_start, backend_start)), 0)::pg_catalog.numeric(20,1) "
					  "FROM pg_catalog.pg_stat_activity WHERE pid = ANY ('%s') AND backend_type = 'client backend'",
					  ProcessesInUse(pooler));
	if (longer_than >= 0)
		appendPQExpBuffer(query, " AND pg_catalog.clock_timestamp() - xact_start > pg_catalog.make_interval(secs => %.3f)",
						  longer_than / 1000);
	appendPQExpBufferStr(query, " ORDER BY xact_start");
	res = PQexec(restart->conn, query->data);
	n = PQresultStatus(res) == PGRES_TUPLES_OK ? PQntuples(res) : 0;
	if (n > 0)
		pg_log_error("transactions keep pooler \"%s\" from being paused", pooler->name);
	for (int i = 0; i < Min(n, MAX_NAMED); i++)
		pg_log_error_detail("PID %s: user \"%s\", database \"%s\", %s, since %s s",
							PQgetvalue(res, i, 0), PQgetvalue(res, i, 1), PQgetvalue(res, i, 2),
							PQgetvalue(res, i, 3), PQgetvalue(res, i, 4));
	if (n > MAX_NAMED)
		pg_log_error_detail(ngettext("There is %d more.", "There are %d more.", n - MAX_NAMED), n - MAX_NAMED);
	PQclear(res);
	destroyPQExpBuffer(query);
	return n > 0;
}
