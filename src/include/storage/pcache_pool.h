/*-------------------------------------------------------------------------
 *
 * pcache_pool.h
 *	  The pool: what library and program share, file by file.
 *
 * Nothing here reports errors itself: functions fill a PCacheError, and the caller decides
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
#include <sys/types.h>
#include <time.h>

#include "catalog/pg_control.h"
#include "common/relpath.h"
#include "storage/bufpage.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"
#include "storage/pcache_setting.h"
#include "storage/relfilelocator.h"

/* pcache_error.c: errors for the caller to report, and exact reads */

/* An error for the caller to report, already translated. */
typedef struct PCacheError
{
	char		message[1024];
	char		hint[512];		/* "" if there is none */
} PCacheError;

extern bool PCacheSetError(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);
extern bool PCacheSetHint(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);

/* What an array of names has for a value, which may be that of a damaged pool. */
#define PCacheNameOf(names, value) \
	((uint32) (value) < lengthof(names) && (names)[value] != NULL ? (names)[value] : "unknown")

extern bool PCacheReadExact(int fd, void *buf, size_t len, off_t offset);

/* What has the wrong owner. */
typedef enum PCacheOwned
{
	PCACHE_OWNED_DIRECTORY,
	PCACHE_OWNED_MOUNT_POINT,	/* a directory with a file system of its own */
	PCACHE_OWNED_POOL,
} PCacheOwned;

extern void PCacheSetWrongOwner(PCacheOwned what, const char *path, uid_t owner,
								PCacheError *err);

/* pcache_range.c: sorted lists of ranges of bytes */

/* More ranges than this, and the list stands for everything. */
#define PCACHE_MAX_RANGES		4096

typedef struct PCacheByteRange
{
	uint64		offset;			/* in bytes */
	uint64		length;			/* in bytes, never 0 */
} PCacheByteRange;

typedef struct PCacheRangeList
{
	PCacheByteRange *ranges;	/* malloc'd; NULL if there are none */
	uint32		n_ranges;
	uint32		max_ranges;		/* allocated */
	bool		truncated;		/* there are more: treat all as bad */
} PCacheRangeList;

extern void PCacheRangeAdd(PCacheRangeList *list,
						   uint64 offset, uint64 length);
extern void PCacheRangeMerge(PCacheRangeList *list);
extern uint32 PCacheRangeFirstBehind(const PCacheRangeList *list,
									 uint64 offset);
extern void PCacheRangeClip(PCacheRangeList *list,
							uint64 start, uint64 length);

/*
 * Is any byte of [offset, offset + length) in one of a merged list's ranges?
 * Here, because it is asked for each slot of a pool, and nearly always of lists
 * that are empty.
 */
static inline bool
PCacheRangeOverlaps(const PCacheRangeList *list, uint64 offset, uint64 length)
{
	uint32		i;

	if (list->truncated)
		return true;
	if (list->n_ranges == 0 || length == 0)
		return false;
	i = PCacheRangeFirstBehind(list, offset);
	return i < list->n_ranges &&
		(list->ranges[i].offset <= offset ||
		 list->ranges[i].offset - offset < length);
}

/* pcache_room.c: how much memory, and how many huge pages, may be had */

#define PCACHE_CGROUP_ROOT	"/sys/fs/cgroup"

/*
 * What the server should have beside the pool: its other shared memory, and some sessions.
 * It is a guess, and is for a limit that is far too small.
 */
#define PCACHE_MEMORY_BESIDE(pool_size)	Max((pool_size) / 8, UINT64CONST(128) << 20)

/* Shared memory beside the buffers, which depends on many settings: also a guess. */
#define PCACHE_SEGMENT_BESIDE(buffers)	((buffers) / 32 + (UINT64CONST(128) << 20))

/*
 * The PID of a server that will have stopped before the start that is asked about, and
 * whose place that takes, or 0.
 */
extern int	PCacheServerToStop;

/* Of a control group and those above it, in bytes; PG_UINT64_MAX without a limit. */
typedef struct PCacheCgroup
{
	uint64		limit;
	uint64		room;			/* the page cache counts as free */
} PCacheCgroup;

