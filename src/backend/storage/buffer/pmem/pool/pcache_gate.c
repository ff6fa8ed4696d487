/*-------------------------------------------------------------------------
 *
 * pcache_gate.c
 *	  The gates that a pool must pass; those of each page are in pcache_judge.c.
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
#include "storage/pcache_compat.h"

#include "storage/pcache_gate.h"

static const PCacheVerdict warm = {PCACHE_WARM};

/*
 * Has the pool this server's layout, and the size that goes with it?  A file
 * that was cut off behind the descriptors will do: the page gate drops what is
 * missing.  It will be given the size that its superblock says, so that is
 * bounded.
 *
 * Beside being a gate, this tells a start whether it can use the pool at
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
static PCacheVerdict
GateHole(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	if (facts->head_is_lost)
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
GateSuspect(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
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
		verdict = PCachePowerGate(sb, facts);
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
GateRecovery(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
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
GatePrepared(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
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
GateMedia(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
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
	static PCacheVerdict (*const gates[]) (const PCacheSuperblock *, const PCacheGateFacts *) = {
		GateFormat, GateHole, GateIdentity, GateSuspect, GateShutdown, GateRecovery, GatePrepared,
		GateMedia
	};
	PCacheVerdict verdict = warm;

	for (int i = 0; i < lengthof(gates) && verdict.refusal == PCACHE_WARM; i++)
		verdict = gates[i] (sb, facts);
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
