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

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "common/logging.h"
#include "common/string.h"
#include "fe_utils/string_utils.h"
#include "pg_pcache.h"

/*
 * Where the server is, only the makefile for unpatched servers knows.  The patched one, of
 * whose tree we are a part otherwise, preloads the library by itself.
 */
#ifdef PCACHE_SERVER_BINDIR
#define PRELOADS_BY_ITSELF	false
#else
#define PRELOADS_BY_ITSELF	true
#define PCACHE_SERVER_BINDIR ""
#endif

/* What shared_preload_libraries must have. */
#define LIBRARY_NAME		"pg_pcache"

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

/* Find the server's executable, once. */
static const char *
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

/* Could the configuration be read when somebody asked last? */
static bool readable = true;

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
static char *
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
	readable = AskPostgres(options, options->pgdata, config_file, n, names, values);
	if (!readable && FindPostgres(options) != NULL &&
		(options->verb & VERBS_THAT_FORETELL) != 0 &&
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
 * Parse a size as the server does, into blocks, or -1.  "postgres -C" prints a
 * setting that it knows in blocks, and ours as somebody has written it.
 */
static double
ParseSizeSetting(const char *value)
{
	static const struct
	{
		const char *name;
		double		blocks;
	}			units[] =
	{
		{"TB", 1024.0 * 1024 * 1024 * 1024 / BLCKSZ},
		{"GB", 1024.0 * 1024 * 1024 / BLCKSZ},
		{"MB", 1024.0 * 1024 / BLCKSZ},
		{"kB", 1024.0 / BLCKSZ},
		{"B", 1.0 / BLCKSZ},
	};
	char	   *end;
	double		blocks;
	size_t		len;

	errno = 0;
	blocks = strtol(value, &end, 0);
	if (*end == '.' || *end == 'e' || *end == 'E' || errno == ERANGE)
	{
		errno = 0;
		blocks = strtod(value, &end);
	}
	if (end == value || errno == ERANGE || isnan(blocks))
		return -1;
	while (isspace((unsigned char) *end))
		end++;
	len = strcspn(end, " \t\r\n\v\f");
	if (end[len + strspn(end + len, " \t\r\n\v\f")] != '\0')
		return -1;
	if (len == 0)
		return rint(blocks);
	for (int i = 0; i < lengthof(units); i++)
	{
		if (strlen(units[i].name) != len || strncmp(units[i].name, end, len) != 0)
			continue;
		blocks *= units[i].blocks;
		/* a fraction is one of the next smaller unit */
		if (i + 1 < lengthof(units))
			blocks = rint(blocks / units[i + 1].blocks) * units[i + 1].blocks;
		return rint(blocks);
	}
	return -1;
}

/*
 * What "postgres -C" says of a size, shared_buffers or that of the pool, in
 * blocks, or -1 if that is unknown.
 */
static int64
ParseBlocks(const char *name, const char *value)
{
	double		blocks;

	if (value == NULL)
		return -1;
	blocks = ParseSizeSetting(value);
	if (blocks < 0 || blocks > INT_MAX)
	{
		pg_log_warning("could not understand the value \"%s\" of \"%s\"",
					   value, name);
		return -1;
	}
	return (int64) blocks;
}

/*
 * Is this value of a Boolean setting true?  It is as somebody has written it.
 */
static bool
IsTrue(const char *value)
{
	size_t		len = value != NULL ? strlen(value) : 0;

	return len > 0 &&
		(pg_strncasecmp(value, "true", len) == 0 || pg_strncasecmp(value, "yes", len) == 0 ||
		 pg_strcasecmp(value, "on") == 0 || strcmp(value, "1") == 0);
}

/*
 * The mode as everybody writes it.  The library takes its default for a value that
 * it does not know.
 */
static char *
CanonicalMode(char *mode)
{
	static const char *const modes[] = {"off", "planned_restart", "always"};

	if (mode == NULL)
		return mode;
	for (int i = 0; i < lengthof(modes); i++)
	{
		if (pg_strcasecmp(mode, modes[i]) == 0)
			return pg_strdup(modes[i]);
	}
	pg_log_warning("could not understand the value \"%s\" of \"%s\"",
				   mode, PCacheSetting("mode"));
	return DefaultOf(PCacheSetting("mode"));
}

/* Is this element of shared_preload_libraries our library? */
static bool
IsOurLibrary(char *element)
{
	char	   *name;
	size_t		len;

	while (isspace((unsigned char) *element) || *element == '"')
		element++;
	len = strlen(element);
	while (len > 0 && (isspace((unsigned char) element[len - 1]) || element[len - 1] == '"'))
		element[--len] = '\0';
	name = strrchr(element, '/') != NULL ? strrchr(element, '/') + 1 : element;
	return strcmp(name, LIBRARY_NAME) == 0 || strcmp(name, LIBRARY_NAME DLSUFFIX) == 0;
}

/* Does the server load the library?  If that is not known, we say yes. */
static bool
IsPreloaded(const char *libraries)
{
	char	   *list;
	char	   *rest = NULL;
	bool		found = false;

	if (libraries == NULL)
		return true;
	list = pg_strdup(libraries);
	for (char *element = strtok_r(list, ",", &rest); element != NULL && !found;
		 element = strtok_r(NULL, ",", &rest))
		found = IsOurLibrary(element);
	free(list);
	return found;
}

/* Does the server preload the library without being told to? */
bool
PreloadsByItself(void)
{
	return PRELOADS_BY_ITSELF;
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

/*
 * A server that is to load the library does not start without it.  The verbs that
 * foretell a start have nothing more to say then.  Where the library is, we only
 * know if nobody has given directories to look in.
 */
static void
RequireLibrary(const PCacheOptions *options, const char *libraries,
			   const char *library_path)
{
	char	   *file = LibraryFile(options);

	if ((options->verb & VERBS_THAT_FORETELL) == 0 || file == NULL ||
		libraries == NULL || strstr(libraries, "/" LIBRARY_NAME) != NULL ||
		library_path == NULL || strcmp(library_path, "$libdir") != 0)
		return;
	if (access(file, R_OK) < 0)
	{
		pg_log_error("the server does not start: \"%s\" has \"%s\", but there is no file \"%s\"",
					 "shared_preload_libraries", LIBRARY_NAME, file);
		pg_log_error_hint("Install the library for this server, or take its name out of the list.");
		exit(EXIT_ERROR);
	}
	pfree(file);
}

/* The size of a new pool, and shared_buffers, at the next start, in blocks; -1 if unknown. */
void
ReadSizes(const PCacheOptions *options, int64 *size, int64 *nbuffers)
{
	static const char *const names[] = {PCacheSetting("size"), "shared_buffers"};
	char	   *values[lengthof(names)];

	ReadSettings(options, lengthof(names), names, values);
	*size = ParseBlocks(names[0], values[0]);
	*nbuffers = ParseBlocks(names[1], values[1]);
	free(values[0]);
	free(values[1]);
}

/*
 * There is no place for the pool but what the configuration says, so give up if that
 * cannot be read.
 */
void
RequireReadableConfiguration(void)
{
	if (readable)
		return;
	pg_log_error("could not find out where the pool is: the server's configuration could not be read");
	pg_log_error_hint("Give the directory of the pool with %s, if the verb has this option, or mend the configuration.",
					  "--directory");
	exit(EXIT_ERROR);
}

/*
 * The directory of the pool, or NULL if the configuration names none.  For verbs
 * that look for the pool that there is: if the server was last started
 * with a directory on its command line, the pool is there.
 */
char *
ReadPoolDirectory(const PCacheOptions *options)
{
	char	   *directory = ReadSetting(options, PCacheSetting("directory"));

	if (directory == NULL)
	{
		RequireReadableConfiguration();
		AskWithServerArguments(options);
		directory = ReadSetting(options, PCacheSetting("directory"));
	}
	return directory;
}

/* What the cluster will use the pool with, as far as that is known. */
void
ReadConfiguration(const PCacheOptions *options, Configuration *conf)
{
	static const char *const names[] = {
		PCacheSetting("mode"), PCacheSetting("directory"), "shared_buffers",
		PCacheSetting("size"), PCacheSetting("on_media_unknown"),
		PCacheSetting("required"), PCacheSetting("allow_unknown_minor"),
		"io_method", "debug_io_direct", "shared_preload_libraries", "dynamic_library_path",
		"huge_pages", "huge_page_size"
	};
	char	   *values[lengthof(names)] = {0};

	ReadSettings(options, lengthof(names), names, values);
	conf->mode = CanonicalMode(values[0]);
	conf->directory = values[1];
	conf->nbuffers = ParseBlocks(names[2], values[2]);
	conf->pool_size = Max(ParseBlocks(names[3], values[3]), 0);
	conf->cold_on_media_unknown = values[4] != NULL && pg_strcasecmp(values[4], "cold") == 0;
	conf->required = IsTrue(values[5]);
	conf->allow_unknown_minor = IsTrue(values[6]);
	conf->server_version = server_version;
	conf->io_method = values[7];
	conf->debug_io_direct = values[8];
	conf->libraries = values[9];
	conf->preloaded = PRELOADS_BY_ITSELF || IsPreloaded(conf->libraries);
	if (conf->preloaded && !PRELOADS_BY_ITSELF)
		RequireLibrary(options, conf->libraries, values[10]);
	for (int i = 2; i < 7; i++)
		free(values[i]);
	conf->needs_huge_pages = values[11] != NULL && strcmp(values[11], "on") == 0;
	conf->huge_page_kb = values[12] != NULL ? strtoull(values[12], NULL, 10) : 0;
	for (int i = 10; i < lengthof(names); i++)
		free(values[i]);
}

/* Is the next start to use the pool?  Warm stands for yes. */
PCacheVerdict
JudgeConfiguration(const Configuration *conf)
{
	PCacheVerdict verdict = {PCACHE_WARM};

	if (conf->mode != NULL && strcmp(conf->mode, "off") == 0)
		verdict = PCacheRefuse(PCACHE_OFF, _("%s is off"), PCacheSetting("mode"));
	else if (!conf->preloaded)
	{
		verdict = PCacheRefuse(PCACHE_OFF,
							   _("\"shared_preload_libraries\" does not have \"pg_pcache\", without which the settings of the cache have no effect"));
		PCacheSetHint(&verdict.why, _("Add \"pg_pcache\" to \"shared_preload_libraries\"."));
	}
	else if (conf->mode == NULL || conf->nbuffers < 0)
		verdict = PCacheRefuse(PCACHE_UNKNOWN_CONFIGURATION,
							   _("the server's configuration could not be read"));
	return verdict;
}

bool
ModeIsOff(const Configuration *conf)
{
	return JudgeConfiguration(conf).refusal == PCACHE_OFF;
}

/* The configuration, as the questions about the next start want it. */
PCacheNextConfig
NextConfig(const Configuration *conf)
{
	PCacheNextConfig config = {
		.mode = conf->mode != NULL && strcmp(conf->mode, "always") == 0 ?
		PERSISTENT_CACHE_ALWAYS : PERSISTENT_CACHE_PLANNED_RESTART,
		.size = conf->pool_size,
		.nbuffers = Max(conf->nbuffers, 0),
		.cold_on_media_unknown = conf->cold_on_media_unknown,
		.required = conf->required,
		.server_version = conf->server_version,
		.allow_unknown_minor = conf->allow_unknown_minor,
	};

	return config;
}
