/*-------------------------------------------------------------------------
 *
 * stranger.c
 *	  Another library beside pg_pcache.
 *
 * What it does when it is preloaded is in the environment variable STRANGER, which is
 * any of these words:
 *		startup		it sets shmem_startup_hook, and does not call that of others
 *		request		likewise with shmem_request_hook
 *		faults		it reports a SIGSEGV, as the kernel has told it
 *
 * A function to be created in SQL:
 *		stranger_fault() returns void
 *			This process stores to an address where nothing is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/stranger/stranger.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* Nobody is mapped there. */
static volatile int *const nowhere = (volatile int *) 0x1238;

static void
DoNothing(void)
{
}

static void
ReportFault(int signo, siginfo_t *info, void *context)
{
	struct sigaction action = {.sa_handler = SIG_DFL};

	write_stderr("stranger: signal %d of the %s at %p\n", signo,
				 info->si_code > 0 ? "CPU" : "process itself", info->si_addr);
	(void) sigaction(signo, &action, NULL);
	(void) raise(signo);
}

void
_PG_init(void)
{
	const char *words = getenv("STRANGER");
	struct sigaction action = {.sa_sigaction = ReportFault,.sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (words == NULL || !process_shared_preload_libraries_in_progress)
		return;
	if (strstr(words, "startup") != NULL)
		shmem_startup_hook = DoNothing;
	if (strstr(words, "request") != NULL)
		shmem_request_hook = DoNothing;
	if (strstr(words, "faults") != NULL)
		(void) sigaction(SIGSEGV, &action, NULL);
}

PG_FUNCTION_INFO_V1(stranger_fault);

Datum
stranger_fault(PG_FUNCTION_ARGS)
{
	*nowhere = 1;
	PG_RETURN_VOID();
}
