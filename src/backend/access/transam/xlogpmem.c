/*-------------------------------------------------------------------------
 *
 * xlogpmem.c
 *	  WAL segments written through mappings: wal_sync_method = pmem.
 *
 * README.pmem in this directory explains what must be true, and why.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/access/transam/xlogpmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogpmem.h"
#include "common/file_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/pcache_persist.h"
#include "storage/procsignal.h"
#include "utils/wait_event.h"

/* A process keeps mappings of so much WAL, but of two segments at least. */
#define MAX_MAPPED_BYTES	((uint64) 1024 * 1024 * 1024)
#define MAX_MAPPINGS		64

typedef struct SegmentMapping
{
	/* While it is mapped, no other file can get this number. */
	dev_t		dev;
	ino_t		ino;
	PCacheMapping map;
	uint64		last_used;		/* for the choice of a victim */
} SegmentMapping;

/* Has this process copied WAL without draining it yet? */
static bool undrained = false;

static SegmentMapping mappings[MAX_MAPPINGS];
static int	num_mappings = 0;
static uint64 use_counter = 0;

/*
 * What the open segment is mapped as; NULL if it cannot be mapped.  Only
 * valid if current_known.  A file may be replaced by another one of the same
 * name, so nothing is known of a segment that was opened anew.
 */
static SegmentMapping *current = NULL;
static bool current_known = false;

/* For messages about the current segment. */
static XLogSegNo current_segno;
static TimeLineID current_tli;

/* What SIGBUS did before we cared: somebody else may have a handler, too. */
static struct sigaction previous_sigbus;

static const PCacheMapping pmem = {.kind = PCACHE_PERSIST_PMEM};

/*
 * Can files in pg_wal be mapped as persistent memory?  Only a trial mapping
 * tells.
 */
bool
XLogPmemWorks(void)
{
	char		path[MAXPGPATH];
	PCacheMapping map = {0};
	int			fd;
	bool		works = false;
	int			save_errno = 0;

	/* after a crash it is removed like an unfinished segment */
	snprintf(path, sizeof(path), XLOGDIR "/xlogtemp.pmem.%d", (int) getpid());
	unlink(path);
	fd = BasicOpenFile(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | PG_BINARY);
	if (fd < 0)
		return false;
	if (pg_pwrite_zeros(fd, XLOG_BLCKSZ, 0) != XLOG_BLCKSZ ||
		!PCacheMap(path, false, &map))
		save_errno = errno;
	else
	{
		works = map.kind == PCACHE_PERSIST_PMEM;
		PCacheUnmap(&map);
	}
	close(fd);
	unlink(path);
	errno = save_errno;
	return works;
}

/*
 * SIGBUS: the media, or the file system on it, refused an access.
 *
 * It is raised by our own access to the mapping, at a place where an error
 * may be reported, so there is no need to go back there first.
 */
static void
HandleSigbus(int signo, siginfo_t *info, void *context)
{
	char	   *addr = info->si_addr;

	if (current_known && current != NULL &&
		addr >= current->map.base &&
		addr < current->map.base + current->map.length)
	{
		char		name[MAXFNAMELEN];

		XLogFileName(name, current_tli, current_segno, wal_segment_size);
		ereport(PANIC,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not write to log file \"%s\" at offset %zu: bus error",
						name, (size_t) (addr - current->map.base)),
				 errdetail("The persistent memory has a bad block there, or the file system could not provide it.")));
	}

	/* not ours: on return it happens again, as it would have without us */
	sigaction(SIGBUS, &previous_sigbus, NULL);
}

static void
InstallSigbusHandler(void)
{
	static bool installed = false;
	struct sigaction action;

	if (installed)
		return;
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = HandleSigbus;
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, &previous_sigbus) < 0)
		elog(ERROR, "could not install handler of SIGBUS: %m");
	installed = true;
}

/* Find out anew what the open segment is mapped as. */
static void
ForgetCurrent(void)
{
	current = NULL;
	current_known = false;
}

static void
Unmap(PCacheMapping *map)
{
	if (!PCacheUnmap(map))
		elog(LOG, "could not unmap WAL file: %m");
}

