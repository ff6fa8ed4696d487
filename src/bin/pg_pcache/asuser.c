/*-------------------------------------------------------------------------
 *
 * asuser.c
 *	  Root becomes the server's user before it looks at what that user can write.
 *
 * A child process does so for good, and gets nothing of root's that another process of
 * that user could use against root: neither a terminal, of which the session's input
 * could be forged, nor input, descriptors, keys, or the environment.  Its output comes
 * through pipes, and commands nothing to root's terminal.  tools/ndctl-setup/lib/run-as
 * has the same rules for scripts.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/asuser.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/logging.h"
#include "debian.h"

static volatile sig_atomic_t child_pid = 0;

/* What root does for the child; and in the child, the process that does it, and how to ask it. */
static const char *root_command = NULL;
static pid_t root_pid = 0;
static int	root_fd = -1;

/* The child has a session of its own, so nobody else tells it to end. */
static void
PassOn(SIGNAL_ARGS)
{
	if (child_pid > 0)
		(void) kill(child_pid, postgres_signal_arg);
}

/* Keep the few variables that say how to speak to whoever looks on, and where programs are. */
static void
ReplaceEnvironment(const DebianCluster *cluster)
{
	static const char *const kept[] = {
		"PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM"
	};
	char	  **variables = pg_malloc_array(char *, lengthof(kept) + 4);
	int			n = 0;

	for (int i = 0; i < lengthof(kept); i++)
	{
		if (getenv(kept[i]) != NULL)
			variables[n++] = psprintf("%s=%s", kept[i], getenv(kept[i]));
	}
	variables[n++] = psprintf("HOME=%s", cluster->home);
	variables[n++] = psprintf("USER=%s", cluster->user);
	variables[n++] = psprintf("LOGNAME=%s", cluster->user);
	variables[n] = NULL;
	environ = variables;
}

/* Become the server's user for good, in a session of one's own. */
static void
BecomeOwner(const DebianCluster *cluster)
{
	int			null_fd;

	if (setsid() < 0)
		pg_fatal("could not create a session: %m");
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
		pg_fatal("could not open file \"%s\": %m", "/dev/null");
	/* a kernel without keys has none to hide */
	(void) syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	if (!CloseFiles(&root_fd, 1))
		pg_fatal("could not open directory \"%s\": %m", "/proc/self/fd");
	ReplaceEnvironment(cluster);
	if (initgroups(cluster->user, cluster->gid) < 0 ||
		setresgid(cluster->gid, cluster->gid, cluster->gid) < 0 ||
		setresuid(cluster->uid, cluster->uid, cluster->uid) < 0)
		pg_fatal("could not become user \"%s\": %m", cluster->user);
	if (getuid() != cluster->uid || geteuid() != cluster->uid || getegid() != cluster->gid ||
		cluster->uid == 0 || setuid(0) == 0)
		pg_fatal("could not become user \"%s\" for good", cluster->user);
	if (access(".", R_OK | X_OK) < 0 && chdir("/") < 0)
		pg_fatal("could not change directory to \"%s\": %m", "/");
}

/*
 * Fork a process that stays root, and does nothing but to run root's command once it is asked
 * to.  It has a session of its own, so that it goes on when we are interrupted, and root's
 * own standard error, so that nothing it starts keeps our pipe open.
 */
