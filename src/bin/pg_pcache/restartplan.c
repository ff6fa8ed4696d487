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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/query_utils.h"
#include "restart.h"

/* What a process may have of each, at most. */
#define MAX_PROC_SIZE	(2 * 1024 * 1024)

/* How much memory is touched to see how fast it is. */
#define PROBE_SIZE		(64 * 1024 * 1024)

/*
 * What a start takes beside the memory, and what it touches of it: buffer headers, mapping
 * table and locks are not much more than that share of shared_buffers.
 */
#define LAUNCH_MS		80.0
#define LAUNCH_SHARE	0.03

/* Patroni keeps this in the data directory. */
#define PATRONI_FILE	"patroni.dynamic.json"

/* The whole of a file in /proc, with a NUL behind it; NULL if it cannot be read. */
static char *
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
 * that one start is not for another one.
 */
static char **
EnvironmentOf(int pid)
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
		if (strncmp(variables[i], "PG_GRANDPARENT_PID=", 19) != 0)
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

/* Run a program, without a shell, and return the first line that it prints, or NULL. */
static char *
FirstLineOf(char *const argv[])
{
	int			fds[2];
	pid_t		pid;
	FILE	   *file;
	char	   *line;
	int			status;

	fflush(NULL);
	if (pipe2(fds, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	pid = fork();
	if (pid < 0)
		pg_fatal("could not fork: %m");
	if (pid == 0)
	{
		int			null = open("/dev/null", O_RDWR);

		if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
			dup2(fds[1], STDOUT_FILENO) < 0)
			_exit(127);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	file = fdopen(fds[0], "r");
	if (file == NULL)
		pg_fatal("could not open pipe: %m");
	line = pg_get_line(file, NULL);
	fclose(file);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (line == NULL || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return NULL;
	(void) pg_strip_crlf(line);
	return line;
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
	if (manager == NULL)
		return;
	pg_log_error("the server cannot be restarted by %s itself: %s", "pg_pcache", manager);
	pg_log_error_hint("Say how it is restarted: --command='%s'", command);
	exit(EXIT_ERROR);
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
	size_t		len = 0;
	char	   *status = ReadProc(pid, "status", &len);
	char	   *line = status != NULL ? strstr(status, "\nHugetlbPages:") : NULL;

	return line != NULL && strtoul(line + strlen("\nHugetlbPages:"), NULL, 10) > 0;
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

	/*
	 * a name in /proc is of another process once the server has ended, and
	 * this is not
	 */
	server->pidfd = syscall(SYS_pidfd_open, server->pid, 0);
	if (server->pidfd < 0 && errno != ENOSYS)
		pg_fatal("could not watch the server with PID %d: %m", server->pid);
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
	server->envp = EnvironmentOf(server->pid);
}

/* How long does it take to touch memory, and to give it back?  Per byte. */
static void
ProbeMemory(double *touch, double *release)
{
	double		begin = NowMs();
	double		touched;
	char	   *memory = mmap(NULL, PROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*touch = *release = 0;
	if (memory == MAP_FAILED)
		return;
	for (size_t i = 0; i < PROBE_SIZE; i += 4096)
		((volatile char *) memory)[i] = 1;
	touched = NowMs();
	munmap(memory, PROBE_SIZE);
	*touch = (touched - begin) / PROBE_SIZE;
	*release = (NowMs() - touched) / PROBE_SIZE;
}

/*
 * How long will clients wait, in milliseconds, beside the shutdown checkpoint?  This is what
 * the machine takes to give back the memory of the buffers, unless that is kept, and to make
 * that of their headers.
 */
double
EstimateOutage(const Restart *restart)
{
	PGresult   *res = executeQuery(restart->conn,
								   "SELECT setting::pg_catalog.float8 * pg_catalog.current_setting('block_size')::pg_catalog.int8 "
								   "FROM pg_catalog.pg_settings WHERE name = 'shared_buffers'", false);
	double		buffers = strtod(FirstValue(res), NULL);
	double		touch;
	double		release;

	PQclear(res);
	ProbeMemory(&touch, &release);
	return LAUNCH_MS + buffers * LAUNCH_SHARE * touch + (restart->server.ends_whole ? 0 : buffers * release);
}
