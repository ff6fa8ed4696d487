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
#include "storage/pcache_record.h"
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
	uint64		blocks_offset;	/* in bytes */
	uint64		pool_size;		/* of the file, in bytes */
} PCacheGeometry;

extern PCacheGeometry PCacheComputeGeometry(uint64 capacity, uint64 page_size);

/* pcache_pool.c */
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
							   const PCacheSuperblock *sb,
							   const PCacheRecord *record, PCacheError *err);
extern bool PCachePoolMayFormat(const PCachePool *pool,
								const PCacheRecord *record,
								PCacheError *err);

/* pcache_allocate.c */
extern bool PCachePoolHasRoom(const PCachePool *pool, uint64 size);
extern bool PCachePoolHasHoles(const PCachePool *pool);
extern bool PCachePoolIsIncomplete(const PCachePool *pool, uint64 size);
extern bool PCachePoolHeadIsLost(const PCachePool *pool);
extern void PCachePoolSetRoomHint(const PCachePool *pool, PCacheError *err);
extern void PCachePoolSetAllocationError(const PCachePool *pool, uint64 size,
										 PCacheError *err);
extern bool PCachePoolNextHole(const PCachePool *pool, uint64 offset,
							   uint64 *start, uint64 *end);
extern bool PCachePoolUseHugePages(PCachePool *pool);
extern bool PCachePoolAllocate(const PCachePool *pool, uint64 offset,
							   uint64 length, PCacheError *err);
extern bool PCachePoolSetSize(PCachePool *pool, uint64 size, PCacheError *err);

/* pcache_format.c */
extern uint64 PCacheCapacityFor(uint64 file_size);
extern uint64 PCacheReformatCapacity(const PCachePool *pool,
									 const PCacheRecord *record,
									 uint64 nbuffers);
extern bool PCachePoolRestoreSize(PCachePool *pool, PCacheSuperblock *sb,
								  uint64 *lost, PCacheError *err);
extern bool PCachePoolMarkEmpty(PCachePool *pool, PCacheSuperblock *sb,
								PCacheError *err);
extern bool PCachePoolFormat(PCachePool *pool, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCacheSuperblock *sb, PCacheError *err);

/* pcache_without.c */
extern uint64 PCachePoolHeldMemory(const char *directory, bool *huge);
extern bool PCachePoolIsOurs(const char *directory, const PCacheRecord *record);
extern bool PCachePoolGiveBack(PCachePool *pool, PCacheError *err);
extern bool PCacheMemoryForBuffers(const char *directory, uint64 needed,
								   bool huge_pages, bool gives_back,
								   PCacheError *err);

/* pcache_create.c: a creation on its way. */
typedef struct PCacheCreation
{
	PCachePool *pool;
	PCacheDir	dir;
	bool		sparse;			/* some of it may not be allocated yet */
	const char *made;			/* the name that our file has, or NULL */
	char		final_path[MAXPGPATH];
} PCacheCreation;

/*
 * If not NULL: called with the pool's directory once the file with the temporary
 * name is ours, before anything is allocated, for those who remove it when a
 * signal ends them.
 */
extern void (*PCachePoolFileMade) (int dir_fd);

extern bool PCachePoolBeginCreate(PCacheCreation *creation,
								  const char *directory, bool replace,
								  bool sparse, uint64 capacity,
								  uint64 system_identifier,
								  uint32 catalog_version, PCachePool *pool,
								  PCacheSuperblock *sb, PCacheError *err);
extern bool PCachePoolFinishCreate(PCacheCreation *creation, PCacheError *err);
extern void PCachePoolAbortCreate(PCacheCreation *creation);
extern bool PCachePoolCreate(const char *directory, bool replace, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCachePool *pool, PCacheSuperblock *sb,
							 PCacheError *err);

/* pcache_missing.c: where a pool that is not there is to be created. */
typedef struct PCacheMissing
{
	char		directory[MAXPGPATH];
	PCacheFsKind fs_kind;
	uint64		capacity;		/* in blocks */
	bool		again;			/* it was lost with its file system */
} PCacheMissing;

extern bool PCacheMayCreateMissing(const char *directory, bool is_default,
								   const PCacheRecord *record, uint64 size,
								   uint64 nbuffers, PCacheMissing *plan,
								   PCacheError *err);

#endif							/* PCACHE_POOL_H */
