/*-------------------------------------------------------------------------
 *
 * pg_pcache.c
 *	  Shared buffers that survive restarts, as a library that a server preloads: its
 *	  settings and hooks.
 *
 * README has the rules.  Read pcache_attach.c next, for the start, and
 * pcache_detach.c, for the stop.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pg_pcache.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"
#include "utils/guc.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(
					.name = "pg_pcache",
					.version = PG_VERSION
);
#else
PG_MODULE_MAGIC;
#endif

extern PGDLLEXPORT void _PG_init(void);

#define AS_CONSTANT(name, value, text) default_##name = (value),
enum
{
	PCACHE_DEFAULTS(AS_CONSTANT)
};

int			pcache_mode = default_mode;
int			pcache_recovery = default_recovery;
char	   *pcache_directory = NULL;
int			pcache_size = default_size;
bool		pcache_required = default_required;
int			pcache_on_media_unknown = default_on_media_unknown;
int			pcache_workers = default_workers;
int			pcache_worker_delay = default_worker_delay;
bool		pcache_allow_unknown_minor = default_allow_unknown_minor;

static const struct config_enum_entry mode_options[] = {
	{"off", PERSISTENT_CACHE_OFF, false},
	{"planned_restart", PERSISTENT_CACHE_PLANNED_RESTART, false},
	{"always", PERSISTENT_CACHE_ALWAYS, false},
	{NULL, 0, false}
};

static const struct config_enum_entry recovery_options[] = {
	{"full", PERSISTENT_CACHE_RECOVERY_FULL, false},
	{"short", PERSISTENT_CACHE_RECOVERY_SHORT, false},
	{NULL, 0, false}
};

static const struct config_enum_entry on_media_unknown_options[] = {
	{"use", PERSISTENT_CACHE_MEDIA_USE, false},
	{"cold", PERSISTENT_CACHE_MEDIA_COLD, false},
	{NULL, 0, false}
};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* What other libraries have made of shmem_startup_hook once all were loaded. */
static shmem_startup_hook_type others_shmem_startup_hook = NULL;
static bool is_last = false;

/* Other libraries first: they may look at shared memory as the server has made it. */
static void
StartSharedMemory(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	if (!is_last)
		PCacheStartServer();
}

/* The same, after those that were loaded later as well. */
static void
StartSharedMemoryLast(void)
{
	if (others_shmem_startup_hook)
		others_shmem_startup_hook();
	PCacheStartServer();
}

/*
 * All libraries are loaded.  One that came later need not call our shmem_startup_hook, so
 * the server does.
 */
static void
RequestSharedMemory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	others_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartSharedMemoryLast;
	is_last = true;
	PCacheOpenForServer();
}

static bool
CheckDirectory(char **newval, void **extra, GucSource source)
{
	PCacheError err;

	if ((*newval)[0] == '\0' || PCacheCanonicalDirectory(*newval, &err))
		return true;
	GUC_check_errdetail("%s", err.message);
	return false;
}

static void
DefineSettings(void)
{
	DefineCustomEnumVariable("pcache.mode",
							 "Sets which stops of the server its shared buffers survive.",
							 NULL, &pcache_mode, default_mode, mode_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pcache.recovery",
							 "Sets whether recovery after a crash skips what is in the pool already.",
							 "\"short\" does so in mode \"always\", on a primary whose host was not restarted.",
							 &pcache_recovery, default_recovery, recovery_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("pcache.directory",
							   "Sets the directory of the pool that shared buffers lie in.",
							   "It should be on tmpfs, hugetlbfs or fsdax.",
							   &pcache_directory, "", PGC_POSTMASTER, 0,
							   CheckDirectory, NULL, NULL);
	DefineCustomIntVariable("pcache.size",
							"Sets for how many buffers a new pool has room.",
							"0 means as many as \"shared_buffers\".",
							&pcache_size, default_size, 0, INT_MAX / 2, PGC_POSTMASTER, GUC_UNIT_BLOCKS,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pcache.required",
							 "Refuses to start without the pool.",
							 NULL, &pcache_required, default_required, PGC_POSTMASTER, 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("pcache.on_media_unknown",
							 "Sets what a start does if bad blocks of the pool are not known.",
							 NULL, &pcache_on_media_unknown, default_on_media_unknown,
							 on_media_unknown_options, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pcache.workers",
							"Sets how many processes read the pool after a loss of power.",
							"-1 means as many as there are processors, but no more than 8.",
							&pcache_workers, default_workers, -1, PCACHE_MAX_WORKERS, PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pcache.worker_delay",
							"Sets the time between rounds in which pages are listed for a loss of power.",
							"A round takes a fiftieth of it at most.",
							&pcache_worker_delay, default_worker_delay, 10, 10000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pcache.allow_unknown_minor",
							 "Uses the pool with a minor release that pg_pcache was not tried with.",
							 NULL, &pcache_allow_unknown_minor, default_allow_unknown_minor,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pcache");
}

/*
 * The library's functions can be called without it being preloaded, and say so.
 */
void
_PG_init(void)
{
	PCacheError err;

	if (!process_shared_preload_libraries_in_progress)
	{
		ereport(WARNING,
				(errmsg("pg_pcache does nothing unless it is in \"shared_preload_libraries\"")));
		return;
	}
	if (PCacheServerHasOwnCache(&err) || PCacheIsLoadedTwice(&err))
	{
		PCacheReportError(WARNING, &err);
		return;
	}
	DefineSettings();
	PCacheIsPreloaded = true;
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = RequestSharedMemory;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartSharedMemory;
	if (pcache_mode == PERSISTENT_CACHE_OFF)
		return;
	PCacheShortenRedo();
	PCacheWatchReplay();
	PCacheWatchSettings();
	PCacheWatchDeaths();
	PCacheRegisterWorker();
}
