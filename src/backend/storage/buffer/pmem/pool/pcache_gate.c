/*-------------------------------------------------------------------------
 *
 * pcache_gate.c
 *	  The gates that a pool, and then each page in it, must pass to be kept.
 *
 * Dropping is always safe and keeping needs proof, so every gate that cannot
 * be answered is shut.  The rules and the argument for each are in
 * README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_gate.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <time.h>

#include "access/xlogdefs.h"
#include "storage/bufpage.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

static const PCacheVerdict warm = {PCACHE_WARM};

/* A verdict that is not warm, for the reason given, which is translated. */
PCacheVerdict
PCacheRefuse(PCacheRefusal refusal, const char *fmt,...)
{
	PCacheVerdict verdict = {refusal};
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(verdict.why.message, sizeof(verdict.why.message), fmt, ap);
	va_end(ap);
	return verdict;
}

/*
 * Has the pool this server's layout, and the size that goes with it?  A file
 * that was cut off behind the descriptors will do: the page gate drops what is
 * missing.  It will be given the size that its superblock says, so that is
 * bounded.
 *
 * Beside being a gate, this tells the server whether it can use the pool at
 * all without formatting it.  sb must be of our format version.
 */
PCacheVerdict
PCacheGeometryGate(const PCacheSuperblock *sb, uint64 file_size)
{
	PCacheGeometry g;

	if (sb->block_size != BLCKSZ ||
		sb->blocks_per_segment != RELSEG_SIZE ||
		sb->descriptor_size != sizeof(PCacheDescriptor) ||
		sb->superblock_size != PCACHE_SUPERBLOCK_SIZE)
		return PCacheRefuse(PCACHE_COLD_GEOMETRY,
							_("the pool has blocks of %u bytes, and segments of %u blocks"),
							sb->block_size, sb->blocks_per_segment);

	/* bounded before it is multiplied */
	if (sb->capacity > 0 && sb->capacity <= PCACHE_MAX_CAPACITY)
		g = PCacheComputeGeometry(sb->capacity, PCACHE_ALIGNMENT);
	else
		memset(&g, 0, sizeof(g));
	if (g.pool_size == 0 || file_size < g.blocks_offset)
		return PCacheRefuse(PCACHE_COLD_GEOMETRY,
							_("the pool file has %llu bytes, which is too small for %llu blocks"),
							(unsigned long long) file_size,
							(unsigned long long) sb->capacity);
	if (sb->descriptors_offset != PCACHE_DESCRIPTORS_OFFSET ||
		sb->blocks_offset != g.blocks_offset ||
		sb->pool_size < g.pool_size ||
		sb->pool_size - g.pool_size >= PCACHE_MAX_PAGE_SIZE ||
		sb->pool_size < file_size ||
		sb->slots_used > sb->capacity)
		return PCacheRefuse(PCACHE_COLD_GEOMETRY,
							_("the pool file has %llu bytes, its superblock says %llu"),
							(unsigned long long) file_size,
							(unsigned long long) sb->pool_size);
	return warm;
}

/* Has the pool the format of this server? */
static PCacheVerdict
GateFormat(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	if (sb->format_version != PCACHE_FORMAT_VERSION)
		return PCacheRefuse(PCACHE_COLD_VERSION,
							_("the pool has format version %u, this server has %u"),
							sb->format_version, PCACHE_FORMAT_VERSION);
	if (sb->pg_major != PG_VERSION_NUM / 10000 ||
		sb->pg_control_version != PG_CONTROL_VERSION ||
		sb->catalog_version != facts->control->catalog_version_no)
		return PCacheRefuse(PCACHE_COLD_VERSION,
							_("the pool belongs to PostgreSQL %u with catalog version %u"),
							sb->pg_major, sb->catalog_version);
	return PCacheGeometryGate(sb, facts->file_size);
}

/*
 * Is all there that may speak against the pool?  It lies between the superblocks
 * and the descriptors.  A start that finds a hole there makes the pool empty.
 */