extern bool PCacheReadNumber(const char *path, const char *name, uint64 *number);
extern PCacheCgroup PCacheReadCgroup(const char *groups, const char *root);
extern uint64 PCacheHugeRoomInCgroup(const char *groups, const char *root, uint64 size_kb);
extern const char *PCacheCgroupFile(void);
extern bool PCacheMemoryWillDo(uint64 lacking, uint64 size, PCacheError *err);

extern bool PCacheReservationCounts(void);
extern bool PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err);

struct statfs;

/* Huge pages of one size, those that hugetlbfs and huge_pages take. */
typedef struct PCacheHugePages
{
	uint64		size_kb;		/* of one */
	uint64		unused;			/* reserved (vm.nr_hugepages), and nobody has
								 * asked for them */
	uint64		more;			/* that the kernel may still add to them */
} PCacheHugePages;

extern bool PCacheReadHugePages(uint64 size_kb, PCacheHugePages *pages);
extern uint64 PCacheHugeSegment(int pid);
extern uint64 PCacheHugeRoom(int fd, const struct statfs *fs, const char **hint);

/* pcache_sum.c: the sum by which a page is recognized after power was lost */

extern bool PCacheHasSums(void);
extern uint64 PCacheSumOf(const char *page);

/* pcache_dir.c: the directory of the pool: whom it belongs to, and what it lies on */

/*
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

/* As many links as the kernel follows. */
#define PCACHE_MAX_SYMLINKS		40

extern bool PCacheIsInside(const char *path, const char *directory);
extern bool PCacheDirIsTrusted(const struct stat *st, bool is_pools,
							   bool is_mount_point, const char *path,
							   PCacheError *err);
extern PCacheDirResult PCacheDirOpenExisting(const char *path, PCacheDir *dir,
											 PCacheError *err);
extern PCacheDirResult PCacheDirOpen(const char *path, bool is_pools, PCacheDir *dir,
									 PCacheError *err);
extern bool PCacheDirMakeMissing(PCacheDir *dir, PCacheError *err);
extern bool PCacheDirSync(const PCacheDir *dir);
extern void PCacheDirClose(PCacheDir *dir);

/* pcache_file.c: which file in it may be the pool */

extern bool PCacheDirHas(const PCacheDir *dir, const char *name,
						 const struct stat *st);
extern int	PCacheDirOpenFile(const PCacheDir *dir, const char *name,
							  int flags, const char *path, struct stat *st,
							  PCacheError *err);
extern bool PCacheFileIsWritable(int fd, const char *path, PCacheError *err);
extern bool PCacheFileKeepFromGroup(int fd, const char *path, PCacheError *err);
extern bool PCacheFileHasOneName(int fd, const char *path, PCacheError *err);

/* pcache_fs.c: kinds of file systems, their room, and boots */

/* Is it memory, which outlives the server but not the host? */
static inline bool
PCacheFsIsMemory(PCacheFsKind kind)
{
	return kind == PCACHE_FS_TMPFS || kind == PCACHE_FS_HUGETLBFS;
}

/* What a file system has left. */
typedef struct PCacheRoom
{
	uint64		bytes;
	const char *hint;			/* what gives more, unless it is the mount's
								 * size; or NULL */
} PCacheRoom;

extern bool PCacheFsKindOf(const PCacheDir *dir, int fd, PCacheFsKind *kind,
						   uint64 *page_size);
extern const char *PCacheFsKindName(PCacheFsKind kind);
extern bool PCacheFsRoom(int fd, PCacheRoom *room);
extern uint64 PCacheFileSizeLimit(void);
extern bool PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN]);
extern bool PCacheBootIsAnother(PCacheFsKind kind, const uint8 used[PCACHE_UUID_LEN],
								const uint8 found[PCACHE_UUID_LEN]);
extern bool PCacheWasOtherBoot(const PCacheSuperblock *sb);
extern bool PCacheOpenExistingPart(const char *directory, PCacheDir *existing,
								   PCacheFsKind *kind, PCacheError *err);
extern bool PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
								PCacheError *err);

/* pcache_superblock.c: the superblock and its copy */