/* A free entry of mappings; if there is none, give up the one longest unused. */
static SegmentMapping *
FreeMapping(void)
{
	int			limit = Min(MAX_MAPPINGS, Max(2, MAX_MAPPED_BYTES / wal_segment_size));
	int			victim = 0;

	if (num_mappings >= limit)
	{
		for (int i = 1; i < num_mappings; i++)
		{
			if (mappings[i].last_used < mappings[victim].last_used)
				victim = i;
		}
		Unmap(&mappings[victim].map);
		mappings[victim] = mappings[--num_mappings];
		ForgetCurrent();
	}
	return &mappings[num_mappings];
}

/*
 * The mapping of an open segment, from those we have or a new one.  NULL if
 * it cannot be mapped as persistent memory; that is logged.
 */
static SegmentMapping *
MapSegment(int fd, XLogSegNo segno, TimeLineID tli)
{
	SegmentMapping *mapping = NULL;
	const char *why_not = NULL;
	char		path[MAXPGPATH];
	struct stat st;
	struct stat st_path;

	InstallSigbusHandler();
	XLogFilePath(path, tli, segno, wal_segment_size);
	if (fstat(fd, &st) < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));

	/* a recycled segment is still the same file */
	for (int i = 0; i < num_mappings; i++)
	{
		if (mappings[i].dev == st.st_dev && mappings[i].ino == st.st_ino)
		{
			mappings[i].last_used = ++use_counter;
			return &mappings[i];
		}
	}

	pgstat_report_wait_start(WAIT_EVENT_WAL_MAP);

	/* A hole would turn a full file system into SIGBUS later. */
	if ((uint64) st.st_blocks * 512 < (uint64) st.st_size &&
		(errno = posix_fallocate(fd, 0, st.st_size)) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not allocate space for file \"%s\": %m", path)));

	mapping = FreeMapping();
	if (st.st_size != wal_segment_size)
		why_not = _("its size is wrong");
	else if (!PCacheMap(path, false, &mapping->map))
	{
		int			map_errno = errno;

		pgstat_report_wait_end();
		errno = map_errno;
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", path)));
		why_not = _("it could not be mapped");
	}
	else
	{
		/* the open file keeps its number from being used for another one */
		if (stat(path, &st_path) < 0 ||
			st_path.st_dev != st.st_dev || st_path.st_ino != st.st_ino)
			why_not = _("another file has its name");
		else if (mapping->map.kind != PCACHE_PERSIST_PMEM)
			why_not = _("it is not on persistent memory");
		if (why_not != NULL)
			Unmap(&mapping->map);
	}
	pgstat_report_wait_end();

	if (why_not != NULL)
	{
		ereport(LOG,
				(errmsg("WAL file \"%s\" is written with system calls although \"wal_sync_method\" is \"pmem\"",
						path),
				 errdetail("This is because %s.", why_not)));
		return NULL;
	}
	mapping->dev = st.st_dev;
	mapping->ino = st.st_ino;
	mapping->last_used = ++use_counter;
	num_mappings++;
	return mapping;
}

/* Make the segment that fd belongs to the current one. */
static inline bool
UseSegment(int fd, XLogSegNo segno, TimeLineID tli)
{
	if (unlikely(!current_known ||
				 current_segno != segno || current_tli != tli))
	{
		current = MapSegment(fd, segno, tli);
		current_segno = segno;
		current_tli = tli;
		current_known = true;
	}
	return current != NULL;
}

/* Copy into the current segment; for whole cache lines if they are "lines". */
static inline void
CopyToCurrent(XLogMethodControl *ctl, uint32 offset, const char *bytes, Size len,
			  bool lines)
{
	char	   *dest = current->map.base + offset;

	Assert(offset + len <= current->map.length);
	if (enableFsync)
	{
		undrained = true;
		if (lines)
			PCacheStreamNodrain(&pmem, dest, bytes, len);
		else
			PCacheMemcpyNodrain(&pmem, dest, bytes, len);
	}
	else
	{
		/* fsync may be switched on later */
		ctl->unsynced = true;
		memcpy(dest, bytes, len);
	}
}

bool
XLogPmemWrite(XLogMethodControl *ctl, int fd, XLogSegNo segno, TimeLineID tli,
			  const char *bytes, Size len, uint32 offset)
{
	if (!UseSegment(fd, segno, tli))
		return false;
	CopyToCurrent(ctl, offset, bytes, len, false);
	return true;
}

