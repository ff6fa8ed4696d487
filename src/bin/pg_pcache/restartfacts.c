/*-------------------------------------------------------------------------
 *
 * restartfacts.c
 *	  What does the server that runs say about a restart, and how long will that take?
 *
 * Who would lose work, whom the stop would wait for, and what the configuration brings that
 * the server does not have yet.  What speaks against a restart ends the program, before
 * anything has changed; the rest is a warning.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartfacts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/mman.h>

#include "common/logging.h"
#include "fe_utils/query_utils.h"
#include "restart.h"

/* As many sessions are named. */
#define MAX_NAMED		"5"

/* Columns of a query that is told of. */
#define MAX_VALUES		5

/* A standby this far behind takes time when the server stops, in bytes. */
#define LAG_TO_TELL		"16777216"

/* How much memory is touched to see how fast it is. */
#define PROBE_SIZE		(64 * 1024 * 1024)

/*
 * What a start takes beside the memory, and what it touches of it: buffer headers, mapping
 * table and locks are not much more than that share of shared_buffers.
 */
#define LAUNCH_MS		80.0
#define LAUNCH_SHARE	0.03

/*
 * Connect to the server that runs on the data directory.  It must be that one itself: a
 * pooler in between would wait for our own session, and another server has other sessions.
 */
void
ConnectToServer(Restart *restart)
{
	const PCacheOptions *options = restart->options;
	int			backend;
	int			session;

	restart->params = options->params;
	if (restart->params.dbname == NULL)
		restart->params.dbname = "postgres";
	FindServer(options, &restart->params);
	restart->conn = connectDatabase(&restart->params, options->progname, false, false, true);
	backend = atoi(ValueOf(restart->conn, "SELECT pg_catalog.pg_backend_pid()"));
	/* a pooler gives its clients numbers of its own */
	if (ParentOf(backend, &session) != restart->server.pid || backend != PQbackendPID(restart->conn))
		Refuse(_("Give the server's own socket directory and port with -h and -p, not those of a pooler."),
			   _("the connection does not lead to the server with PID %d, which runs on data directory \"%s\""),
			   restart->server.pid, options->pgdata);
}

/*
 * Warn of each row of a query.  The message, which is translated already, takes the row's values
 * in their order.  Returns how many rows there are.
 */
static int
WarnOfRows(Restart *restart, const char *what, const char *query, const char *message)
{
	PGresult   *res = TryQuery(restart, query, what);
	int			n = PQntuples(res);

	for (int i = 0; i < n; i++)
	{
		const char *values[MAX_VALUES] = {NULL};

		for (int j = 0; j < PQnfields(res); j++)
			values[j] = PQgetvalue(res, i, j);
		WarnOf(restart, NULL, message, values[0], values[1], values[2], values[3], values[4]);
	}
	PQclear(res);
	return n;
}

/* A backup that is ended has to begin anew, which may be hours of work. */
static void
RefuseBackups(Restart *restart)
{
	int			n = WarnOfRows(restart, "whether a backup runs",
							   "SELECT pid, 'pg_basebackup or the like, ' || phase FROM pg_catalog.pg_stat_progress_basebackup "
							   "UNION ALL "
							   "SELECT pid, 'pg_backup_start(), ' || coalesce(nullif(application_name, ''), usename) FROM pg_catalog.pg_stat_activity "
							   "WHERE pid <> pg_catalog.pg_backend_pid() AND backend_type = 'client backend' AND "
							   "(query ~* '\\mpg_(backup_start|start_backup)\\M' OR application_name ILIKE 'pgbackrest%backup%')",
							   _("a backup is running, which a restart ends: PID %s, %s"));

	if (n > 0 && restart->options->verb == VERB_RESTART && !restart->options->force)
		Refuse(_("Wait until it is done, or use --force."), _("a backup is running"));
}

static void
TellWhoWaits(Restart *restart)
{
	/* a pooler waits for its own transactions, and the stop for none */
	WarnOfRows(restart, "which transactions are long",
			   psprintf("SELECT extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)::pg_catalog.int8, pid, usename, datname, state "
						"FROM pg_catalog.pg_stat_activity WHERE xact_start IS NOT NULL AND backend_type = 'client backend' "
						"AND pid <> pg_catalog.pg_backend_pid() "
						"AND pg_catalog.clock_timestamp() - xact_start > pg_catalog.make_interval(secs => %.3f) "
						"ORDER BY xact_start LIMIT " MAX_NAMED, restart->drain_timeout / 1000),
			   _("a transaction has been open for %s s: PID %s, user \"%s\", database \"%s\", %s"));

	/* a restart does not end them, but who waits for their locks waits on */
	WarnOfRows(restart, "which transactions are prepared",
			   "SELECT gid, owner, database FROM pg_catalog.pg_prepared_xacts ORDER BY prepared LIMIT " MAX_NAMED,
			   _("transaction \"%s\" is prepared, and stays so: user \"%s\", database \"%s\""));

	/*
	 * a fast stop waits until each standby has all WAL, and until all of it
	 * is archived
	 */
	WarnOfRows(restart, "how far standbys are behind",
			   "SELECT application_name, pg_catalog.pg_size_pretty(lag), pid, state FROM ("
			   "SELECT *, CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn() "
			   "ELSE pg_catalog.pg_current_wal_lsn() END - flush_lsn AS lag FROM pg_catalog.pg_stat_replication) r "
			   "WHERE state IN ('streaming', 'catchup') AND lag > " LAG_TO_TELL,
			   _("\"%s\" lacks %s of WAL, and the stop waits until it has that: PID %s, %s"));
	WarnOfRows(restart, "how many files of WAL are to be archived",
			   "SELECT count(*) FROM pg_catalog.pg_ls_archive_statusdir() WHERE name LIKE '%.ready' "
			   "AND pg_catalog.current_setting('archive_mode') <> 'off' HAVING count(*) > 1",
			   _("%s files of WAL are still to be archived, and the stop waits for the archiver"));
}

