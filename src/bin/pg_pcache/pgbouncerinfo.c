/*-------------------------------------------------------------------------
 *
 * pgbouncerinfo.c
 *	  What a PgBouncer says: which databases lead to the server, and what keeps it from a pause.
 *
 * Only these are paused.  The dbname of the connection string may name them, where the
 * pooler reaches the server by an address that is none of this host.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pgbouncerinfo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include "common/logging.h"
#include "pqexpbuffer.h"
#include "restart.h"

/* A pooler that is there takes a connection within that time, unless its string says another. */
#define CONNECT_SECONDS	"5"

/* The console of PgBouncer is a database of that name. */
#define CONSOLE		"pgbouncer"

/* Clients that wait that long, in seconds, will be noticed. */
#define LOGIN_RETRY_TO_TELL	1.0

/* As many transactions are named. */
#define MAX_NAMED			10

/* The databases that a connection string names to be paused; NULL if there are none. */
static const char *
DatabasesOf(const char *conninfo)
{
	char	   *errmsg = NULL;
	PQconninfoOption *option = PQconninfoParse(conninfo, &errmsg);

	if (option == NULL)
		pg_fatal("invalid connection string for a pooler: %s", errmsg != NULL ? errmsg : "out of memory");
	while (strcmp(option->keyword, "dbname") != 0)
		option++;
	return option->val != NULL && strcmp(option->val, CONSOLE) != 0 ? option->val : NULL;
}

/* What it is called in messages: where it listens. */
static const char *
NameOf(PGconn *conn)
{
	const char *host = PQhost(conn);

	return psprintf("%s:%s", host != NULL && host[0] != '\0' ? host : "localhost", PQport(conn));
}

/*
 * Connect to a pooler's console.  Returns NULL, after a message, if that fails.  The string
 * overrides what comes before it.  libpq expands the first dbname only, and the second one
 * names the console.
 */
PGconn *
ConnectToConsole(const char *conninfo)
{
	const char *keywords[] = {"connect_timeout", "dbname", "dbname", "fallback_application_name", NULL};
	const char *values[] = {CONNECT_SECONDS, conninfo, CONSOLE, "pg_pcache", NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, values, 1);

	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	pg_log_error("could not connect to the pooler \"%s\": %s", NameOf(conn), Complaint(conn));
	PQfinish(conn);
	return NULL;
}

/* The rows of a SHOW.  Gives up without them. */
static PGresult *
ShowOf(const Pooler *pooler, const char *query)
{
	PGresult   *res = AskConsole(pooler->control, query);

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		Refuse(_("Is this the console of PgBouncer, and is the user one of its \"admin_users\"?"),
			   _("pooler \"%s\" does not answer \"%s\": %s"), pooler->name, query, Complaint(pooler->control));
	return res;
}

/* Is this host meant, by a name or an address? */
static bool
IsThisHost(const char *host)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *addresses;
	struct ifaddrs *interfaces;
	bool		found = false;

	if (getaddrinfo(host, NULL, &hint, &addresses) != 0)
		return false;
	if (getifaddrs(&interfaces) == 0)
	{
		for (struct addrinfo *a = addresses; a != NULL; a = a->ai_next)
		{
			for (struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next)
			{
				/* both have port 0 */
				if (i->ifa_addr != NULL && i->ifa_addr->sa_family == a->ai_family)
					found |= memcmp(i->ifa_addr, a->ai_addr, a->ai_addrlen) == 0;
			}
		}
		freeifaddrs(interfaces);
	}
	freeaddrinfo(addresses);
	return found;
}

