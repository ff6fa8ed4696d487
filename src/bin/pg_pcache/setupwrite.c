/*-------------------------------------------------------------------------
 *
 * setupwrite.c
 *	  pg_pcache setup: write the file in conf.d, as the server's user.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupwrite.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "setup.h"

typedef struct ConfArguments
{
	PCacheOptions *options;
	const SetupFacts *facts;
	const char *text;
	bool		verify;			/* that it has an effect */
} ConfArguments;

/* Is it what the next start will have? */
static bool
HasEffect(PCacheOptions *options, const SetupFacts *facts, const char *text)
{
	Configuration conf;

	ReadConfiguration(options, &conf);
	return conf.preloaded && conf.mode != NULL &&
		strstr(text, psprintf("%s = %s\n", SetupSettingName(SETUP_MODE), conf.mode)) != NULL &&
		conf.directory != NULL && strcmp(conf.directory, facts->mount_point) == 0;
}

/* By the server's user: write the file in conf.d. */
static int
WriteConf(void *arg)
{
	ConfArguments *conf = arg;
	const SetupFacts *facts = conf->facts;
	char	   *directory = psprintf("%s/%s", facts->cluster.config_dir, SETUP_CONF_DIR);
	PCacheError err;
	int			fd;

	if (mkdir(directory, 0755) < 0 && errno != EEXIST)
		pg_fatal("could not create directory \"%s\": %m", directory);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		pg_fatal("could not open directory \"%s\": %m", directory);
	if (!ReplaceFile(fd, SETUP_CONF_FILE, conf->text, &err))
		pg_fatal("%s, in directory \"%s\"", err.message, directory);
	if (!conf->verify)
		return 0;
	LocateCluster(conf->options);
	UseDataDirectory(conf->options);
	if (!HasEffect(conf->options, facts, conf->text))
	{
		pg_log_error("what \"%s/%s\" sets has no effect, because it is set elsewhere", directory, SETUP_CONF_FILE);
		pg_log_error_hint("The view pg_file_settings shows where, once that file is written by hand.");
		return EXIT_ERROR;
	}
	return 0;
}

/*
 * Have the file in conf.d contain the text, or remove it with "".  With verify, the server
 * is asked whether it has an effect.  Returns false after a message, and then the file may
 * have been written nevertheless.
 */
bool
SetupWriteConf(PCacheOptions *options, const SetupFacts *facts, const char *text, bool verify)
{
	PCacheOptions copy = *options;
	ConfArguments conf = {&copy, facts, text, verify};

	return RunAsOwner(&facts->cluster, WriteConf, &conf) == 0;
}
