/*-------------------------------------------------------------------------
 *
 * pcache_redo.c
 *	  A shorter recovery: redo does not repeat what young pages have already.
 *
 * Redo leaves a page as it is if its LSN is not below the end of the record, but it restores
 * an image of it in any case, in case that the page in the file is torn.  One that a start
 * has kept as young (pcache_young.c) is not.  So a record is skipped if all pages that it
 * changes are such ones, with an LSN that is not below its end.  What it does besides is
 * done, see known_records.
 *
 * Most of them also note free space in its map, which is a hint, and is not done.  A record of
 * an index or a sequence finds no young page.  Sessions are not there yet, so nobody has
 * to be cancelled.  All other records are replayed by the server.
 *
 * A page that is not there any more, or was put back by an image, goes through the server's
 * redo: each record asks anew.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_redo.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam_xlog.h"
#include "access/rmgr.h"
#include "access/visibilitymap.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "storage/bufmgr.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"

/*
 * The records that may be skipped, and what each does besides: if this flag is set in its
 * data, it clears these bits of the visibility map, for one of the heap pages that it names.
 */
typedef struct KnownRecord
{
	RmgrId		rmid;
	uint8		op;
	uint8		flags_at;		/* where in the data its flags are */
	uint8		flag;			/* 0 if it does nothing besides */
	uint8		bits;
	uint8		page;			/* number of the page in the record */
} KnownRecord;

#define FLAGS(type, flag)	offsetof(type, flags), (flag)
#define NOTHING				0, 0, 0, 0

