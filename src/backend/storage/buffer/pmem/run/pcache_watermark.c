/*-------------------------------------------------------------------------
 *
 * pcache_watermark.c
 *	  Keep on media how far the WAL is durable.
 *
 * On a primary all of this happens under WALWriteLock.  During recovery it is
 * the walreceiver, or the startup process before it starts one and after it
 * has stopped it.  None of them runs at the same time as another.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_watermark.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogdrain.h"
#include "access/xlogrecord.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/pcache_run.h"

PCacheWatermarkControl *PCacheWatermarkCtl = NULL;

static inline PCacheWatermark *
WatermarkSlots(void)
{
	return (PCacheWatermark *) (PCacheThePool.map.base + PCACHE_WATERMARK_OFFSET);
}

/* Begin with this watermark, or with none, in both slots. */
void
PCacheResetWatermark(const PCacheWatermark *watermark)
{
	PCacheWatermark *slots = WatermarkSlots();

	if (watermark != NULL)
		PCacheWatermarkCtl->watermark = *watermark;
	else
		memset(&PCacheWatermarkCtl->watermark, 0, sizeof(PCacheWatermarkCtl->watermark));
	slots[0] = PCacheWatermarkCtl->watermark;
	slots[1] = PCacheWatermarkCtl->watermark;
	(void) PCachePersist(&PCacheThePool.map, slots, 2 * sizeof(PCacheWatermark));
}

/*
 * Can the watermark do without a drain of its own after a flush of WAL?
 *
 * If WAL itself is drained, the next drain of WAL, or the sealer's, covers it
 * (see access/xlogdrain.h).  Until then x86 serves us well: who is told of the flush is told after a
 * locked instruction of this process, which waits for the flush of the
 * watermark like a drain does.  Other processors promise nothing of the kind.
 */
static bool
WatermarkSharesDrain(void)
{
#if defined(__x86_64__)
	return WalIsDrained != NULL && WalIsDrained();
#else
	return false;
#endif
}

/*
 * The caller is about to drain: let that cover the last watermark, too.
 */
void
PCacheFlushWatermark(void)
{
	if (PersistentCacheDescriptors != NULL)
		PCacheFlush(&PCacheThePool.map, WatermarkSlots(),
					2 * sizeof(PCacheWatermark));
}

/* Persist the watermark, in the slot that is not the newest. */
static void
PublishWatermark(bool shares_drain)
{
	PCacheWatermark *slot = WatermarkSlots() + PCacheWatermarkCtl->slot;

	PCacheWatermarkCtl->slot = 1 - PCacheWatermarkCtl->slot;
	memcpy(slot, &PCacheWatermarkCtl->watermark, sizeof(*slot));
	if (shares_drain)
		PCacheFlush(&PCacheThePool.map, slot, sizeof(*slot));
	else
		(void) PCachePersist(&PCacheThePool.map, slot, sizeof(*slot));
	pg_atomic_write_u64(&PCacheWatermarkCtl->updates,
						pg_atomic_read_u64(&PCacheWatermarkCtl->updates) + 1);
}

/*
 * WAL was written to disk: len bytes, of which bytes points behind the last,
 * and which end at end.  Those beyond valid (XLogWrite writes whole pages) do
 * not count.  The witness is taken now, because later the WAL buffer may be
 * reused.
 *
 * May be called in a critical section.
 */
void
PersistentCacheWalWritten(const char *bytes, Size len, XLogRecPtr end,
						  XLogRecPtr valid, TimeLineID timeline)
{
	if (PersistentCacheDescriptors == NULL)
		return;
	if (valid < end)
		len -= end - valid;
	else
		valid = end;
	(void) PCacheWitnessFind(&PCacheWatermarkCtl->written,
							 bytes - (end - valid) - len, len,
							 valid, timeline, wal_segment_size);
}

/*
 * The same of npages WAL buffers, from first on.  Behind the last of the
 * nbuffers buffers comes the first one again, and the witness is looked for in
 * contiguous bytes, so each part is told for itself.
 */
void
PersistentCacheWalPagesWritten(const char *buffers, int nbuffers,
							   int first, int npages, XLogRecPtr end,
							   XLogRecPtr valid, TimeLineID timeline)
{
	int			until_wrap = Min(npages, nbuffers - first);

	if (PersistentCacheDescriptors == NULL)
		return;
	if (until_wrap < npages)
	{
		XLogRecPtr	wrap = end - (npages - until_wrap) * (Size) XLOG_BLCKSZ;

		PersistentCacheWalWritten(buffers + nbuffers * (Size) XLOG_BLCKSZ,
								  until_wrap * (Size) XLOG_BLCKSZ,
								  wrap, wrap, timeline);
		first = 0;
		npages -= until_wrap;
	}
	PersistentCacheWalWritten(buffers + (first + npages) * (Size) XLOG_BLCKSZ,
							  npages * (Size) XLOG_BLCKSZ, end, valid, timeline);
}

