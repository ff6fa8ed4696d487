/*-------------------------------------------------------------------------
 *
 * memory_error.c
 *	  Memory of the pool that cannot be read any more.
 *
 * Functions to be created in SQL, for any server with the library pg_pcache:
 *		memory_error(buffer int4) returns void
 *			This process gets the signal that the kernel sends to whoever meets a
 *			memory error in the page of that buffer.
 *		memory_poison(buffer int4) returns text
 *			The kernel treats the second half of that page as damaged, which takes
 *			CAP_SYS_ADMIN and CONFIG_MEMORY_FAILURE.  Returns why it did not.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/memory_error/memory_error.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

static char *
PageOf(int buffer)
{
	if (buffer < 1 || buffer > NBuffers)
		elog(ERROR, "there is no buffer %d", buffer);
	return (char *) BufferGetBlock(buffer);
}

PG_FUNCTION_INFO_V1(memory_error);

Datum
memory_error(PG_FUNCTION_ARGS)
{
	siginfo_t	info = {0};

	info.si_signo = SIGBUS;
	info.si_code = BUS_MCEERR_AR;
	info.si_addr = PageOf(PG_GETARG_INT32(0)) + 64;
	info.si_addr_lsb = 12;

	/*
	 * a process may send itself any of these; it meets the error until it
	 * dies of it
	 */
	while (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info) == 0)
		;
	elog(ERROR, "could not send a signal: %m");
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(memory_poison);

Datum
memory_poison(PG_FUNCTION_ARGS)
{
	char	   *half = PageOf(PG_GETARG_INT32(0)) + BLCKSZ / 2;

#ifdef MADV_HWPOISON
	/* it has to be mapped */
	(void) *(volatile char *) half;
	if (madvise(half, BLCKSZ / 2, MADV_HWPOISON) == 0)
		PG_RETURN_TEXT_P(cstring_to_text(""));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("madvise: %m")));
#else
	PG_RETURN_TEXT_P(cstring_to_text("MADV_HWPOISON is not supported"));
#endif
}
