/*-------------------------------------------------------------------------
 *
 * help.c
 *	  What pg_pcache says of itself, as a whole and verb by verb.
 *
 * The text of an option is here, and which verbs it goes with is in options.c.
 * Where an option means different things it has several lines, each with the
 * verbs that it speaks of.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/help.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "lib/stringinfo.h"
#include "pg_pcache.h"

typedef struct HelpLine
{
	const char *option;			/* long name; NULL if it goes with no verb */
	int			verbs;
	const char *text;
} HelpLine;

/* Lines next to each other with the same verbs have one heading. */
static const HelpLine help_lines[] = {
	{"pgdata", VERB_ALL,
	gettext_noop("  -D, --pgdata=DATADIR     data directory\n")},
	{"cluster", VERB_ALL,
		gettext_noop("      --cluster=CLUSTER    cluster of Debian's packages, for example " PG_MAJORVERSION "/main, in\n"
					 "                           place of -D; root becomes its user\n")},
	{"config-file", VERB_ALL,
		gettext_noop("      --config-file=FILE   main server configuration file, if it is not in\n"
					 "                           the data directory\n")},
	{"json", VERB_ALL,
	gettext_noop("      --json               print one JSON object, with sizes in bytes\n")},
	{"progress", VERB_ALL,
	gettext_noop("  -P, --progress           show progress information\n")},
	{NULL, VERB_ALL,
	gettext_noop("  -V, --version            output version information, then exit\n")},
	{"help", VERB_ALL,
	gettext_noop("  -?, --help               show this help, or that of a verb, then exit\n")},
	{"dry-run", VERB_DROP | VERB_INIT | VERB_LOAD | VERB_REBUILD | VERB_RESTART | VERB_SAVE | VERB_SETUP,
	gettext_noop("      --dry-run            only tell what would be done\n")},
	{"directory", VERB_DROP,
		gettext_noop("      --directory=DIR      remove the pool there (default: by\n"
					 "                           " PCacheSetting("directory") ")\n")},
	{"force", VERB_DROP,
		gettext_noop("      --force              remove the pool even if it is not known to be\n"
					 "                           the cluster's\n")},
	{"directory", VERB_INIT,
		gettext_noop("      --directory=DIR      create the pool there (default: by\n"
					 "                           " PCacheSetting("directory") ")\n")},
	{"size", VERB_INIT,
		gettext_noop("      --size=SIZE          how much data to cache at most, in kB, MB, GB or TB\n"
					 "                           (default: by " PCacheSetting("size") ", or\n"
					 "                           shared_buffers if that is larger)\n")},
	{"force", VERB_INIT,
	gettext_noop("      --force              replace the pool that there is\n")},
	{"reset", VERB_REBUILD,
	gettext_noop("      --reset              drop all pages\n")},
	{"force", VERB_REBUILD,
	gettext_noop("      --force              with --reset: also a pool that is not the cluster's\n")},
	{"dirty-limit", VERB_PREPARE | VERB_RESTART,
		gettext_noop("      --dirty-limit=SIZE   make another checkpoint as long as one has written more\n"
					 "                           than that, three at most (default: 64MB)\n")},
	{"allow-cold", VERB_RESTART,
	gettext_noop("      --allow-cold         restart the server even if it will start cold\n")},
	{"command", VERB_RESTART,
		gettext_noop("      --command=COMMAND    restart the server with this shell command (default: as\n"
					 "                           \"pg_ctl restart\" does)\n")},
	{"drain-timeout", VERB_RESTART,
		gettext_noop("      --drain-timeout=TIME wait that long for transactions of paused poolers\n"
					 "                           (default: 5s)\n")},
	{"force", VERB_RESTART,
		gettext_noop("      --force              restart the server even if that ends a backup, or if\n"
					 "                           poolers would not find it again\n")},
	{"max-pause", VERB_RESTART,
	gettext_noop("      --max-pause=TIME     do not restart if clients would wait longer than that\n")},
	{"on-failure", VERB_RESTART,
		gettext_noop("      --on-failure=resume|pause\n"
					 "                           if the server does not come up, let the clients of the\n"
					 "                           poolers go on, or keep them (default: resume)\n")},
	{"pgbouncer", VERB_RESTART,
	gettext_noop("      --pgbouncer=CONNSTR  pause this PgBouncer meanwhile; may be repeated\n")},
	{"from", VERB_LOAD,
		gettext_noop("      --from=FILE          load that image (default: the data directory's name\n"
					 "                           with .pcache-image appended)\n")},
	{"keep", VERB_LOAD,
	gettext_noop("      --keep               do not remove the image when it is loaded\n")},
	{"strict", VERB_LOAD,
	gettext_noop("      --strict             load nothing of an image that is damaged anywhere\n")},
	{"jobs", VERB_LOAD | VERB_SAVE,
	gettext_noop("  -j, --jobs=NUM           use this many threads (default: 1)\n")},
	{"to", VERB_SAVE,
		gettext_noop("      --to=FILE            write the image there (default: the data directory's\n"
					 "                           name with .pcache-image appended)\n")},
	{"compress", VERB_SAVE,
	gettext_noop("      --compress=METHOD    compress with lz4, zstd or none (default: none)\n")},
	{"if-host-stops", VERB_SAVE,
	gettext_noop("      --if-host-stops      do nothing unless the host is going down\n")},
	{"apply", VERB_SETUP,
	gettext_noop("      --apply              make the changes, instead of printing them; for root only\n")},
	{"mode", VERB_SETUP,
		gettext_noop("      --mode=MODE          planned_restart or always (default: as it is, or else\n"
					 "                           planned_restart)\n")},
	{"no-restart", VERB_SETUP,
	gettext_noop("      --no-restart         with --apply: leave the restart to the administrator\n")},
	{"directory", VERB_STATUS | VERB_VERIFY,
	gettext_noop("      --directory=DIR      look at the pool there\n")},
	{"pages", VERB_VERIFY,
	gettext_noop("      --pages              compare pages with the data files, too\n")},
	{"dbname", VERBS_THAT_CONNECT,
	gettext_noop("  -d, --dbname=DBNAME      database to connect to (default: postgres)\n")},
	{"host", VERBS_THAT_CONNECT,
	gettext_noop("  -h, --host=HOSTNAME      database server host or socket directory\n")},
	{"port", VERBS_THAT_CONNECT,
	gettext_noop("  -p, --port=PORT          database server port\n")},
	{"username", VERBS_THAT_CONNECT,
	gettext_noop("  -U, --username=USERNAME  user name to connect as\n")},
	{"no-password", VERBS_THAT_CONNECT,
	gettext_noop("  -w, --no-password        never prompt for password\n")},
	{"password", VERBS_THAT_CONNECT,
	gettext_noop("  -W, --password           force password prompt\n")},
};

