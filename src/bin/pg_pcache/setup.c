/*-------------------------------------------------------------------------
 *
 * setup.c
 *	  pg_pcache setup: tell what is to be done so that a cluster of Debian's packages
 *	  has a pool, and with --apply do it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "common/logging.h"
#include "setup.h"

#define SYSTEMD_RUNS	"/run/systemd/system"

/* Print a text with each line indented. */
static void
Indented(const char *text)
{
	while (*text != '\0')
	{
		int			len = strcspn(text, "\n");

		if (len > 0)
			Text("    %.*s", len, text);
		Text("\n");
		text += len + (text[len] == '\n');
	}
}

static void
PrintFacts(const SetupFacts *facts, const SetupPlan *plan)
{
	const SetupMachine *machine = &facts->machine;
	const SetupCluster *server = &facts->server;

	PrintField("cluster", "cluster", AsString(psprintf("%s/%s", facts->cluster.version, facts->cluster.name)));
	PrintField("user", "user", AsString(facts->cluster.user));
	PrintField("service", "service", AsString(facts->service));
	PrintField("server running", "server_running", AsBoolean(server->server_pid != 0));
	PrintField("pool in use", "pool_in_use", AsBoolean(server->uses_pool));
	PrintField("library", "library", server->library_installed ? AsString(server->library) : Shown(AsString(NULL), _("not installed")));
	PrintField("shared buffers", "shared_buffers", AsBytes(server->shared_buffers * BLCKSZ));
	PrintField("pool size", "pool_size", AsBytes(plan->pool_size));
	PrintField("memory", "memory", AsBytes(machine->memory));
	PrintField("available memory", "available_memory", AsBytes(machine->available));
	PrintField("swap", "swap", AsBytes(machine->swap));
}

static void
PrintNotes(const SetupPlan *plan)
{
	OpenArray("notes");
	for (int i = 0; i < plan->n_notes; i++)
	{
		OpenObject(NULL);
		PrintField(NULL, "refused", AsBoolean(plan->notes[i].refused));
		PrintField(NULL, "code", AsString(plan->notes[i].code));
		PrintField(NULL, "message", AsString(plan->notes[i].message));
		PrintField(NULL, "hint", AsString(plan->notes[i].hint));
		CloseObject();
	}
	CloseArray();
}

/* A file of the plan; text shows what is in it if it is to be written. */
static void
PrintFile(const char *key, const char *path, const char *text, bool write, bool show)
{
	if (show && write)
	{
		Text(_("\nThis goes into %s:\n\n"), path);
		Indented(text);
	}
	OpenObject(key);
	PrintField(NULL, "path", AsString(path));
	PrintField(NULL, "text", AsString(text));
	PrintField(NULL, "write", AsBoolean(write));
	CloseObject();
}

/* What to do by hand, where --apply does nothing. */
static void
PrintCommands(const SetupFacts *facts, const SetupPlan *plan)
{
	if (SetupHasNothingToDo(plan))
	{
		Text(_("\nNothing is to be done.\n"));
		return;
	}
	Text(_("\nRoot does this, or runs the command with --apply:\n\n"));
	if (plan->write_unit || plan->enable || plan->mount)
		Text("    systemctl daemon-reload\n    systemctl enable --now '%s'\n", facts->unit);
	if (plan->remount)
		Text("    systemctl reload '%s'\n", facts->unit);
	if (plan->restart)
		Text("    systemctl restart %s\n", facts->service);
}

static void
PrintPlan(const SetupFacts *facts, const SetupPlan *plan, bool show)
{
	OpenObject("mount");
	PrintField(NULL, "mount_point", AsString(facts->mount_point));
	PrintField(NULL, "type", AsString(plan->type));
	PrintField(NULL, "options", AsString(plan->options));
	PrintField(NULL, "mounted", AsBoolean(!plan->mount));
	CloseObject();
	PrintFile("unit", SetupUnitFile(facts), plan->unit_text, plan->write_unit, show);
	PrintFile("configuration", SetupConfFile(facts), plan->conf_text, plan->write_conf, show);
	PrintField(NULL, "restart", AsBoolean(plan->restart));
	if (show)
		PrintCommands(facts, plan);
}

