/*-------------------------------------------------------------------------
 *
 * setupconf.c
 *	  pg_pcache setup: which settings win over those of a file in conf.d?
 *
 * The last line that makes a setting wins.  After our file come those files of conf.d
 * whose names are greater, what follows in postgresql.conf, and postgresql.auto.conf.
 * Files that these include in turn are not looked at.  After our file was written, the
 * server is asked whether it has an effect.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupconf.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>
#include <dirent.h>

#include "common/logging.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "setup.h"

#define CONFIG_FILE		"postgresql.conf"
#define AUTO_FILE		"postgresql.auto.conf"
#define INCLUDE_DIR		"include_dir"

static const char *const setting_names[SETUP_NUM_SETTINGS] = {
	[SETUP_LIBRARIES] = "shared_preload_libraries",
	[SETUP_MODE] = PCacheSetting("mode"),
	[SETUP_DIRECTORY] = PCacheSetting("directory"),
};

const char *
SetupSettingName(SetupSetting setting)
{
	return setting_names[setting];
}

/*
 * Split a line as the server does: a name, perhaps "=", and a value, which may be in
 * quotes.  Both end with '\0' afterwards.  Returns false if it makes no setting.
 */
static bool
SplitLine(char *line, char **name, char **value)
{
	char	   *p = line;
	char	   *to;

	while (isspace((unsigned char) *p))
		p++;
	*name = p;
	while (isalnum((unsigned char) *p) || *p == '_' || *p == '.')
		p++;
	if (p == *name)
		return false;
	to = p;
	while (isspace((unsigned char) *p))
		p++;
	if (*p == '=')
		p++;
	while (isspace((unsigned char) *p))
		p++;
	*to = '\0';
	if (*p != '\'')
	{
		*value = p;
		p[strcspn(p, "# \t\r\n")] = '\0';
		return true;
	}
	/* a quote in the value is doubled, or after a backslash */
	*value = to = ++p;
	while (*p != '\0' && (*p != '\'' || p[1] == '\''))
	{
		if ((*p == '\'' || *p == '\\') && p[1] != '\0')
			p++;
		*to++ = *p++;
	}
	*to = '\0';
	return true;
}

/* What files set that were looked through, the last one winning. */
typedef SetupOther Found[SETUP_NUM_SETTINGS];

/*
 * Look through a file.  What it sets is noted in found; but with before, what it sets until
 * the last line that includes conf.d is noted there.  Returns whether there is such a line.
 */
static bool
ScanFile(const char *path, bool is_auto, SetupOther *found, SetupOther *before)
{
	FILE	   *file = fopen(path, "r");
	char	   *line;
	int			number = 0;
	bool		includes = false;

	if (file == NULL)
	{
		if (errno != ENOENT)
			pg_fatal("could not open file \"%s\" for reading: %m", path);
		return false;
	}
	while ((line = pg_get_line(file, NULL)) != NULL)
	{
		char	   *name;
		char	   *value;

		number++;
		if (!SplitLine(line, &name, &value))
		{
			free(line);
			continue;
		}
		if (before != NULL && pg_strcasecmp(name, INCLUDE_DIR) == 0 &&
			(strcmp(value, SETUP_CONF_DIR) == 0 || strcmp(value, SETUP_CONF_DIR "/") == 0 ||
			 pg_str_endswith(value, "/" SETUP_CONF_DIR)))
		{
			includes = true;
			for (int i = 0; i < SETUP_NUM_SETTINGS; i++)
			{
				if (found[i].place[0] != '\0')
					before[i] = found[i];
			}
			memset(found, 0, sizeof(Found));
		}
		for (int i = 0; i < SETUP_NUM_SETTINGS; i++)
		{
			SetupOther *other = &found[i];

			if (pg_strcasecmp(name, setting_names[i]) != 0)
				continue;
			strlcpy(other->value, value, sizeof(other->value));
			snprintf(other->place, sizeof(other->place), _("line %d of \"%s\""), number, path);
			other->is_auto = is_auto;
		}
		free(line);
	}
	fclose(file);
	return includes;
}

static int
ByName(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Look through the files of conf.d that come before ours, and through those that come after. */
static void
ScanConfDir(const char *config_dir, SetupOther *before, SetupOther *after)
{
	char	   *directory = psprintf("%s/%s", config_dir, SETUP_CONF_DIR);
	DIR		   *dir = opendir(directory);
	struct dirent *entry;
	char	  **names = NULL;
	int			n = 0;

	if (dir == NULL)
	{
		if (errno != ENOENT)
			pg_fatal("could not open directory \"%s\": %m", directory);
		return;
	}
	while ((entry = readdir(dir)) != NULL)
	{
		if (entry->d_name[0] == '.' || !pg_str_endswith(entry->d_name, ".conf"))
			continue;
		names = pg_realloc(names, (n + 1) * sizeof(char *));
		names[n++] = pg_strdup(entry->d_name);
	}
	closedir(dir);
	if (n > 0)
		qsort(names, n, sizeof(char *), ByName);
	for (int i = 0; i < n; i++)
	{
		int			order = strcmp(names[i], SETUP_CONF_FILE);

		if (order != 0)
			(void) ScanFile(psprintf("%s/%s", directory, names[i]), false, order < 0 ? before : after, NULL);
	}
}

/* Find what wins over lines in our file, and what they hide, and whether the server reads it. */
void
FindOtherSettings(const char *config_dir, SetupCluster *server)
{
	Found		before = {{{0}}};
	Found		after = {{{0}}};

	memset(server->others, 0, sizeof(server->others));
	server->conf_included = ScanFile(psprintf("%s/%s", config_dir, CONFIG_FILE), false, after, before);
	if (!server->conf_included)
		memset(after, 0, sizeof(after));
	ScanConfDir(config_dir, before, server->others);
	for (int i = 0; i < SETUP_NUM_SETTINGS; i++)
	{
		if (after[i].place[0] != '\0')
			server->others[i] = after[i];
	}
	(void) ScanFile(psprintf("%s/%s", server->data_dir, AUTO_FILE), true, server->others, NULL);
	strlcpy(server->earlier, before[SETUP_LIBRARIES].value, sizeof(server->earlier));
}
