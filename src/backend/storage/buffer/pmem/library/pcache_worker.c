/*-------------------------------------------------------------------------
 *
 * pcache_worker.c
 *	  A background worker: says that the server is ready, allocates a new pool, and
 *	  watches the cluster in mode always.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pg_shmem.h"
#include "utils/guc.h"

/* How often to look whether the server is ready, in milliseconds. */
#define READY_INTERVAL		100

/* How much is allocated before we look whether to stop, in bytes. */
#define ALLOCATE_AT_ONCE	((uint64) 16 * 1024 * 1024)

/*
 * Is the server ready, as pg_ctl means that?  Without hot_standby that is so once
 * recovery has begun.
 */
static bool
IsReady(void)
{
	if (!RecoveryInProgress() || HotStandbyActive())
		return true;
	if (!EnableHotStandby)
	{
		ControlFileData control;

		return PCacheReadControl(&control) && control.state == DB_IN_ARCHIVE_RECOVERY;
	}
	return false;
}

/*
 * Is the worker to end?  If the postmaster has died, nobody tells it, and as long as it
 * lives the next server waits for the pool.
 */
static bool
IsAskedToStop(void)
{
	return ShutdownRequestPending != 0 || !PostmasterIsAlive();
}

/* With a status that has the postmaster start the worker again, unless it stops. */
static void
ExitIfRequested(void)
{
	if (IsAskedToStop())
		proc_exit(1);
}

/*
 * Is the pool marked as ready?  If not, mark it once the server has become so with what was
 * kept: the next start need not be careful.
 */
static bool
IsMarkedReady(void)
{
	PCacheSuperblock *sb = &PCacheLibrary->superblock;

	if (sb->starts_from != 0 && IsReady())
	{
		sb->starts_from = 0;
		(void) PCacheStoreOrTell();
	}
	return sb->starts_from == 0;
}

/*
 * Allocate what the file of a new pool lacks.  If the file system has no room, a store to a
 * buffer may end with SIGBUS, as it would on any file system that is too full, so
 * everybody is told.  That is why it does not wait until the server is ready.
 *
 * If there is not enough memory, the kernel would kill somebody for it.  Then the rest is
 * left to be allocated when it is used, as the buffers of an unpatched server are.
 * Returns whether all is allocated.
 */
static bool
AllocatePool(PCachePool *pool)
{
	PCacheError err;

	if (!PCachePoolHasHoles(pool))
		return true;
	for (uint64 at = 0; at < pool->file_size; at += ALLOCATE_AT_ONCE)
	{
		(void) IsMarkedReady();
		PCacheWatch();
		if (!PCachePoolHasMemory(pool, pool->file_size, &err))
		{
			ereport(WARNING,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("not all of persistent cache pool \"%s\" is allocated: %s",
							pool->path, err.message),
					 errdetail("A buffer takes memory when it is first used, as without the persistent cache."),
					 errhint_internal("%s", err.hint)));
			return false;
		}
		if (PCachePoolAllocate(pool, at, Min(ALLOCATE_AT_ONCE, pool->file_size - at), &err))
			continue;
		ExitIfRequested();
		PCacheReportError(WARNING, &err);
		return false;
	}
	ereport(LOG,
			(errmsg("persistent cache: allocated pool \"%s\"", pool->path)));
	return true;
}

static void
WaitFor(long milliseconds)
{
	PCacheWaitAndWatch(milliseconds);
	ResetLatch(MyLatch);
	ExitIfRequested();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/*
 * To be asked between the steps of PCachePoolUseHugePages().  Where the pool was in small
 * pages, that is a new one while sessions have begun to use it, each step copies
 * pages and takes them from these sessions for a moment.  So we rest three times as
 * long as the last one took.
 */
static bool
RestBetweenSteps(void)
{
	static instr_time step_began;
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(elapsed);
	if (!INSTR_TIME_IS_ZERO(step_began))
	{
		INSTR_TIME_SUBTRACT(elapsed, step_began);
		if (INSTR_TIME_GET_MILLISEC(elapsed) >= 1)
			WaitFor(3 * INSTR_TIME_GET_MILLISEC(elapsed));
	}
	PCacheWatch();
	INSTR_TIME_SET_CURRENT(step_began);
	return IsAskedToStop();
}

/* Say how much memory there is of which kind. */
static void
TellMemory(const PCachePool *pool)
{
	bool		is_huge = pool->huge_pages || pool->fs_kind == PCACHE_FS_HUGETLBFS;
	int			reserved = (Size) NBuffers * BLCKSZ >> 20;
	int			rest = atoi(GetConfigOption("shared_memory_size", false, false)) - reserved;

	ereport(LOG,
			(errmsg("persistent cache: the pool has %llu MB on %s, %s; the rest of shared memory has %d MB, %d MB of them in huge pages, and %d MB more are reserved and not used",
					(unsigned long long) (pool->file_size >> 20),
					PCacheFsKindName(pool->fs_kind),
					is_huge ? "all of them in huge pages" : "not all of them in huge pages",
					rest, (int) (PCacheStart.huge_bytes >> 20), reserved)));
}

/*
 * Whoever has asked the server for huge pages, or has reserved some for it, expects shared
 * buffers there.
 */
static void
TellHugePages(const PCachePool *pool)
{
	Size		buffers = (Size) NBuffers * BLCKSZ;
	PCacheHugePages pages;

	if (huge_pages == HUGE_PAGES_OFF || pool->fs_kind == PCACHE_FS_HUGETLBFS)
		return;
	if (huge_pages == HUGE_PAGES_ON && pool->fs_kind == PCACHE_FS_TMPFS && !pool->huge_pages)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("\"huge_pages\" is \"on\", but shared buffers are not all in huge pages, because persistent cache pool \"%s\" is not",
						pool->path),
				 errhint("Put the pool on hugetlbfs, or on a tmpfs that is mounted with huge=within_size.")));
	if (PCacheReadHugePages(huge_page_size, &pages) && pages.unused * pages.size_kb >= buffers / 1024)
		ereport(LOG,
				(errmsg("persistent cache: %llu MB are reserved in huge pages that nobody uses, as shared buffers lie in the pool",
						(unsigned long long) (pages.unused * pages.size_kb / 1024)),
				 errhint("Put the pool on hugetlbfs, which takes them, or reserve fewer with vm.nr_hugepages.")));
}

