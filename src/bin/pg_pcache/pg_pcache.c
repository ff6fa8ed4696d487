/*-------------------------------------------------------------------------
 *
 * pg_pcache.c
 *	  Create, repair and look at the persistent cache of a cluster.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pg_pcache.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "common/logging.h"
#include "fe_utils/option_utils.h"
#include "getopt_long.h"
#include "pg_pcache.h"

/* Long options without a short form. */
enum
{
	OPT_CONFIG_FILE = 1,
	OPT_DIRECTORY,
	OPT_SIZE,
	OPT_DRY_RUN,
	OPT_FORCE,
	OPT_JSON,
	OPT_RESET,
	OPT_RESIZE,
	OPT_WARM_FROM_FILES,
	OPT_RELATIONS,
	OPT_PAGES,
	OPT_DEEP,
};

typedef struct Verb
{
	const char *name;
	int			(*function) (const PCacheOptions *options);
} Verb;

static const Verb verbs[] = {
	{"init", DoInit},
	{"rebuild", DoRebuild},
	{"status", DoStatus},
	{"verify", DoVerify},
};

/* More threads than that do not make memory faster. */
#define MAX_JOBS	256

static const char *progname;

static void
Usage(void)
{
	printf(_("%s creates, repairs and examines the persistent cache of a PostgreSQL database cluster.\n\n"), progname);
	printf(_("Usage:\n"));
	printf(_("  %s [OPTION]... [VERB]\n"), progname);
	printf(_("\nVerbs:\n"));
	printf(_("  init                     create the pool; the server must be down\n"));
	printf(_("  rebuild                  repair the pool in place, keeping what is sound; the\n"
			 "                           server must be down\n"));
	printf(_("  status                   show the state of the pool (default)\n"));
	printf(_("  verify                   tell whether the next start will be warm, changing\n"
			 "                           nothing; the server must be down\n"));
	printf(_("\nOptions:\n"));
	printf(_("  -D, --pgdata=DATADIR     data directory\n"));
	printf(_("      --config-file=FILE   main server configuration file, if it is not in\n"
			 "                           the data directory\n"));
	printf(_("      --json               print one JSON object\n"));
	printf(_("  -P, --progress           show progress information\n"));
	printf(_("  -u, --human              print sizes in human-readable units\n"));
	printf(_("  -V, --version            output version information, then exit\n"));
	printf(_("  -?, --help               show this help, then exit\n"));
	printf(_("\nOptions for init and rebuild:\n"));
	printf(_("      --dry-run            only tell what would be done\n"));
	printf(_("\nOptions for init:\n"));
	printf(_("      --directory=DIR      create the pool there, and make DATADIR/pg_pcache a\n"
			 "                           symbolic link to it (default: in DATADIR/pg_pcache)\n"));
	printf(_("      --size=SIZE          how much data to cache at most, in kB, MB, GB or TB\n"
			 "                           (default: the cluster's shared_buffers)\n"));
	printf(_("      --force              replace the pool that there is\n"));
	printf(_("\nOptions for rebuild:\n"));
	printf(_("      --reset              drop all pages\n"));
	printf(_("      --force              with --reset: also a pool that is not the cluster's\n"));
	printf(_("      --resize=SIZE        give the pool another size, keeping what fits\n"));
	printf(_("      --warm-from-files    fill the pool from the data files\n"));
	printf(_("      --relations=LIST     only from those of these relations\n"));
	printf(_("  -j, --jobs=NUM           use this many threads to fill the pool (default: 1)\n"));
	printf(_("\nOptions for status and verify:\n"));
	printf(_("      --directory=DIR      look at the pool there\n"));
	printf(_("\nOptions for verify:\n"));
	printf(_("      --pages              compare pages with the data files, too\n"));
	printf(_("      --deep               likewise, with a summary for each relation\n"));
	printf(_("\nOptions for status:\n"));
	printf(_("      --relations[=NUM]    list the relations with most pages (default: 10)\n"));
	printf(_("  -d, --dbname=DBNAME      database to connect to, to look up names\n"
			 "                           (default: postgres)\n"));
	printf(_("  -h, --host=HOSTNAME      database server host or socket directory\n"));
	printf(_("  -p, --port=PORT          database server port\n"));
	printf(_("  -U, --username=USERNAME  user name to connect as\n"));
	printf(_("  -w, --no-password        never prompt for password\n"));
	printf(_("  -W, --password           force password prompt\n"));
	printf(_("\nIf no data directory (DATADIR) is specified, "
			 "the environment variable PGDATA\nis used.\n"));
	printf(_("\nExit status:\n"));
	printf(_("  0  success; for verify and rebuild: the next start will be warm\n"
			 "  1  an error, or refused; for verify: there are pages that must not be there\n"
			 "  2  for verify and rebuild: the next start will be cold\n"
			 "  3  for verify and rebuild: nothing speaks against a warm start, but the\n"
			 "     server's configuration could not be read\n"));
	printf(_("\nReport bugs to <%s>.\n"), PACKAGE_BUGREPORT);
	printf(_("%s home page: <%s>\n"), PACKAGE_NAME, PACKAGE_URL);
}

