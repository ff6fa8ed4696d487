/*-------------------------------------------------------------------------
 *
 * late_hint.c
 *	  A hint bit that is set after the shutdown checkpoint.
 *
 * A process that outlives that checkpoint, as a walsender, can make a page dirty.
 * Nobody writes it any more, so its file does not have what is in shared buffers.
 * Here the checkpointer does so itself, when it exits, to the first row of a table.
 *
 * late_hint.table is the table, as tablespace/database/relfilenode.  The library must
 * be preloaded.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/late_hint/late_hint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/ipc.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static char *table = NULL;
static emit_log_hook_type prev_emit_log_hook = NULL;

static void
SetHint(int code, Datum arg)
{
	RelFileLocator rlocator;
	Buffer		buffer;
	Page		page;
	HeapTupleHeader tuple;

	if (sscanf(table, "%u/%u/%u", &rlocator.spcOid, &rlocator.dbOid, &rlocator.relNumber) != 3)
		return;
	buffer = ReadBufferWithoutRelcache(rlocator, MAIN_FORKNUM, 0, RBM_NORMAL, NULL, true);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buffer);
	tuple = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, FirstOffsetNumber));
	if ((tuple->t_infomask & HEAP_XMIN_COMMITTED) == 0)
	{
		tuple->t_infomask |= HEAP_XMIN_COMMITTED;
		/* MarkBufferDirtyHint() would write WAL if hints are logged */
		MarkBufferDirty(buffer);
		ereport(LOG, (errmsg("late_hint: set a hint bit")));
	}
	UnlockReleaseBuffer(buffer);
}

/* "shutting down" is the first that the checkpointer has to say, if nothing else was. */
static void
Register(ErrorData *edata)
{
	static int	registered_by = 0;

	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
	if (MyBackendType != B_CHECKPOINTER || registered_by == MyProcPid)
		return;
	registered_by = MyProcPid;
	before_shmem_exit(SetHint, (Datum) 0);
}

void
_PG_init(void)
{
	DefineCustomStringVariable("late_hint.table",
							   "Sets the table whose first row gets a hint bit at the end.",
							   NULL, &table, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = Register;
}
