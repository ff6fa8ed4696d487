/*-------------------------------------------------------------------------
 *
 * pcache_foretell.c
 *	  How will the next start be: warm, cold, or not at all?
 *
 * Asks the gates and all other questions about what a start will find, and says what it
 * does with that.  A start makes this plan and carries it out.  It asks about the media and
 * the pool again only if the plan has changed the file.
 * pg_pcache asks while the server is down or runs, and the server itself for
 * pg_pcache_next_start().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_foretell.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"

/* The minor releases that the tests have run with, beside the one compiled for. */
static const int tried_minors[] = {150018, 150020, 160002, 170012, 180006};

/*
 * Does the library use its pool with a server of this version, which is a number
 * like PG_VERSION_NUM?  It uses what is no interface, so only with those that it
 * was tried with, unless the configuration allows others.
 */
bool
PCacheMinorWillDo(int version, bool allow_unknown, PCacheError *err)
{
	bool		tried = version == PG_VERSION_NUM;

	for (int i = 0; i < lengthof(tried_minors); i++)
		tried = tried || version == tried_minors[i];
	if (tried || allow_unknown)
		return true;
	PCacheSetError(err, _("pg_pcache was not tried with PostgreSQL %d.%d"),
				   version / 10000, version % 10000);
	return PCacheSetHint(err, _("Install a newer pg_pcache, or set \"%s\" to \"on\"."),
						 PCacheSetting("allow_unknown_minor"));
}

/* So many starts that keep pages may end before they are ready, in mode always. */
#define MAX_STARTS_CUT_OFF	2

/*
 * A start that had kept pages of the pool did not get as far as to accept
 * connections.  If these pages were the reason, the next one would end in the same way.
 * So this one goes without, and makes the pool empty for those after it, or is cold with
 * pcache.required.  In mode always a server may be killed while it recovers, so that has to
 * happen twice.
 */
bool
PCacheWasCutOff(const PCachePool *pool, const PCacheSuperblock *sb,
				uint64 system_identifier, PCacheError *err)
{
	if (sb->state == PCACHE_STATE_EMPTY ||
		sb->starts_from < (sb->mode == PERSISTENT_CACHE_ALWAYS ? MAX_STARTS_CUT_OFF : 1) ||
		sb->system_identifier != system_identifier)
		return false;
	PCacheSetError(err, _("the last start with persistent cache pool \"%s\" did not become ready"),
				   pool->path);
	PCacheSetHint(err, _("A start that finds this goes without the pool, unless \"%s\" is on, and the one after it uses the pool again, cold."),
				  PCacheSetting("required"));
	return true;
}

static bool
VersionWillDo(const PCacheNextConfig *config, PCacheError *err)
{
	return config->server_version == 0 ||
		PCacheMinorWillDo(config->server_version, config->allow_unknown_minor, err);
}

/*
 * The server reserves memory for buffers that it does not use, and the rest of the segment
 * with it.  While the server runs, it is counted already.
 */
static bool
ReservationWillDo(const PCacheNextConfig *config, PCacheFsKind kind, uint64 size,
				  uint64 allocated, PCacheError *err)
{
	uint64		buffers = config->nbuffers * BLCKSZ;

	return PCacheMayReserve(buffers + PCACHE_SEGMENT_BESIDE(buffers),
							kind == PCACHE_FS_TMPFS ? size - Min(size, allocated) : 0, err);
}

/*
 * There is no pool in the directory, which open_error says: is one created?
 */
PCachePlan
PCacheForetellMissing(const char *directory, const PCacheNextConfig *config,
					  const PCacheError *open_error)
{
	PCachePlan	plan = {{PCacheWithoutPool(config->required), *open_error}, PCACHE_PLAN_CREATE};
	PCacheError *err = &plan.verdict.why;

	plan.capacity = PCacheNewCapacity(config);
	if (VersionWillDo(config, err) &&
		PCacheMayCreateMissing(directory, plan.capacity, &plan.fs_kind, err) &&
		ReservationWillDo(config, plan.fs_kind, plan.capacity * BLCKSZ, 0, err))
		plan.verdict = PCacheRefuse(PCACHE_COLD_NEW,
									_("there is no pool yet, and the server will create it"));
	return plan;
}

/*
 * The pool is going to be lost with its memory, and created again in an empty
 * file system of the same size.
 */
