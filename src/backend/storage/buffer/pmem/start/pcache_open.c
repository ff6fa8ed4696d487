/*-------------------------------------------------------------------------
 *
 * pcache_open.c
 *	  How the postmaster gets its pool.
 *
 * The postmaster opens, locks and maps the pool while it creates shared
 * memory; its children inherit the mapping and, with the file descriptor,
 * the lock.  So the pool stays locked as long as any process of the server
 * lives that could still write to it, and somewhat longer: who opens it waits
 * (see PCachePoolLockFile()).
 *
 * What is wrong here is wrong with the set-up (no pool, no permission, no
 * room, in use).  The server then starts without the pool, which
 * pcache_unavailable.c is about.  What makes the contents doubtful is for
 * pcache_startup.c, and only costs them.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_open.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/catversion.h"
#include "miscadmin.h"
#include "storage/pcache_allocate.h"
#include "storage/pcache_create.h"
#include "storage/pcache_find.h"
#include "storage/pcache_format.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_late_read.h"
#include "storage/pcache_missing.h"
#include "storage/pcache_resize.h"
#include "storage/pcache_start.h"
#include "storage/pcache_without.h"
#include "utils/guc.h"

/*
 * There is no pool where it should be: create it.  Like the other functions that
 * return bool here, it returns false, with err filled in, if the pool cannot be
 * used.
 */
static bool
CreateMissingPool(const char *directory, const PCacheRecord *record,
				  PCacheError *open_err)
{
	PCacheMissing plan;

	if (!PCacheMayCreateMissing(directory, PCacheIsDefaultDirectory(persistent_cache_directory), record,
								persistent_cache_size, NBuffers, &plan, open_err) ||
		!PCacheMakeDirectory(plan.directory, plan.fs_kind, open_err) ||
		!PCachePoolCreate(plan.directory, false, plan.capacity,
						  GetSystemIdentifier(), CATALOG_VERSION_NO,
						  &PCacheThePool, &PCacheCtl->superblock, open_err))
		return false;

	PCacheCtl->start.opened.refusal = PCACHE_COLD_NEW;
	if (plan.again)
		snprintf(PCacheCtl->start.opened.why.message, sizeof(PCacheCtl->start.opened.why.message),
				 _("the pool was lost with its %s file system, and was created again"),
				 PCacheFsKindName(plan.fs_kind));
	else
		strlcpy(PCacheCtl->start.opened.why.message, _("the pool was created by this start"),
				sizeof(PCacheCtl->start.opened.why.message));
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
	return true;
}

/*
 * The pool can't be used as it is: make it an empty one.
 */
static bool
ReformatPool(const PCacheRecord *record, PCacheRefusal refusal,
			 const char *detail, PCacheError *err)
{
	PCacheGeometry g;
	uint64		capacity;

	if (!PCachePoolMayFormat(&PCacheThePool, record, err))
		return false;

	PCacheCtl->start.opened.refusal = refusal;
	strlcpy(PCacheCtl->start.opened.why.message, detail, sizeof(PCacheCtl->start.opened.why.message));

	capacity = PCacheReformatCapacity(&PCacheThePool, record, NBuffers);

	/*
	 * Whatever is missing, as after a truncation, is allocated again.  A file
	 * that is much too long would not pass the gate next time, either.
	 */
	g = PCacheComputeGeometry(capacity, PCacheThePool.page_size);
	if (PCacheThePool.file_size != g.pool_size || PCachePoolHasHoles(&PCacheThePool))
	{
		/* all zeros unless a superblock was found intact */
		if (PCacheCtl->superblock.format_version == PCACHE_FORMAT_VERSION &&
			!PCachePoolMarkEmpty(&PCacheThePool, &PCacheCtl->superblock, err))
			return false;
		if (!PCachePoolSetSize(&PCacheThePool, g.pool_size, err))
			return false;
	}

	return PCachePoolMap(&PCacheThePool, err) &&
		PCachePoolFormat(&PCacheThePool, capacity, GetSystemIdentifier(),
						 CATALOG_VERSION_NO, &PCacheCtl->superblock, err);
}