pg_noreturn static void FailWithUsageHint(void);

static void
FailWithUsageHint(void)
{
	pg_log_error_hint("Try \"%s --help\" for more information.", progname);
	exit(EXIT_ERROR);
}

/* An option is for one verb, or for either of two. */
static void
OnlyWith(const Verb *verb, bool given, const char *option, const char *name,
		 const char *other_name)
{
	if (!given || strcmp(verb->name, name) == 0 ||
		(other_name != NULL && strcmp(verb->name, other_name) == 0))
		return;
	if (other_name == NULL)
		pg_log_error("option %s can only be used with \"%s\"", option, name);
	else
		pg_log_error("option %s can only be used with \"%s\" or \"%s\"",
					 option, name, other_name);
	FailWithUsageHint();
}

/* An option makes no sense without another one. */
static void
OnlyBeside(bool given, const char *option, bool other_given, const char *other)
{
	if (!given || other_given)
		return;
	pg_log_error("option %s can only be used together with %s", option, other);
	FailWithUsageHint();
}

/* --relations is a number for status, and a list for rebuild. */
static void
CheckRelations(const Verb *verb, const char *value)
{
	int			n;

	if (value == NULL)
		return;
	OnlyWith(verb, true, "--relations", "status", "rebuild");
	if (strcmp(verb->name, "rebuild") == 0)
	{
		if (value[0] != '\0')
			return;
		pg_log_error("option %s needs a list of relations", "--relations");
		pg_log_error_hint("Write it as --relations=LIST, in one word.");
		exit(EXIT_ERROR);
	}
	if (value[0] != '\0' &&
		!option_parse_int(value, "--relations", 1, INT_MAX, &n))
		exit(EXIT_ERROR);
}