PCacheVerdict
PCacheHoleGate(bool head_is_lost)
{
	if (head_is_lost)
		return PCacheRefuse(PCACHE_COLD_HOLE,
							_("the pool file has a hole where it may have said that its pages cannot be kept"));
	return warm;
}

/* Does the pool belong to this cluster, and has it been used? */
static PCacheVerdict
GateIdentity(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	if (sb->system_identifier != facts->control->system_identifier)
		return PCacheRefuse(PCACHE_COLD_SYSTEM_IDENTIFIER,
							_("the pool belongs to the cluster with system identifier %llu"),
							(unsigned long long) sb->system_identifier);
	if (sb->state == PCACHE_STATE_EMPTY)
		return PCacheRefuse(PCACHE_COLD_NEW, _("the pool is empty"));
	return warm;
}

/*
 * May a process have overwritten pages before it died?  Asked before how the
 * server stopped, so that this reason is the one that is given.
 */
static PCacheVerdict
GateSuspect(const PCacheGateFacts *facts)
{
	char		death[256];

	if (facts->read_errors_ignored)
		return PCacheRefuse(PCACHE_COLD_SUSPECT,
							_("pages may have been read with \"zero_damaged_pages\" or \"ignore_checksum_failure\""));
	if (facts->suspect.died == 0)
		return warm;
	PCacheSuspectDescribe(&facts->suspect, death, sizeof(death));
	return PCacheRefuse(PCACHE_COLD_SUSPECT,
						_("%s, and may have overwritten cached pages before"), death);
}

/* Was the host restarted since the pool was in use? */
bool
PCacheHostRestarted(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	return PCacheBootIsAnother(sb->fs_kind, sb->boot_id, facts->boot_id);
}

/* Did the memory below the pool survive what the host went through? */
static PCacheVerdict
GatePower(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	char		why[256];

	if (!PCacheHostRestarted(sb, facts))
		return warm;
	if (sb->fs_kind != PCACHE_FS_FSDAX)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the pool was not on persistent memory"));
	if (facts->media->domain == PCACHE_DOMAIN_NONE)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the platform does not save what was flushed to the DIMMs"));
	if (facts->media->domain == PCACHE_DOMAIN_UNKNOWN && facts->cold_on_media_unknown)
		return PCacheRefuse(PCACHE_COLD_MEDIA_UNKNOWN,
							_("it is not known whether the platform saves what was flushed to the DIMMs"));
	switch (PCacheMediaCompareDimms(sb, facts->media, why, sizeof(why)))
	{
		case PCACHE_DIMMS_SAME:
			break;
		case PCACHE_DIMMS_UNKNOWN:
			if (facts->cold_on_media_unknown)
				return PCacheRefuse(PCACHE_COLD_MEDIA_UNKNOWN,
									_("it is not known whether the DIMMs were shut down safely: %s"), why);
			break;
		case PCACHE_DIMMS_MOVED:
		case PCACHE_DIMMS_REPLACED:
			return PCacheRefuse(PCACHE_COLD_POWER,
								_("the DIMMs were not shut down safely: %s"), why);
	}
	return warm;
}

/* There is nothing to go by.  Say why, as far as it still shows. */
static PCacheVerdict
RefuseWithoutRule(const PCacheSuperblock *sb, const PCacheGateFacts *facts, bool logs_hints)
{
	PCachePowerFacts power = {
		.fs_kind = sb->fs_kind,
		.domain = facts->media->domain,
		.cold_on_media_unknown = facts->cold_on_media_unknown,
		.fsync = true,
		.logs_hints = logs_hints,
		.logs_all = facts->control->wal_level != 0,
	};
	PCacheError why;

	if (PCachePowerRuleFor(&power, &why) == PCACHE_POWER_COLD)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the server was not shut down cleanly (%s)"),
							why.message);
	return PCacheRefuse(PCACHE_COLD_POWER,
						_("the host was restarted, and the server was not shut down cleanly"));
}