static void
ForetellLost(const PCachePool *pool, const PCacheNextConfig *config,
			 PCacheVerdict *verdict)
{
	struct statvfs vfs;
	uint64		needed = PCacheNewCapacity(config);

	if (fstatvfs(pool->fd, &vfs) < 0)
	{
		PCacheSetError(&verdict->why, _("could not stat file system of \"%s\": %m"),
					   pool->path);
		return;
	}
	if (vfs.f_blocks > 0 &&
		PCacheComputeGeometry(needed, pool->page_size).pool_size >
		(uint64) vfs.f_blocks * vfs.f_frsize)
	{
		PCacheSetError(&verdict->why, _("the file system of persistent cache pool \"%s\" is too small for \"shared_buffers\" and \"%s\""),
					   pool->path, PCacheSetting("size"));
		PCacheSetHint(&verdict->why, _("Make the file system larger, or decrease these settings."));
		return;
	}
	*verdict = PCacheRefuse(PCACHE_COLD_NEW,
							_("the pool will be lost with its %s file system, and created again"),
							PCacheFsKindName(pool->fs_kind));
}

/*
 * Are enough blocks and slots without bad blocks?  sb is NULL if the pool will be
 * formatted, with nbuffers as its capacity.  The server writes all that is before the
 * blocks, and a store to a bad block would be SIGBUS.
 */
bool
PCacheMediaWillDo(const PCachePool *pool, const PCacheSuperblock *sb,
				  const PCacheMediaReport *media, uint64 nbuffers, PCacheError *err)
{
	/* what is stored to, also by formatting, before anybody asks again */
	uint64		head = sb != NULL ? sb->blocks_offset :
		PCacheComputeGeometry(nbuffers, pool->page_size).blocks_offset;
	uint64		retired = 0;
	uint64		nslots = 0;

	/*
	 * the superblock may be damaged, so the size of the file is a limit as
	 * well
	 */
	if (media->bad.n_ranges > 0 && sb != NULL)
		nslots = Min(Min(nbuffers, sb->capacity), pool->file_size / BLCKSZ);
	for (uint64 slot = 0; slot < nslots; slot++)
		retired += PCacheMediaSlotIsBad(media, sb, slot);
	if (!media->bad.truncated && retired <= nbuffers / 2 &&
		!PCacheMediaRangeIsBad(media, 0, head))
		return true;
	PCacheSetError(err, _("persistent cache pool \"%s\" cannot be used: too many of its blocks are bad"),
				   pool->path);
	return PCacheSetHint(err, _("Create a pool on other media with \"pg_pcache init --force\", or set \"%s\" to \"off\"."),
						 PCacheSetting("mode"));
}

/* Is there room for what the file lacks of the size that it is given? */
static bool
RoomWillDo(const PCachePool *pool, uint64 size, PCacheError *err)
{
	if (!PCachePoolIsIncomplete(pool, size) || PCachePoolHasRoom(pool, size))
		return true;
	PCachePoolSetAllocationError(pool, size, err);
	return false;
}

/* Ask the gates, after what is going to happen. */
static PCacheVerdict
JudgeAfter(const PCacheSuperblocks *superblocks, const PCacheGateFacts *facts,
		   PCacheNextEvent event)
{
	PCacheSuperblocks next = *superblocks;
	PCacheGateFacts next_facts = *facts;
	ControlFileData next_control = *facts->control;
	PCacheVerdict verdict;

	switch (event)
	{
		case PCACHE_NEXT_NOTHING:
		case PCACHE_NEXT_CRASH:
		case PCACHE_NEXT_CRASH_RESTART:
			break;
		case PCACHE_NEXT_HOST_CRASH:
			/* it will be another boot */
			next_facts.boot_id[0] ^= 0xFF;
			break;
		case PCACHE_NEXT_RESTART:
			/* a server that is not consistent yet saves nothing */
			if (next.chosen.state != PCACHE_STATE_DIRTY || next.chosen.starts_from != 0)
				break;
			next_control.state = DB_SHUTDOWNED;
			next_facts.control = &next_control;
			PCacheSuperblockSetClean(&next.chosen, &next_control, 1);
			break;
		case PCACHE_NEXT_RESTART_APART:
			/* this pool does not hear of the checkpoint of the shutdown */
			next_control.state = DB_SHUTDOWNED;
			next_control.checkPoint = InvalidXLogRecPtr;
			next_facts.control = &next_control;
			break;
	}
	verdict = PCacheSuperblocksGate(&next, &next_facts);
	if (event == PCACHE_NEXT_RESTART_APART && verdict.refusal == PCACHE_COLD_CHECKPOINT)
		return PCacheRefuse(PCACHE_COLD_CHECKPOINT,
							_("the pool is not the one that the server uses, so it will not have its last checkpoint"));
	return verdict;
}

