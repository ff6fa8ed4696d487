/*-------------------------------------------------------------------------
 *
 * pcache_checkpoint.c
 *	  What pg_control looks like, and which pages its checkpoint has written.
 *
 * The pool holds what pg_control looked like when this server last wrote it, so
 * that any other writer of pg_control shows.  There is a half for what is about
 * to be written, and one for what was written, since a crash may come between
 * the two.  Each has the epoch that goes with the checkpoint in pg_control.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_checkpoint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/pcache_run.h"

/*
 * The redo point is set, and buffers are about to be written.  Pages that are
 * sealed from here on may have changes that this checkpoint does not write.
 */
void
PersistentCacheCheckpointStart(void)
{
	if (PersistentCacheDescriptors != NULL)
		(void) pg_atomic_fetch_add_u64(&PCacheCtl->epoch, 1);
}

static PCacheControlSeen *
ControlSeen(void)
{
	return (PCacheControlSeen *) (PCacheThePool.map.base + PCACHE_CONTROL_OFFSET);
}

/*
 * Store one half durably.  Should that fail, pg_control will agree with
 * neither, and a start after a crash is cold.
 */
static void
StoreHalf(int which, PCacheControlSeen half)
{
	PCacheControlSeen *seen = ControlSeen() + which;

	memcpy(seen, &half, sizeof(half));
	(void) PCachePersist(&PCacheThePool.map, seen, sizeof(half));
}

/*
 * Begin with pg_control as it is on disk.  Of the pages that are kept, its
 * checkpoint has written those that were sealed before completed_epoch.
 *
 * Called by the startup process, once the pool is durably "attaching": as long
 * as it is, nobody believes what is stored here.
 */
void
PCacheBeginControlSeen(const ControlFileData *control, uint64 completed_epoch)
{
	PCacheControlSeen *seen = ControlSeen();

	PCacheCtl->control_file.updates = 1;
	PCacheCtl->control_file.checkpoint = control->checkPoint;
	PCacheCtl->control_file.completed_epoch = completed_epoch;
	if (PersistentCacheDescriptors == NULL)
		return;
	memset(&seen[PCACHE_CONTROL_PENDING], 0, sizeof(PCacheControlSeen));
	seen[PCACHE_CONTROL_CONFIRMED] =
		PCacheControlConfirmed(control, PCacheCtl->control_file.updates, completed_epoch);
	(void) PCachePersist(&PCacheThePool.map, seen, 2 * sizeof(PCacheControlSeen));
}

/*
 * pg_control is about to be written as given, but for its time and its CRC.
 *
 * This and the next function are called around update_controlfile(), under
 * ControlFileLock exclusively, or by the startup process before anybody else
 * could update pg_control; also in critical sections.
 */
void
PersistentCacheControlPending(const ControlFileData *control)
{
	/* before the pool is ours it must go on to say what its last server saw */
	if (PersistentCacheDescriptors == NULL || PCacheCtl->control_file.updates == 0)
		return;
	Assert(AmStartupProcess() || LWLockHeldByMeInMode(ControlFileLock, LW_EXCLUSIVE));

	/*
	 * A checkpoint gets into pg_control once its buffers are in their files,
	 * durably, and none has begun since.  Before that, whoever else updates
	 * pg_control still gives it the old redo point, and needs the old epoch.
	 */
	if (control->checkPoint != PCacheCtl->control_file.checkpoint)
		PCacheCtl->control_file.completed_epoch = pg_atomic_read_u64(&PCacheCtl->epoch);
	StoreHalf(PCACHE_CONTROL_PENDING,
			  PCacheControlPending(control, ++PCacheCtl->control_file.updates,
								   PCacheCtl->control_file.completed_epoch,
								   (int64) time(NULL)));
}

/* pg_control was written as given, durably. */
void
PersistentCacheControlConfirmed(const ControlFileData *control)
{
	if (!PersistentCacheEnabled() || PCacheCtl->control_file.updates == 0)
		return;
	if (PersistentCacheDescriptors != NULL)
		StoreHalf(PCACHE_CONTROL_CONFIRMED,
				  PCacheControlConfirmed(control, PCacheCtl->control_file.updates,
										 PCacheCtl->control_file.completed_epoch));
	if (control->checkPoint == PCacheCtl->control_file.checkpoint)
		return;
	PCacheCtl->control_file.checkpoint = control->checkPoint;
	PCacheForgetCopies(control->checkPointCopy.redo);
}