typedef enum PCacheSuperblockSource
{
	PCACHE_SB_NONE,				/* neither can be used */
	PCACHE_SB_FIRST,
	PCACHE_SB_COPY,				/* the first one is damaged */
} PCacheSuperblockSource;

/* The two superblocks of a pool, and which of them to believe. */
typedef struct PCacheSuperblocks
{
	PCacheSuperblockSource source;
	PCacheSuperblock chosen;	/* zeros if the source is none */
	bool		first_intact;
	bool		copy_intact;
	PCacheError first_error;	/* set if it is not intact */
	PCacheError copy_error;
} PCacheSuperblocks;

extern const char *PCacheStateName(uint32 state);
extern void PCacheReadSuperblocks(int fd, PCacheSuperblocks *superblocks);
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
								  PersistentCacheMode mode, uint64 slots_used);
extern void PCacheSuperblockSetClean(PCacheSuperblock *sb,
									 const ControlFileData *control,
									 uint64 saved_pages);
extern void PCacheSuperblockBecome(PCacheSuperblock *sb,
								   const PCacheSuperblock *saved);
extern bool PCacheSuperblockStoreAvoiding(const PCacheMapping *map,
										  PCacheSuperblock *sb,
										  const bool bad[2]);

/* pcache_descriptor.c: entries of the ledger */

/* Which page a descriptor speaks of; without padding, to be hashed as it is. */
typedef struct PCachePageKey
{
	uint32		spc_oid;
	uint32		db_oid;
	uint32		rel_number;
	int32		fork_number;
	uint32		block_number;
} PCachePageKey;

extern PCachePageKey PCacheDescriptorKey(const PCacheDescriptor *desc);
extern uint32 PCacheDescriptorCrc(const PCacheDescriptor *desc);
extern bool PCacheDescriptorIsIntact(const PCacheDescriptor *desc, uint32 slot);
extern bool PCacheDescriptorHasSaneTag(const PCacheDescriptor *desc);
extern void PCacheDescriptorSetFree(PCacheDescriptor *desc);
extern void PCacheDescriptorSetSealed(PCacheDescriptor *desc);
extern void PCacheDescriptorStore(const PCacheMapping *map,
								  PCacheDescriptor *dest,
								  const PCacheDescriptor *desc);
extern bool PCacheReadDescriptors(int fd, uint32 first, uint32 count,
								  PCacheDescriptor *descs);

/* pcache_witness.c: what the server last saw of its cluster */

/*
 * The witness of a watermark is a hash of the last bytes of WAL, up to the
 * last one that is not zero, before the watermark's LSN.  So WAL that ends
 * anywhere before that does not match: each record begins with a header that
 * is not zero, and only padding may follow the witness.
 */
#define PCACHE_WITNESS_LEN		64

extern bool PCacheWatermarkIsBehind(const PCacheWatermark *watermark,
									uint32 timeline, uint64 written);
extern bool PCacheWatermarkFromDisk(PCacheWatermark *watermark,
									uint32 timeline, uint64 written,
									uint32 wal_segment_size);
extern bool PCacheWitnessMatches(const PCacheWatermark *watermark,
								 uint32 wal_segment_size, PCacheError *err);

extern bool PCacheControlIsShutDown(const ControlFileData *control);

/*
 * The worker says five times a second that the server lives.  A file that was changed
 * longer than the tolerance after the last time was changed by somebody else.
 */
#define PCACHE_SIGHTING_INTERVAL	200 /* milliseconds */
#define PCACHE_SIGHTING_TOLERANCE	(PCACHE_NSEC / 2)

extern int64 PCacheReadClock(clockid_t clock);
extern int64 PCacheClockOffset(void);
extern uint64 PCacheGenerationOf(const ControlFileData *control);
extern uint64 PCacheLedgerGeneration(const PCacheSuperblock *sb,
									 const ControlFileData *control);
extern void PCacheSightingMake(PCacheSighting *sighting, const ControlFileData *control,
							   int64 seen_at);
extern void PCacheSightingStore(const PCacheMapping *map, PCacheSighting *sighting);
extern bool PCacheReadSighting(int fd, PCacheSighting *sighting);

/* pcache_setting.c: settings with which a pool can be used */

