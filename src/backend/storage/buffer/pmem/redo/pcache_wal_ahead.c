/*-------------------------------------------------------------------------
 *
 * pcache_wal_ahead.c
 *	  Have the kernel read WAL before redo needs it.
 *
 * With kept pages redo hardly reads data files, so what it waits for is WAL,
 * which the server reads in pages of 8 kB.  The kernel reads ahead within a
 * file, not far, and begins anew with each segment.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/redo/pcache_wal_ahead.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "storage/fd.h"
#include "storage/pcache_redo.h"

#ifdef POSIX_FADV_WILLNEED

/*
 * The kernel is asked for so much at once, and for so many such parts ahead:
 * 64 MB, for which redo onto kept pages takes a tenth of a second.
 */
#define PART_SIZE		(UINT64CONST(8) * 1024 * 1024)
#define PARTS_AHEAD		8

/*
 * Ask for the size bytes of WAL that begin at an LSN.  A segment that is not
 * there, or not yet, is no error: WAL may end before.
 */
static void
AdvisePart(XLogRecPtr start, uint64 size, TimeLineID timeline)
{
	char		path[MAXPGPATH];
	XLogSegNo	segno;
	int			fd;

	XLByteToSeg(start, segno, wal_segment_size);
	XLogFilePath(path, timeline, segno, wal_segment_size);
	fd = BasicOpenFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return;
	(void) posix_fadvise(fd, XLogSegmentOffset(start, wal_segment_size),
						 size, POSIX_FADV_WILLNEED);
	close(fd);
}
#endif

/*
 * Recovery is about to read the page of WAL that begins at an LSN from pg_wal.
 * Only a hint, so nothing can fail.
 *
 * Called by the startup process.
 */
void
PersistentCacheWalRead(XLogRecPtr page, TimeLineID timeline)
{
#ifdef POSIX_FADV_WILLNEED
	static XLogRecPtr advised = InvalidXLogRecPtr;
	uint64		part = Min(PART_SIZE, (uint64) wal_segment_size);

	if (PCacheCtl == NULL || !PCacheRecoveryCtl->kept_over_crash)
		return;
	if (page < advised && advised - page > part * (PARTS_AHEAD - 1))
		return;

	/* redo began, or went back to another place */
	if (advised < page || advised - page > part * PARTS_AHEAD)
		advised = page - page % part;
	while (advised < page + part * PARTS_AHEAD)
	{
		AdvisePart(advised, part, timeline);
		advised += part;
	}
#endif
}
