/*-------------------------------------------------------------------------
 *
 * pcache_save_helpers.c
 *	  Save all slots together with other processes.
 *
 * A save takes as long as flushing the pages to persistent memory does, 128
 * cache lines each, or fetching their headers, and one processor cannot make use
 * of all that memory can do.  When the checkpointer saves, the postmaster starts
 * no process any more, because it waits for the checkpointer to exit.  So the
 * checkpointer forks its helpers itself, and waits for them.
 *
 * A helper has inherited the mapping of the pool.  It takes no lock and allocates
 * no memory, and it ends without any of what the checkpointer does at its exit.
 *
 * Nobody else reads the pages, so a memory error that the save meets would
 * have stayed unknown.  It must not make a crash of a clean stop (rule "a
 * memory error does not make a stop a crash").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/stop/pcache_save_helpers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/fork_process.h"
#include "storage/ipc.h"
#include "storage/pcache_stop.h"
#include "storage/pmsignal.h"
#include "utils/injection_point.h"
#include "utils/ps_status.h"

/* A process claims 8 MB of pages at a time: some milliseconds. */
#define SLOTS_PER_CLAIM		1024

/* How often does the checkpointer look whether a helper has ended? */
#define WAIT_USEC			1000

/* As log_startup_progress_interval has it by default. */
#define SECONDS_PER_REPORT	10

PCacheSaveControl *PCacheSaveCtl = NULL;

/*
 * See PCacheSaveAll(): are free slots overwritten, how many slots are claimed, and
 * what LSN does no page exceed?
 */
static bool scrubs;
static uint32 n_slots;
static XLogRecPtr lsn_bound;

/* Tell from time to time how far a save has got that takes long. */
static void
ReportProgress(uint32 slot)
{
	static instr_time began;
	static int	reported = 0;
	instr_time	now;
	int			seconds;

	INSTR_TIME_SET_CURRENT(now);
	if (INSTR_TIME_IS_ZERO(began))
		began = now;
	INSTR_TIME_SUBTRACT(now, began);
	seconds = INSTR_TIME_GET_MILLISEC(now) / 1000;
	if (seconds < reported + SECONDS_PER_REPORT)
		return;
	reported = seconds;
	ereport(LOG,
			(errmsg("persistent cache: saving, slot %u of %u, elapsed time: %d s",
					slot, n_slots, seconds)));
}

/* Save n slots, and overwrite those that are free if the save does that. */
static bool
SaveClaim(uint32 first, uint32 n)
{
	uint64		saved;

	if (first < NBuffers)
	{
		if (!PCacheSaveSlots(first, Min(n, NBuffers - first), lsn_bound, &saved))
			return false;
		pg_atomic_fetch_add_u64(&PCacheSaveCtl->saved, saved);
	}
	if (scrubs)
		pg_atomic_fetch_add_u64(&PCacheSaveCtl->scrubbed, PCacheScrubSlots(first, n));
	return true;
}

/*
 * Save the slots that this process claims, until none is left, and drain: that is
 * only for what this process has flushed.  checkpointer is 0 in the checkpointer,
 * and its process ID in a helper, which looks whether it is still there.  The
 * checkpointer does not outlive the postmaster.
 */
static bool
SaveClaims(pid_t checkpointer)
{
	uint32		first;
	uint32		n;

	while ((n = PCacheClaimSlots(&PCacheSaveCtl->next_slot, n_slots,
								 SLOTS_PER_CLAIM, &first)) > 0)
	{
		if (!SaveClaim(first, n))
			return false;
		if (checkpointer == 0)
		{
			if (!PostmasterIsAlive())
			{
				PCacheMemoryErrorEscape = NULL;
				proc_exit(1);
			}
			ReportProgress(first);
		}
		else
		{
			INJECTION_POINT("persistent-cache-helper-saved", NULL);
			if (getppid() != checkpointer)
				return false;
		}
	}
	return PCacheDrain(&PCacheThePool.map);
}

/* What the checkpointer claims.  It goes on if it meets a memory error. */
static PCacheSaveResult
SaveOwnClaims(void)
{
	sigjmp_buf	escape;
	PCacheSaveResult result;

	if (sigsetjmp(escape, 1) == 0)
	{
		PCacheMemoryErrorEscape = &escape;
		INJECTION_POINT("persistent-cache-checkpointer-saves", NULL);
		result = SaveClaims(0) ? PCACHE_SAVED : PCACHE_SAVE_FAILED;
		PCacheMemoryErrorEscape = NULL;
	}
	else
	{
		PCacheMemoryErrorEscape = NULL;
		PersistentCacheInitChild();
		/* helpers need not go on with what begins anew */
		pg_atomic_write_u64(&PCacheSaveCtl->next_slot, n_slots);
		result = PCACHE_SAVE_AGAIN;
	}
	return result;
}

