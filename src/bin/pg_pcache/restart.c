/*-------------------------------------------------------------------------
 *
 * restart.c
 *	  pg_pcache restart: restart the server so that clients notice as little as can be.
 *
 * It does what somebody careful does by hand: look whether anything speaks against it, make the
 * shutdown checkpoint small, hold the clients back, restart, and let them go on.  Up to the stop
 * everything is undone if something fails or a signal comes.  After it, the restart goes on in
 * any case; restartwatch.c sees to that if this process is killed.
 *
 * pg_pcache prepare does the first two steps, for those who restart by other means.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restart.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>

#include "common/logging.h"
#include "restart.h"

#define DEFAULT_DRAIN_MS	5000.0
#define DEFAULT_DIRTY_LIMIT	(UINT64CONST(64) * 1024 * 1024 / BLCKSZ)

/* As pg_ctl does. */
#define DEFAULT_TIMEOUT_MS	60000.0

/* A time with a unit, or in seconds, in milliseconds. */
static double
ParseTime(const char *value, const char *option)
{
	static const struct
	{
		const char *name;
		double		factor;
	}			units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}};
	char	   *end;
	double		number = strtod(value, &end);

	while (*end == ' ')
		end++;
	for (int i = 0; i < lengthof(units); i++)
	{
		/* strtod() takes a sign, "inf" and "nan" as well */
		if (value[0] >= '0' && value[0] <= '9' && strcmp(end, units[i].name) == 0 &&
			number > 0 && number * units[i].factor <= INT_MAX)
			return number * units[i].factor;
	}
	Refuse(_("Valid units for this parameter are \"ms\", \"s\", and \"min\"."),
		   _("invalid value \"%s\" for option %s"), value, option);
}

/* What the options say. */
static void
ReadOptions(Restart *restart)
{
	const PCacheOptions *options = restart->options;
	const char *timeout = getenv("PGCTLTIMEOUT");

	restart->dirty_limit = options->dirty_limit == NULL ? DEFAULT_DIRTY_LIMIT :
		ParseSize(options->dirty_limit, "--dirty-limit");
	restart->drain_timeout = options->drain_timeout == NULL ? DEFAULT_DRAIN_MS :
		ParseTime(options->drain_timeout, "--drain-timeout");
	if (options->max_pause != NULL)
		restart->max_pause = ParseTime(options->max_pause, "--max-pause");
	if (options->on_failure != NULL && strcmp(options->on_failure, "pause") == 0)
		restart->stay_paused = true;
	else if (options->on_failure != NULL && strcmp(options->on_failure, "resume") != 0)
		Refuse(_("Valid values are \"resume\" and \"pause\"."),
			   _("invalid value \"%s\" for option %s"), options->on_failure, "--on-failure");
	if (options->command != NULL && options->command[0] == '\0')
		pg_fatal("option %s needs a command", "--command");
	restart->server.timeout = timeout == NULL ? DEFAULT_TIMEOUT_MS : ParseTime(timeout, "PGCTLTIMEOUT");
	for (SimpleStringListCell *cell = options->pgbouncers.head; cell != NULL; cell = cell->next)
	{
		Pooler		pooler = {.conninfo = cell->val};

		restart->poolers = pg_realloc_array(restart->poolers, Pooler, restart->n_poolers + 1);
		restart->poolers[restart->n_poolers++] = pooler;
	}
}

/* A start that loses the cache is for those who said so, unless there is none to lose. */
static void
RefuseCold(const Restart *restart)
{
	const PCacheVerdict *forecast = &restart->forecast;

	if (forecast->refusal == PCACHE_WARM || restart->options->allow_cold ||
		(forecast->refusal == PCACHE_OFF && !restart->uses_pool))
		return;
	pg_log_error("the server would start cold: %s", forecast->why.message);
	if (forecast->why.hint[0] != '\0')
		pg_log_error_hint("%s", forecast->why.hint);
	pg_log_error_hint("To restart it nevertheless, use --allow-cold.");
	exit(EXIT_ERROR);
}

