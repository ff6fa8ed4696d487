/*-------------------------------------------------------------------------
 *
 * config.c
 *	  What the cluster's configuration says, and how the server would read it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/config.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/string_utils.h"
#include "pg_pcache.h"


/* Find the server's executable, once. */
static const char *
FindPostgres(const PCacheOptions *options)
{
	static char path[MAXPGPATH];
	static bool searched = false;
	static bool found = false;

	if (!searched)
	{
		int			rc = find_other_exec(options->argv0, "postgres",
										 PG_BACKEND_VERSIONSTR, path);

		searched = true;
		found = (rc == 0);
		if (rc == -1)
			pg_log_warning("program \"%s\" is needed by %s but was not found in the same directory",
						   "postgres", options->progname);
		else if (rc < 0)
			pg_log_warning("program \"%s\" was found by \"%s\" but was not the same version as %s",
						   "postgres", options->argv0, options->progname);
	}
	return found ? path : NULL;
}

/* What the server that runs was started with, for a shell. */
static const char *server_arguments = "";

/*
 * From here on, ask for the settings of a server that is restarted with the
 * arguments of the one that runs, as "pg_ctl restart" does it.
 */
void
AskWithServerArguments(const PCacheOptions *options)
{
	server_arguments = ServerArguments(options);
}

/* Start a program that prints the value of a parameter. */
static FILE *
StartPostgres(const char *postgres, const char *directory, const char *config_file,
			  const char *name, PQExpBuffer command)
{
	FILE	   *pipe;

	appendShellString(command, postgres);
	appendPQExpBufferStr(command, server_arguments);
	appendPQExpBufferStr(command, " -D ");
	appendShellString(command, directory);
	if (config_file != NULL)
	{
		appendPQExpBufferStr(command, " -c config_file=");
		appendShellString(command, config_file);
	}
	appendPQExpBufferStr(command, " -C ");
	appendShellString(command, name);

	fflush(NULL);
	pipe = popen(command->data, "r");
	if (pipe == NULL)
		pg_fatal("could not execute command \"%s\": %m", command->data);
	return pipe;
}

/*
 * The values that n configuration parameters have in a server that is started
 * with -D directory, and with this configuration file if that is not NULL, by
 * asking "postgres -C".  Each gets a copy, or NULL, after a warning, if that is
 * unknown.
 *
 * "postgres -C" takes one name, so it runs once for each, all at a time.  If the
 * first one is not known, for example since the configuration has an error, the
 * others count as unknown, too, and only the first one says why.
 */
void
AskPostgres(const PCacheOptions *options, const char *directory,
			const char *config_file, int n, const char *const names[],
			char *values[])
{
	const char *postgres = FindPostgres(options);
	FILE	  **pipes = pg_malloc_array(FILE *, n);
	PQExpBuffer *commands = pg_malloc_array(PQExpBuffer, n);

	memset(values, 0, n * sizeof(*values));
	for (int i = 0; i < n && postgres != NULL; i++)
	{
		commands[i] = createPQExpBuffer();
		if (i > 0)
			appendPQExpBufferStr(commands[i], "2>/dev/null ");
		pipes[i] = StartPostgres(postgres, directory, config_file, names[i], commands[i]);
	}
	for (int i = 0; i < n && postgres != NULL; i++)
	{
		char	   *line = pg_get_line(pipes[i], NULL);

		if (pclose(pipes[i]) == 0 && line != NULL && (i == 0 || values[0] != NULL))
		{
			(void) pg_strip_crlf(line);
			values[i] = line;
		}
		else if (i == 0 || values[0] != NULL)
		{
			pg_log_warning("could not read \"%s\" from the cluster's configuration",
						   names[i]);
			pg_log_warning_detail("The command was: %s", commands[i]->data);
		}
		destroyPQExpBuffer(commands[i]);
	}
	pg_free(pipes);
	pg_free(commands);
}