/* room that a directory's path leaves for the names of files in it */
#define PCACHE_PATH_RESERVE			64

extern bool PCacheCanonicalDirectory(char *directory, PCacheError *err);
extern bool PCacheDirectoryIsAllowed(const char *pgdata, const char *directory,
									 PCacheError *err);

extern bool PCacheReadsEndWithProcess(const char *io_method,
									  const char *debug_io_direct,
									  PCacheError *err);

/* pcache_notes.c: what the pool remembers of faults */

extern bool PCacheNoteMemoryError(const PCacheMapping *map,
								  uint64 offset, uint32 length);
extern bool PCacheReadMemoryErrors(int fd, PCacheRangeList *bad);
extern bool PCacheForgetMemoryErrors(const PCacheMapping *map,
									 uint64 offset, uint64 length);

extern void PCacheSuspectRead(int fd, PCacheSuspect *suspect);
extern bool PCacheSuspectIsIntact(const PCacheSuspect *suspect);
extern void PCacheSuspectDescribe(const PCacheSuspect *suspect,
								  char *text, size_t len);
extern void PCacheSuspectStore(const PCacheMapping *map, int signal, int pid);
extern bool PCacheSuspectForget(const PCacheMapping *map, uint64 died);

/* pcache_relsize.c: lengths and times of relation forks, for the page gates */

struct PCacheRelSizes;

/* What PCacheRelSize() says instead of a length. */
#define PCACHE_REL_MISSING	(-1)
#define PCACHE_REL_CHANGED	(-2)

extern struct PCacheRelSizes *PCacheRelSizesCreate(int64 unchanged_since, bool only_written);
extern void PCacheRelSizesFree(struct PCacheRelSizes *sizes);
extern int64 PCacheRelSize(struct PCacheRelSizes *sizes,
						   RelFileLocator rlocator, ForkNumber fork);

/* ----------------------------------------------------------------
 * pcache_media.c: the health of the persistent memory below the pool.  A query never fails: what
 * cannot be found out is PCACHE_MEDIA_UNKNOWN, with the reason
 * ----------------------------------------------------------------
 */

/* Where power loss finds data safe; a greater value is a larger domain. */
typedef enum PCachePersistenceDomain
{
	PCACHE_DOMAIN_UNKNOWN = 0,
	PCACHE_DOMAIN_NONE,			/* nowhere, without a deep flush */
	PCACHE_DOMAIN_MEMORY_CONTROLLER,	/* once flushed out of CPU caches */
	PCACHE_DOMAIN_CPU_CACHE,	/* once stored */
} PCachePersistenceDomain;

/* Health of a DIMM: a bit each, which PCacheMediaHealthText() names */
#define PCACHE_DIMM_NOT_ARMED		0x0001	/* won't save at power loss */
#define PCACHE_DIMM_MAP_FAIL		0x0002	/* not mapped into memory */
#define PCACHE_DIMM_FLUSH_FAIL		0x0004	/* last flush at power loss failed */
#define PCACHE_DIMM_SAVE_FAIL		0x0008	/* last save failed */
#define PCACHE_DIMM_RESTORE_FAIL	0x0010	/* last restore failed */
#define PCACHE_DIMM_SMART_EVENT		0x0020	/* SMART alarm or health event */

#define PCACHE_MEDIA_WHY_LEN		256
#define PCACHE_MEDIA_NAME_LEN		64
#define PCACHE_MEDIA_HEALTH_LEN		128 /* holds any PCacheMediaHealthText */