/* See whether anything speaks against a restart.  If so, that ends the program. */
static void
Check(Restart *restart)
{
	const PCacheOptions *options = restart->options;
	double		begin = NowMs();
	Cluster		cluster = {0};

	ProgressOf(restart, _("check"));
	restart->forecast = ForetellRestart(options, &cluster);
	restart->server.pgdata = options->pgdata;
	restart->server.pid = cluster.server_pid;
	if (restart->server.pid == 0)
		Refuse(_("Start it with pg_ctl, or as it is usually started."),
			   _("there is no server to restart: none is running in data directory \"%s\""), options->pgdata);
	HoldServer(&restart->server);
	ConnectToServer(restart);
	GatherFacts(restart);
	if (options->verb == VERB_RESTART)
	{
		PlanRestart(restart);
		RefuseCold(restart);
		restart->estimate = EstimateOutage(restart);
		ConnectToPoolers(restart);
	}
	restart->phases[PHASE_CHECK] = NowMs() - begin;
}

/* More of them do not make it smaller: the server makes that many pages dirty. */
#define MAX_CHECKPOINTS	3

/* The server counts a checkpoint after it has told us of its end. */
#define COUNT_WAIT_MS	1000
#define COUNT_LOOK_USEC	5000L

typedef struct Counts
{
	uint64		checkpoints;
	uint64		buffers;
} Counts;

/* What the server has counted; false, after a warning, if it does not tell. */
static bool
ReadCounts(Restart *restart, Counts *counts)
{
	const char *query = PQserverVersion(restart->conn) >= 170000 ?
		"SELECT num_timed + num_requested + restartpoints_timed + restartpoints_req, buffers_written FROM pg_catalog.pg_stat_checkpointer" :
		"SELECT checkpoints_timed + checkpoints_req, buffers_checkpoint FROM pg_catalog.pg_stat_bgwriter";
	PGresult   *res = TryQuery(restart, query, "how much the checkpoint has written");
	bool		known = PQntuples(res) == 1;

	if (known)
	{
		counts->checkpoints = strtoull(PQgetvalue(res, 0, 0), NULL, 10);
		counts->buffers = strtoull(PQgetvalue(res, 0, 1), NULL, 10);
	}
	PQclear(res);
	return known;
}

/* How many buffers has the checkpoint written that has just ended? */
static bool
ReadWritten(Restart *restart, const Counts *before, uint64 *written)
{
	double		until = NowMs() + COUNT_WAIT_MS;
	Counts		now;

	do
	{
		if (!ReadCounts(restart, &now))
			return false;
		if (now.checkpoints > before->checkpoints || now.buffers > before->buffers)
			break;
		pg_usleep(COUNT_LOOK_USEC);
	} while (NowMs() < until && !WasInterrupted());
	*written = now.buffers - before->buffers;
	return true;
}

/*
 * Write what is dirty, again as long as that is more than the limit, for the next one begins
 * with no more than what clients have made dirty meanwhile.  Returns false if a signal came,
 * and gives up if the server refuses.
 */
static bool
Checkpoint(Restart *restart)
{
	uint64		written;
	double		first = NowMs();
	double		took = 0;

	do
	{
		Counts		before = {0};
		bool		known = ReadCounts(restart, &before);
		double		begin = NowMs();
		PGresult   *res = QueryOf(restart->conn, "CHECKPOINT");

		if (res == NULL)
			return false;
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			Refuse(_("Connect as a superuser, or as a member of pg_checkpoint."),
				   _("could not make a checkpoint: %s"), Complaint(restart->conn));
		PQclear(res);
		restart->checkpoints++;
		/* the next one, with no more to write, will take no longer */
		restart->estimate += NowMs() - begin - took;
		took = NowMs() - begin;
		if (!known || !ReadWritten(restart, &before, &written))
			break;
		restart->checkpoint_buffers = written;
		ProgressOf(restart, _("checkpoint %d: %llu buffers in %.0f ms"), restart->checkpoints,
				   (unsigned long long) written, took);
	} while (written > restart->dirty_limit && restart->checkpoints < MAX_CHECKPOINTS);
	restart->phases[PHASE_CHECKPOINT] = NowMs() - first;
	return !WasInterrupted();
}

/* Does the restart take longer than clients may wait?  That is asked before each step. */
static bool
TakesTooLong(const Restart *restart, double waited)
{
	if (restart->max_pause == 0 || waited + restart->estimate <= restart->max_pause)
		return false;
	pg_log_error("clients would wait for %.0f ms, and --max-pause is %.0f ms",
				 waited + restart->estimate, restart->max_pause);
	return true;
}

