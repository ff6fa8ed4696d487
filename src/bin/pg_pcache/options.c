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

#include "common/logging.h"
#include "fe_utils/option_utils.h"
#include "getopt_long.h"
#include "lib/stringinfo.h"
#include "pg_pcache.h"

/* More threads than that do not make memory faster. */
#define MAX_JOBS	256

/* What getopt_long() returns for the table's first entry. */
#define FIRST_OPTION	(CHAR_MAX + 1)

typedef enum OptionKind
{
	OPTION_FLAG,				/* bool */
	OPTION_STRING,				/* const char * */
	OPTION_JOBS,				/* int */
	OPTION_LIST,				/* SimpleStringList; may be repeated */
	OPTION_YES,					/* enum trivalue */
	OPTION_NO,					/* likewise */
} OptionKind;

typedef struct Option
{
	const char *name;			/* without the dashes */
	char		letter;			/* short form, or 0 */
	OptionKind	kind;
	size_t		offset;			/* in PCacheOptions */
	int			verbs;			/* that it can be used with */
	const char *beside;			/* it makes no sense without that one ... */
	int			beside_for;		/* ... with these verbs */
} Option;

#define AT(member)	offsetof(PCacheOptions, member)

static const Option options_table[] = {
	{"pgdata", 'D', OPTION_STRING, AT(datadir), VERB_ALL},
	{"cluster", 0, OPTION_STRING, AT(cluster), VERB_ALL},
	{"config-file", 0, OPTION_STRING, AT(config_file), VERB_ALL},
	{"json", 0, OPTION_FLAG, AT(json), VERB_ALL},
	{"progress", 'P', OPTION_FLAG, AT(progress), VERB_ALL},
	{"help", 0, OPTION_FLAG, AT(help), VERB_ALL},
	{"dry-run", 0, OPTION_FLAG, AT(dry_run), VERB_DROP | VERB_INIT | VERB_LOAD | VERB_REBUILD | VERB_RESTART | VERB_SAVE | VERB_SETUP},
	{"force", 0, OPTION_FLAG, AT(force), VERB_DROP | VERB_INIT | VERB_REBUILD | VERB_RESTART, "reset", VERB_REBUILD},
	{"directory", 0, OPTION_STRING, AT(directory), VERB_DROP | VERB_INIT | VERB_STATUS | VERB_VERIFY},
	{"size", 0, OPTION_STRING, AT(size), VERB_INIT},
	{"reset", 0, OPTION_FLAG, AT(reset), VERB_REBUILD},
	{"jobs", 'j', OPTION_JOBS, AT(jobs), VERB_LOAD | VERB_SAVE},
	{"to", 0, OPTION_STRING, AT(to), VERB_SAVE},
	{"compress", 0, OPTION_STRING, AT(compress), VERB_SAVE},
	{"if-host-stops", 0, OPTION_FLAG, AT(if_host_stops), VERB_SAVE},
	{"from", 0, OPTION_STRING, AT(from), VERB_LOAD},
	{"keep", 0, OPTION_FLAG, AT(keep), VERB_LOAD},
	{"strict", 0, OPTION_FLAG, AT(strict), VERB_LOAD},
	{"apply", 0, OPTION_FLAG, AT(apply), VERB_SETUP},
	{"no-restart", 0, OPTION_FLAG, AT(no_restart), VERB_SETUP, "apply", VERB_SETUP},
	{"mode", 0, OPTION_STRING, AT(mode), VERB_SETUP},
	{"allow-cold", 0, OPTION_FLAG, AT(allow_cold), VERB_RESTART},
	{"command", 0, OPTION_STRING, AT(command), VERB_RESTART},
	{"dirty-limit", 0, OPTION_STRING, AT(dirty_limit), VERB_PREPARE | VERB_RESTART},
	{"drain-timeout", 0, OPTION_STRING, AT(drain_timeout), VERB_RESTART},
	{"max-pause", 0, OPTION_STRING, AT(max_pause), VERB_RESTART},
	{"on-failure", 0, OPTION_STRING, AT(on_failure), VERB_RESTART, "pgbouncer", VERB_RESTART},
	{"pgbouncer", 0, OPTION_LIST, AT(pgbouncers), VERB_RESTART},
	{"pages", 0, OPTION_FLAG, AT(pages), VERB_VERIFY},
	{"host", 'h', OPTION_STRING, AT(host), VERBS_THAT_CONNECT},
	{"port", 'p', OPTION_STRING, AT(port), VERBS_THAT_CONNECT},
	{"username", 'U', OPTION_STRING, AT(username), VERBS_THAT_CONNECT},
	{"dbname", 'd', OPTION_STRING, AT(dbname), VERBS_THAT_CONNECT},
	{"no-password", 'w', OPTION_NO, AT(prompt_password), VERBS_THAT_CONNECT},
	{"password", 'W', OPTION_YES, AT(prompt_password), VERBS_THAT_CONNECT},
};

