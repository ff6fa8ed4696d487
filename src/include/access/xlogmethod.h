/*-------------------------------------------------------------------------
 *
 * xlogmethod.h
 *	  Values of wal_sync_method with their own ways to write WAL.
 *
 * With pmem and open_direct, WAL is not written by pwrite() and made durable by
 * a sync later.  xlog.c and the walreceiver call what is here, whatever the
 * method, and learn what is left to be done.
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
#include "access/xlogdirect.h"
#include "access/xlogpmem.h"

/* Longest explanation of why a method does not work in pg_wal. */
#define XLOG_METHOD_DETAIL_LEN	(4 * MAXPGPATH)

/*
 * In shared memory.  It belongs to who writes WAL: on a primary to the holder
 * of WALWriteLock, on a standby to the walreceiver.  The two never run at the
 * same time.
 */
typedef struct XLogMethodControl
{
	bool		unsynced;		/* WAL was written that only a sync covers */
	bool		direct_possible;	/* open_direct was tried in pg_wal */
	XLogRecPtr	pmem_whole_page;	/* start of the page whose rest is zeroed */
} XLogMethodControl;

extern PGDLLIMPORT XLogMethodControl *XLogMethodCtl;

extern Size XLogMethodShmemSize(void);
extern void XLogMethodShmemInit(void);

/*
 * The mount below a path, for messages.  mount and options have MAXPGPATH
 * bytes, type has NAMEDATALEN.  Returns false if it is unknown.
 */
extern bool XLogMethodFindMount(const char *path, char *mount, char *type,
								char *options);

extern bool XLogMethodWritePages(int fd, XLogSegNo segno, TimeLineID tli,
								 char *buffers, int nbuffers,
								 int first, int npages, uint32 startoffset,
								 XLogRecPtr written, XLogRecPtr end);
extern ssize_t XLogMethodWrite(int fd, XLogSegNo segno, TimeLineID tli,
							   const char *bytes, Size len, uint32 offset);

/* A segment was opened for writing, with these additional flags. */
static inline void
XLogMethodSegmentOpened(int flags)
{
	XLogPmemSegmentOpened();
	XLogDirectSegmentOpened(flags);
}

/*
 * Must a system call make durable what was written?  With pmem and open_direct
 * only if somebody wrote what neither a drain nor O_DSYNC covers.  Call with
 * WALWriteLock held, or in the walreceiver.
 */
static inline bool
XLogMethodNeedsSync(void)
{
	XLogPmemDrain();
	return (wal_sync_method != WAL_SYNC_METHOD_PMEM &&
			wal_sync_method != WAL_SYNC_METHOD_OPEN_DIRECT) ||
		XLogMethodCtl->unsynced;
}

/* All WAL written so far was synced with a system call. */
static inline void
XLogMethodSynced(void)
{
	XLogMethodCtl->unsynced = false;
}

#endif							/* XLOGMETHOD_H */
