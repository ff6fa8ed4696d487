/*-------------------------------------------------------------------------
 *
 * pcache_death.c
 *	  Notice how processes die.
 *
 * A process that dies of a fault may have overwritten shared buffers before, so the
 * next start must be cold, whether or not the postmaster has survived.  Nothing but
 * SIGKILL is proof that a process did not do so.
 *
 * Such a process leaves a note in the pool itself, unless another library has set a
 * handler for the signal.  The postmaster tells in its log how the first process ended
 * for which it begins anew.  We read that in a hook, and leave the note then.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_death.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

#define ALTERNATE_STACK_SIZE	65536

/* INT_MAX, which is no PID, in digits */
#define NO_PID					2147483647

/* What no process that is in order dies of. */
static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGSYS};
static struct sigaction server_actions[lengthof(fault_signals)];

static emit_log_hook_type prev_emit_log_hook = NULL;

/* Its last message was that a process was killed. */
static bool was_killed = false;

/* The server begins anew, or gives up, because a process was killed. */
static bool is_explained = false;

/* From a signal handler as well. */
static void
NoteDeath(int signal, int pid)
{
	if (PCacheStart.in_use && PCacheThePool.map.base != NULL)
		PCacheSuspectStore(&PCacheThePool.map, signal, pid);
}

/* Nobody has said how a process ended.  If there is a note, that says more. */
static void
NoteDeathUnlessKnown(void)
{
	PCacheSuspect known;

	PCacheSuspectRead(PCacheThePool.fd, &known);
	if (known.died == 0)
		NoteDeath(0, MyProcPid);
}

/*
 * The kernel has found memory of the pool that cannot be read.  No start must use it
 * again.  On hugetlbfs a whole huge page is lost.
 */
static void
NoteMemoryError(const siginfo_t *info)
{
	const PCacheMapping *map = &PCacheThePool.map;
	const char *address = info->si_addr;
	uint64		size = Max((uint64) 1 << Min(info->si_addr_lsb, 30), BLCKSZ);
	uint64		offset;

	if ((info->si_code != BUS_MCEERR_AR && info->si_code != BUS_MCEERR_AO) ||
		map->base == NULL || address < map->base || address >= map->base + map->length)
		return;
	offset = address - map->base;
	offset -= offset % size;
	if (offset > 0)
		(void) PCacheNoteMemoryError(map, offset, size);
}

/*
 * Was the signal raised by the instruction that was interrupted, and not sent by a
 * process, nor by the kernel for another reason?
 */
static bool
IsRaisedByCpu(int signo, const siginfo_t *info)
{
	return info->si_code > 0 && signo != SIGSYS &&
		!(signo == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

/* Leave the note, and then do what would have been done without us. */
static void
HandleFault(int signo, siginfo_t *info, void *context)
{
	int			i = 0;

	NoteDeath(signo, getpid());
	if (signo == SIGBUS)
		NoteMemoryError(info);
	while (fault_signals[i] != signo)
		i++;
	(void) sigaction(signo, &server_actions[i], NULL);

	/*
	 * What the CPU has raised comes once more when we return.  Then the
	 * kernel's log and the core say where, as they would without us.
	 */
	if (!IsRaisedByCpu(signo, info))
		(void) raise(signo);	/* it is blocked until we have returned */
}

/*
 * Does the postmaster's message say that a process was ended by this signal?  Returns its
 * PID then, or 0.  The text must be what the translated message makes of it, with any
 * name of a process and any PID.
 */
static int
PidInMessage(const ErrorData *edata, int signal)
{
	char	   *expected = psprintf(dgettext(edata->domain, edata->message_id), "\1", NO_PID,
									signal, pg_strsignal(signal));
	const char *name = strchr(expected, '\1');
	const char *number = strstr(expected, CppAsString2(NO_PID));
	const char *message = edata->message;
	int			pid = 0;

	if (name != NULL && number > name && strncmp(message, expected, name - expected) == 0)
	{
		const char *after = number + strlen(CppAsString2(NO_PID));
		const char *end = message + strlen(message) - strlen(after);
		const char *digits = end;
		size_t		between = number - (name + 1);

		while (digits > message && isdigit((unsigned char) digits[-1]))
			digits--;
		if (end > message && strcmp(end, after) == 0 && digits < end &&
			digits - message >= (name - expected) + between &&
			strncmp(digits - between, name + 1, between) == 0)
			pid = atoi(digits);
	}
	pfree(expected);
	return pid;
}

/*
 * What does the postmaster say of the end of a process?  It says how the first one
 * ended that it begins anew for, and then that it does.  How others end, it does not say.
 */
static void
LookAtEnd(const ErrorData *edata)
{
	static const char *const signaled = "%s (PID %d) was terminated by signal %d: %s";
	static const char *const begins_anew = "terminating any other active server processes";
	static const char *const gives_up = "aborting startup due to startup process failure";
	bool		just_killed = was_killed;
	const char *id = edata->message_id;
	int			pid = 0;
	int			signal = 0;

	was_killed = false;
	if (id == NULL)
		return;
	if (strcmp(id, signaled) == 0)
	{
		while (pid == 0 && ++signal < NSIG)
			pid = PidInMessage(edata, signal);
		was_killed = pid != 0 && signal == SIGKILL;
		if (!was_killed)
			NoteDeath(pid != 0 ? signal : 0, pid != 0 ? pid : MyProcPid);
	}
	else if (strcmp(id, begins_anew) == 0 || strcmp(id, gives_up) == 0)
	{
		is_explained = true;
		if (!just_killed)
			NoteDeathUnlessKnown();
	}
}

/*
 * A PANIC may have been caused by what is in shared memory, and so may an error that ends
 * replay.
 */
static void
LookAtMessage(ErrorData *edata)
{
	if (edata->elevel == PANIC || (edata->elevel == FATAL && AmStartupProcess()))
		NoteDeath(0, MyProcPid);
	else if (!IsUnderPostmaster && edata->message != NULL)
		LookAtEnd(edata);
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

/*
 * The postmaster is about to begin anew, or to give up, because of the end of a process.
 * Unless it has seen which, nobody knows how that has ended.
 */
void
PCacheNoteCrash(void)
{
	if (!is_explained)
		NoteDeathUnlessKnown();
}

/* The postmaster begins, or begins anew. */
void
PCacheForgetDeaths(void)
{
	is_explained = was_killed = false;
}

/*
 * To be called once, while the server preloads libraries.  Children inherit the handlers,
 * and the stack that they run on, as the process's own may have overflowed.
 */
void
PCacheWatchDeaths(void)
{
	static char alternate_stack[ALTERNATE_STACK_SIZE];
	stack_t		stack = {.ss_sp = alternate_stack,.ss_size = sizeof(alternate_stack)};
	struct sigaction action = {.sa_sigaction = HandleFault,.sa_flags = SA_SIGINFO | SA_ONSTACK};

	(void) sigaltstack(&stack, NULL);
	for (int i = 0; i < lengthof(fault_signals); i++)
		(void) sigaction(fault_signals[i], &action, &server_actions[i]);
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = LookAtMessage;
}