/*
 * What a helper does.
 *
 * It must not outlive the checkpointer, because it keeps the pool's lock, and may
 * be stopped or wait for memory.  Of the signals that fork_process() has blocked,
 * SIGQUIT is none: an immediate stop sends it to the checkpointer's process group.
 */
pg_noreturn static void
Help(pid_t checkpointer)
{
	/* an error must not run what the checkpointer does at its exit */
	on_exit_reset();
#ifdef __linux__
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != checkpointer)
		_exit(1);
#endif
	set_ps_display("saving the persistent cache");
	_exit(SaveClaims(checkpointer) ? 0 : 1);
}

/* Fork helpers, and note their process IDs.  Returns how many there are. */
static int
ForkHelpers(pid_t *helpers)
{
	pid_t		checkpointer = getpid();
	int			wanted;
	int			n = 0;

	/* each one's drain of a file would write back all of it */
	if (PCacheThePool.map.kind == PCACHE_PERSIST_FILE ||
		PCacheMedia.bad.n_ranges > 0)
		return 0;

	wanted = PCacheHelpersFor(NBuffers);
	while (n < wanted)
	{
		pid_t		pid = fork_process();

		if (pid == 0)
			Help(checkpointer);
		if (pid < 0)
		{
			ereport(LOG,
					(errmsg("persistent cache: could not fork a process that helps to save: %m")));
			break;
		}
		helpers[n++] = pid;
	}
	return n;
}

/*
 * Wait for a helper.  Returns whether all that it claimed is saved, durably.
 * If not, it may have overwritten pages before it died, see rule "the start
 * after a fault is cold".
 */
static bool
AwaitHelper(pid_t pid)
{
	int			status;
	pid_t		ended;

	/* it may be stopped, and not end before we do */
	while ((ended = waitpid(pid, &status, WNOHANG)) == 0)
	{
		if (!PostmasterIsAlive())
			proc_exit(1);
		pg_usleep(WAIT_USEC);
	}
	if (ended < 0)
	{
		ereport(LOG,
				(errmsg("persistent cache: could not wait for a process that helps to save: %m")));
		return false;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	PersistentCacheChildDied(pid, status);
	ereport(LOG,
			(errmsg("persistent cache: a process that helps to save has failed"),
			 errdetail_internal("%s", wait_result_to_str(status))));
	return false;
}

/*
 * Save all slots durably (rule "the checkpointer shares the save with
 * helpers"), without helpers if alone says so.  Sets *saved to how many pages
 * the next start may keep, and *nhelpers to how many processes were forked to
 * help.
 *
 * Free slots are overwritten by the way, those behind shared buffers included, if
 * the settings want it.  That is left out if the save begins anew (alone), because
 * a memory error in a slot that nobody needs must not cost the others.
 *
 * checkpoint is where the shutdown checkpoint of a primary is, else it is
 * InvalidXLogRecPtr.
 *
 * Called by the checkpointer, when nobody else uses a buffer any more.  If it is
 * told to do so again, it must first find out about bad blocks anew.
 */
PCacheSaveResult
PCacheSaveAll(bool alone, XLogRecPtr checkpoint, uint64 *saved, int *nhelpers)
{
	pid_t		helpers[PCACHE_MAX_WORKERS];
	PCacheSaveResult result;
	int			save_errno;

	pg_atomic_write_u64(&PCacheSaveCtl->next_slot, 0);
	pg_atomic_write_u64(&PCacheSaveCtl->saved, 0);
	pg_atomic_write_u64(&PCacheSaveCtl->scrubbed, 0);
	scrubs = !alone && PCacheScrubs();
	n_slots = scrubs ? PCacheCtl->superblock.capacity : NBuffers;
	/* pages that are flushed are read anyway */
	lsn_bound = PCacheThePool.map.kind == PCACHE_PERSIST_MEMORY ?
		checkpoint : InvalidXLogRecPtr;
	PCacheSaving = true;

	*nhelpers = alone ? 0 : ForkHelpers(helpers);
	if (*nhelpers > 0)
		INJECTION_POINT("persistent-cache-save-forked", NULL);
	result = SaveOwnClaims();
	save_errno = errno;
	for (int i = 0; i < *nhelpers; i++)
	{
		/* nobody knows which slots were claimed by one that has failed */
		if (!AwaitHelper(helpers[i]) && result == PCACHE_SAVED)
			result = PCACHE_SAVE_AGAIN;
	}
	PCacheSaving = false;
	errno = save_errno;
	*saved = pg_atomic_read_u64(&PCacheSaveCtl->saved);
	return result;
}