/* Give up if options do not go with the verb, or with each other. */
static void
CheckOptions(const Verb *verb, const PCacheOptions *options)
{
	bool		rebuild = strcmp(verb->name, "rebuild") == 0;

	OnlyWith(verb, options->size != NULL, "--size", "init", NULL);
	OnlyWith(verb, options->dry_run, "--dry-run", "init", "rebuild");
	OnlyWith(verb, options->force, "--force", "init", "rebuild");
	OnlyWith(verb, options->reset, "--reset", "rebuild", NULL);
	OnlyWith(verb, options->resize != NULL, "--resize", "rebuild", NULL);
	OnlyWith(verb, options->warm_from_files, "--warm-from-files", "rebuild", NULL);
	OnlyWith(verb, options->jobs != 0, "--jobs", "rebuild", NULL);
	OnlyWith(verb, options->pages, "--pages", "verify", NULL);
	OnlyWith(verb, options->deep, "--deep", "verify", NULL);
	OnlyWith(verb, options->host != NULL, "--host", "status", NULL);
	OnlyWith(verb, options->port != NULL, "--port", "status", NULL);
	OnlyWith(verb, options->username != NULL, "--username", "status", NULL);
	OnlyWith(verb, options->dbname != NULL, "--dbname", "status", NULL);
	OnlyWith(verb, options->prompt_password == TRI_YES, "--password", "status", NULL);
	OnlyWith(verb, options->prompt_password == TRI_NO, "--no-password", "status", NULL);
	CheckRelations(verb, options->relations);
	if (rebuild && options->directory != NULL)
	{
		pg_log_error("option %s cannot be used with \"%s\"", "--directory", "rebuild");
		pg_log_error_hint("The pool is that of the data directory.");
		exit(EXIT_ERROR);
	}
	if (rebuild)
	{
		OnlyBeside(options->force, "--force", options->reset, "--reset");
		OnlyBeside(options->relations != NULL, "--relations",
				   options->warm_from_files, "--warm-from-files");
		OnlyBeside(options->jobs != 0, "--jobs",
				   options->warm_from_files, "--warm-from-files");
	}
	else if (strcmp(verb->name, "status") == 0)
	{
		bool		relations = options->relations != NULL;

		OnlyBeside(options->host != NULL, "--host", relations, "--relations");
		OnlyBeside(options->port != NULL, "--port", relations, "--relations");
		OnlyBeside(options->username != NULL, "--username", relations, "--relations");
		OnlyBeside(options->dbname != NULL, "--dbname", relations, "--relations");
	}
}

/*
 * The tool reads the pool by read(), but has to store to it through a mapping;
 * and a file that is cut off, or a block that goes bad, is no reason to dump
 * core.
 */
static void
DieOfBusError(SIGNAL_ARGS)
{
	static const char message[] =
		"pg_pcache: error: could not write persistent cache pool: memory error (SIGBUS)\n"
		"pg_pcache: hint: Are there new bad blocks?  Run \"pg_pcache rebuild\".\n";

	if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		_exit(EXIT_ERROR);
	_exit(EXIT_ERROR);
}

static const Verb *
FindVerb(const char *name)
{
	for (int i = 0; i < lengthof(verbs); i++)
	{
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	}
	pg_log_error("unrecognized verb \"%s\"", name);
	FailWithUsageHint();
}

/* Find the data directory, and go by its permissions from here on. */
static void
UseDataDirectory(PCacheOptions *options, const char *pgdata)
{
	char		resolved[PATH_MAX];
	struct stat st;

	if (pgdata == NULL || pgdata[0] == '\0')
	{
		pg_log_error("no data directory specified");
		FailWithUsageHint();
	}
	if (realpath(pgdata, resolved) == NULL)
		pg_fatal("could not access directory \"%s\": %m", pgdata);
	if (stat(resolved, &st) < 0)
		pg_fatal("could not stat \"%s\": %m", resolved);
	if (!S_ISDIR(st.st_mode))
		pg_fatal("\"%s\" is not a directory", pgdata);
	/* leave room for what is appended to it */
	if (strlen(resolved) >= MAXPGPATH - 64)
		pg_fatal("directory name \"%s\" is too long", resolved);
	strlcpy(options->pgdata, resolved, sizeof(options->pgdata));
	PCacheDirPgdata = options->pgdata;

	if (!GetDataDirectoryCreatePerm(options->pgdata))
		pg_fatal("could not read permissions of directory \"%s\": %m",
				 options->pgdata);
	umask(pg_mode_mask);
}

