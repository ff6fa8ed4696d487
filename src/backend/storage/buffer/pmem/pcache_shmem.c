/*-------------------------------------------------------------------------
 *
 * pcache_shmem.c
 *	  Settings of the persistent cache, and how the postmaster gets its pool.
 *
 * The postmaster opens, locks and maps the pool while it creates shared
 * memory; its children inherit the mapping and, with the file descriptor,
 * the lock.  So the pool stays locked as long as any process of the server
 * lives that could still write to it, and somewhat longer: who opens it waits
 * (see LockFile()).
 *
 * What is wrong here is wrong with the set-up (no pool, no permission, no
 * room, in use): the server does not start, and tells how to mend it.  What
 * makes the contents doubtful is for pcache_startup.c, and only costs them.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_shmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "catalog/catversion.h"
#include "common/file_perm.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "port.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/procnumber.h"
#include "storage/shmem.h"
#include "utils/guc_hooks.h"

int			persistent_cache_mode = PERSISTENT_CACHE_OFF;
int			persistent_cache_numa = PERSISTENT_CACHE_NUMA_WARN;
int			persistent_cache_seal_delay = 10;
int			persistent_cache_on_media_unknown = PERSISTENT_CACHE_MEDIA_USE;
int			persistent_cache_size = 0;
char	   *persistent_cache_directory = NULL;

const struct config_enum_entry persistent_cache_mode_options[] = {
	{"off", PERSISTENT_CACHE_OFF, false},
	{"planned_restart", PERSISTENT_CACHE_PLANNED_RESTART, false},
	{"always", PERSISTENT_CACHE_ALWAYS, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_numa_options[] = {
	{"off", PERSISTENT_CACHE_NUMA_OFF, false},
	{"warn", PERSISTENT_CACHE_NUMA_WARN, false},
	{"bind", PERSISTENT_CACHE_NUMA_BIND, false},
	{NULL, 0, false}
};

const struct config_enum_entry persistent_cache_on_media_unknown_options[] = {
	{"use", PERSISTENT_CACHE_MEDIA_USE, false},
	{"cold", PERSISTENT_CACHE_MEDIA_COLD, false},
	{NULL, 0, false}
};

PersistentCacheControl *PCacheCtl = NULL;
PCachePool	PCacheThePool = {.fd = -1};
char		PCachePoolDirectory[MAXPGPATH];

/*
 * Does this server run with a pool?  Single-user mode and bootstrap never
 * do; that they ran shows in pg_control.
 */
bool
PersistentCacheEnabled(void)
{
	return persistent_cache_mode != PERSISTENT_CACHE_OFF &&
		IsPostmasterEnvironment && !IsBootstrapProcessingMode();
}

Size
PersistentCacheShmemSize(void)
{
	Size		size = 0;

	if (PersistentCacheEnabled())
	{
		size = add_size(size, MAXALIGN(sizeof(PersistentCacheControl)));
		size = add_size(size, PCacheUntrustedShmemSize());
	}
	if (PersistentCacheEnabled() &&
		persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
		size = add_size(size, PCacheQueueShmemSize());
	return size;
}

void
PCacheReportError(int elevel, const PCacheError *err)
{
	ereport(elevel,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg_internal("%s", err->message),
			 err->hint[0] != '\0' ? errhint_internal("%s", err->hint) : 0));
}

/*
 * Store the superblock durably.  The caller holds PersistentCacheLock, or is
 * the only process.  Returns false after a report below ERROR.
 */
bool
PCacheStoreSuperblock(int elevel)
{
	if (PCacheSuperblockStoreAvoiding(&PCacheThePool.map, &PCacheCtl->superblock,
									  PCacheCtl->superblock_bad))
		return true;
	ereport(elevel,
			(errcode_for_file_access(),
			 errmsg("could not write superblock of persistent cache pool \"%s\": %m",
					PCacheThePool.path)));
	return false;
}

/*
 * GUC check hook for persistent_cache_directory.
 *
 * The place of the pool must not depend on where the server is started, nor on
 * what ".." means beyond a symbolic link.
 */
