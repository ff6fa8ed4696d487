/*-------------------------------------------------------------------------
 *
 * setupapply.c
 *	  pg_pcache setup --apply: carry out the plan, or leave all as it was.
 *
 * Root writes the unit and has systemd mount.  The configuration is the server's user's, so a
 * child process that is that user writes there.  The server is restarted last of all, and
 * if it does not come up, everything is taken back, and it is started as it was before.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupapply.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "setup.h"

/* What was found to speak against the plan, on the standard error stream. */
void
LogSetupNotes(const SetupPlan *plan)
{
	fflush(stdout);
	for (int i = 0; i < plan->n_notes; i++)
	{
		const SetupNote *note = &plan->notes[i];
		enum pg_log_level level = note->refused ? PG_LOG_ERROR : PG_LOG_WARNING;

		pg_log_generic(level, PG_LOG_PRIMARY, "%s", note->message);
		if (note->hint != NULL)
			pg_log_generic(level, PG_LOG_HINT, "%s", note->hint);
	}
}

typedef struct ConfArguments
{
	const SetupFacts *facts;
	const char *text;
} ConfArguments;

/* By the server's user: write the file in conf.d. */
static int
WriteConf(void *arg)
{
	const ConfArguments *conf = arg;
	char	   *directory = SetupConfDir(conf->facts);
	int			fd;

	if (mkdir(directory, 0755) < 0 && errno != EEXIST)
		pg_fatal("could not create directory \"%s\": %m", directory);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		pg_fatal("could not open directory \"%s\": %m", directory);
	return ReplaceFile(fd, directory, SETUP_CONF_FILE, conf->text) ? 0 : EXIT_ERROR;
}

/*
 * Have the file in conf.d contain the text, or remove it with "".  Returns false after a
 * message, and then the file may have been written nevertheless.
 */
static bool
HaveConf(const SetupFacts *facts, const char *text)
{
	ConfArguments conf = {facts, text};

	return RunAsOwner(&facts->cluster, WriteConf, &conf) == 0;
}

/* What was done, to take it back. */
typedef struct Done
{
	SetupFacts *facts;
	SetupFacts	before;
	int			units_fd;		/* directory of units */
	bool		unit;
	bool		enabled;
	bool		mounted;
	bool		conf;
} Done;

/* Run systemctl, whose errors are shown.  Returns whether it has succeeded. */
static bool
Systemctl(const char *verb, const char *unit)
{
	pid_t		pid = ForkChild();

	if (pid == 0)
	{
		/* what it says of its success is not for our output */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execlp("systemctl", "systemctl", "--quiet", "--no-ask-password", verb, unit, (char *) NULL);
		pg_log_error("could not execute \"%s\": %m", "systemctl");
		_exit(127);
	}
	return WaitForChild(pid) == 0;
}

/* Take back what was done, last things first.  What cannot be taken back is named. */
static void
TakeBack(Done *done)
{
	const SetupFacts *facts = done->facts;
	bool		all = true;

	if (done->conf && !HaveConf(facts, done->before.server.conf_text))
	{
		pg_log_error("could not put back \"%s\"", SetupConfFile(facts));
		all = false;
	}
	if (done->mounted && !Systemctl("stop", facts->unit))
	{
		pg_log_error("could not unmount \"%s\"", facts->mount_point);
		all = false;
	}
	if (done->enabled && !Systemctl("disable", facts->unit))
	{
		pg_log_error("could not disable unit \"%s\"", facts->unit);
		all = false;
	}
	if (done->unit)
	{
		all &= ReplaceFile(done->units_fd, SETUP_UNITS, facts->unit, done->before.machine.unit_text);
		(void) Systemctl("daemon-reload", NULL);
	}
	if (all)
		pg_log_error_detail("What had been done before was taken back.");
}

