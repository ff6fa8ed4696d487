/*-------------------------------------------------------------------------
 *
 * pcache_redo_done.c
 *	  Has a kept page what a WAL record is about, so that redo need not touch
 *	  it?
 *
 * Redo locks each page that a record refers to exclusively, and only then looks
 * at its LSN.  For the cache that lock is the announcement of a change: it marks
 * the slot, and the sealer flushes and seals a page anew that nobody has
 * changed.  Most kept pages are not older than the records about them.  So this
 * looks at the LSN first, under the pin alone, and leaves a page that has the
 * change with a share lock.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/redo/pcache_redo_done.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/pcache_redo.h"

/*
 * Does redo of these records leave a page alone which is not older, or whose
 * image was restored?  Hash and GiST go on to change such a page, and set its
 * LSN back.  The others were not looked at.
 */
static bool
LeavesDonePageAlone(RmgrId rmid)
{
	return rmid == RM_XLOG_ID || rmid == RM_HEAP_ID || rmid == RM_HEAP2_ID ||
		rmid == RM_BTREE_ID;
}

/*
 * Redo is about to look at a page.  Returns true if it can leave the page as it
 * is: it was kept over a crash, so that it can't be torn, and is not older than
 * the record.  Then *buffer is pinned and locked, in share mode, as redo
 * expects it from a page on which it has nothing to do.
 *
 * Nobody is there who would mind a share lock in place of an exclusive one, or
 * of one for cleanup: connections are not allowed before everything was
 * replayed that a kept page contains (PersistentCacheConsistentAt).
 *
 * Only pages of the main fork.  Init forks must get to disk, and the bits of a
 * visibility map change without an LSN.
 *
 * Called by the startup process, which is the only one that sets LSNs during
 * redo, so that it can read them without a lock.
 */
bool
PersistentCacheRedoDoneBuffer(XLogReaderState *record, uint8 block_id,
							  Buffer *buffer)
{
	RelFileLocator rlocator;
	ForkNumber	forknum;
	BlockNumber blkno;
	Buffer		recent;
	int			buf_id;

	/* no kept page has this record: the usual case, once redo is so far */
	if (!PCacheRecoveryCtl->kept_over_crash || record->EndRecPtr > PCacheRecoveryCtl->kept_lsn)
		return false;
	if (!LeavesDonePageAlone(XLogRecGetRmid(record)) ||
		(XLogRecGetBlock(record, block_id)->flags & BKPBLOCK_WILL_INIT) != 0)
		return false;
	if (!XLogRecGetBlockTagExtended(record, block_id, &rlocator, &forknum,
									&blkno, &recent) ||
		forknum != MAIN_FORKNUM)
		return false;

	buf_id = BufferIsValid(recent) ? recent - 1 :
		BufTableFindBlock(&rlocator, forknum, blkno);
	if (buf_id < 0 || !PCacheIsKept(buf_id) ||
		!ReadRecentBuffer(rlocator, forknum, blkno, buf_id + 1))
		return false;

	*buffer = buf_id + 1;
	if (!PCacheIsKept(buf_id) ||
		record->EndRecPtr > PageGetLSN(BufferGetPage(*buffer)))
	{
		ReleaseBuffer(*buffer);
		return false;
	}
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	return true;
}
