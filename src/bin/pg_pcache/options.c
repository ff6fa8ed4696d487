/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The options of pg_pcache: which there are, and what they go with.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/options.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>

#include "fe_utils/option_utils.h"
#include "getopt_long.h"
#include "lib/stringinfo.h"
#include "options.h"

/* More threads than that do not make memory faster. */
#define MAX_JOBS	256

/* What getopt_long() returns for the table's first entry. */
#define FIRST_OPTION	(CHAR_MAX + 1)

/* That one takes clusters by their names only. */
#define VERBS_BUT_SETUP	(VERB_ALL & ~VERB_SETUP)

#define AT(member)	offsetof(PCacheOptions, member)

/*
 * In the order of the help, where neighbors with the same verbs have one heading.  An option
 * that means different things has several entries.
 */
const Option options_table[] = {
	{"pgdata", 'D', OPTION_STRING, AT(datadir), VERBS_BUT_SETUP,
	gettext_noop("  -D, --pgdata=DATADIR     data directory\n")},
	{"cluster", 0, OPTION_STRING, AT(cluster), VERB_ALL,
		gettext_noop("      --cluster=CLUSTER    cluster of Debian's packages, for example " PG_MAJORVERSION "/main, in\n"
					 "                           place of -D; root becomes its user\n")},
	{"config-file", 0, OPTION_STRING, AT(config_file), VERBS_BUT_SETUP,
		gettext_noop("      --config-file=FILE   main server configuration file, if it is not in\n"
					 "                           the data directory\n")},
	{"json", 0, OPTION_FLAG, AT(json), VERB_ALL,
	gettext_noop("      --json               print one JSON object, with sizes in bytes\n")},
	{"progress", 'P', OPTION_FLAG, AT(progress), VERB_ALL,
	gettext_noop("  -P, --progress           show progress information\n")},
	{"version", 'V', OPTION_FLAG, AT(version), VERB_ALL,
	gettext_noop("  -V, --version            output version information, then exit\n")},
	{"help", 0, OPTION_FLAG, AT(help), VERB_ALL,
	gettext_noop("  -?, --help               show this help, or that of a verb, then exit\n")},
	{"dry-run", 0, OPTION_FLAG, AT(dry_run), VERB_DROP | VERB_INIT | VERB_LOAD | VERB_REBUILD | VERB_RESTART | VERB_SAVE | VERB_SETUP,
	gettext_noop("      --dry-run            only tell what would be done\n")},
	{"directory", 0, OPTION_STRING, AT(directory), VERB_DROP,
		gettext_noop("      --directory=DIR      remove the pool there (default: by\n"
					 "                           " PCacheSetting("directory") ")\n")},
	{"force", 0, OPTION_FLAG, AT(force), VERB_DROP,
		gettext_noop("      --force              remove the pool even if it is not known to be\n"
					 "                           the cluster's\n")},
	{"directory", 0, OPTION_STRING, AT(directory), VERB_INIT,
		gettext_noop("      --directory=DIR      create the pool there (default: by\n"
					 "                           " PCacheSetting("directory") ")\n")},
	{"size", 0, OPTION_STRING, AT(size), VERB_INIT,
		gettext_noop("      --size=SIZE          how much data to cache at most, in kB, MB, GB or TB\n"
					 "                           (default: by " PCacheSetting("size") ", or\n"
					 "                           shared_buffers if that is larger)\n")},
	{"force", 0, OPTION_FLAG, AT(force), VERB_INIT,
	gettext_noop("      --force              replace the pool that there is\n")},
	{"dirty-limit", 0, OPTION_STRING, AT(dirty_limit), VERB_PREPARE | VERB_RESTART,
		gettext_noop("      --dirty-limit=SIZE   make another checkpoint as long as one has written more\n"
					 "                           than that, three at most (default: 64MB)\n")},
	{"allow-cold", 0, OPTION_FLAG, AT(allow_cold), VERB_RESTART,
	gettext_noop("      --allow-cold         restart the server even if it will start cold\n")},
	{"command", 0, OPTION_STRING, AT(command), VERB_RESTART,
		gettext_noop("      --command=COMMAND    restart the server with this shell command (default: as\n"
					 "                           \"pg_ctl restart\" does)\n")},
	{"drain-timeout", 0, OPTION_STRING, AT(drain_timeout), VERB_RESTART,
		gettext_noop("      --drain-timeout=TIME wait that long for transactions of paused poolers\n"
					 "                           (default: 5s)\n")},
	{"force", 0, OPTION_FLAG, AT(force), VERB_RESTART,
		gettext_noop("      --force              restart the server even if that ends a backup, or if\n"
					 "                           poolers would not find it again\n")},
	{"max-pause", 0, OPTION_STRING, AT(max_pause), VERB_RESTART,
	gettext_noop("      --max-pause=TIME     do not restart if clients would wait longer than that\n")},
	{"on-failure", 0, OPTION_STRING, AT(on_failure), VERB_RESTART,
		gettext_noop("      --on-failure=resume|pause\n"
					 "                           if the server does not come up, let the clients of the\n"
					 "                           poolers go on, or keep them (default: resume)\n"), "pgbouncer"},
	{"pgbouncer", 0, OPTION_LIST, AT(pgbouncers), VERB_RESTART,
	gettext_noop("      --pgbouncer=CONNSTR  pause this PgBouncer meanwhile; may be repeated\n")},
	{"from", 0, OPTION_STRING, AT(from), VERB_LOAD,
		gettext_noop("      --from=FILE          load that image (default: the data directory's name\n"
					 "                           with .pcache-image appended)\n")},
	{"keep", 0, OPTION_FLAG, AT(keep), VERB_LOAD,
	gettext_noop("      --keep               do not remove the image when it is loaded\n")},
	{"jobs", 'j', OPTION_JOBS, AT(jobs), VERB_LOAD | VERB_SAVE,
	gettext_noop("  -j, --jobs=NUM           use this many threads (default: 1)\n")},
	{"to", 0, OPTION_STRING, AT(to), VERB_SAVE,
		gettext_noop("      --to=FILE            write the image there (default: the data directory's\n"
					 "                           name with .pcache-image appended)\n")},
	{"compress", 0, OPTION_STRING, AT(compress), VERB_SAVE,
	gettext_noop("      --compress=METHOD    compress with lz4, zstd or none (default: none)\n")},
	{"if-host-stops", 0, OPTION_FLAG, AT(if_host_stops), VERB_SAVE,
	gettext_noop("      --if-host-stops      do nothing unless the host is going down\n")},
	{"apply", 0, OPTION_FLAG, AT(apply), VERB_SETUP,
	gettext_noop("      --apply              make the changes, instead of printing them; for root only\n")},
	{"mode", 0, OPTION_STRING, AT(mode), VERB_SETUP,
		gettext_noop("      --mode=MODE          planned_restart or always (default: as it is, or else\n"
					 "                           planned_restart)\n")},
	{"no-restart", 0, OPTION_FLAG, AT(no_restart), VERB_SETUP,
	gettext_noop("      --no-restart         with --apply: leave the restart to the administrator\n"), "apply"},
	{"directory", 0, OPTION_STRING, AT(directory), VERB_STATUS | VERB_VERIFY,
	gettext_noop("      --directory=DIR      look at the pool there\n")},
	{"pages", 0, OPTION_FLAG, AT(pages), VERB_VERIFY,
	gettext_noop("      --pages              compare pages with the data files, too\n")},
	{"dbname", 'd', OPTION_STRING, AT(params.dbname), VERBS_THAT_CONNECT,
	gettext_noop("  -d, --dbname=DBNAME      database to connect to (default: postgres)\n")},
	{"host", 'h', OPTION_STRING, AT(params.pghost), VERBS_THAT_CONNECT,
	gettext_noop("  -h, --host=HOSTNAME      database server host or socket directory\n")},
	{"port", 'p', OPTION_STRING, AT(params.pgport), VERBS_THAT_CONNECT,
	gettext_noop("  -p, --port=PORT          database server port\n")},
	{"username", 'U', OPTION_STRING, AT(params.pguser), VERBS_THAT_CONNECT,
	gettext_noop("  -U, --username=USERNAME  user name to connect as\n")},
	{"no-password", 'w', OPTION_NO, AT(params.prompt_password), VERBS_THAT_CONNECT,
	gettext_noop("  -w, --no-password        never prompt for password\n")},
	{"password", 'W', OPTION_YES, AT(params.prompt_password), VERBS_THAT_CONNECT,
	gettext_noop("  -W, --password           force password prompt\n")},
};
const int	num_options = lengthof(options_table);

