/*-------------------------------------------------------------------------
 *
 * xlogmethod.c
 *	  Values of wal_sync_method with their own ways to write WAL.
 *
 * Here is the table of these methods, which are pmem (xlogpmem.c) and
 * open_direct (xlogdirect.c), and what is the same for all: the check of the
 * setting, and the note of what was not synced.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/access/transam/xlogmethod.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <mntent.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "access/xlogdirect.h"
#include "access/xlogmethod.h"
#include "access/xlogpmem.h"
#include "storage/pg_shmem.h"
#include "storage/shmem.h"
#include "utils/guc_hooks.h"

/* Longest explanation of why a method does not work in pg_wal. */
#define DETAIL_LEN	(4 * MAXPGPATH)

/*
 * A method with its own way to write.  Other values of wal_sync_method have no
 * functions.
 */
typedef struct XLogMethod
{
	/*
	 * Does it work in pg_wal?  If not, errno says what failed, or is 0 if the
	 * file system does not have what is needed.
	 */
	bool		(*works) (void);

	/* A segment was opened for writing, with these additional flags. */
	void		(*segment_opened) (int flags);

	/* See XLogMethodWritePages(). */
	bool		(*write_pages) (XLogMethodControl *ctl,
								int fd, XLogSegNo segno, TimeLineID tli,
								char *buffers, int nbuffers,
								int first, int npages, uint32 startoffset,
								XLogRecPtr written, XLogRecPtr end);

	/* The same for the bytes of a walreceiver.  NULL: with a system call. */
	bool		(*write) (XLogMethodControl *ctl,
						  int fd, XLogSegNo segno, TimeLineID tli,
						  const char *bytes, Size len, uint32 offset);

	/* Make durable what this process wrote.  NULL: nothing is left to do. */
	void		(*drain) (void);

	/* That it does not work, and what to do; "%s" is the directory. */
	const char *message;
	const char *hint;

	/*
	 * Why: with errno, and the directory; or with mount point, type and
	 * options of its file system, and the size of a page.
	 */
	const char *failed;
	const char *lacking;
} XLogMethod;

static const XLogMethod methods[] = {
	[WAL_SYNC_METHOD_PMEM] = {
		.works = XLogPmemWorks,
		.segment_opened = XLogPmemSegmentOpened,
		.write_pages = XLogPmemWritePages,
		.write = XLogPmemWrite,
		.drain = XLogPmemDrain,
		.message = gettext_noop("\"wal_sync_method\" cannot be \"pmem\" because \"%s\" is not on persistent memory"),
		.hint = gettext_noop("Put \"%s\" on a file system that is on an fsdax namespace and mounted with option \"dax\" (see initdb's option --waldir), or choose another \"wal_sync_method\"."),
		.failed = gettext_noop("Could not create and map a file in \"%s\": %m."),
		.lacking = gettext_noop("The file system mounted at \"%s\" (type %s, options \"%s\") does not allow mappings with MAP_SYNC."),
	},
	[WAL_SYNC_METHOD_OPEN_DIRECT] = {
		.works = XLogDirectWorks,
		.segment_opened = XLogDirectSegmentOpened,
		.write_pages = XLogDirectWritePages,
		.message = gettext_noop("\"wal_sync_method\" cannot be \"open_direct\" because direct I/O does not work in \"%s\""),
		.hint = gettext_noop("Put \"%s\" on a file system with direct I/O (see initdb's option --waldir), or choose another \"wal_sync_method\"."),
		.failed = gettext_noop("Could not write to a file in \"%s\" with direct I/O: %m."),
		.lacking = gettext_noop("The file system mounted at \"%s\" (type %s, options \"%s\") does not allow direct I/O in units of %d bytes."),
	}
};

static XLogMethodControl *XLogMethodCtl = NULL;

/*
 * The mount below pg_wal.  mount and options have MAXPGPATH bytes, type has
 * NAMEDATALEN.
 */
static void
FindMount(char *mount, char *type, char *options)
{
	char		real[PATH_MAX];
	FILE	   *mounts;
	struct mntent *entry;
	size_t		longest = 0;

	strcpy(mount, "?");
	strcpy(type, "?");
	strcpy(options, "?");
	if (realpath(XLOGDIR, real) == NULL)
		return;
	mounts = setmntent("/proc/self/mounts", "r");
	if (mounts == NULL)
		return;
	while ((entry = getmntent(mounts)) != NULL)
	{
		size_t		len = strlen(entry->mnt_dir);

		/* of mounts at the same place the last one counts */
		if (len < longest || strncmp(real, entry->mnt_dir, len) != 0)
			continue;
		if (len > 1 && real[len] != '\0' && real[len] != '/')
			continue;
		longest = len;
		strlcpy(mount, entry->mnt_dir, MAXPGPATH);
		strlcpy(type, entry->mnt_type, NAMEDATALEN);
		strlcpy(options, entry->mnt_opts, MAXPGPATH);
	}
	endmntent(mounts);
}

/*
 * Does a method work in pg_wal?  If not, detail (DETAIL_LEN bytes) says why.
 *
 * Whoever has found that it does says so in shared memory, so that of the
 * processes that learn of a new configuration only the postmaster, which is
 * the first one, tries it.  The system logger is not attached to it.
 */
