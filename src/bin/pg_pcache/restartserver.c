/*-------------------------------------------------------------------------
 *
 * restartserver.c
 *	  The server's processes: stop it, start it again, and see at once when that is done.
 *
 * The process that restarts the server and the one that watches over it both do this, so
 * nothing here ends the program.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartserver.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/logging.h"
#include "debian.h"
#include "restart.h"
#include "utils/pidfile.h"

/* What a process may have of each, at most. */
#define MAX_PROC_SIZE	(2 * 1024 * 1024)

/* The whole of a file in /proc, with a NUL behind it, and its length; NULL if it cannot be read. */
char *
ReadProc(int pid, const char *name, size_t *len)
{
	char		path[64];
	char	   *buf;
	int			fd;
	ssize_t		n;
	size_t		total = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	buf = pg_malloc(MAX_PROC_SIZE + 1);
	while (total < MAX_PROC_SIZE && (n = read(fd, buf + total, MAX_PROC_SIZE - total)) > 0)
		total += n;
	close(fd);
	buf[total] = '\0';
	if (len != NULL)
		*len = total;
	return buf;
}

/* The parent of a process, or 0, and its session, or -1, as far as they are known. */
int
ParentOf(int pid, int *session)
{
	char	   *text = ReadProc(pid, "stat", NULL);
	char	   *end;
	int			parent;

	*session = -1;
	/* its name is its own to choose, and ends with the last parenthesis */
	end = text != NULL ? strrchr(text, ')') : NULL;
	return end != NULL && sscanf(end, ") %*c %d %*d %d", &parent, session) == 2 ? parent : 0;
}

/* The children of a process, the oldest first, with a blank after each; "" if that is unknown. */
char *
ChildrenOf(int pid)
{
	char	   *children = ReadProc(pid, psprintf("task/%d/children", pid), NULL);

	return children != NULL ? children : pg_strdup("");
}

/* The state of the cluster as pg_control has it; that of a new one if it cannot be read. */
DBState
StateOf(const RestartServer *server)
{
	DBState		state;
	char		path[MAXPGPATH];
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", server->pgdata, XLOG_CONTROL_FILE);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0 || pread(fd, &state, sizeof(state), offsetof(ControlFileData, state)) != sizeof(state))
		state = DB_STARTUP;
	if (fd >= 0)
		close(fd);
	return state;
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

/* Ask the server for a fast stop.  To ask again does no harm. */
void
StopServer(const RestartServer *server)
{
	int			rc = server->pidfd >= 0 ?
		syscall(SYS_pidfd_send_signal, server->pidfd, SIGINT, NULL, 0) : kill(server->pid, SIGINT);

	if (rc < 0 && errno != ESRCH)
		pg_log_error("could not send stop signal (PID: %d): %m", server->pid);
}

/* Has the process ended, or does it within that time? */
bool
HasEnded(const RestartServer *server, int timeout_ms)
{
	struct pollfd pollfd = {.fd = server->pidfd,.events = POLLIN};

	if (server->pidfd >= 0)
		return poll(&pollfd, 1, timeout_ms) > 0 && (pollfd.revents & POLLIN) != 0;
	if (kill(server->pid, 0) < 0 && errno == ESRCH)
		return true;
	if (timeout_ms > 0)
		pg_usleep(timeout_ms * 1000L);
	return false;
}

/* Has it been told to stop, by whomever? */
bool
IsStopping(const RestartServer *server)
{
	char	   *status = LockFileLine(server->pgdata, LOCK_FILE_LINE_PM_STATUS);
	bool		is_stopping = HasStopped(server) ||
		(status != NULL && strcmp(status, PM_STATUS_STOPPING) == 0);

	free(status);
	return is_stopping;
}

/* The PID in the lock file, or 0. */
static int
LockedBy(const RestartServer *server)
{
	char	   *line = LockFileLine(server->pgdata, LOCK_FILE_LINE_PID);
	int			pid = line != NULL ? atoi(line) : 0;

	free(line);
	return pid;
}

/*
 * Can the next server be started?  pg_ctl goes by the lock file as well.  What the system still
 * takes away from the old process costs only time then.
 */
bool
HasStopped(const RestartServer *server)
{
	return HasEnded(server, 0) ||
		(!server->ends_whole && LockedBy(server) != server->pid);
}

/* The state of a process that we have just begun. */
static void
BeginChild(bool for_server)
{
	/* whoever ends us with a key does not mean the server, or its restart */
	OnEndSignals(for_server ? SIG_DFL : SIG_IGN);
	pqsignal(SIGPIPE, SIG_DFL);
	pqsignal(SIGBUS, SIG_DFL);
	pqsignal(SIGXFSZ, SIG_DFL);
}

/* Start the server by ourselves.  Returns its PID, or 0 after a message. */
pid_t
LaunchServer(const RestartServer *server)
{
	pid_t		pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		pg_log_error("could not start server: %m");
	if (pid == 0)
	{
		int			null = open("/dev/null", O_RDWR);
		int			out = server->stderr_fd >= 0 ? server->stderr_fd : null;

		BeginChild(true);
		setsid();
		/* what is relative means the same as when this was tried */
		if (null < 0 || chdir(server->pgdata) < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
			dup2(out, STDERR_FILENO) < 0)
			_exit(127);
		execve(server->argv[0], server->argv, server->envp);
		/* it is the server's log that this goes to */
		pg_log_error("could not execute \"%s\": %m", server->argv[0]);
		_exit(127);
	}
	return Max(pid, 0);
}

/*
 * Run the user's command, which goes on if we end.  If root has given it, root runs it.
 * Returns its PID, or 0 after a message.
 */
pid_t
RunCommand(const RestartServer *server)
{
	pid_t		pid = StartRootCommand();

	if (pid > 0)
		return pid;
	fflush(NULL);
	if (pid == 0)
		pid = fork();
	if (pid < 0)
		pg_log_error("could not execute command \"%s\": %m", server->command);
	if (pid == 0)
	{
		BeginChild(false);

		/*
		 * our output may be read by a program, and a server must not keep it
		 * open
		 */
		if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			_exit(127);
		execl("/bin/sh", "sh", "-c", server->command, (char *) NULL);
		_exit(127);
	}
	return Max(pid, 0);
}

/*
 * See what has become of the start.  A standby that is not to answer queries is up when it
 * recovers.
 */
void
LookAtServer(const RestartServer *server, StartedServer *started)
{
	int			pid = LockedBy(server);
	char	   *status;
	int			child_status;

	if (started->child != 0 && waitpid(started->child, &child_status, WNOHANG) == started->child)
	{
		started->child = 0;
		started->child_status = child_status;
	}
	started->launched = started->accepts = false;
	started->pid = 0;
	if (pid <= 0 || (pid == server->pid && !HasEnded(server, 0)) ||
		(kill(pid, 0) < 0 && errno == ESRCH))
		return;
	started->pid = pid;
	/* it is padded with blanks, as the names are */
	status = LockFileLine(server->pgdata, LOCK_FILE_LINE_PM_STATUS);
	started->launched = status != NULL;
	started->accepts = status != NULL &&
		(strcmp(status, PM_STATUS_READY) == 0 || strcmp(status, PM_STATUS_STANDBY) == 0);
	free(status);
}