const Verb	verbs_table[] = {
	{"check", VERB_CHECK, DoCheck,
		gettext_noop("  check                    tell whether a restart now would be warm, by the\n"
					 "                           configuration on disk; the server may run\n")},
	{"drop", VERB_DROP, DoDrop,
	gettext_noop("  drop                     remove the pool; the server must be down\n")},
	{"init", VERB_INIT, DoInit,
	gettext_noop("  init                     create the pool; the server must be down\n")},
	{"load", VERB_LOAD, DoLoad,
		gettext_noop("  load                     make a pool of an image of it; the server must be\n"
					 "                           down\n")},
	{"prepare", VERB_PREPARE, DoRestart,
		gettext_noop("  prepare                  tell whether a restart now would be warm, and make a\n"
					 "                           checkpoint, so that it takes less time\n")},
	{"rebuild", VERB_REBUILD, DoRebuild,
		gettext_noop("  rebuild                  clear bad blocks of the pool, keeping what is around;\n"
					 "                           the server must be down\n")},
	{"restart", VERB_RESTART, DoRestart,
		gettext_noop("  restart                  restart the server so that clients notice little of it:\n"
					 "                           check, checkpoint, pause poolers, stop, start, resume\n")},
	{"save", VERB_SAVE, DoSave,
		gettext_noop("  save                     write an image of the pool to disk, for a reboot of\n"
					 "                           the host; the server must be down\n")},
	{"setup", VERB_SETUP, DoSetup,
		gettext_noop("  setup [CLUSTER]          tell how to mount memory for the pool of a cluster of\n"
					 "                           Debian's packages and how to configure it, or do so\n")},
	{"status", VERB_STATUS, DoStatus,
	gettext_noop("  status                   show the state of the pool (default)\n")},
	{"verify", VERB_VERIFY, DoCheck,
		gettext_noop("  verify                   tell whether the next start will be warm, changing\n"
					 "                           nothing; the server must be down\n")},
};
const int	num_verbs = lengthof(verbs_table);

