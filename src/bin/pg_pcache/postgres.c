/*-------------------------------------------------------------------------
 *
 * postgres.c
 *	  Ask the server's program, postgres, for the configuration.
 *
 * It alone knows how its files are read: includes, units, the command line, and what
 * wins.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/postgres.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>
#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/string_utils.h"
#include "pg_pcache.h"

/* The server's version as PG_VERSION_NUM has it, or 0 if it is unknown. */
static int	server_version = 0;

/*
 * The same as find_other_exec(), but another minor version will do: we are not
 * updated together with the server.  It need not be installed, so
 * the server may also be where it was when this was compiled.
 */
static int
FindAnyMinor(const PCacheOptions *options, char *path)
{
	const char *version = "postgres (PostgreSQL) " PG_MAJORVERSION;
	int			rc = -1;

	for (int i = 0; i < 2 && rc != 0; i++)
	{
		char		command[MAXPGPATH + 32];
		char		line[128];
		FILE	   *pipe;

		if (i == 0)
		{
			if (find_my_exec(options->argv0, path) < 0)
				continue;
			*last_dir_separator(path) = '\0';
		}
		else
			strlcpy(path, PCACHE_SERVER_BINDIR, MAXPGPATH);
		strlcat(path, "/postgres", MAXPGPATH);
		if (access(path, X_OK) < 0)
			continue;
		snprintf(command, sizeof(command), "\"%s\" -V", path);
		fflush(NULL);
		pipe = popen(command, "r");
		if (pipe == NULL)
			continue;
		rc = fgets(line, sizeof(line), pipe) != NULL &&
			strncmp(line, version, strlen(version)) == 0 &&
			!isdigit((unsigned char) line[strlen(version)]) ? 0 : -2;
		if (rc == 0 && line[strlen(version)] == '.')
			server_version = PG_VERSION_NUM / 10000 * 10000 + atoi(line + strlen(version) + 1);
		(void) pclose(pipe);
	}
	return rc;
}

/* The server's executable, which is looked for once; NULL if there is none. */
const char *
FindPostgres(const PCacheOptions *options)
{
	static char path[MAXPGPATH];
	static bool searched = false;
	static bool found = false;

	if (!searched)
	{
		int			rc = FindAnyMinor(options, path);

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

/* What FindPostgres() has found, as PG_VERSION_NUM, or 0 if it is unknown. */
int
ServerVersion(void)
{
	return server_version;
}

/* The library's file, where the server looks for it; NULL if there is no server. */
char *
LibraryFile(const PCacheOptions *options)
{
	char		directory[MAXPGPATH];
	const char *postgres = FindPostgres(options);

	if (postgres == NULL)
		return NULL;
	get_pkglib_path(postgres, directory);
	return psprintf("%s/%s%s", directory, LIBRARY_NAME, DLSUFFIX);
}

/* What the server is asked with beside its files, for a shell. */
static const char *server_arguments = "";

/*
 * From here on, ask for the settings of a server that is started with these arguments.  "pg_ctl
 * restart" gives it those that it had.
 */
void
AskWithArguments(const char *arguments)
{
	server_arguments = arguments;
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
 * Have "postgres -C" print n configuration parameters.  It takes one name, so it
 * runs once for each, all at a time.
 */
static void
RunPostgres(const PCacheOptions *options, const char *directory,
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
		else if (i == 0)
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

/* The default of one of our settings, or NULL. */
char *
DefaultOf(const char *name)
{
#define AS_TEXT(name, value, text) {PCACHE_SETTING_PREFIX #name, text},
	static const char *const defaults[][2] = {PCACHE_DEFAULTS(AS_TEXT)};

	for (int i = 0; i < lengthof(defaults); i++)
	{
		if (strcmp(defaults[i][0], name) == 0)
			return pg_strdup(defaults[i][1]);
	}
	return NULL;
}

/*
 * The values that n configuration parameters have in a server that is started
 * with -D directory, and with this configuration file if that is not NULL, by
 * asking "postgres -C".  Each gets a copy, or NULL, after a warning, if that is
 * unknown.  Returns false if the configuration cannot be read.
 *
 * If the first one is not known, for example since the configuration has an error,
 * the others count as unknown, too, and only the first one says why.  So we ask
 * for one first that each server knows.  What a server then does not know of our
 * settings is not set; and of its own, that it has no such setting.  The patched server
 * answers for a setting by whichever of its names it was set.
 */
bool
AskPostgres(const PCacheOptions *options, const char *directory,
			const char *config_file, int n, const char *const names[],
			char *values[])
{
	const char **asked = pg_malloc_array(const char *, n + 1);
	char	  **answers = pg_malloc_array(char *, n + 1);
	bool		known;

	asked[0] = "data_directory";
	memcpy(asked + 1, names, n * sizeof(*names));
	RunPostgres(options, directory, config_file, n + 1, asked, answers);
	known = (answers[0] != NULL);
	for (int i = 0; i < n; i++)
	{
		values[i] = answers[i + 1];
		/* as the server does with what it knows as a path */
		if (values[i] != NULL && strcmp(names[i], PCacheSetting("directory")) == 0)
		{
			if (values[i][0] == '\0')
				values[i] = NULL;
			else
				canonicalize_path(values[i]);
		}
		if (values[i] == NULL && known)
			values[i] = DefaultOf(names[i]);
	}
	free(answers[0]);
	pg_free(asked);
	pg_free(answers);
	return known;
}
