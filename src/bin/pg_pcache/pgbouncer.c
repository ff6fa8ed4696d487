/*-------------------------------------------------------------------------
 *
 * pgbouncer.c
 *	  Hold back the clients of PgBouncers, and let them go on.
 *
 * PAUSE answers when no transaction is left, so it has a connection of its own, one for each
 * pooler or database, and all wait at the same time.  Whatever else is asked of a pooler goes
 * over another one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pgbouncer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "restart.h"

/* A pooler that is asked to resume may not have seen PAUSE yet, for so long at most. */
#define SEEN_MS			1000
#define SEEN_USEC		10000L

/* A command about a database, or all. */
static char *
CommandFor(PGconn *conn, const char *command, const PauseTarget *target)
{
	char	   *name;

	if (target->database == NULL)
		return psprintf("%s", command);
	name = PQescapeIdentifier(conn, target->database, strlen(target->database));
	return psprintf("%s %s", command, name != NULL ? name : "\"\"");
}

/* Connect for each PAUSE that is going to be sent. */
static bool
PreparePauses(Restart *restart)
{
	for (int i = 0; i < restart->n_targets; i++)
	{
		PauseTarget *target = &restart->targets[i];

		target->conn = ConnectToConsole(target->pooler->conninfo);
		if (target->conn == NULL)
			return false;
	}
	return true;
}

/* Send one PAUSE. */
static bool
SendPause(PauseTarget *target)
{
	target->sent = PQsendQuery(target->conn, CommandFor(target->conn, "PAUSE", target)) == 1;
	if (!target->sent)
		pg_log_error("could not pause pooler \"%s\": %s", target->pooler->name, Complaint(target->conn));
	return target->sent;
}

/* Has the pooler answered?  Returns false, after a message, if it refuses. */
static bool
SeeAnswer(PauseTarget *target)
{
	if (PQconsumeInput(target->conn))
	{
		PGresult   *res;

		if (PQisBusy(target->conn))
			return true;
		res = PQgetResult(target->conn);
		target->paused = PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK;
		/* if not, it was somebody else who has paused it, and not us */
		target->sent = target->paused;
		PQclear(res);
	}
	if (!target->paused)
		pg_log_error("could not pause pooler \"%s\": %s", target->pooler->name, Complaint(target->conn));
	return target->paused;
}

/* Wait until all have answered, or it has taken too long. */
static bool
WaitForPauses(const Restart *restart, double until)
{
	for (;;)
	{
		int			fd = -1;

		for (int i = 0; i < restart->n_targets; i++)
		{
			PauseTarget *target = &restart->targets[i];

			if (!target->paused && !SeeAnswer(target))
				return false;
			if (!target->paused)
				fd = PQsocket(target->conn);
		}
		if (fd < 0)
			return true;
		if (WasInterrupted())
			return false;
		if (NowMs() >= until)
		{
			pg_log_error("could not pause within %.3g s", restart->drain_timeout / 1000);
			for (int i = 0; i < restart->n_poolers; i++)
				(void) TellWhoBlocks(restart, &restart->poolers[i], -1);
			return false;
		}
		/* the others are looked at as often, which is often enough */
		(void) WaitReadable(fd, Min(until, NowMs() + 2));
	}
}

/*
 * Pause all poolers at the same time.  Returns false, after a message, if one of them is not
 * paused in time, or if a signal came; then the caller resumes them.
 */
bool
PausePoolers(Restart *restart)
{
	double		until;

	/*
	 * Clients would wait for nothing.  This also finds a pooler that has
	 * closed its console during the checkpoints.
	 */
	for (int i = 0; i < restart->n_poolers; i++)
	{
		if (TellWhoBlocks(restart, &restart->poolers[i], restart->drain_timeout))
			return false;
	}
	if (!PreparePauses(restart))
		return false;
	TellWatch(WATCH_PAUSING);
	restart->pause_at = NowMs();
	until = restart->pause_at + restart->drain_timeout;
	if (restart->max_pause > 0)
		until = Min(until, restart->pause_at + restart->max_pause - restart->estimate);
	for (int i = 0; i < restart->n_targets; i++)
	{
		if (!SendPause(&restart->targets[i]))
			return false;
	}
	return WaitForPauses(restart, until);
}

/*
 * RESUME, over that connection.  Returns false, after a message, if it is refused.  If the pooler
 * may not have begun to pause, it is given time to.
 */
static bool
Resume(PGconn *conn, const PauseTarget *target, bool maybe_not_paused)
{
	double		until = NowMs() + SEEN_MS;

	for (;;)
	{
		PGresult   *res = AskConsole(conn, CommandFor(conn, "RESUME", target));
		bool		ok = PQresultStatus(res) == PGRES_COMMAND_OK;
		bool		not_paused = strstr(PQresultErrorMessage(res), "not paused") != NULL;

		PQclear(res);
		if (ok)
			return true;
		if (not_paused && maybe_not_paused && NowMs() > until)
			return true;
		if (!not_paused || !maybe_not_paused)
			break;
		pg_usleep(SEEN_USEC);
	}
	pg_log_error("could not resume pooler \"%s\": %s", target->pooler->name, Complaint(conn));
	return false;
}

/*
 * Let the clients of all poolers go on that we have paused, or begun to.  After a change of the
 * version, what the poolers tell clients of the server is asked for again.  Returns false,
 * after a message, if that fails.
 */
bool
ResumePoolers(Restart *restart, bool reconnect)
{
	bool		ok = true;

	for (int i = 0; i < restart->n_targets; i++)
	{
		PauseTarget *target = &restart->targets[i];
		PGconn	   *control = target->pooler->control;

		if (target->sent && reconnect)
			PQclear(AskConsole(control, CommandFor(control, "RECONNECT", target)));
		if (target->sent && Resume(control, target, !target->paused))
			target->sent = false;
		/* one that still waits would wait forever */
		PQfinish(target->conn);
		target->conn = NULL;
		ok &= !target->sent;
	}
	/* it may be a second time */
	if (restart->pause_at > 0 && restart->paused == 0)
		restart->paused = NowMs() - restart->pause_at;
	return ok;
}

/*
 * The same for one pooler, by somebody who shares no connection with us, and does not know how
 * far we have come.
 */
bool
ResumeAnew(const Restart *restart, const Pooler *pooler)
{
	PGconn	   *conn = ConnectToConsole(pooler->conninfo);
	bool		ok = conn != NULL;

	for (int i = 0; ok && i < restart->n_targets; i++)
		ok = restart->targets[i].pooler != pooler || Resume(conn, &restart->targets[i], true);
	PQfinish(conn);
	return ok;
}
