/*-------------------------------------------------------------------------
 *
 * xlogdirect.h
 *	  WAL written past the page cache: wal_sync_method = open_direct.
 *
 * See src/backend/access/transam/README.direct.  All of it may be called on
 * platforms without direct I/O, where wal_sync_method cannot be open_direct.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/access/xlogdirect.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef XLOGDIRECT_H
#define XLOGDIRECT_H

#include <fcntl.h>

#include "access/xlogmethod.h"
#include "storage/fd.h"

/*
 * Is there such a method?  WAL is written in units of XLOG_BLCKSZ, which must
 * be a unit of direct I/O.
 */
#if PG_O_DIRECT != 0 && defined(O_DSYNC) && XLOG_BLCKSZ >= PG_IO_ALIGN_SIZE
#define USE_WAL_OPEN_DIRECT 1
#endif

/* For the table in xlogmethod.c, which says what they are for. */
extern bool XLogDirectWorks(void);
extern void XLogDirectSegmentOpened(int flags);
extern bool XLogDirectWritePages(XLogMethodControl *ctl,
								 int fd, XLogSegNo segno, TimeLineID tli,
								 char *buffers, int nbuffers,
								 int first, int npages, uint32 startoffset,
								 XLogRecPtr written, XLogRecPtr end);

/*
 * A WAL buffer is needed, and the page in it, which ends at page_end, must be
 * written first.  Up to which page should be written?  With open_direct each
 * write waits for the media, so all that is finished goes with it.
 */
static inline XLogRecPtr
XLogDirectEvictUpTo(XLogRecPtr page_end, XLogRecPtr finished)
{
	if (wal_sync_method != WAL_SYNC_METHOD_OPEN_DIRECT)
		return page_end;
	return Max(page_end, finished - finished % XLOG_BLCKSZ);
}

#endif							/* XLOGDIRECT_H */
