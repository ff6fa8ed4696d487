/*-------------------------------------------------------------------------
 *
 * xlogdirect.c
 *	  WAL written past the page cache: wal_sync_method = open_direct.
 *
 * README.direct in this directory explains what must be true, and why.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/access/transam/xlogdirect.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "access/xlogdirect.h"
#include "common/file_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_iovec.h"
#include "utils/wait_event.h"

/* So many writes in a row may be too short to get us on by a page. */
#define MAX_FUTILE_WRITES	10

/* Is the segment that XLogWrite() has open written with O_DSYNC? */
static bool open_segment_is_synced = false;

/*
 * Does the kernel want another alignment than WAL buffers and segments have?
 * Then returns false, with errno set.  Kernels before Linux 6.1 and some file
 * systems do not tell; there the trial write does.
 */
static bool
AlignmentServes(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
		(st.stx_mask & STATX_DIOALIGN) != 0 &&
		(st.stx_dio_offset_align == 0 || st.stx_dio_mem_align == 0 ||
		 XLOG_BLCKSZ % st.stx_dio_offset_align != 0 ||
		 PG_IO_ALIGN_SIZE % st.stx_dio_mem_align != 0))
	{
		errno = EINVAL;
		return false;
	}
#endif
	return true;
}

/*
 * Can files in pg_wal be written with direct I/O?
 */
bool
XLogDirectWorks(void)
{
	char		path[MAXPGPATH];
	PGAlignedXLogBlock page;
	int			fd;
	bool		works = false;
	int			save_errno;

	/* after a crash it is removed like an unfinished segment */
	snprintf(path, sizeof(path), XLOGDIR "/xlogtemp.direct.%d", (int) getpid());
	unlink(path);
	memset(page.data, 0, sizeof(page.data));
	fd = BasicOpenFile(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | PG_BINARY |
					   O_DSYNC | PG_O_DIRECT);
	if (fd >= 0 && AlignmentServes(fd))
	{
		/* if write doesn't set errno, assume no disk space */
		errno = ENOSPC;
		works = pg_pwrite(fd, page.data, XLOG_BLCKSZ, 0) == XLOG_BLCKSZ;
	}
	save_errno = errno;
	if (fd >= 0)
		close(fd);
	/* some file systems create the file even if they refuse to open it */
	unlink(path);

	errno = save_errno == EINVAL ? 0 : save_errno;
	return works;
}

/*
 * A segment was opened for writing, with these additional flags.
 */
void
XLogDirectSegmentOpened(int flags)
{
#ifdef O_DSYNC
	open_segment_is_synced = (flags & O_DSYNC) != 0;
#endif
}

/*
 * Write WAL buffers, see XLogMethodWritePages().  All of them are written by one
 * system call, unless the kernel writes less than it is told.
 *
 * If the last page is partial, a copy of it is written, because others may
 * insert into it meanwhile.  Whoever computes a checksum of what it writes, be
 * it the file system or the device, must not see it change.
 *
 * Errors are PANIC.
 */
bool
XLogDirectWritePages(XLogMethodControl *ctl,
					 int fd, XLogSegNo segno, TimeLineID tli,
					 char *buffers, int nbuffers, int first, int npages,
					 uint32 startoffset, XLogRecPtr written_before, XLogRecPtr end)
{
	Size		len = npages * (Size) XLOG_BLCKSZ;
	Size		until_wrap = Min(npages, nbuffers - first) * (Size) XLOG_BLCKSZ;
	char	   *from = buffers + first * (Size) XLOG_BLCKSZ;
	struct iovec pieces[3];
	int			npieces = 0;
	PGAlignedXLogBlock copy;
	Size		done = 0;
	int			futile = 0;
	bool		partial = end % XLOG_BLCKSZ != 0;

	Assert(npages > 0 && npages <= nbuffers);
	Assert((uintptr_t) buffers % XLOG_BLCKSZ == 0);
	Assert(startoffset % XLOG_BLCKSZ == 0);

	if (!open_segment_is_synced)
		ctl->unsynced = true;

	pieces[npieces].iov_base = from;
	pieces[npieces++].iov_len = until_wrap;
	if (until_wrap < len)
	{
		pieces[npieces].iov_base = buffers;
		pieces[npieces++].iov_len = len - until_wrap;
	}
	if (partial)
	{
		struct iovec *last = &pieces[npieces - 1];

		last->iov_len -= XLOG_BLCKSZ;
		memcpy(copy.data, (char *) last->iov_base + last->iov_len, XLOG_BLCKSZ);
		if (last->iov_len == 0)
			npieces--;
		pieces[npieces].iov_base = copy.data;
		pieces[npieces++].iov_len = XLOG_BLCKSZ;
	}

	while (done < len)
	{
		struct iovec iov[lengthof(pieces)];
		int			iovcnt = compute_remaining_iovec(iov, pieces, npieces, done);
		ssize_t		written;
		instr_time	io_start;

		errno = 0;
		io_start = pgstat_prepare_io_time(track_wal_io_timing);
		pgstat_report_wait_start(WAIT_EVENT_WAL_WRITE);
		written = pg_pwritev(fd, iov, iovcnt, startoffset + done);
		pgstat_report_wait_end();

		if (written < 0 && errno == EINTR)
			continue;
		if (written > 0)
			pgstat_count_io_op_time(IOOBJECT_WAL, IOCONTEXT_NORMAL, IOOP_WRITE,
									io_start, 1, written);

		/*
		 * Go on at a page, because direct I/O needs the alignment: what was
		 * written of the next one is written again.
		 */
		if (written >= XLOG_BLCKSZ)
		{
			done += written - written % XLOG_BLCKSZ;
			futile = 0;
		}
		else if (written < 0 || ++futile >= MAX_FUTILE_WRITES)
		{
			char		xlogfname[MAXFNAMELEN];
			int			save_errno = errno;

			XLogFileName(xlogfname, tli, segno, wal_segment_size);
			/* if write didn't set errno, assume no disk space */
			errno = save_errno ? save_errno : ENOSPC;
			ereport(PANIC,
					(errcode_for_file_access(),
					 errmsg("could not write to log file \"%s\" at offset %zu, length %zu: %m",
							xlogfname, startoffset + done, len - done),
					 save_errno == EINVAL ?
					 errhint("If the file system no longer allows direct I/O, choose another \"wal_sync_method\".") : 0));
		}
	}
	return true;
}
