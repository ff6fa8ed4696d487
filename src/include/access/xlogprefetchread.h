/*-------------------------------------------------------------------------
 *
 * xlogprefetchread.h
 *	  Recovery reads ahead into shared buffers: recovery_prefetch = read.
 *
 * See src/backend/access/transam/README.prefetch.  Only the startup process,
 * or a server in single-user mode, may call any of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/access/xlogprefetchread.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef XLOGPREFETCHREAD_H
#define XLOGPREFETCHREAD_H

#include "access/xlogreader.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"

/*
 * Redo begins, redo has ended.  Reads are started only in between, and none is
 * under way after the latter.
 */
extern void XLogPrefetchReadBegin(void);
extern void XLogPrefetchReadEnd(void);

/*
 * How many blocks the prefetcher may have under way, if it could have "limit" of
 * them otherwise.
 */
extern int	XLogPrefetchReadLimit(int limit);

/*
 * The prefetcher has come to a block reference of the record at lsn.  To be
 * called for each reference of each record, in the order of WAL.
 */
extern void XLogPrefetchReadNote(const DecodedBkpBlock *block, XLogRecPtr lsn);

/*
 * Does a record that is queued, but not yet replayed, replace the whole page?
 * replayed is the start of the last record that was replayed.
 */
extern bool XLogPrefetchReadReplaced(const DecodedBkpBlock *block,
									 XLogRecPtr replayed);

/*
 * Have the block read, as PrefetchSharedBuffer() has the kernel read it.  The
 * relation exists and has the block.  lsn is that of the record that refers to
 * it, replayed as above.  If a read was started block->prefetch_buffer is set:
 * the buffer will have the page, but is not pinned.
 */
extern PrefetchBufferResult XLogPrefetchReadBlock(SMgrRelation reln,
												  DecodedBkpBlock *block,
												  XLogRecPtr lsn,
												  XLogRecPtr replayed);

#endif							/* XLOGPREFETCHREAD_H */
