/*-------------------------------------------------------------------------
 *
 * pcache.h
 *	  A shared buffer cache that survives restarts: interface to the rest of
 *	  the server.
 *
 * The protocol is described in src/backend/storage/buffer/pmem/README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_H
#define PCACHE_H

#include "access/xlogdefs.h"
#include "access/xlogreader.h"
#include "catalog/pg_control.h"
#include "storage/buf.h"
#include "storage/itemptr.h"
#include "storage/pcache_layout.h"
#include "utils/guc.h"

typedef enum PersistentCacheNuma
{
	PERSISTENT_CACHE_NUMA_OFF,
	PERSISTENT_CACHE_NUMA_WARN,
	PERSISTENT_CACHE_NUMA_BIND,
} PersistentCacheNuma;

typedef enum PersistentCacheOnMediaUnknown
{
	PERSISTENT_CACHE_MEDIA_USE,
	PERSISTENT_CACHE_MEDIA_COLD,
} PersistentCacheOnMediaUnknown;

typedef enum PersistentCacheScrub
{
	PERSISTENT_CACHE_SCRUB_AUTO,
	PERSISTENT_CACHE_SCRUB_ON,
	PERSISTENT_CACHE_SCRUB_OFF,
} PersistentCacheScrub;

/* the most that persistent_cache_workers can be */
#define PCACHE_MAX_WORKERS	64

/* GUCs */
extern PGDLLIMPORT int persistent_cache_mode;
extern PGDLLIMPORT int persistent_cache_numa;
extern PGDLLIMPORT int persistent_cache_on_media_unknown;
extern PGDLLIMPORT bool persistent_cache_required;
extern PGDLLIMPORT int persistent_cache_scrub;
extern PGDLLIMPORT int persistent_cache_seal_delay;
extern PGDLLIMPORT int persistent_cache_size;
extern PGDLLIMPORT int persistent_cache_workers;
extern PGDLLIMPORT char *persistent_cache_directory;
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_mode_options[];
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_numa_options[];
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_on_media_unknown_options[];
extern PGDLLIMPORT const struct config_enum_entry persistent_cache_scrub_options[];

/* pcache_shared.c: any process; the last one is for a child without shared memory */
extern bool PersistentCacheConfigured(void);
extern bool PersistentCacheEnabled(void);
extern void PersistentCacheDetach(void);

/* pcache_shmem.c: postmaster, while shared memory is created */
extern Size PersistentCacheShmemSize(void);
extern char *PersistentCacheShmemInit(void);

/* pcache_again.c: postmaster; checkpointer */
extern bool PersistentCacheStartsAgain(void);
extern bool PersistentCacheStartGivenUp(void);

/* pcache_startup.c: startup process */
extern void PersistentCacheStartup(bool have_backup_label);

/* pcache_rebuild.c: a background worker */
extern void PersistentCacheRebuildMain(Datum main_arg);

/* pcache_recovery.c: startup process; the first two are for any process */
extern bool PersistentCacheAheadOfReplay(void);
extern void PersistentCacheMinRecoveryPoint(XLogRecPtr page_lsn,
											XLogRecPtr *point,
											TimeLineID *timeline);
extern bool PersistentCacheConsistentAt(XLogRecPtr replayed);
extern void PersistentCacheReachedConsistency(void);
extern bool PersistentCacheWalExhausted(XLogRecPtr missing);
extern void PersistentCacheTimelineForked(TimeLineID timeline, XLogRecPtr fork);
extern void PersistentCacheRecoveryEnded(XLogRecPtr end, XLogRecPtr incomplete);

/* pcache_crash.c: postmaster; any process */
extern void PersistentCacheChildDied(int pid, int exitstatus);
extern void PersistentCachePanicking(void);

/*
 * pcache_untrusted.c: who completes a read
 *
 * PersistentCacheUntrusted is NULL unless PersistentCacheEnabled().
 */
typedef struct PersistentCacheUntrustedMap PersistentCacheUntrustedMap;
extern PGDLLIMPORT PersistentCacheUntrustedMap *PersistentCacheUntrusted;

extern void PersistentCacheReadWithErrors(Buffer buffer);

/*
 * pcache_mark.c: any process
 *
 * PersistentCacheDescriptors is NULL unless persistent_cache_mode is always.
 */
extern PGDLLIMPORT PCacheDescriptor *PersistentCacheDescriptors;

extern void PersistentCacheMarkBuffer(int buf_id);

/*
 * A buffer's page, or its tag, is about to change; or the page LSN has just
 * been changed under a share lock.
 */
static inline void
PersistentCacheMark(int buf_id)
{
	if (unlikely(PersistentCacheDescriptors != NULL))
		PersistentCacheMarkBuffer(buf_id);
}

