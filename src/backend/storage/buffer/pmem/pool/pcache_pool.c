/*-------------------------------------------------------------------------
 *
 * pcache_pool.c
 *	  Open, lock and map the pool file.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_pool.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "storage/pcache_pool.h"

/* How often to look whether a lock is free, and how long. */
#define LOCK_STEP_MS	10
int			PCachePoolLockWait = 10000;

bool		(*PCachePoolInterrupted) (void) = NULL;

/* Is the caller to give up?  If so, err says it, and errno is EINTR. */
bool
PCachePoolIsInterrupted(PCacheError *err)
{
	if (PCachePoolInterrupted == NULL || !PCachePoolInterrupted())
		return false;
	PCacheSetError(err, _("the work on the persistent cache pool was interrupted"));
	errno = EINTR;
	return true;
}

/*
 * Where everything is in a pool for that many blocks.  page_size is the
 * allocation unit of the file system, at least 2 MiB.
 */
PCacheGeometry
PCacheComputeGeometry(uint64 capacity, uint64 page_size)
{
	PCacheGeometry g;

	g.capacity = capacity;
	g.headers_offset = TYPEALIGN64(PCACHE_ALIGNMENT,
								   PCACHE_DESCRIPTORS_OFFSET +
								   capacity * sizeof(PCacheDescriptor));
	g.blocks_offset = TYPEALIGN64(PCACHE_ALIGNMENT,
								  g.headers_offset + capacity * PCACHE_HEADER_SIZE);
	g.pool_size = TYPEALIGN64(page_size, g.blocks_offset + capacity * BLCKSZ);
	return g;
}

/* Where the buffer header of a slot is. */
uint64
PCacheHeaderOffset(const PCacheSuperblock *sb, uint64 slot)
{
	return PCacheComputeGeometry(sb->capacity, PCACHE_ALIGNMENT).headers_offset +
		slot * PCACHE_HEADER_SIZE;
}

/*
 * Lock the pool, or one that is being created, or wait a while for who has it.
 *
 * A server is down for all to see when its postmaster.pid is gone.  Only then
 * the postmaster exits, and the kernel unmaps the pool, page by page, before
 * it closes the file.
 */
bool
PCachePoolLockFile(int fd, int operation, int wait_ms)
{
	for (int waited = 0; flock(fd, operation | LOCK_NB) < 0; waited += LOCK_STEP_MS)
	{
		if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= wait_ms)
			return false;
		if (PCachePoolInterrupted != NULL && PCachePoolInterrupted())
		{
			errno = EWOULDBLOCK;
			return false;
		}
		pg_usleep(LOCK_STEP_MS * 1000L);
	}
	return true;
}

/*
 * Is somebody creating a pool in this directory?  Waits a while for the end of
 * that.  The file that an interrupted creation has left is not locked.
 */
