/*-------------------------------------------------------------------------
 *
 * pcache_startup.c
 *	  Decide what of the pool can be kept, and put it back into use.
 *
 * Runs in the startup process, after InitWalRecovery() and before redo: the
 * kind of recovery is known, and nobody has used a buffer yet.  Page contents
 * are not touched, unless shared buffers got smaller (pcache_move.c).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_startup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "common/controldata_utils.h"
#include "common/file_perm.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "storage/pcache_start.h"
#include "storage/pcache_suspect.h"
#include "storage/proc.h"
#include "utils/injection_point.h"
#include "utils/memutils.h"

/* No server begins as many checkpoints before it is started again. */
#define MAX_EPOCHS	(UINT64CONST(1) << 32)

/*
 * A doubt about pages costs pages, but a server needs buffers: they cannot be in
 * this pool.
 */
static void
GoWithoutMedia(void)
{
	PCacheError err;

	PCacheSetUnusableMedia(&PCacheThePool, &err);
	PCacheStartAgain(PCACHE_AGAIN_WITHOUT, &err);
}

/*
 * Is there a place left for what a server writes whatever it caches?  Asked
 * before the first store, which would end in SIGBUS.
 */
static void
CheckMedia(void)
{
	if (!PCacheMediaIsUsable(&PCacheMedia,
							 persistent_cache_mode == PERSISTENT_CACHE_ALWAYS))
		GoWithoutMedia();
}

/*
 * Never use the slots that touch a bad block.
 *
 * A pin that nobody releases keeps the clock sweep away from a buffer, and
 * StrategyRebuildFreeList() leaves it out.
 */
static void
RetireBadSlots(void)
{
	if (PCacheMedia.bad.n_ranges == 0)
		return;

	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state;

		if (!PCacheBlockIsBad(slot) && !PCacheDescriptorIsBad(slot))
			continue;
		state = LockBufHdr(buf);
		buf->freeNext = FREENEXT_NOT_IN_LIST;
		UnlockBufHdr(buf, state + BUF_REFCOUNT_ONE);
		PCacheCtl->start.retired++;
	}
	if (PCacheCtl->start.retired > NBuffers / 2)
		GoWithoutMedia();
}

/*
 * Gather what the pool gates look at, and ask them.
 */
static PCacheVerdict
JudgePool(const ControlFileData *control, bool have_backup_label,
		  PCacheGateFacts *facts)
{
	static PCacheRecord record;
	PCacheSignals signals;

	memset(facts, 0, sizeof(*facts));
	/* what follows a start needs it, whatever the pool is */
	facts->backup_label = have_backup_label;
	if (PCacheCtl->start.opened.refusal != PCACHE_WARM)
		return PCacheCtl->start.opened;

	PCacheGatherServerFacts(&PCacheThePool, &record, facts);
	facts->control = control;

	PCacheReadSignals(DataDir, &signals);
	/* as InitWalRecovery() found them */
	signals.backup_label = have_backup_label;
	signals.recovery = ArchiveRecoveryRequested;
	PCacheSetRecovery(facts, &signals, recoveryTarget != RECOVERY_TARGET_UNSET,
					  recoveryTargetTLI);

	return PCachePoolGate(&PCacheCtl->superblock, facts);
}

/*
 * Make the pool ours: from here on it is in use by a new incarnation of the
 * server, and a crash before consistency is reached will show.
 *
 * Pool first, then PGDATA: a crash between the two leaves incarnations that
 * do not match.
 *
 * control is pg_control as it is on disk.  record is PGDATA's, if the pool is to
 * be kept.  completed_epoch is that of pages which are kept, see
 * PCachePageIsDirty().
 */
static void
AdoptPool(const ControlFileData *control, const PCacheRecord *record,
		  uint64 completed_epoch)
{
	PCacheSuperblock *sb = &PCacheCtl->superblock;
	uint64		epoch = sb->first_epoch + MAX_EPOCHS;
	PCacheRecord next_record;
	PCacheError err = {{0}};

	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
		PCacheRememberPool(sb, record);
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	if (!PCacheSuperblockAdopt(sb, control, PCacheThePool.fs_kind,
							   persistent_cache_mode, NBuffers))
	{
		PCacheSetError(&err, _("could not generate an incarnation for the persistent cache"));
		PCacheStartAgain(PCACHE_AGAIN_WITHOUT, &err);
	}
	PCacheMediaRememberDimms(&PCacheMedia, sb);

	/* beyond any epoch in a descriptor, even if checkpoints have failed */
	sb->first_epoch = epoch;
	pg_atomic_write_u64(&PCacheCtl->epoch, epoch);
	INJECTION_POINT("persistent-cache-adopting", NULL);
	if (!PCacheStoreSuperblock(LOG))
		PCacheStartAgainUnwritten();
	LWLockRelease(PersistentCacheLock);

	/* not before: a pool that was just refused must not agree with pg_control */
	PCacheBeginControlSeen(control, Min(completed_epoch, epoch));

	/* it names no image any more: those that there are would be stale */
	memset(&next_record, 0, sizeof(next_record));
	strlcpy(next_record.directory, PCachePoolDirectory, sizeof(next_record.directory));
	next_record.capacity = sb->capacity;
	memcpy(next_record.pool_uuid, sb->pool_uuid, PCACHE_UUID_LEN);
	next_record.fs_kind = PCacheThePool.fs_kind;
	next_record.incarnation = sb->incarnation;
	if (!PCacheRecordWrite(DataDir, pg_file_create_mode, &next_record, &err))
		PCacheStartAgain(PCACHE_AGAIN_WITHOUT, &err);
}

