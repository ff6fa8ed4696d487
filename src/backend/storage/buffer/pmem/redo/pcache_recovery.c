/*-------------------------------------------------------------------------
 *
 * pcache_recovery.c
 *	  How far recovery has to get before kept pages may be believed.
 *
 * Kept pages are of the moment of the crash, while recovery begins earlier.
 * Until it has come as far as they are, nobody may read them; and if it cannot
 * come that far, because WAL is lost or because it turns to a timeline that
 * forked off before, it must not go on with them.  README has the rules, in
 * "Recovery with kept pages".
 *
 * Two limits must not be taken for each other.  Up to redo_limit kept pages
 * lack no change, which pcache_redo.c checks.  Up to kept_limit they may have
 * changes, or hint bits that depend on commits.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/redo/pcache_recovery.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/timeline.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "storage/lwlock.h"
#include "storage/pcache_redo.h"

/* The startup process has not decided yet: anything may be kept. */
#define LIMIT_UNKNOWN	PG_UINT64_MAX

PCacheRecoveryControl *PCacheRecoveryCtl = NULL;

/* Was the server that left this pg_control replaying WAL, as a standby does? */
static bool
WasReplaying(const ControlFileData *control)
{
	return control->state == DB_IN_ARCHIVE_RECOVERY ||
		control->state == DB_SHUTDOWNED_IN_RECOVERY;
}

/*
 * Has a start allowed connections before a checkpoint, since the one in this
 * pg_control was completed?  Then redo has gone over the same WAL before.
 */
bool
PCacheReplaysAgain(const ControlFileData *control)
{
	return PCacheCtl->superblock.replayed_from == control->checkPoint;
}

/* For the postmaster, before it has children. */
void
PCacheRecoveryShmemInit(void)
{
	pg_atomic_init_u64(&PCacheRecoveryCtl->kept_limit, LIMIT_UNKNOWN);
}

/*
 * No page was kept: recovery goes as it does without the cache.
 */
void
PCacheNoRecoveryLimits(void)
{
	PCacheRecoveryCtl->redo_limit = InvalidXLogRecPtr;
	PCacheRecoveryCtl->kept_lsn = InvalidXLogRecPtr;
	pg_atomic_write_membarrier_u64(&PCacheRecoveryCtl->kept_limit, 0);
}

/*
 * Pages were kept.  control is pg_control as the pool's server left it on
 * disk, durable up to where WAL is known to be durable, kept_lsn the highest
 * LSN of a kept page, and timeline the one that recovery is going to follow.
 */
void
PCacheSetRecoveryLimits(const ControlFileData *control, XLogRecPtr durable,
						XLogRecPtr kept_lsn, TimeLineID timeline)
{
	bool		was_replaying = WasReplaying(control);

	/*
	 * On a primary what is logged was done.  A standby may have received more
	 * than it had replayed, whatever this start makes of it, and may have
	 * been replaying the record at minRecoveryPoint.
	 */
	PCacheRecoveryCtl->redo_limit = was_replaying ?
		Max(control->minRecoveryPoint, 1) - 1 : durable;
	PCacheRecoveryCtl->left_by_redo = !XLogRecPtrIsInvalid(control->minRecoveryPoint) ||
		PCacheReplaysAgain(control);

	PCacheRecoveryCtl->kept_lsn = kept_lsn;
	PCacheRecoveryCtl->kept_timeline = timeline;
	if (InArchiveRecovery && !XLogRecPtrIsInvalid(kept_lsn))
		PCacheRecoveryCtl->kept_timeline =
			tliOfPointInHistory(kept_lsn - 1, readTimeLineHistory(timeline));

	/*
	 * Hint bits may depend on any WAL that was durable; on a standby only on
	 * what is before minRecoveryPoint or before the page's own LSN.  A
	 * standby that goes on as one must not replay all that it had received
	 * before it answers: it may lag on purpose.
	 */
	if (was_replaying && ArchiveRecoveryRequested)
		durable = Max(control->minRecoveryPoint, kept_lsn);
	pg_atomic_write_membarrier_u64(&PCacheRecoveryCtl->kept_limit, durable);
}

/*
 * May kept pages be of a later time than what was replayed?  Then they are not
 * written to their files without need: pg_control would have to say that
 * recovery must get as far as they are.
 */
bool
PersistentCacheAheadOfReplay(void)
{
	return PCacheCtl != NULL &&
		pg_atomic_read_u64(&PCacheRecoveryCtl->kept_limit) != 0;
}

/*
 * Everything up to here was replayed.  Is that enough for kept pages?
 *
 * Called by the startup process in archive recovery, which must not declare
 * consistency before.
 */
bool
PersistentCacheConsistentAt(XLogRecPtr replayed)
{
	return PCacheCtl == NULL ||
		replayed >= pg_atomic_read_u64(&PCacheRecoveryCtl->kept_limit);
}

/* Redo is through with what kept pages contain: tell if it was not so. */
static void
ReportRedo(void)
{
	if (PCacheRecoveryCtl->redo_violations > 0)
		ereport(WARNING,
				(errmsg_plural("persistent cache: redo invariant violated %llu time",
							   "persistent cache: redo invariant violated %llu times",
							   PCacheRecoveryCtl->redo_violations,
							   (unsigned long long) PCacheRecoveryCtl->redo_violations),
				 errhint("Run pg_amcheck on this cluster, and report this.")));
}

