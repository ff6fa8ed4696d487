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
	restart->version_then = VersionOf(program);
	if (restart->version_then == NULL)
		pg_fatal("could not get the version of \"%s\"", program);
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
		const char *file = ConfigFileIn(argument);

		if (strcmp(argument, "-D") == 0 && i + 1 < n && !is_absolute_path(server->argv[i + 1]))
			server->argv[i + 1] = pg_strdup(server->pgdata);
		else if (strncmp(argument, "-D", 2) == 0 && argument[2] != '\0' && !is_absolute_path(argument + 2))
			server->argv[i] = psprintf("-D%s", server->pgdata);
		else if (file != NULL && !is_absolute_path(file) && config_file != NULL)
			server->argv[i] = psprintf("%.*s%s", (int) (file - argument), argument, config_file);
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

	/*
	 * the server that runs has made it absolute by the directory in which it
	 * was started
	 */
	argv[n + 1] = "hba_file";
	directory = FirstLineOf(argv, server->envp, server->pgdata);
	if (directory == NULL || access(directory, R_OK) < 0)
		Refuse(_("Name it by an absolute path, or restart the server with --command."),
			   _("the server would not start, because it would not find its \"hba_file\""));
}

/*
 * The next server has our groups.  One that the server has may be what lets it read a key for
 * SSL, and programs that change the user may leave it out.
 */
static void
RefuseFewerGroups(int pid)
{
	char	   *status = ReadProc(pid, "status", NULL);
	char	   *groups = status != NULL ? strstr(status, "\nGroups:") : NULL;
	char	   *rest = NULL;
	gid_t		ours[NGROUPS_MAX];
	int			n = getgroups(lengthof(ours), ours);

	if (groups == NULL)
		return;
	groups += strlen("\nGroups:");
	groups[strcspn(groups, "\n")] = '\0';
	for (char *group = strtok_r(groups, " \t", &rest); group != NULL; group = strtok_r(NULL, " \t", &rest))
	{
		gid_t		gid = strtoul(group, NULL, 10);
		bool		found = gid == getegid();

		for (int i = 0; i < n; i++)
			found |= ours[i] == gid;
		if (!found)
			Refuse(_("Become that user with all of its groups, for example with runuser, or use --command."),
				   _("the server has group %s, which %s does not have here"), group, "pg_pcache");
	}
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
	char	   *groups = ReadProc(pid, "cgroup", NULL);
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

/* What systemd says of a unit, or NULL. */
static char *
PropertyOf(const char *unit, const char *property)
{
	char	   *argv[] = {"systemctl", "show", "--value", "--property", pg_strdup(property), "--", pg_strdup(unit), NULL};

	return FirstLineOf(argv, NULL, NULL);
}

/* Does systemd watch over the server?  A unit that it was only started from does not count. */
static bool
UnitOwns(const char *unit, int pid)
{
	char	   *main_pid = PropertyOf(unit, "MainPID");

	if (main_pid != NULL && atoi(main_pid) > 0)
		return atoi(main_pid) == pid;
	return strncmp(unit, "postgres", 8) == 0;
}

/* Does systemd end what is left in the unit when its main process ends? */
static bool
UnitKillsAll(const char *unit)
{
	char	   *mode = PropertyOf(unit, "KillMode");

	return mode != NULL && (strcmp(mode, "control-group") == 0 || strcmp(mode, "mixed") == 0);
}

/*
 * Is there a process that waits for the end of the server?  The first process of a container
 * waits for what it has started, which is in its session.  pg_ctl gives a server one of its own,
 * and so do we; some supervisors do that as well, and are known by their names.  A parent that
 * cannot be seen from here is what has started the container.
 */
static bool
SomebodyWaits(int pid)
{
	static const char *const names[] = {
		"catatonit\n", "conmon\n", "containerd-shim\n", "docker-init\n", "dumb-init\n", "runsv\n",
		"s6-supervise\n", "supervisord\n", "tini\n"
	};
	int			session;
	int			first_session;
	int			parent = ParentOf(pid, &session);
	char	   *name = ReadProc(parent, "comm", NULL);

	(void) ParentOf(1, &first_session);
	if (session >= 0 && (session == first_session || parent == 0))
		return true;
	for (int i = 0; name != NULL && i < lengthof(names); i++)
	{
		/*
		 * the first process of all is also the parent of those that have lost
		 * theirs
		 */
		if (strcmp(name, names[i]) == 0 && (parent != 1 || atoi(ChildrenOf(1)) == pid))
			return true;
	}
	return false;
}

/* Give up if somebody would have to know that the server is restarted. */
static void
RefuseManagers(const RestartServer *server)
{
	char	   *unit = UnitOf(server->pid);
	char	   *our_unit = UnitOf(getpid());
	const char *manager = NULL;
	const char *command = "...";

	if (FileExists(server->pgdata, PATRONI_FILE))
	{
		manager = _("Patroni watches over it");
		command = "patronictl restart CLUSTER MEMBER --force";
	}
	else if (unit != NULL && UnitOwns(unit, server->pid))
	{
		manager = psprintf(_("it belongs to unit \"%s\" of systemd"), unit);
		command = psprintf("systemctl restart %s", unit);
	}
	else if (server->pid == 1)
		manager = _("it is the first process of a container, which ends with it");
	else if (SomebodyWaits(server->pid))
		manager = _("a process that has started it waits for its end, as the first one of a container does");
	else if (our_unit != NULL && (unit == NULL || strcmp(unit, our_unit) != 0) && UnitKillsAll(our_unit))
		manager = psprintf(_("the new one would be in unit \"%s\" of systemd, and end with that"), our_unit);
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
	RefuseFewerGroups(server->pid);
	command = ReadProc(server->pid, "cmdline", &len);
	if (command == NULL || len == 0)
		pg_fatal("could not read the command line of the server with PID %d", server->pid);
	server->argv = SplitStrings(command, len, &n);
	server->argv[0] = program;
	FixArguments(server, restart->options->config_file, n);
	server->envp = EnvironmentOf(server->pid, server->pgdata);
	RehearseStart(server, n);
}