/* Where to look after an error of whoever calls. */
static char *
TryHelp(const PCacheOptions *options)
{
	return psprintf(_("Try \"%s --help\" for more information."), options->progname);
}

static const Verb *
FindVerb(const PCacheOptions *options, const char *name)
{
	for (int i = 0; i < num_verbs; i++)
	{
		if (strcmp(verbs_table[i].name, name) == 0)
			return &verbs_table[i];
	}
	Refuse(TryHelp(options), _("unrecognized verb \"%s\""), name);
}

/* The number of the first entry of an option, which stands for all of them. */
static int
FindOption(const char *name)
{
	int			number = 0;

	while (strcmp(options_table[number].name, name) != 0)
		number++;
	return number;
}

static void
SetOption(PCacheOptions *options, const Option *option, const char *value)
{
	char	   *member = (char *) options + option->offset;

	switch (option->kind)
	{
		case OPTION_FLAG:
			*(bool *) member = true;
			break;
		case OPTION_STRING:
			*(const char **) member = value;
			break;
		case OPTION_JOBS:
			if (!option_parse_int(value, "-j/--jobs", 1, MAX_JOBS, (int *) member))
				exit(EXIT_ERROR);
			break;
		case OPTION_LIST:
			simple_string_list_append((SimpleStringList *) member, value);
			break;
		case OPTION_YES:
			*(enum trivalue *) member = TRI_YES;
			break;
		case OPTION_NO:
			*(enum trivalue *) member = TRI_NO;
			break;
	}
}

/* The verbs that an option can be used with. */
static int
VerbsOf(const Option *option)
{
	int			verbs = 0;

	for (int i = 0; i < num_options; i++)
	{
		if (strcmp(options_table[i].name, option->name) == 0)
			verbs |= options_table[i].verbs;
	}
	return verbs;
}

/* The names of verbs, each between quotes, and with that word before the last one. */
char *
ListVerbs(int verbs, const char *quote, const char *before_last)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < num_verbs; i++)
	{
		if ((verbs & verbs_table[i].verb) == 0)
			continue;
		verbs &= ~verbs_table[i].verb;
		appendStringInfo(&list, "%s%s%s%s", list.len == 0 ? "" : verbs == 0 ? before_last : ", ",
						 quote, verbs_table[i].name, quote);
	}
	return list.data;
}

