/*-------------------------------------------------------------------------
 *
 * pcache_internal.h
 *	  What the server side of the persistent cache shares among its files.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/backend/storage/buffer/pmem/pcache_internal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_INTERNAL_H
#define PCACHE_INTERNAL_H

#include <setjmp.h>

#include "storage/buf_internals.h"
#include "storage/condition_variable.h"
#include "storage/pcache.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_memory_error.h"
#include "storage/pcache_stat.h"
#include "storage/spin.h"
#include "utils/guc.h"

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

/*
 * How many slots a process has marked that were sealed.  One line for each
 * process, lest marks contend for it.
 */
typedef union PCacheMarkCounter
{
	pg_atomic_uint64 marks;
	char		pad[PG_CACHE_LINE_SIZE];
} PCacheMarkCounter;

/*
 * What became of slots in the rebuild of the mapping table.  max_lsn is the
 * highest LSN of a page that is kept, or a later one.
 */
typedef struct PCacheRebuildTotals
{
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		kept_dirty;
	XLogRecPtr	max_lsn;
	bool		doubts;			/* a page is claimed twice, and still counted */
} PCacheRebuildTotals;

/*
 * The rebuild of the mapping table, which the startup process shares with its
 * helpers, see pcache_rebuild.c.  mutex protects all but next_slot and alone.
 */
typedef struct PCacheRebuildControl
{
	bool		alone;			/* there can be no helpers; not changed */
	slock_t		mutex;
	bool		begun;			/* the startup process has set what follows */
	bool		ended;			/* who comes now comes too late */
	bool		failed;			/* a helper has left in the midst of a chunk */
	PCachePageFacts facts;		/* without pointers */
	uint32		nslots;
	int			busy;			/* helpers at work */
	int			left;			/* helpers that are gone again */
	int			helpers;		/* of them, those that have kept a page */
	PCacheRebuildTotals totals; /* of helpers that have ended */
	ConditionVariable changed;

	/* The first slot that nobody has claimed yet. */
	pg_atomic_uint64 next_slot pg_attribute_aligned(PG_CACHE_LINE_SIZE);
} PCacheRebuildControl;

/* How the postmaster is to start again, see pcache_unavailable.c. */
typedef enum PCacheAgainHow
{
	PCACHE_AGAIN_NOT,
	PCACHE_AGAIN_COLD,
	PCACHE_AGAIN_WITHOUT,		/* the pool */
} PCacheAgainHow;

typedef struct PCacheAgain
{
	PCacheAgainHow how;
	bool		promote;		/* a promotion was under way */
	PCacheError why;
} PCacheAgain;

/* So many processes can explain their deaths, see pcache_crash.c. */
#define PCACHE_MAX_EXPLAINED	1024

/*
 * In shared memory.
 *
 * superblock is what the first superblock and its copy on the media say; who
 * changes it holds PersistentCacheLock exclusively and stores it before the
 * lock is released.  The rest is written by the postmaster or by the startup
 * process before anybody else looks.
 */
typedef struct PersistentCacheControl
{
	PCacheSuperblock superblock;

	/* Why the pool had to be made empty when it was opened, if it had to. */
	PCacheVerdict opened;
	uint64		cut_off;		/* saved pages that the file had lost by then */

	/* The outcome of the last start, and when it was known. */
	PCacheVerdict verdict;
	TimestampTz started_at;
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		kept_dirty;		/* of the pages kept */
	uint64		moved;			/* pages, by pcache_move.c */
	uint64		startup_usec;	/* spent on all of it */
	uint64		rebuild_usec;	/* of it, on the mapping table and freelist */
	uint32		retired;		/* slots on bad blocks, never to be used */
	bool		given_up;		/* by the startup process, see pcache_giveup.c */
	PCacheAgain again;			/* said by the startup process before it ends */

	/*
	 * The last answer to PCacheAskMedia(), and whether the first superblock
	 * and its copy are not to be touched; under PersistentCacheLock.
	 */
	PCacheMediaSummary media;
	bool		superblock_bad[2];
	bool		suspect_bad;	/* likewise the note of a fault */
	bool		copy_notes_bad; /* likewise the notes of copies */

	/* Deaths that say nothing against shared buffers: signal << 32 | PID. */
	pg_atomic_uint64 explained[PCACHE_MAX_EXPLAINED];

	/*
	 * The rest is for persistent_cache_mode = always.
	 *
	 * attached is set once the startup process has decided about each slot;
	 * the sealer waits for it.  epoch is bumped by the checkpointer only.
	 * written, watermark, watermark_slot and watermark_updates belong to who
	 * writes WAL (see pcache_watermark.c).
	 */
	pg_atomic_uint64 attached;
	pg_atomic_uint64 epoch;
	PCacheWatermark written;
	PCacheWatermark watermark;
	int			watermark_slot;
	pg_atomic_uint64 watermark_updates;

	/*
	 * Recovery with kept pages, see pcache_recovery.c.  The startup process
	 * writes.  Others look at kept_limit, which is 0 once it was reached,
	 * and, when they write a page, at kept_lsn and kept_timeline, which were
	 * set before kept_limit was.
	 */
	pg_atomic_uint64 kept_limit;	/* recovery must get here to believe them */
	XLogRecPtr	kept_lsn;		/* the highest LSN of a kept page */
	TimeLineID	kept_timeline;	/* where that LSN is */
	bool		left_by_redo;	/* they may be what redo made of them */
	bool		kept_over_crash;	/* and not saved by a clean stop */
	XLogRecPtr	redo_limit;		/* they have all changes up to here */
	uint64		redo_violations;	/* they did not */
	uint64		control_updates;	/* of pg_control, under ControlFileLock; 0
									 * before the pool is ours */

	/*
	 * A save: the first slot that nobody has claimed yet, pages saved, and
	 * free slots that were overwritten.
	 */
	pg_atomic_uint64 save_next_slot;
	pg_atomic_uint64 saved;
	pg_atomic_uint64 scrubbed;

	/* Apart from what others write. */
	PCacheSealerControl sealer pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	PCacheRebuildControl rebuild pg_attribute_aligned(PG_CACHE_LINE_SIZE);
} PersistentCacheControl;