static const struct
{
	int			verb;
	const char *text;
}			verb_lines[] = {

	{VERB_CHECK,
		gettext_noop("  check                    tell whether a restart now would be warm, by the\n"
					 "                           configuration on disk; the server may run\n")},
	{VERB_DROP,
	gettext_noop("  drop                     remove the pool; the server must be down\n")},
	{VERB_INIT,
	gettext_noop("  init                     create the pool; the server must be down\n")},
	{VERB_LOAD,
		gettext_noop("  load                     make a pool of an image of it; the server must be\n"
					 "                           down\n")},
	{VERB_PREPARE,
		gettext_noop("  prepare                  tell whether a restart now would be warm, and make a\n"
					 "                           checkpoint, so that it takes less time\n")},
	{VERB_REBUILD,
		gettext_noop("  rebuild                  repair the pool in place, keeping what is sound; the\n"
					 "                           server must be down\n")},
	{VERB_RESTART,
		gettext_noop("  restart                  restart the server so that clients notice little of it:\n"
					 "                           check, checkpoint, pause poolers, stop, start, resume\n")},
	{VERB_SAVE,
		gettext_noop("  save                     write an image of the pool to disk, for a reboot of\n"
					 "                           the host; the server must be down\n")},
	{VERB_SETUP,
		gettext_noop("  setup [CLUSTER]          tell how to mount memory for the pool of a cluster of\n"
					 "                           Debian's packages and how to configure it, or do so\n")},
	{VERB_STATUS,
	gettext_noop("  status                   show the state of the pool (default)\n")},
	{VERB_VERIFY,
		gettext_noop("  verify                   tell whether the next start will be warm, changing\n"
					 "                           nothing; the server must be down\n")},
};

/* For which verbs is this line to be shown? */
static int
VerbsOfLine(const HelpLine *line)
{
	return line->option == NULL ? line->verbs :
		line->verbs & VerbsOfOption(line->option);
}

static void
PrintHeading(int verbs)
{
	StringInfoData list;
	int			left = 0;

	if (verbs == VERB_ALL)
	{
		printf(_("\nOptions:\n"));
		return;
	}
	for (int i = 0; i < lengthof(verb_lines); i++)
		left += (verbs & verb_lines[i].verb) != 0;
	initStringInfo(&list);
	for (int i = 0; i < lengthof(verb_lines); i++)
	{
		if ((verbs & verb_lines[i].verb) == 0)
			continue;
		appendStringInfoString(&list, VerbName(verb_lines[i].verb));
		left--;
		if (left > 0)
			appendStringInfoString(&list, left == 1 ? _(" and ") : ", ");
	}
	printf(_("\nOptions for %s:\n"), list.data);
	pfree(list.data);
}

/* setup takes clusters by their names only, see CheckClusterOptions(). */
static bool
NamesDirectory(const char *option)
{
	return strcmp(option, "pgdata") == 0 || strcmp(option, "config-file") == 0;
}

static void
ShowVerbHelp(const char *progname, int verb)
{
	printf(_("Usage:\n"));
	printf(_("  %s [OPTION]... %s%s\n\n"), progname, VerbName(verb),
		   verb == VERB_SETUP ? " [CLUSTER]" : "");
	for (int i = 0; i < lengthof(verb_lines); i++)
	{
		if (verb_lines[i].verb == verb)
			printf("%s", _(verb_lines[i].text));
	}
	printf(_("\nOptions:\n"));
	for (int i = 0; i < lengthof(help_lines); i++)
	{
		if (help_lines[i].option != NULL &&
			(VerbsOfLine(&help_lines[i]) & verb) != 0 &&
			!(verb == VERB_SETUP && NamesDirectory(help_lines[i].option)))
			printf("%s", _(help_lines[i].text));
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
	for (int i = 0; i < lengthof(verb_lines); i++)
		printf("%s", _(verb_lines[i].text));
	for (int i = 0; i < lengthof(help_lines); i++)
	{
		int			verbs = VerbsOfLine(&help_lines[i]);

		if (verbs == 0)
			continue;
		if (verbs != heading)
			PrintHeading(verbs);
		heading = verbs;
		printf("%s", _(help_lines[i].text));
	}
	printf(_("\nDATADIR may also be a directory with the server's configuration.  If it is not\n"
			 "specified, the environment variable PGDATA is used, or else the only cluster of\n"
			 "version %s in /etc/postgresql.  Root has to specify the cluster with --cluster.\n"), PG_MAJORVERSION);
	printf(_("\nExit status:\n"));
	printf(_("  0  success; for check, load, prepare, rebuild and verify: the next start will\n"
			 "     be warm; for restart: the server has started warm\n"
			 "  1  an error, or refused; for check and verify: the server would not start;\n"
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