static const KnownRecord known_records[] = {
	{RM_HEAP_ID, XLOG_HEAP_INSERT,
	FLAGS(xl_heap_insert, XLH_INSERT_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 0},
	{RM_HEAP_ID, XLOG_HEAP_DELETE,
	FLAGS(xl_heap_delete, XLH_DELETE_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 0},
	{RM_HEAP_ID, XLOG_HEAP_UPDATE,
	FLAGS(xl_heap_update, XLH_UPDATE_NEW_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 0},
	{RM_HEAP_ID, XLOG_HEAP_UPDATE,
	FLAGS(xl_heap_update, XLH_UPDATE_OLD_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 1},
	{RM_HEAP_ID, XLOG_HEAP_HOT_UPDATE,
	FLAGS(xl_heap_update, XLH_UPDATE_NEW_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 0},
	{RM_HEAP_ID, XLOG_HEAP_HOT_UPDATE,
	FLAGS(xl_heap_update, XLH_UPDATE_OLD_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 1},
	{RM_HEAP_ID, XLOG_HEAP_LOCK,
	FLAGS(xl_heap_lock, XLH_LOCK_ALL_FROZEN_CLEARED), VISIBILITYMAP_ALL_FROZEN, 0},
	{RM_HEAP2_ID, XLOG_HEAP2_MULTI_INSERT,
	FLAGS(xl_heap_multi_insert, XLH_INSERT_ALL_VISIBLE_CLEARED), VISIBILITYMAP_VALID_BITS, 0},
	{RM_HEAP2_ID, XLOG_HEAP2_LOCK_UPDATED,
	FLAGS(xl_heap_lock_updated, XLH_LOCK_ALL_FROZEN_CLEARED), VISIBILITYMAP_ALL_FROZEN, 0},
	{RM_HEAP2_ID, XLOG_HEAP2_PRUNE_ON_ACCESS, NOTHING},
	{RM_HEAP2_ID, XLOG_HEAP2_PRUNE_VACUUM_SCAN, NOTHING},
	{RM_HEAP2_ID, XLOG_HEAP2_PRUNE_VACUUM_CLEANUP, NOTHING},
	{RM_XLOG_ID, XLOG_FPI, NOTHING},
	{RM_XLOG_ID, XLOG_FPI_FOR_HINT, NOTHING},
};

/* Heap pages whose bits in the visibility map a record clears. */
typedef struct MapBits
{
	int			n;
	BlockNumber heap_block[2];
	uint8		bits[2];
} MapBits;

static void (*server_heap_redo) (XLogReaderState *record) = NULL;
static void (*server_heap2_redo) (XLogReaderState *record) = NULL;
static void (*server_xlog_redo) (XLogReaderState *record) = NULL;
static void (*server_heap_cleanup) (void) = NULL;

/*
 * Is the block in the pool, with all that the record says?  Only this process changes
 * pages, and replaces them, while it replays.
 */
static bool
IsDone(XLogReaderState *record, RelFileLocator rlocator, BlockNumber block)
{
	BufferTag	tag;
	uint32		hashcode;
	LWLock	   *lock;
	int			slot;

	InitBufferTag(&tag, &rlocator, MAIN_FORKNUM, block);
	hashcode = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hashcode);
	LWLockAcquire(lock, LW_SHARED);
	slot = BufTableLookup(&tag, hashcode);
	LWLockRelease(lock);
	return slot >= 0 && PCacheWasYoung(&PCacheThePool, slot, &tag) &&
		PageGetLSN((Page) (BufferBlocks + (Size) slot * BLCKSZ)) >= record->EndRecPtr;
}

/* Is the record a known one?  Then say what it does besides. */
static bool
IsKnown(XLogReaderState *record, MapBits *map)
{
	RmgrId		rmid = XLogRecGetRmid(record);
	uint8		op = XLogRecGetInfo(record) & (rmid == RM_XLOG_ID ? ~XLR_INFO_MASK : XLOG_HEAP_OPMASK);
	bool		result = false;

	map->n = 0;
	for (int i = 0; i < lengthof(known_records); i++)
	{
		const KnownRecord *known = &known_records[i];

		if (known->rmid != rmid || known->op != op)
			continue;
		result = true;
		if (known->flag == 0 || (XLogRecGetData(record)[known->flags_at] & known->flag) == 0)
			continue;

		/*
		 * the old version of a row has no page of its own if it is on that of
		 * the new one
		 */
		XLogRecGetBlockTag(record, XLogRecHasBlockRef(record, known->page) ? known->page : 0,
						   NULL, NULL, &map->heap_block[map->n]);
		map->bits[map->n++] = known->bits;
	}
	return result;
}

/* Are all pages of the main fork done?  A map's may be there if the record clears bits of it. */
static bool
PagesAreDone(XLogReaderState *record, const MapBits *map)
{
	int			n = 0;

	for (int id = 0; id <= XLogRecMaxBlockId(record); id++)
	{
		RelFileLocator rlocator;
		ForkNumber	fork;
		BlockNumber block;

		if (!XLogRecGetBlockTagExtended(record, id, &rlocator, &fork, &block, NULL))
			continue;
		if (fork == VISIBILITYMAP_FORKNUM && map->n > 0)
			continue;
		if (fork != MAIN_FORKNUM || !IsDone(record, rlocator, block))
			return false;
		n++;
	}
	return n > 0;
}

/*
 * Clear bits in a page of the map that the record names, which it does in some minor
 * releases.  The page may have an image, and may be newer.
 */
static void
ClearNamed(XLogReaderState *record, uint8 id, Relation rel, const MapBits *map)
{
	Buffer		buffer;
	XLogRedoAction action = XLogReadBufferForRedo(record, id, &buffer);
	bool		changed = false;

	if (!BufferIsValid(buffer))
		return;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	for (int i = 0; i < map->n && action == BLK_NEEDS_REDO; i++)
	{
		if (visibilitymap_pin_ok(map->heap_block[i], buffer) &&
			visibilitymap_clear(rel, map->heap_block[i], buffer, map->bits[i]))
			changed = true;
	}
	if (changed)
	{
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		PageSetLSN(BufferGetPage(buffer), record->EndRecPtr);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	ReleaseBuffer(buffer);
}

/* Clear the bits of the visibility map that the record clears. */
static void
ClearBits(XLogReaderState *record, const MapBits *map)
{
	RelFileLocator rlocator;
	ForkNumber	fork;
	Relation	rel;
	bool		is_named = false;

	if (map->n == 0)
		return;
	XLogRecGetBlockTag(record, 0, &rlocator, NULL, NULL);
	rel = CreateFakeRelcacheEntry(rlocator);
	for (int id = 0; id <= XLogRecMaxBlockId(record); id++)
	{
		if (!XLogRecGetBlockTagExtended(record, id, NULL, &fork, NULL, NULL) ||
			fork != VISIBILITYMAP_FORKNUM)
			continue;
		ClearNamed(record, id, rel, map);
		is_named = true;
	}
	for (int i = 0; i < map->n && !is_named; i++)
	{
		Buffer		buffer = InvalidBuffer;

		visibilitymap_pin(rel, map->heap_block[i], &buffer);
		visibilitymap_clear(rel, map->heap_block[i], buffer, map->bits[i]);
		ReleaseBuffer(buffer);
	}
	FreeFakeRelcacheEntry(rel);
}

/*
 * Skip the record, if it can be, or have the server replay it.  One whose outcome shall
 * be checked (wal_consistency_checking) is replayed.
 */
static void
RedoUnlessDone(XLogReaderState *record, void (*server_redo) (XLogReaderState *))
{
	MapBits		map;

	if (PCacheStart.young == 0)
		server_redo(record);
	else if ((XLogRecGetInfo(record) & XLR_CHECK_CONSISTENCY) == 0 &&
			 IsKnown(record, &map) && PagesAreDone(record, &map))
	{
		ClearBits(record, &map);
		PCacheLibrary->redo_skipped++;
	}
	else
	{
		server_redo(record);
		PCacheLibrary->redo_called++;
	}
}

static void
RedoHeap(XLogReaderState *record)
{
	RedoUnlessDone(record, server_heap_redo);
}

static void
RedoHeap2(XLogReaderState *record)
{
	RedoUnlessDone(record, server_heap2_redo);
}

static void
RedoXlog(XLogReaderState *record)
{
	RedoUnlessDone(record, server_xlog_redo);
}

/*
 * Redo is over.  The start has read the WAL that its pages are about, so redo has come as far.
 * If it has not, somebody has changed WAL since, and there is no way on from here; the
 * next start is cold, because of the PANIC.
 */
static void
EndRedo(void)
{
	XLogRecPtr	end = GetXLogReplayRecPtr(NULL);

	if (server_heap_cleanup)
		server_heap_cleanup();
	if (PCacheStart.young == 0)
		return;
	if (end < PCacheStart.young_lsn)
		ereport(PANIC,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("persistent cache: WAL ends at %X/%X, but a page with LSN %X/%X was kept",
						LSN_FORMAT_ARGS(end), LSN_FORMAT_ARGS(PCacheStart.young_lsn)),
				 errdetail("WAL was changed after this start had read it."),
				 errhint("Start the server again.  It will not keep what is in the pool.")));
	ereport(LOG,
			(errmsg("persistent cache: recovery skipped " UINT64_FORMAT " records, whose pages were kept, and replayed " UINT64_FORMAT " others of the same kinds",
					PCacheLibrary->redo_skipped, PCacheLibrary->redo_called)));
}

/* To be called once, while the server preloads libraries. */
void
PCacheShortenRedo(void)
{
	if (pcache_mode != PERSISTENT_CACHE_ALWAYS ||
		pcache_recovery != PERSISTENT_CACHE_RECOVERY_SHORT)
		return;
	server_heap_redo = RmgrTable[RM_HEAP_ID].rm_redo;
	server_heap2_redo = RmgrTable[RM_HEAP2_ID].rm_redo;
	server_xlog_redo = RmgrTable[RM_XLOG_ID].rm_redo;
	server_heap_cleanup = RmgrTable[RM_HEAP_ID].rm_cleanup;
	RmgrTable[RM_HEAP_ID].rm_redo = RedoHeap;
	RmgrTable[RM_HEAP2_ID].rm_redo = RedoHeap2;
	RmgrTable[RM_XLOG_ID].rm_redo = RedoXlog;
	RmgrTable[RM_HEAP_ID].rm_cleanup = EndRedo;
}
