/*-------------------------------------------------------------------------
 *
 * pcache_attach.c
 *	  How the postmaster takes up its pool, or does without.
 *
 * The postmaster alone decides, in shmem_startup_hook: shared memory has just been
 * made, and nobody has used a buffer.  All facts are on disk.  Until shared buffers
 * are replaced, which is the last step and cannot fail, the server's own are
 * there, and whatever goes wrong has it run with these.
 *
 * Children inherit the mapping, and with the file descriptor the lock.  A crash
 * restart comes here once more, in the same process.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_attach.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/syslogger.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/pcache.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pg_shmem.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Has this postmaster tried to open the pool? */
static bool was_opened = false;

/* Does the superblock count this start already, which may be cut off? */
static bool is_counted = false;

/* What the start goes by, and what it is going to do. */
static PCacheLibraryFacts start_facts;
static PCachePlan start_plan;

/*
 * Is this process to run with a pool?  Neither single-user mode, nor a server that
 * pg_upgrade starts.  That they ran shows in pg_control.
 */
static bool
IsWanted(void)
{
	return pcache_mode != PERSISTENT_CACHE_OFF && IsPostmasterEnvironment &&
		!IsUnderPostmaster && !IsBinaryUpgrade;
}

/* Has this postmaster had children before? */
static bool
IsCrashRestart(void)
{
	return PgStartTime != 0;
}

/*
 * The server runs without its pool.  If that is ours, and in memory, it gives this back: what
 * is in it is worthless once such a server has run.  It stays there, empty, and the next start
 * allocates it again.  A start that was cut off is forgotten, so that the next one uses the pool
 * again.  The pool is not mapped afterwards.
 */
static void
GiveBack(PCachePool *pool)
{
	PCacheSuperblocks *superblocks = palloc(sizeof(*superblocks));
	PCacheSuperblock *sb = &superblocks->chosen;
	bool		in_memory = PCacheFsIsMemory(pool->fs_kind) &&
		pool->file_size > PCACHE_DESCRIPTORS_OFFSET;
	PCacheError err;

	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	PCacheReadSuperblocks(pool->fd, superblocks);
	if (superblocks->source != PCACHE_SB_NONE &&
		sb->format_version == PCACHE_FORMAT_VERSION &&
		sb->system_identifier == GetSystemIdentifier() &&
		(in_memory || sb->starts_from != 0) &&
		!PCachePoolDiscard(pool, superblocks, in_memory, &err))
		PCacheReportError(LOG, &err);
	pfree(superblocks);
}

/*
 * Could shared memory not be made because of what the pool has?  That is so where it is
 * reserved in full when it is made, and not allocated when it is used.
 */
static bool
SegmentNeedsPool(const PCachePool *pool)
{
	return (pool->fs_kind == PCACHE_FS_HUGETLBFS && huge_pages != HUGE_PAGES_OFF) ||
		PCacheReservationCounts();
}

/*
 * Open and lock the pool, if there is one, and plan what is done with it, by the questions
 * that "pg_pcache verify" asks.  Nothing is done yet, as the server may find that it cannot
 * start; but a pool that is not going to be used gives its memory back if that could be the
 * reason.  It is opened even if this server cannot use it.
 */
static void
OpenPool(void)
{
	PCacheError *why = &start_plan.verdict.why;
	PCacheError not_opened;
	bool		will_do;

	was_opened = true;
	start_plan.verdict.refusal = PCacheWithoutPool(pcache_required);
	will_do = PCacheServerIsKnown(why) && PCacheWorkerIsRegistered(why);
	if (PCacheOpenLibraryPool(&PCacheThePool, will_do ? why : &not_opened) && will_do)
		start_plan = PCacheForetellLibrary(PCACHE_NEXT_NOTHING, &start_facts);
	if (start_plan.verdict.refusal == PCACHE_UNAVAILABLE && PCacheThePool.fd >= 0 &&
		SegmentNeedsPool(&PCacheThePool))
		GiveBack(&PCacheThePool);
	PCacheStart.verdict = start_plan.verdict;
}

/*
 * The size of shared memory is about to be computed.  Huge pages would be taken for
 * what the server reserves for shared buffers, so there are none if these will
 * lie in the pool.
 */