static bool
IsBeingCreated(const PCacheDir *dir, int wait_ms)
{
	struct stat st;
	PCacheError ignored;
	bool		locked;
	int			fd;

	/* whoever creates one here says what else is wrong with that file */
	fd = PCacheDirOpenFile(dir, PCACHE_POOL_FILE_TMP, O_RDONLY,
						   PCACHE_POOL_FILE_TMP, &st, &ignored);
	if (fd < 0)
		return false;
	locked = !PCachePoolLockFile(fd, LOCK_SH, wait_ms) && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

/* Open the pool's directory; path is that of the pool. */
PCacheOpenResult
PCachePoolOpenDirectory(const char *directory, const char *path,
						PCacheDir *dir, PCacheError *err)
{
	bool		missing;

	switch (PCacheDirOpen(directory, true, dir, err))
	{
		case PCACHE_DIR_OK:
			return PCACHE_OPEN_OK;
		case PCACHE_DIR_UNTRUSTED:
			return PCACHE_OPEN_ERROR;
		case PCACHE_DIR_FAILED:
			break;
	}
	missing = (errno == ENOENT);
	PCacheSetError(err, _("could not open persistent cache pool \"%s\": %m"), path);
	if (errno == EACCES)
		PCacheSetHint(err, _("The pool and its directory must belong to the user that owns the server process."));
	else if (errno == ENOTDIR)
		PCacheSetHint(err, _("Remove what is in place of the directory, or choose another one for the persistent cache."));
	return missing ? PCACHE_OPEN_MISSING : PCACHE_OPEN_ERROR;
}

/*
 * Open and lock a pool file.  One that is opened for writing is closed for the
 * group, and so is its directory.
 *
 * Everything that is wrong here is wrong with the set-up, not with pages:
 * the server gives up and tells, rather than to run without what its
 * administrator asked for.
 */
PCacheOpenResult
PCachePoolOpen(const char *directory, PCacheOpenMode mode,
			   PCachePool *pool, PCacheError *err)
{
	int			flags = mode == PCACHE_OPEN_WRITE ? O_RDWR : O_RDONLY;
	int			wait_ms = mode == PCACHE_OPEN_TRY ? 0 : PCachePoolLockWait;
	PCacheDir	dir;
	PCacheOpenResult result;
	struct stat st;

	pool->fd = -1;
	pool->map.base = NULL;
	snprintf(pool->path, sizeof(pool->path), "%s/%s",
			 directory, PCACHE_POOL_FILE);
	result = PCachePoolOpenDirectory(directory, pool->path, &dir, err);
	if (result != PCACHE_OPEN_OK)
		return result;
	strlcpy(pool->directory, dir.path, sizeof(pool->directory));

	result = PCACHE_OPEN_ERROR;
	pool->fd = PCacheDirOpenFile(&dir, PCACHE_POOL_FILE, flags, pool->path, &st, err);
	if (pool->fd < 0 && errno == ENOENT && mode != PCACHE_OPEN_PEEK)
	{
		if (IsBeingCreated(&dir, wait_ms))
		{
			PCacheSetError(err, _("persistent cache pool \"%s\" is being created by another process"),
						   pool->path);
			PCacheSetHint(err, _("Is another server, or pg_pcache, creating it?"));
			result = PCACHE_OPEN_LOCKED;
			goto fail;
		}
		/* it may have its name by now */
		pool->fd = PCacheDirOpenFile(&dir, PCACHE_POOL_FILE, flags, pool->path, &st, err);
	}
	if (pool->fd < 0)
	{
		if (errno == ENOENT)
			result = PCACHE_OPEN_MISSING;
		goto fail;
	}
	if (!PCacheFsKindOf(&dir, pool->fd, &pool->fs_kind, &pool->page_size))
	{
		PCacheSetError(err, _("could not stat file system of \"%s\": %m"),
					   pool->path);
		goto fail;
	}
	/* before we wait for the lock, which more of the group could take */
	if (mode == PCACHE_OPEN_WRITE &&
		!PCacheFileKeepFromGroup(dir.fd, dir.path, err))
		goto fail;
	if (mode != PCACHE_OPEN_PEEK &&
		!PCachePoolLockFile(pool->fd, mode == PCACHE_OPEN_WRITE ? LOCK_EX : LOCK_SH,
							wait_ms))
	{
		if (errno == EWOULDBLOCK)
		{
			PCacheSetError(err, _("persistent cache pool \"%s\" is locked by another process"),
						   pool->path);
			PCacheSetHint(err, _("Is another server, or pg_pcache, using it?"));
			result = PCACHE_OPEN_LOCKED;
			goto fail;
		}
		PCacheSetError(err, _("could not lock file \"%s\": %m"), pool->path);
		goto fail;
	}

	/* "pg_pcache init --force" may have replaced it while we waited */
	if (fstat(pool->fd, &st) < 0)
	{
		PCacheSetError(err, _("could not stat file \"%s\": %m"), pool->path);
		goto fail;
	}
	if (!PCacheDirHas(&dir, PCACHE_POOL_FILE, &st))
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" was replaced while it was opened"),
					   pool->path);
		goto fail;
	}
	if (!PCacheFileHasOneName(pool->fd, pool->path, err) ||
		(mode == PCACHE_OPEN_WRITE &&
		 !PCacheFileKeepFromGroup(pool->fd, pool->path, err)))
		goto fail;
	pool->file_size = st.st_size;
	PCacheDirClose(&dir);
	return PCACHE_OPEN_OK;

fail:
	PCachePoolClose(pool);
	PCacheDirClose(&dir);
	return result;
}

/*
 * Map an open pool, whole, for writing.
 *
 * libpmem wants a name.  This one is the file that is open, and not what has
 * its path by now.
 */