/* The server was in use when power was lost.  Is there something to go by? */
static PCacheVerdict
GatePowerRule(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;
	bool		logs_hints = control->data_checksum_version != 0 || control->wal_log_hints;

	if (sb->power_rule == PCACHE_POWER_COLD)
		return RefuseWithoutRule(sb, facts, logs_hints);
	if (facts->not_synced)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and files may not have been synced, because \"fsync\" was off"));
	/* a hint that is not logged may be missing in the file */
	if (!logs_hints)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and hint bits were not logged"));
	if (sb->power_rule == PCACHE_POWER_HEADERS && facts->media->domain != PCACHE_DOMAIN_CPU_CACHE)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the platform does not say any more that it saves the CPU caches"));
	return GatePower(sb, facts);
}

/*
 * The server was killed.  Is the cluster as it has last seen it?  The files are for
 * the page gate.
 *
 * If power was lost, pg_control may be what it was before the last sighting, because that
 * sees it before it is synced, and WAL that was not flushed is gone.  Entries with a sum say
 * each which pg_control they are about.  One that says "shut down" was before anybody changed a
 * page, so there is nothing to be kept.
 */
static PCacheVerdict
GateKilled(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;
	const PCacheSighting *seen = &facts->sighting;
	bool		power_lost = PCacheHostRestarted(sb, facts);
	PCacheSource source = PCacheSourceOf(sb, power_lost);
	PCacheVerdict verdict = warm;
	PCacheError err;

	if (power_lost)
		verdict = GatePowerRule(sb, facts);
	if (verdict.refusal != PCACHE_WARM)
		return verdict;
	if (source != PCACHE_SOURCE_SUMS && seen->generation != PCacheGenerationOf(control) &&
		!(power_lost && seen->synced_generation == PCacheGenerationOf(control) &&
		  !PCacheControlIsShutDown(control)))
	{
		if (seen->checkpoint != control->checkPoint)
			return PCacheRefuse(PCACHE_COLD_CHECKPOINT,
								_("the pool knows of checkpoint %X/%X, the last checkpoint of the cluster is at %X/%X"),
								LSN_FORMAT_ARGS(seen->checkpoint),
								LSN_FORMAT_ARGS(control->checkPoint));
		return PCacheRefuse(PCACHE_COLD_CONTROL_CHANGED,
							_("the control file is not what the pool's server last saw"));
	}

	/*
	 * The generation leaves that out.  A session of a hot standby has set
	 * hints about what was replayed up to there, and if hints are logged, no
	 * file has them.
	 */
	if (control->minRecoveryPoint < (power_lost ? seen->synced_recovery_point : seen->min_recovery_point))
		return PCacheRefuse(PCACHE_COLD_CONTROL_CHANGED,
							_("recovery has to reach %X/%X only, the pool's server last saw %X/%X"),
							LSN_FORMAT_ARGS(control->minRecoveryPoint),
							LSN_FORMAT_ARGS(seen->min_recovery_point));

	/* what was copied while the server ran is not of one moment */
	if (!power_lost &&
		(seen->pool_device != facts->pool_device || seen->pool_inode != facts->pool_inode))
		return PCacheRefuse(PCACHE_COLD_SUPERBLOCK,
							_("the pool is a copy of the one that the server used"));
	if (source == PCACHE_SOURCE_SAVED)
		return PCacheRefuse(PCACHE_COLD_VERSION,
							_("the pool does not tell how its buffer headers look"));
	if (!power_lost && !PCacheWitnessMatches(&seen->wal, control->xlog_seg_size, &err))
		return PCacheRefuse(PCACHE_COLD_WATERMARK, "%s", err.message);
	return warm;
}

/*
 * Are pool and pg_control from the same stop, and was that one after which
 * pages can be kept?
 */