/*
 * Recovery has reached a consistent state, or was not needed: kept pages did
 * not keep the server from starting, and are like any others from here on.
 */
void
PersistentCacheReachedConsistency(void)
{
	if (!PersistentCacheEnabled())
		return;

	pg_atomic_write_u64(&PCacheRecoveryCtl->kept_limit, 0);
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	if (PCacheCtl->superblock.state == PCACHE_STATE_ATTACHING)
	{
		PCacheCtl->superblock.state = PCACHE_STATE_DIRTY;
		/* should that fail, the media still say "attaching" */
		(void) PCacheStoreSuperblock(WARNING);
		ReportRedo();
	}
	LWLockRelease(PersistentCacheLock);
}

/*
 * During recovery a page with an LSN is about to be written, and pg_control is
 * going to say that recovery must get to *point, which is what is being
 * replayed now.  A kept page may be ahead of that.
 *
 * Any process, under ControlFileLock.
 */
void
PersistentCacheMinRecoveryPoint(XLogRecPtr page_lsn, XLogRecPtr *point,
								TimeLineID *timeline)
{
	if (PCacheCtl == NULL || page_lsn <= *point ||
		page_lsn > PCacheRecoveryCtl->kept_lsn)
		return;
	*point = PCacheRecoveryCtl->kept_lsn;
	*timeline = PCacheRecoveryCtl->kept_timeline;
}

/*
 * The WAL that is here ends at an LSN, as the end of the last record.  If
 * another record follows of which not all is there, incomplete is where the
 * first page that it needs is missing, otherwise invalid.
 *
 * Recovery is about to end there, or to turn to the archive or to another
 * server.  If WAL is damaged before that, recovery takes the damage for the
 * end, and the kept pages are of a later time: they have changes, and hint
 * bits, of transactions that are lost.  The pool is still in state "attaching",
 * so the server starts again without them.
 *
 * Called by the startup process, before anything is written on behalf of the
 * new life of the cluster.
 */
void
PersistentCacheRecoveryEnded(XLogRecPtr end, XLogRecPtr incomplete)
{
	XLogRecPtr	limit;

	if (!PersistentCacheEnabled())
		return;
	limit = pg_atomic_read_u64(&PCacheRecoveryCtl->kept_limit);
	if (Max(end, incomplete) < limit)
	{
		PCacheError err;

		PCacheSetError(&err, _("WAL ends at %X/%X, but it was durable up to %X/%X, and pages of the persistent cache contain changes from there"),
					   LSN_FORMAT_ARGS(end), LSN_FORMAT_ARGS(limit));
		PCacheSetHint(&err, _("WAL is damaged or missing.  If what comes after that must not be lost, restore the cluster from a backup and the WAL archive."));
		PCacheStartAgain(PCACHE_AGAIN_COLD, &err);
	}

	/* no page, and no commit, is in a record that is not complete */
	if (end < limit)
		pg_atomic_write_u64(&PCacheRecoveryCtl->kept_limit, end);
}

/*
 * The page with this LSN, which the next record needs, is not in the archive
 * or in pg_wal, and all before that record was replayed.  Invalid if it is not
 * known to be a page that is missing.  Returns true if that makes a difference
 * to PersistentCacheConsistentAt().
 *
 * Called by the startup process.
 */
bool
PersistentCacheWalExhausted(XLogRecPtr missing)
{
	static bool reported = false;
	XLogRecPtr	limit;
	XLogRecPtr	replayed;

	if (PCacheCtl == NULL)
		return false;
	limit = pg_atomic_read_u64(&PCacheRecoveryCtl->kept_limit);
	/* while looking for the checkpoint it is not known yet */
	if (limit == LIMIT_UNKNOWN || XLogRecPtrIsInvalid(missing))
		return false;
	replayed = GetXLogReplayRecPtr(NULL);
	if (replayed >= limit)
		return false;

	/* as in PersistentCacheRecoveryEnded() */
	if (missing - missing % XLOG_BLCKSZ >= limit)
	{
		pg_atomic_write_u64(&PCacheRecoveryCtl->kept_limit, replayed);
		return true;
	}
	if (!reported)
		ereport(LOG,
				(errmsg("persistent cache: recovery waits for WAL after %X/%X, and has to reach %X/%X before connections are allowed",
						LSN_FORMAT_ARGS(replayed), LSN_FORMAT_ARGS(limit)),
				 errdetail("The WAL was here before, and kept pages contain changes from it."),
				 errhint("If that WAL cannot be had, restart the server: it will do without the persistent cache's pages.")));
	reported = true;
	return false;
}

/*
 * Recovery is about to follow a new timeline, which forked off at an LSN.  If
 * kept pages are of a later time, they have changes of a timeline that is
 * going to be abandoned.
 *
 * Called by the startup process.
 */
void
PersistentCacheTimelineForked(TimeLineID timeline, XLogRecPtr fork)
{
	XLogRecPtr	limit;
	PCacheError err;

	if (PCacheCtl == NULL)
		return;
	limit = pg_atomic_read_u64(&PCacheRecoveryCtl->kept_limit);
	if (limit == LIMIT_UNKNOWN || fork >= limit)
		return;
	PCacheSetError(&err, _("timeline %u forked off at %X/%X, before what pages of the persistent cache contain, up to %X/%X"),
				   timeline, LSN_FORMAT_ARGS(fork), LSN_FORMAT_ARGS(limit));
	PCacheStartAgain(PCACHE_AGAIN_COLD, &err);
}
