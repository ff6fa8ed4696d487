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
 *	  src/backend/storage/buffer/pmem/run/pcache_next_config.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/pcache_foretell.h"
#include "storage/pcache_late_read.h"
#include "storage/pcache_run.h"
#include "storage/pg_shmem.h"
#include "utils/builtins.h"
#include "utils/conffiles.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

/*
 * Below every level that can be shown to anybody: who may ask for a forecast may
 * not see what is in the files, as the view pg_file_settings shows it.
 */
#define SILENT	(DEBUG5 - 1)

/*
 * The settings whose check hooks look at this session, or at catalogs, neither of
 * which there is when the postmaster reads the files.
 */
static const char *const asking_session[] = {
	"client_encoding",
	"default_table_access_method",
	"default_tablespace",
	"default_text_search_config",
	"log_executor_stats",
	"log_parser_stats",
	"log_planner_stats",
	"log_statement_stats",
	"temp_buffers",
	"temp_tablespaces",
	"transaction_deferrable",
	"transaction_isolation",
	"transaction_read_only",
};

static bool
AsksSession(const struct config_generic *setting)
{
	for (int i = 0; i < lengthof(asking_session); i++)
	{
		if (strcmp(setting->name, asking_session[i]) == 0)
			return true;
	}
	return false;
}

/*
 * The setting that an item is about, by any of its names; NULL if the server does
 * not know it itself.
 */
static struct config_generic *
SettingOf(const ConfigVariable *item)
{
	struct config_generic *setting = item->name == NULL ? NULL :
		find_option(item->name, false, true, SILENT);

	/* those of libraries get their values when these are loaded */
	if (setting != NULL && setting->group == CUSTOM_OPTIONS)
		return NULL;
	return setting;
}

/* The text that the files have for a setting, or NULL. */
static const char *
TextInFiles(const ConfigVariable *files, const struct config_generic *setting)
{
	const char *text = NULL;

	/* the last one counts */
	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		if (!item->ignore && SettingOf(item) == setting)
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

/*
 * Does no read outlive its process?  Otherwise the pool is not used, see rule
 * "no read outlives its process".
 */
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

/* Which of the settings with a recovery target is it?  -1 if none. */
static int
RecoveryTargetOf(const struct config_generic *setting)
{
	for (int i = 0; i < PCACHE_N_RECOVERY_TARGETS; i++)
	{
		if (strcmp(setting->name, PCacheRecoveryTargets[i]) == 0)
			return i;
	}
	return -1;
}

/*
 * Will recovery have a target?  Their assign hooks refuse a second one, in the
 * order of the command line and the files.
 */
static bool
NextHasTarget(const ConfigVariable *files, bool *has_target, PCacheError *err)
{
	int			current = -1;

	for (int i = 0; i < PCACHE_N_RECOVERY_TARGETS; i++)
	{
		struct config_generic *setting =
			find_option(PCacheRecoveryTargets[i], false, false, ERROR);

		if (setting->source > PGC_S_FILE &&
			GetConfigOption(setting->name, false, false)[0] != '\0')
			current = i;
	}
	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		const struct config_generic *setting = item->ignore ? NULL : SettingOf(item);
		int			i = setting == NULL || setting->source > PGC_S_FILE ? -1 :
			RecoveryTargetOf(setting);

		if (i < 0)
			continue;
		if (current >= 0 && current != i)
		{
			PCacheSetError(err, _("multiple recovery targets specified"));
			PCacheSetHint(err, _("Set at most one of the settings \"recovery_target\", \"recovery_target_lsn\", \"recovery_target_name\", \"recovery_target_time\", and \"recovery_target_xid\"."));
			return false;
		}
		current = item->value[0] != '\0' ? i : -1;
	}
	*has_target = current >= 0;
	return true;
}

/*
 * Of items with the same name the last one counts, and nobody looks at the value
 * of the others.
 */
static void
IgnoreEarlier(ConfigVariable *files)
{
	for (ConfigVariable *item = files; item != NULL; item = item->next)
	{
		if (item->ignore || SettingOf(item) == NULL)
			continue;
		for (ConfigVariable *earlier = files; earlier != item; earlier = earlier->next)
		{
			if (earlier->name != NULL && strcmp(earlier->name, item->name) == 0)
				earlier->ignore = true;
		}
	}
}

