/*-------------------------------------------------------------------------
 *
 * pcache_copies.c
 *	  Databases whose files redo copies: note them, and leave them alone.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_copies.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/pcache_copy_note.h"
#include "storage/pcache_core.h"

bool		PersistentCacheSparesCopied = false;

/* What is spared, if anything is; all is if it is not known what was copied. */
static bool all_spared;
static uint32 n_spared;
static uint32 spared[PCACHE_MAX_COPY_NOTES];

/*
 * Redo is about to copy the files of a database, because of the record at an
 * LSN.  From here on, and until redo cannot come to this record again, no start
 * keeps pages of that database.
 *
 * Called by the startup process, before anything is written for the copy.
 */
void
PersistentCacheNoteCopy(Oid db_id, XLogRecPtr lsn)
{
	if (!PersistentCacheEnabled())
		return;
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	if (!PCacheCtl->health.copy_notes_bad)
		PCacheCopyNoteStore(&PCacheThePool.map, db_id, lsn);
	else						/* a list of bad blocks may not outlive a boot */
		(void) PCacheNoteMemoryError(&PCacheThePool.map, PCACHE_COPY_NOTES_OFFSET,
									 PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote));
	LWLockRelease(PersistentCacheLock);
}

/*
 * Remove the notes of copies before a redo point that is in pg_control, durably;
 * or all notes, with PG_UINT64_MAX, if no descriptor is trusted any more,
 * durably.  What cannot be removed costs pages, and is removed later.
 */
void
PCacheForgetCopies(XLogRecPtr redo)
{
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	if (!PCacheCtl->health.copy_notes_bad)
		(void) PCacheCopyNotesForget(&PCacheThePool.map, redo);
	LWLockRelease(PersistentCacheLock);
}

/*
 * Buffers are about to be written that PostgreSQL would not write.  Have those
 * spared that belong to databases which the next redo copies once more.
 *
 * Called by the checkpointer at the shutdown of a standby.
 */
void
PCacheSpareCopied(void)
{
	static PCacheCopyNote notes[PCACHE_MAX_COPY_NOTES];
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	XLogRecPtr	redo = crc_ok ? control->checkPointCopy.redo : 0;

	LWLockAcquire(PersistentCacheLock, LW_SHARED);
	all_spared = PCacheCtl->health.copy_notes_bad;
	LWLockRelease(PersistentCacheLock);
	PCacheCopyNotesRead(PCacheThePool.fd, notes);
	if (!PCacheCopyNotesAreIntact(notes) || PCacheCopyNotesOverflow(notes, redo))
		all_spared = true;
	n_spared = PCacheCopyNotesList(notes, redo, spared);
	PersistentCacheSparesCopied = all_spared || n_spared > 0;
	pfree(control);
}

/* Is a database one of those that are spared? */
bool
PersistentCacheIsSpared(Oid db_id)
{
	for (uint32 i = 0; i < n_spared; i++)
	{
		if (spared[i] == db_id)
			return true;
	}
	return all_spared;
}
