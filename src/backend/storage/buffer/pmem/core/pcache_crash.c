/*-------------------------------------------------------------------------
 *
 * pcache_crash.c
 *	  Did a process die in a way that makes shared buffers suspect?
 *
 * The postmaster asks this of each child that died, and the child itself when
 * it catches the signal.  SIGKILL comes from
 * outside, and SIGQUIT from the postmaster; neither says anything of what the
 * process had done.  A fault says that it had used a wrong address or had lost
 * its way, and nobody knows for how long.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_crash.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <sys/wait.h>

#include "miscadmin.h"
#include "storage/pcache_core.h"
#include "storage/pcache_suspect.h"

/*
 * Say in shared memory that this process is about to die of a signal for a
 * reason that casts no doubt on shared buffers.  If there is no room left the
 * death counts as a fault.
 *
 * Can be called from a signal handler.
 */
void
PCacheExplainDeath(int signal)
{
	for (int i = 0; i < PCACHE_MAX_EXPLAINED; i++)
	{
		uint64		expected = 0;

		if (pg_atomic_compare_exchange_u64(&PCacheCtl->explained[i], &expected,
										   PCacheSuspectDeath(signal, MyProcPid)))
			return;
	}
}

/*
 * This process has reported a PANIC, and is about to abort().  That was the
 * server's own decision, most often for want of disk space.  What else calls
 * abort() is a failed assertion, or the C library that has found its heap
 * destroyed.
 */
void
PersistentCachePanicking(void)
{
	if (PCacheCtl != NULL)
		PCacheExplainDeath(SIGABRT);
}

/* Take back what a dead process has said, and tell whether it had. */
static bool
WasExplained(int signal, int pid)
{
	for (int i = 0; i < PCACHE_MAX_EXPLAINED; i++)
	{
		uint64		expected = PCacheSuspectDeath(signal, pid);

		if (pg_atomic_compare_exchange_u64(&PCacheCtl->explained[i], &expected, 0))
			return true;
	}
	return false;
}

/* Has this process said that it is about to die of this signal? */
static bool
IsExplained(int signal)
{
	for (int i = 0; i < PCACHE_MAX_EXPLAINED; i++)
	{
		if (pg_atomic_read_u64(&PCacheCtl->explained[i]) ==
			PCacheSuspectDeath(signal, MyProcPid))
			return true;
	}
	return false;
}

static bool
IsFault(int signal, int pid)
{
	switch (signal)
	{
		case SIGSEGV:
		case SIGILL:
		case SIGFPE:
		case SIGTRAP:
		case SIGSYS:
			return true;
		case SIGBUS:			/* see pcache_sigbus.c */
		case SIGABRT:
			return !WasExplained(signal, pid);
		default:
			return false;
	}
}

/*
 * Note in the pool, durably, that a process died of a fault, or is about to.
 *
 * Can be called from a signal handler.
 */
static void
NoteFault(int signal, int pid)
{
	PCacheSuspect note;

	/*
	 * Memory that is lost, or was cut off, would be our own SIGBUS.  If the
	 * place of the note cannot be read at the next start that is cold anyway.
	 */
	if (PCacheCtl->health.suspect_bad ||
		!PCacheReadExact(PCacheThePool.fd, &note, sizeof(note), PCACHE_SUSPECT_OFFSET))
		return;
	PCacheSuspectStore(&PCacheThePool.map, signal, pid);
}

/*
 * This process has caught a signal that is going to end it, see
 * pcache_fault.c.  It does not rely on the postmaster, who may be killed
 * before it hears of the death.
 *
 * Called from a signal handler.
 */
void
PCacheNoteOwnFault(int signal)
{
	if (PCacheCtl != NULL && !IsExplained(signal))
		NoteFault(signal, MyProcPid);
}

/*
 * A child died with this exit status, as waitpid() gave it.  If it may have
 * overwritten pages the pool says so durably when we return, so that the next
 * start is cold whatever becomes of us.
 *
 * Called by the postmaster for each child that did not exit in order, also if
 * others died before it and while the server is shut down; and by the checkpointer
 * for those that helped it to save.  Takes no lock.
 */
void
PersistentCacheChildDied(int pid, int exitstatus)
{
	if (PCacheCtl != NULL && WIFSIGNALED(exitstatus) &&
		IsFault(WTERMSIG(exitstatus), pid))
		NoteFault(WTERMSIG(exitstatus), pid);
}