/*
 * How many pages were there to be kept?  After a crash nobody has counted what
 * was saved; then it is what was found sealed.
 */
static uint64
CountFound(bool after_crash)
{
	uint64		sealed = 0;

	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i != PCACHE_PAGE_FREE)
			sealed += PCacheCtl->start.pages[i];
	}
	return after_crash ? sealed : PCacheCtl->superblock.saved_pages;
}

/* One line that tells how the server starts, and why. */
static void
LogOutcome(uint64 found)
{
	const uint64 *pages = PCacheCtl->start.pages;
	StringInfoData dropped;

	if (PCacheCtl->start.verdict.refusal != PCACHE_WARM)
	{
		ereport(LOG,
				(errmsg("persistent cache: starting cold: %s",
						PCacheCtl->start.verdict.why.message)));
		return;
	}

	initStringInfo(&dropped);
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i == PCACHE_PAGE_FREE)
			continue;
		if (i == PCACHE_PAGE_KEPT || pages[i] == 0)
			continue;
		appendStringInfo(&dropped, "%s%s " UINT64_FORMAT,
						 dropped.len > 0 ? ", " : "",
						 PCachePageVerdictName(i), pages[i]);
	}
	ereport(LOG,
			(errmsg("persistent cache: kept " UINT64_FORMAT " of " UINT64_FORMAT " saved pages in %d slots, rebuilt in %.3f ms (%.0f ns per page), %.3f ms in all, helpers: %d",
					pages[PCACHE_PAGE_KEPT],
					found,
					NBuffers,
					PCacheCtl->start.rebuild_usec / 1000.0,
					pages[PCACHE_PAGE_KEPT] == 0 ? 0.0 :
					PCacheCtl->start.rebuild_usec * 1000.0 / pages[PCACHE_PAGE_KEPT],
					PCacheCtl->start.startup_usec / 1000.0,
					PCacheRebuildCtl->helpers),
			 dropped.len > 0 ? errdetail("Dropped: %s.", dropped.data) : 0));
	if (PCacheCtl->start.kept_dirty > 0)
		ereport(LOG,
				(errmsg_plural("persistent cache: %llu of the kept pages is dirty",
							   "persistent cache: %llu of the kept pages are dirty",
							   PCacheCtl->start.kept_dirty,
							   (unsigned long long) PCacheCtl->start.kept_dirty)));
	pfree(dropped.data);
}

/*
 * The pages that the note of a fault is about are gone: no descriptor is
 * trusted any more, durably.  In planned_restart that is so since the pool
 * was adopted, and in mode always since PCacheUnsealOthers().
 */
static void
ForgetSuspect(const PCacheSuspect *suspect)
{
	if (suspect->died == 0 || PCacheCtl->health.suspect_bad)
		return;
	if (!PCacheSuspectForget(&PCacheThePool.map, suspect->died))
		PCacheStartAgainUnwritten();
}

/*
 * Everything about slots is decided: have marks and seals begin.
 */
static void
StartProtocol(const ControlFileData *control, const PCacheGateFacts *facts,
			  bool after_crash)
{
	PCacheWatermark seed;

	if (!PCacheRememberBadDescriptors())
		GoWithoutMedia();
	PCacheUnsealOthers();

	/*
	 * The watermark of another life must not be mistaken for ours, unless it
	 * was just found to be right.  With a backup it's not known which WAL is
	 * there and durable.
	 */
	if (after_crash && PCacheCtl->start.verdict.refusal == PCACHE_WARM)
		PCacheResetWatermark(&facts->watermark);
	else if (!facts->backup_label && PCacheSeedWatermark(control, &seed))
		PCacheResetWatermark(&seed);
	else
		PCacheResetWatermark(NULL);

	pg_atomic_write_membarrier_u64(&PCacheCtl->attached, 1);
}

/*
 * Whichever way this start has taken, each buffer header is initialized, and no
 * buffer that is in use counts as one of the free list.
 */
