/*-------------------------------------------------------------------------
 *
 * pcache_end_of_recovery.c
 *	  May connections be allowed before the checkpoint at the end of recovery?
 *
 * After crash recovery the server writes all that is dirty, and only then lets
 * users in.  Kept pages are dirty in great numbers.  So with kept pages the
 * server does what it does at a promotion: it writes a record that says that
 * recovery has ended, allows connections, and then requests the checkpoint.
 * README.always argues why that is right (rule "connections come before the
 * checkpoint").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/redo/pcache_end_of_recovery.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "access/commit_ts.h"
#include "access/twophase.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/pcache_redo.h"
#include "storage/standby.h"
#include "utils/timestamp.h"

/*
 * So many starts in a row may replay WAL from the same checkpoint without
 * completing another one.  A server that crashes over and over again must not
 * keep more and more WAL, and recover for longer and longer.
 */
#define MAX_STARTS_FROM_CHECKPOINT	3

/*
 * So many segments are needed beside those that the checkpoint sets free: the
 * current one, and those that are made ahead while it runs.
 */
#define SEGMENTS_AHEAD	3

/* Did this start allow connections before a checkpoint? */
static bool checkpoint_follows = false;

/* Is that checkpoint not to be spread over time? */
static bool checkpoint_is_urgent = false;

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

/* The free room of pg_wal's file system, in bytes; none if that is not known. */
static uint64
FreeRoomOfWal(void)
{
	struct statvfs vfs;

	if (statvfs(XLOGDIR, &vfs) < 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not get information about the file system of \"%s\": %m",
						XLOGDIR)));
		return 0;
	}
	return (uint64) vfs.f_bavail * vfs.f_frsize;
}

/*
 * May this server use so much of the free room in pg_wal?  A quota of its user
 * shows only when room is allocated.  A start after a crash removes the file by
 * its name (RemoveTempXlogFiles).
 */
static bool
RoomMayBeUsed(uint64 size)
{
	char		path[MAXPGPATH];
	bool		result = true;
	int			fd;

	snprintf(path, sizeof(path), XLOGDIR "/xlogtemp.%d", MyProcPid);
	unlink(path);
	fd = BasicOpenFile(path, O_RDWR | O_CREAT | O_EXCL | PG_BINARY);
	if (fd < 0)
		return false;
	/* other errors say nothing of the room, as EOPNOTSUPP */
	if (fallocate(fd, 0, 0, size) < 0 && (errno == ENOSPC || errno == EDQUOT))
		result = false;
	close(fd);
	unlink(path);
	return result;
}

/*
 * Would the server get by without the checkpoint's first setting WAL free?  If
 * not, logs why.
 */
static bool
WalLeavesRoom(const ControlFileData *control)
{
	uint64		since_redo = GetXLogInsertRecPtr() - control->checkPointCopy.redo;
	uint64		limit = (uint64) max_wal_size_mb * 1024 * 1024;
	uint64		needed = since_redo + (uint64) SEGMENTS_AHEAD * wal_segment_size;
	uint64		room;

	if (since_redo >= limit)
	{
		ereport(LOG,
				errmsg("persistent cache: connections are allowed after the checkpoint at the end of recovery, because WAL has reached \"max_wal_size\""),
				errdetail("There are %" PRIu64 " kB of WAL since the last checkpoint, and \"max_wal_size\" is %" PRIu64 " kB.",
						  since_redo / 1024, limit / 1024));
		return false;
	}
	room = FreeRoomOfWal();
	if (room < needed || !RoomMayBeUsed(needed))
	{
		ereport(LOG,
				errmsg("persistent cache: connections are allowed after the checkpoint at the end of recovery, because \"%s\" is short of room",
					   XLOGDIR),
				errdetail("%" PRIu64 " kB are needed, and its file system has %" PRIu64 " kB free%s.",
						  needed / 1024, room / 1024,
						  room < needed ? "" : ", not all of which this server may use"));
		return false;
	}
	checkpoint_is_urgent = since_redo > limit / 2 || room < limit;
	return true;
}

