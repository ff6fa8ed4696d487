/*-------------------------------------------------------------------------
 *
 * locate.c
 *	  Where are the cluster's data directory and its configuration?
 *
 * The data directory is what -D or --cluster says, or else PGDATA, or else that of the
 * only cluster of this major version in the layout of Debian's packages.  -D and PGDATA may
 * name a directory with the configuration instead, as they may for pg_ctl.
 *
 * The configuration is the file that --config-file names, or else the one in
 * such a directory, or else the one that the server was last started with, or
 * else the one in the data directory.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/locate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/file_perm.h"
#include "common/logging.h"
#include "fe_utils/string_utils.h"
#include "debian.h"

#define CONFIG_FILE			"postgresql.conf"

/* The command line of the last start, in one line. */
#define OPTIONS_FILE		"postmaster.opts"

/*
 * Set the data directory, and the configuration file if the directory that was
 * given is one with a configuration.
 */
void
LocateCluster(PCacheOptions *options)
{
	const char *name = "data_directory";
	char	   *config_file;
	char	   *datadir;
	bool		was_given;

	if (options->datadir == NULL)
		options->datadir = getenv("PGDATA");
	was_given = options->datadir != NULL && options->datadir[0] != '\0';
	if (!was_given)
		options->datadir = FindOnlyConfiguration();
	if (options->datadir == NULL)
		Refuse(psprintf(_("Try \"%s --help\" for more information."), options->progname),
			   _("no data directory specified"));
	config_file = psprintf("%s/%s", options->datadir, CONFIG_FILE);
	if (access(psprintf("%s/%s", options->datadir, XLOG_CONTROL_FILE), F_OK) == 0 || access(config_file, F_OK) < 0)
		return;

	if (options->config_file == NULL)
		options->config_file = make_absolute_path(config_file);
	AskPostgres(options, options->datadir, options->config_file, 1, &name, &datadir);
	if (datadir == NULL)
		pg_fatal("could not find the data directory of the configuration in \"%s\"",
				 options->datadir);
	if (!was_given)
		pg_log_info("using data directory \"%s\" of the configuration in \"%s\"",
					datadir, options->datadir);
	options->datadir = datadir;
}

/* Find the data directory, and go by its permissions from here on. */
void
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

	if (!GetDataDirectoryCreatePerm(options->pgdata))
		pg_fatal("could not read permissions of directory \"%s\": %m",
				 options->pgdata);
	umask(pg_mode_mask);
}

/* Get the next word of postmaster.opts, where each but the first is in quotes. */
static char *
NextWord(char **rest)
{
	char	   *word = strstr(*rest, " \"");
	char	   *end;

	if (word == NULL)
		return NULL;
	word += 2;
	end = strstr(word, "\" \"");
	if (end == NULL)
		end = strrchr(word, '"');
	if (end == NULL)
		return NULL;
	*end = '\0';
	*rest = end + 1;
	return word;
}

/* The value of "-cNAME", "-c NAME", likewise -D; NULL if it is another word. */
static char *
ShortOption(char *word, char letter, char **rest)
{
	if (word[0] != '-' || word[1] != letter)
		return NULL;
	return word[2] != '\0' ? word + 2 : NextWord(rest);
}

/*
 * The configuration file that a command line of the server names, or NULL, and
 * its -D.
 */
static char *
ConfigFileOfCommand(char *command, char **directory)
{
	char	   *rest = command;
	char	   *config_file = NULL;
	char	   *word;

	*directory = NULL;
	while ((word = NextWord(&rest)) != NULL)
	{
		char	   *next = ShortOption(word, 'D', &rest);
		char	   *setting;

		if (next != NULL)
		{
			*directory = next;
			continue;
		}
		setting = ShortOption(word, 'c', &rest);
		if (setting == NULL && strncmp(word, "--", 2) == 0)
			setting = word + 2;
		if (setting != NULL && (strncmp(setting, "config_file=", 12) == 0 ||
								strncmp(setting, "config-file=", 12) == 0))
			config_file = setting + 12;
	}
	if (config_file != NULL)
		return config_file;
	return *directory != NULL ? psprintf("%s/%s", *directory, CONFIG_FILE) : NULL;
}

/*
 * The arguments that the server was last started with, each after a space and
 * quoted for a shell.  The result is "" if they are not known.
 */
const char *
ServerArguments(const PCacheOptions *options)
{
	char	   *rest = LineOf(options->pgdata, OPTIONS_FILE, 1);
	char	   *word;
	PQExpBufferData arguments;

	initPQExpBuffer(&arguments);
	while (rest != NULL && (word = NextWord(&rest)) != NULL)
	{
		appendPQExpBufferChar(&arguments, ' ');
		appendShellString(&arguments, word);
	}
	return arguments.data;
}

/*
 * The configuration file of the server: the one that was given, or the one
 * that the server was last started with.  Returns NULL for that in the data
 * directory.
 *
 * The file is asked whose it is, since a data directory may have been copied
 * together with its postmaster.opts.  If it does not say so, -D did.
 */
const char *
LocateConfigFile(const PCacheOptions *options)
{
	char	   *command;
	char		path[MAXPGPATH];
	char		resolved[PATH_MAX];
	const char *name = "data_directory";
	char	   *config_file;
	char	   *directory;
	char	   *datadir;
	bool		is_ours;

	if (options->config_file != NULL)
		return options->config_file;
	command = LineOf(options->pgdata, OPTIONS_FILE, 1);
	if (command == NULL)
		return NULL;
	config_file = ConfigFileOfCommand(command, &directory);
	if (config_file == NULL || !is_absolute_path(config_file) ||
		access(config_file, R_OK) < 0)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", options->pgdata, CONFIG_FILE);
	if (strcmp(config_file, path) == 0)
		return NULL;
	AskPostgres(options,
				directory != NULL && is_absolute_path(directory) ? directory : options->pgdata,
				config_file, 1, &name, &datadir);
	is_ours = datadir != NULL && realpath(datadir, resolved) != NULL &&
		strcmp(resolved, options->pgdata) == 0;
	free(datadir);
	return is_ours ? pg_strdup(config_file) : NULL;
}