static void
AssertHeadersAreRight(void)
{
#ifdef USE_ASSERT_CHECKING
	for (int i = 0; i < NBuffers; i++)
	{
		BufferDesc *buf = GetBufferDescriptor(i);
		uint32		state = pg_atomic_read_u32(&buf->state);

		Assert(buf->buf_id == i);
		Assert(buf->wait_backend_pgprocno == INVALID_PROC_NUMBER);
		Assert(((state & BM_TAG_VALID) == 0 && BUF_STATE_GET_REFCOUNT(state) == 0) ||
			   buf->freeNext == FREENEXT_NOT_IN_LIST);
	}
#endif
}

static uint64
ElapsedMicroseconds(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MICROSEC(now);
}

/*
 * Start with what the pool holds, or cold.
 *
 * Called once by the startup process, before redo and before pg_control is
 * changed by this start.  Does not return if the server is to be stopped
 * (PCacheStartInterrupts).
 */
void
PersistentCacheStartup(bool have_backup_label)
{
	PCacheGateFacts gate_facts;
	PCachePageFacts facts;
	XLogRecPtr	max_lsn = InvalidXLogRecPtr;
	ControlFileData *control;
	bool		crc_ok;
	instr_time	start;
	instr_time	rebuild_start;
	uint64		slots_used;
	uint64		found;
	bool		after_crash;

	PCachePromoteAgain();
	if (!PersistentCacheEnabled())
	{
		INJECTION_POINT("persistent-cache-run-without", NULL);
		if (PersistentCacheConfigured())
			InitBufferHeaders(0, NBuffers);
		AssertHeadersAreRight();
		PCacheNoteRunWithout();
		return;
	}

	INSTR_TIME_SET_CURRENT(start);

	/* as it is on disk: InitWalRecovery() has changed the copy in memory */
	control = get_controlfile(DataDir, &crc_ok);
	if (!crc_ok)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("incorrect checksum in control file")));

	PCacheQueryMedia();
	CheckMedia();
	PCacheCtl->start.verdict = JudgePool(control, have_backup_label, &gate_facts);
	slots_used = PCacheCtl->superblock.slots_used;
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
		PCacheRebuildLaunchHelpers(slots_used);
	after_crash = PCacheCtl->superblock.state != PCACHE_STATE_CLEAN;

	memset(&facts, 0, sizeof(facts));
	facts.completed_epoch = PG_UINT64_MAX;
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
	{
		facts.lsn_limit = PCacheLsnLimit(&PCacheCtl->superblock, &gate_facts);
		facts.host_restarted = PCacheHostRestarted(&PCacheCtl->superblock, &gate_facts);
		PCacheSetCompleted(&facts, &PCacheCtl->superblock, &gate_facts);
		PCacheSetCopied(&facts, &gate_facts);
	}
	AdoptPool(control, gate_facts.record, facts.completed_epoch);
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
	{
		facts.drop_unlogged = InRecovery;
		facts.sizes = PCacheRelSizesCreate(0);
		facts.media = &PCacheMedia;
		facts.blocks_offset = PCacheCtl->superblock.blocks_offset;
		facts.file_size = PCacheThePool.file_size;
		PCacheCtl->start.pages[PCACHE_PAGE_BAD_BLOCK] = PCacheCtl->start.cut_off;
		PCacheMovePages(&facts, slots_used);
	}

	INSTR_TIME_SET_CURRENT(rebuild_start);
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
	{
		max_lsn = PCacheRebuildMapping(&facts, slots_used);
		PCacheRelSizesFree(facts.sizes);
	}
	else
		InitBufferHeaders(0, NBuffers);
	RetireBadSlots();
	AssertHeadersAreRight();
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM || PCacheCtl->start.retired > 0)
		StrategyRebuildFreeList(NBuffers - PCacheCtl->start.pages[PCACHE_PAGE_KEPT] - PCacheCtl->start.retired);
	if (PersistentCacheDescriptors != NULL)
		StartProtocol(control, &gate_facts, after_crash);
	if (PCacheCtl->start.verdict.refusal != PCACHE_WARM)
	{
		ForgetSuspect(&gate_facts.suspect);
		PCacheForgetCopies(PG_UINT64_MAX);
	}
	if (PCacheCtl->start.pages[PCACHE_PAGE_KEPT] > 0)
		PCacheSetRecoveryLimits(control, facts.lsn_limit, max_lsn,
								gate_facts.recovery_timeline);
	else
		PCacheNoRecoveryLimits();
	PCacheCtl->start.rebuild_usec = ElapsedMicroseconds(rebuild_start);
	pfree(control);

	PCacheCtl->start.startup_usec = ElapsedMicroseconds(start);
	found = CountFound(after_crash);
	if (PCacheCtl->start.verdict.refusal == PCACHE_WARM)
		PCacheCtl->start.verdict =
			PCacheEmptyGate(!after_crash, found, Max(found, PCacheCtl->start.pages[PCACHE_PAGE_KEPT]));
	PCacheCtl->start.started_at = GetCurrentTimestamp();
	LogOutcome(found);

	INJECTION_POINT("persistent-cache-attaching", NULL);
}