static const struct
{
	const char *name;
	int			verb;
}			verb_names[] = {
	{"check", VERB_CHECK},
	{"drop", VERB_DROP},
	{"init", VERB_INIT},
	{"load", VERB_LOAD},
	{"prepare", VERB_PREPARE},
	{"rebuild", VERB_REBUILD},
	{"restart", VERB_RESTART},
	{"save", VERB_SAVE},
	{"setup", VERB_SETUP},
	{"status", VERB_STATUS},
	{"verify", VERB_VERIFY},
};

pg_noreturn static void FailWithHelp(const PCacheOptions *options);

static void
FailWithHelp(const PCacheOptions *options)
{
	pg_log_error_hint("Try \"%s --help\" for more information.",
					  options->progname);
	exit(EXIT_ERROR);
}

static int
FindVerb(const PCacheOptions *options, const char *name)
{
	for (int i = 0; i < lengthof(verb_names); i++)
	{
		if (strcmp(verb_names[i].name, name) == 0)
			return verb_names[i].verb;
	}
	pg_log_error("unrecognized verb \"%s\"", name);
	FailWithHelp(options);
}

static const Option *
FindOption(const char *name)
{
	for (int i = 0; i < lengthof(options_table); i++)
	{
		if (strcmp(options_table[i].name, name) == 0)
			return &options_table[i];
	}
	return NULL;
}

/* The verbs that an option can be used with; 0 if there is no such option. */
int
VerbsOfOption(const char *name)
{
	const Option *option = FindOption(name);

	return option != NULL ? option->verbs : 0;
}

const char *
VerbName(int verb)
{
	for (int i = 0; i < lengthof(verb_names); i++)
	{
		if (verb_names[i].verb == verb)
			return verb_names[i].name;
	}
	return "unknown";
}

