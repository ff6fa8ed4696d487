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
#include "storage/pcache_late_read.h"
#include "storage/pg_shmem.h"
#include "utils/builtins.h"
#include "utils/conffiles.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

/* The text that the files have for a setting, by any of its names, or NULL. */
static const char *
TextInFiles(const ConfigVariable *files, const struct config_generic *setting)
{
	const char *text = NULL;

	/* the last one counts */
	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		if (item->errmsg == NULL &&
			find_option(item->name, false, true, ERROR) == setting)
			text = item->value;
	}
	return text;
}

/* The text that the next start will have for a setting; NULL for its default. */
static const char *
NextText(const ConfigVariable *files, const struct config_generic *setting)
{
	/* the command line outweighs the files */
	if (setting->source > PGC_S_FILE)
		return GetConfigOption(setting->name, false, false);
	return TextInFiles(files, setting);
}

static int
NextInteger(const ConfigVariable *files, const char *name, bool *valid)
{
	struct config_generic *setting = find_option(name, false, false, ERROR);
	struct config_int *integer = (struct config_int *) setting;
	const char *text = NextText(files, setting);
	int			value;

	if (text == NULL)
		return integer->boot_val;
	if (!parse_int(text, &value, setting->flags, NULL) ||
		value < integer->min || value > integer->max)
		*valid = false;
	return value;
}

static int
NextEnum(const ConfigVariable *files, const char *name, bool *valid)
{
	struct config_enum *choice =
		(struct config_enum *) find_option(name, false, false, ERROR);
	const char *text = NextText(files, &choice->gen);
	int			value;

	if (text == NULL)
		return choice->boot_val;
	if (!config_enum_lookup_by_name(choice, text, &value))
		*valid = false;
	return value;
}

static bool
NextBool(const ConfigVariable *files, const char *name, bool *valid)
{
	struct config_bool *choice =
		(struct config_bool *) find_option(name, false, false, ERROR);
	const char *text = NextText(files, &choice->gen);
	bool		value = choice->boot_val;

	if (text != NULL && !parse_bool(text, &value))
		*valid = false;
	return value;
}

static const char *
NextDirectory(const ConfigVariable *files, bool *valid)
{
	const char *text = NextText(files, find_option("persistent_cache_directory", false, false, ERROR));
	char	   *directory = pstrdup(text != NULL ? text : PCACHE_DEFAULT_DIRECTORY);
	void	   *extra = NULL;

	if (!check_persistent_cache_directory(&directory, &extra, PGC_S_FILE))
		*valid = false;
	return directory;
}

/* Does no read outlive its process?  Otherwise the pool is not used (rule 87). */
static bool
NextReadsEnd(const ConfigVariable *files, PCacheError *err)
{
	struct config_generic *method = find_option("io_method", false, false, ERROR);
	struct config_generic *direct = find_option("debug_io_direct", false, false, ERROR);
	const char *method_text = NextText(files, method);
	const char *direct_text = NextText(files, direct);

	/* the defaults do not have it */
	return method_text == NULL || direct_text == NULL ||
		PCacheReadsEndWithProcess(method_text, direct_text, err);
}

/* Will recovery have a target? */
static bool
NextHasTarget(const ConfigVariable *files)
{
	for (int i = 0; i < PCACHE_N_RECOVERY_TARGETS; i++)
	{
		const char *text = NextText(files, find_option(PCacheRecoveryTargets[i], false, false, ERROR));

		if (text != NULL && text[0] != '\0')
			return true;
	}
	return false;
}

/*
 * Read the settings of the next start.  Returns false, with err filled in, if
 * there are mistakes that keep the server from starting.  It is also filled in
 * for config->late_reads.
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
		config->required = NextBool(head, "persistent_cache_required", &valid);
		config->huge_pages = NextEnum(head, "huge_pages", &valid) != HUGE_PAGES_OFF;
		config->late_reads = config->mode != PERSISTENT_CACHE_OFF && !NextReadsEnd(head, err);
	}
	FreeConfigVariables(head);
	if (valid)
		return true;
	PCacheSetError(err, _("configuration file \"%s\" contains errors"), ConfigFileName);
	PCacheSetHint(err, _("See the view \"pg_file_settings\"."));
	return false;
}
