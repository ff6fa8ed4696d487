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
#include "restart.h"

/* So much of a log is looked at. */
#define MAX_LOG_SIZE	(256 * 1024)
#define MAX_LOG_LINES	30

/* The collector keeps the names of its files there, each with its format before it. */
#define COLLECTOR_FILE	"current_logfiles"

/* What is in a file from there on, at most so much of its end; "" if it cannot be read. */
static const char *
ReadFrom(int fd, off_t from)
{
	struct stat st;
	char	   *text;
	ssize_t		len;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return "";
	/* somebody may have emptied it */
	if (from > st.st_size)
		from = 0;
	from = Max(from, st.st_size - MAX_LOG_SIZE);
	text = pg_malloc(MAX_LOG_SIZE + 1);
	len = pread(fd, text, MAX_LOG_SIZE, from);
	text[Max(len, 0)] = '\0';
	return text;
}

/* The collector's current file, or NULL. */
static const char *
CollectorFile(const char *pgdata)
{
	char	   *line = LineOf(pgdata, COLLECTOR_FILE, 1);
	char	   *name = line != NULL ? strchr(line, ' ') : NULL;

	if (name == NULL)
		return NULL;
	name++;
	return is_absolute_path(name) ? name : psprintf("%s/%s", pgdata, name);
}

/* Remember how far the logs go, before the stop. */
void
MarkLogs(RestartServer *server)
{
	const char *collector = CollectorFile(server->pgdata);
	struct stat st;

	if (server->log_fd >= 0 && fstat(server->log_fd, &st) == 0)
		server->log_start = st.st_size;
	if (collector != NULL)
		(void) stat(collector, &server->collector);
}

/*
 * What both logs have since the stop.  Standard error comes last, because a start that fails
 * before there is a collector says why there.
 */
static char *
ReadLogs(const RestartServer *server)
{
	const char *collector = CollectorFile(server->pgdata);
	const struct stat *before = &server->collector;
	struct stat now;
	int			fd = collector != NULL ? open(collector, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0) : -1;
	bool		same = fd >= 0 && fstat(fd, &now) == 0 &&
		now.st_dev == before->st_dev && now.st_ino == before->st_ino;
	char	   *text = psprintf("%s%s", ReadFrom(fd, same ? before->st_size : 0),
								ReadFrom(server->log_fd, server->log_start));

	if (fd >= 0)
		close(fd);
	return text;
}

/* Show the end of the log of a server that has not started. */
void
ShowLogEnd(const RestartServer *server)
{
	char	   *text = ReadLogs(server);
	char	   *begin = text + strlen(text);
	int			lines = 0;

	if (begin == text)
	{
		pg_log_error_hint("Look into the server's log.");
		return;
	}
	do
		begin--;
	while (begin > text && (begin[-1] != '\n' || ++lines < MAX_LOG_LINES));
	pg_log_error_detail("The end of the server's log:");
	fputs(begin, stderr);
}

/* Take the outcome of the start from the log. */
static bool
FindInLogs(Restart *restart)
{
	static const char kept[] = "persistent cache: kept ";
	static const char cold[] = "persistent cache: starting cold: ";
	static const char without[] = "The server starts without the persistent cache.";
	char	   *text = ReadLogs(&restart->server);
	char	   *found;

	if ((found = strstr(text, kept)) != NULL)
	{
		restart->start = "warm";
		restart->kept = strtoll(found + strlen(kept), NULL, 10);
	}
	else if ((found = strstr(text, cold)) != NULL)
	{
		found += strlen(cold);
		found[strcspn(found, "\n\"")] = '\0';
		restart->start = "cold";
		restart->start_detail = found;
	}
	else if ((found = strstr(text, without)) != NULL)
	{
		restart->start = "unavailable";
		restart->start_detail = _("The server starts without the persistent cache.");
	}
	return found != NULL;
}

/* Ask the view, in whichever schema it is.  The report takes what it says. */
static bool
FindInView(Restart *restart)
{
	PGresult   *res = TryQuery(restart,
							   "SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e "
							   "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_pcache'", NULL);
	const char *schema = FirstValue(res);

	if (schema == NULL)
		return false;
	res = TryQuery(restart, psprintf("SELECT last_start, last_start_detail, kept FROM %s.pg_pcache_pool()", schema), NULL);
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
