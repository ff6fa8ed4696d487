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
#include <math.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/logging.h"
#include "restart.h"
#include "restartwatch.h"

#define DEFAULT_DRAIN_MS	5000.0
#define DEFAULT_DIRTY_LIMIT	(UINT64CONST(64) * 1024 * 1024 / BLCKSZ)

/* As pg_ctl does. */
#define DEFAULT_TIMEOUT_MS	60000.0

/* How often to look whether the server is back. */
#define LOOK_USEC			1000L

/* A server that is ready answers within that time, or not at all. */
#define ANSWER_MS			2000.0

double
NowMs(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000.0 + now.tv_nsec / 1000000.0;
}

/* With --progress, what is done right now. */
void
ProgressOf(const Restart *restart, const char *fmt,...)
{
	va_list		ap;

	if (!restart->options->progress)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* A warning, which is also part of the report. */
void
WarnOf(Restart *restart, const char *hint, const char *fmt,...)
{
	char		text[1024];
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pg_log_warning("%s", text);
	if (hint != NULL)
		pg_log_warning_hint("%s", hint);
	simple_string_list_append(&restart->warnings, text);
}

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
	pg_log_error("invalid value \"%s\" for option %s", value, option);
	pg_log_error_hint("Valid units for this parameter are \"ms\", \"s\", and \"min\".");
	exit(EXIT_ERROR);
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
	{
		pg_log_error("invalid value \"%s\" for option %s", options->on_failure, "--on-failure");
		pg_log_error_hint("Valid values are \"resume\" and \"pause\".");
		exit(EXIT_ERROR);
	}
	if (options->command != NULL && options->command[0] == '\0')
		pg_fatal("option %s needs a command", "--command");
	restart->server.timeout = timeout == NULL ? DEFAULT_TIMEOUT_MS : ParseTime(timeout, "PGCTLTIMEOUT");
	for (SimpleStringListCell *cell = options->pgbouncers.head; cell != NULL; cell = cell->next)
		restart->n_poolers++;
	restart->poolers = pg_malloc0_array(Pooler, restart->n_poolers + 1);
	restart->n_poolers = 0;
	for (SimpleStringListCell *cell = options->pgbouncers.head; cell != NULL; cell = cell->next)
		restart->poolers[restart->n_poolers++].conninfo = cell->val;
}

