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
 * Choose the data directory, and the configuration file if the directory that was
 * given is one with a configuration.
 */
static void
ChooseDirectory(PCacheOptions *options)
{
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
	datadir = AskPostgres(options, options->datadir, options->config_file, 0, NULL, NULL);
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
LocateCluster(PCacheOptions *options)
{
	char		resolved[PATH_MAX];
	struct stat st;

	ChooseDirectory(options);
	if (realpath(options->datadir, resolved) == NULL)
		pg_fatal("could not access directory \"%s\": %m", options->datadir);
	if (stat(resolved, &st) < 0)
		pg_fatal("could not stat \"%s\": %m", resolved);
	if (!S_ISDIR(st.st_mode))
		pg_fatal("\"%s\" is not a directory", options->datadir);
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

/* The configuration file that an argument of the server names, perhaps after "-c"; or NULL. */
const char *
ConfigFileIn(const char *argument)
{
	const char *setting = strncmp(argument, "-c", 2) == 0 || strncmp(argument, "--", 2) == 0 ? argument + 2 : argument;

	return strncmp(setting, "config_file=", 12) == 0 || strncmp(setting, "config-file=", 12) == 0 ? setting + 12 : NULL;
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
	char	   *rest = LineOf(options->pgdata, OPTIONS_FILE, 1);
	const char *directory = NULL;
	const char *config_file = NULL;
	char	   *word;
	char	   *datadir;
	char		resolved[PATH_MAX];

	if (options->config_file != NULL)
		return options->config_file;
	while (rest != NULL && (word = NextWord(&rest)) != NULL)
	{
		if (strncmp(word, "-D", 2) == 0)
			directory = word[2] != '\0' ? word + 2 : NextWord(&rest);
		else if (ConfigFileIn(word) != NULL)
			config_file = ConfigFileIn(word);
	}
	if (config_file == NULL && directory != NULL)
		config_file = psprintf("%s/%s", directory, CONFIG_FILE);
	if (config_file == NULL || !is_absolute_path(config_file) || access(config_file, R_OK) < 0 ||
		strcmp(config_file, psprintf("%s/%s", options->pgdata, CONFIG_FILE)) == 0)
		return NULL;
	if (directory == NULL || !is_absolute_path(directory))
		directory = options->pgdata;
	datadir = AskPostgres(options, directory, config_file, 0, NULL, NULL);
	if (datadir == NULL || realpath(datadir, resolved) == NULL || strcmp(resolved, options->pgdata) != 0)
		return NULL;
	return config_file;
}
