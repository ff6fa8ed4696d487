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

#include "storage/pcache_core.h"
#include "storage/pcache_find.h"
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

/* GUC check hook for persistent_cache_directory */
bool
check_persistent_cache_directory(char **newval, void **extra, GucSource source)
{
	PCacheError err;

	if (PCacheCanonicalDirectory(*newval, &err))
		return true;
	GUC_check_errdetail("%s", err.message);
	return false;
}
