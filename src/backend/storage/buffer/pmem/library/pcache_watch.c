/*-------------------------------------------------------------------------
 *
 * pcache_watch.c
 *	  Note in the pool what pg_control says, that the server lives, and how far WAL goes.
 *
 * That is all that mode always does while the server runs.  The postmaster makes the
 * first note of a start, and the worker those after it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_watch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "utils/wait_event.h"

/*
 * In archive recovery pg_control is written often.  After a change we do not look
 * again for so many milliseconds.
 */
#define CONTROL_INTERVAL	5

/* The last note of this process, and the pg_control that it is about. */
static PCacheSighting sighting;
static ControlFileData watched;

/* Tells of changes of pg_control; -1 if nobody does. */
static int	control_changes = -1;

/*
 * pg_control as it is on disk.  get_controlfile() throws, which ends the postmaster, and
 * takes a process that exits its status and the rest of what it has to do.
 */
bool
PCacheReadControl(ControlFileData *control)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		complete;

	snprintf(path, sizeof(path), "%s/%s", DataDir, XLOG_CONTROL_FILE);
	fd = open(path, O_RDONLY | PG_BINARY | O_CLOEXEC);
	complete = fd >= 0 && PCacheReadExact(fd, control, sizeof(*control), 0);
	if (fd >= 0)
		close(fd);
	return complete && control->crc == PCacheCrcOf(control);
}

/*
 * The postmaster has taken up its pool, and nobody has used it.  It was judged with
 * these facts.  How far WAL had gone for the server that was killed, it must still go,
 * until the worker knows better.
 */
void
PCacheNoteStart(const PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;

	if (pcache_mode != PERSISTENT_CACHE_ALWAYS)
		return;
	sighting = facts->sighting;
	sighting.pool_device = facts->pool_device;
	sighting.pool_inode = facts->pool_inode;
	if (!PCacheStart.post_mortem &&
		!PCacheWatermarkFromDisk(&sighting.wal, control->checkPointCopy.ThisTimeLineID,
								 control->checkPoint, control->xlog_seg_size))
		memset(&sighting.wal, 0, sizeof(sighting.wal));
	PCacheSightingMake(&sighting, control, PCacheReadClock(CLOCK_REALTIME));
	PCacheSightingStore(&PCacheThePool.map, &sighting);
}

/*
 * How far was WAL written, or replayed?  What cannot be read does not change what was
 * noted.
 */
static void
LookAtWal(void)
{
	PCacheWatermark written;
	TimeLineID	timeline;
	XLogRecPtr	end;

	if (RecoveryInProgress())
		end = GetXLogReplayRecPtr(&timeline);
	else
	{
		end = GetXLogWriteRecPtr();
		timeline = GetWALInsertionTimeLine();
	}
	if (!XLogRecPtrIsInvalid(end) &&
		PCacheWatermarkIsBehind(&sighting.wal, timeline, end) &&
		PCacheWatermarkFromDisk(&written, timeline, end, wal_segment_size))
		sighting.wal = written;
}

/*
 * Look at pg_control, and at WAL if it is time to say that the server lives, or if
 * pg_control has changed: after a checkpoint the server removes WAL, and perhaps that
 * which was noted last.  A pg_control that is just being written is looked at again.
 */
static void
Look(bool is_beat)
{
	ControlFileData control;
	int64		now = PCacheReadClock(CLOCK_REALTIME);

	if (!PCacheReadControl(&control))
		return;
	if (!is_beat && sighting.generation == PCacheGenerationOf(&control) &&
		sighting.min_recovery_point == control.minRecoveryPoint)
		return;
	LookAtWal();
	watched = control;
	PCacheSightingMake(&sighting, &control, now);
	PCacheSightingStore(&PCacheThePool.map, &sighting);
}

/*
 * The worker begins, or begins again.  Without the kernel's help pg_control is looked
 * at five times a second only.
 */
void
PCacheBeginWatch(void)
{
	char		path[MAXPGPATH];

	if (pcache_mode != PERSISTENT_CACHE_ALWAYS)
		return;
	(void) PCacheReadSighting(PCacheThePool.fd, &sighting);
	snprintf(path, sizeof(path), "%s/%s", DataDir, XLOG_CONTROL_FILE);
	control_changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (control_changes >= 0 &&
		inotify_add_watch(control_changes, path, IN_MODIFY | IN_CLOSE_WRITE) < 0)
	{
		close(control_changes);
		control_changes = -1;
	}
	if (control_changes < 0)
		ereport(LOG,
				(errmsg("persistent cache: changes of \"pg_control\" are noticed late: inotify does not work: %m"),
				 errdetail("If the server is killed within a fifth of a second after a checkpoint, the next start is cold.")));
	Look(true);
}

/* What pg_control said when the worker last looked. */
const ControlFileData *
PCacheWatchedControl(void)
{
	return &watched;
}

/* Is it time to say that the server lives? */
static long
UntilBeat(void)
{
	int64		since = (PCacheReadClock(CLOCK_REALTIME) - sighting.seen_at) / (PCACHE_NSEC / 1000);

	/* a clock that was set back */
	if (since < 0)
		return 0;
	return since >= PCACHE_SIGHTING_INTERVAL ? 0 : PCACHE_SIGHTING_INTERVAL - since;
}

/* To be called now and then by a worker that is busy. */
void
PCacheWatch(void)
{
	char		events[4096];

	if (pcache_mode != PERSISTENT_CACHE_ALWAYS)
		return;
	if (UntilBeat() == 0)
		Look(true);
	else if (control_changes >= 0 && read(control_changes, events, sizeof(events)) > 0)
		Look(false);
}

/*
 * Wait for the latch, for so many milliseconds (0: for ever), and watch meanwhile.
 */
void
PCacheWaitAndWatch(long milliseconds)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (pcache_mode == PERSISTENT_CACHE_ALWAYS)
	{
		long		until_beat = Max(UntilBeat(), 1);

		milliseconds = milliseconds > 0 ? Min(milliseconds, until_beat) : until_beat;
		if (control_changes >= 0)
			events |= WL_SOCKET_READABLE;
	}
	events = WaitLatchOrSocket(MyLatch, events | (milliseconds > 0 ? WL_TIMEOUT : 0),
							   control_changes, milliseconds, PG_WAIT_EXTENSION);
	PCacheWatch();
	if (events & WL_SOCKET_READABLE)
	{
		pg_usleep(CONTROL_INTERVAL * 1000L);
		PCacheWatch();
	}
}
