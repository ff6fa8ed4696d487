/*-------------------------------------------------------------------------
 *
 * restartmanager.c
 *	  Who else would have to know that the server is restarted?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartmanager.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "common/logging.h"
#include "restart.h"

/* Patroni keeps this in the data directory. */
#define PATRONI_FILE	"patroni.dynamic.json"

/* The unit of systemd that the process belongs to, or NULL. */
static char *
UnitOf(int pid)
{
	size_t		len = 0;
	char	   *groups = ReadProc(pid, "cgroup", &len);
	char	   *rest = NULL;
	char	   *unit = NULL;

	if (groups == NULL || access("/run/systemd/system", F_OK) < 0)
		return NULL;
	for (char *line = strtok_r(groups, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
	{
		char	   *name = strrchr(line, '/');
		size_t		n = name != NULL ? strlen(name) : 0;

		/* of the hierarchy of version 2, or that of systemd beside version 1 */
		if ((strncmp(line, "0::", 3) == 0 || strstr(line, ":name=systemd:") != NULL) &&
			n > 9 && strcmp(name + n - 8, ".service") == 0)
			unit = name + 1;
	}
	return unit;
}

/* Does systemd watch over the server?  A unit that it was only started from does not count. */
static bool
UnitOwns(const char *unit, int pid)
{
	char	   *argv[] = {"systemctl", "show", "--property=MainPID", "--value", "--", pg_strdup(unit), NULL};
	char	   *line = FirstLineOf(argv);

	if (line != NULL && atoi(line) > 0)
		return atoi(line) == pid;
	return strncmp(unit, "postgres", 8) == 0;
}

/* Give up if somebody would have to know that the server is restarted. */
void
RefuseManagers(const RestartServer *server)
{
	char	   *unit = UnitOf(server->pid);
	const char *manager = NULL;
	const char *command = NULL;

	if (server->pid == 1)
	{
		manager = _("it is the first process of a container, which ends with it");
		command = "...";
	}
	else if (FileExists(server->pgdata, PATRONI_FILE))
	{
		manager = _("Patroni watches over it");
		command = "patronictl restart CLUSTER MEMBER --force";
	}
	else if (unit != NULL && UnitOwns(unit, server->pid))
	{
		manager = psprintf(_("it belongs to unit \"%s\" of systemd"), unit);
		command = psprintf("systemctl restart %s", unit);
	}
	if (manager == NULL)
		return;
	pg_log_error("the server cannot be restarted by %s itself: %s", "pg_pcache", manager);
	pg_log_error_hint("Say how it is restarted: --command='%s'", command);
	exit(EXIT_ERROR);
}
