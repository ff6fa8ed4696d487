/*-------------------------------------------------------------------------
 *
 * child.c
 *	  Processes that we start and wait for, and the signals that ask one to end.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/child.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/string.h"
#include "pg_pcache.h"

/* What somebody sends who wants a program to end. */
const int	end_signals[NUM_END_SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void
OnEndSignals(pqsigfunc handler)
{
	for (int i = 0; i < NUM_END_SIGNALS; i++)
		pqsignal(end_signals[i], handler);
}

/* Fork.  What is to be printed is not printed twice. */
pid_t
ForkChild(void)
{
	pid_t		pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		pg_fatal("could not fork: %m");
	return pid;
}

/* Wait for the end of a child.  Returns its status, or -1, after a message, if that is unknown. */
int
WaitForChild(pid_t pid)
{
	int			status;

	while (waitpid(pid, &status, 0) < 0)
	{
		if (errno == EINTR)
			continue;
		pg_log_error("could not wait for child process: %m");
		return -1;
	}
	return status;
}

/*
 * In a child: close all files that it has inherited, except 0, 1, 2 and these.  Returns false
 * if it cannot.
 */
bool
CloseFiles(const int *keep, int n)
{
	DIR		   *files = opendir("/proc/self/fd");
	struct dirent *entry;

	if (files == NULL)
		return false;
	while ((entry = readdir(files)) != NULL)
	{
		int			fd = atoi(entry->d_name);
		bool		kept = fd <= STDERR_FILENO || fd == dirfd(files);

		for (int i = 0; i < n; i++)
			kept |= fd == keep[i];
		if (!kept)
			close(fd);
	}
	closedir(files);
	return true;
}

/*
 * Run a program, without a shell, and return the first line that it prints, or NULL if it
 * fails.  envp and directory may be NULL for ours.
 */
char *
FirstLineOf(char *const argv[], char **envp, const char *directory)
{
	int			fds[2];
	pid_t		pid;
	FILE	   *file;
	char	   *line;

	if (pipe2(fds, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	pid = ForkChild();
	if (pid == 0)
	{
		int			null = open("/dev/null", O_RDONLY);

		if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0 ||
			(directory != NULL && chdir(directory) < 0))
			_exit(127);
		if (envp != NULL)
			environ = envp;
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	file = fdopen(fds[0], "r");
	if (file == NULL)
		pg_fatal("could not open pipe: %m");
	line = pg_get_line(file, NULL);
	fclose(file);
	if (WaitForChild(pid) != 0 || line == NULL)
		return NULL;
	(void) pg_strip_crlf(line);
	return line;
}