/*
 * The postmaster has told how it starts before there was a process that collects the log,
 * so it told that where nobody may look.
 */
static void
TellAgain(void)
{
	if (PCacheLibrary == NULL || !PCacheLibrary->tell_again)
		return;
	PCacheLibrary->tell_again = false;
	if (PCacheStart.in_use)
		PCacheLogStart();
	else
		PCacheLogWithout();
}

void
pg_pcache_worker_main(Datum arg)
{
	bool		is_complete;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (PCacheLibrary == NULL)
		ereport(WARNING,
				(errmsg_internal("%s", PCacheWhyUnavailable()),
				 errdetail("The server runs without the persistent cache."),
				 errhint("Put \"pg_pcache\" at the end of \"shared_preload_libraries\".")));
	TellAgain();
	if (!PCacheStart.in_use)
		proc_exit(0);
	PCacheBeginWatch();
	PCachePoolInterrupted = IsAskedToStop;
	PCacheGiveHeadersBack();
	is_complete = AllocatePool(&PCacheThePool);
	while (!IsMarkedReady())
	{
		(void) PCacheListPages(PCacheWatchedControl(), READY_INTERVAL);
		WaitFor(READY_INTERVAL);
	}
	PCachePoolInterrupted = RestBetweenSteps;
	/* a huge page would have memory for buffers that nobody uses */
	if (is_complete)
		(void) PCachePoolUseHugePages(&PCacheThePool);
	TellMemory(&PCacheThePool);
	TellHugePages(&PCacheThePool);
	for (;;)
		WaitFor(PCacheListPages(PCacheWatchedControl(), pcache_worker_delay) ? pcache_worker_delay : 0);
}

/*
 * Tell in which file the postmaster's children find the worker: that which this is, which
 * need not be in dynamic_library_path.
 *
 * Servers before 17 have no room for a long path.  The children inherit the postmaster's files,
 * and the server takes what is the same file for the library that is loaded already.
 */
static void
NameLibrary(char *name, size_t size)
{
	Dl_info		info;
	int			fd;

	if (dladdr((void *) pg_pcache_worker_main, &info) == 0)
		strlcpy(name, "pg_pcache", size);
	else if (strlcpy(name, info.dli_fname, size) >= size)
	{
		/* not closed, as long as the server lives */
		fd = open(info.dli_fname, O_PATH | O_CLOEXEC);
		if (fd >= 0)
			snprintf(name, size, "/proc/self/fd/%d", fd);
		else
			strlcpy(name, "pg_pcache", size);
	}
}

/*
 * Have the postmaster start the worker, and after a crash restart again.  From
 * _PG_init() only.
 */
void
PCacheRegisterWorker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 1;
	NameLibrary(worker.bgw_library_name, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_pcache_worker_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "persistent cache", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "persistent cache", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

/*
 * Is there a worker?  A server with too few slots for workers just does without, and
 * then nobody would allocate the pool.  Asked when all libraries are preloaded.
 */
bool
PCacheWorkerIsRegistered(PCacheError *err)
{
	PCacheWorkerIter iter;

	PCacheForEachWorker(iter)
	{
		if (strcmp(PCacheWorkerOf(iter)->rw_worker.bgw_function_name, "pg_pcache_worker_main") == 0)
			return true;
	}
	PCacheSetError(err, _("there is no slot for the background worker of the persistent cache"));
	return PCacheSetHint(err, _("Increase \"max_worker_processes\"."));
}
