/*-------------------------------------------------------------------------
 *
 * pcache_giveup.c
 *	  A start that is given up because the server is to be stopped.
 *
 * Startup process and postmaster have loops here that take seconds for a large
 * pool.  Both ask in them whether the server is to be stopped, and then leave
 * everything as if this start had not been tried.  README has the rules, in
 * "A stop during the start".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_giveup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/file_perm.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "postmaster/startup.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/pcache_start.h"

/* What the pool and PGDATA's record of it said before this start. */
static bool remembered = false;
static PCacheSuperblock superblock_before;
static PCacheRecord record_before;

/* Is the startup process asking whether the server is to be stopped? */
static bool asking = false;

/*
 * A pool that is to be kept is about to be adopted.  Remember what is going to
 * be changed by that.
 */
void
PCacheRememberPool(const PCacheSuperblock *sb, const PCacheRecord *record)
{
	superblock_before = *sb;
	record_before = *record;
	remembered = true;
}

/*
 * From here on the next start would not find in the pool what this one has
 * found.  If this start is given up the next one is cold.
 */
void
PCacheKeepPool(void)
{
	remembered = false;
}

/*
 * Make the pool again what it was when it was found: no page of it was used,
 * and of its descriptors only those have changed whose pages were dropped, and
 * would be dropped again.  If pages have been moved (pcache_move.c), each of
 * them is in one slot, durably.
 *
 * The record first: a crash between the two leaves incarnations that do not
 * match.  A failure leaves a pool that is in state "attaching", and that makes
 * the next start cold.
 */
static bool
GiveBackPool(void)
{
	PCacheSuperblock *sb = &PCacheCtl->superblock;
	uint64		generation;
	PCacheError err;
	bool		done;

	if (!remembered)
		return false;
	if (!PCacheRecordWrite(DataDir, pg_file_create_mode, &record_before, &err))
	{
		PCacheReportError(LOG, &err);
		return false;
	}
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	generation = sb->generation;
	*sb = superblock_before;
	sb->generation = generation;
	done = PCacheStoreSuperblock(LOG);
	LWLockRelease(PersistentCacheLock);
	return done;
}

/*
 * Called when the startup process exits.  If that is because the server is to be
 * stopped, while the startup process asked for that in a loop over slots, leave
 * everything as if this start had not been tried.
 */
static void
GiveUpAtExit(int code, Datum arg)
{
	bool		given_back;

	if (!asking || !IsStartupShutdownRequested())
		return;

	given_back = GiveBackPool();
	ereport(LOG,
			(errmsg("persistent cache: the start was given up, because the server is to be stopped"),
			 !given_back ? errdetail("The next start will be cold.") :
			 PCacheCtl->start.moved == 0 ? errdetail("The pool is as it was before.") :
			 errdetail_plural("%llu page of the pool has been moved to another slot.",
							  "%llu pages of the pool have been moved to other slots.",
							  PCacheCtl->start.moved,
							  (unsigned long long) PCacheCtl->start.moved)));
}

/*
 * Called by the startup process in loops over slots, while no page of the pool
 * is in use.  Does not return if the server is to be stopped.
 *
 * ProcessStartupProcInterrupts() alone decides about that.  A look of our own
 * before it would miss a signal that arrives between the two.
 */
void
PCacheStartInterrupts(void)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(GiveUpAtExit, 0);
	registered = true;

	asking = true;
	ProcessStartupProcInterrupts();
	asking = false;
}

/*
 * PCachePoolInterrupted for the postmaster, which has noted a signal but cannot
 * act on it before shared memory is there.
 */
bool
PCachePostmasterInterrupted(void)
{
	return PostmasterShutdownRequested();
}

/*
 * The pool cannot be used, for the reason given, and the server must not start
 * without it: it does not start.  If
 * that is only because it is to be stopped it is no failure.
 *
 * Called by the postmaster, while it creates shared memory.
 */
void
PCacheRefuseToStart(const PCacheError *err)
{
	if (PostmasterShutdownRequested())
	{
		ereport(LOG,
				(errmsg("persistent cache: the start was given up, because the server is to be stopped"),
				 errdetail_internal("%s", err->message)));
		proc_exit(0);
	}
	PCacheReportError(FATAL, err);
	pg_unreachable();
}
