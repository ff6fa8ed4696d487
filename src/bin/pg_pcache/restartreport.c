/*-------------------------------------------------------------------------
 *
 * restartreport.c
 *	  How a restart was: the report of pg_pcache restart and prepare.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartreport.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "restart.h"

static const char *const phase_names[NUM_RESTART_PHASES] = {
	[PHASE_CHECK] = "check",
	[PHASE_CHECKPOINT] = "checkpoint",
	[PHASE_PAUSE] = "pause",
	[PHASE_STOP] = "stop",
	[PART_SESSIONS] = "sessions",
	[PART_CHECKPOINT] = "shutdown_checkpoint",
	[PART_EXIT] = "exit",
	[PHASE_START] = "start",
	[PART_LAUNCH] = "launch",
	[PART_ANSWER] = "answer",
	[PHASE_RESUME] = "resume",
};

static FieldValue
AsMilliseconds(double ms)
{
	const char *digits = psprintf("%.1f", ms);
	FieldValue	value = {psprintf("%s ms", digits), digits};

	return value;
}

/* What there may be, and null otherwise. */
static FieldValue
MaybeMilliseconds(double ms)
{
	return ms > 0 ? AsMilliseconds(ms) : AsString(NULL);
}

static void
PrintSettings(const Restart *restart)
{
	OpenArray("settings");
	for (int i = 0; i < PQntuples(restart->settings); i++)
	{
		const char *name = ColumnOf(restart->settings, i, "name");
		const char *now = ColumnOf(restart->settings, i, "now");
		const char *then = ColumnOf(restart->settings, i, "then");

		PrintField("setting", NULL,
				   AsString(psprintf(_("%s: %s, was %s"), name, then != NULL ? then : _("its default"), now)));
		OpenObject(NULL);
		PrintField(NULL, "name", AsString(name));
		PrintField(NULL, "now", AsString(now));
		PrintField(NULL, "then", AsString(then));
		CloseObject();
	}
	CloseArray();
}

/* One line of the text for each phase, with its parts and what there is to say of it. */
static void
PrintPhases(const Restart *restart)
{
	const double *phases = restart->phases;

	OpenObject("phases");
	for (int i = 0; i < NUM_RESTART_PHASES; i++)
	{
		bool		of_stop = i >= PART_SESSIONS && i <= PART_EXIT;
		bool		of_start = i >= PART_LAUNCH && i <= PART_ANSWER;
		double		ms = phases[i];

		/* a part may take less time than there is between two looks */
		bool		known = of_stop ? phases[PART_SESSIONS] > 0 : of_start ? phases[PART_LAUNCH] > 0 : ms > 0;
		FieldValue	value = known ? AsMilliseconds(ms) : AsString(NULL);

		if (i == PHASE_CHECKPOINT && ms > 0 && restart->checkpoints > 0)
			value.text = psprintf(ngettext("%s, %d checkpoint, the last of %llu buffers",
										   "%s, %d checkpoints, the last of %llu buffers", restart->checkpoints),
								  value.text, restart->checkpoints,
								  (unsigned long long) restart->checkpoint_buffers);
		if (i == PHASE_STOP && phases[PART_SESSIONS] > 0)
			value.text = psprintf(_("%s: sessions %.1f ms, checkpoint %.1f ms, exit %.1f ms"), value.text,
								  phases[PART_SESSIONS], phases[PART_CHECKPOINT], phases[PART_EXIT]);
		if (i == PHASE_START && phases[PART_LAUNCH] > 0)
			value.text = psprintf(_("%s: launch %.1f ms, answer %.1f ms"), value.text,
								  phases[PART_LAUNCH], phases[PART_ANSWER]);
		PrintField(of_stop || of_start ? NULL : phase_names[i], phase_names[i], value);
	}
	CloseObject();
	PrintField(NULL, "checkpoints", AsNumber(restart->checkpoints));
	PrintField(NULL, "checkpoint_buffers",
			   restart->checkpoints > 0 ? AsNumber(restart->checkpoint_buffers) : AsString(NULL));
}

static void
PrintPoolers(const Restart *restart)
{
	OpenArray("poolers");
	for (int i = 0; i < restart->n_poolers; i++)
	{
		const Pooler *pooler = &restart->poolers[i];

		PrintField("pooler", NULL, AsString(psprintf("%s, %s", pooler->name, pooler->version)));
		OpenObject(NULL);
		PrintField(NULL, "name", AsString(pooler->name));
		PrintField(NULL, "version", AsString(pooler->version));
		OpenArray("databases");
		for (int j = 0; j < restart->n_targets; j++)
		{
			if (restart->targets[j].pooler != pooler)
				continue;
			/* null stands for all */
			Element(AsString(restart->targets[j].database));
			PrintField("pooler's database", NULL, AsString(restart->targets[j].database));
		}
		CloseArray();
		CloseObject();
	}
	CloseArray();
}

/* How the server has started. */
static void
PrintStart(const Restart *restart)
{
	const char *text = restart->start;

	if (text != NULL && restart->kept >= 0)
		text = psprintf(ngettext("%s, %lld page kept", "%s, %lld pages kept", restart->kept),
						restart->start, (long long) restart->kept);
	else if (text != NULL && restart->start_detail != NULL)
		text = psprintf("%s: %s", restart->start, restart->start_detail);
	PrintField("last start", "last_start", Shown(AsString(restart->start), text));
	PrintField(NULL, "last_start_detail", AsString(restart->start_detail));
	PrintField(NULL, "kept", restart->kept >= 0 ? AsNumber(restart->kept) : AsString(NULL));
	PrintField("outage", "outage", MaybeMilliseconds(restart->outage));
	PrintField("clients waited", "clients_waited", MaybeMilliseconds(restart->paused));
	PrintField("server", "server_pid",
			   restart->new_pid != 0 ? Shown(AsNumber(restart->new_pid), psprintf("running (PID %d)", restart->new_pid)) :
			   AsString(NULL));
}

/* All that is known, in a dry run, after a restart and after one that has failed. */
void
PrintRestart(const Restart *restart)
{
	bool		done = restart->stop_at > 0;

	if (restart->options->dry_run)
		Text(_("Dry run: nothing was changed.\n\n"));
	PrintField(NULL, "dry_run", AsBoolean(restart->options->dry_run));
	/* how it was is said below */
	PrintVerdict(&restart->forecast, done ? NULL : _("if the server is shut down cleanly"));
	PrintField("version", "version",
			   Shown(AsString(restart->version_now), IsUpgrade(restart) ?
					 psprintf(_("%s, was %s"), restart->version_then, restart->version_now) : restart->version_now));
	PrintField(NULL, "version_then", AsString(restart->version_then));
	PrintSettings(restart);
	OpenArray("warnings");
	for (SimpleStringListCell *cell = restart->warnings.head; cell != NULL; cell = cell->next)
		Element(AsString(cell->val));
	CloseArray();
	PrintPoolers(restart);
	PrintPhases(restart);
	if (restart->options->verb != VERB_RESTART)
		return;
	PrintField("estimated outage", "estimated_outage",
			   Shown(AsMilliseconds(restart->estimate),
					 psprintf(restart->checkpoints > 0 ? "%.0f ms" : _("%.0f ms, and the shutdown checkpoint"),
							  restart->estimate)));
	PrintStart(restart);
}