int
main(int argc, char *argv[])
{
	static struct option long_options[] = {
		{"pgdata", required_argument, NULL, 'D'},
		{"progress", no_argument, NULL, 'P'},
		{"human", no_argument, NULL, 'u'},
		{"config-file", required_argument, NULL, OPT_CONFIG_FILE},
		{"directory", required_argument, NULL, OPT_DIRECTORY},
		{"size", required_argument, NULL, OPT_SIZE},
		{"dry-run", no_argument, NULL, OPT_DRY_RUN},
		{"force", no_argument, NULL, OPT_FORCE},
		{"json", no_argument, NULL, OPT_JSON},
		{"reset", no_argument, NULL, OPT_RESET},
		{"resize", required_argument, NULL, OPT_RESIZE},
		{"warm-from-files", no_argument, NULL, OPT_WARM_FROM_FILES},
		{"relations", optional_argument, NULL, OPT_RELATIONS},
		{"jobs", required_argument, NULL, 'j'},
		{"pages", no_argument, NULL, OPT_PAGES},
		{"deep", no_argument, NULL, OPT_DEEP},
		{"host", required_argument, NULL, 'h'},
		{"port", required_argument, NULL, 'p'},
		{"username", required_argument, NULL, 'U'},
		{"dbname", required_argument, NULL, 'd'},
		{"no-password", no_argument, NULL, 'w'},
		{"password", no_argument, NULL, 'W'},
		{NULL, 0, NULL, 0}
	};

	PCacheOptions options = {0};
	const Verb *verb;
	const char *pgdata = getenv("PGDATA");
	int			c;
	int			option_index;

	pg_logging_init(argv[0]);
	set_pglocale_pgservice(argv[0], PG_TEXTDOMAIN("pg_pcache"));
	/* sizes are read and printed the same in every locale */
	setlocale(LC_NUMERIC, "C");
	progname = get_progname(argv[0]);
	options.argv0 = argv[0];
	options.progname = progname;

	if (argc > 1)
	{
		if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0)
		{
			Usage();
			exit(0);
		}
		if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		{
			puts("pg_pcache (PostgreSQL) " PG_VERSION);
			exit(0);
		}
	}

	while ((c = getopt_long(argc, argv, "d:D:h:j:p:PuU:wW", long_options, &option_index)) != -1)
	{
		switch (c)
		{
			case 'D':
				pgdata = optarg;
				break;
			case 'P':
				options.progress = true;
				break;
			case 'u':
				options.human = true;
				break;
			case OPT_CONFIG_FILE:
				options.config_file = optarg;
				break;
			case OPT_DIRECTORY:
				options.directory = optarg;
				break;
			case OPT_SIZE:
				options.size = optarg;
				break;
			case OPT_DRY_RUN:
				options.dry_run = true;
				break;
			case OPT_FORCE:
				options.force = true;
				break;
			case OPT_JSON:
				options.json = true;
				break;
			case OPT_RESET:
				options.reset = true;
				break;
			case OPT_RESIZE:
				options.resize = optarg;
				break;
			case OPT_WARM_FROM_FILES:
				options.warm_from_files = true;
				break;
			case OPT_RELATIONS:
				options.relations = optarg != NULL ? optarg : "";
				break;
			case 'j':
				if (!option_parse_int(optarg, "-j/--jobs", 1, MAX_JOBS,
									  &options.jobs))
					exit(EXIT_ERROR);
				break;
			case OPT_PAGES:
				options.pages = true;
				break;
			case OPT_DEEP:
				options.deep = true;
				break;
			case 'h':
				options.host = optarg;
				break;
			case 'p':
				options.port = optarg;
				break;
			case 'U':
				options.username = optarg;
				break;
			case 'd':
				options.dbname = optarg;
				break;
			case 'w':
				options.prompt_password = TRI_NO;
				break;
			case 'W':
				options.prompt_password = TRI_YES;
				break;
			default:
				/* getopt_long already emitted a complaint */
				FailWithUsageHint();
		}
	}

	verb = FindVerb(optind < argc ? argv[optind++] : "status");
	if (optind < argc)
	{
		pg_log_error("too many command-line arguments (first is \"%s\")",
					 argv[optind]);
		FailWithUsageHint();
	}
	CheckOptions(verb, &options);

	/* Files of root in the data directory would keep the server down. */
	if (geteuid() == 0)
	{
		pg_log_error("cannot be executed by \"root\"");
		pg_log_error_hint("You must run %s as the PostgreSQL superuser.",
						  progname);
		exit(EXIT_ERROR);
	}

	pqsignal(SIGBUS, DieOfBusError);
	UseDataDirectory(&options, pgdata);
	return verb->function(&options);
}
