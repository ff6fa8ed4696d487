/*-------------------------------------------------------------------------
 *
 * restartquery.c
 *	  What each part of a restart needs: the time, words to the user, signals and queries.
 *
 * A signal that asks us to end is only noted.  Up to the stop of the server, what waits here
 * gives up then, and the callers undo what was done.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartquery.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/query_utils.h"
#include "restart.h"

/* How long at most until a signal is seen that came just before poll(). */
#define LOOK_MS		20

/* A pooler that is there answers within that time. */
#define CONSOLE_MS	5000.0

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

static volatile sig_atomic_t interrupted = 0;
static volatile sig_atomic_t goes_on = 0;

static void
NoteSignal(SIGNAL_ARGS)
{
	static const char message[] =
		"pg_pcache: the server has been told to stop, so the restart goes on\n";

	interrupted = 1;
	if (goes_on && write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		return;
}

/* From here on, a signal does not end us. */
void
CatchSignals(void)
{
	OnEndSignals(NoteSignal);
	/* a reader of our output that is gone */
	pqsignal(SIGPIPE, SIG_IGN);
}

/* Are we to give up? */
bool
WasInterrupted(void)
{
	return interrupted && !goes_on;
}

/* From here on, there is no way back. */
void
GoOnIfInterrupted(void)
{
	goes_on = 1;
}

/* Wait until there is something to read, or something to do about a signal. */
bool
WaitReadable(int fd, double until)
{
	struct pollfd pollfd = {.fd = fd,.events = POLLIN};
	double		left = until - NowMs();

	return poll(&pollfd, fd >= 0 ? 1 : 0, (int) Max(0, Min(left, LOOK_MS))) > 0;
}

/*
 * Like PQexec(), but an error if there is no answer until then; and if signals end it, NULL
 * if one came meanwhile, and then the query is cancelled.
 */
static PGresult *
RunQuery(PGconn *conn, const char *query, bool signals_end_it, double until)
{
	PGresult   *res = NULL;
	PGresult   *next;
	bool		cancelled = false;

	if (!PQsendQuery(conn, query))
		return PQmakeEmptyPGresult(conn, PGRES_FATAL_ERROR);
	for (;;)
	{
		while (PQisBusy(conn))
		{
			if (NowMs() > until)
				return PQmakeEmptyPGresult(conn, PGRES_FATAL_ERROR);
			if (signals_end_it && WasInterrupted() && !cancelled)
			{
				PGcancel   *cancel = PQgetCancel(conn);
				char		errbuf[256];

				if (cancel == NULL || !PQcancel(cancel, errbuf, sizeof(errbuf)))
					return NULL;
				cancelled = true;
			}
			(void) WaitReadable(PQsocket(conn), NowMs() + LOOK_MS);
			if (!PQconsumeInput(conn))
				break;
		}
		next = PQgetResult(conn);
		if (next == NULL)
			return cancelled ? NULL : res;
		/* the first one counts */
		if (res == NULL)
			res = next;
		else
			PQclear(next);
	}
}

/* What may take long, and is given up if a signal comes: NULL then. */
PGresult *
QueryOf(PGconn *conn, const char *query)
{
	return RunQuery(conn, query, true, INFINITY);
}

/*
 * What a pooler's console answers at once.  One that hangs must not keep us from the others, so
 * without an answer it is an error, and the connection is of no use any more.
 */
PGresult *
AskConsole(PGconn *conn, const char *query)
{
	return RunQuery(conn, query, false, NowMs() + CONSOLE_MS);
}

/*
 * The rows of a query about something that is nice to know.  None if it fails, after a warning
 * that says what remains unknown, unless what is NULL.
 */
PGresult *
TryQuery(Restart *restart, const char *query, const char *what)
{
	PGresult   *res = PQexec(restart->conn, query);

	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		return res;
	if (what != NULL)
		WarnOf(restart, NULL, _("could not find out %s: %s"), what, Complaint(restart->conn));
	PQclear(res);
	return PQmakeEmptyPGresult(restart->conn, PGRES_TUPLES_OK);
}

const char *
FirstValue(const PGresult *res)
{
	return PQntuples(res) > 0 && !PQgetisnull(res, 0, 0) ? PQgetvalue(res, 0, 0) : NULL;
}

/* The first value of what must be known, or NULL. */
char *
ValueOf(PGconn *conn, const char *query)
{
	PGresult   *res = executeQuery(conn, query, false);
	char	   *value = FirstValue(res) != NULL ? pg_strdup(FirstValue(res)) : NULL;

	PQclear(res);
	return value;
}

/* A value by the name of its column; NULL if it is null, or if there is no such column. */
const char *
ColumnOf(const PGresult *res, int row, const char *column)
{
	int			n = PQfnumber(res, column);

	return n >= 0 && !PQgetisnull(res, row, n) ? PQgetvalue(res, row, n) : NULL;
}

/* What libpq complains of, in one line.  It has nothing to say of what does not answer. */
const char *
Complaint(const PGconn *conn)
{
	const char *message = PQerrorMessage(conn);
	char	   *text = pg_strdup(message[0] != '\0' ? message : _("there is no answer"));

	(void) pg_strip_crlf(text);
	for (char *p = text; *p != '\0'; p++)
	{
		if (*p == '\n')
			*p = ' ';
	}
	return text;
}
