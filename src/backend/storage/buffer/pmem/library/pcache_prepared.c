/*-------------------------------------------------------------------------
 *
 * pcache_prepared.c
 *	  Notice that a hot standby has replayed ROLLBACK PREPARED.
 *
 * From then on its sessions set the hint that what the transaction did is void, which
 * no file has if hints are logged.  A server sets such a hint whatever becomes of the
 * WAL: whoever loses that has aborted the transaction all the more.  But not one that
 * was prepared.  If the standby is stopped, and then follows a timeline that ends
 * before, the transaction can still be committed.
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
#include "storage/pcache_library.h"

static void (*server_xact_redo) (XLogReaderState *record) = NULL;

static void
RedoXact(XLogReaderState *record)
{
	if (PCacheStart.in_use && InHotStandby &&
		(XLogRecGetInfo(record) & XLOG_XACT_OPMASK) == XLOG_XACT_ABORT_PREPARED)
		PCacheStoreNote(PCACHE_ROLLED_BACK_OFFSET, record->EndRecPtr);
	server_xact_redo(record);
}

/* To be called once, while the server preloads libraries. */
void
PCacheWatchPrepared(void)
{
	server_xact_redo = RmgrTable[RM_XACT_ID].rm_redo;
	RmgrTable[RM_XACT_ID].rm_redo = RedoXact;
}
