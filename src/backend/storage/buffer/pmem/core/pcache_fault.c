/*-------------------------------------------------------------------------
 *
 * pcache_fault.c
 *	  A process that dies of a fault notes that in the pool itself.
 *
 * The postmaster notes it as well, but may be killed before it hears of the
 * death, together with all other processes, as by "kill -9" or by the OOM killer
 * that ends a whole control group.  Then the next start would know nothing of
 * the fault, and keep pages that may have been overwritten.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_fault.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/pcache_core.h"

/* Without SIGBUS, which pcache_sigbus.c catches.  See IsFault(). */
static const int fault_signals[] = {
	SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT
};

/*
 * SA_RESETHAND has restored the default action already, so that a fault that we
 * run into here ends the process as well.
 *
 * An instruction that has failed fails again when we return, so that a core
 * file tells the address.  Anything else has to be sent once more.
 */
static void
HandleFault(int signo, siginfo_t *info, void *context)
{
	bool		recurs = info->si_code > 0 &&
		(signo == SIGSEGV || signo == SIGILL || signo == SIGFPE);
	int			save_errno = errno;

	/* not one that an extension has forked, which is nobody's child */
	if (MyProcPid == getpid())
		PCacheNoteOwnFault(signo);
	errno = save_errno;
	if (!recurs)
		raise(signo);			/* once we have returned */
}

/*
 * Called by each child of the postmaster when it starts.  A signal that the
 * process catches itself later, as backends do with SIGFPE, does not end it.
 */
void
PCacheCatchFaults(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = HandleFault;
	action.sa_flags = SA_SIGINFO | SA_RESETHAND;
	/* or the handler of a SIGQUIT that comes at the same time ends us first */
	sigfillset(&action.sa_mask);
	for (int i = 0; i < lengthof(fault_signals); i++)
	{
		if (sigaction(fault_signals[i], &action, NULL) < 0)
			elog(FATAL, "could not set handler for signal %d: %m", fault_signals[i]);
	}
}
