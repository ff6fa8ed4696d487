/*-------------------------------------------------------------------------
 *
 * pcache_next_config.c
 *	  The settings of the next start.
 *
 * They are in the configuration files, which may have been changed since this
 * server was started.  What was given on its command line is taken to be given
 * again, as pg_ctl restart does.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_next_config.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pcache_internal.h"
#include "storage/pcache_foretell.h"
#include "utils/conffiles.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

/* The text that the files have for a setting, or NULL. */
static const char *
TextInFiles(const ConfigVariable *files, const char *name)
{
	const char *text = NULL;

	/* the last one counts */
	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		if (item->errmsg == NULL && pg_strcasecmp(item->name, name) == 0)
			text = item->value;
	}
	return text;
}

/*
 * The text that the next start will have for a setting; NULL for its default.
 * *as_now says that it will be what it is.
 */
static const char *
NextText(const ConfigVariable *files, const struct config_generic *setting,
		 bool *as_now)
{
	/* the command line outweighs the files */
	*as_now = setting->source > PGC_S_FILE;
	return *as_now ? NULL : TextInFiles(files, setting->name);
}

static int
NextInteger(const ConfigVariable *files, const char *name, bool *valid)
{
	struct config_generic *setting = find_option(name, false, false, ERROR);
	struct config_int *integer = (struct config_int *) setting;
	bool		as_now;
	const char *text = NextText(files, setting, &as_now);
	int			value;

	if (as_now)
		return *integer->variable;
	if (text == NULL)
		return integer->boot_val;
	if (parse_int(text, &value, setting->flags, NULL) &&
		value >= integer->min && value <= integer->max)
		return value;
	*valid = false;
	return 0;
}

static int
NextEnum(const ConfigVariable *files, const char *name, bool *valid)
{
	struct config_generic *setting = find_option(name, false, false, ERROR);
	struct config_enum *choice = (struct config_enum *) setting;
	bool		as_now;
	const char *text = NextText(files, setting, &as_now);
	int			value;

	if (as_now)
		return *choice->variable;
	if (text == NULL)
		return choice->boot_val;
	if (config_enum_lookup_by_name(choice, text, &value))
		return value;
	*valid = false;
	return 0;
}

static const char *
NextDirectory(const ConfigVariable *files, bool *valid)
{
	struct config_generic *setting = find_option("persistent_cache_directory", false, false, ERROR);
	bool		as_now;
	const char *text = NextText(files, setting, &as_now);
	char	   *directory;
	void	   *extra = NULL;

	if (as_now)
		return persistent_cache_directory;
	directory = pstrdup(text != NULL ? text : PCACHE_DEFAULT_DIRECTORY);
	if (!check_persistent_cache_directory(&directory, &extra, PGC_S_FILE))
		*valid = false;
	return directory;
}

/* Will any recovery target be set, on whichever way? */
static bool
NextHasTarget(const ConfigVariable *files)
{
	static const char *const names[] = {
		"recovery_target",
		"recovery_target_lsn",
		"recovery_target_name",
		"recovery_target_time",
		"recovery_target_xid",
	};

	for (int i = 0; i < lengthof(names); i++)
	{
		struct config_generic *setting = find_option(names[i], false, false, ERROR);
		bool		as_now;
		const char *text = NextText(files, setting, &as_now);

		if (as_now)
			text = GetConfigOption(names[i], false, false);
		if (text != NULL && text[0] != '\0')
			return true;
	}
	return false;
}

/*
 * Read the settings of the next start.  Returns false, with err filled in, if
 * there are mistakes that keep the server from starting.
 */
bool
PCacheReadNextConfig(PCacheNextConfig *config, PCacheError *err)
{
	ConfigVariable *head = NULL;
	ConfigVariable *tail = NULL;
	bool		valid = true;

	if (!ParseConfigFile(ConfigFileName, true, NULL, 0, CONF_FILE_START_DEPTH,
						 DEBUG1, &head, &tail) ||
		!ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0,
						 CONF_FILE_START_DEPTH, DEBUG1, &head, &tail))
		valid = false;
	if (valid)
	{
		config->mode = NextEnum(head, "persistent_cache_mode", &valid);
		config->directory = NextDirectory(head, &valid);
		config->size = NextInteger(head, "persistent_cache_size", &valid);
		config->nbuffers = NextInteger(head, "shared_buffers", &valid);
		config->cold_on_media_unknown =
			NextEnum(head, "persistent_cache_on_media_unknown", &valid) == PERSISTENT_CACHE_MEDIA_COLD;
		config->has_recovery_target = NextHasTarget(head);
	}
	FreeConfigVariables(head);
	if (valid)
		return true;
	PCacheSetError(err, _("configuration file \"%s\" contains errors"), ConfigFileName);
	PCacheSetHint(err, _("See the view \"pg_file_settings\"."));
	return false;
}