static bool
IsGiven(const PCacheOptions *options, const Option *option)
{
	const char *member = (const char *) options + option->offset;

	switch (option->kind)
	{
		case OPTION_FLAG:
			return *(const bool *) member;
		case OPTION_STRING:
			return *(const char *const *) member != NULL;
		case OPTION_JOBS:
			return *(const int *) member != 0;
		case OPTION_LIST:
			return ((const SimpleStringList *) member)->head != NULL;
		case OPTION_YES:
			return *(const enum trivalue *) member == TRI_YES;
		case OPTION_NO:
			return *(const enum trivalue *) member == TRI_NO;
	}
	return false;
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

/* An option is for other verbs: name them. */
pg_noreturn static void
RefuseOption(const PCacheOptions *options, const Option *option)
{
	const char *names[lengthof(verb_names)];
	int			n = 0;
	StringInfoData list;

	if (strcmp(option->name, "directory") == 0)
		Refuse(_("The pool is that of the data directory."),
			   _("option %s cannot be used with \"%s\""), "--directory", VerbName(options->verb));
	for (int i = 0; i < lengthof(verb_names); i++)
	{
		if ((option->verbs & verb_names[i].verb) != 0)
			names[n++] = verb_names[i].name;
	}
	initStringInfo(&list);
	for (int i = 0; i < n; i++)
	{
		if (i > 0)
			appendStringInfoString(&list, i == n - 1 ? _(" or ") : ", ");
		appendStringInfo(&list, "\"%s\"", names[i]);
	}
	pg_log_error("option --%s can only be used with %s", option->name, list.data);
	FailWithHelp(options);
}

/* --cluster takes the place of -D, and setup knows nothing but clusters of packages. */
static void
CheckClusterOptions(const PCacheOptions *options)
{
	if (options->cluster != NULL && options->datadir != NULL)
		pg_fatal("options %s and %s cannot be used together", "-D/--pgdata", "--cluster");
	if (options->verb != VERB_SETUP)
		return;
	if (options->datadir != NULL || options->config_file != NULL)
		Refuse(psprintf(_("Name the cluster as pg_lsclusters does, for example %s/main."), PG_MAJORVERSION),
			   _("option %s cannot be used with \"%s\""),
			   options->datadir != NULL ? "-D/--pgdata" : "--config-file", "setup");
	if (options->apply && options->dry_run)
		pg_fatal("options %s and %s cannot be used together", "--apply", "--dry-run");
	if (options->mode != NULL && strcmp(options->mode, "planned_restart") != 0 &&
		strcmp(options->mode, "always") != 0)
		Refuse(psprintf(_("It is \"%s\" or \"%s\"."), "planned_restart", "always"),
			   _("invalid value \"%s\" for option %s"), options->mode, "--mode");
}

/* Give up if options do not go with the verb, or with each other. */
static void
CheckOptions(const PCacheOptions *options)
{
	for (int i = 0; i < lengthof(options_table); i++)
	{
		const Option *option = &options_table[i];

		if (IsGiven(options, option) && (option->verbs & options->verb) == 0)
			RefuseOption(options, option);
	}
	CheckClusterOptions(options);
	for (int i = 0; i < lengthof(options_table); i++)
	{
		const Option *option = &options_table[i];

		if (!IsGiven(options, option) || (option->beside_for & options->verb) == 0 ||
			IsGiven(options, FindOption(option->beside)))
			continue;
		pg_log_error("option --%s can only be used together with --%s",
					 option->name, option->beside);
		FailWithHelp(options);
	}
}

/*
 * Parse the command line; argv0 and progname are set.  Exits with a message if
 * it makes no sense, unless help is asked for.
 */
void
ParseOptions(int argc, char *argv[], PCacheOptions *options)
{
	struct option long_options[lengthof(options_table) + 1] = {0};
	char		letters[2 * lengthof(options_table) + 1];
	char	   *letter = letters;
	int			c;

	for (int i = 0; i < lengthof(options_table); i++)
	{
		const Option *option = &options_table[i];
		bool		has_value = option->kind == OPTION_STRING ||
			option->kind == OPTION_JOBS || option->kind == OPTION_LIST;

		long_options[i].name = option->name;
		long_options[i].has_arg = has_value ? required_argument : no_argument;
		long_options[i].val = FIRST_OPTION + i;
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

		for (int i = 0; i < lengthof(options_table); i++)
		{
			if (c == FIRST_OPTION + i ||
				(options_table[i].letter != 0 && c == options_table[i].letter))
				option = &options_table[i];
		}
		/* getopt_long() has already emitted a complaint */
		if (option == NULL)
			FailWithHelp(options);
		SetOption(options, option, optarg);
	}

	if (options->help)
	{
		options->verb = optind < argc ? FindVerb(options, argv[optind]) : 0;
		return;
	}
	options->verb = FindVerb(options, optind < argc ? argv[optind++] : "status");
	if (options->verb == VERB_SETUP && optind < argc && options->cluster == NULL)
		options->cluster = argv[optind++];
	if (optind < argc)
	{
		pg_log_error("too many command-line arguments (first is \"%s\")",
					 argv[optind]);
		FailWithHelp(options);
	}
	CheckOptions(options);
}