/* The server does not start with them, and "postgres -C" does not read them. */
static void
RefuseAccessRules(Restart *restart)
{
	PGresult   *res = TryQuery(restart,
							   "SELECT line_number, error FROM pg_catalog.pg_hba_file_rules WHERE error IS NOT NULL LIMIT 1",
							   "whether pg_hba.conf is right");

	if (PQntuples(res) > 0)
		pg_fatal("the server does not start with line %s of pg_hba.conf: %s",
				 PQgetvalue(res, 0, 0), PQgetvalue(res, 0, 1));
	PQclear(res);
}

/*
 * What the restart changes: what a reload has marked, and what stands in the files since, which
 * the server says could not be applied.  "postgres -C" has found no error in them.
 */
static void
FindChangedSettings(Restart *restart)
{
	PGresult   *res = TryQuery(restart,
							   "SELECT s.name, pg_catalog.current_setting(s.name) AS now, f.setting AS then, "
							   "s.name IN ('port', 'listen_addresses', 'unix_socket_directories') AS is_address "
							   "FROM pg_catalog.pg_settings s LEFT JOIN "
							   "(SELECT DISTINCT ON (name) * FROM pg_catalog.pg_file_settings ORDER BY name, seqno DESC) f ON f.name = s.name "
							   "WHERE s.pending_restart OR f.error = 'setting could not be applied' ORDER BY 1",
							   "which settings change");

	restart->settings = res;
	for (int i = 0; i < PQntuples(res); i++)
	{
		const char *name = ColumnOf(res, i, "name");

		if (ColumnOf(res, i, "is_address")[0] != 't')
			continue;
		if (restart->n_poolers == 0)
			WarnOf(restart, NULL, _("\"%s\" changes, so clients have to look elsewhere"), name);
		else if (!restart->options->force)
			Refuse(_("Restart without --pgbouncer, or use --force if the pooler's configuration fits."),
				   _("\"%s\" changes, and the pooler would not find the server"), name);
	}
}

/* Ask all that, and who the server is. */
void
GatherFacts(Restart *restart)
{
	restart->version_now = pg_strdup(PQparameterStatus(restart->conn, "server_version"));
	/* without the library, there may be a setting of that name, but not there */
	restart->uses_pool = ValueOf(restart->conn, "SELECT 1 FROM pg_catalog.pg_settings "
								 "WHERE name = '" PCacheSetting("mode") "' AND setting <> 'off'") != NULL;
	RefuseAccessRules(restart);
	RefuseBackups(restart);
	FindChangedSettings(restart);
	TellWhoWaits(restart);
}

/* How long does it take to touch memory, and to give it back?  Per byte. */
static void
ProbeMemory(double *touch, double *release)
{
	double		begin = NowMs();
	double		touched;
	char	   *memory = mmap(NULL, PROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*touch = *release = 0;
	if (memory == MAP_FAILED)
		return;
	for (size_t i = 0; i < PROBE_SIZE; i += 4096)
		((volatile char *) memory)[i] = 1;
	touched = NowMs();
	munmap(memory, PROBE_SIZE);
	*touch = (touched - begin) / PROBE_SIZE;
	*release = (NowMs() - touched) / PROBE_SIZE;
}

/*
 * How long will clients wait, in milliseconds, beside the shutdown checkpoint?  This is what
 * the machine takes to give back the memory of the buffers, unless that is kept, and to make
 * that of their headers.
 */
double
EstimateOutage(const Restart *restart)
{
	double		buffers = strtod(ValueOf(restart->conn, "SELECT setting::pg_catalog.float8 * "
										 "pg_catalog.current_setting('block_size')::pg_catalog.int8 "
										 "FROM pg_catalog.pg_settings WHERE name = 'shared_buffers'"), NULL);
	double		touch;
	double		release;

	ProbeMemory(&touch, &release);
	return LAUNCH_MS + buffers * LAUNCH_SHARE * touch + (restart->server.ends_whole ? 0 : buffers * release);
}