bool
PCachePoolMap(PCachePool *pool, PCacheError *err)
{
	char		name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", pool->fd);
	if (!PCacheMap(name, PCacheFsIsMemory(pool->fs_kind), &pool->map))
	{
		PCacheSetError(err, _("could not map persistent cache pool \"%s\": %m"),
					   pool->path);
		if (errno == ENOMEM && pool->fs_kind == PCACHE_FS_HUGETLBFS)
			PCacheSetHint(err, _("There are not enough free huge pages; see vm.nr_hugepages."));
		else if (errno == ENOENT)
			PCacheSetHint(err, _("The persistent cache needs the /proc file system."));
		return false;
	}
	return true;
}

/*
 * This process has touched a part of a mapped pool that others are going to use.  What it has
 * touched counts as its memory.  So the kernel would kill it first when memory is short, and get
 * nothing for it.
 */
void
PCachePoolLetGo(const PCachePool *pool, uint64 offset, uint64 length)
{
	/* the mapping is shared, so nothing of the file is lost */
	(void) madvise(pool->map.base + offset, length, MADV_DONTNEED);
}

static bool
HasMagic(int fd, off_t offset)
{
	PCacheSuperblock sb;

	return PCacheReadExact(fd, &sb, sizeof(sb), offset) &&
		(memcmp(sb.magic, PCACHE_MAGIC_HEAD, PCACHE_MAGIC_LEN) == 0 ||
		 memcmp(sb.tail, PCACHE_MAGIC_TAIL, PCACHE_MAGIC_LEN) == 0);
}

/*
 * May an open file be formatted?  It may if it looks like a pool.  Otherwise it is
 * somebody's file that was put, or named, in the wrong place.
 *
 * Sets err if it may not.
 */
bool
PCachePoolMayFormat(const PCachePool *pool, PCacheError *err)
{
	if (HasMagic(pool->fd, PCACHE_SUPERBLOCK_OFFSET) ||
		HasMagic(pool->fd, PCACHE_COPY_OFFSET))
		return true;
	PCacheSetError(err, _("file \"%s\" is not a persistent cache pool"), pool->path);
	return PCacheSetHint(err, _("Move it away, or choose another directory; then run \"pg_pcache init --force\" to create the pool."));
}

/* Unmap, and release the lock. */
void
PCachePoolClose(PCachePool *pool)
{
	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if (pool->fd >= 0)
		close(pool->fd);
	pool->fd = -1;
}

/*
 * Is there room for a new pool below this directory?  Fills in the geometry
 * that it would have.
 */
bool
PCacheSpaceFor(const PCacheDir *dir, uint64 capacity,
			   PCacheGeometry *geometry, PCacheError *err)
{
	struct stat leftover;
	PCacheFsKind kind;
	uint64		page_size;
	PCacheRoom	room;
	uint64		freed = 0;

	if (!PCacheFsKindOf(dir, dir->fd, &kind, &page_size) ||
		!PCacheFsRoom(dir->fd, &room))
		return PCacheSetError(err, _("could not stat file system of \"%s\": %m"),
							  dir->path);
	if (capacity > PCACHE_MAX_CAPACITY)
		return PCacheSetError(err, _("the persistent cache cannot have more than %d blocks"),
							  PCACHE_MAX_CAPACITY);
	*geometry = PCacheComputeGeometry(capacity, page_size);
	if (geometry->pool_size > PCacheFileSizeLimit())
	{
		PCacheSetError(err, _("the persistent cache pool in \"%s\" needs a file of %llu MB, but the limit on the size of files is %llu MB"),
					   dir->path,
					   (unsigned long long) (geometry->pool_size >> 20),
					   (unsigned long long) (PCacheFileSizeLimit() >> 20));
		return PCacheSetHint(err, _("Raise the limit (ulimit -f) that the server is started with, or choose a smaller size."));
	}
	/* what an interrupted creation has left is removed before the next one */
	if (dir->missing[0] == '\0' &&
		fstatat(dir->fd, PCACHE_POOL_FILE_TMP, &leftover, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISREG(leftover.st_mode) && leftover.st_uid == geteuid() &&
		!IsBeingCreated(dir, 0))
		freed = (uint64) leftover.st_blocks * 512;
	if (geometry->pool_size - Min(geometry->pool_size, freed) > room.bytes)
	{
		PCacheSetError(err, _("not enough space in \"%s\" for the persistent cache pool: %llu MB needed, %llu MB available"),
					   dir->path,
					   (unsigned long long) (geometry->pool_size >> 20),
					   (unsigned long long) ((room.bytes + freed) >> 20));
		return PCacheSetHint(err, "%s", room.hint != NULL ? room.hint :
							 _("Choose a smaller size, or another directory."));
	}
	return true;
}
