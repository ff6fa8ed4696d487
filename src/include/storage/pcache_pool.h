/*-------------------------------------------------------------------------
 *
 * pcache_pool.h
 *	  The pool file of the persistent cache, the state file that remembers
 *	  it, and the gates that decide what in it can be trusted.
 *
 * Everything here serves both the server and pg_pcache.  Nothing in it
 * reports errors itself: functions fill a PCacheError and the caller decides
 * what it is worth.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_pool.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_POOL_H
#define PCACHE_POOL_H

#include <sys/stat.h>

#include "catalog/pg_control.h"
#include "common/relpath.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_media.h"
#include "storage/pcache_paths.h"
#include "storage/pcache_persist.h"
#include "storage/relfilelocator.h"

/* An error for the caller to report, already translated. */
typedef struct PCacheError
{
	char		message[1024];
	char		hint[512];		/* "" if there is none */
} PCacheError;

extern void PCacheSetError(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);
extern void PCacheSetHint(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);

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
	PCACHE_OPEN_LOCKED,
	PCACHE_OPEN_ERROR,
} PCacheOpenResult;

typedef enum PCacheOpenMode
{
	PCACHE_OPEN_READ,			/* shared lock, for verify */
	PCACHE_OPEN_PEEK,			/* no lock, for status */
	PCACHE_OPEN_WRITE,			/* exclusive lock */
} PCacheOpenMode;

/*
 * pcache_dir.c
 *
 * An open directory in which no other user can change anything; see there.
 */
typedef struct PCacheDir
{
	int			fd;				/* O_PATH; -1 if not open */
	char		path[MAXPGPATH];	/* absolute, links resolved */
	char		missing[MAXPGPATH]; /* what of the path does not exist, or "" */
} PCacheDir;

typedef enum PCacheDirResult
{
	PCACHE_DIR_OK,
	PCACHE_DIR_FAILED,			/* errno tells why */
	PCACHE_DIR_UNTRUSTED,		/* err tells why */
} PCacheDirResult;

extern const char *PCacheDirPgdata;
extern bool PCacheDirIsTrusted(const struct stat *st, bool is_pools,
							   const char *path, PCacheError *err);
extern PCacheDirResult PCacheDirOpenExisting(const char *path, PCacheDir *dir,
											 PCacheError *err);
extern PCacheDirResult PCacheDirOpen(const char *path, PCacheDir *dir,
									 PCacheError *err);
extern bool PCacheDirMakeMissing(PCacheDir *dir, int mode, PCacheError *err);
extern bool PCacheDirSync(const PCacheDir *dir);
extern void PCacheDirClose(PCacheDir *dir);

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
extern PCacheOpenResult PCachePoolOpen(const char *directory,
									   PCacheOpenMode mode,
									   PCachePool *pool, PCacheError *err);
extern bool PCachePoolMap(PCachePool *pool, PCacheError *err);
extern void PCachePoolClose(PCachePool *pool);
extern bool PCachePoolCreate(const char *directory, uint64 capacity,
							 uint64 system_identifier, int file_mode,
							 uint32 catalog_version,
							 PCachePool *pool, PCacheSuperblock *sb,
							 PCacheError *err);
extern bool PCachePoolMarkEmpty(PCachePool *pool, PCacheSuperblock *sb,
								PCacheError *err);
extern bool PCachePoolFormat(PCachePool *pool, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCacheSuperblock *sb, PCacheError *err);
extern bool PCacheSpaceFor(const PCacheDir *dir, uint64 capacity,
						   PCacheGeometry *geometry, PCacheError *err);
extern bool PCacheCanRecreate(const char *directory, PCacheFsKind expected,
							  uint64 capacity, PCacheError *err);
extern bool PCachePoolUseHugePages(PCachePool *pool);
extern bool PCachePoolSetSize(PCachePool *pool, uint64 size, PCacheError *err);
extern bool PCachePoolRestoreSize(PCachePool *pool, const PCacheSuperblock *sb,
								  uint64 *lost, PCacheError *err);
extern uint64 PCacheCapacityFor(uint64 file_size);
extern bool PCacheReadExact(int fd, void *buf, size_t len, off_t offset);

