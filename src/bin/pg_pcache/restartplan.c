/*-------------------------------------------------------------------------
 *
 * restartplan.c
 *	  How is the server started again, and how long will it take?
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/logging.h"
#include "restart.h"
#include "storage/pcache_pool.h"

/* What a process may have of each, at most. */
#define MAX_PROC_SIZE	(2 * 1024 * 1024)

/* The whole of a file in /proc, with a NUL behind it; NULL if it cannot be read. */
char *
ReadProc(int pid, const char *name, size_t *len)
{
	char		path[64];
	char	   *buf;
	int			fd;
	ssize_t		n;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	buf = pg_malloc(MAX_PROC_SIZE + 1);
	*len = 0;
	while (*len < MAX_PROC_SIZE && (n = read(fd, buf + *len, MAX_PROC_SIZE - *len)) > 0)
		*len += n;
	close(fd);
	buf[*len] = '\0';
	return buf;
}

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
	{
		pg_log_error("could not find the program that the server was started from, \"%s\": %m", path);
		pg_log_error_hint("Restart the server with --command.");
		exit(EXIT_ERROR);
	}
	return pg_strdup(path);
}

/* The version of that program, which must be one for the same data directory. */
static void
FindNextVersion(Restart *restart, const char *program)
{
	char	   *argv[] = {pg_strdup(program), "-V", NULL};
	static const char prefix[] = "postgres (PostgreSQL) ";
	char	   *line = FirstLineOf(argv);

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

/* An argument that was relative to a directory that nobody knows any more. */
static void
FixDataDirectory(RestartServer *server, int n)
{
	for (int i = 1; i < n; i++)
	{
		char	   *argument = server->argv[i];

		if (strcmp(argument, "-D") == 0 && i + 1 < n && !is_absolute_path(server->argv[i + 1]))
			server->argv[i + 1] = pg_strdup(server->pgdata);
		else if (strncmp(argument, "-D", 2) == 0 && argument[2] != '\0' && !is_absolute_path(argument + 2))
			server->argv[i] = psprintf("-D%s", server->pgdata);
	}
}

/* Is the memory of the server in huge pages that the next one needs? */
static bool
HasHugePages(int pid)
{
	uint64		kb;

	return PCacheReadNumber(psprintf("/proc/%d/status", pid), "HugetlbPages:", &kb) && kb > 0;
}

/*
 * Hold on to the process, whose PID may be that of another one once it has ended.  Where the
 * kernel or a sandbox does not have that, the PID has to do.
 */
void
HoldServer(RestartServer *server)
{
	server->pidfd = syscall(SYS_pidfd_open, server->pid, 0);
	if (server->pidfd < 0 && errno == ESRCH)
		pg_fatal("the server with PID %d has just ended", server->pid);
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
	FixDataDirectory(server, n);
	server->envp = EnvironmentOf(server->pid, server->pgdata);
}
