/*-------------------------------------------------------------------------
 *
 * pcache_replay.c
 *	  Records that need something besides when they are replayed.
 *
 * CREATE DATABASE with strategy file_copy, and ALTER DATABASE ... SET TABLESPACE,
 * are replayed by copying files below the buffer manager.  An unpatched server has no
 * page of the files that are replaced in its buffers when it replays that for the
 * first time after a start.  With kept pages there may be some, of the files as they
 * were.
 *
 * Others abort transactions on one timeline only.  From then on sessions of a hot standby set
 * the hint that what the transaction did is void, which
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
 *	  src/backend/storage/buffer/pmem/library/pcache_replay.c
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
#include "commands/dbcommands_xlog.h"
#include "storage/bufmgr.h"
#include "storage/pcache_library.h"
#include "storage/smgr.h"

static void (*server_dbase_redo) (XLogReaderState *record) = NULL;
static void (*server_xact_redo) (XLogReaderState *record) = NULL;
static void (*server_xlog_redo) (XLogReaderState *record) = NULL;

static int
CompareLocators(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(RelFileLocator));
}

/*
 * The relations of a database that have pages in shared buffers, in one tablespace.
 * Returns a palloc'd array of *n locators, each of them once.
 *
 * Headers are read without their locks: only the startup process could enter pages
 * of files that are about to be replaced.
 */
static RelFileLocator *
CachedRelations(Oid db_oid, Oid spc_oid, int *n)
{
	int			capacity = 64;
	RelFileLocator *found = palloc_array(RelFileLocator, capacity);
	int			nfound = 0;
	int			ndistinct = 0;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		const PCachePageKey *key = (const PCachePageKey *) &GetBufferDescriptor(slot)->tag;

		if (key->db_oid != db_oid || key->spc_oid != spc_oid)
			continue;
		if (nfound == capacity)
			found = repalloc_array(found, RelFileLocator, capacity *= 2);
		memcpy(&found[nfound++], key, sizeof(RelFileLocator));
	}
	qsort(found, nfound, sizeof(RelFileLocator), CompareLocators);
	for (int i = 0; i < nfound; i++)
	{
		if (i == 0 || !RelFileLocatorEquals(found[i], found[ndistinct - 1]))
			found[ndistinct++] = found[i];
	}
	*n = ndistinct;
	return found;
}

/*
 * Drop the pages of the files that are about to be replaced, and no others of the
 * database: what was replayed on pages elsewhere may not be replayed again, and a
 * session of a hot standby may have pinned them, for which dropping would wait.
 * Nobody can have pinned these, because the database was not there until now.
 */
static void
RedoDbase(XLogReaderState *record)
{
	if (PCacheStart.in_use &&
		(XLogRecGetInfo(record) & ~XLR_INFO_MASK) == XLOG_DBASE_CREATE_FILE_COPY)
	{
		xl_dbase_create_file_copy_rec *copy =
			(xl_dbase_create_file_copy_rec *) XLogRecGetData(record);
		int			n;
		RelFileLocator *relations = CachedRelations(copy->db_id, copy->tablespace_id, &n);
		SMgrRelation *files = palloc_array(SMgrRelation, Max(n, 1));

		for (int i = 0; i < n; i++)
			files[i] = smgropen(relations[i], INVALID_PROC_NUMBER);
		DropRelationsAllBuffers(files, n);
		for (int i = 0; i < n; i++)
			smgrclose(files[i]);
		pfree(files);
		pfree(relations);
	}
	server_dbase_redo(record);
}

/*
 * A record that aborts transactions is about to be replayed.  Once the redo point is behind its beginning,
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
PCacheWatchReplay(void)
{
	server_dbase_redo = RmgrTable[RM_DBASE_ID].rm_redo;
	RmgrTable[RM_DBASE_ID].rm_redo = RedoDbase;
	server_xact_redo = RmgrTable[RM_XACT_ID].rm_redo;
	RmgrTable[RM_XACT_ID].rm_redo = RedoXact;
	server_xlog_redo = RmgrTable[RM_XLOG_ID].rm_redo;
	RmgrTable[RM_XLOG_ID].rm_redo = RedoXLog;
}
