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

#include <signal.h>
#include <unistd.h>

#include "debian.h"

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

/* Do what a verb does to a cluster, for its user.  Returns the exit status. */
static int
RunVerb(void *arg)
{
	PCacheOptions *options = arg;

	LocateCluster(options);
	return options->run(options);
}

int
main(int argc, char *argv[])
{
	PCacheOptions options = {0};
	const char **paths[] = {&options.config_file, &options.to, &options.from};
	DebianCluster cluster;

	pg_logging_init(argv[0]);
	set_pglocale_pgservice(argv[0], PG_TEXTDOMAIN("pg_pcache"));
	/* sizes are read and printed the same in every locale */
	setlocale(LC_NUMERIC, "C");
	options.argv0 = argv[0];
	options.progname = get_progname(argv[0]);

	ParseOptions(argc, argv, &options);
	if (options.version)
		puts("pg_pcache (PostgreSQL) " PG_VERSION);
	else if (options.help)
		ShowHelp(options.progname, options.verb);
	if (options.version || options.help)
		exit(0);

	pqsignal(SIGBUS, DieOfBusError);
	/* a file that is too large is an error that can be told (EFBIG) */
	pqsignal(SIGXFSZ, SIG_IGN);
	/* the working directory is going to change */
	for (int i = 0; i < lengthof(paths); i++)
	{
		if (*paths[i] != NULL)
			*paths[i] = make_absolute_path(*paths[i]);
	}
	if (options.verb == VERB_SETUP)
		return DoSetup(&options);
	if (options.cluster != NULL)
		FindNamedCluster(&options, &cluster);
	if (geteuid() != 0)
		return RunVerb(&options);

	/* Files of root in the data directory would keep the server down. */
	if (options.cluster == NULL)
		Refuse(psprintf(_("Name the cluster with %s, or run %s as the PostgreSQL superuser."), "--cluster", options.progname),
			   _("cannot be executed by \"root\""));
	if (options.command != NULL)
		KeepForRoot(options.command);
	return RunAsOwner(&cluster, RunVerb, &options);
}
