/*-------------------------------------------------------------------------
 *
 * pcache_next_start.c
 *	  What the pool gates have to know, and what they would say of a restart
 *	  or a crash that happened now.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_next_start.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/pcache_find.h"
#include "storage/pcache_foretell.h"
#include "storage/pcache_run.h"
#include "storage/pcache_setting.h"
#include "storage/pcache_stat.h"
#include "storage/pcache_without.h"

/*
 * How the next start will recover, in the way of InitWalRecovery().
 *
 * The timeline matters only after a crash.  To look for the newest one can fail,
 * which must not happen at the end of a clean shutdown.
 */
static void
ForeseeRecovery(PCacheGateFacts *facts, const PCacheNextConfig *config,
				PCacheNextEvent event)
{
	const ControlFileData *control = facts->control;
	PCacheSignals signals;
	TimeLineID	timeline = Max(control->checkPointCopy.ThisTimeLineID,
							   control->minRecoveryPointTLI);

	PCacheReadSignals(DataDir, &signals);
	if ((signals.standby || signals.recovery) &&
		event != PCACHE_NEXT_RESTART && event != PCACHE_NEXT_RESTART_APART)
	{
		if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_LATEST)
			timeline = findNewestTimeLine(timeline);
		else if (recoveryTargetTimeLineGoal == RECOVERY_TARGET_TIMELINE_NUMERIC)
			timeline = recoveryTargetTLIRequested;
	}
	PCacheSetRecovery(facts, &signals, config->has_recovery_target,
					  timeline);
}

/*
 * Ask the gates about an open pool as it is on its media.
 */
static void
JudgeOpenPool(const PCachePool *pool, const PCacheMediaReport *media,
			  const PCacheNextConfig *config, PCacheNextEvent event,
			  PCacheVerdict *verdict)
{
	static PCacheRecord record;
	static PCacheSuperblocks superblocks;
	PCacheGateFacts facts = {0};
	ControlFileData *control;
	bool		crc_ok;

	/*
	 * Superblock and pg_control, neither of them in the middle of a change.
	 * In the order in which a checkpoint takes the locks.
	 */
	LWLockAcquire(ControlFileLock, LW_SHARED);
	LWLockAcquire(PersistentCacheLock, LW_SHARED);
	control = get_controlfile(DataDir, &crc_ok);
	PCacheReadSuperblocks(pool->fd, &superblocks);
	PCacheGatherServerFacts(pool, &record, &facts);
	LWLockRelease(PersistentCacheLock);
	LWLockRelease(ControlFileLock);

	if (!crc_ok)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("incorrect checksum in control file")));
	facts.control = control;
	facts.media = media;
	facts.cold_on_media_unknown = config->cold_on_media_unknown;
	ForeseeRecovery(&facts, config, event);
	PCacheForetellPool(pool, &superblocks, &facts, config, event, verdict);
	pfree(control);
}

/* Is this the pool that this server runs with? */
static bool
IsOwnPool(const PCachePool *pool)
{
	struct stat theirs;
	struct stat ours;

	return fstat(pool->fd, &theirs) == 0 && fstat(PCacheThePool.fd, &ours) == 0 &&
		theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

/*
 * Open the pool of the next start for a look, and judge it.  Returns how that
 * went.
 */
static PCacheOpenResult
JudgePoolIn(const char *directory, const PCacheNextConfig *config,
			const PCacheRecord *record, const PCacheError *record_error,
			PCacheNextEvent event, PCacheVerdict *verdict)
{
	PCachePool	pool;
	PCacheOpenResult opened;
	PCacheMediaReport media = {0};
	bool		is_own = true;

	verdict->refusal = PCACHE_REFUSED;
	opened = PCachePoolOpen(directory, PCACHE_OPEN_PEEK, &pool, &verdict->why);
	if (opened == PCACHE_OPEN_OK && !IsOwnPool(&pool))
	{
		/* who has it locked keeps the next start from it */
		PCachePoolClose(&pool);
		opened = PCachePoolOpen(directory, PCACHE_OPEN_TRY, &pool, &verdict->why);
		event = event == PCACHE_NEXT_RESTART ? PCACHE_NEXT_RESTART_APART : PCACHE_NEXT_NOTHING;
		is_own = false;
	}
	if (opened == PCACHE_OPEN_MISSING)
	{
		PCacheError err = verdict->why;

		PCacheForetellMissing(directory, config, record, record_error, &err, verdict);
	}
	if (opened != PCACHE_OPEN_OK)
		return opened;

	PG_TRY();
	{
		if (!is_own)
			PCacheMediaQuery(pool.path, pool.fd, pool.fs_kind, &media);
		JudgeOpenPool(&pool, is_own ? &PCacheMedia : &media,
					  config, event, verdict);
	}
	PG_FINALLY();
	{
		PCacheMediaReportFree(&media);
		PCachePoolClose(&pool);
	}
	PG_END_TRY();
	return opened;
}

/*
 * How will the start be that follows this event?  By the configuration as it is
 * in the files, and by what was last heard of the media.
 *
 * For any process with access to shared memory; takes ControlFileLock and
 * PersistentCacheLock in share mode.
 */
void
PCacheForetellStart(PCacheNextEvent event, PCacheVerdict *verdict)
{
	PCacheNextConfig config;
	PCacheRecord record_file;
	PCacheRecord *record = NULL;
	PCacheError *record_error = NULL;
	PCacheError err;
	char		directory[MAXPGPATH];
	PCacheOpenResult opened = PCACHE_OPEN_ERROR;
	bool		ours;

	*verdict = PCacheRefuse(PCACHE_REFUSED, "%s", "");
	/* a server in mode off has not said so yet */
	PCacheDirPgdata = DataDir;
	if (!PCacheReadNextConfig(&config, &verdict->why))
		return;
	if (config.mode == PERSISTENT_CACHE_OFF)
	{
		*verdict = PCacheRefuse(PCACHE_OFF, _("%s is off"), PCacheSetting("mode"));
		return;
	}
	switch (PCacheRecordRead(DataDir, &record_file, &err))
	{
		case PCACHE_RECORD_OK:
			record = &record_file;
			break;
		case PCACHE_RECORD_MISSING:
			break;
		case PCACHE_RECORD_ERROR:
			record_error = &err;
			break;
	}
	PCacheFindDirectory(DataDir, config.directory, record, directory);
	if (!config.late_reads &&
		PCacheDirectoryIsAllowed(DataDir, config.directory, directory, &verdict->why))
		opened = JudgePoolIn(directory, &config, record, record_error, event, verdict);
	ours = (opened == PCACHE_OPEN_OK || opened == PCACHE_OPEN_LOCKED) &&
		PCachePoolIsOurs(directory, record);
	if (opened != PCACHE_OPEN_LOCKED || !ours)
		PCacheForetellWithout(directory, &config, ours, verdict);

	/* after a crash only what is sealed is kept */
	if ((event == PCACHE_NEXT_CRASH || event == PCACHE_NEXT_HOST_CRASH) &&
		verdict->refusal == PCACHE_WARM && PersistentCacheEnabled())
	{
		uint64		sealed = PersistentCacheDescriptors != NULL ? PCacheCountSealed() : 0;

		*verdict = PCacheEmptyGate(false, sealed, sealed);
	}
}

/* The same, after the state of the media has been asked for anew. */
void
PersistentCacheNextStart(PCacheNextEvent event, PCacheVerdict *verdict)
{
	if (PersistentCacheEnabled())
		PCacheAskMedia();
	PCacheForetellStart(event, verdict);
}
