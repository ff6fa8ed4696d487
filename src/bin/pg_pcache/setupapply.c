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

typedef struct ConfArguments
{
	PCacheOptions *options;
	const SetupFacts *facts;
	const char *text;
	bool		verify;			/* that it has an effect */
} ConfArguments;

/* Is it what the next start will have? */
static bool
HasEffect(PCacheOptions *options, const SetupFacts *facts, const char *text)
{
	Configuration conf;

	ReadConfiguration(options, &conf);
	return conf.preloaded && conf.mode != NULL &&
		strstr(text, psprintf("%s = %s\n", SetupSettingName(SETUP_MODE), conf.mode)) != NULL &&
		conf.directory != NULL && strcmp(conf.directory, facts->mount_point) == 0;
}

/* By the server's user: write the file in conf.d. */
static int
WriteConf(void *arg)
{
	ConfArguments *conf = arg;
	const SetupFacts *facts = conf->facts;
	char	   *directory = SetupConfDir(facts);
	PCacheError err;
	int			fd;

	if (mkdir(directory, 0755) < 0 && errno != EEXIST)
		pg_fatal("could not create directory \"%s\": %m", directory);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		pg_fatal("could not open directory \"%s\": %m", directory);
	if (!ReplaceFile(fd, SETUP_CONF_FILE, conf->text, &err))
		pg_fatal("%s, in directory \"%s\"", err.message, directory);
	if (!conf->verify)
		return 0;
	LocateCluster(conf->options);
	UseDataDirectory(conf->options);
	if (!HasEffect(conf->options, facts, conf->text))
	{
		pg_log_error("what \"%s\" sets has no effect, because it is set elsewhere", SetupConfFile(facts));
		pg_log_error_hint("The view pg_file_settings shows where, once that file is written by hand.");
		return EXIT_ERROR;
	}
	return 0;
}

/*
 * Have the file in conf.d contain the text, or remove it with "".  With verify, the server
 * is asked whether it has an effect.  Returns false after a message, and then the file may
 * have been written nevertheless.
 */
static bool
HaveConf(PCacheOptions *options, const SetupFacts *facts, const char *text, bool verify)
{
	PCacheOptions copy = *options;
	ConfArguments conf = {&copy, facts, text, verify};

	return RunAsOwner(&facts->cluster, WriteConf, &conf) == 0;
}

/* What was done, to take it back. */
typedef struct Done
{
	SetupFacts *facts;
	int			units_fd;		/* directory of units */
	bool		unit;
	char		old_unit[SETUP_MAX_FILE];
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
TakeBack(PCacheOptions *options, Done *done)
{
	const SetupFacts *facts = done->facts;
	bool		all = true;
	PCacheError err;

	if (done->conf && !HaveConf(options, facts, facts->server.conf_text, false))
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
		if (!ReplaceFile(done->units_fd, facts->unit, done->old_unit, &err))
		{
			pg_log_error("%s, in directory \"%s\"", err.message, SETUP_UNITS);
			all = false;
		}
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
		strlcpy(done->old_unit, facts->machine.unit_text, sizeof(done->old_unit));
		if (!ReplaceFile(done->units_fd, facts->unit, plan->unit_text, &err))
		{
			pg_log_error("%s, in directory \"%s\"", err.message, SETUP_UNITS);
			return false;
		}
		done->unit = true;
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

/*
 * Restart the server's unit.  Returns false if it does not come up, and then all was taken
 * back.  A server that is not the unit's is left to whoever has started it.
 */
static bool
RestartUnit(PCacheOptions *options, Done *done, bool *restarted)
{
	SetupFacts *facts = done->facts;
	SetupFacts	before = *facts;

	if (!Systemctl("is-active", facts->service))
	{
		pg_log_warning("the server runs, but not as unit \"%s\", and was not restarted", facts->service);
		pg_log_warning_hint("Restart it; the next start uses the pool.");
		return true;
	}
	Text(_("restarting %s\n"), facts->service);
	fflush(stdout);
	*restarted = true;
	if (Systemctl("restart", facts->service) && LookAtCluster(options, facts) &&
		facts->server.server_pid != 0)
		return true;
	*facts = before;
	pg_log_error("unit \"%s\" did not come up", facts->service);
	pg_log_error_hint("\"journalctl -u %s\" and the server's log have the reason.", facts->service);
	TakeBack(options, done);
	if (Systemctl("restart", facts->service) && LookAtCluster(options, facts) &&
		facts->server.server_pid != 0)
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
ApplySetup(PCacheOptions *options, SetupFacts *facts, const SetupPlan *plan, bool *restarted)
{
	Done		done = {.facts = facts,.units_fd = -1};

	/*
	 * what was begun is finished or taken back, also if the terminal goes
	 * away
	 */
	OnEndSignals(SIG_IGN);
	*restarted = false;
	if (!ApplyMount(plan, &done))
	{
		TakeBack(options, &done);
		return false;
	}
	if (plan->write_conf)
	{
		done.conf = true;
		if (!HaveConf(options, facts, plan->conf_text, true))
		{
			TakeBack(options, &done);
			return false;
		}
		Text(_("wrote %s\n"), SetupConfFile(facts));
	}
	if (plan->restart && !options->no_restart && !RestartUnit(options, &done, restarted))
		return false;
	if (done.units_fd >= 0)
		close(done.units_fd);
	return true;
}
