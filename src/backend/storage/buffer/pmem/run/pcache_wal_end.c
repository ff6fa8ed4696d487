/*-------------------------------------------------------------------------
 *
 * pcache_wal_end.c
 *	  Where does the WAL in a segment file end?
 *
 * A segment that comes from the archive has its full length, but need not be
 * full of WAL: somebody may have archived the last one of a server that is
 * gone.  What follows is zeros, or what the file held before it was recycled.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_wal_end.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecord.h"
#include "storage/fd.h"
#include "storage/pcache_run.h"

/* Does the file have a page of WAL that belongs at this LSN? */
static bool
IsWalPage(int fd, XLogRecPtr lsn)
{
	XLogPageHeaderData header;

	return PCacheReadExact(fd, &header, sizeof(header),
						   XLogSegmentOffset(lsn, wal_segment_size)) &&
		header.xlp_magic == XLOG_PAGE_MAGIC && header.xlp_pageaddr == lsn;
}

/*
 * Where do the records on a page end?  At the end of the page if the last one
 * goes on from there.
 *
 * The server fills what it has not used of a page with zeros.
 */
static XLogRecPtr
EndOnPage(const char *page, XLogRecPtr lsn)
{
	const XLogPageHeaderData *header = (const XLogPageHeaderData *) page;
	uint64		begin = XLogPageHeaderSize(header);
	uint64		pos = begin;
	uint32		length;

	if (header->xlp_info & XLP_FIRST_IS_CONTRECORD)
		pos += MAXALIGN((uint64) header->xlp_rem_len);
	while (pos < XLOG_BLCKSZ)
	{
		memcpy(&length, page + pos, sizeof(length));
		if (length < SizeOfXLogRecord)
			return pos == begin ? lsn : lsn + pos;
		pos += MAXALIGN((uint64) length);
	}
	return lsn + XLOG_BLCKSZ;
}

/*
 * Up to which LSN is there WAL in a segment in pg_wal?  Invalid if that can't
 * be told.  CRCs of records are not looked at.
 */
XLogRecPtr
PCacheWalEnd(XLogSegNo segno, TimeLineID timeline)
{
	char		path[MAXPGPATH];
	PGAlignedXLogBlock page;
	XLogRecPtr	start;
	XLogRecPtr	end = InvalidXLogRecPtr;
	uint32		low = 0;		/* pages of WAL there are at least */
	uint32		high = wal_segment_size / XLOG_BLCKSZ;	/* and at most */
	int			fd;

	XLogFilePath(path, timeline, segno, wal_segment_size);
	XLogSegNoOffsetToRecPtr(segno, 0, wal_segment_size, start);
	fd = BasicOpenFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return InvalidXLogRecPtr;

	/* most segments are full; in the others the pages of WAL come first */
	if (IsWalPage(fd, start + (uint64) (high - 1) * XLOG_BLCKSZ))
		low = high;
	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (IsWalPage(fd, start + (uint64) middle * XLOG_BLCKSZ))
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0 &&
		PCacheReadExact(fd, page.data, XLOG_BLCKSZ, (uint64) (low - 1) * XLOG_BLCKSZ))
		end = EndOnPage(page.data, start + (uint64) (low - 1) * XLOG_BLCKSZ);
	close(fd);
	return end;
}
