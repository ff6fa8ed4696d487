/*-------------------------------------------------------------------------
 *
 * pcache_stop.h
 *	  How a clean stop saves the cache.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_stop.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_STOP_H
#define PCACHE_STOP_H

#include "storage/pcache_run.h"

/* A save, which the checkpointer shares with its helpers. */
typedef struct PCacheSaveControl
{
	pg_atomic_uint64 next_slot; /* the first one that nobody has claimed yet */
	pg_atomic_uint64 saved;		/* pages */
	pg_atomic_uint64 scrubbed;	/* free slots that were overwritten */
} PCacheSaveControl;

typedef enum PCacheSaveResult
{
	PCACHE_SAVED,
	PCACHE_SAVE_FAILED,			/* a drain failed, and errno is set */
	PCACHE_SAVE_AGAIN,			/* a memory error was met, or a helper failed */
} PCacheSaveResult;

/* pcache_save.c */
extern bool PCacheSaveSlots(uint32 first, uint32 n, XLogRecPtr lsn_bound,
							uint64 *saved);

/* pcache_save_helpers.c */
extern PCacheSaveControl *PCacheSaveCtl;
extern PCacheSaveResult PCacheSaveAll(bool alone, XLogRecPtr checkpoint,
									  uint64 *saved, int *nhelpers);

/* pcache_scrub.c */
extern bool PCacheScrubs(void);
extern uint64 PCacheScrubSlots(uint32 first, uint32 n);

#endif							/* PCACHE_STOP_H */
