/*-------------------------------------------------------------------------
 *
 * pcache_watermark.c
 *	  Keep on media how far the WAL is durable.
 *
 * On a primary all of this happens under WALWriteLock; on a standby only the
 * walreceiver calls it.  The two never run at the same time.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_watermark.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pcache_internal.h"

/*
 * WAL was written, up to end; bytes points behind the last of them, and at
 * least len bytes before it are readable.  They are taken now, because later
 * the WAL buffer may be reused.
 */
void
PersistentCacheWalWritten(const char *bytes, Size len, XLogRecPtr end,
						  TimeLineID timeline)
{
	PCacheWatermark *written;

	if (PersistentCacheDescriptors == NULL || len < PCACHE_WITNESS_LEN)
		return;
	bytes -= PCACHE_WITNESS_LEN;
	if (!PCacheWitnessIsUsable(bytes, end))
		return;
	written = &PCacheCtl->written;
	written->witness = end;
	written->witness_hash = PCacheWitnessHash(bytes, end, timeline);
	written->timeline = timeline;
}

/*
 * The caller is about to drain: let that cover the last watermark, too.
 */
void
PersistentCacheWalDraining(void)
{
	if (PersistentCacheDescriptors == NULL)
		return;
	PCacheFlush(&PCacheThePool.map, PCacheWatermarkSlots(), PCACHE_CACHE_LINE);
}

/*
 * WAL is durable up to flushed: publish that.  A witness that was written but
 * is not durable yet is not published; the one before it still serves.
 */
void
PersistentCacheWalFlushed(XLogRecPtr flushed, TimeLineID timeline)
{
	PCacheWatermark *watermark;
	PCacheWatermark *slot;

	if (PersistentCacheDescriptors == NULL)
		return;
	watermark = &PCacheCtl->watermark;
	if (flushed == watermark->flushed && timeline == watermark->timeline)
		return;

	if (PCacheCtl->written.witness != 0 &&
		PCacheCtl->written.witness <= flushed &&
		PCacheCtl->written.timeline == timeline)
	{
		watermark->witness = PCacheCtl->written.witness;
		watermark->witness_hash = PCacheCtl->written.witness_hash;
		watermark->timeline = timeline;
	}

	/* no witness on this timeline yet: nothing could be checked */
	if (watermark->timeline != timeline || watermark->witness == 0)
		return;
	watermark->flushed = flushed;
	watermark->crc = PCacheWatermarkCrc(watermark);

	slot = PCacheWatermarkSlots() + PCacheCtl->watermark_slot;
	PCacheCtl->watermark_slot = 1 - PCacheCtl->watermark_slot;
	memcpy(slot, watermark, sizeof(*slot));

	/*
	 * The watermark must never be ahead of the WAL, so it is stored after the
	 * WAL was drained.  Where the next WAL comes with a drain of its own, that
	 * one, or the sealer's, covers the watermark as well: it may lag behind by
	 * one flush, which costs a crash the pages of that flush at most.
	 */
	if (wal_sync_method == WAL_SYNC_METHOD_PMEM && enableFsync)
		PCacheFlush(&PCacheThePool.map, slot, sizeof(*slot));
	else
		(void) PCachePersist(&PCacheThePool.map, slot, sizeof(*slot));
}