/* A store to the pool has failed, and errno says why. */
static bool
CouldNotWrite(PCacheError *err)
{
	PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
				   PCacheThePool.path);
	return false;
}

/*
 * The file was cut off, or has holes: what is missing is allocated again, empty.
 */
static bool
RestorePool(const PCacheRecord *record, PCacheError *err)
{
	PCacheSuperblock *sb = &PCacheCtl->superblock;
	uint64		cut_at = PCacheThePool.file_size;
	PCacheVerdict verdict = PCacheHoleGate(PCachePoolHeadIsLost(&PCacheThePool));
	bool		was_empty = sb->state == PCACHE_STATE_EMPTY;
	bool		emptied;
	PCacheError reason;

	if (!PCachePoolRestoreSize(&PCacheThePool, sb, &PCacheCtl->start.cut_off, err))
	{
		/*
		 * an empty pool needs the same room, and the pages may be kept next
		 * time
		 */
		if (PCachePostmasterInterrupted() ||
			!PCachePoolHasRoom(&PCacheThePool, sb->pool_size))
			return false;
		PCacheReportError(LOG, err);
		reason = *err;
		return ReformatPool(record, PCACHE_COLD_GEOMETRY, reason.message, err);
	}
	PCacheCtl->start.opened = verdict;
	emptied = !was_empty && sb->state == PCACHE_STATE_EMPTY;
	ereport(cut_at < sb->pool_size || PCacheCtl->start.cut_off > 0 || emptied ? WARNING : LOG,
			(cut_at < sb->pool_size ?
			 errmsg("persistent cache pool \"%s\" was cut off at %llu of %llu bytes",
					PCacheThePool.path, (unsigned long long) cut_at,
					(unsigned long long) sb->pool_size) :
			 errmsg("persistent cache pool \"%s\" had holes", PCacheThePool.path),
			 emptied ?
			 errdetail("It cannot be told which pages were there, so all are lost.") :
			 errdetail_plural("The %llu saved page that was there is lost; the rest was allocated again.",
							  "The %llu saved pages that were there are lost; the rest was allocated again.",
							  PCacheCtl->start.cut_off,
							  (unsigned long long) PCacheCtl->start.cut_off)));

	if (!PCachePoolMap(&PCacheThePool, err))
		return false;
	(void) PCachePoolUseHugePages(&PCacheThePool);
	if (cut_at == sb->pool_size)
		return true;

	/* who met the end of the file took it for bad memory; there is other now */
	cut_at -= (cut_at - sb->blocks_offset) % BLCKSZ;
	return PCacheForgetMemoryErrors(&PCacheThePool.map, cut_at, sb->pool_size - cut_at) ||
		CouldNotWrite(err);
}

/*
 * The pool has become too small for shared_buffers: make it larger.  Only
 * pg_pcache clears bad blocks, which must not be met here.
 */
static bool
GrowPool(PCacheError *err)
{
	PCacheSuperblock *sb = &PCacheCtl->superblock;
	uint64		old_capacity = sb->capacity;
	uint32		state = sb->state;
	PCacheMediaReport media = {0};
	PCacheResize resize = {.media = &media};
	PCacheError why;
	bool		done;

	PCacheMediaQuery(PCacheThePool.path, PCacheThePool.fd, PCacheThePool.fs_kind,
					 &media);
	done = PCachePoolMayGrow(&PCacheThePool, NBuffers, persistent_cache_size, &media,
							 &resize.capacity, &why);
	if (!done)
		PCacheSetTooSmall(&PCacheThePool, old_capacity, NBuffers, &why, err);
	done = done && PCachePoolResize(&PCacheThePool, sb, &resize, err);
	PCacheMediaReportFree(&media);
	if (!done)
		return false;
	sb->state = state;
	if (!PCacheSuperblockStore(&PCacheThePool.map, sb))
		return CouldNotWrite(err);
	ereport(LOG,
			(errmsg("made persistent cache pool \"%s\" larger, from %llu to %llu blocks",
					PCacheThePool.path, (unsigned long long) old_capacity,
					(unsigned long long) resize.capacity)));
	return true;
}

