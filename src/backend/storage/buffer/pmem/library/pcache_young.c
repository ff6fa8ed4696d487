/*-------------------------------------------------------------------------
 *
 * pcache_young.c
 *	  Pages of a killed server that are younger than the redo point.
 *
 * They are kept beside those that PCachePageGate() lets pass, and PCacheYoungGate() has the
 * proof.  They have no entry in the ledger, so a start that is cut off leaves none
 * of them to the next one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_young.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

/* WAL is read in pieces of so many bytes, for so many microseconds at most. */
#define BYTES_PER_READ		(256 * 1024)
#define MAX_READ_TIME		(10 * 1000000)
#define RECORDS_PER_LOOK	4096

/* A piece of WAL, which begins at an LSN. */
typedef struct WalPiece
{
	TimeLineID	timeline;
	int			fd;				/* of the segment; -1 if none is open */
	XLogSegNo	segno;
	XLogRecPtr	start;
	ssize_t		length;
	char	   *bytes;
	bool		not_synced;
} WalPiece;

/*
 * Close the segment.  Redo writes no page that rests on it before WAL is durable, because
 * recovery syncs all files first; but the background writer does not wait for that.
 */
static bool
CloseSegment(WalPiece *piece)
{
	bool		synced = !enableFsync || fdatasync(piece->fd) == 0;

	close(piece->fd);
	piece->fd = -1;
	return synced;
}

/* Have the piece that a page of WAL is in. */
static bool
ReadPiece(WalPiece *piece, XLogRecPtr page)
{
	char		path[MAXPGPATH];
	char		name[MAXFNAMELEN];
	XLogSegNo	segno;

	XLByteToSeg(page, segno, wal_segment_size);
	if (piece->fd < 0 || segno != piece->segno)
	{
		if (piece->fd >= 0 && !CloseSegment(piece))
			piece->not_synced = true;
		XLogFileName(name, piece->timeline, segno, wal_segment_size);
		snprintf(path, sizeof(path), "%s/" XLOGDIR "/%s", DataDir, name);
		piece->fd = open(path, O_RDONLY | PG_BINARY | O_CLOEXEC);
		piece->segno = segno;
		if (piece->fd < 0)
			return false;
	}
	piece->start = page;
	piece->length = pread(piece->fd, piece->bytes, BYTES_PER_READ,
						  XLogSegmentOffset(page, wal_segment_size));
	return piece->length >= XLOG_BLCKSZ;
}

/* XLogPageReadCB */
static int
ReadWalPage(XLogReaderState *reader, XLogRecPtr page, int reqLen, XLogRecPtr targetRecPtr,
			char *buf)
{
	WalPiece   *piece = reader->private_data;

	if ((page < piece->start || page + XLOG_BLCKSZ > piece->start + piece->length) &&
		!ReadPiece(piece, page))
	{
		piece->length = 0;
		return -1;
	}
	memcpy(buf, piece->bytes + (page - piece->start), XLOG_BLCKSZ);
	return XLOG_BLCKSZ;
}

/*
 * Where does WAL end, as redo is going to find it?  This reads every record from
 * the redo point on, because one that is damaged ends it, and makes WAL durable up to there.
 *
 * WAL must go at least as far as the worker has seen it written.  That may be in the middle of
 * a record, whose rest was never written.  If WAL ends before, it is damaged, and then a
 * hint may be about a commit that is lost.  Returns an invalid LSN, and says why, if so, and if it
 * takes too long: the postmaster does nothing else meanwhile.
 */
static XLogRecPtr
EndOfWal(WalPiece *piece, XLogRecPtr redo, XLogRecPtr written)
{
	XLogReaderState *reader = XLogReaderAllocate(wal_segment_size, NULL,
												 XL_ROUTINE(.page_read = ReadWalPage), piece);
	XLogRecPtr	end = redo;
	XLogRecPtr	intact;
	instr_time	began;
	char	   *error;
	bool		in_time = true;

	if (reader == NULL)
		return InvalidXLogRecPtr;
	INSTR_TIME_SET_CURRENT(began);
	piece->bytes = palloc(BYTES_PER_READ);
	reader->system_identifier = GetSystemIdentifier();
	XLogBeginRead(reader, redo);
	for (uint64 n = 1; in_time && XLogReadRecord(reader, &error) != NULL; n++)
	{
		end = reader->EndRecPtr;
		if (n % RECORDS_PER_LOOK == 0)
			in_time = PCacheMicrosecondsSince(began) < MAX_READ_TIME;
	}
	intact = XLogRecPtrIsInvalid(reader->abortedRecPtr) ? end : reader->missingContrecPtr;
	XLogReaderFree(reader);
	if (piece->fd >= 0 && !CloseSegment(piece))
		piece->not_synced = true;
	PCacheStart.wal_usec = PCacheMicrosecondsSince(began);
	PCacheStart.wal_bytes = end - redo;
	if (in_time && !piece->not_synced && intact >= written)
		return end;
	ereport(LOG,
			(errmsg("persistent cache: recovery will not be shortened: %s",
					!in_time ? _("there is so much WAL that reading it takes too long") :
					piece->not_synced ? _("WAL could not be synced") :
					_("WAL ends before the place up to which it was written")),
			 errdetail("WAL was written up to %X/%X at least, and was read up to %X/%X.",
					   LSN_FORMAT_ARGS(written), LSN_FORMAT_ARGS(end))));
	return InvalidXLogRecPtr;
}