/* An option is for other verbs: name them. */
pg_noreturn static void
RefuseOption(const PCacheOptions *options, const Option *option)
{
	int			verbs = VerbsOf(option);

	if (verbs == VERBS_BUT_SETUP)
		Refuse(psprintf(_("Name the cluster as pg_lsclusters does, for example %s/main."), PG_MAJORVERSION),
			   _("option --%s cannot be used with \"%s\""), option->name, "setup");
	Refuse(TryHelp(options), _("option --%s can only be used with %s"), option->name,
		   ListVerbs(verbs, "\"", _(" or ")));
}

/* What the table does not say of options that do not go together, or of their values. */
static void
CheckValues(const PCacheOptions *options)
{
	if (options->cluster != NULL && options->datadir != NULL)
		pg_fatal("options %s and %s cannot be used together", "-D/--pgdata", "--cluster");
	if (options->apply && options->dry_run)
		pg_fatal("options %s and %s cannot be used together", "--apply", "--dry-run");
	if (options->mode != NULL && strcmp(options->mode, "planned_restart") != 0 &&
		strcmp(options->mode, "always") != 0)
		Refuse(psprintf(_("It is \"%s\" or \"%s\"."), "planned_restart", "always"),
			   _("invalid value \"%s\" for option %s"), options->mode, "--mode");
}

/* Give up if options that are given do not go with the verb, or with each other. */
static void
CheckOptions(const PCacheOptions *options, const bool *given)
{
	for (int i = 0; i < num_options; i++)
	{
		if (given[i] && (VerbsOf(&options_table[i]) & options->verb) == 0)
			RefuseOption(options, &options_table[i]);
	}
	CheckValues(options);
	for (int i = 0; i < num_options; i++)
	{
		const Option *option = &options_table[i];

		if (option->beside != NULL && (option->verbs & options->verb) != 0 &&
			given[FindOption(option->name)] && !given[FindOption(option->beside)])
			Refuse(TryHelp(options), _("option --%s can only be used together with --%s"),
				   option->name, option->beside);
	}
}

/*
 * Parse the command line; argv0 and progname are set.  Exits with a message if
 * it makes no sense, unless help or the version is asked for.
 */
void
ParseOptions(int argc, char *argv[], PCacheOptions *options)
{
	struct option long_options[lengthof(options_table) + 1] = {0};
	char		letters[2 * lengthof(options_table) + 1];
	bool		given[lengthof(options_table)] = {false};
	char	   *letter = letters;
	const Verb *verb;
	int			c;

	for (int i = 0; i < num_options; i++)
	{
		const Option *option = &options_table[i];
		bool		has_value = option->kind == OPTION_STRING ||
			option->kind == OPTION_JOBS || option->kind == OPTION_LIST;

		long_options[i].name = option->name;
		long_options[i].has_arg = has_value ? required_argument : no_argument;
		/* entries of one option share a value, or its beginning is ambiguous */
		long_options[i].val = FIRST_OPTION + FindOption(option->name);
		if (option->letter != 0)
			*letter++ = option->letter;
		if (option->letter != 0 && has_value)
			*letter++ = ':';
	}
	*letter = '\0';

	/* getopt_long() would take the short form for an error */
	for (int i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "-?") == 0)
			argv[i] = "--help";
	}
	while ((c = getopt_long(argc, argv, letters, long_options, NULL)) != -1)
	{
		const Option *option = NULL;

		for (int i = 0; i < num_options; i++)
		{
			if (c == FIRST_OPTION + i ||
				(options_table[i].letter != 0 && c == options_table[i].letter))
				option = &options_table[i];
		}
		/* getopt_long() has already emitted a complaint */
		if (option == NULL)
		{
			pg_log_error_hint("%s", TryHelp(options));
			exit(EXIT_ERROR);
		}
		SetOption(options, option, optarg);
		given[FindOption(option->name)] = true;
	}

	if (options->version || (options->help && optind >= argc))
		return;
	verb = FindVerb(options, optind < argc ? argv[optind++] : "status");
	options->verb = verb->verb;
	options->run = verb->run;
	if (options->help)
		return;
	if (options->verb == VERB_SETUP && optind < argc && options->cluster == NULL)
		options->cluster = argv[optind++];
	if (optind < argc)
		Refuse(TryHelp(options), _("too many command-line arguments (first is \"%s\")"), argv[optind]);
	CheckOptions(options, given);
}