/* pcache_superblock.c */
typedef enum PCacheSuperblockSource
{
	PCACHE_SB_NONE,				/* neither can be used */
	PCACHE_SB_FIRST,
	PCACHE_SB_COPY,				/* the first one is damaged */
} PCacheSuperblockSource;

extern void PCacheSuperblockSetCrc(PCacheSuperblock *sb);
extern PCacheSuperblockSource PCacheSuperblockChoose(const PCacheSuperblock *first,
													 const PCacheSuperblock *copy,
													 PCacheSuperblock *chosen,
													 PCacheError *err);
extern bool PCacheSuperblockStore(const PCacheMapping *map,
								  PCacheSuperblock *sb);
extern bool PCacheSuperblockAdopt(PCacheSuperblock *sb,
								  const ControlFileData *control,
								  PCacheFsKind fs_kind,
								  PersistentCacheMode mode, uint64 slots_used,
								  const PCacheMediaReport *media);
extern void PCacheSuperblockSetClean(PCacheSuperblock *sb,
									 const ControlFileData *control,
									 uint64 saved_pages);
extern bool PCacheSuperblockStoreAvoiding(const PCacheMapping *map,
										  PCacheSuperblock *sb,
										  const bool bad[2]);

/* pcache_descriptor.c */
extern uint32 PCacheDescriptorCrc(const PCacheDescriptor *desc);
extern bool PCacheDescriptorIsIntact(const PCacheDescriptor *desc, uint32 slot);
extern bool PCacheDescriptorHasSaneTag(const PCacheDescriptor *desc);
extern void PCacheDescriptorSetFree(PCacheDescriptor *desc);
extern void PCacheDescriptorDescribe(PCacheDescriptor *desc, uint32 slot,
									 RelFileLocator rlocator, ForkNumber fork,
									 uint32 block_number, uint64 page_lsn,
									 bool permanent, uint8 usage_count);
extern void PCacheDescriptorSetSealed(PCacheDescriptor *desc);
extern void PCacheDescriptorStorePayload(PCacheDescriptor *dest,
										 const PCacheDescriptor *desc);
extern void PCacheDescriptorStore(const PCacheMapping *map,
								  PCacheDescriptor *dest,
								  const PCacheDescriptor *desc);
extern bool PCacheReadDescriptors(int fd, uint32 first, uint32 count,
								  PCacheDescriptor *descs);

/* pcache_memory_error.c */
extern bool PCacheRecordMemoryError(const PCacheMapping *map,
									uint64 offset, uint32 length);
extern void PCacheAddMemoryErrors(int fd, PCacheMediaReport *report);
extern bool PCacheForgetMemoryErrors(const PCacheMapping *map,
									 uint64 offset, uint64 length);

/* pcache_suspect.c */
extern void PCacheSuspectRead(int fd, PCacheSuspect *suspect);
extern bool PCacheSuspectIsIntact(const PCacheSuspect *suspect);
extern void PCacheSuspectDescribe(const PCacheSuspect *suspect,
								  char *text, size_t len);
extern void PCacheSuspectStore(const PCacheMapping *map, int signal, int pid);
extern bool PCacheSuspectForget(const PCacheMapping *map, uint64 died);

/*
 * pcache_witness.c
 *
 * The witness of a watermark is a hash of the last bytes of WAL, up to the
 * last one that is not zero, before the watermark's LSN.  So WAL that ends
 * anywhere before that does not match: each record begins with a header that
 * is not zero, and only padding may follow the witness.
 */
#define PCACHE_WITNESS_LEN		64

extern uint32 PCacheWatermarkCrc(const PCacheWatermark *watermark);
extern bool PCacheWatermarkChoose(const PCacheWatermark slots[2],
								  PCacheWatermark *chosen);
extern bool PCacheWatermarkIsBehind(const PCacheWatermark *watermark,
									uint32 timeline, uint64 flushed);
extern bool PCacheWatermarkFromDisk(PCacheWatermark *watermark,
									uint32 timeline, uint64 flushed,
									uint32 wal_segment_size);
extern bool PCacheWitnessFind(PCacheWatermark *watermark, const char *bytes,
							  size_t len, uint64 end, uint32 timeline,
							  uint32 wal_segment_size);
