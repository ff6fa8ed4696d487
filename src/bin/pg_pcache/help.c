/*-------------------------------------------------------------------------
 *
 * help.c
 *	  What pg_pcache says of itself, as a whole and verb by verb.
 *
 * The texts of options and verbs are in the tables of options.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/help.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "options.h"

static void
ShowVerbHelp(const char *progname, int verb)
{
	for (int i = 0; i < num_verbs; i++)
	{
		if (verbs_table[i].verb != verb)
			continue;
		printf(_("Usage:\n"));
		printf(_("  %s [OPTION]... %s%s\n\n"), progname, verbs_table[i].name,
			   verb == VERB_SETUP ? " [CLUSTER]" : "");
		printf("%s", _(verbs_table[i].help));
	}
	printf(_("\nOptions:\n"));
	for (int i = 0; i < num_options; i++)
	{
		if ((options_table[i].verbs & verb) != 0)
			printf("%s", _(options_table[i].help));
	}
}

/* Print the help for a verb, or for all of them if that is 0. */
void
ShowHelp(const char *progname, int verb)
{
	int			heading = 0;

	if (verb != 0)
	{
		ShowVerbHelp(progname, verb);
		return;
	}

	printf(_("%s creates, repairs, examines, saves and drops the persistent cache of a\nPostgreSQL cluster.\n\n"), progname);
	printf(_("Usage:\n"));
	printf(_("  %s [OPTION]... [VERB]\n"), progname);
	printf(_("  %s VERB --help\n"), progname);
	printf(_("\nVerbs:\n"));
	for (int i = 0; i < num_verbs; i++)
		printf("%s", _(verbs_table[i].help));
	printf(_("\nOptions:\n"));
	for (int i = 0; i < num_options; i++)
	{
		const Option *option = &options_table[i];

		/* what one verb does not take is among those of all */
		if (option->verbs != heading && (option->verbs | VERB_SETUP) != VERB_ALL)
		{
			heading = option->verbs;
			printf(_("\nOptions for %s:\n"), ListVerbs(heading, "", _(" and ")));
		}
		printf("%s", _(option->help));
	}
	printf(_("\nDATADIR may also be a directory with the server's configuration.  If it is not\n"
			 "specified, the environment variable PGDATA is used, or else the only cluster of\n"
			 "version %s in /etc/postgresql.  Root has to specify the cluster with --cluster.\n"), PG_MAJORVERSION);
	printf(_("\nExit status:\n"));
	printf(_("  0  success; for check, load, prepare, rebuild and verify: the next start will\n"
			 "     be warm; for restart: the server has started warm\n"
			 "  1  an error, or refused; for check, load, rebuild and verify: the server would\n"
			 "     not start;\n"
			 "     for verify --pages: a page is impossible or unreadable,\n"
			 "     or its checksum in the file is wrong;\n"
			 "     for restart: the server was not restarted, and nothing has changed\n"
			 "  2  for check, load, prepare, rebuild and verify: the next start will be cold;\n"
			 "     for restart: the server has started, but not warm, or that is not known;\n"
			 "     for save: there is nothing to save; for setup --apply: the server was\n"
			 "     restarted and runs without the pool, or its next start will be cold\n"
			 "  3  for check, load, prepare, rebuild and verify: nothing speaks against a warm\n"
			 "     start, but the server's configuration could not be read;\n"
			 "     for restart: the server is down, or a pooler is still paused\n"));
	printf(_("\nReport bugs to the issue tracker of the persistent cache, which is not a part of\n"
			 "PostgreSQL.\n"));
}