static bool
MethodWorks(int wanted, char *detail)
{
	static bool found[lengthof(methods)];	/* children inherit it */
	const XLogMethod *method = &methods[wanted];
	bool	   *found_by_all = UsedShmemSegAddr != NULL ? XLogMethodCtl->works : found;
	char		mount[MAXPGPATH];
	char		type[NAMEDATALEN];
	char		options[MAXPGPATH];

	if (method->works == NULL || found_by_all[wanted])
		return true;
	if (found[wanted] || method->works())
	{
		found[wanted] = found_by_all[wanted] = true;
		return true;
	}

	/* A full disk must not keep a server down that has used it before. */
	if ((errno == ENOSPC || errno == EDQUOT) && wal_sync_method == wanted)
		return true;

	if (errno != 0)
		snprintf(detail, DETAIL_LEN, _(method->failed), XLOGDIR);
	else
	{
		FindMount(mount, type, options);
		snprintf(detail, DETAIL_LEN, _(method->lacking),
				 mount, type, options, XLOG_BLCKSZ);
	}
	return false;
}

/*
 * GUC check hook.  The configuration is read for the first time before PGDATA
 * is known; then XLogMethodShmemInit() checks.
 */
bool
check_wal_sync_method(int *newval, void **extra, GucSource source)
{
	char		detail[DETAIL_LEN];

	if (XLogMethodCtl == NULL || MethodWorks(*newval, detail))
		return true;
	GUC_check_errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
	GUC_check_errmsg(methods[*newval].message, XLOGDIR);
	GUC_check_errdetail("%s", detail);
	GUC_check_errhint(methods[*newval].hint, XLOGDIR);
	return false;
}

Size
XLogMethodShmemSize(void)
{
	return sizeof(XLogMethodControl);
}

/*
 * Ends the start of the server if its wal_sync_method does not work.
 */
void
XLogMethodShmemInit(void)
{
	bool		found;
	char		detail[DETAIL_LEN];

	XLogMethodCtl = (XLogMethodControl *)
		ShmemInitStruct("WAL Sync Method", XLogMethodShmemSize(), &found);
	if (found)
		return;

	/* nothing is known of what wrote the last segment before us */
	memset(XLogMethodCtl, 0, sizeof(XLogMethodControl));
	XLogMethodCtl->unsynced = true;
	XLogMethodCtl->pmem_whole_page = InvalidXLogRecPtr;

	if (!MethodWorks(wal_sync_method, detail))
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg(methods[wal_sync_method].message, XLOGDIR),
				 errdetail_internal("%s", detail),
				 errhint(methods[wal_sync_method].hint, XLOGDIR)));
}

/*
 * A segment was opened for writing, with these additional flags.  All methods
 * have to know, because another one may be chosen while it is open.
 */
void
XLogMethodSegmentOpened(int flags)
{
	for (int i = 0; i < lengthof(methods); i++)
	{
		if (methods[i].segment_opened != NULL)
			methods[i].segment_opened(flags);
	}
}

/*
 * XLogWrite() is about to write WAL buffers "first" to "first + npages - 1" to
 * an open segment.  Behind the last of the nbuffers buffers comes the first one
 * again.  startoffset is the place of the first of these pages in the segment.
 * WAL up to "written" was written before, and WAL up to "end" is to be written.
 *
 * Returns true if that is done, and false if the caller has to write the pages
 * with a system call, as it does with other methods.
 *
 * Call with WALWriteLock held, in a critical section.
 */
bool
XLogMethodWritePages(int fd, XLogSegNo segno, TimeLineID tli,
					 char *buffers, int nbuffers, int first, int npages,
					 uint32 startoffset, XLogRecPtr written, XLogRecPtr end)
{
	const XLogMethod *method = &methods[wal_sync_method];

	if (method->write_pages != NULL &&
		method->write_pages(XLogMethodCtl, fd, segno, tli, buffers, nbuffers,
							first, npages, startoffset, written, end))
		return true;
	XLogMethodCtl->unsynced = true;
	return false;
}

/*
 * Write what a walreceiver has got; parameters and result are those of
 * pg_pwrite().
 */
ssize_t
XLogMethodWrite(int fd, XLogSegNo segno, TimeLineID tli,
				const char *bytes, Size len, uint32 offset)
{
	const XLogMethod *method = &methods[wal_sync_method];

	if (method->write != NULL &&
		method->write(XLogMethodCtl, fd, segno, tli, bytes, len, offset))
		return len;
	XLogMethodCtl->unsynced = true;
	return pg_pwrite(fd, bytes, len, offset);
}

/*
 * Make durable what this process wrote by the method, as far as that needs no
 * system call.  Who changes the method has done so before (XLogPmemRelease).
 */
void
XLogMethodDrain(void)
{
	if (methods[wal_sync_method].drain != NULL)
		methods[wal_sync_method].drain();
}

/*
 * Must a system call make durable what was written?  With the methods of the
 * table only if somebody wrote what neither a drain nor O_DSYNC covers.  Call
 * with WALWriteLock held, or in the walreceiver.
 */
bool
XLogMethodNeedsSync(void)
{
	XLogMethodDrain();
	return methods[wal_sync_method].write_pages == NULL ||
		XLogMethodCtl->unsynced;
}

/* All WAL written so far was synced with a system call. */
void
XLogMethodSynced(void)
{
	XLogMethodCtl->unsynced = false;
}
