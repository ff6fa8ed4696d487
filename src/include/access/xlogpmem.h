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

extern PGDLLIMPORT bool XLogPmemUndrained;

/* If not, detail (XLOG_METHOD_DETAIL_LEN bytes) says why. */
extern bool XLogPmemWorks(char *detail);

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
extern bool XLogPmemIsDrained(void);
extern void XLogPmemDrainSlow(void);

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

#endif							/* XLOGPMEM_H */