/* The mount and its unit. */
static bool
ApplyMount(const SetupPlan *plan, Done *done)
{
	SetupFacts *facts = done->facts;
	PCacheError err;
	uid_t		root = 0;

	if (!plan->write_unit && !plan->enable && !plan->mount && !plan->remount)
		return true;
	done->units_fd = OpenTrustedDirectory(SETUP_UNITS, &root, &err);
	if (done->units_fd < 0)
	{
		pg_log_error("%s", err.message);
		return false;
	}
	if (plan->write_unit)
	{
		done->unit = true;
		if (!ReplaceFile(done->units_fd, SETUP_UNITS, facts->unit, plan->unit_text))
			return false;
		Text(_("wrote %s\n"), SetupUnitFile(facts));
	}
	if (!Systemctl("daemon-reload", NULL))
		return false;
	if (plan->enable)
	{
		done->enabled = true;
		if (!Systemctl("enable", facts->unit))
			return false;
		Text(_("enabled %s\n"), facts->unit);
	}
	if (plan->mount || plan->remount)
	{
		done->mounted = plan->mount;
		if (!Systemctl(plan->mount ? "start" : "reload", facts->unit))
		{
			pg_log_error("could not mount \"%s\"", facts->mount_point);
			pg_log_error_hint("\"journalctl -u '%s'\" has the reason.", facts->unit);
			return false;
		}
		Text(plan->mount ? _("mounted %s\n") : _("enlarged %s\n"), facts->mount_point);
	}
	LookAtMachine(facts);
	if (strcmp(facts->machine.mounted, plan->type) == 0 && facts->machine.mounted_well &&
		facts->machine.mounted_size >= plan->pool_size)
		return true;
	pg_log_error("what is mounted on \"%s\" is not what its unit says", facts->mount_point);
	return false;
}

/* The lines of the configuration, which have to have an effect then. */
static bool
ApplyConf(const PCacheOptions *options, const SetupPlan *plan, Done *done)
{
	SetupFacts *facts = done->facts;
	SetupPlan	now;

	done->conf = true;
	if (!HaveConf(facts, plan->conf_text) || !LookAtCluster(options, facts))
		return false;
	MakeSetupPlan(facts, &now);
	if (now.refused)
	{
		LogSetupNotes(&now);
		return false;
	}
	Text(_("wrote %s\n"), SetupConfFile(facts));
	return true;
}

/* Restart the server's unit.  Does a server run then? */
static bool
ComesUp(const PCacheOptions *options, SetupFacts *facts)
{
	return Systemctl("restart", facts->service) && LookAtCluster(options, facts) &&
		facts->server.server_pid != 0;
}

/*
 * Restart the server's unit.  Returns false if it does not come up, and then all was taken
 * back.  A server that is not the unit's is left to whoever has started it.
 */
static bool
RestartUnit(const PCacheOptions *options, Done *done, bool *restarted)
{
	SetupFacts *facts = done->facts;

	if (!Systemctl("is-active", facts->service))
	{
		pg_log_warning("the server runs, but not as unit \"%s\", and was not restarted", facts->service);
		pg_log_warning_hint("Restart it; the next start uses the pool.");
		return true;
	}
	Text(_("restarting %s\n"), facts->service);
	fflush(stdout);
	*restarted = true;
	if (ComesUp(options, facts))
		return true;
	pg_log_error("unit \"%s\" did not come up", facts->service);
	pg_log_error_hint("\"journalctl -u %s\" and the server's log have the reason.", facts->service);
	TakeBack(done);
	if (ComesUp(options, facts))
		pg_log_error_detail("The server runs again as before.");
	else
		pg_log_error("unit \"%s\" does not come up without the pool either", facts->service);
	return false;
}

/*
 * Carry out a plan that nothing speaks against.  Returns false if all was taken back.
 * facts->machine and facts->server are known again afterwards.
 */
bool
ApplySetup(const PCacheOptions *options, SetupFacts *facts, const SetupPlan *plan, bool *restarted)
{
	Done		done = {.facts = facts,.before = *facts,.units_fd = -1};

	/*
	 * what was begun is finished or taken back, also if the terminal goes
	 * away
	 */
	OnEndSignals(SIG_IGN);
	*restarted = false;
	if (!ApplyMount(plan, &done) || (plan->write_conf && !ApplyConf(options, plan, &done)))
	{
		TakeBack(&done);
		return false;
	}
	if (plan->restart && !options->no_restart && !RestartUnit(options, &done, restarted))
		return false;
	if (done.units_fd >= 0)
		close(done.units_fd);
	return true;
}