/*
 * The values that configuration parameters will have at the next start, each NULL
 * if it is unknown; see AskPostgres().
 *
 * If "postgres -C" fails on a configuration file that is there, so does a start.
 * It has told why then, and verbs that foretell a start have nothing more to say.
 */
void
ReadSettings(const PCacheOptions *options, int n, const char *const names[],
			 char *values[])
{
	static const char *config_file;
	static bool located = false;

	if (!located)
		config_file = LocateConfigFile(options);
	located = true;
	AskPostgres(options, options->pgdata, config_file, n, names, values);
	if (values[0] == NULL && FindPostgres(options) != NULL &&
		(options->verb & (VERB_CHECK | VERB_VERIFY)) != 0 &&
		access(config_file != NULL ? config_file :
			   psprintf("%s/postgresql.conf", options->pgdata), R_OK) == 0)
		pg_fatal("the server does not start with the configuration of the cluster");
}

/* The same for one of them. */
char *
ReadSetting(const PCacheOptions *options, const char *name)
{
	char	   *value;

	ReadSettings(options, 1, &name, &value);
	return value;
}

/*
 * What "postgres -C" says of a size, shared_buffers or persistent_cache_size, in
 * blocks, or -1 if that is unknown.
 */
static int64
ParseBlocks(const char *name, const char *value)
{
	char	   *end;
	int			blocks;

	if (value == NULL)
		return -1;

	/* "postgres -C" prints integers in the parameter's own unit */
	errno = 0;
	blocks = strtoint(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' || blocks < 0)
	{
		pg_log_warning("could not understand the value \"%s\" of \"%s\"",
					   value, name);
		blocks = -1;
	}
	return blocks;
}

/* A size at the next start, in blocks, or -1 if that is unknown. */
int64
ReadSizeSetting(const PCacheOptions *options, const char *name)
{
	char	   *value = ReadSetting(options, name);
	int64		blocks = ParseBlocks(name, value);

	free(value);
	return blocks;
}

/* What the cluster will use the pool with, as far as that is known. */
void
ReadConfiguration(const PCacheOptions *options, Configuration *conf)
{
	static const char *const names[] = {
		"persistent_cache_mode", "persistent_cache_directory", "shared_buffers",
		"persistent_cache_size", "persistent_cache_on_media_unknown",
		"persistent_cache_required", "huge_pages", "io_method", "debug_io_direct",
	};
	char	   *values[lengthof(names)];

	ReadSettings(options, lengthof(names), names, values);
	conf->mode = values[0];
	conf->directory = values[1];
	conf->nbuffers = ParseBlocks(names[2], values[2]);
	conf->pool_size = Max(ParseBlocks(names[3], values[3]), 0);
	conf->cold_on_media_unknown = values[4] != NULL && strcmp(values[4], "cold") == 0;
	conf->required = values[5] != NULL && strcmp(values[5], "on") == 0;
	conf->huge_pages = values[6] == NULL || strcmp(values[6], "off") != 0;
	conf->io_method = values[7];
	conf->debug_io_direct = values[8];
	for (int i = 3; i < 7; i++)
		free(values[i]);
	free(values[2]);
}

/* Is it known that the next start does without the pool? */
bool
ModeIsOff(const Configuration *conf)
{
	return conf->mode != NULL && strcmp(conf->mode, "off") == 0;
}

/* The configuration, as the questions about the next start want it. */
PCacheNextConfig
NextConfig(const Configuration *conf)
{
	PCacheNextConfig config = {
		.mode = conf->mode != NULL && strcmp(conf->mode, "always") == 0 ?
		PERSISTENT_CACHE_ALWAYS : PERSISTENT_CACHE_PLANNED_RESTART,
		.directory = conf->directory,
		.size = conf->pool_size,
		.nbuffers = Max(conf->nbuffers, 0),
		.cold_on_media_unknown = conf->cold_on_media_unknown,
		.required = conf->required,
		.huge_pages = conf->huge_pages,
	};

	return config;
}
