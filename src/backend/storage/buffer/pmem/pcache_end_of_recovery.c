/*-------------------------------------------------------------------------
 *
 * pcache_end_of_recovery.c
 *	  May connections be allowed before the checkpoint at the end of recovery?
 *
 * After crash recovery the server writes all that is dirty, and only then lets
 * users in.  Kept pages are dirty in great numbers.  So with kept pages the
 * server does what it does at a promotion: it writes a record that says that
 * recovery has ended, allows connections, and then requests the checkpoint.  README
 * argues why that is right (rule 88).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_end_of_recovery.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/commit_ts.h"
#include "access/twophase.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "replication/walsender.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/standby.h"

/*
 * So many starts in a row may replay WAL from the same checkpoint without
 * completing another one.  A server that crashes over and over again must not
 * keep more and more WAL, and recover for longer and longer.
 */
#define MAX_STARTS_FROM_CHECKPOINT	3

/* Did this start allow connections before a checkpoint? */
static bool checkpoint_follows = false;

/*
 * Can each page that redo may meet torn be restored from its image?  Were it
 * otherwise, users should not write before the checkpoint.
 */
static bool
PagesHaveImages(const ControlFileData *control, XLogRecPtr last_disabled)
{
	return fullPageWrites && control->checkPointCopy.fullPageWrites &&
		last_disabled < control->checkPointCopy.redo;
}

/*
 * Are the settings those of the WAL that another recovery from this checkpoint
 * would replay?  They are in pg_control, which is changed as soon as recovery
 * has ended (XLogReportParameters), and redo relies on them.
 */
static bool
SettingsAreThoseOfWal(const ControlFileData *control)
{
	return control->wal_level == wal_level &&
		control->wal_log_hints == wal_log_hints &&
		control->MaxConnections == MaxConnections &&
		control->max_worker_processes == max_worker_processes &&
		control->max_wal_senders == max_wal_senders &&
		control->max_prepared_xacts == max_prepared_xacts &&
		control->max_locks_per_xact == max_locks_per_xact &&
		control->track_commit_timestamp == track_commit_timestamp;
}

/*
 * Redo has ended.  Returns true if connections are to be allowed before the
 * checkpoint.  The caller then writes the record of the end of recovery, and
 * requests a checkpoint once connections are allowed.
 *
 * control is pg_control as it is in memory, which names the checkpoint that redo
 * began at.  last_disabled is where WAL last said that full_page_writes were
 * off.
 *
 * Called by the startup process, in crash recovery and at the end of archive
 * recovery.
 */
bool
PersistentCacheCheckpointMayWait(const ControlFileData *control,
								 XLogRecPtr last_disabled)
{
	PCacheSuperblock *sb;

	if (!PersistentCacheEnabled() || !IsUnderPostmaster ||
		ArchiveRecoveryRequested || !PCacheCtl->kept_over_crash ||
		PCacheCtl->pages[PCACHE_PAGE_KEPT] == 0)
		return false;
	/* as rule 88 says */
	if (!XLogIsNeeded() || !SettingsAreThoseOfWal(control) ||
		!PagesHaveImages(control, last_disabled) ||
		!XLogRecPtrIsInvalid(control->minRecoveryPoint))
		return false;

	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	sb = &PCacheCtl->superblock;
	if (!PCacheReplaysAgain(control))
		sb->starts_from = 0;
	checkpoint_follows = sb->starts_from < MAX_STARTS_FROM_CHECKPOINT;
	if (checkpoint_follows)
	{
		/* durable with the state, in PersistentCacheReachedConsistency */
		sb->replayed_from = control->checkPoint;
		sb->starts_from++;
	}
	LWLockRelease(PersistentCacheLock);

	ereport(LOG,
			checkpoint_follows ?
			errmsg("persistent cache: connections are allowed before the checkpoint at the end of recovery") :
			errmsg("persistent cache: connections are allowed after the checkpoint at the end of recovery, because the last %d starts did not complete one",
				   MAX_STARTS_FROM_CHECKPOINT));
	return checkpoint_follows;
}

/*
 * Connections are allowed.  The checkpoint that would have come first tells
 * standbys that no transaction of before the crash is running, so that they
 * release its locks.  They learn that from this record instead.
 *
 * Called by the startup process.
 */
void
PersistentCacheConnectionsAllowed(void)
{
	if (checkpoint_follows && XLogStandbyInfoActive())
		(void) LogStandbySnapshot();
}
