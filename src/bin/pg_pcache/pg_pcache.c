/*-------------------------------------------------------------------------
 *
 * pg_pcache.c
 *	  Create and look at the persistent cache of a cluster.
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
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "common/logging.h"
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
};

typedef struct Verb
{
	const char *name;
	int			(*function) (const PCacheOptions *options);
} Verb;

static const Verb verbs[] = {
	{"init", DoInit},
	{"status", DoStatus},
	{"verify", DoVerify},
};

static const char *progname;

static void
Usage(void)
{
	printf(_("%s creates and examines the persistent cache of a PostgreSQL database cluster.\n\n"), progname);
	printf(_("Usage:\n"));
	printf(_("  %s [OPTION]... [VERB]\n"), progname);
	printf(_("\nVerbs:\n"));
	printf(_("  init                     create the pool; the server must be down\n"));
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
	printf(_("\nOptions for init:\n"));
	printf(_("      --directory=DIR      create the pool there, and make DATADIR/pg_pcache a\n"
			 "                           symbolic link to it (default: in DATADIR/pg_pcache)\n"));
	printf(_("      --size=SIZE          how much data to cache at most, in kB, MB, GB or TB\n"
			 "                           (default: the cluster's shared_buffers)\n"));
	printf(_("      --dry-run            only tell what would be done\n"));
	printf(_("      --force              replace the pool that there is\n"));
	printf(_("\nOptions for status and verify:\n"));
	printf(_("      --directory=DIR      look at the pool there\n"));
	printf(_("\nIf no data directory (DATADIR) is specified, "
			 "the environment variable PGDATA\nis used.\n"));
	printf(_("\nExit status:\n"));
	printf(_("  0  success; for verify: the next start will be warm\n"
			 "  1  an error, or refused\n"
			 "  2  for verify: the next start will be cold\n"
			 "  3  for verify: nothing speaks against a warm start, but the server's\n"
			 "     configuration could not be read\n"));
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

static void
OnlyWith(const Verb *verb, bool given, const char *option, const char *name)
{
	if (given && strcmp(verb->name, name) != 0)
	{
		pg_log_error("option %s can only be used with \"%s\"", option, name);
		FailWithUsageHint();
	}
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

	while ((c = getopt_long(argc, argv, "D:Pu", long_options, &option_index)) != -1)
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
	OnlyWith(verb, options.size != NULL, "--size", "init");
	OnlyWith(verb, options.dry_run, "--dry-run", "init");
	OnlyWith(verb, options.force, "--force", "init");

	/* Files of root in the data directory would keep the server down. */
	if (geteuid() == 0)
	{
		pg_log_error("cannot be executed by \"root\"");
		pg_log_error_hint("You must run %s as the PostgreSQL superuser.",
						  progname);
		exit(EXIT_ERROR);
	}

	UseDataDirectory(&options, pgdata);
	return verb->function(&options);
}