/* pcache_retag.c: any process */
extern void PersistentCacheRetagBuffer(int buf_id, bool ring);

/* A buffer that nobody can find yet is about to get a new tag. */
static inline void
PersistentCacheRetag(int buf_id, bool ring)
{
	if (unlikely(PersistentCacheUntrusted != NULL))
		PersistentCacheRetagBuffer(buf_id, ring);
}

/* pcache_hint.c: any process */
extern bool PersistentCacheHeapPageIsDurable(Buffer buffer);
extern bool PersistentCacheDeathIsDurable(Buffer buffer, OffsetNumber root);

/*
 * A heap page, locked by the caller, says that all tuples of the HOT chain that
 * begins at tid are dead to everybody.  Takes that back while the WAL that it
 * relies on is not durable: the caller of heap_hot_search_buffer() may mark the index entry as
 * dead, without WAL, and a crash that loses the deletion would not take the mark
 * back.  Does nothing if nobody has asked (all_dead is NULL).
 */
static inline void
PersistentCacheCheckAllDead(Buffer buffer, ItemPointer tid, bool *all_dead)
{
	if (unlikely(PersistentCacheDescriptors != NULL) &&
		all_dead != NULL && *all_dead)
		*all_dead = PersistentCacheDeathIsDurable(buffer,
												  ItemPointerGetOffsetNumber(tid));
}

/* pcache_redo_done.c: startup process */
extern bool PersistentCacheRedoDoneBuffer(XLogReaderState *record,
										  uint8 block_id, Buffer *buffer);

/*
 * Redo is about to look at a page.  Returns true if the page has what the
 * record is about, and needs no image; then *buffer is pinned and share-locked.
 */
static inline bool
PersistentCacheRedoDone(XLogReaderState *record, uint8 block_id, Buffer *buffer)
{
	return PersistentCacheDescriptors != NULL &&
		PersistentCacheRedoDoneBuffer(record, block_id, buffer);
}

/* pcache_redo.c: startup process */
extern void PersistentCacheRedoBuffer(XLogReaderState *record, uint8 block_id,
									  Buffer buffer);
extern void PersistentCacheWipeDatabase(Oid db_id);

/*
 * Redo has locked a page exclusively, and is about to look at its LSN or to
 * restore its image.
 */
static inline void
PersistentCacheRedo(XLogReaderState *record, uint8 block_id, Buffer buffer)
{
	if (PersistentCacheDescriptors != NULL)
		PersistentCacheRedoBuffer(record, block_id, buffer);
}

/* pcache_copies.c: startup process; checkpointer */
extern PGDLLIMPORT bool PersistentCacheSparesCopied;

extern void PersistentCacheNoteCopy(Oid db_id, XLogRecPtr lsn);
extern bool PersistentCacheIsSpared(Oid db_id);

/* Is a dirty buffer of this database not to be written at this shutdown? */
static inline bool
PersistentCacheSpares(Oid db_id)
{
	return unlikely(PersistentCacheSparesCopied) && PersistentCacheIsSpared(db_id);
}

/* pcache_end_of_recovery.c: startup process */
extern bool PersistentCacheEndRecovery(const ControlFileData *control,
									   XLogRecPtr last_disabled,
									   TimeLineID timeline);
extern void PersistentCacheConnectionsAllowed(void);

/* pcache_wal_ahead.c: startup process */
extern void PersistentCacheWalRead(XLogRecPtr page, TimeLineID timeline);

/* pcache_sigbus.c: each child of the postmaster */
extern void PersistentCacheInitChild(void);

/* pcache_sealer.c */
extern void PersistentCacheSealerRegister(void);
extern void PersistentCacheSealerMain(Datum main_arg);

/* pcache_watermark.c: see there who calls */
extern void PersistentCacheWalWritten(const char *bytes, Size len,
									  XLogRecPtr end, XLogRecPtr valid,
									  TimeLineID timeline);
extern void PersistentCacheWalPagesWritten(const char *buffers, int nbuffers,
										   int first, int npages,
										   XLogRecPtr end, XLogRecPtr valid,
										   TimeLineID timeline);
extern void PersistentCacheWalFlushed(XLogRecPtr flushed, TimeLineID timeline);
extern void PersistentCacheWalRestored(XLogSegNo segno, TimeLineID timeline);
extern void PersistentCacheWalReplayed(void);

/* pcache_checkpoint.c: checkpointer */
extern void PersistentCacheCheckpointStart(void);

/* pcache_checkpoint.c: who updates pg_control */
extern void PersistentCacheControlPending(const ControlFileData *control);
extern void PersistentCacheControlConfirmed(const ControlFileData *control);

/* pcache_shutdown.c: checkpointer */
extern void PersistentCacheShutdown(void);

#endif							/* PCACHE_H */
