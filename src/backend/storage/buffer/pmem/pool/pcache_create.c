/*-------------------------------------------------------------------------
 *
 * pcache_create.c
 *	  Create a pool.
 *
 * The server creates the one that is missing where the configuration says, as base
 * backups, restored backups and new replicas bring that along.  A missing mount must not
 * be mistaken for an empty one, or the pool would fill the disk below it: so the server
 * creates none on an ordinary file system.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_create.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "storage/pcache_pool.h"

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
KindWillDo(const PCacheDir *existing, const char *directory, PCacheFsKind kind, PCacheError *err)
{
	if (kind != PCACHE_FS_FILE)
		return true;
	PCacheSetError(err, _("there is no persistent cache pool in directory \"%s\", and \"%s\" is on an ordinary file system"),
				   directory, existing->path);
	return PCacheSetHint(err, _("Is the file system for the pool mounted?  On an ordinary file system, only \"pg_pcache init\" creates a pool."));
}

/*
 * May the server create the pool that is missing in this directory?
 *
 * directory is absolute, and allowed by PCacheDirectoryIsAllowed().  Returns true with the
 * kind of its file system.  Otherwise err says why not.
 */
bool
PCacheMayCreateMissing(const char *directory, uint64 capacity, PCacheFsKind *fs_kind,
					   PCacheError *err)
{
	PCacheDir	existing;
	PCacheGeometry geometry;
	bool		ok;

	if (!PCacheOpenExistingPart(directory, &existing, fs_kind, err))
		return false;
	ok = IsWritable(&existing, directory, err) &&
		KindWillDo(&existing, directory, *fs_kind, err) &&
		PCacheSpaceFor(&existing, capacity, &geometry, err);
	PCacheDirClose(&existing);
	return ok;
}

void		(*PCachePoolFileMade) (int dir_fd) = NULL;

/*
 * Remove what an interrupted creation left behind, but not what somebody is
 * creating just now.
 */
static bool
RemoveLeftover(const PCacheDir *dir, const char *path, PCacheError *err)
{
	struct stat st;
	bool		ok = false;
	int			fd = PCacheDirOpenFile(dir, PCACHE_POOL_FILE_TMP, O_RDONLY,
									   path, &st, err);

	if (fd < 0)
		return errno == ENOENT;
	if (!PCachePoolLockFile(fd, LOCK_EX, PCachePoolLockWait))
	{
		PCacheSetError(err, _("could not lock file \"%s\": %m"), path);
		PCacheSetHint(err, _("Is another pg_pcache creating a pool there?"));
	}
	else if (!PCacheDirHas(dir, PCACHE_POOL_FILE_TMP, &st))
		ok = true;				/* we have waited for who had that name */
	else if (!PCacheFileHasOneName(fd, path, err))
		 /* err says so */ ;
	else if (unlinkat(dir->fd, PCACHE_POOL_FILE_TMP, 0) < 0 && errno != ENOENT)
		PCacheSetError(err, _("could not remove file \"%s\": %m"), path);
	else
		ok = true;
	close(fd);
	return ok;
}

/* Give up a creation that was begun, and leave nothing behind. */
void
PCachePoolAbortCreate(PCacheCreation *creation)
{
	if (creation->made != NULL)
		unlinkat(creation->dir.fd, creation->made, 0);
	PCachePoolClose(creation->pool);
	PCacheDirClose(&creation->dir);
}

/*
 * Begin to create a pool of the given capacity in an existing directory:
 * formatted, mapped and locked, under a temporary name.
 *
 * A pool that is there is replaced only if replace says so, for which the
 * caller must have it locked.  Otherwise it may be that of another server that
 * was first.
 *
 * A pool on tmpfs has no blocks yet.  Whoever stores to them has to call
 * PCachePoolAllocate() first.
 *
 * If that succeeds, either PCachePoolFinishCreate() or PCachePoolAbortCreate()
 * has to be called.
 */
