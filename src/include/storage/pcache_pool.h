/*-------------------------------------------------------------------------
 *
 * pcache_pool.h
 *	  The pool file: open, lock, map, create, format and resize it.
 *
 * Everything here serves both the server and pg_pcache, as does what the
 * headers below declare.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_pool.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_POOL_H
#define PCACHE_POOL_H

#include "storage/pcache_dir.h"
#include "storage/pcache_superblock.h"

/*
 * An open pool.  The descriptor keeps the file locked: exclusively if the
 * pool was opened for writing, shared otherwise.
 */
typedef struct PCachePool
{
	int			fd;				/* -1 if not open */
	char		path[MAXPGPATH];	/* of the file, as named by the caller */
	char		directory[MAXPGPATH];	/* with links resolved */
	PCacheFsKind fs_kind;
	uint64		page_size;		/* in which its file system allocates */
	uint64		file_size;		/* in bytes */
	PCacheMapping map;			/* base is NULL until PCachePoolMap() */
	bool		huge_pages;		/* PCachePoolUseHugePages() got them */
} PCachePool;

typedef enum PCacheOpenResult
{
	PCACHE_OPEN_OK,
	PCACHE_OPEN_MISSING,		/* no such file or directory */
	PCACHE_OPEN_LOCKED,			/* or being created */
	PCACHE_OPEN_ERROR,
} PCacheOpenResult;

typedef enum PCacheOpenMode
{
	PCACHE_OPEN_READ,			/* shared lock, for verify */
	PCACHE_OPEN_PEEK,			/* no lock, for status */
	PCACHE_OPEN_TRY,			/* shared lock, without waiting for it */
	PCACHE_OPEN_WRITE,			/* exclusive lock */
} PCacheOpenMode;

/* Where everything is in a pool of a given capacity. */
typedef struct PCacheGeometry
{
	uint64		capacity;		/* in blocks */
	uint64		headers_offset; /* in bytes */
	uint64		blocks_offset;	/* in bytes */
	uint64		pool_size;		/* of the file, in bytes */
} PCacheGeometry;

extern PCacheGeometry PCacheComputeGeometry(uint64 capacity, uint64 page_size);
extern uint64 PCacheHeaderOffset(const PCacheSuperblock *sb, uint64 slot);

extern int	PCachePoolLockWait; /* ms; less in tests */

/* If not NULL: asked while something takes long, whether to give it up. */
extern bool (*PCachePoolInterrupted) (void);
extern bool PCachePoolIsInterrupted(PCacheError *err);
extern bool PCachePoolLockFile(int fd, int operation, int wait_ms);
extern PCacheOpenResult PCachePoolOpenDirectory(const char *directory,
												const char *path, PCacheDir *dir,
												PCacheError *err);
extern PCacheOpenResult PCachePoolOpen(const char *directory,
									   PCacheOpenMode mode,
									   PCachePool *pool, PCacheError *err);
extern bool PCachePoolMap(PCachePool *pool, PCacheError *err);
extern void PCachePoolClose(PCachePool *pool);
extern bool PCacheSpaceFor(const PCacheDir *dir, uint64 capacity,
						   PCacheGeometry *geometry, PCacheError *err);
extern bool PCachePoolIsCopied(const PCachePool *pool,
							   const PCacheSuperblock *sb, PCacheError *err);
extern bool PCachePoolMayFormat(const PCachePool *pool, PCacheError *err);

#endif							/* PCACHE_POOL_H */