/* A start that loses the cache is for those who said so, unless there is none to lose. */
static void
RefuseCold(const Restart *restart)
{
	const PCacheVerdict *forecast = &restart->forecast;

	if (forecast->refusal == PCACHE_WARM || restart->options->allow_cold ||
		restart->options->verb == VERB_PREPARE ||
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

	ProgressOf(restart, _("check"));
	restart->forecast = ForetellRestart(options, &restart->r);
	restart->server.pgdata = options->pgdata;
	restart->server.pid = restart->r.server_pid;
	if (restart->server.pid == 0)
	{
		pg_log_error("there is no server to restart: none is running in data directory \"%s\"", options->pgdata);
		pg_log_error_hint("Start it with pg_ctl, or as it is usually started.");
		exit(EXIT_ERROR);
	}
	HoldServer(&restart->server);
	ConnectToServer(restart);
	GatherFacts(restart);
	if (options->verb == VERB_RESTART)
		PlanRestart(restart);
	RefuseCold(restart);
	if (options->verb == VERB_RESTART)
		restart->estimate = EstimateOutage(restart);
	ConnectToPoolers(restart);
	restart->phases[PHASE_CHECK] = NowMs() - begin;
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

/* Nothing has happened to the server: leave all as it was. */
static int
Undo(Restart *restart, const char *why)
{
	bool		ok = EndWatch(ResumePoolers(restart, false));

	if (why != NULL)
		pg_log_error("%s", why);
	if (!ok)
	{
		pg_log_error("the server was not restarted, but a pooler may still be paused");
		pg_log_error_hint("Connect to its console, and run RESUME.");
		return EXIT_DOWN;
	}
	pg_log_info("the server was not restarted, and nothing has changed");
	return EXIT_ERROR;
}

/* Does the new server answer? */
static bool
Answers(Restart *restart)
{
	const char *keywords[] = {"host", "port", "user", "password", "dbname", "connect_timeout", "fallback_application_name", NULL};
	ConnParams	params = restart->params;
	const char *values[8];
	PGconn	   *conn;
	PGresult   *res;
	bool		ok;

	if (restart->options->port == NULL && restart->options->host == NULL)
	{
		params.pghost = params.pgport = NULL;
		FindServer(restart->options, &params);
	}
	values[0] = params.pghost;
	values[1] = params.pgport;
	values[2] = params.pguser;
	values[3] = restart->password;
	values[4] = params.dbname;
	values[5] = "2";
	values[6] = restart->options->progname;
	values[7] = NULL;
	conn = PQconnectdbParams(keywords, values, 1);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		PQfinish(conn);
		return false;
	}
	res = PQexec(conn, "SELECT 1");
	ok = PQresultStatus(res) == PGRES_TUPLES_OK;
	PQclear(res);
	if (!ok)
	{
		PQfinish(conn);
		return false;
	}
	restart->conn = conn;
	return true;
}

/* The child has ended: has the start failed?  A command may leave that to others. */
static bool
HasFailed(const Restart *restart, const StartedServer *started)
{
	if (started->child != 0 || started->pid != 0)
		return false;
	return restart->server.command == NULL || started->child_status != 0;
}

/*
 * Wait until the server answers.  Returns false, after a message, if it does not come up.  The
 * connection to the new server takes the place of that to the old one.
 */
static bool
WaitForAnswer(Restart *restart, StartedServer *started)
{
	const RestartServer *server = &restart->server;
	double		until = NowMs() + server->timeout;
	double		ready_at = 0;

	for (;;)
	{
		LookAtServer(server, started);
		if (started->accepts && ready_at == 0)
			ready_at = NowMs();
		if (started->accepts && Answers(restart))
			return true;
		if (ready_at > 0 && NowMs() > ready_at + ANSWER_MS)
		{
			WarnOf(restart, NULL, _("the server accepts connections, but none from %s"), restart->options->progname);
			return true;
		}
		if (HasFailed(restart, started))
		{
			pg_log_error("the server has not started: %s", wait_result_to_str(started->child_status));
			return false;
		}
		if (NowMs() > until)
		{
			pg_log_error("the server does not answer within %.0f s", server->timeout / 1000);
			if (started->pid != 0)
				pg_log_error_detail("It is still starting, with PID %d.", started->pid);
			return false;
		}
		pg_usleep(LOOK_USEC);
	}
}

/* Has a command that restarts the server failed before it has stopped it? */
static bool
CommandChangedNothing(const Restart *restart, StartedServer *started)
{
	const RestartServer *server = &restart->server;
	double		until = NowMs() + server->timeout;

	while (!HasStopped(server))
	{
		LookAtServer(server, started);
		if (started->child == 0 && started->child_status != 0 && !HasStopped(server))
		{
			pg_log_error("command \"%s\" failed: %s", server->command, wait_result_to_str(started->child_status));
			return true;
		}
		if (NowMs() > until)
		{
			pg_log_error("command \"%s\" has not stopped the server within %.0f s", server->command, server->timeout / 1000);
			return true;
		}
		pg_usleep(LOOK_USEC);
	}
	return false;
}

/*
 * The server does not stop in time, for example because a standby does not answer.  It will,
 * and has to be started then.
 */
static void
WaitLonger(Restart *restart)
{
	const RestartServer *server = &restart->server;

	pg_log_error("the server does not stop within %.0f s, and is started as soon as it has", server->timeout / 1000);
	pg_log_error_hint("To end it at once, run \"pg_ctl stop -m immediate\" in another terminal.");
	ShowLogEnd(server);
	if (!restart->stay_paused)
		(void) ResumePoolers(restart, false);
	(void) WaitStopped(server, INFINITY);
}

/*
 * Stop the server, and start it.  Returns 0 if it answers, or an exit status, after a message:
 * EXIT_ERROR if it still is the same server.
 */
static int
StopAndStart(Restart *restart)
{
	const RestartServer *server = &restart->server;
	StartedServer started = {0};

	TellWatch(WATCH_STOPPING);
	restart->stop_at = NowMs();
	if (server->command != NULL)
	{
		started.child = RunCommand(server);
		TellWatch(WATCH_STARTING);
		if (started.child == 0 || CommandChangedNothing(restart, &started))
			return EXIT_ERROR;
	}
	else
	{
		StopServer(server);
		if (!WaitStopped(server, NowMs() + server->timeout))
			WaitLonger(restart);
	}
	restart->phases[PHASE_STOP] = NowMs() - restart->stop_at;
	ProgressOf(restart, _("start"));
	if (server->command == NULL)
	{
		started.child = LaunchServer(server);
		TellWatch(WATCH_STARTING);
		if (started.child == 0)
			return EXIT_DOWN;
	}
	if (!WaitForAnswer(restart, &started))
		return EXIT_DOWN;
	restart->outage = NowMs() - restart->stop_at;
	restart->phases[PHASE_START] = restart->outage - restart->phases[PHASE_STOP];
	restart->new_pid = started.pid;
	/* clients go on before we wait for that */
	restart->command_pid = server->command != NULL ? started.child : 0;
	return 0;
}

/* The poolers' part of what comes after the stop. */
static bool
Resume(Restart *restart, int status)
{
	double		begin = NowMs();
	bool		reconnect = restart->version_then != NULL && strcmp(restart->version_then, restart->version_now) != 0;
	bool		ok;

	if (status == EXIT_DOWN && restart->stay_paused)
	{
		pg_log_error("the poolers stay paused");
		return EndWatch(true);
	}
	ok = EndWatch(ResumePoolers(restart, reconnect && status == 0));
	if (restart->n_poolers > 0)
		restart->phases[PHASE_RESUME] = NowMs() - begin;
	if (ok)
		return true;
	pg_log_error("a pooler may still be paused");
	pg_log_error_hint("Connect to its console, and run RESUME.");
	return false;
}

/* What all this has come to. */
static int
Conclude(Restart *restart, int status, bool resumed)
{
	int			command_status = 0;

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
	{
		while (waitpid(restart->command_pid, &command_status, 0) < 0 && errno == EINTR)
			;
		if (command_status != 0)
			WarnOf(restart, NULL, _("the server has been restarted, but the command failed: %s"),
				   wait_result_to_str(command_status));
	}
	BeginOutput(restart->options);
	PrintRestart(restart);
	EndOutput();
	if (status == EXIT_DOWN || !resumed)
		return EXIT_DOWN;
	return strcmp(restart->start, "warm") == 0 ? EXIT_WARM : EXIT_COLD;
}

int
DoRestart(const PCacheOptions *options)
{
	Restart		restart = {.options = options,.kept = -1};
	double		begin;
	int			status;

	ReadOptions(&restart);
	Check(&restart);
	if (options->dry_run)
	{
		BeginOutput(options);
		PrintRestart(&restart);
		EndOutput();
		return restart.forecast.refusal == PCACHE_WARM ? EXIT_WARM : EXIT_COLD;
	}

	CatchSignals();
	begin = NowMs();
	if (!Checkpoint(&restart))
		return Undo(&restart, _("interrupted"));
	restart.phases[PHASE_CHECKPOINT] = NowMs() - begin;
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
	return Conclude(&restart, status, Resume(&restart, status));
}

int
DoPrepare(const PCacheOptions *options)
{
	Restart		restart = {.options = options,.kept = -1};
	double		begin;

	ReadOptions(&restart);
	Check(&restart);
	CatchSignals();
	begin = NowMs();
	if (!Checkpoint(&restart))
		return Undo(&restart, _("interrupted"));
	restart.phases[PHASE_CHECKPOINT] = NowMs() - begin;
	PQfinish(restart.conn);
	BeginOutput(options);
	PrintRestart(&restart);
	EndOutput();
	return ExitStatus(&restart.forecast);
}
