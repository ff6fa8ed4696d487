/*-------------------------------------------------------------------------
 *
 * pcache_detach.c
 *	  A clean stop: the ledger is made of the buffer headers.
 *
 * Runs in the postmaster, as an on_shmem_exit() callback.  All its children are
 * gone by then, and shared memory is still there.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_detach.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/pcache.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_file.h"
#include "storage/pcache_library.h"
#include "utils/timestamp.h"

#define PREFETCH_DISTANCE	16

/*
 * Can this page be kept?  A dirty one has a change that its file does not have,
 * as a hint bit that was set after the shutdown checkpoint.  Whoever had an I/O
 * that did not end, or a lock, is gone.
 */
static inline bool
CanBeKept(uint32 state)
{
	return (state & (BM_VALID | BM_TAG_VALID)) == (BM_VALID | BM_TAG_VALID) &&
		(state & (BM_DIRTY | BM_IO_IN_PROGRESS | BM_IO_ERROR | BM_LOCKED)) == 0 &&
		BUF_STATE_GET_REFCOUNT(state) == 0;
}

/*
 * Make the ledger of the headers.  Returns how many pages are in it.  Nobody
 * believes it before the superblock says that the pool is clean.
 *
 * After the shutdown checkpoint of a primary no LSN is needed, so that no page is
 * touched: lsn_bound is that checkpoint.  It is invalid on a standby.
 */
static uint64
Harvest(const PCachePool *pool, const PCacheSuperblock *sb, XLogRecPtr lsn_bound)
{
	const BufferDescPadded *headers = PCacheHeadersOf(pool, sb);
	const char *blocks = pool->map.base + sb->blocks_offset;
	PCacheDescriptor *ledger = PCacheLedgerOf(pool);
	bool		flush = pool->map.kind == PCACHE_PERSIST_PMEM;
	uint64		saved = 0;

	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = unconstify(BufferDesc *, &headers[slot].bufferdesc);
		PCacheDescriptor *entry = &ledger[slot];
		const char *page = blocks + (Size) slot * BLCKSZ;
		uint32		state = pg_atomic_read_u32(&buf->state);

		if (slot + PREFETCH_DISTANCE < NBuffers)
		{
			__builtin_prefetch(&headers[slot + PREFETCH_DISTANCE], 0);
			__builtin_prefetch(entry + PREFETCH_DISTANCE, 1);
		}
		if (!CanBeKept(state))
		{
			if (entry->seq != PCACHE_DESC_FREE_SEQ)
				PCacheDescriptorSetFree(entry);
			continue;
		}
		memset(entry, 0, sizeof(*entry));
		memcpy(&entry->spc_oid, &buf->tag, sizeof(BufferTag));
		entry->slot = slot;
		entry->version = PCACHE_DESC_VERSION;
		entry->flags = (state & BM_PERMANENT) ? PCACHE_DESC_PERMANENT : 0;
		if (!XLogRecPtrIsInvalid(lsn_bound))
		{
			entry->page_lsn = lsn_bound;
			entry->flags |= PCACHE_DESC_LSN_BOUND;
		}
		else
			entry->page_lsn = PageGetLSN((Page) page);
		entry->usage_count = BUF_STATE_GET_USAGECOUNT(state);
		PCacheDescriptorSetSealed(entry);
		if (flush)
			PCacheFlush(&pool->map, page, BLCKSZ);
		saved++;
	}
	PCacheFlush(&pool->map, ledger, sizeof(PCacheDescriptor) * (Size) NBuffers);
	return saved;
}

/*
 * Overwrite what is left in slots without a page.  A page of a table that was dropped
 * stays in its slot until another page takes that.  In a server's own memory it would
 * be gone with the server, but persistent memory keeps it even without power.
 */