bool
PCachePoolBeginCreate(PCacheCreation *creation, const char *directory, bool replace,
					  uint64 capacity, uint64 system_identifier, uint32 catalog_version,
					  PCachePool *pool, PCacheSuperblock *sb, PCacheError *err)
{
	PCacheGeometry g;
	PCacheDir  *dir = &creation->dir;
	struct stat st;

	creation->pool = pool;
	creation->replace = replace;
	creation->made = NULL;
	pool->fd = -1;
	pool->map.base = NULL;
	snprintf(creation->final_path, sizeof(creation->final_path), "%s/%s",
			 directory, PCACHE_POOL_FILE);
	snprintf(pool->path, sizeof(pool->path), "%s/%s",
			 directory, PCACHE_POOL_FILE_TMP);

	if (PCachePoolOpenDirectory(directory, creation->final_path, dir, err) != PCACHE_OPEN_OK)
		return false;
	strlcpy(pool->directory, dir->path, sizeof(pool->directory));
	/* the room that a leftover has is room for its successor */
	if (!RemoveLeftover(dir, pool->path, err) ||
		!PCacheSpaceFor(dir, capacity, &g, err) ||
		!PCacheFileKeepFromGroup(dir->fd, dir->path, err))
		goto fail;
	if (!PCacheFsKindOf(dir, dir->fd, &pool->fs_kind, &pool->page_size))
	{
		PCacheSetError(err, _("could not stat file system of \"%s\": %m"),
					   directory);
		goto fail;
	}

	pool->fd = openat(dir->fd, PCACHE_POOL_FILE_TMP,
					  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
					  PG_FILE_MODE_OWNER);
	if (pool->fd < 0)
	{
		PCacheSetError(err, _("could not create file \"%s\": %m"), pool->path);
		goto fail;
	}
	creation->made = PCACHE_POOL_FILE_TMP;
	/* who looks whether we do has it locked for a moment */
	if (!PCachePoolLockFile(pool->fd, LOCK_EX, PCachePoolLockWait))
	{
		PCacheSetError(err, _("could not lock file \"%s\": %m"), pool->path);
		goto fail;
	}
	/* somebody else may have taken it for a leftover before it was locked */
	if (fstat(pool->fd, &st) < 0 || !PCacheDirHas(dir, PCACHE_POOL_FILE_TMP, &st))
	{
		creation->made = NULL;
		PCacheSetError(err, _("file \"%s\" was removed by another process"), pool->path);
		PCacheSetHint(err, _("Is another server, or pg_pcache, creating a pool there?"));
		goto fail;
	}
	if (PCachePoolFileMade != NULL)
		PCachePoolFileMade(dir->fd);
	/* whoever creates one here has our name for it first, so none comes later */
	if (!replace && fstatat(dir->fd, PCACHE_POOL_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" already exists"),
					   creation->final_path);
		PCacheSetHint(err, _("Is another server, or pg_pcache, creating it?"));
		goto fail;
	}
	pool->file_size = 0;
	if (!PCachePoolSetSize(pool, g.pool_size, g.blocks_offset, err) ||
		!PCachePoolMap(pool, err) ||
		!PCachePoolFormat(pool, capacity, system_identifier, catalog_version,
						  sb, err))
		goto fail;
	return true;

fail:
	PCachePoolAbortCreate(creation);
	return false;
}

/*
 * Give the pool its name, with all of it allocated if allocate says so.  The name
 * comes last, so that an interrupted creation leaves no half-made pool behind.
 */
bool
PCachePoolFinishCreate(PCacheCreation *creation, bool allocate, PCacheError *err)
{
	PCachePool *pool = creation->pool;
	PCacheDir  *dir = &creation->dir;
	struct stat st;

	if (allocate && !PCachePoolAllocate(pool, 0, pool->file_size, err))
		goto fail;
	(void) PCachePoolUseHugePages(pool);

	/* hugetlbfs has no fsync, and nothing to make durable either */
	if (fsync(pool->fd) < 0 && errno != EINVAL)
	{
		PCacheSetError(err, _("could not fsync file \"%s\": %m"), pool->path);
		goto fail;
	}
	if (renameat(dir->fd, PCACHE_POOL_FILE_TMP, dir->fd, PCACHE_POOL_FILE) < 0)
	{
		PCacheSetError(err, _("could not rename file \"%s\" to \"%s\": %m"),
					   pool->path, creation->final_path);
		goto fail;
	}
	/* what it has replaced cannot be put back, so the new one stays */
	creation->made = creation->replace ? NULL : PCACHE_POOL_FILE;
	strlcpy(pool->path, creation->final_path, sizeof(pool->path));
	if (!PCacheDirSync(dir))
	{
		PCacheSetError(err, _("could not fsync directory \"%s\": %m"), pool->directory);
		goto fail;
	}
	if (fstat(pool->fd, &st) < 0 || !PCacheDirHas(dir, PCACHE_POOL_FILE, &st))
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" was replaced while it was created"),
					   pool->path);
		creation->made = NULL;
		goto fail;
	}
	PCacheDirClose(dir);
	return true;

fail:
	PCachePoolAbortCreate(creation);
	return false;
}

/* Create an empty pool; for the arguments see PCachePoolBeginCreate(). */
bool
PCachePoolCreate(const char *directory, bool replace, uint64 capacity,
				 uint64 system_identifier, uint32 catalog_version,
				 PCachePool *pool, PCacheSuperblock *sb, PCacheError *err)
{
	PCacheCreation creation;

	return PCachePoolBeginCreate(&creation, directory, replace, capacity,
								 system_identifier, catalog_version,
								 pool, sb, err) &&
		PCachePoolFinishCreate(&creation, true, err);
}
