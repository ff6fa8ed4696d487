/*-------------------------------------------------------------------------
 *
 * restartwatch.c
 *	  A process that lets the clients go on if we cannot.
 *
 * It is there from before the first PAUSE, in a session of its own, and does nothing as long as
 * we are there.  If we end before all is done, whatever the reason, it does the rest: once the
 * server has been told to stop it sees to it that a server runs again, and in any case it
 * resumes the poolers.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartwatch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "common/logging.h"
#include "restart.h"

/* How often to look at the server, and to try again with a pooler. */
#define LOOK_MS			2
#define RETRY_USEC		1000000L

static pid_t watch_pid = 0;
static int	watch_fd = -1;

/* See that a server runs, as far as we had come.  Returns false if none does in time. */
static bool
FinishRestart(const RestartServer *server, WatchState state)
{
	double		until;
	StartedServer started = {0};

	if (state == WATCH_STOPPING && server->command == NULL)
	{
		/* it may not have got the signal */
		StopServer(server);
		/* there is no way back, and nobody else who would start it */
		while (!HasStopped(server))
			(void) HasEnded(server, LOOK_MS);
		started.child = LaunchServer(server);
	}
	else if (state == WATCH_STOPPING)
		return true;			/* the command was not begun */
	for (until = NowMs() + server->timeout; NowMs() < until; pg_usleep(LOOK_MS * 1000L))
	{
		LookAtServer(server, &started);
		if (started.accepts)
			return true;
	}
	return false;
}

/*
 * Resume all poolers, each by a process of its own, for one that hangs must not keep the
 * others.  Each tries again until it has worked or has taken too long.
 */
static bool
ResumeAll(const Restart *restart)
{
	double		until = NowMs() + restart->server.timeout;
	bool		all = true;
	pid_t	   *pids = pg_malloc_array(pid_t, restart->n_poolers + 1);

	for (int i = 0; i < restart->n_poolers; i++)
	{
		pids[i] = fork();
		if (pids[i] < 0)
			all &= ResumeAnew(restart, &restart->poolers[i]);
		if (pids[i] != 0)
			continue;
		while (!ResumeAnew(restart, &restart->poolers[i]))
		{
			if (NowMs() > until)
				_exit(1);
			pg_usleep(RETRY_USEC);
		}
		_exit(0);
	}
	/* a server that was started here is a child as well, and goes on */
	for (int i = 0; i < restart->n_poolers; i++)
	{
		if (pids[i] >= 0)
			all &= WaitForChild(pids[i]) == 0;
	}
	return all;
}

/* Wait for what we are told, and do what is left. */
pg_noreturn static void
Watch(const Restart *restart, int fd)
{
	char		state = WATCH_NOTHING;
	ssize_t		n;
	bool		runs;

	do
		n = read(fd, &state, 1);
	while (n == 1 || (n < 0 && errno == EINTR));
	if (state == WATCH_DONE || state == WATCH_NOTHING)
		_exit(0);
	/* to resume is all that we were asked for */
	if (state == WATCH_RESUME)
		_exit(ResumeAll(restart) ? 0 : 1);
	pg_log_warning("%s has ended before the restart was done; another process finishes the restart", "pg_pcache");
	runs = state == WATCH_PAUSING || FinishRestart(&restart->server, state);
	if (!runs)
		pg_log_error("the server does not run");
	if (!runs && restart->stay_paused)
		_exit(1);
	if (restart->n_poolers > 0 && ResumeAll(restart))
		pg_log_info("the poolers were resumed");
	_exit(runs ? 0 : 1);
}

/* Begin to watch.  What we do from here on will be finished. */
void
BeginWatch(const Restart *restart)
{
	int			fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	watch_pid = ForkChild();
	if (watch_pid == 0)
	{
		int			null = open("/dev/null", O_RDWR);
		int			keep[] = {fds[0], restart->server.pidfd, restart->server.stderr_fd};

		setsid();
		OnEndSignals(SIG_IGN);
		pqsignal(SIGPIPE, SIG_IGN);
		if (null >= 0)
		{
			(void) dup2(null, STDIN_FILENO);
			(void) dup2(null, STDOUT_FILENO);
		}
		(void) CloseFiles(keep, lengthof(keep));
		Watch(restart, fds[0]);
	}
	close(fds[0]);
	watch_fd = fds[1];
}

/* Say how far we have come, before we go on. */
void
TellWatch(WatchState state)
{
	char		byte = state;

	if (watch_fd >= 0 && write(watch_fd, &byte, 1) != 1)
		pg_log_warning("could not write to the process that watches over the restart: %m");
}

/*
 * All is done, or the poolers are still to be resumed.  Returns whether that is done in the
 * end.
 */
bool
EndWatch(bool all_done)
{
	if (watch_fd < 0)
		return all_done;
	TellWatch(all_done ? WATCH_DONE : WATCH_RESUME);
	close(watch_fd);
	watch_fd = -1;
	return WaitForChild(watch_pid) == 0;
}
