/*-------------------------------------------------------------------------
 *
 * restartrun.c
 *	  Stop the server, and start it again until it answers.
 *
 * There is no way back from here on.  Whatever can be done so that a server runs in the end is
 * done.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartrun.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "pqexpbuffer.h"
#include "restart.h"

/* How often to look at the server. */
#define LOOK_MS				1

/* A stop that takes longer is one to be explained, by so many processes. */
#define TELL_MS				1000.0
#define MAX_NAMED			10

/* A server that is ready answers within that time, or not at all. */
#define ANSWER_MS			2000.0

/* Does the new server answer? */
static bool
Answers(Restart *restart)
{
	const char *keywords[] = {"host", "port", "user", "password", "dbname", "connect_timeout", "fallback_application_name", NULL};
	ConnParams	params = restart->options->params;
	const char *values[] = {NULL, NULL, restart->params.pguser, restart->password, restart->params.dbname,
	"2", restart->options->progname, NULL};

	FindServer(restart->options, &params);
	values[0] = params.pghost;
	values[1] = params.pgport;
	restart->conn = PQconnectdbParams(keywords, values, 1);
	if (PQstatus(restart->conn) == CONNECTION_OK)
	{
		PGresult   *res = PQexec(restart->conn, "SELECT 1");
		bool		ok = PQresultStatus(res) == PGRES_TUPLES_OK;

		PQclear(res);
		if (ok)
			return true;
	}
	PQfinish(restart->conn);
	restart->conn = NULL;
	return false;
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
		if (started->launched && restart->phases[PART_LAUNCH] == 0)
			restart->phases[PART_LAUNCH] = NowMs() - restart->stop_at - restart->phases[PHASE_STOP];
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
		pg_usleep(LOOK_MS * 1000L);
	}
}

/*
 * The server does not stop in time, for example because a standby does not answer.  It will,
 * and has to be started then.
 */
static void
StopIsLate(Restart *restart)
{
	pg_log_error("the server does not stop within %.0f s, and is started as soon as it has", restart->server.timeout / 1000);
	pg_log_error_hint("To end it at once, run \"pg_ctl stop -m immediate\" in another terminal.");
	ShowLogEnd(&restart->server);
	if (!restart->stay_paused)
		(void) ResumePoolers(restart, false);
}

/* For whom does the stop wait?  Each process of the server says in its title what it does. */
static void
TellWhoIsLeft(Restart *restart)
{
	char	   *children = ChildrenOf(restart->server.pid);
	char	   *rest = NULL;
	PQExpBuffer names = createPQExpBuffer();
	int			n = 0;

	for (char *child = strtok_r(children, " ", &rest); child != NULL && n < MAX_NAMED;
		 child = strtok_r(NULL, " ", &rest))
	{
		char	   *title = ReadProc(atoi(child), "cmdline", NULL);

		/* these end when all others have, or wait themselves */
		if (title == NULL || title[0] == '\0' || strstr(title, ": logger") != NULL ||
			strstr(title, ": io worker") != NULL || pg_str_endswith(title, ": checkpointer "))
			continue;
		appendPQExpBuffer(names, "%sPID %s, \"%s\"", n++ > 0 ? "; " : "", child, title);
	}
	if (n > 0)
		WarnOf(restart, NULL, _("the server has not stopped yet, and waits for %s"), names->data);
	else
		WarnOf(restart, NULL, _("the server has not stopped yet, although no other process of it is known"));
	destroyPQExpBuffer(names);
}

/* Note how far the stop has come, by what pg_control says. */
static void
NoteStop(Restart *restart)
{
	double	   *phases = restart->phases;
	double		took = NowMs() - restart->stop_at;
	DBState		state = StateOf(&restart->server);
	bool		done = state == DB_SHUTDOWNED || state == DB_SHUTDOWNED_IN_RECOVERY;

	if (phases[PART_SESSIONS] == 0 && (done || state == DB_SHUTDOWNING))
		phases[PART_SESSIONS] = took;
	if (phases[PART_CHECKPOINT] == 0 && done)
		phases[PART_CHECKPOINT] = took - phases[PART_SESSIONS];
	phases[PHASE_STOP] = took;
	phases[PART_EXIT] = took - phases[PART_SESSIONS] - phases[PART_CHECKPOINT];
}

/*
 * Wait until the server has stopped, however long that takes.  Only a command may not stop it:
 * returns false then, after a message.
 */
static bool
WaitForStop(Restart *restart, StartedServer *started)
{
	const RestartServer *server = &restart->server;
	bool		told = false;
	bool		was_late = false;

	while (!HasStopped(server))
	{
		bool		late = NowMs() > restart->stop_at + server->timeout;

		NoteStop(restart);
		if (!told && restart->phases[PHASE_STOP] > TELL_MS)
		{
			TellWhoIsLeft(restart);
			told = true;
		}
		LookAtServer(server, started);
		if (started->child == 0 && started->child_status != 0 && !HasStopped(server))
		{
			pg_log_error("command \"%s\" failed: %s", server->command, wait_result_to_str(started->child_status));
			return false;
		}
		if (late && server->command != NULL)
		{
			pg_log_error("command \"%s\" has not stopped the server within %.0f s", server->command, server->timeout / 1000);
			return false;
		}
		if (late && !was_late)
			StopIsLate(restart);
		was_late = late;
		(void) HasEnded(server, LOOK_MS);
	}
	NoteStop(restart);
	return true;
}

/*
 * Stop the server, and start it.  Returns 0 if it answers, or an exit status, after a message:
 * EXIT_ERROR if it still is the same server.
 */
int
StopAndStart(Restart *restart)
{
	const RestartServer *server = &restart->server;
	StartedServer started = {0};

	TellWatch(WATCH_STOPPING);
	restart->stop_at = NowMs();
	if (server->command == NULL)
		StopServer(server);
	else
	{
		started.child = RunCommand(server);
		TellWatch(WATCH_STARTING);
		if (started.child == 0)
			return EXIT_ERROR;
	}
	if (!WaitForStop(restart, &started))
	{
		if (!IsStopping(server))
			return EXIT_ERROR;
		pg_log_error_detail("The server is stopping nevertheless.  See that it is started again.");
		return EXIT_DOWN;
	}
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
	restart->phases[PART_ANSWER] = restart->phases[PHASE_START] - restart->phases[PART_LAUNCH];
	restart->new_pid = started.pid;
	/* clients go on before we wait for that */
	restart->command_pid = server->command != NULL ? started.child : 0;
	return 0;
}
