/*-------------------------------------------------------------------------
 *
 * xlogmethod.h
 *	  Values of wal_sync_method with their own ways to write WAL.
 *
 * With pmem and open_direct, WAL is not written by pwrite() and made durable by
 * a sync later.  xlog.c and the walreceiver call what is here, whatever the
 * method, and learn what is left to be done.  xlogmethod.c has the table of the
 * methods, which do not know of each other.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/access/xlogmethod.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef XLOGMETHOD_H
#define XLOGMETHOD_H

#include "access/xlog.h"
#include "access/xlogdefs.h"

/*
 * In shared memory, and handed to the methods.  It belongs to who writes WAL:
 * on a primary to the holder of WALWriteLock, on a standby to the walreceiver.
 * The two never run at the same time.
 */
typedef struct XLogMethodControl
{
	bool		unsynced;		/* WAL was written that only a sync covers */
	bool		works[WAL_SYNC_METHOD_OPEN_DIRECT + 1]; /* in pg_wal, as found */
	XLogRecPtr	pmem_whole_page;	/* start of the page whose rest is zeroed */
} XLogMethodControl;

extern Size XLogMethodShmemSize(void);
extern void XLogMethodShmemInit(void);

extern void XLogMethodSegmentOpened(int flags);
extern bool XLogMethodWritePages(int fd, XLogSegNo segno, TimeLineID tli,
								 char *buffers, int nbuffers,
								 int first, int npages, uint32 startoffset,
								 XLogRecPtr written, XLogRecPtr end);
extern ssize_t XLogMethodWrite(int fd, XLogSegNo segno, TimeLineID tli,
							   const char *bytes, Size len, uint32 offset);
extern void XLogMethodDrain(void);
extern bool XLogMethodNeedsSync(void);
extern void XLogMethodSynced(void);

#endif							/* XLOGMETHOD_H */
