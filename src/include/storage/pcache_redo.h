/*-------------------------------------------------------------------------
 *
 * pcache_redo.h
 *	  What redo does with pages that were kept.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_redo.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_REDO_H
#define PCACHE_REDO_H

#include "storage/pcache_core.h"

/*
 * Recovery with kept pages, see pcache_recovery.c.  The startup process
 * writes.  Others look at kept_limit, which is 0 once it was reached, and,
 * when they write a page, at kept_lsn and kept_timeline, which were set before
 * kept_limit was.
 */
typedef struct PCacheRecoveryControl
{
	pg_atomic_uint64 kept_limit;	/* recovery must get here to believe them */
	XLogRecPtr	kept_lsn;		/* the highest LSN of a kept page */
	TimeLineID	kept_timeline;	/* where that LSN is */
	bool		left_by_redo;	/* they may be what redo made of them */
	bool		kept_over_crash;	/* and not saved by a clean stop */
	XLogRecPtr	redo_limit;		/* they have all changes up to here */
	uint64		redo_violations;	/* they did not */
} PCacheRecoveryControl;

/* pcache_recovery.c */
extern PCacheRecoveryControl *PCacheRecoveryCtl;
extern void PCacheRecoveryShmemInit(void);
extern void PCacheNoRecoveryLimits(void);
extern bool PCacheReplaysAgain(const ControlFileData *control);
extern void PCacheSetRecoveryLimits(const ControlFileData *control,
									XLogRecPtr durable, XLogRecPtr kept_lsn,
									TimeLineID timeline);

#endif							/* PCACHE_REDO_H */