/*
 * Would the postmaster know all names in the files?  Otherwise returns the last
 * file with one that it does not know.
 */
static const char *
FileWithUnknownName(const ConfigVariable *files)
{
	const char *file = NULL;

	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		/* one with a dot may be of a library */
		if (!item->ignore && find_option(item->name, false, true, SILENT) == NULL &&
			strchr(item->name, GUC_QUALIFIER_SEPARATOR) == NULL)
			file = item->filename;
	}
	return file;
}

/* The same, of a value that it would not take. */
static const char *
FileWithInvalidValue(const ConfigVariable *files)
{
	const char *file = NULL;

	for (const ConfigVariable *item = files; item != NULL; item = item->next)
	{
		const struct config_generic *setting = item->ignore ? NULL : SettingOf(item);

		if (setting != NULL && !AsksSession(setting) &&
			set_config_option(item->name, item->value, PGC_POSTMASTER, PGC_S_FILE,
							  GUC_ACTION_SET, false, SILENT, false) == 0)
			file = item->filename;
	}
	return file;
}

/*
 * Read the files as ProcessConfigFileInternal() does.  Returns the one with an
 * error that keeps the server from starting, or NULL.
 */
static const char *
ReadFiles(ConfigVariable **head)
{
	ConfigVariable *tail = NULL;
	const char *file;

	*head = NULL;
	if (!ParseConfigFile(ConfigFileName, true, NULL, 0, CONF_FILE_START_DEPTH,
						 SILENT, head, &tail))
		return ConfigFileName;
	if (!ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0,
						 CONF_FILE_START_DEPTH, SILENT, head, &tail))
		return PG_AUTOCONF_FILENAME;
	IgnoreEarlier(*head);
	file = FileWithUnknownName(*head);
	return file != NULL ? file : FileWithInvalidValue(*head);
}

static bool
ReadNextConfig(PCacheNextConfig *config, PCacheError *err)
{
	ConfigVariable *head;
	const char *file = ReadFiles(&head);
	bool		valid = file == NULL;
	bool		starts = false;

	if (valid)
	{
		config->mode = NextEnum(head, "persistent_cache_mode", &valid);
		config->directory = NextDirectory(head, &valid);
		config->size = NextInteger(head, "persistent_cache_size", &valid);
		config->nbuffers = NextInteger(head, "shared_buffers", &valid);
		config->cold_on_media_unknown =
			NextEnum(head, "persistent_cache_on_media_unknown", &valid) == PERSISTENT_CACHE_MEDIA_COLD;
		config->required = NextBool(head, "persistent_cache_required", &valid);
		config->huge_pages = NextEnum(head, "huge_pages", &valid) != HUGE_PAGES_OFF;
		starts = NextHasTarget(head, &config->has_recovery_target, err);
		config->late_reads = starts && config->mode != PERSISTENT_CACHE_OFF &&
			!NextReadsEnd(head, err);
	}
	if (!valid)
	{
		PCacheSetError(err, _("configuration file \"%s\" contains errors"),
					   file != NULL ? file : ConfigFileName);
		PCacheSetHint(err, _("See the view \"pg_file_settings\"."));
	}
	FreeConfigVariables(head);
	return valid && starts;
}

/*
 * Read the settings of the next start.  Returns false, with err filled in, if
 * there are mistakes that keep the server from starting.  It is also filled in
 * for config->late_reads.
 *
 * Not all of what is told about the files is told at the level that we ask for: a
 * missing file is worth a LOG, and some check hooks have warnings.  So the client
 * is told nothing but errors meanwhile.
 */
bool
PCacheReadNextConfig(PCacheNextConfig *config, PCacheError *err)
{
	int			save_level = client_min_messages;
	bool		starts;

	client_min_messages = ERROR;
	PG_TRY();
	{
		starts = ReadNextConfig(config, err);
	}
	PG_FINALLY();
	{
		client_min_messages = save_level;
	}
	PG_END_TRY();
	return starts;
}
