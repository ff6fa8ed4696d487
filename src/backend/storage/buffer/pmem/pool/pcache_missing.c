/*-------------------------------------------------------------------------
 *
 * pcache_missing.c
 *	  There is no pool where one should be: may it be created?
 *
 * The configuration decides: persistent_cache_directory says where, if it is an
 * absolute path, as base backups, restored backups and new replicas bring it
 * along.  With the default, a pool that was lost with its memory file system, as
 * after a reboot of the host, is created again where it was.  A missing mount
 * must not be mistaken for an empty one, or the pool would fill the disk below
 * it: so the server creates none on an ordinary file system.
 *
 * The server asks before it creates anything, and "pg_pcache verify" to say
 * whether it would.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_missing.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <limits.h>
#include <unistd.h>

#include "storage/pcache_fs.h"
#include "storage/pcache_missing.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"

/* Would a pool in the directory, of which that part exists, be in PGDATA? */
static bool
IsInPgdata(const PCacheDir *existing, const char *directory, PCacheError *err)
{
	char		pgdata[PATH_MAX];

	if (PCacheDirPgdata == NULL || realpath(PCacheDirPgdata, pgdata) == NULL ||
		!PCacheIsInside(existing->path, pgdata))
		return false;
	PCacheSetError(err, _("persistent cache directory \"%s\" is inside the data directory"),
				   directory);
	PCacheSetHint(err, _("Choose a directory outside."));
	return true;
}

/* Only in a directory where we may write can its kind be told, see MapSyncWorks(). */
static bool
IsWritable(const PCacheDir *existing, const char *directory, PCacheError *err)
{
	if (faccessat(existing->fd, ".", W_OK | X_OK, 0) == 0)
		return true;
	PCacheSetError(err, _("could not create the persistent cache pool: directory \"%s\" is not writable: %m"),
				   existing->path);
	if (errno == EACCES)
		PCacheSetHint(err, _("Create directory \"%s\" for the user that owns the server process."),
					  directory);
	return false;
}

/* Could PGDATA's record name the directory, with links resolved? */
static bool
RecordMayName(const PCacheDir *existing, PCacheError *err)
{
	char		path[2 * MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s", existing->path, existing->missing);
	return PCacheRecordMayBeWritten(PCacheDirPgdata, path, err);
}

/*
 * Is the file system one to create a pool on?  It must be of the kind that the
 * pool was on, unless any memory will do.
 */
static bool
KindWillDo(const PCacheDir *existing, const PCacheRecord *record,
		   bool any_memory, const PCacheMissing *plan, PCacheError *err)
{
	if (plan->fs_kind == PCACHE_FS_FILE)
	{
		PCacheSetError(err, _("there is no persistent cache pool in directory \"%s\", and \"%s\" is on an ordinary file system"),
					   plan->directory, existing->path);
		PCacheSetHint(err, _("Is the file system for the pool mounted?  On an ordinary file system, only \"pg_pcache init\" creates a pool."));
		return false;
	}
	if (record == NULL || record->fs_kind == PCACHE_FS_FILE ||
		record->fs_kind == plan->fs_kind ||
		(any_memory && PCacheFsIsMemory(record->fs_kind)))
		return true;
	PCacheSetError(err, _("there is no persistent cache pool in directory \"%s\", and \"%s\" is on %s instead of %s"),
				   plan->directory, existing->path,
				   PCacheFsKindName(plan->fs_kind), PCacheFsKindName(record->fs_kind));
	PCacheSetHint(err, _("Mount the file system that held the pool, or run \"pg_pcache init --force\" to choose another place."));
	return false;
}

/*
 * May the server create the pool that is missing in this directory?
 *
 * directory is absolute, and is_default says that it was not configured.
 * record is PGDATA's, or NULL.  size is persistent_cache_size and nbuffers
 * shared_buffers, both in blocks.
 *
 * Returns true with plan filled in.  Otherwise err says why not; it must have
 * the error of the attempt to open the pool before.
 */
bool
PCacheMayCreateMissing(const char *directory, bool is_default,
					   const PCacheRecord *record, uint64 size, uint64 nbuffers,
					   PCacheMissing *plan, PCacheError *err)
{
	PCacheDir	existing;
	PCacheGeometry geometry = {0};	/* filled in once the rest is found right */
	bool		ok;

	/* a record of another place says nothing of this one */
	if (record != NULL && !is_default && strcmp(directory, record->directory) != 0)
		record = NULL;
	if (is_default && record == NULL)
	{
		PCacheSetHint(err, _("Run \"pg_pcache init\" to choose size and place of the persistent cache, set \"%s\" to a directory on tmpfs, hugetlbfs or fsdax, or set \"%s\" to \"off\"."),
					  PCacheSetting("directory"), PCacheSetting("mode"));
		return false;
	}
	if (is_default && !PCacheFsIsMemory(record->fs_kind))
	{
		PCacheSetError(err, _("persistent cache pool in \"%s\" is gone"),
					   record->directory);
		PCacheSetHint(err, _("Is the file system (%s) with \"%s\" mounted?  Otherwise run \"pg_pcache init --force\" to create the pool anew."),
					  PCacheFsKindName(record->fs_kind), record->directory);
		return false;
	}

	strlcpy(plan->directory, record != NULL ? record->directory : directory,
			sizeof(plan->directory));
	if (!PCacheOpenExistingPart(plan->directory, &existing, &plan->fs_kind, err))
		return false;
	plan->again = record != NULL && record->fs_kind == plan->fs_kind &&
		PCacheFsIsMemory(plan->fs_kind);

	/* shared_buffers may have been raised since */
	plan->capacity = record != NULL && size == 0 ? record->capacity : size;
	plan->capacity = Max(plan->capacity, nbuffers);
	ok = !IsInPgdata(&existing, directory, err) &&
		RecordMayName(&existing, err) &&
		IsWritable(&existing, plan->directory, err) &&
		KindWillDo(&existing, record, !is_default, plan, err) &&
		PCacheSpaceFor(&existing, plan->capacity, &geometry, err);

	/* the record may be that of a server with a larger file system */
	if (!ok && size == 0 && nbuffers > 0 && geometry.pool_size > 0 &&
		PCacheSpaceFor(&existing, nbuffers, &geometry, err))
	{
		plan->capacity = nbuffers;
		ok = true;
	}
	PCacheDirClose(&existing);
	return ok;
}