/* Let the clients go on, by whatever means.  Returns false, after a message, if that fails. */
static bool
Resume(Restart *restart, bool reconnect)
{
	double		begin = NowMs();
	bool		ok = EndWatch(ResumePoolers(restart, reconnect));

	if (restart->n_poolers > 0)
		restart->phases[PHASE_RESUME] = NowMs() - begin;
	if (!ok)
	{
		pg_log_error("a pooler may still be paused");
		pg_log_error_hint("Connect to its console, and run RESUME.");
	}
	return ok;
}

/* Nothing has happened to the server: leave all as it was. */
static int
Undo(Restart *restart, const char *why)
{
	bool		ok = Resume(restart, false);

	if (why != NULL)
		pg_log_error("%s", why);
	pg_log_info(ok ? _("the server was not restarted, and nothing has changed") : _("the server was not restarted"));
	return ok ? EXIT_ERROR : EXIT_DOWN;
}

/* The report.  Returns its last word. */
static int
Report(const Restart *restart, int status)
{
	BeginOutput(restart->options);
	PrintRestart(restart);
	EndOutput();
	return status;
}

/* What comes after the stop, and what all has come to. */
static int
Conclude(Restart *restart, int status)
{
	bool		resumed;
	int			command_status = 0;

	if (status == EXIT_DOWN && restart->stay_paused)
	{
		pg_log_error("the poolers stay paused");
		resumed = EndWatch(true);
	}
	else
		resumed = Resume(restart, status == 0 && IsUpgrade(restart));
	if (status == EXIT_ERROR)
	{
		pg_log_info("the server was not restarted");
		return resumed ? EXIT_ERROR : EXIT_DOWN;
	}
	if (status == EXIT_DOWN)
		ShowLogEnd(&restart->server);
	else
		FindStart(restart);
	if (restart->command_pid != 0)
		command_status = WaitForChild(restart->command_pid);
	if (command_status != 0)
		WarnOf(restart, NULL, _("the server has been restarted, but the command failed: %s"),
			   wait_result_to_str(command_status));
	if (status == EXIT_DOWN || !resumed)
		return Report(restart, EXIT_DOWN);
	return Report(restart, strcmp(restart->start, "warm") == 0 ? EXIT_WARM : EXIT_COLD);
}

/* Restart the server, or prepare that. */
int
DoRestart(const PCacheOptions *options)
{
	Restart		restart = {.options = options,.kept = -1};
	int			status;

	ReadOptions(&restart);
	Check(&restart);
	if (options->dry_run)
		return Report(&restart, restart.forecast.refusal == PCACHE_WARM ? EXIT_WARM : EXIT_COLD);

	CatchSignals();
	if (!Checkpoint(&restart))
		return Undo(&restart, _("interrupted"));
	if (options->verb == VERB_PREPARE)
	{
		PQfinish(restart.conn);
		return Report(&restart, ExitStatus(&restart.forecast));
	}
	if (TakesTooLong(&restart, 0))
		return Undo(&restart, NULL);

	BeginWatch(&restart);
	if (restart.n_poolers > 0)
	{
		ProgressOf(&restart, _("pause"));
		if (!PausePoolers(&restart))
			return Undo(&restart, WasInterrupted() ? _("interrupted") : NULL);
		restart.phases[PHASE_PAUSE] = NowMs() - restart.pause_at;
		if (TakesTooLong(&restart, restart.phases[PHASE_PAUSE]))
			return Undo(&restart, NULL);
	}
	if (WasInterrupted())
		return Undo(&restart, _("interrupted"));
	GoOnIfInterrupted();
	/* the stop would end our session, and log that */
	if (PQpass(restart.conn)[0] != '\0')
		restart.password = pg_strdup(PQpass(restart.conn));
	PQfinish(restart.conn);
	restart.conn = NULL;
	MarkLogs(&restart.server);

	ProgressOf(&restart, _("stop"));
	status = StopAndStart(&restart);
	ProgressOf(&restart, _("resume"));
	return Conclude(&restart, status);
}
