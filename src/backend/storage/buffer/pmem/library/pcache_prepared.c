/*-------------------------------------------------------------------------
 *
 * pcache_prepared.c
 *	  Notice what a hot standby replays that aborts transactions on one timeline only.
 *
 * From then on its sessions set the hint that what the transaction did is void, which
 * no file has if hints are logged.  A server sets such a hint whatever becomes of the
 * WAL: whoever loses that has aborted the transaction all the more.  There are two
 * exceptions, if the standby is stopped, and then follows another timeline:
 *
 * ROLLBACK PREPARED.  On a timeline that has left this one before, the transaction can
 * still be committed.
 *
 * The beginning of a timeline.  A promotion aborts whatever was running, and that has no
 * record of its own.  On the timeline from which this one has come it goes on, and
 * can be committed.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_prepared.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "storage/pcache_library.h"

static void (*server_xact_redo) (XLogReaderState *record) = NULL;
static void (*server_xlog_redo) (XLogReaderState *record) = NULL;

/*
 * A record like that is about to be replayed.  Once the redo point is behind its beginning,
 * no recovery can do without it.  Sessions that set such hints may come later than the
 * record, so what matters is only whether there can be any.
 */
static void
Note(const XLogReaderState *record)
{
	if (PCacheStart.in_use && standbyState != STANDBY_DISABLED)
		PCacheStoreNote(PCACHE_ROLLED_BACK_OFFSET, record->ReadRecPtr);
}

static void
RedoXact(XLogReaderState *record)
{
	if ((XLogRecGetInfo(record) & XLOG_XACT_OPMASK) == XLOG_XACT_ABORT_PREPARED)
		Note(record);
	server_xact_redo(record);
}

/* Is this the first record of a timeline? */
static bool
BeginsTimeline(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	CheckPoint	checkpoint;

	if (info != XLOG_CHECKPOINT_SHUTDOWN)
		return info == XLOG_END_OF_RECOVERY;
	memcpy(&checkpoint, XLogRecGetData(record), sizeof(checkpoint));
	return checkpoint.ThisTimeLineID != checkpoint.PrevTimeLineID;
}

static void
RedoXLog(XLogReaderState *record)
{
	if (BeginsTimeline(record))
		Note(record);
	server_xlog_redo(record);
}

/* To be called once, while the server preloads libraries. */
void
PCacheWatchPrepared(void)
{
	server_xact_redo = RmgrTable[RM_XACT_ID].rm_redo;
	RmgrTable[RM_XACT_ID].rm_redo = RedoXact;
	server_xlog_redo = RmgrTable[RM_XLOG_ID].rm_redo;
	RmgrTable[RM_XLOG_ID].rm_redo = RedoXLog;
}
