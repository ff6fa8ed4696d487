/*-------------------------------------------------------------------------
 *
 * pcache_run.c
 *	  Have a run of the cluster without its pool show.
 *
 * The pool holds what pg_control looked like when this server last wrote it, so
 * that any other writer of pg_control shows.  A server that has this code, but
 * runs without the pool, also says so in the data directory
 * (PCacheNoteRunWithout).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_run.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/pcache_run.h"

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
 * Begin with pg_control as it is on disk.
 *
 * Called by the startup process, once the pool is durably "attaching": as long
 * as it is, nobody believes what is stored here.
 */
void
PCacheBeginControlSeen(const ControlFileData *control)
{
	PCacheControlSeen *seen = ControlSeen();

	if (PersistentCacheDescriptors == NULL)
		return;
	PCacheCtl->control_updates = 1;
	memset(&seen[PCACHE_CONTROL_PENDING], 0, sizeof(PCacheControlSeen));
	seen[PCACHE_CONTROL_CONFIRMED] =
		PCacheControlConfirmed(control, PCacheCtl->control_updates);
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
	if (PersistentCacheDescriptors == NULL || PCacheCtl->control_updates == 0)
		return;
	Assert(AmStartupProcess() || LWLockHeldByMeInMode(ControlFileLock, LW_EXCLUSIVE));
	StoreHalf(PCACHE_CONTROL_PENDING,
			  PCacheControlPending(control, ++PCacheCtl->control_updates,
								   (int64) time(NULL)));
}

/* pg_control was written as given, durably. */
void
PersistentCacheControlConfirmed(const ControlFileData *control)
{
	if (PersistentCacheDescriptors == NULL || PCacheCtl->control_updates == 0)
		return;
	StoreHalf(PCACHE_CONTROL_CONFIRMED,
			  PCacheControlConfirmed(control, PCacheCtl->control_updates));
}
