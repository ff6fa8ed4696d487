/*-------------------------------------------------------------------------
 *
 * xlogpmem.h
 *	  WAL segments written through mappings: wal_sync_method = pmem.
 *
 * See src/backend/access/transam/README.pmem.  All of it may be called in
 * builds without libpmem, where wal_sync_method cannot be pmem.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/access/xlogpmem.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef XLOGPMEM_H
#define XLOGPMEM_H

#include "access/xlogdefs.h"

/* In shared memory; who writes WAL owns it (see xlogpmem.c). */
typedef struct XLogPmemControl
{
	bool		unsynced;		/* WAL was written that no drain covers */
	bool		direct_possible;	/* open_direct was tried in pg_wal */
	XLogRecPtr	whole_page;		/* start of the page whose rest is zeroed */
} XLogPmemControl;

extern PGDLLIMPORT XLogPmemControl *XLogPmemCtl;
extern PGDLLIMPORT bool XLogPmemUndrained;

extern Size XLogPmemShmemSize(void);
extern void XLogPmemShmemInit(void);

/*
 * Copy WAL into a segment; what is copied is durable after XLogPmemDrain().
 * fd is the open segment.  False: nothing was done, the segment cannot be
 * mapped, write() it.  Call with WALWriteLock held, or in the walreceiver.
 *
 * XLogPmemWritePages() is for whole WAL buffers: pages starts at startoffset
 * in the segment; of these, WAL up to "written" was written before, and WAL
 * up to "end" is to be written.
 */
extern bool XLogPmemCopy(int fd, XLogSegNo segno, TimeLineID tli,
						 const char *bytes, uint32 offset, Size len);
extern bool XLogPmemWritePages(int fd, XLogSegNo segno, TimeLineID tli,
							   const char *pages, uint32 startoffset,
							   XLogRecPtr written, XLogRecPtr end);
extern void XLogPmemDrainSlow(void);

/*
 * The mount below a path, for messages.  mount and options have MAXPGPATH
 * bytes, type has NAMEDATALEN.  Returns false if it is unknown.
 */
extern bool XLogPmemFindMount(const char *path, char *mount, char *type,
							  char *options);

/* Must a system call make WAL durable, although wal_sync_method is pmem? */
extern bool XLogPmemNeedsSync(void);

extern void XLogPmemSegmentOpened(void);
extern void XLogPmemSegmentsRemoved(void);
extern void XLogPmemReleaseMappings(void);
extern bool ProcessBarrierXLogPmem(void);
extern bool XLogPmemPrepareNextSegment(void);

/* Wait until what this process copied is durable. */
static inline void
XLogPmemDrain(void)
{
	if (unlikely(XLogPmemUndrained))
		XLogPmemDrainSlow();
}

/* WAL was written with a system call. */
static inline void
XLogPmemWroteByCall(void)
{
	XLogPmemCtl->unsynced = true;
}

/* All WAL written so far was synced with a system call. */
static inline void
XLogPmemSynced(void)
{
	XLogPmemCtl->unsynced = false;
}

#endif							/* XLOGPMEM_H */
