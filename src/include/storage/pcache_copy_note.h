/*-------------------------------------------------------------------------
 *
 * pcache_copy_note.h
 *	  The pool's notes of databases whose files redo has copied.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_copy_note.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_COPY_NOTE_H
#define PCACHE_COPY_NOTE_H

#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"

extern void PCacheCopyNotesRead(int fd, PCacheCopyNote *notes);
extern bool PCacheCopyNotesAreIntact(const PCacheCopyNote *notes);
extern bool PCacheCopyNotesOverflow(const PCacheCopyNote *notes, uint64 redo);
extern uint32 PCacheCopyNotesList(const PCacheCopyNote *notes, uint64 redo,
								  uint32 *db_oids);
extern void PCacheCopyNoteStore(const PCacheMapping *map, uint32 db_oid,
								uint64 lsn);
extern bool PCacheCopyNotesForget(const PCacheMapping *map, uint64 redo);

#endif							/* PCACHE_COPY_NOTE_H */