/*
 * Read the superblock of a pool that was just opened and locked, and map the
 * pool.
 */
static bool
LoadPool(const PCacheRecord *record, PCacheError *err)
{
	PCacheSuperblocks superblocks;
	PCacheVerdict verdict;
	PCacheSuperblock *chosen = &PCacheCtl->superblock;

	PCacheReadSuperblocks(PCacheThePool.fd, &superblocks);
	*chosen = superblocks.chosen;
	switch (superblocks.source)
	{
		case PCACHE_SB_NONE:
			return ReformatPool(record, PCACHE_COLD_SUPERBLOCK,
								superblocks.first_error.message, err);
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

	if (PCachePoolIsCopied(&PCacheThePool, chosen, record, err))
		return false;

	/*
	 * The geometry decides what we touch, so it is looked at already here.
	 * The gates will look at the rest.
	 */
	if (chosen->format_version != PCACHE_FORMAT_VERSION)
	{
		snprintf(verdict.why.message, sizeof(verdict.why.message),
				 _("the pool has format version %u, this server has %u"),
				 chosen->format_version, PCACHE_FORMAT_VERSION);
		return ReformatPool(record, PCACHE_COLD_VERSION, verdict.why.message, err);
	}
	verdict = PCacheGeometryGate(chosen, PCacheThePool.file_size);
	if (verdict.refusal != PCACHE_WARM)
		return ReformatPool(record, verdict.refusal, verdict.why.message, err);
	if (PCachePoolIsIncomplete(&PCacheThePool, chosen->pool_size))
	{
		if (!RestorePool(record, err))
			return false;
	}
	else if (!PCachePoolMap(&PCacheThePool, err))
		return false;
	/* a pool that was formatted meanwhile is large enough */
	return PCacheCtl->superblock.capacity >= NBuffers || GrowPool(err);
}

/*
 * Say whose memory a pool on tmpfs or hugetlbfs is, unless it is ordinary.
 */
static void
ReportPlace(const PCacheMemoryPlace *place)
{
	char		text[PCACHE_PLACE_TEXT_LEN];

	if (place->n_devices > 0 && PCacheFsIsMemory(PCacheThePool.fs_kind))
		ereport(LOG,
				(errmsg("persistent cache pool \"%s\" is in the memory of %s",
						PCacheThePool.path,
						PCachePlaceText(place, text, sizeof(text)))));
}

/* Do those who have the pool in this directory locked only read it? */
static bool
IsOnlyRead(const char *directory)
{
	PCachePool	pool;
	PCacheError ignored;

	if (PCachePoolOpen(directory, PCACHE_OPEN_TRY, &pool, &ignored) != PCACHE_OPEN_OK)
		return false;
	PCachePoolClose(&pool);
	return true;
}

/*
 * Open the pool of PGDATA's record, and take its lock.  As long as somebody of
 * this cluster has it, who is at work on it, wait: the file of a pool that is
 * being loaded goes on to get memory.  Who only reads it loses nothing if the
 * server starts without it, so *ours is false then.
 */
static PCacheOpenResult
OpenAndWait(const char *directory, const PCacheRecord *record, bool *ours,
			PCacheError *err)
{
	uint64		held = PCachePoolHeldMemory(directory, NULL);
	uint64		before;
	PCacheOpenResult opened;

	do
	{
		before = held;
		opened = PCachePoolOpen(directory, PCACHE_OPEN_WRITE, &PCacheThePool, err);
		*ours = opened == PCACHE_OPEN_LOCKED &&
			PCachePoolIsOurs(directory, record) && !IsOnlyRead(directory);
		held = PCachePoolHeldMemory(directory, NULL);
	} while (*ours && held != before && !PCachePostmasterInterrupted());
	return opened;
}

/*
 * Read PGDATA's record, and find the pool's directory.  Returns the record, or NULL
 * if there is none that can be read, and why in record_err, empty if it is missing.
 */
static PCacheRecord *
FindPool(PCacheRecord *record_file, PCacheError *record_err)
{
	PCacheRecord *record = NULL;
	char		directory[MAXPGPATH];

	memset(record_file, 0, sizeof(*record_file));
	record_err->message[0] = '\0';
	PCacheDirPgdata = DataDir;
	switch (PCacheRecordRead(DataDir, record_file, record_err))
	{
		case PCACHE_RECORD_OK:
			record = record_file;
			break;
		case PCACHE_RECORD_MISSING:
			record_err->message[0] = '\0';
			break;
		case PCACHE_RECORD_ERROR:
			PCacheReportError(LOG, record_err);
			memset(record_file, 0, sizeof(*record_file));
			break;
	}
	PCacheFindDirectory(DataDir, persistent_cache_directory, record, directory);
	strlcpy(PCachePoolDirectory, directory, MAXPGPATH);
	return record;
}

/*
 * The startup process has found that the server has to do without the pool.  Open
 * and lock it nevertheless, if that can be done, so that PCacheRunWithout() can
 * take its memory back.  *record_file is PGDATA's record then, or zeros.
 */
void
PCacheOpenUnusedPool(PCacheRecord *record_file)
{
	PCacheError ignored;
	bool		ours;
	PCacheRecord *record = FindPool(record_file, &ignored);

	(void) OpenAndWait(PCachePoolDirectory, record, &ours, &ignored);
}

/*
 * Open the pool, or do as CreateMissingPool() says, and have it mapped.  Called
 * by the postmaster.
 *
 * Returns false, with err filled in, if the pool cannot be used.  *record is
 * PGDATA's then, or zeros, and *ours says that somebody of this cluster, and not
 * another one, has the pool locked.
 */
bool
PCacheOpenPool(PCacheRecord *record_file, bool *ours, PCacheError *err)
{
	char		directory[MAXPGPATH];
	PCacheRecord *record;
	PCacheError record_err;
	PCacheMediaReport media;

	*ours = false;
	record = FindPool(record_file, &record_err);
	strlcpy(directory, PCachePoolDirectory, sizeof(directory));
	if (!PCacheReadsEndWithProcess(GetConfigOption("io_method", false, false),
								   GetConfigOption("debug_io_direct", false, false),
								   err) ||
		!PCacheDirectoryIsAllowed(DataDir, persistent_cache_directory, directory, err))
		return false;

	switch (OpenAndWait(directory, record, ours, err))
	{
		case PCACHE_OPEN_OK:
			if (!LoadPool(record, err))
				return false;
			break;
		case PCACHE_OPEN_MISSING:
			/* nothing else says where the pool is */
			if (record_err.message[0] != '\0' && PCacheIsDefaultDirectory(persistent_cache_directory))
			{
				*err = record_err;
				return false;
			}
			if (!CreateMissingPool(directory, record, err))
				return false;
			break;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			return false;
	}
	strlcpy(PCachePoolDirectory, PCacheThePool.directory, MAXPGPATH);
	if (persistent_cache_mode == PERSISTENT_CACHE_ALWAYS &&
		!PCacheKindSurvives(PCacheThePool.fs_kind, PCacheThePool.path, err))
		return false;

	if (PCacheThePool.map.kind == PCACHE_PERSIST_FILE)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" is an ordinary file on disk",
						PCacheThePool.path),
				 errdetail("The kernel will write changed pages back to it while the server runs."),
				 errhint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs.")));

	memset(&media, 0, sizeof(media));
	PCacheMediaQuery(PCacheThePool.path, PCacheThePool.fd,
					 PCacheThePool.fs_kind, &media);
	ReportPlace(&media.place);
	PCacheApplyNuma(&media.place);
	PCacheCoverBadBlocks(&media);
	PCacheMediaReportFree(&media);
	return true;
}
