/*-------------------------------------------------------------------------
 *
 * pcache_redo.c
 *	  What redo may do to a page that was kept over the start.
 *
 * A kept page contains every change that was logged for it up to
 * PCacheRecoveryCtl->redo_limit: nobody could change it after it was sealed.  So redo
 * finds nothing to do on it for a record up to there.  That this holds is
 * checked for each record, because it is what all of mode always rests on.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/redo/pcache_redo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash_xlog.h"
#include "access/heapam_xlog.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "common/relpath.h"
#include "storage/bufmgr.h"
#include "storage/pcache_redo.h"
#include "storage/smgr.h"

/* Log so many violations one by one. */
#define MAX_VIOLATIONS_LOGGED	20

/*
 * Is this the image of an empty page?  Such a page gets no LSN, and gets
 * initialized without one, when it is first read (fsm_readbuf() does that).
 */
static bool
ImageIsOfNewPage(XLogReaderState *record, uint8 block_id)
{
	PGAlignedBlock image;

	return XLogRecBlockImageApply(record, block_id) &&
		RestoreBlockImage(record, block_id, image.data) &&
		PageIsNew((Page) image.data);
}

/*
 * Records that a page may contain although its LSN is older, or that register
 * a page which they do not change.
 */
static bool
MayBeOlder(XLogReaderState *record, uint8 block_id, ForkNumber forknum, Page page)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	switch (XLogRecGetRmid(record))
	{
		case RM_XLOG_ID:

			/*
			 * MarkBufferDirtyHint() logs the image before it marks the slot
			 * and sets the LSN; all that is new in it are hints.
			 */
			return info == XLOG_FPI_FOR_HINT || PageIsNew(page) ||
				(XLogRecPtrIsInvalid(PageGetLSN(page)) &&
				 ImageIsOfNewPage(record, block_id));
		case RM_HEAP2_ID:
			/* the heap page's LSN is set only if hint bits are logged */
			if ((info & XLOG_HEAP_OPMASK) == XLOG_HEAP2_VISIBLE && block_id == 1)
				return true;
			break;
		case RM_HASH_ID:
			/* registered for the sake of a cleanup lock: REGBUF_NO_CHANGE */
			if (block_id == 0 &&
				(info == XLOG_HASH_MOVE_PAGE_CONTENTS ||
				 info == XLOG_HASH_SQUEEZE_PAGE ||
				 info == XLOG_HASH_DELETE))
				return true;
			/* written to only if tuples were moved to it */
			if (info == XLOG_HASH_SQUEEZE_PAGE && block_id == 1)
				return true;
			break;
		default:
			break;
	}

	/* redo itself sets a map's LSN only if it had bits to clear */
	return forknum == VISIBILITYMAP_FORKNUM && PCacheRecoveryCtl->left_by_redo;
}

/*
 * If the file has a later version of the page, the kept one is stale: take the
 * file's.  Redo has left out for the kept page what its LSN said it has; all
 * of that is in a later version, too, so going on by LSN is right.
 *
 * If the file's version is not later, it could not be brought up to date any
 * more, and the kept one is as good as any page from a file: going on by LSN is
 * all that can be done.
 */
static bool
TakeLaterVersionFromFile(RelFileLocator rlocator, ForkNumber forknum,
						 BlockNumber blkno, Page page)
{
	SMgrRelation smgr = smgropen(rlocator, INVALID_PROC_NUMBER);
	PGIOAlignedBlock block;
	bool		checksum_failure;

	if (!smgrexists(smgr, forknum) || blkno >= smgrnblocks(smgr, forknum))
		return false;
	smgrread(smgr, forknum, blkno, block.data);
	if (!PageIsVerified((Page) block.data, blkno, 0, &checksum_failure) ||
		PageGetLSN((Page) block.data) <= PageGetLSN(page))
		return false;
	memcpy(page, block.data, BLCKSZ);
	return true;
}