static PCacheVerdict
GateShutdown(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;
	const PCacheCheckpoint *saved = &sb->saved;

	switch ((PCacheState) sb->state)
	{
		case PCACHE_STATE_CLEAN:
			break;
		case PCACHE_STATE_ATTACHING:
			return PCacheRefuse(PCACHE_COLD_ATTACHING,
								_("the last start did not reach a consistent state, or pg_pcache was interrupted while it changed the pool"));
		case PCACHE_STATE_DIRTY:
			if (sb->mode == PERSISTENT_CACHE_ALWAYS)
				return GateKilled(sb, facts);
			return PCacheRefuse(PCACHE_COLD_DIRTY,
								_("the server was not shut down cleanly"));
		default:
			return PCacheRefuse(PCACHE_COLD_SUPERBLOCK,
								_("the state of the pool is %u, which is unknown"),
								sb->state);
	}

	/*
	 * a start has saved what a killed server left, and ended there; that was
	 * not judged as after a loss of power
	 */
	if (!PCacheControlIsShutDown(control) &&
		sb->control_state == control->state && PCacheHostRestarted(sb, facts))
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted since the pool of a killed server was judged"));
	if (!PCacheControlIsShutDown(control) && sb->control_state != control->state)
		return PCacheRefuse(PCACHE_COLD_CONTROL_STATE,
							_("the cluster was run without the pool, and not shut down cleanly"));
	if (saved->timeline != control->checkPointCopy.ThisTimeLineID)
		return PCacheRefuse(PCACHE_COLD_TIMELINE,
							_("the pool was saved on timeline %u, the cluster is on timeline %u"),
							saved->timeline, control->checkPointCopy.ThisTimeLineID);
	if (saved->location != control->checkPoint ||
		saved->redo != control->checkPointCopy.redo)
		return PCacheRefuse(PCACHE_COLD_CHECKPOINT,
							_("the pool was saved at checkpoint %X/%X, the last checkpoint of the cluster is at %X/%X"),
							LSN_FORMAT_ARGS(saved->location),
							LSN_FORMAT_ARGS(control->checkPoint));
	if (sb->control_state != control->state ||
		sb->min_recovery_point != control->minRecoveryPoint ||
		sb->min_recovery_point_timeline != control->minRecoveryPointTLI)
		return PCacheRefuse(PCACHE_COLD_CONTROL_STATE,
							_("the cluster was started and stopped without the pool"));
	if (sb->data_checksum_version != control->data_checksum_version)
		return PCacheRefuse(PCACHE_COLD_CHECKSUMS,
							_("data checksums were switched on or off"));

	/*
	 * Whatever else came to pg_control since, it was not this pool's server.
	 * This one would do alone; those before it word the reason.
	 */
	if (saved->control_crc != control->crc)
		return PCacheRefuse(PCACHE_COLD_CONTROL_CHANGED,
							_("the control file was changed since the pool was saved"));
	return warm;
}

/* Is this an ordinary start, which leads on from where the pool was saved? */
static PCacheVerdict
GateRecovery(const PCacheGateFacts *facts)
{
	if (facts->backup_label)
		return PCacheRefuse(PCACHE_COLD_BACKUP_LABEL,
							_("the cluster starts from a backup"));
	if (facts->recovery_target)
		return PCacheRefuse(PCACHE_COLD_RECOVERY_TARGET,
							_("point-in-time recovery was requested"));
	return warm;
}

/*
 * May a page have the hint that a transaction was aborted, which is not so on the timeline
 * that recovery is going to follow?  See pcache_replay.c.
 */
static PCacheVerdict
GatePrepared(const PCacheGateFacts *facts)
{
	if (facts->rolled_back_at < facts->control->checkPointCopy.redo)
		return warm;
	return PCacheRefuse(PCACHE_COLD_TIMELINE,
						_("a prepared transaction was rolled back, or a timeline began, at %X/%X, and recovery may follow one where that is not so"),
						LSN_FORMAT_ARGS(facts->rolled_back_at));
}

/*
 * Is it known which of the pool's pages can be read?  Bad blocks as such are
 * for the page gate, but a note that GateSuspect() has not seen may have been
 * on one.
 */