/*
 * Let pages that are younger than the redo point be kept, if they may be at all: a
 * primary was killed while it was in production, on its present timeline, and this start
 * replays its WAL to the end.  The headers of its buffers are still in the pool.  The gates
 * have found neither a backup_label nor a recovery.signal.
 */
void
PCacheAllowYoung(const PCacheLibraryFacts *start, PCachePageFacts *facts)
{
	const ControlFileData *control = &start->control;
	const PCacheWatermark *wal = &start->gate.sighting.wal;
	MemoryContext context = CurrentMemoryContext;
	WalPiece	piece = {.timeline = control->checkPointCopy.ThisTimeLineID,.fd = -1};

	if (pcache_recovery != PERSISTENT_CACHE_RECOVERY_SHORT || PCacheStart.power_lost ||
		control->state != DB_IN_PRODUCTION || !XLogRecPtrIsInvalid(control->minRecoveryPoint) ||
		start->signals.standby || wal->timeline != piece.timeline)
		return;
	PG_TRY();
	{
		facts->young_up_to = EndOfWal(&piece, control->checkPointCopy.redo, wal->written);
	}
	PG_CATCH();
	{
		/* for want of memory; the other pages can be kept nevertheless */
		MemoryContextSwitchTo(context);
		FlushErrorState();
		facts->young_up_to = 0;
		if (piece.fd >= 0)
			close(piece.fd);
	}
	PG_END_TRY();
}

/*
 * A page was refused, as the verdict says.  If it can be kept as a young one, make an entry
 * of its header, which is still that of the killed server, and remember in its place in the
 * ledger that this start has kept it.
 */
bool
PCacheTakeYoung(const PCachePool *pool, const PCacheSuperblock *sb,
				const PCachePageFacts *facts, PCachePageVerdict verdict, uint32 slot,
				PCacheDescriptor *entry)
{
	const char *header = (const char *) &PCacheHeadersOf(pool, sb)[slot];
	const PageHeaderData *page = (const PageHeaderData *)
		(pool->map.base + sb->blocks_offset + (Size) slot * BLCKSZ);
	PCacheDescriptor *remembered = &PCacheLedgerOf(pool)[slot];
	PCacheDescriptor young = {0};

	if ((verdict != PCACHE_PAGE_DIRTY && verdict != PCACHE_PAGE_YOUNGER) ||
		!PCacheHarvestYoung(&sb->headers, header, slot, &young) ||
		!PCacheYoungGate(&young, page, slot, facts))
		return false;

	/*
	 * nobody has synced its file, so whatever the kernel had to write may
	 * have failed
	 */
	young.flags |= PCACHE_DESC_DIRTY;
	*entry = young;
	PCacheSetFreeBecause(remembered, PCACHE_DESC_IS_YOUNG);
	memcpy(&remembered->spc_oid, &young.spc_oid, sizeof(PCachePageKey));
	remembered->sum = sb->incarnation;
	PCacheStart.young++;
	PCacheStart.young_lsn = Max(PCacheStart.young_lsn, PageXLogRecPtrGet(page->pd_lsn));
	/* it was not counted with those that were saved */
	if (verdict == PCACHE_PAGE_DIRTY)
		PCacheStart.found++;
	return true;
}

/*
 * Has this start kept a page with this tag, in this slot, as a young one?  Only then is it
 * known not to be torn: a page that redo has read from its file may be.
 */
bool
PCacheWasYoung(const PCachePool *pool, uint32 slot, const BufferTag *tag)
{
	const PCacheDescriptor *remembered = &PCacheLedgerOf(pool)[slot];

	return remembered->seq == PCACHE_DESC_FREE_SEQ &&
		remembered->why_free == PCACHE_DESC_IS_YOUNG &&
		remembered->sum == PCacheLibrary->superblock.incarnation &&
		memcmp(&remembered->spc_oid, tag, sizeof(BufferTag)) == 0;
}
