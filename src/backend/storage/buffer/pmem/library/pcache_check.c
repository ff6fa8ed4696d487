/*-------------------------------------------------------------------------
 *
 * pcache_check.c
 *	  A start after a loss of power: which entries still have their pages?
 *
 * All pages that have an entry with a sum are read, by short-lived processes, because
 * reading is what takes time.  The postmaster waits for them.  It has no child yet, and
 * nobody is told of theirs.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "utils/timestamp.h"

/* What a process claims at once, 32 MB of pages, and how many are worth one more. */
#define SLOTS_PER_CLAIM		4096
#define SLOTS_PER_PROCESS	16384

#define MAX_DEFAULT_PROCESSES	8

/* How often to look whether all is done, in microseconds, and to tell, in seconds. */
#define WAIT_INTERVAL		2000
#define PROGRESS_INTERVAL	10

/* What the processes share. */
typedef struct CheckProgress
{
	pg_atomic_uint32 next;		/* slot that nobody has claimed */
	pg_atomic_uint32 checked;	/* slots */
	pg_atomic_uint32 fit;		/* entries that stay */
} CheckProgress;

static int
CountProcesses(uint32 nslots)
{
	int			processors = 1;
	cpu_set_t	set;

	if (pcache_workers >= 0)
		return Max(pcache_workers, 1);
	/* fails if the host may have more than fit into the set */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		processors = CPU_COUNT(&set);
	return Max(Min(Min(processors, MAX_DEFAULT_PROCESSES), nslots / SLOTS_PER_PROCESS), 1);
}

/* Check entries as long as there are any that nobody has claimed. */
static void
CheckEntries(const PCachePool *pool, const PCacheSuperblock *sb, uint64 generation,
			 uint32 nslots, CheckProgress *progress)
{
	PCacheDescriptor *ledger = PCacheLedgerOf(pool);
	uint32		first;

	while ((first = pg_atomic_fetch_add_u32(&progress->next, SLOTS_PER_CLAIM)) < nslots)
	{
		uint32		end = Min(first + SLOTS_PER_CLAIM, nslots);
		uint32		fit = 0;

		for (uint32 slot = first; slot < end; slot++)
		{
			PCacheDescriptor entry = ledger[slot];

			PCacheCheckSums(pool->fd, sb, generation, slot, 1, &entry);
			if (memcmp(&entry, &ledger[slot], sizeof(entry)) != 0)
			{
				ledger[slot] = entry;
				PCacheFlush(&pool->map, &ledger[slot], sizeof(entry));
			}
			fit += PCacheSeqIsSealed(entry.seq);
		}
		(void) PCacheDrain(&pool->map);
		pg_atomic_fetch_add_u32(&progress->fit, fit);
		pg_atomic_fetch_add_u32(&progress->checked, end - first);
	}
}

/* Say how far the processes have come, if it is time to. */
static void
TellProgress(CheckProgress *progress, uint32 nslots, TimestampTz *told)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(*told, now, PROGRESS_INTERVAL * 1000))
		return;
	*told = now;
	ereport(LOG,
			(errmsg("persistent cache: power was lost; checked %u of %u slots of the pool",
					pg_atomic_read_u32(&progress->checked), nslots)));
}

/* Wait for n processes.  Returns false if one did not end as it should. */
static bool
WaitForProcesses(const pid_t *pids, int n, CheckProgress *progress, uint32 nslots)
{
	TimestampTz told = GetCurrentTimestamp();
	bool		ok = true;

	for (int i = 0; i < n; i++)
	{
		int			status = 0;
		pid_t		ended;

		while ((ended = waitpid(pids[i], &status, WNOHANG)) == 0 ||
			   (ended < 0 && errno == EINTR))
		{
			pg_usleep(WAIT_INTERVAL);
			TellProgress(progress, nslots, &told);
		}
		ok = ok && ended == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	return ok;
}

/*
 * Power was lost while the pool's server ran: free the entries whose pages are not there
 * as they were.  From here on the pool is one that was saved, for pg_control as it is, as
 * PCacheSavePostMortem() has it.  The caller has mapped the pool, and nobody uses it.
 * Returns false with err filled in.
 */
bool
PCacheSaveWhatFits(PCachePool *pool, PCacheSuperblock *sb, const ControlFileData *control,
				   PCacheError *err)
{
	uint64		generation = PCacheLedgerGeneration(sb, control);
	uint32		nslots = sb->slots_used;
	int			nprocesses = CountProcesses(nslots);
	pid_t		pids[PCACHE_MAX_WORKERS];
	int			n = 0;
	CheckProgress *progress = mmap(NULL, sizeof(CheckProgress), PROT_READ | PROT_WRITE,
								   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool		done;

	if (progress == MAP_FAILED)
		return PCacheSetError(err, _("could not map anonymous shared memory: %m"));
	pg_atomic_init_u32(&progress->next, 0);
	pg_atomic_init_u32(&progress->checked, 0);
	pg_atomic_init_u32(&progress->fit, 0);

	while (n < nprocesses && (pids[n] = fork()) >= 0)
	{
		if (pids[n++] == 0)
		{
			/* the postmaster must not leave anybody behind */
			if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != MyProcPid)
				_exit(1);
			CheckEntries(pool, sb, generation, nslots, progress);
			_exit(0);
		}
	}
	/* without any, this process has to do it */
	if (n == 0)
		CheckEntries(pool, sb, generation, nslots, progress);
	done = WaitForProcesses(pids, n, progress, nslots) &&
		pg_atomic_read_u32(&progress->checked) == nslots;
	/* from now on it is a loss of power in this boot that matters */
	(void) PCacheReadBootId(sb->boot_id);
	if (done)
		PCacheSuperblockSetClean(sb, control, pg_atomic_read_u32(&progress->fit));
	munmap(progress, sizeof(CheckProgress));
	if (!done)
		return PCacheSetError(err, _("a process that checks persistent cache pool \"%s\" has failed"),
							  pool->path);
	if (PCacheSuperblockStore(&pool->map, sb))
		return true;
	return PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"), pool->path);
}
