/*-------------------------------------------------------------------------
 *
 * pcache_dbase.c
 *	  Redo that replaces the files of a database.
 *
 * CREATE DATABASE with strategy file_copy, and ALTER DATABASE ... SET TABLESPACE,
 * are replayed by copying files below the buffer manager.  An unpatched server has no
 * page of such a database in its buffers when it replays that for the first time
 * after a start.  With kept pages there may be some, of the files as they were.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_dbase.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "commands/dbcommands_xlog.h"
#include "storage/bufmgr.h"
#include "storage/pcache_library.h"

static void (*server_dbase_redo) (XLogReaderState *record) = NULL;

/*
 * Drop the pages of the database whose files are about to be replaced.  Flush them
 * before: what has been replayed on them may not be replayed again.
 */
static void
RedoDbase(XLogReaderState *record)
{
	if (PCacheStart.in_use &&
		(XLogRecGetInfo(record) & ~XLR_INFO_MASK) == XLOG_DBASE_CREATE_FILE_COPY)
	{
		xl_dbase_create_file_copy_rec *copy =
			(xl_dbase_create_file_copy_rec *) XLogRecGetData(record);

		FlushDatabaseBuffers(copy->db_id);
		DropDatabaseBuffers(copy->db_id);
	}
	server_dbase_redo(record);
}

/* To be called once, while the server preloads libraries. */
void
PCacheWrapRedo(void)
{
	server_dbase_redo = RmgrTable[RM_DBASE_ID].rm_redo;
	RmgrTable[RM_DBASE_ID].rm_redo = RedoDbase;
}