/*
 * A kept page lacks a change.  That must not be.
 *
 * Never an error: recovery has to go on.  A record with an image, or one that
 * initializes the page, mends the page by itself.
 */
static void
MendKeptPage(XLogReaderState *record, uint8 block_id, Buffer buffer, bool whole)
{
	Page		page = BufferGetPage(buffer);
	XLogRecPtr	page_lsn = PageGetLSN(page);
	RelFileLocator rlocator;
	ForkNumber	forknum;
	BlockNumber blkno;
	bool		from_file;

	XLogRecGetBlockTag(record, block_id, &rlocator, &forknum, &blkno);
	from_file = !whole && TakeLaterVersionFromFile(rlocator, forknum, blkno, page);
	if (PCacheRecoveryCtl->redo_violations++ >= MAX_VIOLATIONS_LOGGED)
		return;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("persistent cache: a kept page lacked a change, redo invariant violated: block %u of relation \"%s\"",
					blkno, relpathperm(rlocator, forknum).str),
			 errdetail("The page's LSN is %X/%X in slot %d, WAL record at %X/%X of resource manager %s, info 0x%02X, block reference %u, ends at %X/%X; kept pages have all changes up to %X/%X.",
					   LSN_FORMAT_ARGS(page_lsn), buffer - 1,
					   LSN_FORMAT_ARGS(record->ReadRecPtr),
					   GetRmgr(XLogRecGetRmid(record)).rm_name,
					   XLogRecGetInfo(record), block_id,
					   LSN_FORMAT_ARGS(record->EndRecPtr),
					   LSN_FORMAT_ARGS(PCacheRecoveryCtl->redo_limit)),
			 whole ? errhint("The record replaces the whole page.") :
			 from_file ? errhint("The page was replaced by the later version in its file.") :
			 errhint("The file has no later version; the record is applied to the kept page.")));
}

/*
 * Redo has locked a page exclusively, and is about to restore its full-page
 * image or to look at its LSN.  What pcache_redo_done.c leaves alone does not
 * come here.
 *
 * Called by the startup process.
 */
void
PersistentCacheRedoBuffer(XLogReaderState *record, uint8 block_id, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	bool		image = XLogRecBlockImageApply(record, block_id);
	bool		init = (XLogRecGetBlock(record, block_id)->flags & BKPBLOCK_WILL_INIT) != 0;
	ForkNumber	forknum;

	if (!PCacheIsKept(buffer - 1))
		return;
	if (!PCacheRecoveryCtl->kept_over_crash)
	{
		/*
		 * It may come from a file that redo has to repair, see rule "redo
		 * leaves alone a kept page that is not older".
		 */
		if (image || init || record->EndRecPtr > PageGetLSN(page))
			PCacheClearKept(buffer - 1);
		return;
	}
	XLogRecGetBlockTag(record, block_id, NULL, &forknum, NULL);

	if (record->EndRecPtr > PageGetLSN(page))
	{
		if (MayBeOlder(record, block_id, forknum, page))
		{
			if (!image)
				return;
		}
		else
		{
			if (record->EndRecPtr <= PCacheRecoveryCtl->redo_limit)
				MendKeptPage(record, block_id, buffer, image || init);
			PCacheClearKept(buffer - 1);	/* redo changes it */
		}
	}

	/* set back to what it was at that record */
	if (image || init)
		PCacheClearKept(buffer - 1);
}

/*
 * Redo of CREATE DATABASE by file copy is about to remove a directory that is
 * there already, which the buffer manager does not know of.  Pages of what was
 * in it may have been kept, and must not be written to what is put there.  If
 * a database is being moved, other pages of it may be dirty.
 *
 * Without the cache there can be no such pages.
 *
 * Called by the startup process.
 */
void
PersistentCacheWipeDatabase(Oid db_id)
{
	if (!PersistentCacheEnabled())
		return;
	FlushDatabaseBuffers(db_id);
	DropDatabaseBuffers(db_id);
}
