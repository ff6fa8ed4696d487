/*-------------------------------------------------------------------------
 *
 * pcache_missing.c
 *	  There is no pool where one should be: may it be created?
 *
 * The configuration says where, as base backups, restored backups and new replicas
 * bring it along.  A missing mount must not be mistaken for an empty one, or the pool
 * would fill the disk below it: so the server creates none on an ordinary file system.
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

/* Is the file system one to create a pool on? */
static bool
KindWillDo(const PCacheDir *existing, const PCacheMissing *plan, PCacheError *err)
{
	if (plan->fs_kind != PCACHE_FS_FILE)
		return true;
	PCacheSetError(err, _("there is no persistent cache pool in directory \"%s\", and \"%s\" is on an ordinary file system"),
				   plan->directory, existing->path);
	PCacheSetHint(err, _("Is the file system for the pool mounted?  On an ordinary file system, only \"pg_pcache init\" creates a pool."));
	return false;
}

/*
 * May the server create the pool that is missing in this directory?
 *
 * directory is absolute.  size is pcache.size and nbuffers shared_buffers, both in
 * blocks.
 *
 * Returns true with plan filled in.  Otherwise err says why not.
 */
bool
PCacheMayCreateMissing(const char *directory, uint64 size, uint64 nbuffers,
					   PCacheMissing *plan, PCacheError *err)
{
	PCacheDir	existing;
	PCacheGeometry geometry;
	bool		ok;

	strlcpy(plan->directory, directory, sizeof(plan->directory));
	if (!PCacheOpenExistingPart(plan->directory, &existing, &plan->fs_kind, err))
		return false;
	plan->capacity = Max(size, nbuffers);
	ok = !IsInPgdata(&existing, directory, err) &&
		IsWritable(&existing, plan->directory, err) &&
		KindWillDo(&existing, plan, err) &&
		PCacheSpaceFor(&existing, plan->capacity, &geometry, err);
	PCacheDirClose(&existing);
	return ok;
}
