/*-------------------------------------------------------------------------
 *
 * pcache_start.h
 *	  How a start gets its pool, and what it keeps of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_start.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_START_H
#define PCACHE_START_H

#include "storage/pcache_redo.h"
#include "storage/pcache_run.h"
#include "storage/spin.h"

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

	/* Chunks have been claimed for this number of buffers, see ClaimChunk(). */
	pg_atomic_uint64 next_slot pg_attribute_aligned(PG_CACHE_LINE_SIZE);
} PCacheRebuildControl;

/* pcache_giveup.c: a loop over slots asks that often */
#define PCACHE_SLOTS_PER_CHECK	1024

extern void PCacheRememberPool(const PCacheSuperblock *sb,
							   const PCacheRecord *record);
extern void PCacheKeepPool(void);
extern void PCacheStartInterrupts(void);
extern bool PCachePostmasterInterrupted(void);
pg_noreturn extern void PCacheRefuseToStart(const PCacheError *err);

/* pcache_open.c */
extern bool PCacheOpenPool(PCacheRecord *record_file, bool *ours, PCacheError *err);
extern void PCacheOpenUnusedPool(PCacheRecord *record_file);

/* pcache_unavailable.c */
extern bool PCacheDoWithout(PCacheError *err);
extern char *PCacheRunWithout(const PCacheRecord *record, bool locked_by_us,
							  const PCacheError *why);
extern void PCacheNoteRunWithout(void);

/* pcache_unseal.c */
extern void PCacheUnseal(uint32 slot);
extern void PCacheDrainForStart(void);
extern void PCacheUnsealOthers(void);

/* pcache_move.c */
extern void PCacheMovePages(const PCachePageFacts *facts, uint64 slots_used);

/* pcache_mapping.c: whoever maps slots claims so many at once */
#define PCACHE_SLOTS_PER_CHUNK	1024

extern void PCacheMapChunk(const PCachePageFacts *facts, uint32 first, uint32 n,
						   PCacheRebuildTotals *totals);
extern void PCacheForgetDuplicates(uint32 nslots, PCacheRebuildTotals *totals);
extern void PCacheForgetAll(uint32 nslots);

/* pcache_rebuild.c */
extern PCacheRebuildControl *PCacheRebuildCtl;
extern void PCacheRebuildShmemInit(void);
extern void PCacheRebuildLaunchHelpers(uint64 slots_used);
extern XLogRecPtr PCacheRebuildMapping(const PCachePageFacts *facts,
									   uint64 slots_used);

#endif							/* PCACHE_START_H */
