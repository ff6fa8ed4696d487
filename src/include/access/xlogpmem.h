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

#include "access/xlogmethod.h"

/*
 * For the table in xlogmethod.c, which says what they are for.  What is written
 * is durable after XLogPmemDrain().  If a segment cannot be mapped, nothing is
 * written, and the result is false.
 */
extern bool XLogPmemWorks(void);
extern void XLogPmemSegmentOpened(int flags);
extern bool XLogPmemWritePages(XLogMethodControl *ctl,
							   int fd, XLogSegNo segno, TimeLineID tli,
							   char *buffers, int nbuffers,
							   int first, int npages, uint32 startoffset,
							   XLogRecPtr written, XLogRecPtr end);
extern bool XLogPmemWrite(XLogMethodControl *ctl,
						  int fd, XLogSegNo segno, TimeLineID tli,
						  const char *bytes, Size len, uint32 offset);
extern void XLogPmemDrain(void);

/* Mappings, which no other method has. */
extern void XLogPmemSegmentsRemoved(void);
extern void XLogPmemReleaseMappings(void);
extern bool ProcessBarrierXLogPmem(void);
extern bool XLogPmemPrepareNextSegment(void);

#endif							/* XLOGPMEM_H */
