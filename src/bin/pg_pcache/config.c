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

/*
 * The value that a configuration parameter has in a server that is started with
 * -D directory, and with this configuration file if that is not NULL, by asking
 * "postgres -C".  Returns NULL, after a warning, if that is unknown.
 */
char *
AskPostgres(const PCacheOptions *options, const char *directory,
			const char *config_file, const char *name)
{
	const char *postgres = FindPostgres(options);
	PQExpBuffer command;
	FILE	   *pipe;
	char	   *line;

	if (postgres == NULL)
		return NULL;

	command = createPQExpBuffer();
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
	line = pg_get_line(pipe, NULL);
	if (pclose(pipe) != 0 || line == NULL)
	{
		pg_log_warning("could not read \"%s\" from the cluster's configuration",
					   name);
		pg_log_warning_detail("The command was: %s", command->data);
		free(line);
		line = NULL;
	}
	else
		(void) pg_strip_crlf(line);
	destroyPQExpBuffer(command);
	return line;
}

/*
 * The value that a configuration parameter will have at the next start, or
 * NULL, after a warning, if that is unknown.
 *
 * If "postgres -C" fails on a configuration file that is there, so does a start.
 * It has told why then, and verbs that foretell a start have nothing more to say.
 */
char *
ReadSetting(const PCacheOptions *options, const char *name)
{
	static const char *config_file;
	static bool located = false;
	char	   *value;

	if (!located)
		config_file = LocateConfigFile(options);
	located = true;
	value = AskPostgres(options, options->pgdata, config_file, name);
	if (value == NULL && FindPostgres(options) != NULL &&
		(options->verb & (VERB_CHECK | VERB_VERIFY)) != 0 &&
		access(config_file != NULL ? config_file :
			   psprintf("%s/postgresql.conf", options->pgdata), R_OK) == 0)
		pg_fatal("the server does not start with the configuration of the cluster");
	return value;
}

/*
 * A size at the next start, in blocks, or -1 if that is unknown: shared_buffers
 * or persistent_cache_size.
 */
int64
ReadSizeSetting(const PCacheOptions *options, const char *name)
{
	char	   *value = ReadSetting(options, name);
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
	free(value);
	return blocks;
}

/* What the cluster will use the pool with, as far as that is known. */
void
ReadConfiguration(const PCacheOptions *options, Configuration *conf)
{
	char	   *on_media_unknown;
	char	   *required;
	char	   *huge_pages;
	int64		pool_size;

	conf->mode = ReadSetting(options, "persistent_cache_mode");
	conf->nbuffers = -1;
	conf->directory = NULL;
	conf->pool_size = 0;
	conf->cold_on_media_unknown = false;
	conf->required = false;
	conf->huge_pages = true;
	/* who does not know the one, does not know the others */
	if (conf->mode != NULL)
	{
		conf->directory = ReadSetting(options, "persistent_cache_directory");
		conf->nbuffers = ReadSizeSetting(options, "shared_buffers");
		pool_size = ReadSizeSetting(options, "persistent_cache_size");
		conf->pool_size = Max(pool_size, 0);

		on_media_unknown = ReadSetting(options, "persistent_cache_on_media_unknown");
		conf->cold_on_media_unknown = on_media_unknown != NULL &&
			strcmp(on_media_unknown, "cold") == 0;
		free(on_media_unknown);
		required = ReadSetting(options, "persistent_cache_required");
		conf->required = required != NULL && strcmp(required, "on") == 0;
		free(required);
		huge_pages = ReadSetting(options, "huge_pages");
		conf->huge_pages = huge_pages == NULL || strcmp(huge_pages, "off") != 0;
		free(huge_pages);
	}
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
