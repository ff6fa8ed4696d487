/*-------------------------------------------------------------------------
 *
 * pcache_inject.c
 *	  What tests want to happen at injection points.
 *
 * For injection points that are passed before anybody can connect, as those
 * of the startup process: attaches while shared memory is created.  To be
 * loaded by shared_preload_libraries.
 *
 * pcache_inject.crash_at names an injection point at which to die.
 * pcache_inject.media, pcache_inject.bad_blocks and pcache_inject.dimms say
 * what a query for the state of the pool's media answers, at
 * "persistent-cache-media".
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
#include "storage/pcache_media.h"
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
extern PGDLLEXPORT void pcache_inject_media(const char *name,
											const void *private_data,
											void *arg);

static char *crash_at = NULL;
static char *media = NULL;
static char *bad_blocks = NULL;
static char *dimms = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void
pcache_inject_crash(const char *name, const void *private_data, void *arg)
{
	write_stderr("pcache_inject: PID %d dies at injection point \"%s\"\n",
				 MyProcPid, name);
	kill(getpid(), SIGKILL);
	pause();
}

/* Add the ranges in a list of "offset:length" to those of the report. */
static void
AddBadBlocks(PCacheMediaReport *report, const char *list)
{
	const char *next = list;

	while (*next != '\0')
	{
		unsigned long long offset;
		unsigned long long length;
		int			n = 0;

		if (sscanf(next, "%llu:%llu%n", &offset, &length, &n) != 2 ||
			length == 0 || (next[n] != ',' && next[n] != '\0'))
			elog(FATAL, "invalid pcache_inject.bad_blocks: \"%s\"", list);
		PCacheMediaAddRange(&report->bad, offset, length);
		next += next[n] == ',' ? n + 1 : n;
	}
	PCacheMediaMergeRanges(&report->bad);
}

/* Put the DIMMs in a list of "id:unsafe shutdowns" into the report. */
static void
SetDimms(PCacheMediaReport *report, const char *list)
{
	const char *next = list;

	report->n_dimms = 0;
	report->dimms_state = PCACHE_MEDIA_CLEAN;
	while (*next != '\0')
	{
		char		id[PCACHE_DIMM_ID_LEN];
		long long	count;
		int			n = 0;

		if (sscanf(next, "%39[^:]:%lld%n", id, &count, &n) != 2 ||
			(next[n] != ',' && next[n] != '\0'))
			elog(FATAL, "invalid pcache_inject.dimms: \"%s\"", list);
		PCacheMediaAddDimm(report, id, id, count, 0);
		next += next[n] == ',' ? n + 1 : n;
	}
}

/* Replace what is known of bad blocks and of DIMMs. */
void
pcache_inject_media(const char *name, const void *private_data, void *arg)
{
	PCacheMediaReport *report = arg;

	if (bad_blocks[0] != '\0')
	{
		report->blocks = PCACHE_MEDIA_BAD;
		AddBadBlocks(report, bad_blocks);
	}

	if (dimms[0] != '\0')
		SetDimms(report, dimms);

	if (strcmp(media, "unknown") == 0)
	{
		report->blocks = PCACHE_MEDIA_UNKNOWN;
		snprintf(report->blocks_why, sizeof(report->blocks_why),
				 "a test says so");
	}
	else if (strcmp(media, "clean") == 0)
		report->blocks = PCACHE_MEDIA_CLEAN;
	else if (strcmp(media, "truncated") == 0)
	{
		report->blocks = PCACHE_MEDIA_BAD;
		report->bad.truncated = true;
	}
	else if (media[0] != '\0')
		elog(FATAL, "invalid pcache_inject.media: \"%s\"", media);
}

static void
AttachInjectionPoints(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	if (IsUnderPostmaster)
		return;
#ifndef USE_INJECTION_POINTS
	elog(FATAL, "injection points are not supported by this build");
#else
	InjectionPointAttach("persistent-cache-media", "pcache_inject",
						 "pcache_inject_media", NULL, 0);
	if (crash_at[0] != '\0')
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
	DefineCustomStringVariable("pcache_inject.media",
							   "What is known of bad blocks: clean, unknown or truncated.",
							   "Empty for what the query found.",
							   &media,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.bad_blocks",
							   "Bad ranges of the pool file, as offset:length,offset:length in bytes.",
							   NULL,
							   &bad_blocks,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.dimms",
							   "DIMMs below the pool, as id:count,id:count with their counts of unsafe shutdowns.",
							   "Empty for what the query found.",
							   &dimms,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	MarkGUCPrefixReserved("pcache_inject");

	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = AttachInjectionPoints;
}