void
PCacheOpenForServer(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(PCacheLibraryControl)));
	if (!IsWanted() || PCacheIsQuery())
		return;
	OpenPool();
	if (PCacheHasPool(&start_plan.verdict) && huge_pages != HUGE_PAGES_OFF)
		PCacheTurnHugePagesOff();
}

/*
 * Make the pool ours: from here on a crash before the server is ready will show.  If its
 * ledger is believed, and stays as it is, it is still that of the last stop, and has as many
 * slots: in those behind there may be entries of earlier lives.  Otherwise nobody is going to
 * believe what is in it.
 */
static bool
AdoptPool(PCachePool *pool, PCacheSuperblock *sb, const ControlFileData *control,
		  bool ledger_stays, const PCacheMediaReport *media, PCacheError *err)
{
	uint64		in_ledger = sb->slots_used;

	if (!PCacheSuperblockAdopt(sb, control, pool->fs_kind, pcache_mode, NBuffers))
		return PCacheSetError(err, _("could not generate an incarnation for the persistent cache"));
	if (ledger_stays)
	{
		sb->state = PCACHE_STATE_CLEAN;
		sb->slots_used = in_ledger;
	}
	else if (!pg_strong_random(&sb->ledger_id, sizeof(sb->ledger_id)))
		return PCacheSetError(err, _("could not generate random numbers"));
	sb->power_rule = PCACHE_POWER_COLD;
	if (!is_counted)
		sb->starts_from++;
	is_counted = false;
	PCacheMediaRememberDimms(media, sb);
	if (PCacheSuperblockStore(&pool->map, sb))
		return true;
	return PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"), pool->path);
}

/* What is the next start to go by if power is lost?  not_synced: files may not be. */
static PCachePowerRule
ChoosePowerRule(const PCachePool *pool, const PCacheGateFacts *facts, bool not_synced)
{
	PCachePowerFacts power = {
		.fs_kind = pool->fs_kind,
		.domain = facts->media->domain,
		.cold_on_media_unknown = facts->cold_on_media_unknown,
		.fsync = !not_synced,
		/* a standby has what its primary logs */
		.logs_hints = facts->control->data_checksum_version != 0 ||
		(wal_log_hints && (facts->control->wal_log_hints || !start_facts.signals.standby)),
		.logs_all = XLogIsNeeded(),
	};

	if (pcache_mode != PERSISTENT_CACHE_ALWAYS)
		return PCACHE_POWER_COLD;
	return PCachePowerRuleFor(&power, &PCacheStart.power_cold);
}

/*
 * Headers and mapping table are filled: from here on they tell what is in the pool, and
 * nothing may be left that is about pages that were not kept.  What cannot be stored is
 * believed by nobody, because pg_control is going to change.
 */
static void
BeginUse(PCachePool *pool, PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	/* only a start after a crash syncs what was written while fsync was off */
	bool		not_synced = !enableFsync ||
		(facts->not_synced && PCacheControlIsShutDown(facts->control));

	PCacheDescribeHeaders(&sb->headers);
	sb->state = PCACHE_STATE_DIRTY;
	sb->slots_used = NBuffers;
	sb->power_rule = ChoosePowerRule(pool, facts, not_synced);
	/* if nothing was kept, that cannot be why a start ends before it is ready */
	if (PCacheStart.pages[PCACHE_PAGE_KEPT] == 0)
		sb->starts_from = 0;
	(void) PCacheStoreOrTell();
	PCacheNoteStart(facts);
	PCacheStoreNote(PCACHE_READ_ERRORS_OFFSET, PCacheReadErrorsAreIgnored());
	PCacheStoreNote(PCACHE_ROLLED_BACK_OFFSET, 0);
	PCacheStoreNote(PCACHE_NOT_SYNCED_OFFSET, not_synced);
	if (facts->suspect.died != 0)
		(void) PCacheSuspectForget(&pool->map, facts->suspect.died);
}

/*
 * Take up the pool.  Returns false with err filled in if it cannot be used; then
 * nothing of the server's has changed, and its mapping table is empty.
 */
