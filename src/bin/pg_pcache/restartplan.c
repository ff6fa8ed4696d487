/*-------------------------------------------------------------------------
 *
 * restartplan.c
 *	  How is the server started again, and who else would have to know of that?
 *
 * Without --command it is started as "pg_ctl restart" does it, with the arguments that it was
 * started with.  It also gets the environment that it had, and its messages go where they went.
 * Who else would have to start it, such as systemd, is asked for.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "restart.h"
#include "storage/pcache_pool.h"

/* Patroni keeps this in the data directory. */
#define PATRONI_FILE	"patroni.dynamic.json"

/* The strings of a buffer, each with a NUL behind, as an array with NULL at its end. */
static char **
SplitStrings(char *buf, size_t len, int *n)
{
	char	  **result = pg_malloc_array(char *, len + 2);

	*n = 0;
	for (char *p = buf; p < buf + len; p += strlen(p) + 1)
		result[(*n)++] = p;
	result[*n] = NULL;
	return result;
}

/*
 * The environment of the server, or ours if it is not to be had.  What pg_ctl has left for
 * that one start is not for another one, and its PGDATA may have been relative to a
 * directory that nobody knows any more.
 */
static char **
EnvironmentOf(int pid, const char *pgdata)
{
	size_t		len = 0;
	char	   *buf = ReadProc(pid, "environ", &len);
	char	  **variables;
	int			n;
	int			kept = 0;

	if (buf == NULL || len == 0)
		return environ;
	variables = SplitStrings(buf, len, &n);
	for (int i = 0; i < n; i++)
	{
		if (strchr(variables[i], '=') == NULL)
			return environ;
		if (strncmp(variables[i], "PGDATA=", 7) == 0 && !is_absolute_path(variables[i] + 7))
			variables[kept++] = psprintf("PGDATA=%s", pgdata);
		else if (strncmp(variables[i], "PG_GRANDPARENT_PID=", 19) != 0)
			variables[kept++] = variables[i];
	}
	variables[kept] = NULL;
	return variables;
}

/*
 * The program that the server was started from.  It may have been replaced since, which is
 * what a restart after an upgrade is for.
 */
static char *
ProgramOf(int pid)
{
	static const char deleted[] = " (deleted)";
	char		link[64];
	char		path[MAXPGPATH];
	ssize_t		len;
	size_t		tail = strlen(deleted);

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	len = readlink(link, path, sizeof(path) - 1);
	if (len < 0)
		pg_fatal("could not read symbolic link \"%s\": %m", link);
	path[len] = '\0';
	if ((size_t) len > tail && strcmp(path + len - tail, deleted) == 0)
		path[len - tail] = '\0';
	if (access(path, X_OK) < 0)
		Refuse(_("Restart the server with --command."),
			   _("could not find the program that the server was started from, \"%s\": %m"), path);
	return pg_strdup(path);
}

/* The version of that program, which must be one for the same data directory. */
static void
FindNextVersion(Restart *restart, const char *program)
{
	char	   *argv[] = {pg_strdup(program), "-V", NULL};
	static const char prefix[] = "postgres (PostgreSQL) ";
	char	   *line = FirstLineOf(argv, NULL, NULL);

	if (line == NULL || strncmp(line, prefix, strlen(prefix)) != 0)
		pg_fatal("could not get the version of \"%s\"", program);
	restart->version_then = line + strlen(prefix);
	if (atoi(restart->version_then) != atoi(restart->version_now))
		pg_fatal("\"%s\" is of version %s, and the server is of version %s",
				 program, restart->version_then, restart->version_now);
}

/* Where do its messages go before it has a logging collector, and what shows an error? */
static void
FindLog(RestartServer *server)
{
	char		path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/2", server->pid);
	server->log_fd = server->stderr_fd = -1;
	if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
	{
		server->log_fd = open(path, O_RDONLY | O_CLOEXEC, 0);
		server->stderr_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
	}
	else if (server->command == NULL)
		server->stderr_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0);
	if (server->stderr_fd >= 0)
		(void) fcntl(server->stderr_fd, F_SETFL, fcntl(server->stderr_fd, F_GETFL) & ~O_NONBLOCK);
	else if (server->command == NULL)
		pg_log_warning("could not find out where the server writes its messages: %m");
}

