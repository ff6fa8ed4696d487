/*-------------------------------------------------------------------------
 *
 * pcache_detach.c
 *	  A stop: the ledger is made of the buffer headers.
 *
 * At a clean stop this runs in the postmaster, as an on_shmem_exit() callback.  All its
 * children are gone by then, and shared memory is still there.  If the server was
 * killed the next start does the same with what is left.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_detach.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/file.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "utils/timestamp.h"

#define PREFETCH_DISTANCE	16

/*
 * Make the ledger of the first headers.  Returns how many pages are in it.  Nobody
 * believes it before the superblock says that the pool is clean.
 *
 * After the shutdown checkpoint of a primary no LSN is needed, so that no page is
 * touched: lsn_bound is that checkpoint.  It is invalid otherwise.  If power was lost, and the
 * CPU caches were saved, the first pages of indexes are left out.  media and holes, if not
 * NULL, tell which pages cannot be read, and where there is none.
 */
static uint64
Harvest(const PCachePool *pool, const PCacheSuperblock *sb, uint32 nslots,
		XLogRecPtr lsn_bound, const PCacheMediaReport *media,
		const PCacheRangeList *holes, bool power_lost)
{
	const BufferDescPadded *headers = PCacheHeadersOf(pool, sb);
	const char *blocks = pool->map.base + sb->blocks_offset;
	PCacheDescriptor *ledger = PCacheLedgerOf(pool);
	bool		touch = XLogRecPtrIsInvalid(lsn_bound);
	bool		flush = pool->map.kind == PCACHE_PERSIST_PMEM;
	uint64		saved = 0;

	for (uint32 slot = 0; slot < nslots; slot++)
	{
		PCacheDescriptor *entry = &ledger[slot];
		const char *page = blocks + (Size) slot * BLCKSZ;

		if (slot + PREFETCH_DISTANCE < nslots)
		{
			__builtin_prefetch(&headers[slot + PREFETCH_DISTANCE], 0);
			__builtin_prefetch(entry + PREFETCH_DISTANCE, 1);
			if (touch)
				__builtin_prefetch(page + PREFETCH_DISTANCE * BLCKSZ, 0);
		}
		if (!PCacheHarvestHeader(&sb->headers, (const char *) &headers[slot], slot, entry))
			continue;
		/* it must not be touched, which is SIGBUS, or makes zeros of a hole */
		if (media != NULL &&
			(PCacheMediaRangeIsBad(media, page - pool->map.base, BLCKSZ) ||
			 PCacheRangeOverlaps(holes, page - pool->map.base, BLCKSZ)))
		{
			PCacheDescriptorSetFree(entry);
			continue;
		}
		if (power_lost && PCacheIsFirstOfIndex(entry, (const PageHeaderData *) page))
		{
			PCacheSetFreeBecause(entry, PCACHE_DESC_WAS_FIRST);
			continue;
		}
		if (touch)
			PCacheHarvestLsn(entry, (const PageHeaderData *) page);
		else
		{
			entry->page_lsn = lsn_bound;
			entry->flags |= PCACHE_DESC_LSN_BOUND;
			PCacheDescriptorSetSealed(entry);
		}
		if (flush)
			PCacheFlush(&pool->map, page, BLCKSZ);
		saved++;
	}
	PCacheFlush(&pool->map, ledger, sizeof(PCacheDescriptor) * (Size) nslots);
	return saved;
}

/*
 * The pool's server was killed, and a start has found that what it left can be judged:
 * make the ledger of its headers, as a clean stop would have.  From here on the pool is
 * one that was saved, for pg_control as it is; so a start that is killed as well
 * leaves that to the next one, and headers can be overwritten.  The caller has mapped
 * the pool, and nobody uses it.  Returns false with err filled in.
 */
bool
PCacheSavePostMortem(PCachePool *pool, PCacheSuperblock *sb,
					 const ControlFileData *control, const PCacheMediaReport *media,
					 const PCacheRangeList *holes, PCacheError *err)
{
	uint64		saved = Harvest(pool, sb, sb->slots_used, InvalidXLogRecPtr,
								media, holes, PCacheStart.power_lost);

	PCacheSuperblockSetClean(sb, control, saved);
	if (PCacheDrain(&pool->map) && PCacheSuperblockStore(&pool->map, sb))
		return true;
	return PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"), pool->path);
}

/*
 * Why is nothing saved at this exit?  NULL if all is right.
 *
 * What decides is pg_control and no exit status: an immediate stop has status 0 as
 * well.
 */
static const char *
WhyNotSaved(ControlFileData *control)
{
	if (!PCacheReadControl(control))
		return _("\"pg_control\" cannot be read");
	if (!PCacheControlIsShutDown(control))
		return _("the cluster was not shut down cleanly");
	return NULL;
}

/* Save all pages, and say so in the superblock. */
static void
Save(const ControlFileData *control)
{
	PCacheSuperblock *sb = &PCacheLibrary->superblock;
	uint64		saved;
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	saved = Harvest(&PCacheThePool, sb, NBuffers,
					control->state == DB_SHUTDOWNED ? control->checkPoint : InvalidXLogRecPtr,
					NULL, NULL, false);
	PCacheSuperblockSetClean(sb, control, saved);
	sb->saved_at = PCacheReadClock(CLOCK_REALTIME) / PCACHE_NSEC;
	sb->clock_offset = PCacheClockOffset();
	if (!PCacheDrain(&PCacheThePool.map))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("persistent cache: not saved: could not write pool \"%s\": %m",
						PCacheThePool.path)));
		return;
	}
	if (!PCacheStoreOrTell())
		return;
	ereport(LOG,
			(errmsg("persistent cache: saved " UINT64_FORMAT " pages in %d slots, %.3f ms",
					saved, NBuffers, PCacheMicrosecondsSince(start) / 1000.0)));
}

/*
 * The postmaster exits, or is about to make shared memory again after a crash.
 *
 * A postmaster that ends before it has a child, as for a mistake in pg_hba.conf,
 * has changed nothing: what it found is saved again.  A start that was stopped before
 * it was ready is none that the next one has to be careful for.
 *
 * The lock is released here.  Otherwise a start that follows at once would find the
 * pool locked, until the kernel has unmapped it.
 */
void
PCacheSaveAtExit(int code, Datum arg)
{
	PCacheSuperblock *sb = &PCacheLibrary->superblock;
	ControlFileData control;
	const char *why;

	if (IsUnderPostmaster || !PCacheStart.in_use)
		return;
	PCacheUncoverReservation();
	if (code != 0 && PgStartTime != 0)
	{
		PCacheNoteCrash();
		PCacheTurnHugePagesOffAgain();
		return;
	}
	sb->starts_from = 0;
	why = WhyNotSaved(&control);
	if (why == NULL)
		Save(&control);
	else
	{
		ereport(LOG,
				(errmsg("persistent cache: not saved: %s", why),
				 pcache_mode == PERSISTENT_CACHE_ALWAYS ?
				 errdetail("The next start judges what is left.") : 0));
		(void) PCacheStoreOrTell();
	}
	(void) flock(PCacheThePool.fd, LOCK_UN);
}
