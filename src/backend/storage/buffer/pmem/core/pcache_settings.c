/*-------------------------------------------------------------------------
 *
 * pcache_settings.c
 *	  Settings of the persistent cache.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port.h"
#include "storage/pcache_core.h"
#include "utils/guc_hooks.h"

int			persistent_cache_mode = PERSISTENT_CACHE_OFF;
int			persistent_cache_numa = PERSISTENT_CACHE_NUMA_WARN;
bool		persistent_cache_required = false;
int			persistent_cache_scrub = PERSISTENT_CACHE_SCRUB_AUTO;
int			persistent_cache_seal_delay = 10;
int			persistent_cache_on_media_unknown = PERSISTENT_CACHE_MEDIA_USE;
int			persistent_cache_size = 0;
int			persistent_cache_workers = -1;
char	   *persistent_cache_directory = NULL;

const struct config_enum_entry persistent_cache_mode_options[] = {
	{"off", PERSISTENT_CACHE_OFF, false},
	{"planned_restart", PERSISTENT_CACHE_PLANNED_RESTART, false},
	{"always", PERSISTENT_CACHE_ALWAYS, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_numa_options[] = {
	{"off", PERSISTENT_CACHE_NUMA_OFF, false},
	{"warn", PERSISTENT_CACHE_NUMA_WARN, false},
	{"bind", PERSISTENT_CACHE_NUMA_BIND, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_scrub_options[] = {
	{"auto", PERSISTENT_CACHE_SCRUB_AUTO, false},
	{"on", PERSISTENT_CACHE_SCRUB_ON, false},
	{"off", PERSISTENT_CACHE_SCRUB_OFF, false},
	{"true", PERSISTENT_CACHE_SCRUB_ON, true},
	{"false", PERSISTENT_CACHE_SCRUB_OFF, true},
	{"yes", PERSISTENT_CACHE_SCRUB_ON, true},
	{"no", PERSISTENT_CACHE_SCRUB_OFF, true},
	{"1", PERSISTENT_CACHE_SCRUB_ON, true},
	{"0", PERSISTENT_CACHE_SCRUB_OFF, true},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_on_media_unknown_options[] = {
	{"use", PERSISTENT_CACHE_MEDIA_USE, false},
	{"cold", PERSISTENT_CACHE_MEDIA_COLD, false},
	{NULL, 0, false}
};

/*
 * GUC check hook for persistent_cache_directory.
 *
 * The place of the pool must not depend on where the server is started, nor on
 * what ".." means beyond a symbolic link.
 */
bool
check_persistent_cache_directory(char **newval, void **extra, GucSource source)
{
	char		canonical[MAXPGPATH];

	for (const char *name = *newval; name != NULL; name = strchr(name, '/'))
	{
		name += strspn(name, "/");
		if (strncmp(name, "..", 2) == 0 && (name[2] == '/' || name[2] == '\0'))
		{
			GUC_check_errdetail("The path must not contain \"..\".");
			return false;
		}
	}

	/* the data directory could not remember it */
	if (strchr(*newval, '\n') != NULL)
	{
		GUC_check_errdetail("The path must not contain a newline.");
		return false;
	}

	if (strlcpy(canonical, *newval, sizeof(canonical)) >= MAXPGPATH - PCACHE_PATH_RESERVE)
	{
		GUC_check_errdetail("The path must be shorter than %d bytes.",
							MAXPGPATH - PCACHE_PATH_RESERVE);
		return false;
	}
	canonicalize_path(canonical);
	if (!is_absolute_path(canonical) &&
		strcmp(canonical, PCACHE_DEFAULT_DIRECTORY) != 0)
	{
		GUC_check_errdetail("The directory must be an absolute path, or \"%s\", which stands for the directory of that name in the data directory.",
							PCACHE_DEFAULT_DIRECTORY);
		return false;
	}
	strcpy(*newval, canonical); /* which is not longer */
	return true;
}