/*
 * Arguments that were relative to a directory that nobody knows any more.  Where the
 * configuration is, the user may have told us.
 */
static void
FixArguments(RestartServer *server, const char *config_file, int n)
{
	for (int i = 1; i < n; i++)
	{
		char	   *argument = server->argv[i];
		char	   *setting = strncmp(argument, "-c", 2) == 0 || strncmp(argument, "--", 2) == 0 ? argument + 2 : argument;

		if (strcmp(argument, "-D") == 0 && i + 1 < n && !is_absolute_path(server->argv[i + 1]))
			server->argv[i + 1] = pg_strdup(server->pgdata);
		else if (strncmp(argument, "-D", 2) == 0 && argument[2] != '\0' && !is_absolute_path(argument + 2))
			server->argv[i] = psprintf("-D%s", server->pgdata);
		else if ((strncmp(setting, "config_file=", 12) == 0 || strncmp(setting, "config-file=", 12) == 0) &&
				 !is_absolute_path(setting + 12) && config_file != NULL)
			server->argv[i] = psprintf("%.*s%s", (int) (setting + 12 - argument), argument, config_file);
	}
}

/*
 * Try what will be started, as far as it reads its configuration: with these arguments, in this
 * environment and in the directory where each server works.
 */
static void
RehearseStart(const RestartServer *server, int n)
{
	char	  **argv = pg_malloc_array(char *, n + 3);
	char	   *directory;
	char		resolved[PATH_MAX];

	memcpy(argv, server->argv, n * sizeof(char *));
	argv[n] = "-C";
	argv[n + 1] = "data_directory";
	argv[n + 2] = NULL;
	directory = FirstLineOf(argv, server->envp, server->pgdata);
	if (directory == NULL || realpath(directory, resolved) == NULL || strcmp(resolved, server->pgdata) != 0)
		Refuse(_("If its configuration file was named relative to another directory, use --config-file; or restart it with --command."),
			   _("the server would not start on data directory \"%s\" with the arguments that it has"), server->pgdata);
	pg_free(argv);
}

/* Is the memory of the server in huge pages that the next one needs? */
static bool
HasHugePages(int pid)
{
	uint64		kb;

	return PCacheReadNumber(psprintf("/proc/%d/status", pid), "HugetlbPages:", &kb) && kb > 0;
}

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
	char	   *line = FirstLineOf(argv, NULL, NULL);

	if (line != NULL && atoi(line) > 0)
		return atoi(line) == pid;
	return strncmp(unit, "postgres", 8) == 0;
}

/* Give up if somebody would have to know that the server is restarted. */
static void
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
	if (manager != NULL)
		Refuse(psprintf(_("Say how it is restarted: --command='%s'"), command),
			   _("the server cannot be restarted by %s itself: %s"), "pg_pcache", manager);
}

/*
 * Find out all that is needed to restart the server, so that nothing can be in the way once
 * it is down.  Gives up if something is.
 */
void
PlanRestart(Restart *restart)
{
	RestartServer *server = &restart->server;
	size_t		len = 0;
	char	   *command;
	char	   *program;
	int			n;

	server->command = restart->options->command;
	/* the lock of its pool is held to the end, and so are huge pages */
	server->ends_whole = restart->uses_pool || HasHugePages(server->pid);
	if (server->command == NULL)
		RefuseManagers(server);
	FindLog(server);
	program = ProgramOf(server->pid);
	FindNextVersion(restart, program);
	if (server->command != NULL)
		return;
	command = ReadProc(server->pid, "cmdline", &len);
	if (command == NULL || len == 0)
		pg_fatal("could not read the command line of the server with PID %d", server->pid);
	server->argv = SplitStrings(command, len, &n);
	server->argv[0] = program;
	FixArguments(server, restart->options->config_file, n);
	server->envp = EnvironmentOf(server->pid, server->pgdata);
	RehearseStart(server, n);
}
