/*-------------------------------------------------------------------------
 *
 * pcache_run.h
 *	  What happens while the server runs: marks, seals, the watermark.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_run.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_RUN_H
#define PCACHE_RUN_H

#include "storage/condition_variable.h"
#include "storage/pcache_core.h"
#include "storage/pcache_foretell.h"
#include "storage/proc.h"

/*
 * What the sealer has done since the start.  Only the sealer writes here, but
 * for the list of those who sleep on round_done.
 */
typedef struct PCacheSealerControl
{
	pg_atomic_uint64 rounds_begun;
	pg_atomic_uint64 rounds_done;
	pg_atomic_uint64 seals;
	pg_atomic_uint64 failed_seals;
	pg_atomic_uint64 flushed_bytes;
	pg_atomic_uint64 drains;
	pg_atomic_uint32 procno;	/* INVALID_PROC_NUMBER if there is none */
	ConditionVariable round_done;
} PCacheSealerControl;

/* How far WAL is durable.  Belongs to who writes WAL, see pcache_watermark.c. */
typedef struct PCacheWatermarkControl
{
	PCacheWatermark written;
	PCacheWatermark watermark;
	int			slot;			/* on the media, that is written next */
	pg_atomic_uint64 updates;
} PCacheWatermarkControl;

/* How far the sealer is in the queue. */
typedef struct PCacheQueueWalk
{
	uint32		next_summary;
	uint64		summary;		/* words of the last summary still to visit */
} PCacheQueueWalk;

/* pcache_mark.c */
extern Size PCacheMarkShmemSize(void);
extern void PCacheMarkShmemInit(void);
extern uint64 PCacheCountMarks(void);

/* pcache_queue.c */
extern Size PCacheQueueShmemSize(void);
extern void PCacheQueueShmemInit(void);
extern void PCacheQueueRecover(void);
extern void PCacheEnqueue(int buf_id);
extern void PCacheDequeueStart(PCacheQueueWalk *walk);
extern int	PCacheDequeue(PCacheQueueWalk *walk, int *slots, int max);
extern uint64 PCacheQueueLength(void);

/* pcache_untrusted.c */
extern Size PCacheUntrustedShmemSize(void);
extern void PCacheUntrustedShmemInit(void);
extern bool PCacheIsUntrusted(int buf_id);
extern uint64 PCacheCountUntrusted(void);
extern void PCacheTrustAgain(int buf_id);

/* pcache_hint.c */
extern bool PCacheNamesBlocks(const BufferTag *tag, Page page);

/* pcache_describe.c */
extern void PCacheDescribe(PCacheDescriptor *desc, uint32 slot,
						   const BufferTag *tag, uint32 state,
						   XLogRecPtr lsn_bound);

/* pcache_round.c */
extern PCacheSealerControl *PCacheSealerCtl;
extern void PCacheRoundShmemInit(void);
extern void PCacheSealerBegin(void);
extern PGPROC *PCacheSealerProc(void);
extern void PCacheRoundBegin(void);
extern void PCacheRoundDone(void);
extern void PCacheCountSeals(uint64 seals, uint64 failed);
extern uint64 PCacheCountDrains(void);
extern uint64 PCacheCountSealed(void);

/* pcache_watermark.c */
extern PCacheWatermarkControl *PCacheWatermarkCtl;
extern void PCacheResetWatermark(const PCacheWatermark *watermark);
extern void PCacheFlushWatermark(void);
extern bool PCacheSeedWatermark(const ControlFileData *control,
								PCacheWatermark *watermark);

/* pcache_wal_end.c */
extern XLogRecPtr PCacheWalEnd(XLogSegNo segno, TimeLineID timeline);

/* pcache_checkpoint.c */
extern void PCacheBeginControlSeen(const ControlFileData *control,
								   uint64 completed_epoch);

/* pcache_next_start.c */
extern void PCacheForetellStart(PCacheNextEvent event, PCacheVerdict *verdict);

/* pcache_next_config.c */
extern bool PCacheReadNextConfig(PCacheNextConfig *config, PCacheError *err);

#endif							/* PCACHE_RUN_H */