static bool
AttachPool(PCacheError *err)
{
	PCachePool *pool = &PCacheThePool;
	PCacheSuperblock *sb = &PCacheLibrary->superblock;
	PCacheGateFacts *gate_facts = &start_facts.gate;
	const PCacheMediaReport *media = &start_facts.media;
	const PCacheSignals *signals = &start_facts.signals;
	PCachePageFacts *facts = palloc0(sizeof(*facts));
	bool		headers_are_there;	/* those of the server that was killed */
	uint64		slots_used;
	char	   *own_headers = (char *) BufferDescriptors;
	char	   *own_blocks = BufferBlocks;
	instr_time	start;
	struct stat st;

	is_counted = false;
	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if (IsCrashRestart())
	{
		/* it was opened long ago */
		if (fstat(pool->fd, &st) == 0)
			pool->file_size = st.st_size;
		start_plan = PCacheForetellLibrary(PCACHE_NEXT_CRASH_RESTART, &start_facts);
		if (!PCacheHasPool(&start_plan.verdict))
		{
			*err = start_plan.verdict.why;
			return false;
		}
	}
	PCacheStart.verdict = start_plan.verdict;
	*sb = start_facts.superblocks.chosen;
	if (!PCachePreparePool(pool, sb, &start_plan, err))
		return false;
	PCacheStart.media_checked = GetCurrentTimestamp();
	if (start_plan.action != PCACHE_PLAN_USE)
	{
		/* the file is not as it was */
		PCacheForgetLibraryFacts(&start_facts);
		if (!PCacheGatherLibraryFacts(pool, &start_facts, err) ||
			!PCacheMediaWillDo(pool, sb, media, NBuffers, err) ||
			(sb->capacity < NBuffers &&
			 !PCachePoolMayGrow(pool, sb->capacity, NBuffers, pcache_size, media,
								&start_plan.capacity, err)))
			return false;
		if (PCacheStart.verdict.refusal == PCACHE_WARM)
			PCacheStart.verdict = PCachePoolGate(sb, gate_facts);
	}
	/* before a page is looked at, which fills the hole that it is in */
	PCachePoolListHoles(pool, &facts->holes);

	/*
	 * the pool is about to get the id of this boot, and a start after this
	 * one goes by that
	 */
	if (PCacheStart.verdict.refusal == PCACHE_WARM)
		sb->clock_offset = PCacheLeastClockOffset(sb, gate_facts);
	if (PCacheStart.verdict.refusal == PCACHE_WARM && sb->state == PCACHE_STATE_DIRTY)
	{
		INSTR_TIME_SET_CURRENT(start);
		PCacheStart.post_mortem = true;
		PCacheStart.power_lost = PCacheHostRestarted(sb, gate_facts);
		/* its server wrote to no file after its last sighting */
		sb->saved_at = gate_facts->sighting.seen_at / PCACHE_NSEC;
		if (PCacheSourceOf(sb, PCacheStart.power_lost) == PCACHE_SOURCE_SUMS)
		{
			PCacheStart.checked_generation = PCacheLedgerGeneration(sb, gate_facts->control);
			/* it takes long, and somebody may lose patience */
			sb->starts_from++;
			is_counted = true;
			if (!PCacheStoreOrTell() || !PCacheSaveWhatFits(pool, sb, gate_facts->control, err))
				return false;
		}
		else if (!PCacheSavePostMortem(pool, sb, gate_facts->control, media, &facts->holes, err))
			return false;
		PCacheStart.judge_usec = PCacheMicrosecondsSince(start);
	}
	headers_are_there = PCacheStart.post_mortem && PCacheStart.checked_generation == 0 &&
		sb->capacity >= NBuffers && sb->slots_used <= NBuffers;
	if (sb->capacity < start_plan.capacity &&
		!PCacheMakeLarger(pool, sb, start_plan.capacity, &facts->holes, err))
		return false;
	if (PCacheStart.verdict.refusal == PCACHE_WARM)
	{
		PCacheStart.found = sb->saved_pages;
		PCacheSetPageFacts(facts, sb, gate_facts);
		facts->drop_unlogged = gate_facts->control->state != DB_SHUTDOWNED ||
			signals->standby || signals->recovery || signals->backup_label;
		/* as long as the postmaster lives nobody else changes files */
		facts->sizes = PCacheRelSizesCreate(IsCrashRestart() ? 0 : facts->unchanged_since,
											facts->only_written);
		facts->media = media;
		facts->blocks_offset = sb->blocks_offset;
		facts->file_size = pool->file_size;
		if (headers_are_there)
			PCacheAllowYoung(&start_facts, facts);
	}
	slots_used = sb->slots_used;
	if (!AdoptPool(pool, sb, gate_facts->control,
				   PCacheStart.verdict.refusal == PCACHE_WARM && slots_used <= NBuffers,
				   media, err))
		return false;
	if (PCacheStart.verdict.refusal != PCACHE_WARM)
		PCachePoolShedBlocks(pool, sb->blocks_offset);

	INSTR_TIME_SET_CURRENT(start);
	if (PCacheStart.verdict.refusal != PCACHE_WARM)
		PCacheInitializeHeaders(pool, sb, 0, NBuffers);
	else
	{
		PCacheFillTable(pool, sb, facts, slots_used, PCacheStart.pages);
		PCacheStart.verdict = PCacheEmptyGate(!PCacheStart.post_mortem, PCacheStart.found,
											  PCacheStart.pages[PCACHE_PAGE_KEPT]);
	}
	free(facts->holes.ranges);
	PCacheStart.retired = PCacheRetireSlots(pool, sb, media);
	PCacheUseHeaders(pool, sb);
	PCacheStart.in_use = true;
	BeginUse(pool, sb, gate_facts);
	PCacheStart.rebuild_usec = PCacheMicrosecondsSince(start);
	/* it has looked at each page of a killed server */
	if (PCacheStart.post_mortem)
		PCachePoolLetGo(pool, 0, pool->map.length);
	PCacheStart.huge_bytes = PCacheArrangeSegment(pool, sb, own_headers, own_blocks);
	return true;
}

