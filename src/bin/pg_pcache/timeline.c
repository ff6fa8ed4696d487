/*-------------------------------------------------------------------------
 *
 * timeline.c
 *	  Which timeline the next recovery will follow, and how far.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/timeline.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/archive.h"
#include "common/logging.h"
#include "pg_pcache.h"

/* Does a standby have a recovery target?  Unknown counts as yes. */
bool
HasRecoveryTarget(const PCacheOptions *options)
{
	char	   *values[PCACHE_N_RECOVERY_TARGETS];
	bool		has_target = false;

	ReadSettings(options, lengthof(values), PCacheRecoveryTargets, values);
	for (int i = 0; i < lengthof(values); i++)
	{
		has_target |= (values[i] == NULL || values[i][0] != '\0');
		free(values[i]);
	}
	return has_target;
}

/*
 * Run a command.  What it prints goes to stderr, since stdout is for what we
 * say, which may be JSON; and it reads nothing that is meant for us.
 */
static int
RunQuietly(const char *command)
{
	int			in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	int			out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	int			null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int			rc;

	fflush(NULL);
	if (out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
		dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		pg_fatal("could not redirect input and output of \"%s\": %m", "restore_command");
	rc = system(command);
	if (dup2(out, STDOUT_FILENO) < 0)
		pg_fatal("could not redirect input and output of \"%s\": %m", "restore_command");
	/* it may have been closed */
	if (in >= 0)
		(void) dup2(in, STDIN_FILENO);
	else
		close(STDIN_FILENO);
	close(in);
	close(out);
	close(null);
	return rc;
}

/*
 * Where the archive may put a file.  restore_command gets the name as it is, in
 * a shell.
 */
static const char *
TemporaryParent(void)
{
	const char *tmpdir = getenv("TMPDIR");
	static const char harmless[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";

	if (tmpdir != NULL && tmpdir[0] == '/' &&
		tmpdir[strspn(tmpdir, harmless)] == '\0')
		return tmpdir;
	return "/tmp";
}

/*
 * Can the archive restore this file?
 *
 * A command that is not there, or dies of a signal, is no answer: the server
 * would not start then.  verify says so; rebuild has other things to do.
 */
static bool
ArchiveHas(const PCacheOptions *options, const ControlFileData *control,
		   const char *restore_command, const char *name)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	char		restart_file[MAXFNAMELEN];
	char	   *command;
	int			rc;
	bool		restored;

	snprintf(directory, sizeof(directory), "%s/pg_pcache.XXXXXX", TemporaryParent());
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	/* for %r: the archive must keep all that it has */
	XLogFileName(restart_file, 0, 0, control->xlog_seg_size);
	/* exits if restore_command makes no sense, as the server's start does */
	command = BuildRestoreCommand(restore_command, path, name, restart_file);
	pg_free(command);

	if (mkdtemp(directory) == NULL)
		pg_fatal("could not create directory \"%s\": %m", directory);
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	command = BuildRestoreCommand(restore_command, path, name, restart_file);
	rc = RunQuietly(command);
	pg_free(command);
	restored = rc == 0 && access(path, F_OK) == 0;
	(void) unlink(path);
	if (rmdir(directory) < 0)
		pg_log_warning("could not remove directory \"%s\": %m", directory);

	if (wait_result_is_any_signal(rc, true))
	{
		/*
		 * The server would not start, which is what two verbs are asked.  And
		 * who interrupts the command means us as well.
		 */
		if ((options->verb & (VERB_CHECK | VERB_VERIFY)) != 0 || wait_result_is_signal(rc, SIGINT) ||
			wait_result_is_signal(rc, SIGQUIT) || wait_result_is_signal(rc, SIGTERM))
			pg_fatal("\"%s\" failed: %s", "restore_command", wait_result_to_str(rc));
		pg_log_warning("\"%s\" failed: %s", "restore_command", wait_result_to_str(rc));
	}
	return restored;
}

/*
 * Which timeline recovery will follow, as InitWalRecovery() finds out.
 *
 * Verbs that only look run restore_command if they are told to, and save never
 * does: the archive may not answer while the host goes down.  archive_decides is
 * set if the archive was not asked and may know of a newer timeline.
 */
uint32
RecoveryTimeline(const PCacheOptions *options, const ControlFileData *control,
				 bool archive_recovery, bool *archive_decides)
{
	bool		may_ask = options->restore_target_wal ||
		(options->verb & (VERB_LOAD | VERB_REBUILD)) != 0;
	uint32		timeline = Max(control->checkPointCopy.ThisTimeLineID,
							   control->minRecoveryPointTLI);
	static const char *const names[] = {"recovery_target_timeline", "restore_command"};
	char	   *values[lengthof(names)];
	const char *goal;

	if (!archive_recovery)
		return timeline;
	ReadSettings(options, lengthof(names), names, values);
	goal = values[0];
	if (goal == NULL || strcmp(goal, "latest") == 0)
	{
		/* as findNewestTimeLine(); it is what happens by default, too */
		const char *restore_command = values[1];
		bool		has_archive = restore_command != NULL && restore_command[0] != '\0';
		char		name[MAXFNAMELEN];

		for (;;)
		{
			TLHistoryFileName(name, timeline + 1);
			if (!FileExists(options->pgdata, psprintf(XLOGDIR "/%s", name)) &&
				!(has_archive && may_ask &&
				  ArchiveHas(options, control, restore_command, name)))
				break;
			timeline++;
		}
		*archive_decides = has_archive && !may_ask;
	}
	else if (strcmp(goal, "current") != 0)
		timeline = strtoul(goal, NULL, 0);
	free(values[0]);
	free(values[1]);
	return timeline;
}
