/*-------------------------------------------------------------------------
 *
 * restartlog.c
 *	  How has the server started, and what does its log say if it has not?
 *
 * The view of the extension knows how the start was.  Where the extension is not installed, and
 * on a server that is down, the log has it: where the server writes before it has a logging
 * collector, and the file of the latter.  Only what was written since the stop counts.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartlog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "pqexpbuffer.h"
#include "restart.h"

/* So much of a log is looked at. */
#define MAX_LOG_SIZE	(256 * 1024)
#define MAX_LOG_LINES	15

/* The collector keeps the names of its files there, each with its format before it. */
#define COLLECTOR_FILE	"current_logfiles"

/* What is in a file from there on, at most so much of its end; NULL if it cannot be read. */
static char *
ReadFrom(int fd, off_t from)
{
	struct stat st;
	char	   *text;
	ssize_t		len;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	/* somebody may have emptied it */
	if (from > st.st_size)
		from = 0;
	from = Max(from, st.st_size - MAX_LOG_SIZE);
	text = pg_malloc(MAX_LOG_SIZE + 1);
	len = pread(fd, text, MAX_LOG_SIZE, from);
	text[Max(len, 0)] = '\0';
	return text;
}

/* Open the collector's current file, or -1. */
static int
OpenCollectorFile(const char *pgdata)
{
	char	   *line = LineOf(pgdata, COLLECTOR_FILE, 1);
	char	   *name = line != NULL ? strchr(line, ' ') : NULL;

	if (name == NULL)
		return -1;
	name++;
	return open(is_absolute_path(name) ? name : psprintf("%s/%s", pgdata, name),
				O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
}

/* Remember how far the logs go, before the stop. */
void
MarkLogs(RestartServer *server)
{
	struct stat st;

	if (server->log_fd >= 0 && fstat(server->log_fd, &st) == 0)
		server->log_start = st.st_size;
	server->collector_fd = OpenCollectorFile(server->pgdata);
	if (server->collector_fd >= 0 && fstat(server->collector_fd, &st) == 0)
		server->collector_start = st.st_size;
}

/* The texts of both logs since then; each may be NULL. */
static void
ReadLogs(const RestartServer *server, char *texts[2])
{
	int			fd = OpenCollectorFile(server->pgdata);
	struct stat before;
	struct stat now;
	bool		same = fd >= 0 && server->collector_fd >= 0 && fstat(fd, &now) == 0 &&
		fstat(server->collector_fd, &before) == 0 &&
		before.st_dev == now.st_dev && before.st_ino == now.st_ino;

	texts[0] = ReadFrom(server->log_fd, server->log_start);
	texts[1] = ReadFrom(fd, same ? server->collector_start : 0);
	if (fd >= 0)
		close(fd);
}

/* Show the end of the log of a server that has not started. */
void
ShowLogEnd(const RestartServer *server)
{
	char	   *texts[2];
	bool		any = false;

	ReadLogs(server, texts);
	for (int i = 0; i < lengthof(texts); i++)
	{
		char	   *begin;
		int			lines = 0;

		if (texts[i] == NULL || texts[i][0] == '\0')
			continue;
		begin = texts[i] + strlen(texts[i]) - 1;
		while (begin > texts[i] && (begin[-1] != '\n' || ++lines < MAX_LOG_LINES))
			begin--;
		if (!any)
			pg_log_error_detail("The end of the server's log:");
		any = true;
		fputs(begin, stderr);
	}
	if (!any)
		pg_log_error_hint("Look into the server's log.");
}

/* Take the outcome of the start from the log. */
static bool
FindInLogs(Restart *restart)
{
	static const char kept[] = "persistent cache: kept ";
	static const char cold[] = "persistent cache: starting cold: ";
	static const char without[] = "The server starts without the persistent cache.";
	char	   *texts[2];

	ReadLogs(&restart->server, texts);
	for (int i = 0; i < lengthof(texts); i++)
	{
		char	   *found;

		if (texts[i] == NULL)
			continue;
		if ((found = strstr(texts[i], kept)) != NULL)
		{
			restart->start = "warm";
			restart->kept = strtoll(found + strlen(kept), NULL, 10);
			return true;
		}
		if ((found = strstr(texts[i], cold)) != NULL)
		{
			found += strlen(cold);
			found[strcspn(found, "\n\"")] = '\0';
			restart->start = "cold";
			restart->start_detail = found;
			return true;
		}
		if (strstr(texts[i], without) != NULL)
		{
			restart->start = "unavailable";
			restart->start_detail = _("The server starts without the persistent cache.");
			return true;
		}
	}
	return false;
}

/* Ask the view, in whichever schema it is.  The report takes what it says. */
static bool
FindInView(Restart *restart)
{
	PGresult   *res = TryQuery(restart->conn,
							   "SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e "
							   "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_pcache'", NULL);
	const char *schema = FirstValue(res);

	if (schema == NULL)
		return false;
	res = TryQuery(restart->conn, psprintf("SELECT last_start, last_start_detail, kept FROM %s.pg_pcache_pool()", schema), NULL);
	if (FirstValue(res) == NULL)
		return false;
	restart->start = FirstValue(res);
	restart->start_detail = ColumnOf(res, 0, "last_start_detail");
	if (!PQgetisnull(res, 0, 2) && strcmp(restart->start, "warm") == 0)
		restart->kept = strtoll(PQgetvalue(res, 0, 2), NULL, 10);
	return true;
}

/* Find out how the server that answers has started.  A cold start is an error to tell. */
void
FindStart(Restart *restart)
{
	if (restart->forecast.refusal == PCACHE_OFF)
	{
		restart->start = "off";
		restart->start_detail = restart->forecast.why.message;
		return;
	}
	if (!(restart->conn != NULL && FindInView(restart)) && !FindInLogs(restart))
	{
		restart->start = "unknown";
		restart->start_detail = _("neither the extension \"pg_pcache\" nor the server's log tells how it has started");
	}
	if (strcmp(restart->start, "warm") != 0)
		pg_log_warning("the server has not started warm: %s",
					   restart->start_detail != NULL ? restart->start_detail : restart->start);
}