static void
PrintUndo(const SetupFacts *facts)
{
	Text(_("\nTo undo it, root runs this:\n\n"));
	Text("    rm %s\n", SetupConfFile(facts));
	Text("    systemctl restart %s\n", facts->service);
	Text("    systemctl disable --now '%s'\n", facts->unit);
	Text("    rm '%s'\n", SetupUnitFile(facts));
}

/* By the server's user: pg_pcache check, with its output only where there is no other. */
static int
Check(void *arg)
{
	PCacheOptions *options = arg;

	if (options->json && freopen("/dev/null", "w", stdout) == NULL)
		pg_fatal("could not open file \"%s\": %m", "/dev/null");
	options->verb = VERB_CHECK;
	options->json = false;
	LocateCluster(options);
	return DoCheck(options);
}

/* Carry out the plan, and see what has come of it.  Returns the exit status. */
static int
Apply(const PCacheOptions *options, SetupFacts *facts, const SetupPlan *plan)
{
	PCacheOptions copy = *options;
	bool		nothing = SetupHasNothingToDo(plan);
	bool		restarted;
	int			rc;

	Text("\n");
	if (nothing)
		Text(_("Nothing was to be done.\n"));
	if (!ApplySetup(options, facts, plan, &restarted))
		return EXIT_ERROR;
	if (facts->server.uses_pool && (restarted || !plan->restart))
	{
		rc = RunAsOwner(&facts->cluster, Check, &copy);
		if (rc == EXIT_ERROR)
			pg_log_error("the server uses the pool, but its next start could not be foretold");
	}
	else if (restarted)
	{
		pg_log_error("the server runs, but without the pool");
		pg_log_error_hint("Its log has the reason, in a line that begins with \"WARNING:  persistent cache\".");
		rc = EXIT_COLD;
	}
	else
	{
		Text(_("The next start of the server uses the pool.\n"));
		rc = 0;
	}
	PrintField(NULL, "restarted", AsBoolean(restarted));
	PrintField(NULL, "uses_pool", AsBoolean(facts->server.uses_pool));
	if (!nothing)
		PrintUndo(facts);
	return rc;
}

/* Can this be done here at all, and by us? */
static void
CheckApply(const PCacheOptions *options)
{
	if (!options->apply)
		return;
	if (geteuid() != 0)
		Refuse(psprintf(_("Without it, %s tells what root has to do."), options->progname),
			   _("option %s can only be used by root"), "--apply");
	if (access(SYSTEMD_RUNS, F_OK) < 0)
		pg_fatal("option %s needs systemd, which does not run here", "--apply");
}

int
DoSetup(const PCacheOptions *given)
{
	PCacheOptions copy = *given;
	PCacheOptions *options = &copy;
	SetupFacts *facts = pg_malloc0(sizeof(*facts));
	SetupPlan	plan;
	int			rc = 0;

	if (options->cluster == NULL)
		options->cluster = FindOnlyCluster();
	if (options->cluster == NULL)
		Refuse(psprintf(_("Name it as pg_lsclusters does, for example %s/main."), PG_MAJORVERSION),
			   _("no cluster specified"));
	FindNamedCluster(options, &facts->cluster);
	facts->mode = options->mode;
	LookAtMachine(facts);
	CheckApply(options);
	if (!LookAtCluster(options, facts))
		exit(EXIT_ERROR);
	MakeSetupPlan(facts, &plan);

	BeginOutput(options);
	PrintFacts(facts, &plan);
	PrintNotes(&plan);
	PrintPlan(facts, &plan, !options->apply && !plan.refused);
	LogSetupNotes(&plan);
	if (plan.refused)
		rc = EXIT_ERROR;
	else if (options->apply)
		rc = Apply(options, facts, &plan);
	EndOutput();
	return rc;
}
