/*-------------------------------------------------------------------------
 *
 * pcache_shutdown.c
 *	  Save the cache at a clean shutdown.
 *
 * Runs in the checkpointer, as the last thing it does: all processes that
 * could pin, change or evict a buffer are gone by then, walsenders and I/O
 * workers included.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_shutdown.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "access/xlog.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "portability/instr_time.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/sync.h"

/* 64 MB of pages: a system call for many, and a short one. */
#define SLOTS_PER_POPULATE	8192
#define PREFETCH_DISTANCE	16

/* As log_startup_progress_interval has it by default. */
#define SECONDS_PER_REPORT	10

/*
 * On a standby, write out and fsync what is dirty.
 *
 * A restartpoint at shutdown is skipped if the last one is still current,
 * and then leaves dirty buffers, or written ones that were not fsynced; they
 * would come back by redo.  To be kept, a page must equal what is durably on
 * disk, as on a primary after its shutdown checkpoint.
 *
 * Called after the restartpoint; redo has ended, and minRecoveryPoint is
 * beyond any LSN that we write.
 */
void
PersistentCacheFlushStandby(void)
{
	if (!PersistentCacheEnabled() || PersistentCacheStartGivenUp() ||
		PCacheCtl->superblock.state != PCACHE_STATE_DIRTY)
		return;

	CheckPointBuffers(CHECKPOINT_IS_SHUTDOWN | CHECKPOINT_IMMEDIATE);
	ProcessSyncRequests();
}

/*
 * Fill in a descriptor for a buffer with the given tag and state, but for
 * seq, epoch and CRC.  The caller makes sure that the three go together.
 */
void
PCacheDescribe(PCacheDescriptor *desc, uint32 slot, const BufferTag *tag,
			   uint32 state)
{
	PCacheDescriptorDescribe(desc, slot, BufTagGetRelFileLocator(tag),
							 BufTagGetForkNum(tag), tag->blockNum,
							 PageGetLSN(BufferGetPage(slot + 1)),
							 (state & BM_PERMANENT) != 0,
							 BUF_STATE_GET_USAGECOUNT(state));
	if (PCacheNamesBlocks(tag, BufferGetPage(slot + 1)))
		desc->flags |= PCACHE_DESC_NAMES_BLOCKS;
}

/*
 * Describe one buffer for the next start.  Returns false if it holds no page
 * that can be kept: a dirty one has a change (a hint bit, say, set after the
 * shutdown checkpoint) that is not on disk, and one that was read with errors
 * is not what the file has.
 */
static bool
DescribeBuffer(uint32 slot, PCacheDescriptor *desc)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = pg_atomic_read_u32(&buf->state);

	PCacheDescriptorSetFree(desc);
	if ((state & (BM_VALID | BM_TAG_VALID)) != (BM_VALID | BM_TAG_VALID) ||
		(state & (BM_DIRTY | BM_IO_IN_PROGRESS | BM_LOCKED)) != 0 ||
		BUF_STATE_GET_REFCOUNT(state) != 0 ||
		PCacheIsUntrusted(slot) ||
		PCacheBlockIsBad(slot))
		return false;

	PCacheDescribe(desc, slot, &buf->tag, state);
	PCacheDescriptorSetSealed(desc);
	return true;
}

/*
 * There are descriptors that cannot be stored, and no room to record that.  In
 * mode always a pool in use is believed, so it must not be in that state.
 */
static void
ForbidNextStart(void)
{
	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheCtl->superblock.state = PCACHE_STATE_ATTACHING;
	(void) PCacheStoreSuperblock(LOG);
	LWLockRelease(PersistentCacheLock);
	ereport(LOG,
			(errmsg("persistent cache: not saved: too many blocks of pool \"%s\" are bad",
					PCacheThePool.path)));
}

/*
 * Tell now if the next start will not be warm, or none, because somebody has
 * changed the configuration or the set-up.
 */
static void
LogNextStart(void)
{
	PCacheForecast forecast;

	PCacheForetellStart(PCACHE_NEXT_RESTART, &forecast);
	if (!forecast.starts)
		ereport(LOG,
				(errmsg("persistent cache: the server will not start again: %s",
						forecast.error.message),
				 forecast.error.hint[0] != '\0' ?
				 errhint_internal("%s", forecast.error.hint) : 0));
	else if (forecast.is_off)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be without it, because persistent_cache_mode is off")));
	else if (forecast.verdict.refusal != PCACHE_WARM)
		ereport(LOG,
				(errmsg("persistent cache: the next start will be cold: %s",
						forecast.verdict.detail)));
}

/*
 * Has the sealer flushed this page?  In mode always an even seq says so.  In
 * planned_restart it is left from the last start.
 */
static bool
IsFlushed(uint32 slot)
{
	return PersistentCacheDescriptors != NULL &&
		PCacheSeqIsSealed(PCacheGetDescriptor(slot)->seq);
}

/* Store the descriptor of a slot.  Returns whether its page is saved by that. */
static bool
SaveDescriptor(uint32 slot, const PCacheDescriptor *desc)
{
	PCacheDescriptorStore(&PCacheThePool.map, PCacheGetDescriptor(slot), desc);
	return PCacheSeqIsSealed(desc->seq);
}

/*
 * Tell the kernel, and the processor, which page headers are looked at next:
 * one in each page, so that fetching them is all that a save in memory costs.
 */
