/*-------------------------------------------------------------------------
 *
 * io_lifetime.c
 *	  Tell the kernel how long what is written to a file will live.
 *
 * A flash device that knows which writes will be overwritten or removed at
 * about the same time can put them together, and has less to move when it
 * reclaims space.  The hint (fcntl F_SET_RW_HINT) belongs to the inode as the
 * kernel has it in memory, and is gone when the kernel forgets that.  So it is
 * given each time that a file is opened for writing, which also covers virtual
 * file descriptors that are reopened, and WAL segments that are recycled.
 *
 * What becomes of it is up to the file system and the device.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/file/io_lifetime.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/file_perm.h"
#include "common/file_utils.h"
#include "common/relpath.h"
#include "lib/stringinfo.h"
#include "storage/fd.h"
#include "storage/io_lifetime.h"

/* GUC */
bool		io_lifetime_hints = false;

static bool
HasPrefix(const char *path, const char *prefix)
{
	return strncmp(path, prefix, strlen(prefix)) == 0;
}

/*
 * Are these blocks of an unlogged relation?  It has an init fork beside its
 * main fork; the path is that of any fork and segment of a relation.
 */
static bool
IsUnlogged(const char *path)
{
	const char *name = last_dir_separator(path) + 1;
	char		init[MAXPGPATH];

	snprintf(init, sizeof(init), "%.*s%.*s_init",
			 (int) (name - path), path, (int) strspn(name, "0123456789"), name);
	return access(init, F_OK) == 0;
}

/*
 * How long does what is written to this file live?  path is relative to the
 * data directory, as the server opens its files.  Returns IO_LIFETIME_NOT_SET
 * for files that nothing is known of, or that hardly anything is written to.
 */
uint64
IOLifetimeOfFile(const char *path)
{
	const char *name = last_dir_separator(path);

	if (name == NULL)
		return IO_LIFETIME_NOT_SET;
	name++;
	if (HasPrefix(path, XLOGDIR "/") || strstr(path, "/" PG_TEMP_FILES_DIR "/") != NULL)
		return IO_LIFETIME_SHORT;
	if (!HasPrefix(path, "base/") && !HasPrefix(path, "global/") &&
		!HasPrefix(path, PG_TBLSPC_DIR_SLASH))
		return IO_LIFETIME_NOT_SET;
	/* t3_16384 is a temporary relation of backend 3 */
	if (name[0] == 't' && isdigit((unsigned char) name[1]))
		return IO_LIFETIME_SHORT;
	if (!isdigit((unsigned char) name[0]))
		return IO_LIFETIME_NOT_SET;
	return IsUnlogged(path) ? IO_LIFETIME_LONG : IO_LIFETIME_EXTREME;
}

/*
 * Give an open file its hint.  flags are those of open(2).  errno stays, and a
 * kernel that refuses the hint is no error: IOLifetimeReport() has told.
 */
void
IOLifetimeApply(int fd, const char *path, int flags)
{
#ifdef F_SET_RW_HINT
	int			save_errno = errno;
	uint64		lifetime;

	if ((flags & O_ACCMODE) == O_RDONLY)
		return;
	lifetime = IOLifetimeOfFile(path);
	if (lifetime != IO_LIFETIME_NOT_SET)
		(void) fcntl(fd, F_SET_RW_HINT, &lifetime);
	errno = save_errno;
#endif
}

#ifdef F_SET_RW_HINT

/* What is known of a file system, by its number in statfs(2). */
static const struct
{
	uint32		magic;
	const char *name;
	const char *effect;
}			file_systems[] = {
	{0xEF53, "ext4", "accepted, no effect known here"},
	{0x58465342, "xfs", "accepted, no effect known here unless the device has zones"},
	{0xF2F52010, "f2fs", "accepted, passed to the device"},
	{0x9123683E, "btrfs", "accepted, no effect known here"},
	{0x01021994, "tmpfs", "accepted, without any effect in memory"},
};

/* Is the hint accepted in this directory, and for what good? */
static void
DescribeDirectory(const char *directory, StringInfo description)
{
	uint64		lifetime = IO_LIFETIME_SHORT;
	uint64		found = IO_LIFETIME_NOT_SET;
	struct statfs fs;
	const char *name = "an unknown file system";
	const char *effect = "accepted, effect not known";
	int			fd = -1;

	if (description->len > 0)
		appendStringInfoString(description, "; ");
#ifdef O_TMPFILE
	fd = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, pg_file_create_mode);
#endif
	if (fd < 0 || fstatfs(fd, &fs) < 0)
	{
		appendStringInfo(description, "%s: not known: %m", directory);
		if (fd >= 0)
			close(fd);
		return;
	}
	for (int i = 0; i < lengthof(file_systems); i++)
	{
		if (file_systems[i].magic == (uint32) fs.f_type)
		{
			name = file_systems[i].name;
			effect = file_systems[i].effect;
		}
	}
	if (fcntl(fd, F_SET_RW_HINT, &lifetime) < 0 || fcntl(fd, F_GET_RW_HINT, &found) < 0)
		appendStringInfo(description, "%s on %s: refused: %m", directory, name);
	else
		appendStringInfo(description, "%s on %s: %s", directory, name,
						 found == lifetime ? effect : "ignored");
	close(fd);
}

/*
 * Log once, at start, what the file systems of the cluster do with the hints.
 * The data directory is the working directory.
 */
void
IOLifetimeReport(void)
{
	StringInfoData description;
	DIR		   *dir;
	struct dirent *entry;
	char		path[MAXPGPATH];

	if (!io_lifetime_hints)
		return;
	initStringInfo(&description);
	DescribeDirectory("base", &description);
	DescribeDirectory(XLOGDIR, &description);
	dir = AllocateDir(PG_TBLSPC_DIR);
	while ((entry = ReadDirExtended(dir, PG_TBLSPC_DIR, LOG)) != NULL)
	{
		if (!isdigit((unsigned char) entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/%s", PG_TBLSPC_DIR, entry->d_name);
		DescribeDirectory(path, &description);
	}
	FreeDir(dir);
	ereport(LOG,
			(errmsg("write lifetime hints: %s", description.data)));
	pfree(description.data);
}

#else

void
IOLifetimeReport(void)
{
	if (io_lifetime_hints)
		ereport(LOG,
				(errmsg("write lifetime hints: this platform does not support them")));
}

#endif							/* F_SET_RW_HINT */