static void
Scrub(const PCachePool *pool, const PCacheSuperblock *sb)
{
	static const PGIOAlignedBlock zeros;
	const BufferDescPadded *headers = PCacheHeadersOf(pool, sb);
	char	   *block = pool->map.base + sb->blocks_offset;
	uint64		scrubbed = 0;

	if (pcache_scrub == PERSISTENT_CACHE_SCRUB_OFF ||
		(pcache_scrub == PERSISTENT_CACHE_SCRUB_AUTO && pool->map.kind != PCACHE_PERSIST_PMEM))
		return;
	for (uint64 slot = 0; slot < sb->capacity; slot++, block += BLCKSZ)
	{
		if (slot < NBuffers)
		{
			BufferDesc *buf = unconstify(BufferDesc *, &headers[slot].bufferdesc);
			uint32		state = pg_atomic_read_u32(&buf->state);

			/* a slot with a bad block is pinned */
			if ((state & (BM_VALID | BM_DIRTY)) != 0 || BUF_STATE_GET_REFCOUNT(state) != 0)
				continue;
		}
		/* only what has something in it, to spare the media */
		if (memcmp(block, zeros.data, BLCKSZ) == 0)
			continue;
		PCacheStreamNodrain(&pool->map, block, zeros.data, BLCKSZ);
		scrubbed++;
	}
	if (scrubbed > 0)
		ereport(LOG,
				(errmsg("persistent cache: overwrote " UINT64_FORMAT " free slots", scrubbed)));
}

/*
 * pg_control as it is on disk.  get_controlfile() throws, and while a process exits
 * that takes its exit status, and the rest of what it has to do.
 */
static bool
ReadControlFile(ControlFileData *control)
{
	char		path[MAXPGPATH];
	pg_crc32c	crc;
	int			fd;
	bool		complete;

	snprintf(path, sizeof(path), "%s/%s", DataDir, XLOG_CONTROL_FILE);
	fd = open(path, O_RDONLY | PG_BINARY | O_CLOEXEC);
	complete = fd >= 0 && PCacheReadExact(fd, control, sizeof(*control), 0);
	if (fd >= 0)
		close(fd);
	if (!complete)
		return false;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, control, offsetof(ControlFileData, crc));
	FIN_CRC32C(crc);
	return EQ_CRC32C(crc, control->crc);
}

/*
 * Why is nothing saved at this exit?  NULL if all is right.
 *
 * What decides is pg_control and no exit status: an immediate stop has status 0 as
 * well.  Whoever died has left its pins, and such buffers have no entry.
 */
static const char *
WhyNotSaved(ControlFileData *control)
{
	if (!ReadControlFile(control))
		return _("\"pg_control\" cannot be read");
	if (control->state != DB_SHUTDOWNED && control->state != DB_SHUTDOWNED_IN_RECOVERY)
		return _("the cluster was not shut down cleanly");
	if (pg_atomic_read_u32(&PCacheLibrary->read_errors_ignored) != 0)
		return _("pages may have been read with \"zero_damaged_pages\" or \"ignore_checksum_failure\"");
	return NULL;
}

/* Save all pages, and say so in the superblock. */
static void
Save(const ControlFileData *control)
{
	PCacheSuperblock *sb = &PCacheLibrary->superblock;
	uint64		saved;
	instr_time	start;
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(start);
	saved = Harvest(&PCacheThePool, sb,
					control->state == DB_SHUTDOWNED ? control->checkPoint : InvalidXLogRecPtr);
	PCacheSuperblockSetClean(sb, control, saved);
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
	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	ereport(LOG,
			(errmsg("persistent cache: saved " UINT64_FORMAT " pages in %d slots, %.3f ms",
					saved, NBuffers, INSTR_TIME_GET_MILLISEC(elapsed))));
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
		PCacheTurnHugePagesOffAgain();
		return;
	}
	why = WhyNotSaved(&control);
	if (why == NULL)
	{
		Scrub(&PCacheThePool, sb);
		Save(&control);
	}
	else
	{
		ereport(LOG, (errmsg("persistent cache: not saved: %s", why)));
		if (sb->state == PCACHE_STATE_ATTACHING)
		{
			sb->state = PCACHE_STATE_EMPTY;
			(void) PCacheStoreOrTell();
		}
	}
	(void) flock(PCacheThePool.fd, LOCK_UN);
}