typedef struct PCacheMediaReport
{
	/* BAD: some of the pool's bytes can't be read. */
	PCacheMediaAnswer blocks;
	char		blocks_why[PCACHE_MEDIA_WHY_LEN];	/* "" if there is nothing
													 * to say; translated */
	PCacheRangeList bad;		/* sorted, merged, offsets in the pool file */

	/*
	 * CLEAN: each DIMM's count of unsafe shutdowns was read.  Otherwise
	 * UNKNOWN, never BAD, and what dimms[] has may be incomplete.
	 */
	PCacheMediaAnswer dimms_state;
	char		dimms_why[PCACHE_MEDIA_WHY_LEN];
	uint32		n_dimms;
	PCacheDimm	dimms[PCACHE_MAX_DIMMS];	/* sorted by id */
	char		dimm_names[PCACHE_MAX_DIMMS][PCACHE_MEDIA_NAME_LEN];	/* nmem0 */
	uint32		health;			/* PCACHE_DIMM_ flags, of all together */

	PCachePersistenceDomain domain; /* the weakest, if there are several */

	/* For messages; "" if unknown. */
	char		block_device[PCACHE_MEDIA_NAME_LEN];	/* the file system's */
	char		region_name[PCACHE_MEDIA_NAME_LEN]; /* of the first leaf */
} PCacheMediaReport;

extern void PCacheMediaQuery(const char *pool_path, int fd, PCacheFsKind kind,
							 PCacheMediaReport *report);
extern void PCacheMediaReportFree(PCacheMediaReport *report);
extern void PCacheMediaRememberDimms(const PCacheMediaReport *report,
									 PCacheSuperblock *sb);
extern PCacheMediaAnswer PCacheMediaCompareDimms(const PCacheSuperblock *sb,
												 const PCacheMediaReport *now,
												 char *why, size_t why_len);
extern const char *PCacheMediaAnswerName(PCacheMediaAnswer answer);
extern const char *PCachePersistenceDomainName(PCachePersistenceDomain domain);
extern const char *PCacheMediaHealthText(uint32 health, char *buf, size_t len);

/*
 * Is any byte of [offset, offset + length) of the pool file on a bad block?
 * If bad blocks are unknown none is: what that is worth is the caller's
 * policy.
 */
static inline bool
PCacheMediaRangeIsBad(const PCacheMediaReport *report,
					  uint64 offset, uint64 length)
{
	return PCacheRangeOverlaps(&report->bad, offset, length);
}

/* Are the page or the entry of a slot on a bad block? */
static inline bool
PCacheMediaSlotIsBad(const PCacheMediaReport *report, const PCacheSuperblock *sb, uint64 slot)
{
	return PCacheMediaRangeIsBad(report, sb->blocks_offset + slot * BLCKSZ, BLCKSZ) ||
		PCacheMediaRangeIsBad(report, PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor),
							  sizeof(PCacheDescriptor));
}

/* pcache_pool.c: open, lock and map */

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
extern void PCachePoolLetGo(const PCachePool *pool, uint64 offset, uint64 length);
extern void PCachePoolClose(PCachePool *pool);
extern bool PCacheSpaceFor(const PCacheDir *dir, uint64 capacity,
						   PCacheGeometry *geometry, PCacheError *err);
extern bool PCachePoolMayFormat(const PCachePool *pool, PCacheError *err);

/* pcache_allocate.c: its size, room and huge pages */

extern bool PCachePoolHasRoom(const PCachePool *pool, uint64 size);
extern bool PCachePoolHasMemory(const PCachePool *pool, uint64 size, PCacheError *err);
extern void PCachePoolShedBlocks(const PCachePool *pool, uint64 blocks_offset);
extern bool PCachePoolHasHoles(const PCachePool *pool);
extern bool PCachePoolIsIncomplete(const PCachePool *pool, uint64 size);
extern bool PCachePoolHeadIsLost(const PCachePool *pool);
extern void PCachePoolSetRoomHint(const PCachePool *pool, PCacheError *err);
extern void PCachePoolSetAllocationError(const PCachePool *pool, uint64 size,
										 PCacheError *err);
extern bool PCachePoolNextHole(const PCachePool *pool, uint64 offset,
							   uint64 *start, uint64 *end);
extern void PCachePoolListHoles(const PCachePool *pool, PCacheRangeList *holes);
extern bool PCachePoolUseHugePages(PCachePool *pool);
extern bool PCachePoolAllocate(const PCachePool *pool, uint64 offset,
							   uint64 length, PCacheError *err);
extern bool PCachePoolSetSize(PCachePool *pool, uint64 size, uint64 allocated,
							  PCacheError *err);

/* pcache_create.c: create a pool */