/*
 * Write the record that says that recovery has ended, on the same timeline.
 *
 * At a promotion, pg_control then demands that recovery gets there.  Here it
 * does not: a server that crashes again must replay all WAL that there is.
 */
static void
LogEndOfRecovery(TimeLineID timeline)
{
	xl_end_of_recovery record = {
		.end_time = GetCurrentTimestamp(),
		.ThisTimeLineID = timeline,
		.PrevTimeLineID = timeline,
		.wal_level = wal_level
	};

	START_CRIT_SECTION();
	XLogBeginInsert();
	XLogRegisterData(&record, sizeof(record));
	XLogFlush(XLogInsert(RM_XLOG_ID, XLOG_END_OF_RECOVERY));
	END_CRIT_SECTION();
}

/*
 * Redo has ended.  Returns true if connections are to be allowed before the
 * checkpoint.  Then the record of the end of recovery was written instead of a
 * checkpoint, which PersistentCacheConnectionsAllowed() will request.
 *
 * control is pg_control as it is in memory, which names the checkpoint that redo
 * began at.  last_disabled is where WAL last said that full_page_writes were
 * off.  WAL goes on on the timeline.
 *
 * Called by the startup process, in crash recovery and at the end of archive
 * recovery.
 */
bool
PersistentCacheEndRecovery(const ControlFileData *control,
						   XLogRecPtr last_disabled, TimeLineID timeline)
{
	PCacheSuperblock *sb;
	bool		leaves_room;

	if (!PersistentCacheEnabled() || !IsUnderPostmaster ||
		ArchiveRecoveryRequested || !PCacheRecoveryCtl->kept_over_crash ||
		PCacheCtl->start.pages[PCACHE_PAGE_KEPT] == 0)
		return false;
	/* as rule "connections come before the checkpoint" says */
	if (!XLogIsNeeded() || !SettingsAreThoseOfWal(control) ||
		!PagesHaveImages(control, last_disabled) ||
		!XLogRecPtrIsInvalid(control->minRecoveryPoint))
		return false;

	leaves_room = WalLeavesRoom(control);
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	sb = &PCacheCtl->superblock;
	if (!PCacheReplaysAgain(control))
		sb->starts_from = 0;
	checkpoint_follows = leaves_room && sb->starts_from < MAX_STARTS_FROM_CHECKPOINT;
	if (checkpoint_follows)
	{
		/* durable with the state, in PersistentCacheReachedConsistency */
		sb->replayed_from = control->checkPoint;
		sb->starts_from++;
	}
	LWLockRelease(PersistentCacheLock);

	if (checkpoint_follows)
	{
		LogEndOfRecovery(timeline);
		ereport(LOG,
				errmsg("persistent cache: connections are allowed before the checkpoint at the end of recovery"));
	}
	else if (leaves_room)
		ereport(LOG,
				errmsg("persistent cache: connections are allowed after the checkpoint at the end of recovery, because the last %d starts did not complete one",
					   MAX_STARTS_FROM_CHECKPOINT));
	return checkpoint_follows;
}

/*
 * Connections are allowed.  The checkpoint that was put off is requested now.
 * It is fast if much WAL waits for it, or if WAL could fill up pg_wal meanwhile.
 *
 * Had it come first, it would have told standbys that no transaction of before
 * the crash is running, so that they release its locks.  They learn that from a
 * record of its own instead.
 *
 * Called by the startup process.
 */
void
PersistentCacheConnectionsAllowed(void)
{
	if (!checkpoint_follows)
		return;
	RequestCheckpoint(CHECKPOINT_FORCE |
					  (checkpoint_is_urgent ? CHECKPOINT_IMMEDIATE : 0));
	if (XLogStandbyInfoActive())
		(void) LogStandbySnapshot();
}