static void
FetchAhead(uint32 slot)
{
#ifdef MADV_POPULATE_READ
	/* memory errors are met one by one; this would meet them all at once */
	if (slot % SLOTS_PER_POPULATE == 0 && PCacheMedia.bad.n_ranges == 0)
		(void) madvise(BufferGetBlock(slot + 1),
					   (Size) Min(SLOTS_PER_POPULATE, NBuffers - slot) * BLCKSZ,
					   MADV_POPULATE_READ);
#endif
	if (slot + PREFETCH_DISTANCE < NBuffers)
		__builtin_prefetch(BufferGetBlock(slot + PREFETCH_DISTANCE + 1));
}

/* Tell from time to time how far a save has got that takes long. */
static void
ReportProgress(uint32 slot, instr_time start)
{
	static int	reported = 0;
	instr_time	now;
	int			seconds;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	seconds = INSTR_TIME_GET_MILLISEC(now) / 1000;
	if (seconds < reported + SECONDS_PER_REPORT)
		return;
	reported = seconds;
	ereport(LOG,
			(errmsg("persistent cache: saving, slot %u of %d, elapsed time: %d s",
					slot, NBuffers, seconds)));
}

/*
 * Store the descriptors of all slots, and flush pages that may not be durable.
 * The caller drains.  Returns false if a drain failed; *saved is how many pages
 * the next start may keep.
 *
 * One pass does for slots whose page need not be durable before its descriptor
 * is: that of a page which the sealer has flushed, and in planned_restart any,
 * since nothing is believed there before the superblock says so.  In mode always
 * a pool in use is believed.  The other slots are remembered, and their
 * descriptors stored once all pages are durable.
 */
static bool
SaveSlots(instr_time start, uint64 *saved)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheSlotSet later = {.nslots = NBuffers};
	PCacheDescriptor desc;

	*saved = 0;
	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		FetchAhead(slot);
		if (slot % SLOTS_PER_POPULATE == 0)
			ReportProgress(slot, start);
		if (PCacheDescriptorIsBad(slot))
			continue;
		if (DescribeBuffer(slot, &desc) && !IsFlushed(slot))
		{
			PCacheFlush(map, BufferGetBlock(slot + 1), BLCKSZ);
			if (PersistentCacheDescriptors != NULL)
			{
				PCacheSlotSetAdd(&later, slot);
				continue;
			}
		}
		if (SaveDescriptor(slot, &desc))
			(*saved)++;
	}
	if (later.words == NULL)
		return true;

	if (!PCacheDrain(map))
		return false;
	for (uint32 slot = 0; PCacheSlotSetNext(&later, &slot); slot++)
	{
		(void) DescribeBuffer(slot, &desc);
		if (SaveDescriptor(slot, &desc))
			(*saved)++;
	}
	PCacheSlotSetFree(&later);
	return true;
}

/*
 * Save all buffers durably, then say so in the superblock.  Whatever goes
 * wrong, the pool stays marked dirty, and the next start is cold.
 */
void
PersistentCacheShutdown(void)
{
	PCacheSuperblock *sb;
	ControlFileData *control;
	bool		crc_ok;
	uint64		saved;
	uint64		untrusted;
	instr_time	start;
	instr_time	elapsed;

	if (!PersistentCacheEnabled() || PersistentCacheStartGivenUp())
		return;

	sb = &PCacheCtl->superblock;
	if (sb->state != PCACHE_STATE_DIRTY)
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: the server did not reach a consistent state")));
		return;
	}
	control = get_controlfile(DataDir, &crc_ok);
	if (!crc_ok ||
		(control->state != DB_SHUTDOWNED &&
		 control->state != DB_SHUTDOWNED_IN_RECOVERY))
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: the cluster was not shut down cleanly")));
		return;
	}

	INSTR_TIME_SET_CURRENT(start);

	/* Blocks may have gone bad meanwhile: do not touch them. */
	PCacheQueryMedia();
	if (!PCacheRememberBadDescriptors())
	{
		ForbidNextStart();
		return;
	}
	if (!SaveSlots(start, &saved) || !PCacheDrain(&PCacheThePool.map))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("persistent cache: not saved: could not write pool \"%s\": %m",
						PCacheThePool.path)));
		return;
	}

	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheSuperblockSetClean(sb, control, saved);
	if (!PCacheStoreSuperblock(LOG))
	{
		LWLockRelease(PersistentCacheLock);
		return;
	}
	LWLockRelease(PersistentCacheLock);

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	ereport(LOG,
			(errmsg("persistent cache: saved " UINT64_FORMAT " pages in %d slots, %.3f ms",
					saved, NBuffers, INSTR_TIME_GET_MILLISEC(elapsed))));
	untrusted = PCacheCountUntrusted();
	if (untrusted > 0)
		ereport(LOG,
				(errmsg_plural("persistent cache: %llu page was not saved because it had been read with errors",
							   "persistent cache: %llu pages were not saved because they had been read with errors",
							   untrusted, (unsigned long long) untrusted)));
	if (PersistentCacheDescriptors != NULL)
		ereport(LOG,
				(errmsg("persistent cache: sealed " UINT64_FORMAT " pages while running, " UINT64_FORMAT " were changed meanwhile, " UINT64_FORMAT " MB flushed, " UINT64_FORMAT " marks, " UINT64_FORMAT " drains, " UINT64_FORMAT " left in the queue",
						pg_atomic_read_u64(&PCacheCtl->sealer.seals),
						pg_atomic_read_u64(&PCacheCtl->sealer.failed_seals),
						pg_atomic_read_u64(&PCacheCtl->sealer.flushed_bytes) >> 20,
						PCacheCountMarks(), PCacheCountDrains(),
						PCacheQueueLength())));
	LogNextStart();
}