bool
XLogPmemWritePages(XLogMethodControl *ctl, int fd, XLogSegNo segno, TimeLineID tli,
				   char *buffers, int nbuffers, int first, int npages,
				   uint32 startoffset, XLogRecPtr written, XLogRecPtr end)
{
	const char *pages = buffers + first * (Size) XLOG_BLCKSZ;
	XLogRecPtr	pages_start;
	XLogRecPtr	start;
	XLogRecPtr	last_page = end - end % XLOG_BLCKSZ;
	Size		len;
	instr_time	io_start;

	if (!UseSegment(fd, segno, tli))
		return false;

	XLogSegNoOffsetToRecPtr(segno, startoffset, wal_segment_size, pages_start);
	Assert(pages_start % XLOG_BLCKSZ == 0);
	Assert(end > Max(pages_start, written));

	/*
	 * The first write to a page is a write of the whole page, as it is with
	 * the other methods: whoever wrote its head before us may not have synced
	 * it, and old bytes behind the end of WAL must go.  After that, only the
	 * cache lines with something new: a line that is stored as a whole need
	 * not be fetched from the media.
	 */
	start = Max(pages_start, written);
	start -= start % (start - start % XLOG_BLCKSZ == ctl->pmem_whole_page ?
					  PCACHE_CACHE_LINE : XLOG_BLCKSZ);
	if (end != last_page && last_page != ctl->pmem_whole_page)
	{
		ctl->pmem_whole_page = last_page;
		end = last_page + XLOG_BLCKSZ;
	}
	else
		end = TYPEALIGN64(PCACHE_CACHE_LINE, end);
	len = end - start;

	io_start = pgstat_prepare_io_time(track_wal_io_timing);
	pgstat_report_wait_start(WAIT_EVENT_WAL_WRITE);
	CopyToCurrent(ctl, startoffset + (start - pages_start),
				  pages + (start - pages_start), len, true);
	pgstat_report_wait_end();

	pgstat_count_io_op_time(IOOBJECT_WAL, IOCONTEXT_NORMAL, IOOP_WRITE,
							io_start, 1, len);
	return true;
}

void
XLogPmemDrain(void)
{
	if (likely(!undrained))
		return;
	pgstat_report_wait_start(WAIT_EVENT_WAL_SYNC);
	(void) PCacheDrain(&pmem);	/* cannot fail */
	pgstat_report_wait_end();
	undrained = false;
}

/*
 * A segment was opened for writing: find out anew what file it is.
 */
void
XLogPmemSegmentOpened(int flags)
{
	ForgetCurrent();
}

/*
 * Unmap all segments, because wal_sync_method changes, or because some were
 * removed.  Segments that are needed again will be mapped again.
 */
void
XLogPmemReleaseMappings(void)
{
	XLogPmemDrain();
	ForgetCurrent();
	while (num_mappings > 0)
		Unmap(&mappings[--num_mappings].map);
}

/*
 * Segments were removed.  Whoever has one mapped keeps its space from being
 * freed, even while idle; so ask all processes to let go.
 */
void
XLogPmemSegmentsRemoved(void)
{
	if (wal_sync_method == WAL_SYNC_METHOD_PMEM)
		(void) EmitProcSignalBarrier(PROCSIGNAL_BARRIER_WAL_MAPPINGS);
}

bool
ProcessBarrierXLogPmem(void)
{
	XLogPmemReleaseMappings();
	return true;
}

/*
 * Walwriter: once half of a segment is used, see that the next one exists and
 * is mapped, so that no transaction has to wait for its creation.  Returns
 * true if WAL has moved on since the last call.
 */
bool
XLogPmemPrepareNextSegment(void)
{
	static XLogRecPtr last_seen = InvalidXLogRecPtr;
	static XLogSegNo prepared = 0;
	XLogRecPtr	flushed;
	XLogSegNo	segno;
	TimeLineID	tli;
	bool		moved;

	if (wal_sync_method != WAL_SYNC_METHOD_PMEM || RecoveryInProgress())
		return false;
	flushed = GetFlushRecPtr(&tli);
	moved = flushed != last_seen;
	last_seen = flushed;

	XLByteToSeg(flushed, segno, wal_segment_size);
	segno++;
	if (segno != prepared &&
		XLogSegmentOffset(flushed, wal_segment_size) >= wal_segment_size / 2)
	{
		int			fd = XLogFileInit(segno, tli);

		PG_TRY();
		{
			(void) MapSegment(fd, segno, tli);
		}
		PG_FINALLY();
		{
			close(fd);
		}
		PG_END_TRY();
		prepared = segno;
	}
	return moved;
}
