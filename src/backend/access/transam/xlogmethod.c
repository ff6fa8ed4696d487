/*-------------------------------------------------------------------------
 *
 * xlogmethod.c
 *	  Values of wal_sync_method with their own ways to write WAL.
 *
 * Here is what pmem (xlogpmem.c) and open_direct (xlogdirect.c) share: the
 * check of the setting, the note of what was not synced, and the functions in
 * which XLogWrite() and the walreceiver write.
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
#include "access/xlogdrain.h"
#include "access/xlogmethod.h"
#include "storage/shmem.h"
#include "utils/guc_hooks.h"

XLogMethodControl *XLogMethodCtl = NULL;

bool
XLogMethodFindMount(const char *path, char *mount, char *type, char *options)
{
	char		real[PATH_MAX];
	FILE	   *mounts;
	struct mntent *entry;
	size_t		longest = 0;

	if (realpath(path, real) == NULL)
		return false;
	mounts = setmntent("/proc/self/mounts", "r");
	if (mounts == NULL)
		return false;
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
	return longest > 0;
}

/*
 * Does a method work in pg_wal?  If not, detail (XLOG_METHOD_DETAIL_LEN bytes)
 * says why, *message that it does not, and *hint what to do; both have "%s" for
 * the directory.
 */
static bool
MethodWorks(int method, char *detail, const char **message, const char **hint)
{
	if (method == WAL_SYNC_METHOD_PMEM)
	{
		*message = gettext_noop("\"wal_sync_method\" cannot be \"pmem\" because \"%s\" is not on persistent memory");
		*hint = gettext_noop("Put \"%s\" on a file system that is on an fsdax namespace and mounted with option \"dax\" (see initdb's option --waldir), or choose another \"wal_sync_method\".");
		return XLogPmemWorks(detail);
	}
	if (method == WAL_SYNC_METHOD_OPEN_DIRECT)
	{
		*message = gettext_noop("\"wal_sync_method\" cannot be \"open_direct\" because direct I/O does not work in \"%s\"");
		*hint = gettext_noop("Put \"%s\" on a file system with direct I/O (see initdb's option --waldir), or choose another \"wal_sync_method\".");
		return XLogDirectWorks(detail);
	}
	return true;
}

/*
 * GUC check hook.  The configuration is read for the first time before PGDATA
 * is known; then XLogMethodShmemInit() checks.
 */
bool
check_wal_sync_method(int *newval, void **extra, GucSource source)
{
	char		detail[XLOG_METHOD_DETAIL_LEN];
	const char *message;
	const char *hint;

	if (XLogMethodCtl == NULL || MethodWorks(*newval, detail, &message, &hint))
		return true;
	GUC_check_errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
	GUC_check_errmsg(message, XLOGDIR);
	GUC_check_errdetail("%s", detail);
	GUC_check_errhint(hint, XLOGDIR);
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
	char		detail[XLOG_METHOD_DETAIL_LEN];
	const char *message;
	const char *hint;

	XLogMethodCtl = (XLogMethodControl *)
		ShmemInitStruct("WAL Sync Method", XLogMethodShmemSize(), &found);
	WalIsDrained = XLogPmemIsDrained;
	if (found)
		return;

	/* nothing is known of what wrote the last segment before us */
	XLogMethodCtl->unsynced = true;
	XLogMethodCtl->direct_possible = false;
	XLogMethodCtl->pmem_whole_page = InvalidXLogRecPtr;

	if (!MethodWorks(wal_sync_method, detail, &message, &hint))
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg(message, XLOGDIR),
				 errdetail_internal("%s", detail),
				 errhint(hint, XLOGDIR)));
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
	if (wal_sync_method == WAL_SYNC_METHOD_PMEM &&
		XLogPmemWritePages(fd, segno, tli,
						   buffers + first * (Size) XLOG_BLCKSZ,
						   startoffset, written, end))
		return true;
	if (wal_sync_method == WAL_SYNC_METHOD_OPEN_DIRECT)
	{
		XLogDirectWritePages(fd, segno, tli, buffers, nbuffers, first, npages,
							 end % XLOG_BLCKSZ != 0, startoffset);
		return true;
	}
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
	if (wal_sync_method == WAL_SYNC_METHOD_PMEM &&
		XLogPmemCopy(fd, segno, tli, bytes, offset, len))
		return len;
	XLogMethodCtl->unsynced = true;
	return pg_pwrite(fd, bytes, len, offset);
}