static PCacheVerdict
GateMedia(const PCacheGateFacts *facts)
{
	const PCacheMediaReport *media = facts->media;

	if (media->blocks == PCACHE_MEDIA_BAD && media->bad.truncated)
		return PCacheRefuse(PCACHE_COLD_MEDIA,
							_("the pool has too many bad blocks"));
	if (PCacheMediaRangeIsBad(media, PCACHE_SUSPECT_OFFSET,
							  sizeof(PCacheSuspect)))
		return PCacheRefuse(PCACHE_COLD_MEDIA,
							_("the pool has a bad block where it says whether a server process died of a fault"));
	if (media->blocks == PCACHE_MEDIA_UNKNOWN && facts->cold_on_media_unknown)
		return PCacheRefuse(PCACHE_COLD_MEDIA_UNKNOWN,
							_("bad blocks of the pool are not known: %s"),
							media->blocks_why);
	return warm;
}

/*
 * Can the pages of this pool be kept, each subject to its own gate?
 *
 * sb must be an intact superblock (PCacheSuperblockChoose).
 */
PCacheVerdict
PCachePoolGate(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	PCacheVerdict verdict;

	verdict = GateFormat(sb, facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = PCacheHoleGate(facts->head_is_lost);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GateIdentity(sb, facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GateSuspect(facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GateShutdown(sb, facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GateRecovery(facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GatePrepared(facts);
	if (verdict.refusal == PCACHE_WARM)
		verdict = GateMedia(facts);
	return verdict;
}

/* The same of a pool whose superblocks were read, be they intact or not. */
PCacheVerdict
PCacheSuperblocksGate(const PCacheSuperblocks *superblocks,
					  const PCacheGateFacts *facts)
{
	if (superblocks->source != PCACHE_SB_NONE)
		return PCachePoolGate(&superblocks->chosen, facts);
	return PCacheRefuse(PCACHE_COLD_SUPERBLOCK, "%s", superblocks->first_error.message);
}

/*
 * A pool that passed its gates has this many pages that were saved or, after a
 * crash, listed, and so many of them can be kept, as far as that is known.  If there
 * is none, there is nothing to be warm with.
 */
PCacheVerdict
PCacheEmptyGate(bool was_clean, uint64 found, uint64 kept)
{
	if (kept > 0)
		return warm;
	if (found > 0)
		return PCacheRefuse(PCACHE_COLD_PAGES, _("none of the %llu saved pages can be kept"),
							(unsigned long long) found);
	if (was_clean)
		return PCacheRefuse(PCACHE_COLD_NO_PAGES,
							_("the last server saved no page when it was shut down"));
	return PCacheRefuse(PCACHE_COLD_NO_PAGES,
						_("the last server left no page that can be kept"));
}

/* The name of a refusal, for views, counters and JSON. */
const char *
PCacheRefusalName(PCacheRefusal refusal)
{
	switch (refusal)
	{
		case PCACHE_WARM:
			return "warm";
		case PCACHE_COLD_NEW:
			return "new";
		case PCACHE_COLD_SUPERBLOCK:
			return "superblock";
		case PCACHE_COLD_VERSION:
			return "version";
		case PCACHE_COLD_GEOMETRY:
			return "geometry";
		case PCACHE_COLD_SYSTEM_IDENTIFIER:
			return "system identifier";
		case PCACHE_COLD_ATTACHING:
			return "attaching";
		case PCACHE_COLD_DIRTY:
			return "dirty";
		case PCACHE_COLD_CONTROL_STATE:
			return "control state";
		case PCACHE_COLD_TIMELINE:
			return "timeline";
		case PCACHE_COLD_CHECKPOINT:
			return "checkpoint";
		case PCACHE_COLD_CONTROL_CHANGED:
			return "control file";
		case PCACHE_COLD_CHECKSUMS:
			return "data checksums";
		case PCACHE_COLD_BACKUP_LABEL:
			return "backup";
		case PCACHE_COLD_RECOVERY_TARGET:
			return "recovery target";
		case PCACHE_COLD_POWER:
			return "power";
		case PCACHE_COLD_MEDIA:
			return "media";
		case PCACHE_COLD_MEDIA_UNKNOWN:
			return "media unknown";
		case PCACHE_COLD_WATERMARK:
			return "watermark";
		case PCACHE_COLD_SUSPECT:
			return "suspect memory";
		case PCACHE_COLD_NO_PAGES:
			return "no pages";
		case PCACHE_COLD_HOLE:
			return "hole";
		case PCACHE_COLD_PAGES:
			return "pages";
		case PCACHE_COLD_IMAGE:
			return "image";
		case PCACHE_UNAVAILABLE:
			return "unavailable";
		case PCACHE_OFF:
			return "off";
		case PCACHE_REFUSED:
			return "refused";
		case PCACHE_UNKNOWN_CONFIGURATION:
			return "configuration";
		case PCACHE_NUM_REFUSALS:
			break;
	}
	return "unknown";
}

/*
 * After the server was killed: since when must nobody have changed a file
 * that a page is kept of?  The server itself has, until it died, and it says again
 * and again that it lives.  If the clock was set back since, a file can have been
 * changed later although its time says otherwise, so all count as changed.  Of another
 * boot's clock it is only known whether it is behind; and once the pool is saved, nobody
 * knows any more that it was another boot.
 */
static int64
UnchangedSince(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	if (PCacheControlIsShutDown(facts->control))
		return 0;
	if (time(NULL) < facts->sighting.seen_at / PCACHE_NSEC ||
		(!PCacheHostRestarted(sb, facts) &&
		 PCacheClockOffset() < facts->sighting.clock_offset - PCACHE_SIGHTING_TOLERANCE))
		return 1;
	return facts->sighting.seen_at + PCACHE_SIGHTING_TOLERANCE;
}

/* Fill in what the page gate goes by, of a pool that is to be kept. */
void
PCacheSetPageFacts(PCachePageFacts *facts, const PCacheSuperblock *sb,
				   const PCacheGateFacts *gate_facts)
{
	facts->redo = gate_facts->control->checkPointCopy.redo;
	facts->all_written = gate_facts->control->state == DB_SHUTDOWNED;
	facts->unchanged_since = UnchangedSince(sb, gate_facts);
	facts->generation = PCacheLedgerGeneration(sb, gate_facts->control);
	facts->sums_only = PCacheSourceOf(sb, PCacheHostRestarted(sb, gate_facts)) == PCACHE_SOURCE_SUMS;
}

/*
 * Is the page what a start without the pool would read?
 *
 * An entry says: when I was written, at the end of a clean stop, or of what a killed
 * server left, this page was valid, clean, unlocked and not in I/O.  The gates have
 * found that pg_control is what that server left.
 *
 * If pg_control says "shut down", the shutdown checkpoint has written and synced
 * whatever was dirty before it, and what was made dirty after it has no entry.
 * So the file has this content, whatever the page's LSN is, and whether or not
 * this start is going to replay WAL.  (A page that was initialized and not made
 * dirty is one that the server could have had, if it had not stopped.)  Only
 * unlogged relations do not stay: a start that enters recovery resets them below
 * the buffer manager.
 *
 * If it says "shut down in recovery", the last restartpoint may be older than what
 * was written since, and that was not synced.  The file durably has what was
 * logged before the restartpoint's redo point, and replay repeats the rest.
 * A page with an LSN below redo was last changed before that.  It must have an
 * LSN, so it must be of a main fork: maps are changed without one.
 *
 * The same is true of any other state, in which the server was killed.  A page becomes
 * clean only by being written, and a logged change makes it dirty before its lock is
 * released.  So its file has all that was logged about the page.  That the checkpoint has
 * synced it as well does not matter here, because the host lives.
 *
 * What is changed without an LSN are hints, and these are true of the page whatever
 * becomes of the WAL: a hint about a transaction is set when its commit is durable, or
 * when the page's own LSN is beyond that commit, which then is before redo.  One that a
 * transaction was aborted is set at once, and true of each timeline but for two cases that
 * pcache_replay.c notes: without its WAL it is aborted as well.  Whether the files and WAL
 * were put back to where that was not yet so, the gates have asked.
 * An index's hint that an entry is dead may be set before the commit is durable, but
 * with the page locked until it is dirty.  A page that is locked or dirty has no entry,
 * and once it was written its file has the hint as well.  A page that was initialized,
 * but not made dirty, has no LSN.
 *
 * What changed the page later has a record behind redo.  If it is there, replay applies
 * it to this page as it would to the file's.  If not, the file does not have the change
 * either.  So a start that keeps the page is one that has read it already.
 */
static PCachePageVerdict
JudgeEntry(const PCacheDescriptor *desc, const PCachePageFacts *facts)
{
	if ((desc->flags & PCACHE_DESC_PERMANENT) == 0)
		return facts->drop_unlogged ? PCACHE_PAGE_UNLOGGED : PCACHE_PAGE_KEPT;
	if (facts->all_written)
		return PCACHE_PAGE_KEPT;
	if (desc->fork_number != MAIN_FORKNUM)
		return PCACHE_PAGE_FORK;
	if (desc->page_lsn <= GIST_BUILD_LSN || (desc->flags & PCACHE_DESC_LSN_BOUND) != 0)
		return PCACHE_PAGE_NO_LSN;
	if (desc->page_lsn >= facts->redo)
		return PCACHE_PAGE_YOUNGER;
	return PCACHE_PAGE_KEPT;
}

/*
 * Can the pool, and the file that the page is of, have it there?
 */
static PCachePageVerdict
GatePlace(const PCacheDescriptor *desc, uint32 slot, const PCachePageFacts *facts)
{
	uint64		block_start = facts->blocks_offset + (uint64) slot * BLCKSZ;
	RelFileLocator rlocator;
	int64		nblocks;

	if (block_start + BLCKSZ > facts->file_size ||
		PCacheRangeOverlaps(&facts->holes, block_start, BLCKSZ) ||
		PCacheMediaRangeIsBad(facts->media, block_start, BLCKSZ))
		return PCACHE_PAGE_BAD_BLOCK;

	rlocator.spcOid = desc->spc_oid;
	rlocator.dbOid = desc->db_oid;
	rlocator.relNumber = desc->rel_number;
	nblocks = PCacheRelSize(facts->sizes, rlocator, desc->fork_number);
	if (nblocks < 0)
		return nblocks == PCACHE_REL_CHANGED ? PCACHE_PAGE_FILE_CHANGED : PCACHE_PAGE_NO_FILE;
	if (desc->block_number >= nblocks)
		return PCACHE_PAGE_BEYOND_EOF;
	return PCACHE_PAGE_KEPT;
}

/*
 * Is the page what redo is going to make of it, though it had to be written, or was
 * changed after the redo point?  desc is by PCacheHarvestYoung(), of a server that was
 * killed.  page is where the page is, which is not touched if that is bad.
 *
 * facts->young_up_to is where WAL ends.  It is 0 unless a primary was killed on a host
 * that lives, and this start is going to replay all of that WAL.
 *
 * The page is one that this server could have written just before it was killed.  Whether it
 * was does not matter, because it is entered as dirty: a write that the kernel has lost since
 * would otherwise be repeated by redo, which skips the page.  Nor is the page torn, which a
 * written one may be.  So it is what a server without full_page_writes would find in the file:
 *
 * Nobody had locked it, so its last change was finished and logged, and its LSN is that of
 * the change.  The record is there.  Redo that comes to it finds the change done, and so it
 * finds those before; what comes later it repeats.
 *
 * Hints are true as soon as they are set.  One that a transaction has committed is set when
 * the commit is durable, or when the page's own LSN is beyond that commit, which is
 * there then.  A page with a special space may have others: an index's entry is marked
 * dead, and a sequence moves on, without regard to what WAL has.  Maps have no LSN.
 *
 * Images are what is different: redo restores one even if the page is newer.  That is right
 * as well, because all that follows is repeated then.  What need not be repeated, see
 * pcache_redo.c.
 */
bool
PCacheYoungGate(const PCacheDescriptor *desc, const PageHeaderData *page, uint32 slot,
				const PCachePageFacts *facts)
{
	XLogRecPtr	lsn;

	if ((desc->flags & PCACHE_DESC_PERMANENT) == 0 ||
		desc->fork_number != MAIN_FORKNUM ||
		!PCacheDescriptorHasSaneTag(desc) ||
		GatePlace(desc, slot, facts) != PCACHE_PAGE_KEPT)
		return false;
	lsn = PageXLogRecPtrGet(page->pd_lsn);
	return lsn > GIST_BUILD_LSN && lsn <= facts->young_up_to && page->pd_special == BLCKSZ;
}

/*
 * Is an entry about pg_control as it is?  One that was saved is, because
 * the gates have found so of the pool.
 */
static bool
IsAboutThisStart(const PCacheDescriptor *desc, const PCachePageFacts *facts)
{
	return desc->seq == facts->generation ||
		(desc->seq == PCACHE_DESC_SAVED_SEQ && !facts->sums_only);
}

/*
 * Can the page in this slot be kept?  Duplicates, and pages that there is no
 * slot for, are for the caller to see.
 */
PCachePageVerdict
PCachePageGate(const PCacheDescriptor *desc, uint32 slot,
			   const PCachePageFacts *facts)
{
	PCachePageVerdict verdict;

	/* whatever was read from there, and even if the page itself is fine */
	if (PCacheMediaRangeIsBad(facts->media,
							  PCACHE_DESCRIPTORS_OFFSET +
							  (uint64) slot * sizeof(PCacheDescriptor),
							  sizeof(PCacheDescriptor)))
		return PCACHE_PAGE_BAD_BLOCK;
	if (!PCacheSeqIsSealed(desc->seq))
		return desc->why_free == PCACHE_DESC_WAS_DIRTY ? PCACHE_PAGE_DIRTY :
			desc->why_free == PCACHE_DESC_WAS_IN_CHANGE ? PCACHE_PAGE_IN_CHANGE :
			desc->why_free == PCACHE_DESC_WAS_LOST ? PCACHE_PAGE_LOST :
			desc->why_free == PCACHE_DESC_WAS_FIRST ? PCACHE_PAGE_FIRST :
			PCACHE_PAGE_FREE;
	if (!IsAboutThisStart(desc, facts))
		return PCACHE_PAGE_GENERATION;
	if (!PCacheDescriptorIsIntact(desc, slot))
		return PCACHE_PAGE_CRC;
	if (!PCacheDescriptorHasSaneTag(desc))
		return PCACHE_PAGE_TAG;
	verdict = JudgeEntry(desc, facts);
	return verdict == PCACHE_PAGE_KEPT ? GatePlace(desc, slot, facts) : verdict;
}

/* The name of a page verdict, for counters and JSON. */
const char *
PCachePageVerdictName(PCachePageVerdict verdict)
{
	switch (verdict)
	{
		case PCACHE_PAGE_KEPT:
			return "kept";
		case PCACHE_PAGE_FREE:
			return "free";
		case PCACHE_PAGE_CRC:
			return "damaged descriptor";
		case PCACHE_PAGE_TAG:
			return "invalid tag";
		case PCACHE_PAGE_NO_FILE:
			return "no such relation";
		case PCACHE_PAGE_BEYOND_EOF:
			return "beyond end of file";
		case PCACHE_PAGE_UNLOGGED:
			return "unlogged";
		case PCACHE_PAGE_NO_LSN:
			return "no LSN";
		case PCACHE_PAGE_FORK:
			return "not a main fork";
		case PCACHE_PAGE_YOUNGER:
			return "younger than redo";
		case PCACHE_PAGE_DIRTY:
			return "dirty";
		case PCACHE_PAGE_IN_CHANGE:
			return "in change";
		case PCACHE_PAGE_FILE_CHANGED:
			return "file changed";
		case PCACHE_PAGE_GENERATION:
			return "another checkpoint";
		case PCACHE_PAGE_LOST:
			return "changed or lost";
		case PCACHE_PAGE_FIRST:
			return "first of an index";
		case PCACHE_PAGE_BAD_BLOCK:
			return "bad block";
		case PCACHE_PAGE_DUPLICATE:
			return "duplicate";
		case PCACHE_PAGE_NOT_FITTING:
			return "not fitting";
		case PCACHE_NUM_PAGE_VERDICTS:
			break;
	}
	return "unknown";
}