/*
 * Likewise, but whatever is thrown is an error like others: it would end the
 * postmaster.
 */
static void
AttachOrGiveUp(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(old_context, "pg_pcache start",
												  ALLOCSET_DEFAULT_SIZES);
	PCacheError err = {{0}};

	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		if (!AttachPool(&err))
			PCacheStart.verdict.why = err;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		PCacheSetError(&PCacheStart.verdict.why, "%s", error->message);
	}
	PG_END_TRY();
	/* a crash restart has others; what is known of the media is for the views */
	PCacheStart.media = start_facts.media;
	memset(&start_facts, 0, sizeof(start_facts));
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
}

/*
 * The pool cannot be used: the server runs with its own buffers, unless
 * pcache.required is on and it has not run yet.
 */
static void
RunWithout(void)
{
	const PCacheError *err = &PCacheStart.verdict.why;

	PCacheStart.verdict.refusal = PCACHE_UNAVAILABLE;
	if (pcache_required && !IsCrashRestart())
		PCacheReportError(FATAL, err);
	if (PCacheThePool.fd >= 0)
	{
		GiveBack(&PCacheThePool);
		PCachePoolClose(&PCacheThePool);
	}
	PCacheLogWithout();
}

/*
 * Shared memory has been made.  For children of a postmaster there is nothing to do.
 */
void
PCacheStartServer(void)
{
	PCacheVerdict verdict;
	instr_time	start;
	bool		found;

	PCacheLibrary = ShmemInitStruct("pg_pcache", sizeof(PCacheLibraryControl), &found);
	if (found || IsUnderPostmaster)
		return;
	PCacheRestoreHugePages();
	PCacheForgetDeaths();
	memset(PCacheLibrary, 0, sizeof(*PCacheLibrary));
	if (!IsWanted())
		return;
	PCacheLibrary->tell_again = Logging_collector && !IsCrashRestart();

	/* a library after this one may not have called our shmem_request_hook */
	if (!was_opened)
		OpenPool();
	/* as planned, or what the start before this crash restart has come to */
	verdict = PCacheStart.verdict;
	PCacheMediaReportFree(&PCacheStart.media);
	memset(&PCacheStart, 0, sizeof(PCacheStart));
	PCacheStart.verdict = verdict;
	INSTR_TIME_SET_CURRENT(start);
	if (PCacheHasPool(&verdict) &&
		PCacheHeadersAreKnown(&PCacheStart.verdict.why))
		AttachOrGiveUp();
	if (!PCacheStart.in_use)
	{
		RunWithout();
		return;
	}
	on_shmem_exit(PCacheSaveAtExit, (Datum) 0);
	PCacheStart.started_at = GetCurrentTimestamp();
	PCacheStart.startup_usec = PCacheMicrosecondsSince(start);
	PCacheLogStart();
}
