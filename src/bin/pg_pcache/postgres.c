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

#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/string_utils.h"
#include "pg_pcache.h"

/* What a program of the server prints before its version. */
#define VERSION_PREFIX	"postgres (PostgreSQL) "

/* The server's version as PG_VERSION_NUM has it, or 0 if it is unknown. */
static int	server_version = 0;

/* The version that a program of the server says it has; NULL if it is no such program. */
const char *
VersionOf(const char *program)
{
	char	   *argv[] = {pg_strdup(program), "-V", NULL};
	char	   *line = FirstLineOf(argv, NULL, NULL);

	if (line == NULL || strncmp(line, VERSION_PREFIX, strlen(VERSION_PREFIX)) != 0)
		return NULL;
	return line + strlen(VERSION_PREFIX);
}

/*
 * The server's executable, which is looked for once; NULL, after a warning, if there is none.
 *
 * That is what find_other_exec() finds, but another minor version will do: we are not
 * updated together with the server.  We need not be installed, so the server may also be
 * where it was when this was compiled.
 */
const char *
FindPostgres(const PCacheOptions *options)
{
	static char path[MAXPGPATH];
	static const char *found = NULL;
	static bool searched = false;
	bool		exists = false;

	if (searched)
		return found;
	searched = true;
	for (int i = 0; i < 2 && found == NULL; i++)
	{
		const char *version;
		char	   *end;

		if (i == 1)
			strlcpy(path, PCACHE_SERVER_BINDIR, sizeof(path));
		else if (find_my_exec(options->argv0, path) == 0)
			*last_dir_separator(path) = '\0';
		else
			continue;
		strlcat(path, "/postgres", sizeof(path));
		if (access(path, X_OK) < 0)
			continue;
		exists = true;
		version = VersionOf(path);
		if (version == NULL || strtol(version, &end, 10) != PG_VERSION_NUM / 10000)
			continue;
		found = path;
		if (*end == '.')
			server_version = PG_VERSION_NUM / 10000 * 10000 + atoi(end + 1);
	}
	if (found == NULL && exists)
		pg_log_warning("program \"%s\" was found by \"%s\" but was not the same version as %s",
					   "postgres", options->argv0, options->progname);
	else if (found == NULL)
		pg_log_warning("program \"%s\" is needed by %s but was not found in the same directory",
					   "postgres", options->progname);
	return found;
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

/* The command that prints the value of a parameter, and if it is quiet no error.  It is malloc'd. */
static char *
CommandFor(const char *postgres, const char *directory, const char *config_file,
		   const char *name, bool quiet)
{
	PQExpBufferData command;

	initPQExpBuffer(&command);
	if (quiet)
		appendPQExpBufferStr(&command, "2>/dev/null ");
	appendShellString(&command, postgres);
	appendPQExpBufferStr(&command, server_arguments);
	appendPQExpBufferStr(&command, " -D ");
	appendShellString(&command, directory);
	if (config_file != NULL)
	{
		appendPQExpBufferStr(&command, " -c config_file=");
		appendShellString(&command, config_file);
	}
	appendPQExpBufferStr(&command, " -C ");
	appendShellString(&command, name);
	return command.data;
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
 * asking "postgres -C".  It takes one name, so it runs once for each, all at a time.
 * Each value is a copy, or NULL if it is unknown.  Returns the server's data directory; or
 * NULL, after a warning, if the configuration cannot be read.
 *
 * Each server knows its data directory.  If that is not known, for example since the
 * configuration has an error, the others count as unknown, too, and only the first one says
 * why.  What a server then does not know of our settings is not set; and of its own, that
 * it has no such setting.  The patched server answers for a setting by whichever of its
 * names it was set.
 */
char *
AskPostgres(const PCacheOptions *options, const char *directory,
			const char *config_file, int n, const char *const names[],
			char *values[])
{
	const char *postgres = FindPostgres(options);
	FILE	  **pipes = pg_malloc_array(FILE *, n + 1);
	char	   *data_directory = NULL;
	char	   *command;

	for (int i = 0; i < n; i++)
		values[i] = NULL;
	if (postgres == NULL)
		return NULL;
	fflush(NULL);
	for (int i = 0; i <= n; i++)
	{
		command = CommandFor(postgres, directory, config_file,
							 i == 0 ? "data_directory" : names[i - 1], i > 0);
		pipes[i] = popen(command, "r");
		if (pipes[i] == NULL)
			pg_fatal("could not execute command \"%s\": %m", command);
		free(command);
	}
	for (int i = 0; i <= n; i++)
	{
		char	   *line = pg_get_line(pipes[i], NULL);

		if (pclose(pipes[i]) != 0 || line == NULL)
			continue;
		(void) pg_strip_crlf(line);
		if (i == 0)
			data_directory = line;
		else if (data_directory != NULL)
			values[i - 1] = line;
	}
	pg_free(pipes);
	if (data_directory == NULL)
	{
		pg_log_warning("could not read \"%s\" from the cluster's configuration", "data_directory");
		command = CommandFor(postgres, directory, config_file, "data_directory", false);
		pg_log_warning_detail("The command was: %s", command);
		free(command);
		return NULL;
	}
	for (int i = 0; i < n; i++)
	{
		/* as the server does with what it knows as a path */
		if (values[i] != NULL && strcmp(names[i], PCacheSetting("directory")) == 0)
		{
			if (values[i][0] == '\0')
				values[i] = NULL;
			else
				canonicalize_path(values[i]);
		}
		if (values[i] == NULL)
			values[i] = DefaultOf(names[i]);
	}
	return data_directory;
}