bool
check_persistent_cache_directory(char **newval, void **extra, GucSource source)
{
	char		canonical[MAXPGPATH];

	for (const char *name = *newval; name != NULL; name = strchr(name, '/'))
	{
		name += strspn(name, "/");
		if (strncmp(name, "..", 2) == 0 && (name[2] == '/' || name[2] == '\0'))
		{
			GUC_check_errdetail("The path must not contain \"..\".");
			return false;
		}
	}

	if (strlcpy(canonical, *newval, sizeof(canonical)) >= MAXPGPATH - PCACHE_PATH_RESERVE)
	{
		GUC_check_errdetail("The path must be shorter than %d bytes.",
							MAXPGPATH - PCACHE_PATH_RESERVE);
		return false;
	}
	canonicalize_path(canonical);
	if (!is_absolute_path(canonical) &&
		strcmp(canonical, PCACHE_DEFAULT_DIRECTORY) != 0)
	{
		GUC_check_errdetail("The directory must be an absolute path, or \"%s\", which stands for the directory of that name in the data directory.",
							PCACHE_DEFAULT_DIRECTORY);
		return false;
	}
	strcpy(*newval, canonical); /* which is not longer */
	return true;
}

/*
 * The directory as configured, absolute.  Inside PGDATA only the default is
 * allowed: base backups and pg_rewind leave out a pool by that name only.
 */
static void
ConfiguredDirectory(char *directory)
{
	char		real[MAXPGPATH];

	if (strcmp(persistent_cache_directory, PCACHE_DEFAULT_DIRECTORY) == 0)
	{
		snprintf(directory, MAXPGPATH, "%s/%s", DataDir, PCACHE_DEFAULT_DIRECTORY);
		return;
	}
	/* absolute and canonical, see check_persistent_cache_directory() */
	strlcpy(directory, persistent_cache_directory, MAXPGPATH);
	if (realpath(directory, real) == NULL)
		strlcpy(real, directory, MAXPGPATH);
	if (PCacheIsInside(real, DataDir))
		ereport(FATAL,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("persistent cache directory \"%s\" is inside the data directory",
						directory),
				 errhint("Set \"persistent_cache_directory\" to \"%s\", or to a directory outside.",
						 PCACHE_DEFAULT_DIRECTORY)));
}

/*
 * There is no pool where it should be: create it, or give up.
 */
static void
CreateMissingPool(const char *directory, const PCacheRecord *record,
				  PCacheError *open_err)
{
	bool		is_default = strcmp(persistent_cache_directory,
									PCACHE_DEFAULT_DIRECTORY) == 0;
	PCacheMissing plan;

	if (!PCacheMayCreateMissing(directory, is_default, record,
								persistent_cache_size, NBuffers, &plan, open_err) ||
		!PCacheMakeDirectory(plan.directory, plan.fs_kind,
							 pg_dir_create_mode, open_err) ||
		!PCachePoolCreate(plan.directory, plan.capacity,
						  GetSystemIdentifier(), pg_file_create_mode,
						  CATALOG_VERSION_NO,
						  &PCacheThePool, &PCacheCtl->superblock, open_err))
		PCacheRefuseToStart(open_err);

	PCacheCtl->opened.refusal = PCACHE_COLD_NEW;
	if (plan.again)
		snprintf(PCacheCtl->opened.detail, sizeof(PCacheCtl->opened.detail),
				 _("the pool was lost with its %s file system, and was created again"),
				 PCacheFsKindName(plan.fs_kind));
	else
		strlcpy(PCacheCtl->opened.detail, _("the pool was created by this start"),
				sizeof(PCacheCtl->opened.detail));
	ereport(LOG,
			(plan.again ?
			 errmsg("created persistent cache pool \"%s\" again, for %llu blocks",
					PCacheThePool.path, (unsigned long long) plan.capacity) :
			 errmsg("created persistent cache pool \"%s\", for %llu blocks",
					PCacheThePool.path, (unsigned long long) plan.capacity),
			 PCacheThePool.fs_kind == PCACHE_FS_TMPFS && !PCacheThePool.huge_pages ?
			 errdetail("It is not in huge pages.") : 0));
	if (record != NULL && strcmp(record->directory, PCacheThePool.directory) != 0)
		ereport(LOG,
				(errmsg("the pool in \"%s\", which the cluster was last used with, is left behind",
						record->directory),
				 errhint("Remove it if no other cluster uses it.")));
}

/*
 * The pool can't be used as it is: make it an empty one of the same
 * capacity.  If even the capacity is in doubt, go by PGDATA's record, else by
 * the size of the file.
 */