static bool
IsLoopback(const char *host)
{
	return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* Does a database of the pooler, as SHOW DATABASES has it, lead to our server? */
static bool
LeadsToServer(const Restart *restart, bool pooler_is_here, const char *host, const char *port)
{
	if (port == NULL || strcmp(port, PQport(restart->conn)) != 0)
		return false;
	/* a socket, or an address of the host that the pooler runs on */
	if (host == NULL || host[0] == '\0' || host[0] == '/' || host[0] == '@' || IsLoopback(host))
		return pooler_is_here;
	return IsThisHost(host);
}

static void
AddTarget(Restart *restart, const Pooler *pooler, const char *database)
{
	PauseTarget target = {pooler, database != NULL ? pg_strdup(database) : NULL};

	restart->targets = pg_realloc_array(restart->targets, PauseTarget, restart->n_targets + 1);
	restart->targets[restart->n_targets++] = target;
}

/* Is this database one that is going to be paused? */
static bool
IsTarget(const Restart *restart, const Pooler *pooler, const char *database)
{
	for (int i = 0; i < restart->n_targets; i++)
	{
		const PauseTarget *target = &restart->targets[i];

		if (target->pooler == pooler && (target->database == NULL || strcmp(target->database, database) == 0))
			return strcmp(database, CONSOLE) != 0;
	}
	return false;
}

/* Have those paused that lead to the server.  Returns how many do not. */
static int
FindTargets(Restart *restart, const Pooler *pooler, const PGresult *databases)
{
	const char *host = PQhost(pooler->control);
	bool		is_here = host == NULL || host[0] == '/' || IsThisHost(host);
	int			others = 0;

	for (int i = 0; i < PQntuples(databases); i++)
	{
		const char *name = ColumnOf(databases, i, "name");

		if (name == NULL || strcmp(name, CONSOLE) == 0)
			continue;
		if (LeadsToServer(restart, is_here, ColumnOf(databases, i, "host"), ColumnOf(databases, i, "port")))
			AddTarget(restart, pooler, name);
		else
			others++;
	}
	return others;
}

/* Choose what to pause.  Without another server, that is the pooler as a whole. */
static void
ChooseTargets(Restart *restart, const Pooler *pooler, const char *names)
{
	PGresult   *res = ShowOf(pooler, "SHOW DATABASES");
	int			first = restart->n_targets;
	int			others = names != NULL ? 0 : FindTargets(restart, pooler, res);
	char	   *rest = NULL;
	char	   *list = pg_strdup(names != NULL ? names : "");

	for (char *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
		AddTarget(restart, pooler, name);
	pg_free(list);
	if (restart->n_targets == first && (others > 0 || names != NULL))
		Refuse(_("If one does by another address, name it: --pgbouncer='... dbname=NAME,...'"),
			   _("no database of pooler \"%s\" leads to the server on port %s"), pooler->name, PQport(restart->conn));
	if (names == NULL && others == 0)
	{
		restart->n_targets = first;
		AddTarget(restart, pooler, NULL);
	}
	for (int i = 0; i < PQntuples(res); i++)
	{
		const char *name = ColumnOf(res, i, "name");
		const char *paused = ColumnOf(res, i, "paused");

		if (name != NULL && paused != NULL && strcmp(paused, "0") != 0 && IsTarget(restart, pooler, name))
			Refuse(_("Somebody else may be at work.  If not, run RESUME there."),
				   _("database \"%s\" of pooler \"%s\" is paused already"), name, pooler->name);
	}
	PQclear(res);
}

/* Warn of what makes clients wait, or fail, although all goes well. */
static void
TellConfiguration(Restart *restart, const Pooler *pooler)
{
	PGresult   *res = ShowOf(pooler, "SHOW CONFIG");
	double		wait_timeout = 0;	/* none */
	double		login_retry = 0;

	for (int i = 0; i < PQntuples(res); i++)
	{
		const char *key = ColumnOf(res, i, "key");
		const char *value = ColumnOf(res, i, "value");

		if (key == NULL || value == NULL)
			continue;
		if (strcmp(key, "server_login_retry") == 0)
			login_retry = strtod(value, NULL);
		if (strcmp(key, "query_wait_timeout") == 0)
			wait_timeout = strtod(value, NULL) * 1000;
	}
	PQclear(res);
	if (wait_timeout > 0 &&
		wait_timeout < restart->drain_timeout + restart->estimate)
		WarnOf(restart, _("Increase \"query_wait_timeout\"."),
			   _("pooler \"%s\" disconnects clients that wait for %.3g s, and the restart may take longer"),
			   pooler->name, wait_timeout / 1000);
	if (login_retry > LOGIN_RETRY_TO_TELL)
		WarnOf(restart, _("Set \"server_login_retry\" to 1 or less."),
			   _("if pooler \"%s\" fails to connect once, its clients wait for %.3g s"),
			   pooler->name, login_retry);
	res = ShowOf(pooler, "SHOW POOLS");
	for (int i = 0; i < PQntuples(res); i++)
	{
		const char *database = ColumnOf(res, i, "database");
		const char *mode = ColumnOf(res, i, "pool_mode");
		const char *active = ColumnOf(res, i, "sv_active");

		if (database != NULL && mode != NULL && strcmp(mode, "session") == 0 &&
			active != NULL && atoi(active) > 0 && IsTarget(restart, pooler, database))
			WarnOf(restart, _("A pool that shares sessions by transaction can be paused between transactions."),
				   _("pooler \"%s\" waits until the clients of database \"%s\" disconnect (%s now), because its mode is \"session\""),
				   pooler->name, database, active);
	}
	PQclear(res);
}

/* Connect to the console of one pooler, and see what it has. */
static void
ConnectToPooler(Restart *restart, Pooler *pooler)
{
	const char *databases = DatabasesOf(pooler->conninfo);
	PGresult   *res;

	pooler->control = ConnectToConsole(pooler->conninfo);
	if (pooler->control == NULL)
	{
		pg_log_error_hint("Nothing was paused.");
		exit(EXIT_ERROR);
	}
	pooler->name = NameOf(pooler->control);
	res = ShowOf(pooler, "SHOW VERSION");
	pooler->version = pg_strdup(FirstValue(res) != NULL ? FirstValue(res) : "");
	PQclear(res);
	ChooseTargets(restart, pooler, databases);
	TellConfiguration(restart, pooler);
}

/* The same for all of them.  Gives up if one is not there, before anything is paused. */
void
ConnectToPoolers(Restart *restart)
{
	for (int i = 0; i < restart->n_poolers; i++)
		ConnectToPooler(restart, &restart->poolers[i]);
}

/*
 * The processes that the pooler uses for databases that are to be paused, as "{1,2}"; or NULL,
 * after a message, if it does not answer any more.
 */
static char *
ProcessesInUse(const Restart *restart, const Pooler *pooler)
{
	PGresult   *res = AskConsole(pooler->control, "SHOW SERVERS");
	PQExpBuffer list = createPQExpBuffer();

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
	{
		pg_log_error("pooler \"%s\" does not answer any more: %s", pooler->name, Complaint(pooler->control));
		return NULL;
	}
	for (int i = 0; i < PQntuples(res); i++)
	{
		const char *state = ColumnOf(res, i, "state");
		const char *database = ColumnOf(res, i, "database");
		const char *pid = ColumnOf(res, i, "remote_pid");

		if (state != NULL && strncmp(state, "active", 6) == 0 && pid != NULL && atoi(pid) > 0 &&
			database != NULL && IsTarget(restart, pooler, database))
			appendPQExpBuffer(list, "%s%d", list->len > 0 ? "," : "", atoi(pid));
	}
	PQclear(res);
	return psprintf("{%s}", list->data);
}

/*
 * Name those whose transaction is longer than so many milliseconds, or all if that is
 * negative, as details of an error.  Returns whether there are any, or the pooler is gone.
 */
bool
TellWhoBlocks(const Restart *restart, const Pooler *pooler, double longer_than)
{
	char	   *processes = ProcessesInUse(restart, pooler);
	PQExpBuffer query = createPQExpBuffer();
	PGresult   *res;
	int			n;

	if (processes == NULL)
		return true;
	appendPQExpBuffer(query,
					  "SELECT pid, usename, datname, state, "
					  "coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(xact_start, backend_start)), 0)::pg_catalog.numeric(20,1) "
					  "FROM pg_catalog.pg_stat_activity WHERE pid = ANY ('%s') AND backend_type = 'client backend'",
					  processes);
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
