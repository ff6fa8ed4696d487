/*-------------------------------------------------------------------------
 *
 * config.c
 *	  What the cluster's configuration says.
 *
 * postgres.c asks, locate.c says with which files, and here is what the answers mean.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/config.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"

/* Could the configuration be read when somebody asked last? */
static bool readable = true;

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
	readable = AskPostgres(options, options->pgdata, config_file, n, names, values) != NULL;
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
	char		unit[3] = "";
	char		more;

	errno = 0;
	blocks = strtol(value, &end, 0);
	if (*end == '.' || *end == 'e' || *end == 'E' || errno == ERANGE)
	{
		errno = 0;
		blocks = strtod(value, &end);
	}
	if (end == value || errno == ERANGE || isnan(blocks))
		return -1;
	if (sscanf(end, "%2s %c", unit, &more) > 1)
		return -1;
	if (unit[0] == '\0')
		return rint(blocks);
	for (int i = 0; i < lengthof(units); i++)
	{
		if (strcmp(units[i].name, unit) != 0)
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
 * Parse a size that an option has, into blocks.  It is written as in postgresql.conf, but
 * with a unit, since nobody means blocks.
 */
uint64
ParseSize(const char *size, const char *option)
{
	const uint64 max_bytes = (uint64) MAX_CAPACITY * BLCKSZ;
	bool		has_unit = size[0] != '\0' && size[strlen(size) - 1] == 'B';
	double		blocks = has_unit ? ParseSizeSetting(size) : -1;

	if (blocks < 0)
		Refuse(_("Valid units for this parameter are \"kB\", \"MB\", \"GB\", and \"TB\"."),
			   _("invalid value \"%s\" for option %s"), size, option);
	if (blocks < MIN_CAPACITY || blocks > MAX_CAPACITY)
		Refuse(psprintf(_("The size must be between %s and %s."), FormatSetting((uint64) MIN_CAPACITY * BLCKSZ), FormatSetting(max_bytes)),
			   _("size \"%s\" is out of range"), size);
	return blocks;
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

/* Does the server load the library?  If that is not known, we say yes. */
static bool
IsPreloaded(const char *libraries)
{
	char	   *rest = pg_strdup(libraries != NULL ? libraries : LIBRARY_NAME);
	char	   *name;

	while ((name = strtok_r(rest, ", \t\r\n\"", &rest)) != NULL)
	{
		if (strrchr(name, '/') != NULL)
			name = strrchr(name, '/') + 1;
		if (strcmp(name, LIBRARY_NAME) == 0 || strcmp(name, LIBRARY_NAME DLSUFFIX) == 0)
			return true;
	}
	return false;
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
		Refuse(_("Install the library for this server, or take its name out of the list."),
			   _("the server does not start: \"%s\" has \"%s\", but there is no file \"%s\""),
			   "shared_preload_libraries", LIBRARY_NAME, file);
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
	Refuse(psprintf(_("Give the directory of the pool with %s, if the verb has this option, or mend the configuration."), "--directory"),
		   _("could not find out where the pool is: the server's configuration could not be read"));
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
		AskWithArguments(ServerArguments(options));
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
	conf->server_version = ServerVersion();
	conf->io_method = values[7];
	conf->debug_io_direct = values[8];
	conf->libraries = values[9];
	conf->preloaded = PRELOADS_BY_ITSELF || IsPreloaded(conf->libraries);
	if (conf->preloaded && !PRELOADS_BY_ITSELF)
		RequireLibrary(options, conf->libraries, values[10]);
	conf->needs_huge_pages = values[11] != NULL && strcmp(values[11], "on") == 0;
	conf->huge_page_kb = values[12] != NULL ? strtoull(values[12], NULL, 10) : 0;
}

/* Is the pool not used, as it is configured? */
bool
ModeIsOff(const Configuration *conf)
{
	return !conf->preloaded || (conf->mode != NULL && strcmp(conf->mode, "off") == 0);
}