static void
ReformatPool(const PCacheRecord *record, PCacheRefusal refusal,
			 const char *detail)
{
	PCacheGeometry g;
	PCacheError err;
	uint64		capacity;

	if (!PCachePoolMayFormat(&PCacheThePool, record, &err))
		PCacheReportError(FATAL, &err);

	PCacheCtl->opened.refusal = refusal;
	strlcpy(PCacheCtl->opened.detail, detail, sizeof(PCacheCtl->opened.detail));

	if (record != NULL)
		capacity = record->capacity;
	else
		capacity = PCacheCapacityFor(PCacheThePool.file_size);
	capacity = Min(capacity, PCACHE_MAX_CAPACITY);
	if (capacity < NBuffers)
		capacity = NBuffers;

	/* whatever is missing, as after a truncation, is allocated again */
	g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);
	if (PCacheThePool.file_size < g.pool_size)
	{
		/* all zeros unless a superblock was found intact */
		if (PCacheCtl->superblock.format_version == PCACHE_FORMAT_VERSION &&
			!PCachePoolMarkEmpty(&PCacheThePool, &PCacheCtl->superblock, &err))
			PCacheRefuseToStart(&err);
		if (!PCachePoolSetSize(&PCacheThePool, g.pool_size, &err))
			PCacheRefuseToStart(&err);
	}

	if (!PCachePoolMap(&PCacheThePool, &err) ||
		!PCachePoolFormat(&PCacheThePool, capacity, GetSystemIdentifier(),
						  CATALOG_VERSION_NO, &PCacheCtl->superblock, &err))
		PCacheRefuseToStart(&err);
}

/*
 * The file was cut off: what is missing is allocated again, empty.
 */
static void
RestorePool(const PCacheRecord *record)
{
	const PCacheSuperblock *sb = &PCacheCtl->superblock;
	uint64		cut_at = PCacheThePool.file_size;
	PCacheError err;

	if (!PCachePoolRestoreSize(&PCacheThePool, sb, &PCacheCtl->cut_off, &err))
	{
		if (PCachePostmasterInterrupted())
			PCacheRefuseToStart(&err);
		PCacheReportError(LOG, &err);
		ReformatPool(record, PCACHE_COLD_GEOMETRY, err.message);
		return;
	}
	ereport(WARNING,
			(errmsg("persistent cache pool \"%s\" was cut off at %llu of %llu bytes",
					PCacheThePool.path, (unsigned long long) cut_at,
					(unsigned long long) sb->pool_size),
			 errdetail_plural("The %llu saved page that was there is lost; the rest was allocated again.",
							  "The %llu saved pages that were there are lost; the rest was allocated again.",
							  PCacheCtl->cut_off,
							  (unsigned long long) PCacheCtl->cut_off)));

	/* who met the end of the file took it for bad memory; there is other now */
	if (!PCachePoolMap(&PCacheThePool, &err))
		PCacheRefuseToStart(&err);
	(void) PCachePoolUseHugePages(&PCacheThePool);
	cut_at -= (cut_at - sb->blocks_offset) % BLCKSZ;
	if (!PCacheForgetMemoryErrors(&PCacheThePool.map, cut_at, sb->pool_size - cut_at))
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not write persistent cache pool \"%s\": %m",
						PCacheThePool.path)));
}

/*
 * Read the superblock of a pool that was just opened and locked, and map the
 * pool.
 */
static void
LoadPool(const PCacheRecord *record)
{
	PCacheSuperblocks superblocks;
	PCacheError err;
	PCacheVerdict verdict;
	PCacheSuperblock *chosen = &PCacheCtl->superblock;

	PCacheReadSuperblocks(PCacheThePool.fd, &superblocks);
	*chosen = superblocks.chosen;
	switch (superblocks.source)
	{
		case PCACHE_SB_NONE:
			ReformatPool(record, PCACHE_COLD_SUPERBLOCK,
						 superblocks.first_error.message);
			return;
		case PCACHE_SB_COPY:
			ereport(LOG,
					(errmsg("using the copy of the superblock of persistent cache pool \"%s\"",
							PCacheThePool.path),
					 errdetail("The first superblock is damaged: %s.",
							   superblocks.first_error.message)));
			break;
		case PCACHE_SB_FIRST:
			break;
	}

	/*
	 * The geometry decides what we touch, so it is looked at already here.
	 * The gates will look at the rest.
	 */
	if (chosen->format_version != PCACHE_FORMAT_VERSION)
	{
		snprintf(err.message, sizeof(err.message),
				 _("the pool has format version %u, this server has %u"),
				 chosen->format_version, PCACHE_FORMAT_VERSION);
		ReformatPool(record, PCACHE_COLD_VERSION, err.message);
		return;
	}
	verdict = PCacheGeometryGate(chosen, PCacheThePool.file_size);
	if (verdict.refusal != PCACHE_WARM)
	{
		ReformatPool(record, verdict.refusal, verdict.detail);
		return;
	}
	if (chosen->capacity < NBuffers)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("persistent cache pool \"%s\" is too small for \"shared_buffers\": it has room for %llu blocks, %d are needed",
						PCacheThePool.path,
						(unsigned long long) chosen->capacity, NBuffers),
				 errhint("Decrease \"shared_buffers\", or make the pool larger with \"pg_pcache rebuild --resize\".")));

	if (PCacheThePool.file_size < chosen->pool_size)
		RestorePool(record);
	else if (!PCachePoolMap(&PCacheThePool, &err))
		PCacheRefuseToStart(&err);
}