/* A creation on its way. */
typedef struct PCacheCreation
{
	PCachePool *pool;
	PCacheDir	dir;
	bool		replace;		/* a pool that is there */
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
								  uint64 capacity,
								  uint64 system_identifier,
								  uint32 catalog_version, PCachePool *pool,
								  PCacheSuperblock *sb, PCacheError *err);
extern bool PCachePoolFinishCreate(PCacheCreation *creation, bool allocate, PCacheError *err);
extern void PCachePoolAbortCreate(PCacheCreation *creation);
extern bool PCachePoolCreate(const char *directory, bool replace, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCachePool *pool, PCacheSuperblock *sb,
							 PCacheError *err);

extern bool PCacheMayCreateMissing(const char *directory, uint64 capacity,
								   PCacheFsKind *fs_kind, PCacheError *err);

/* pcache_format.c: format it, and mend a file that has lost a part */

extern uint64 PCacheCapacityFor(uint64 file_size);
extern uint64 PCacheReformatCapacity(const PCachePool *pool, uint64 nbuffers, uint64 size);
extern void PCachePoolSetDamagedHint(const PCachePool *pool, PCacheError *err);
extern bool PCacheForgetHeader(const PCachePool *pool, const PCacheSuperblock *sb,
							   uint64 slot);
extern bool PCachePoolRestoreSize(PCachePool *pool, PCacheSuperblock *sb, bool sparse,
								  uint64 *lost, PCacheError *err);
extern bool PCachePoolMarkEmpty(PCachePool *pool, PCacheSuperblock *sb,
								PCacheError *err);
extern bool PCachePoolDiscard(PCachePool *pool, PCacheSuperblocks *superblocks, bool shed,
							  PCacheError *err);
extern bool PCachePoolFormat(PCachePool *pool, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCacheSuperblock *sb, PCacheError *err);

/* pcache_grow.c: has it the capacity that the settings ask for? */

extern bool PCachePoolMayGrow(const PCachePool *pool, uint64 old_capacity,
							  uint64 nbuffers, uint64 size,
							  const PCacheMediaReport *media, uint64 *capacity,
							  PCacheError *err);
extern uint64 PCachePoolSlotsGivenUp(const PCachePool *pool, const PCacheSuperblock *sb,
									 uint64 capacity);
extern bool PCachePoolGrow(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity,
						   const PCacheRangeList *holes, uint64 *given_up,
						   PCacheError *err);

extern bool PCacheSizeDiffers(const PCachePool *pool, const PCacheSuperblock *sb,
							  uint64 size, uint64 nbuffers, PCacheError *err);

/* pcache_harvest.c: entries from buffer headers */

/* Where a start finds what is in a pool. */
typedef enum PCacheSource
{
	PCACHE_SOURCE_SAVED,		/* in the ledger, which says so of each page */
	PCACHE_SOURCE_HEADERS,		/* in the headers of a server that was killed */
	PCACHE_SOURCE_SUMS,			/* in the ledger, if the sums fit */
} PCacheSource;

extern PCacheSource PCacheSourceOf(const PCacheSuperblock *sb, bool host_restarted);
extern void PCacheCheckSums(int fd, const PCacheSuperblock *sb, uint64 generation,
							uint32 first, uint32 n, PCacheDescriptor *entries);
extern bool PCacheHeaderLayoutIsSane(const PCacheHeaderLayout *layout);
extern bool PCacheHarvestHeader(const PCacheHeaderLayout *layout,
								const char *header, uint32 slot,
								PCacheDescriptor *entry);
extern bool PCacheHarvestYoung(const PCacheHeaderLayout *layout,
							   const char *header, uint32 slot,
							   PCacheDescriptor *entry);
extern bool PCacheIsFirstOfIndex(const PCacheDescriptor *entry,
								 const PageHeaderData *page);
extern void PCacheSetFreeBecause(PCacheDescriptor *entry, uint8 why);
extern void PCacheHarvestLsn(PCacheDescriptor *entry, const PageHeaderData *page);
extern bool PCacheReadLedger(int fd, const PCacheSuperblock *sb, uint64 generation,
							 uint32 first, uint32 n, PCacheDescriptor *entries);

#endif							/* PCACHE_POOL_H */
