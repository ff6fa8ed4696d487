/*-------------------------------------------------------------------------
 *
 * pg_pcache.c
 *	  Create, repair, look at and remove the persistent cache of a cluster.
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
#include "pg_pcache.h"

static const char *progname;

static void
Usage(void)
{
	printf(_("%s creates, repairs, examines and drops the persistent cache of a PostgreSQL cluster.\n\n"), progname);
	printf(_("Usage:\n"));
	printf(_("  %s [OPTION]... [VERB]\n"), progname);
	printf(_("\nVerbs:\n"));
	printf(_("  drop                     remove the pool and all traces of it from the data\n"
			 "                           directory; the server must be down\n"));
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
	printf(_("\nOptions for drop, init and rebuild:\n"));
	printf(_("      --dry-run            only tell what would be done\n"));
	printf(_("\nOptions for drop:\n"));
	printf(_("      --directory=DIR      remove the pool there\n"));
	printf(_("      --force              also a pool that is not known to be the cluster's\n"));
	printf(_("\nOptions for init:\n"));
	printf(_("      --directory=DIR      create the pool there (default: by\n"
			 "                           persistent_cache_directory)\n"));
	printf(_("      --size=SIZE          how much data to cache at most, in kB, MB, GB or TB\n"
			 "                           (default: by persistent_cache_size, or\n"
			 "                           shared_buffers if that is 0)\n"));
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

/* Find the data directory, and go by its permissions from here on. */
static void
UseDataDirectory(PCacheOptions *options)
{
	const char *pgdata = options->datadir;
	char		resolved[PATH_MAX];
	struct stat st;

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
	PCacheOptions options = {0};

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

	ParseOptions(argc, argv, &options);

	/* Files of root in the data directory would keep the server down. */
	if (geteuid() == 0)
	{
		pg_log_error("cannot be executed by \"root\"");
		pg_log_error_hint("You must run %s as the PostgreSQL superuser.",
						  progname);
		exit(EXIT_ERROR);
	}

	pqsignal(SIGBUS, DieOfBusError);
	/* the working directory is going to change */
	if (options.config_file != NULL)
		options.config_file = make_absolute_path(options.config_file);
	UseDataDirectory(&options);
	switch (options.verb)
	{
		case VERB_DROP:
			return DoDrop(&options);
		case VERB_INIT:
			return DoInit(&options);
		case VERB_REBUILD:
			return DoRebuild(&options);
		case VERB_STATUS:
			return DoStatus(&options);
		case VERB_VERIFY:
			return DoVerify(&options);
	}
	return EXIT_ERROR;			/* keep compiler quiet */
}