extern bool PCacheWitnessMatches(const PCacheWatermark *watermark,
								 uint32 wal_segment_size, PCacheError *err);

/* pcache_control.c */
extern uint32 PCacheControlSeenCrc(const PCacheControlSeen *seen);
extern PCacheControlSeen PCacheControlPending(const ControlFileData *control,
											  uint64 number, int64 now);
extern PCacheControlSeen PCacheControlConfirmed(const ControlFileData *control,
												uint64 number);
extern void PCacheReadControlSeen(int fd, PCacheControlSeen seen[2]);
extern bool PCacheControlIsAsSeen(const PCacheControlSeen seen[2],
								  const ControlFileData *control);

/* pcache_fs.c */
extern bool PCacheFsKindOf(const PCacheDir *dir, int fd, PCacheFsKind *kind,
						   uint64 *page_size);
extern const char *PCacheFsKindName(PCacheFsKind kind);
extern bool PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN]);
extern bool PCacheExistingPart(const char *directory, PCacheFsKind expected,
							   PCacheDir *existing, PCacheError *err);
extern bool PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
								int dir_mode, PCacheError *err);
extern bool PCacheIsInside(const char *path, const char *directory);

/*
 * pcache_statefile.c
 *
 * What PGDATA remembers of its pool, in a file that lies in PGDATA proper
 * and not behind the symbolic link.
 */
typedef struct PCacheStateFile
{
	char		directory[MAXPGPATH];	/* absolute, links resolved */
	uint64		capacity;		/* in blocks */
	uint8		pool_uuid[PCACHE_UUID_LEN];
	PCacheFsKind fs_kind;
	uint64		incarnation;	/* 0 until a server used the pool, and once
								 * one ran without it */
} PCacheStateFile;

typedef enum PCacheStateFileResult
{
	PCACHE_STATEFILE_OK,
	PCACHE_STATEFILE_MISSING,
	PCACHE_STATEFILE_ERROR,
} PCacheStateFileResult;

extern PCacheStateFileResult PCacheStateFileRead(const char *datadir,
												 PCacheStateFile *state,
												 PCacheError *err);
extern bool PCacheStateFileWrite(const char *datadir, int file_mode,
								 const PCacheStateFile *state,
								 PCacheError *err);

/* pcache_file.c */
extern bool PCacheDirHas(const PCacheDir *dir, const char *name,
						 const struct stat *st);
extern int	PCacheDirOpenFile(const PCacheDir *dir, const char *name,
							  int flags, const char *path, struct stat *st,
							  PCacheError *err);
extern bool PCacheDirHasAllLinks(const PCacheDir *dir, int fd,
								 const char *path, PCacheError *err);
extern bool PCachePoolMayFormat(const PCachePool *pool,
								const PCacheStateFile *state,
								PCacheError *err);

/*
 * pcache_gate.c
 *
 * What the pool gates can say.  The first one that is shut decides, and the
 * whole pool is dropped; pcache_gate.c has the order.
 */
typedef enum PCacheRefusal
{
	PCACHE_WARM,
	PCACHE_COLD_NEW,			/* just created, or never used */
	PCACHE_COLD_SUPERBLOCK,
	PCACHE_COLD_VERSION,
	PCACHE_COLD_GEOMETRY,
	PCACHE_COLD_SYSTEM_IDENTIFIER,
	PCACHE_COLD_INCARNATION,
	PCACHE_COLD_ATTACHING,
	PCACHE_COLD_DIRTY,
	PCACHE_COLD_CONTROL_STATE,
	PCACHE_COLD_TIMELINE,
	PCACHE_COLD_CHECKPOINT,
	PCACHE_COLD_CONTROL_CHANGED,
	PCACHE_COLD_CHECKSUMS,
	PCACHE_COLD_BACKUP_LABEL,
	PCACHE_COLD_RECOVERY_TARGET,
	PCACHE_COLD_POWER,
	PCACHE_COLD_MEDIA,
	PCACHE_COLD_MEDIA_UNKNOWN,
	PCACHE_COLD_WATERMARK,
	PCACHE_COLD_SUSPECT,		/* a process may have overwritten pages */
	PCACHE_COLD_NO_PAGES,		/* there is none that could be kept */
	PCACHE_NUM_REFUSALS
} PCacheRefusal;