/* How far the sealer is in the queue. */
typedef struct PCacheQueueWalk
{
	uint32		next_summary;
	uint64		summary;		/* words of the last summary still to visit */
} PCacheQueueWalk;

/* NULL, and pool.fd is -1, in a server that runs without a pool. */
extern PersistentCacheControl *PCacheCtl;
extern PCachePool PCacheThePool;
extern char PCachePoolDirectory[MAXPGPATH];

static inline PCacheDescriptor *
PCacheGetDescriptor(uint32 slot)
{
	return (PCacheDescriptor *) (PCacheThePool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

/* pcache_shmem.c */
static inline pg_atomic_uint64 *
PCacheSeq(PCacheDescriptor *desc)
{
	return (pg_atomic_uint64 *) &desc->seq;
}

static inline PCacheWatermark *
PCacheWatermarkSlots(void)
{
	return (PCacheWatermark *) (PCacheThePool.map.base + PCACHE_WATERMARK_OFFSET);
}

extern bool PCacheStoreSuperblock(int elevel);
extern void PCacheReportError(int elevel, const PCacheError *err);

/* pcache_shmem.c; the series declares it in guc_hooks.h in a later step */
extern bool check_persistent_cache_directory(char **newval, void **extra,
											 GucSource source);

/* pcache_open.c */
extern bool PCacheOpenPool(PCacheRecord *record_file, bool *ours, PCacheError *err);
extern void PCacheOpenUnusedPool(PCacheRecord *record_file);

/* pcache_unavailable.c */
extern bool PCacheBeginAgain(PCacheError *err);
extern char *PCacheRunWithout(const PCacheRecord *record, bool locked_by_us,
							  const PCacheError *why);
extern void PCacheUnmapBuffers(void);
extern void PCachePromoteAgain(void);
pg_noreturn extern void PCacheStartAgain(PCacheAgainHow how, const PCacheError *why);
pg_noreturn extern void PCacheStartAgainUnwritten(void);

/* pcache_health.c */
extern PCacheMediaReport PCacheMedia;
extern void PCacheCoverBadBlocks(const PCacheMediaReport *report);
extern void PCacheAskMedia(void);
extern void PCacheQueryMedia(void);
extern bool PCacheBlockIsBad(uint32 slot);
extern bool PCacheDescriptorIsBad(uint32 slot);
extern bool PCacheRememberBadDescriptors(void);

/* pcache_mark.c */
extern Size PCacheQueueShmemSize(void);
extern void PCacheQueueShmemInit(void);
extern void PCacheQueueRecover(void);
extern void PCacheEnqueue(int buf_id);
extern void PCacheDequeueStart(PCacheQueueWalk *walk);
extern int	PCacheDequeue(PCacheQueueWalk *walk, int *slots, int max);
extern void PCacheSetKept(int buf_id);
extern void PCacheClearKept(int buf_id);
extern bool PCacheIsKept(int buf_id);
extern uint64 PCacheKeptOf64(int first);
extern uint64 PCacheCountMarks(void);
extern uint64 PCacheQueueLength(void);

/* pcache_crash.c */
extern void PCacheExplainDeath(int signal);
extern void PCacheNoteOwnFault(int signal);

/* pcache_fault.c */
extern void PCacheCatchFaults(void);

/* pcache_sigbus.c */
extern bool PCacheSaving;
extern sigjmp_buf *volatile PCacheMemoryErrorEscape;

/* pcache_untrusted.c */
extern Size PCacheUntrustedShmemSize(void);
extern void PCacheUntrustedShmemInit(void);
extern bool PCacheIsUntrusted(int buf_id);
extern uint64 PCacheCountUntrusted(void);
extern void PCacheTrustAgain(int buf_id);

/* pcache_hint.c */
extern bool PCacheNamesBlocks(const BufferTag *tag, Page page);

/* pcache_startup.c */
extern void PCacheUnseal(uint32 slot);
extern void PCacheDrainForStart(void);

/* pcache_move.c */
extern void PCacheMovePages(const PCachePageFacts *facts, uint64 slots_used);

/* pcache_mapping.c: whoever maps slots claims so many at once */
#define PCACHE_SLOTS_PER_CHUNK	1024

extern void PCacheMapChunk(const PCachePageFacts *facts, uint32 first, uint32 n,
						   PCacheRebuildTotals *totals);
extern void PCacheForgetDuplicates(uint32 nslots, PCacheRebuildTotals *totals);
extern void PCacheForgetAll(uint32 nslots);

/* pcache_rebuild.c */
extern void PCacheRebuildShmemInit(void);
extern int	PCacheHelpersFor(uint64 nslots);
extern uint32 PCacheClaimSlots(pg_atomic_uint64 *next, uint32 nslots, uint32 n,
							   uint32 *first);
extern void PCacheRebuildLaunchHelpers(uint64 slots_used);
extern XLogRecPtr PCacheRebuildMapping(const PCachePageFacts *facts,
									   uint64 slots_used);

/* pcache_giveup.c: a loop over slots asks that often */
#define PCACHE_SLOTS_PER_CHECK	1024

extern void PCacheRememberPool(const PCacheSuperblock *sb,
							   const PCacheRecord *record);
extern void PCacheKeepPool(void);
extern void PCacheStartInterrupts(void);
extern bool PCachePostmasterInterrupted(void);
pg_noreturn extern void PCacheRefuseToStart(const PCacheError *err);

/* pcache_recovery.c */
extern void PCacheRecoveryShmemInit(void);
extern void PCacheNoRecoveryLimits(void);
extern bool PCacheReplaysAgain(const ControlFileData *control);
extern void PCacheSetRecoveryLimits(const ControlFileData *control,
									XLogRecPtr durable, XLogRecPtr kept_lsn,
									TimeLineID timeline);

/* pcache_run.c */
extern void PCacheBeginControlSeen(const ControlFileData *control);
extern void PCacheNoteRunWithout(void);

/* pcache_redo.c */
extern void PCacheReportRedo(void);

/* pcache_copies.c */
extern void PCacheForgetCopies(XLogRecPtr redo);
extern void PCacheSpareCopied(void);

/* pcache_watermark.c */
extern void PCacheResetWatermark(const PCacheWatermark *watermark);
extern void PCacheFlushWatermark(void);
extern bool PCacheSeedWatermark(const ControlFileData *control,
								PCacheWatermark *watermark);

/* pcache_wal_end.c */
extern XLogRecPtr PCacheWalEnd(XLogSegNo segno, TimeLineID timeline);

/* pcache_next_start.c */
extern void PCacheGatherServerFacts(const PCachePool *pool,
									PCacheRecord *record,
									PCacheGateFacts *facts);
extern void PCacheForetellStart(PCacheNextEvent event, PCacheForecast *forecast);

/* pcache_next_config.c */
extern bool PCacheReadNextConfig(PCacheNextConfig *config, PCacheError *err);

/* pcache_stat.c */
extern void PCacheSealerBegin(void);
extern void PCacheRoundBegin(void);
extern void PCacheRoundDone(void);
extern void PCacheCountSeals(uint64 seals, uint64 failed);
extern uint64 PCacheCountDrains(void);
extern void PCachePublishMedia(const PCacheMediaReport *report);

/* pcache_save.c */
extern void PCacheDescribe(PCacheDescriptor *desc, uint32 slot,
						   const BufferTag *tag, uint32 state,
						   XLogRecPtr lsn_bound);
extern bool PCacheSaveSlots(uint32 first, uint32 n, XLogRecPtr lsn_bound,
							uint64 *saved);

/* pcache_save_helpers.c */
typedef enum PCacheSaveResult
{
	PCACHE_SAVED,
	PCACHE_SAVE_FAILED,			/* a drain failed, and errno is set */
	PCACHE_SAVE_AGAIN,			/* a memory error was met, or a helper failed */
} PCacheSaveResult;

extern PCacheSaveResult PCacheSaveAll(bool alone, XLogRecPtr checkpoint,
									  uint64 *saved, int *nhelpers);

/* pcache_scrub.c */
extern bool PCacheScrubs(void);
extern uint64 PCacheScrubSlots(uint32 first, uint32 n);

/* pcache_numa.c */
extern void PCacheApplyNuma(const PCacheMemoryPlace *place);

#endif							/* PCACHE_INTERNAL_H */
