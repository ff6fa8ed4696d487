/*-------------------------------------------------------------------------
 *
 * pcache_missing.c
 *	  There is no pool where one should be: may it be created?
 *
 * A pool that was lost with its memory file system, as after a reboot of the
 * host, is created again where it was.  Otherwise the configuration decides:
 * persistent_cache_directory says where, if it is an absolute path, as base
 * backups, restored backups and new replicas bring it along.  A missing mount
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

#include "storage/pcache_pool.h"

/*
 * Find the kind of file system that a pool in this directory would be on.  The
 * last components of its path may be missing.
 */
static bool
FindKind(const char *directory, PCacheFsKind *kind, PCacheError *err)
{
	PCacheDir	existing;
	char		pgdata[PATH_MAX];
	bool		ok = false;

	if (!PCacheOpenExistingPart(directory, &existing, kind, err))
		return false;
	if (PCacheDirPgdata != NULL && realpath(PCacheDirPgdata, pgdata) != NULL &&
		PCacheIsInside(existing.path, pgdata))
	{
		PCacheSetError(err, _("persistent cache directory \"%s\" is inside the data directory"),
					   directory);
		PCacheSetHint(err, _("Choose a directory outside."));
	}
	else if (*kind == PCACHE_FS_FILE)
	{
		PCacheSetError(err, _("there is no persistent cache pool in directory \"%s\", and \"%s\" is on an ordinary file system"),
					   directory, existing.path);
		PCacheSetHint(err, _("Is the file system for the pool mounted?  On an ordinary file system, only \"pg_pcache init\" creates a pool."));
	}
	else
		ok = true;
	PCacheDirClose(&existing);
	return ok;
}

/*
 * May the server create the pool that is missing in this directory?
 *
 * directory is absolute, and is_default says that it is the one in PGDATA.
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
	bool		recorded = record != NULL &&
		(is_default || strcmp(directory, record->directory) == 0);

	if (is_default && record == NULL)
	{
		PCacheSetHint(err, _("Run \"pg_pcache init\" to choose size and place of the persistent cache, set \"persistent_cache_directory\" to a directory on tmpfs, hugetlbfs or fsdax, or set \"persistent_cache_mode\" to \"off\"."));
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

	plan->again = recorded && PCacheFsIsMemory(record->fs_kind);
	strlcpy(plan->directory, recorded ? record->directory : directory,
			sizeof(plan->directory));
	/* what is mounted there must be what was */
	if (recorded && record->fs_kind != PCACHE_FS_FILE)
		plan->fs_kind = record->fs_kind;
	else if (!FindKind(plan->directory, &plan->fs_kind, err))
		return false;

	/* shared_buffers may have been raised since */
	plan->capacity = size > 0 || !recorded ? size : record->capacity;
	plan->capacity = Max(plan->capacity, nbuffers);
	return PCacheCanRecreate(plan->directory, plan->fs_kind, plan->capacity, err);
}