/* That of the last server is needed to judge the pool, and is in the same slots. */
static bool
LastWatermarkIsJudged(void)
{
	return pg_atomic_read_u64(&PCacheCtl->attached) != 0;
}

/*
 * WAL is durable up to flushed, and others are about to be told: publish that
 * first.  Nobody may rely on WAL, as hint bits do, that a restored snapshot
 * could lack without failing the witness.
 */
void
PersistentCacheWalFlushed(XLogRecPtr flushed, TimeLineID timeline)
{
	PCacheWatermark *watermark;
	const PCacheWatermark *written;

	if (PersistentCacheDescriptors == NULL)
		return;
	watermark = &PCacheWatermarkCtl->watermark;
	written = &PCacheWatermarkCtl->written;
	if (flushed == watermark->flushed && timeline == watermark->timeline)
		return;

	/*
	 * A walreceiver may have to fetch the checkpoint before there is a start.
	 * And it begins with the segment, most of which we have already.
	 */
	if (AmWalReceiverProcess() &&
		(!LastWatermarkIsJudged() ||
		 !PCacheWatermarkIsBehind(watermark, timeline, flushed)))
		return;

	/* not written in this life, or XLogWrite has not come to flush it yet */
	if (written->timeline != timeline || written->witness > flushed)
		return;

	*watermark = *written;
	watermark->flushed = flushed;
	watermark->crc = PCacheWatermarkCrc(watermark);
	if (watermark->witness != 0)
		PublishWatermark(WatermarkSharesDrain());
	else
	{
		/* it could not be read: the older one says too little */
		PCacheResetWatermark(NULL);
	}
}

/* Where a checkpoint record ends; InitWalRecovery() has checked its length. */
static XLogRecPtr
CheckpointRecordEnd(XLogRecPtr start)
{
	uint32		size = MAXALIGN(SizeOfXLogRecord + SizeOfXLogRecordDataHeaderShort +
								sizeof(CheckPoint));
	uint32		room = XLOG_BLCKSZ - start % XLOG_BLCKSZ;

	if (size <= room)
		return start + size;
	if (XLogSegmentOffset(start + room, wal_segment_size) == 0)
		return start + size + SizeOfXLogLongPHD;
	return start + size + SizeOfXLogShortPHD;
}

/*
 * Begin with what is durable when a server starts, so that one that only
 * reads does not lack a watermark: WAL up to the last checkpoint record.
 * control is pg_control as it is on disk.  Returns false if there is no
 * witness for that; then the first flush of WAL has to tell.
 */
bool
PCacheSeedWatermark(const ControlFileData *control, PCacheWatermark *watermark)
{
	return PCacheWatermarkFromDisk(watermark,
								   control->checkPointCopy.ThisTimeLineID,
								   CheckpointRecordEnd(control->checkPoint),
								   control->xlog_seg_size);
}

/* WAL on disk is durable up to an LSN.  For the startup process, with a pool. */
static void
AdvanceFromDisk(XLogRecPtr durable, TimeLineID timeline)
{
	PCacheWatermark watermark;

	if (!LastWatermarkIsJudged() ||
		!PCacheWatermarkIsBehind(&PCacheWatermarkCtl->watermark, timeline, durable) ||
		!PCacheWatermarkFromDisk(&watermark, timeline, durable, wal_segment_size))
		return;
	PCacheWatermarkCtl->watermark = watermark;
	PublishWatermark(false);
}

/*
 * A segment was restored from the archive, and renamed durably.  Called by the
 * startup process before it replays any of it.
 */
void
PersistentCacheWalRestored(XLogSegNo segno, TimeLineID timeline)
{
	XLogRecPtr	end;

	if (PersistentCacheDescriptors == NULL)
		return;
	end = PCacheWalEnd(segno, timeline);
	if (!XLogRecPtrIsInvalid(end))
		AdvanceFromDisk(end, timeline);
}

/*
 * A standby has replayed all WAL that it has, or is replaying a record that
 * the next restartpoint may name.  Called by the startup process.  While a
 * walreceiver runs, that one tells.  But if the primary has nothing new, or if
 * there is none, nobody else does; and a redo point beyond the watermark would
 * make the start after a crash cold.
 */
void
PersistentCacheWalReplayed(void)
{
	TimeLineID	timeline;
	XLogRecPtr	replayed;

	if (PersistentCacheDescriptors == NULL || !StandbyMode ||
		IsInstallXLogFileSegmentActive())
		return;
	/* including the record that is being replayed, which is on disk as well */
	replayed = GetCurrentReplayRecPtr(&timeline);
	if (!XLogRecPtrIsInvalid(replayed))
		AdvanceFromDisk(replayed, timeline);
}