/*
 * Open the pool, or do as CreateMissingPool() says, and have it mapped.
 */
static void
OpenPool(void)
{
	char		directory[MAXPGPATH];
	PCacheRecord record_file;
	PCacheRecord *record = NULL;
	PCacheError err;
	PCacheMediaReport media;

	PCacheDirPgdata = DataDir;
	ConfiguredDirectory(directory);
	switch (PCacheRecordRead(DataDir, &record_file, &err))
	{
		case PCACHE_RECORD_OK:
			record = &record_file;
			break;
		case PCACHE_RECORD_MISSING:
			break;
		case PCACHE_RECORD_ERROR:
			PCacheReportError(LOG, &err);
			break;
	}

	switch (PCachePoolOpen(directory, PCACHE_OPEN_WRITE, &PCacheThePool, &err))
	{
		case PCACHE_OPEN_OK:
			LoadPool(record);
			break;
		case PCACHE_OPEN_MISSING:
			CreateMissingPool(directory, record, &err);
			break;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			PCacheRefuseToStart(&err);
			break;
	}
	strlcpy(PCachePoolDirectory, PCacheThePool.directory, MAXPGPATH);

	if (PCacheThePool.map.kind == PCACHE_PERSIST_FILE)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" is an ordinary file on disk",
						PCacheThePool.path),
				 errdetail("The kernel will write changed pages back to it while the server runs."),
				 errhint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs.")));

	memset(&media, 0, sizeof(media));
	PCacheMediaQuery(PCacheThePool.path, PCacheThePool.fd,
					 PCacheThePool.fs_kind, &media);
	PCacheApplyNuma(media.numa_node);
	PCacheCoverBadBlocks(&media);
	PCacheMediaReportFree(&media);
}

/* always promises more than a file in the page cache can keep. */
static void
RequireSurvival(void)
{
	if (PCacheThePool.map.kind != PCACHE_PERSIST_FILE)
		return;
	ereport(FATAL,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("\"persistent_cache_mode\" cannot be \"always\" with pool \"%s\"",
					PCacheThePool.path),
			 PCacheThePool.fs_kind == PCACHE_FS_FSDAX ?
			 errdetail("The pool is on persistent memory, but this server was built without libpmem.") :
			 errdetail("The pool is an ordinary file: its pages reach the media in any order."),
			 errhint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs, or use \"planned_restart\".")));
}

/*
 * Allocate shared state, and map the pool.  Returns where BufferBlocks is.
 *
 * Called by the postmaster when it starts, and again when it reinitializes
 * after a crash; only if PersistentCacheEnabled().
 */
char *
PersistentCacheShmemInit(void)
{
	bool		found;

#ifdef EXEC_BACKEND
	ereport(FATAL,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the persistent cache is not supported on this platform")));
#endif
	PCacheCtl = ShmemInitStruct("Persistent Cache",
								sizeof(PersistentCacheControl), &found);
	Assert(!found);
	memset(PCacheCtl, 0, sizeof(PersistentCacheControl));
	pg_atomic_write_u32(&PCacheCtl->sealer.procno, INVALID_PROC_NUMBER);
	ConditionVariableInit(&PCacheCtl->sealer.round_done);
	PCacheRecoveryShmemInit();

	/*
	 * After a crash, look at the file anew: it may be what caused the crash.
	 * No child is left that could use the old mapping.
	 */
	PCachePoolClose(&PCacheThePool);
	PersistentCacheDescriptors = NULL;
	PCachePoolInterrupted = PCachePostmasterInterrupted;
	OpenPool();
	PCachePoolInterrupted = NULL;
	PCacheUntrustedShmemInit();

	if (persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
	{
		RequireSurvival();
		PCacheQueueShmemInit();
		PersistentCacheDescriptors = PCacheGetDescriptor(0);
	}
	return PCacheThePool.map.base + PCacheCtl->superblock.blocks_offset;
}
