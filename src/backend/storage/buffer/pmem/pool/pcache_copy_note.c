/*-------------------------------------------------------------------------
 *
 * pcache_copy_note.c
 *	  The pool's notes of databases whose files redo has copied.
 *
 * Redo of CREATE DATABASE by file copy, and of a move to another tablespace,
 * reads the files of the source.  Redo that begins before such a record copies
 * once more, and pages of the source that were kept must not get into the files
 * before.  So there is a note for each such database, with the LSN of the last
 * record, until a later redo point is in pg_control.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_copy_note.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_copy_note.h"
#include "storage/pcache_error.h"

/* The entry for what there is no room for. */
#define OVERFLOW	(PCACHE_MAX_COPY_NOTES - 1)

static PCacheCopyNote *
OnMedia(const PCacheMapping *map)
{
	return (PCacheCopyNote *) (map->base + PCACHE_COPY_NOTES_OFFSET);
}

/*
 * Read the PCACHE_MAX_COPY_NOTES notes of an open pool.  If they cannot be read
 * they come back damaged.
 */
void
PCacheCopyNotesRead(int fd, PCacheCopyNote *notes)
{
	Size		size = PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote);

	if (!PCacheReadExact(fd, notes, size, PCACHE_COPY_NOTES_OFFSET))
		memset(notes, 0xFF, size);
}

/* Are all notes as they were stored?  If not, nobody knows what they said. */
bool
PCacheCopyNotesAreIntact(const PCacheCopyNote *notes)
{
	for (int i = 0; i < PCACHE_MAX_COPY_NOTES; i++)
	{
		if (notes[i].lsn != 0 && notes[i].crc != PCacheCrcOf(&notes[i]))
			return false;
	}
	return true;
}

/*
 * Was there, for redo that begins at this redo point, no room to note a
 * database?
 */
bool
PCacheCopyNotesOverflow(const PCacheCopyNote *notes, uint64 redo)
{
	return notes[OVERFLOW].lsn != 0 && notes[OVERFLOW].lsn >= redo;
}

/*
 * List the databases that redo which begins at this redo point copies once more.
 * db_oids must have room for PCACHE_MAX_COPY_NOTES.  Returns how many there are.
 */
uint32
PCacheCopyNotesList(const PCacheCopyNote *notes, uint64 redo, uint32 *db_oids)
{
	uint32		n = 0;

	for (int i = 0; i < OVERFLOW; i++)
	{
		if (notes[i].lsn != 0 && notes[i].lsn >= redo)
			db_oids[n++] = notes[i].db_oid;
	}
	return n;
}

/*
 * Note, durably, that the files of a database are copied by the record that
 * begins at an LSN.  The caller keeps others from changing the notes.
 *
 * The process may be killed between the stores, which leaves a note that is
 * damaged.  A failure to drain needs no answer: it is that of an ordinary file,
 * which no pool outlives the host in, and while the host lives so does the note.
 */
void
PCacheCopyNoteStore(const PCacheMapping *map, uint32 db_oid, uint64 lsn)
{
	PCacheCopyNote *notes = OnMedia(map);
	PCacheCopyNote *entry = NULL;

	for (int i = 0; i < OVERFLOW; i++)
	{
		if (notes[i].lsn == 0)
		{
			if (entry == NULL)
				entry = &notes[i];
		}
		else if (notes[i].db_oid == db_oid)
		{
			entry = &notes[i];
			break;
		}
	}
	if (entry == NULL)
	{
		entry = &notes[OVERFLOW];
		db_oid = 0;
	}
	/* redo that has begun anew may be behind what was noted before */
	if (entry->lsn < lsn)
	{
		entry->db_oid = db_oid;
		entry->lsn = lsn;
		entry->crc = PCacheCrcOf(entry);
	}
	/* whoever stored it may have died before its flush */
	(void) PCachePersist(map, entry, sizeof(*entry));
}

/*
 * Remove, durably, the notes of copies before a redo point, at which any redo
 * begins from now on; or all of them, with PG_UINT64_MAX, if no page is kept.
 * The caller keeps others from changing the notes.  Returns false with errno
 * set.
 */
bool
PCacheCopyNotesForget(const PCacheMapping *map, uint64 redo)
{
	PCacheCopyNote *notes = OnMedia(map);
	bool		done = true;

	for (int i = 0; i < PCACHE_MAX_COPY_NOTES; i++)
	{
		if (notes[i].lsn == 0 || (redo != PG_UINT64_MAX && notes[i].lsn >= redo))
			continue;
		notes[i].lsn = 0;
		if (!PCachePersist(map, &notes[i], sizeof(notes[i])))
			done = false;
	}
	return done;
}
