/*-------------------------------------------------------------------------
 *
 * pcache_inject.c
 *	  Kill the process that runs into an injection point.
 *
 * For injection points that are passed before anybody can connect, as those
 * of the startup process: attaches while shared memory is created.  To be
 * loaded by shared_preload_libraries, with pcache_inject.crash_at set to the
 * name of the injection point.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/pcache_inject/pcache_inject.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/injection_point.h"

PG_MODULE_MAGIC_EXT(
					.name = "pcache_inject",
					.version = PG_VERSION
);

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void pcache_inject_crash(const char *name,
											const void *private_data,
											void *arg);

static char *crash_at = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void
pcache_inject_crash(const char *name, const void *private_data, void *arg)
{
	write_stderr("pcache_inject: PID %d dies at injection point \"%s\"\n",
				 MyProcPid, name);
	kill(getpid(), SIGKILL);
	pause();
}

static void
AttachInjectionPoint(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	if (IsUnderPostmaster || crash_at == NULL || crash_at[0] == '\0')
		return;
#ifndef USE_INJECTION_POINTS
	elog(FATAL, "injection points are not supported by this build");
#else
	InjectionPointAttach(crash_at, "pcache_inject", "pcache_inject_crash",
						 NULL, 0);
#endif
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;

	DefineCustomStringVariable("pcache_inject.crash_at",
							   "Injection point at which a process kills itself.",
							   NULL,
							   &crash_at,
							   "",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);
	MarkGUCPrefixReserved("pcache_inject");

	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = AttachInjectionPoint;
}