/* All that the pool gates look at beside the superblock. */
typedef struct PCacheGateFacts
{
	const ControlFileData *control; /* as on disk before this start */
	const PCacheStateFile *state;	/* NULL if PGDATA has none */
	uint64		file_size;		/* of the pool */
	bool		backup_label;	/* recovery starts from a backup */
	bool		recovery_target;	/* any recovery but a standby's */
	const PCacheMediaReport *media;
	bool		cold_on_media_unknown;	/* persistent_cache_on_media_unknown */
	PCacheSuspect suspect;		/* died is 0 if no process died of a fault */

	/* For pools that are in use after an unclean stop */
	PCacheWatermark watermark;	/* flushed is 0 if there is none */
	PCacheControlSeen control_seen[2];	/* pending and confirmed */
	uint32		recovery_timeline;	/* that this start will follow */
	uint8		boot_id[PCACHE_UUID_LEN];
} PCacheGateFacts;

typedef struct PCacheVerdict
{
	PCacheRefusal refusal;
	char		detail[512];	/* translated; "" when warm */
} PCacheVerdict;

extern PCacheVerdict PCacheGeometryGate(const PCacheSuperblock *sb,
										uint64 file_size);
extern PCacheVerdict PCachePoolGate(const PCacheSuperblock *sb,
									const PCacheGateFacts *facts);
extern PCacheVerdict PCacheEmptyGate(bool was_clean, uint64 found);
extern const char *PCacheRefusalName(PCacheRefusal refusal);

/* Page gates, asked for each slot of a pool that passed the pool gates. */
typedef enum PCachePageVerdict
{
	PCACHE_PAGE_KEPT,
	PCACHE_PAGE_FREE,			/* not sealed: free, or in change at the end */
	PCACHE_PAGE_CRC,
	PCACHE_PAGE_TAG,
	PCACHE_PAGE_NO_FILE,
	PCACHE_PAGE_BEYOND_EOF,
	PCACHE_PAGE_UNLOGGED,
	PCACHE_PAGE_LSN,
	PCACHE_PAGE_NO_LSN,
	PCACHE_PAGE_BAD_BLOCK,
	PCACHE_PAGE_DUPLICATE,
	PCACHE_NUM_PAGE_VERDICTS
} PCachePageVerdict;

struct PCacheRelSizes;

typedef struct PCachePageFacts
{
	uint64		lsn_limit;		/* WAL is durable up to here */
	bool		drop_unlogged;	/* recovery resets unlogged relations */
	bool		host_restarted; /* files may have lost their last length */

	/*
	 * Pages sealed before this epoch are on disk, if their LSN is not beyond
	 * this redo point; see PCachePageIsDirty().
	 */
	uint64		completed_epoch;
	uint64		redo;
	struct PCacheRelSizes *sizes;
	const PCacheMediaReport *media;
	uint64		blocks_offset;	/* of slot 0 in the pool, in bytes */
	uint64		file_size;		/* of the pool, in bytes */
} PCachePageFacts;

extern PCachePageVerdict PCachePageGate(const PCacheDescriptor *desc,
										uint32 slot,
										const PCachePageFacts *facts);
extern const char *PCachePageVerdictName(PCachePageVerdict verdict);
extern void PCacheSetCompleted(PCachePageFacts *facts,
							   const PCacheSuperblock *sb,
							   const ControlFileData *control);
extern bool PCachePageIsDirty(const PCacheDescriptor *desc,
							  const PCachePageFacts *facts);
extern bool PCacheHostRestarted(const PCacheSuperblock *sb,
								const PCacheGateFacts *facts);
extern uint64 PCacheLsnLimit(const PCacheSuperblock *sb,
							 const PCacheGateFacts *facts);

/* pcache_relsize.c */
extern struct PCacheRelSizes *PCacheRelSizesCreate(void);
extern void PCacheRelSizesFree(struct PCacheRelSizes *sizes);
extern int64 PCacheRelSize(struct PCacheRelSizes *sizes,
						   RelFileLocator rlocator, ForkNumber fork);

#endif							/* PCACHE_POOL_H */
