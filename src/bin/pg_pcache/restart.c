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

#include <time.h>

#include "common/logging.h"
#include "restart.h"
#include "restartwatch.h"

double
NowMs(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000.0 + now.tv_nsec / 1000000.0;
}

/* Does the restart bring another version of the server? */
bool
IsUpgrade(const Restart *restart)
{
	return restart->version_then != NULL && strcmp(restart->version_then, restart->version_now) != 0;
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
	restart->forecast = ForetellRestart(options, &restart->cluster);
	restart->server.pgdata = options->pgdata;
	restart->server.pid = restart->cluster.server_pid;
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

/* The poolers' part of what comes after the stop. */
static bool
Resume(Restart *restart, int status)
{
	double		begin = NowMs();
	bool		ok;

	if (status == EXIT_DOWN && restart->stay_paused)
	{
		pg_log_error("the poolers stay paused");
		return EndWatch(true);
	}
	ok = EndWatch(ResumePoolers(restart, status == 0 && IsUpgrade(restart)));
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
		command_status = WaitForChild(restart->command_pid);
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
	int			status;

	ReadRestartOptions(&restart);
	Check(&restart);
	if (options->dry_run)
	{
		BeginOutput(options);
		PrintRestart(&restart);
		EndOutput();
		return restart.forecast.refusal == PCACHE_WARM ? EXIT_WARM : EXIT_COLD;
	}

	CatchSignals();
	if (!Checkpoint(&restart))
		return Undo(&restart, _("interrupted"));
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

	ReadRestartOptions(&restart);
	Check(&restart);
	CatchSignals();
	if (!Checkpoint(&restart))
		return Undo(&restart, _("interrupted"));
	PQfinish(restart.conn);
	BeginOutput(options);
	PrintRestart(&restart);
	EndOutput();
	return ExitStatus(&restart.forecast);
}