/*
 * How will the start with an open pool be?  facts are those of now, and
 * superblocks are what is on media now.  If the server runs, it must be its own
 * pool, unless event is PCACHE_NEXT_NOTHING or PCACHE_NEXT_RESTART_APART.  The
 * page gates are not asked.
 */
PCachePlan
PCacheForetellPool(const PCachePool *pool, const PCacheSuperblocks *superblocks,
				   const PCacheGateFacts *facts, const PCacheNextConfig *config,
				   PCacheNextEvent event)
{
	const PCacheSuperblock *sb = &superblocks->chosen;
	PCachePlan	plan = {{PCacheWithoutPool(config->required)}, PCACHE_PLAN_USE};
	PCacheError *err = &plan.verdict.why;
	PCacheVerdict judged;
	PCacheError cut_off;
	struct stat st;

	/* it is open for reading only */
	if (!VersionWillDo(config, err) ||
		!PCacheFileIsWritable(pool->fd, pool->path, err))
		return plan;
	if (event == PCACHE_NEXT_HOST_CRASH && PCacheFsIsMemory(pool->fs_kind))
	{
		ForetellLost(pool, config, &plan.verdict);
		return plan;
	}
	judged = JudgeAfter(superblocks, facts, event);

	/*
	 * A clean shutdown marks the pool as not cut off.  In a crash restart the
	 * postmaster has not started anew.
	 */
	if (superblocks->source != PCACHE_SB_NONE &&
		event != PCACHE_NEXT_RESTART && event != PCACHE_NEXT_CRASH_RESTART &&
		PCacheWasCutOff(pool, sb, facts->control->system_identifier, &cut_off))
	{
		if (!config->required)
		{
			*err = cut_off;
			return plan;
		}
		if (judged.refusal == PCACHE_WARM)
			judged = PCacheRefuse(PCACHE_COLD_CUT_OFF, "%s", cut_off.message);
	}

	/* of a pool that is too damaged the server makes a new one */
	plan.capacity = sb->capacity;
	if (superblocks->source == PCACHE_SB_NONE ||
		sb->format_version != PCACHE_FORMAT_VERSION ||
		PCacheGeometryGate(sb, facts->file_size).refusal != PCACHE_WARM)
	{
		plan.action = PCACHE_PLAN_FORMAT;
		plan.capacity = PCacheReformatCapacity(pool, config->nbuffers, config->size);
	}
	else if (PCachePoolIsIncomplete(pool, sb->pool_size))
		plan.action = PCACHE_PLAN_MEND;
	if (!PCacheMediaWillDo(pool, plan.action == PCACHE_PLAN_FORMAT ? NULL : sb, facts->media,
						   plan.action == PCACHE_PLAN_FORMAT ? plan.capacity : config->nbuffers, err))
		return plan;
	if (fstat(pool->fd, &st) < 0)
	{
		PCacheSetError(err, _("could not stat file \"%s\": %m"), pool->path);
		return plan;
	}
	if (event == PCACHE_NEXT_NOTHING &&
		!ReservationWillDo(config, pool->fs_kind, config->nbuffers * BLCKSZ,
						   (uint64) st.st_blocks * 512, err))
		return plan;
	if (plan.action == PCACHE_PLAN_FORMAT ?
		!PCachePoolMayFormat(pool, err) ||
		!RoomWillDo(pool, PCacheComputeGeometry(plan.capacity, pool->page_size).pool_size, err) :
		!RoomWillDo(pool, sb->pool_size, err) ||
		(sb->capacity < config->nbuffers &&
		 !PCachePoolMayGrow(pool, sb->capacity, config->nbuffers, config->size, facts->media,
							&plan.capacity, err)))
		return plan;

	plan.verdict = judged;
	/* a start without the pool has taken its memory back */
	if (judged.refusal == PCACHE_COLD_GEOMETRY && sb->state == PCACHE_STATE_EMPTY)
		plan.verdict = PCacheRefuse(PCACHE_COLD_NEW, _("the pool is empty"));
	if (judged.refusal == PCACHE_WARM && sb->slots_used > 0 && plan.capacity > sb->capacity &&
		PCachePoolSlotsGivenUp(pool, sb, plan.capacity) >= sb->slots_used)
		plan.verdict = PCacheRefuse(PCACHE_COLD_PAGES,
									_("the pool has to become so much larger that its own bookkeeping takes the place of all pages"));
	if (superblocks->source == PCACHE_SB_NONE)
		PCachePoolSetDamagedHint(pool, err);
	return plan;
}