static void
KeepRootCommand(int err)
{
	int			fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	root_pid = ForkChild();
	if (root_pid == 0)
	{
		char		go;
		ssize_t		len;

		close(fds[1]);
		if (setsid() < 0 || dup2(err, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
			_exit(127);
		while ((len = read(fds[0], &go, 1)) < 0 && errno == EINTR)
			;
		if (len != 1)
			_exit(0);
		if (!CloseFiles(NULL, 0))
			pg_fatal("could not open directory \"%s\": %m", "/proc/self/fd");
		execl("/bin/sh", "sh", "-c", root_command, (char *) NULL);
		_exit(127);
	}
	close(fds[0]);
	root_fd = fds[1];
}

/* Have the next RunAsOwner() keep a process of root's for this command of root's. */
void
KeepForRoot(const char *command)
{
	root_command = command;
}

/*
 * In what RunAsOwner() runs: have root's command run.  Returns its PID, which is that of a
 * child, 0 if there is none, or -1 with errno.
 */
pid_t
StartRootCommand(void)
{
	if (root_fd < 0)
		return 0;
	return write(root_fd, "", 1) == 1 ? root_pid : -1;
}

/*
 * Take from a text what a terminal does not show but does, as to change its title or what is
 * pasted from it.  last is the byte before it: in UTF-8, 0xC2 begins such a character.
 */
void
TakeControls(char *text, size_t len, unsigned char *last)
{
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = text[i];

		if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7F || (*last == 0xC2 && c >= 0x80 && c < 0xA0))
			text[i] = '?';
		*last = c;
	}
}

/* Write what the child has written.  Returns false once there is no more. */
static bool
Forward(int from, int to, unsigned char *last)
{
	char		buf[8192];
	ssize_t		len = read(from, buf, sizeof(buf));

	if (len < 0 && errno == EINTR)
		return true;
	if (len > 0 && isatty(to))
		TakeControls(buf, len, last);
	for (ssize_t done = 0; done < len;)
	{
		ssize_t		written = write(to, buf + done, len - done);

		if (written < 0 && errno != EINTR)
			return false;
		done += Max(written, 0);
	}
	return len > 0;
}

/* Until the child has closed both. */
static void
ForwardAll(int out, int err)
{
	struct pollfd fds[2] = {{.fd = out,.events = POLLIN}, {.fd = err,.events = POLLIN}};
	unsigned char last[2] = {0, 0};

	while (fds[0].fd >= 0 || fds[1].fd >= 0)
	{
		if (poll(fds, 2, -1) < 0)
			continue;			/* a signal, which was passed on */
		for (int i = 0; i < 2; i++)
		{
			if (fds[i].fd < 0 || fds[i].revents == 0)
				continue;
			if (!Forward(fds[i].fd, i == 0 ? STDOUT_FILENO : STDERR_FILENO, &last[i]))
			{
				close(fds[i].fd);
				fds[i].fd = -1;
			}
		}
	}
}

/*
 * Have a child process that has become the cluster's user call run(arg), and return what
 * that returned, or EXIT_ERROR if the child ended otherwise.  What run() does to memory stays
 * in the child, which has none of our open files but 0, 1, 2 and the pipe to root's process.
 */
int
RunAsOwner(const DebianCluster *cluster, int (*run) (void *arg), void *arg)
{
	int			out[2];
	int			err[2];
	int			status;
	bool		to_terminal = isatty(STDOUT_FILENO);
	struct sigaction before[NUM_END_SIGNALS];
	pid_t		pid;
	int			own_err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	if (own_err < 0)
		pg_fatal("could not duplicate a file descriptor: %m");
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	for (int i = 0; i < NUM_END_SIGNALS; i++)
		(void) sigaction(end_signals[i], NULL, &before[i]);
	OnEndSignals(PassOn);
	child_pid = pid = ForkChild();
	if (pid == 0)
	{
		OnEndSignals(SIG_DFL);
		if (dup2(out[1], STDOUT_FILENO) < 0 || dup2(err[1], STDERR_FILENO) < 0)
			_exit(EXIT_ERROR);
		if (to_terminal)
			setvbuf(stdout, NULL, PG_IOLBF, 0);
		if (root_command != NULL)
			KeepRootCommand(own_err);
		close(own_err);
		BecomeOwner(cluster);
		exit(run(arg));
	}
	close(own_err);
	close(out[1]);
	close(err[1]);
	ForwardAll(out[0], err[0]);
	status = WaitForChild(pid);
	child_pid = 0;
	for (int i = 0; i < NUM_END_SIGNALS; i++)
		(void) sigaction(end_signals[i], &before[i], NULL);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	pg_log_error("%s", wait_result_to_str(status));
	return EXIT_ERROR;
}
