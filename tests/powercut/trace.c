/*-------------------------------------------------------------------------
 *
 * trace.c
 *	  Tell the shim of each store to a part of the pool, as it happens.
 *
 * The part is mapped read-only.  A store to it ends in SIGSEGV, whose handler
 * makes that page writable and has the processor trap after one instruction;
 * the handler of SIGTRAP takes the permission away again, and tells.  So what
 * is seen is what the compiler, or libpmem, has made of the program: stores
 * of the size and in the order in which they are made.
 *
 * Each process has permissions of its own, so one that stores elsewhere on the
 * page at the same time is seen as well.
 *
 * x86-64 only.  Handlers that the program sets for the two signals are put aside,
 * and get those signals that come from elsewhere.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/trace.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "powercut.h"

#ifdef __x86_64__

#define TRAP_FLAG		0x100
#define PAGE			4096

static char *start;
static size_t length;
static void (*tell) (const void *addr);

/* What the next trap is for. */
static char *stored;

/* What the program would have done with SIGSEGV and SIGTRAP. */
static struct sigaction theirs[2];
static int	(*real_sigaction) (int, const struct sigaction *, struct sigaction *);

static void
give_up(const char *why)
{
	(void) !write(STDERR_FILENO, why, __builtin_strlen(why));
	abort();
}

static void
permit(const char *addr, int prot)
{
	if (mprotect((void *) ((uintptr_t) addr & ~(uintptr_t) (PAGE - 1)), PAGE, prot) != 0)
		give_up("powercut: mprotect() failed\n");
}

/* Takes the C library's place. */
int
sigaction(int sig, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction *kept = &theirs[sig == SIGTRAP];

	if (real_sigaction == NULL)
		real_sigaction = (__typeof__(real_sigaction)) dlsym(RTLD_NEXT, "sigaction");
	if (start == NULL || (sig != SIGSEGV && sig != SIGTRAP))
		return real_sigaction(sig, action, old);
	if (old != NULL)
		*old = *kept;
	if (action != NULL)
		*kept = *action;
	return 0;
}

/* Not ours: it comes again, and is for the program. */
static void
hand_over(int sig)
{
	(void) real_sigaction(sig, &theirs[sig == SIGTRAP], NULL);
}

static void
on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	char	   *addr = info->si_addr;

	if (info->si_code <= 0 || start == NULL || addr < start || addr >= start + length || stored != NULL)
	{
		hand_over(sig);
		/* one that somebody sent does not come again by itself */
		if (info->si_code <= 0)
			raise(sig);
		return;
	}
	stored = addr;
	permit(addr, PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void
on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	char	   *addr = stored;

	(void) info;
	uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t) TRAP_FLAG;
	if (addr == NULL)
	{
		hand_over(sig);
		raise(sig);				/* once we have returned */
		return;
	}
	permit(addr, PROT_READ);
	stored = NULL;
	tell(addr);
}

/* Have a function told of each store to [addr, addr + len), in this process
 * and in its children. */
void
trace_begin(char *addr, size_t len, void (*told) (const void *addr))
{
	struct sigaction action = {0};

	start = NULL;				/* so that these are set */
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	sigfillset(&action.sa_mask);
	action.sa_sigaction = on_fault;
	sigaction(SIGSEGV, &action, NULL);
	action.sa_sigaction = on_trap;
	sigaction(SIGTRAP, &action, NULL);
	start = addr;
	length = len;
	tell = told;
	if (mprotect(addr, len, PROT_READ) != 0)
		give_up("powercut: mprotect() failed\n");
}

/* Before the pool is unmapped. */
void
trace_end(void)
{
	if (start != NULL)
		(void) mprotect(start, length, PROT_READ | PROT_WRITE);
	start = NULL;
}

#else							/* !__x86_64__ */

void
trace_begin(char *addr, size_t len, void (*told) (const void *addr))
{
	(void) addr;
	(void) len;
	(void) told;
}

void
trace_end(void)
{
}

#endif
