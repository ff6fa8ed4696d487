/*-------------------------------------------------------------------------
 *
 * pcache_checkpoint.c
 *	  Keep pool and pg_control together over a checkpoint.
 *
 * pg_control may be one checkpoint behind or ahead of the pool at a crash.
 * So the pool holds two: the pending one is written before pg_control, the
 * confirmed one after it, and pg_control must agree with either.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_checkpoint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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

static void
StoreCheckpoint(const ControlFileData *control, PCacheCheckpoint *checkpoint,
				uint64 *epoch)
{
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	checkpoint->location = control->checkPoint;
	checkpoint->redo = control->checkPointCopy.redo;
	checkpoint->timeline = control->checkPointCopy.ThisTimeLineID;
	checkpoint->control_crc = 0;
	*epoch = pg_atomic_read_u64(&PCacheCtl->epoch);
	PCacheCtl->superblock.checkpoint_epoch = *epoch;
	PCacheCtl->superblock.timeline = checkpoint->timeline;
	/* should that fail, pg_control agrees with neither, and a crash is cold */
	(void) PCacheStoreSuperblock(WARNING);
	LWLockRelease(PersistentCacheLock);
}

/*
 * A checkpoint is complete, and about to be written to pg_control as given.
 */
void
PersistentCacheCheckpointPending(const ControlFileData *control)
{
	if (PersistentCacheDescriptors != NULL)
		StoreCheckpoint(control, &PCacheCtl->superblock.pending,
						&PCacheCtl->superblock.pending_epoch);
}

/* The checkpoint is in pg_control, durably. */
void
PersistentCacheCheckpointConfirmed(const ControlFileData *control)
{
	if (PersistentCacheDescriptors != NULL)
		StoreCheckpoint(control, &PCacheCtl->superblock.confirmed,
						&PCacheCtl->superblock.confirmed_epoch);
	if (PersistentCacheEnabled())
		PCacheForgetCopies(control->checkPointCopy.redo);
}
