/*-------------------------------------------------------------------------
 *
 * pcache_list.c
 *	  List pages that a start may keep after a loss of power.
 *
 * Where flushed cache lines survive, the worker makes an entry of the ledger for each
 * page that is settled: valid, clean, unlocked, permanent, of a main fork and older than
 * the redo point.  The entry has a sum of the page.  A start believes it if it is about
 * the pg_control that is there, and if the sum fits.  Rule "an entry with a sum proves
 * a page" of README has the proof.
 *
 * No lock is taken, but for the spinlock of the clock sweep once a round.  No buffer is
 * pinned, and nothing is written into a header.  What is read may change meanwhile, and so
 * each page is looked at twice.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_list.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

/* So many slots are visited between two looks at the time. */
#define SLOTS_PER_STEP		32

/* So many pages are listed in a round at most. */
#define ROUND_PAGES			8192

/* A round may take this part of the pause before it. */
#define ROUND_SHARE			50

/* So many headers are looked at before it is noted that the server lives. */
#define HEADERS_PER_BEAT	65536

/* Pages that were looked at once, and are durable, and how far WAL had been inserted then. */
static PCacheDescriptor seen_once[ROUND_PAGES];
static int	n_seen = 0;
static XLogRecPtr inserted = InvalidXLogRecPtr;

/* About which pg_control are entries made? */
static uint64 generation = 0;
static XLogRecPtr redo;

/* After each checkpoint all slots are visited: where that is, and how many are left. */
static uint32 next_to_list;
static uint32 left_to_list;

static instr_time round_began;

/* Where the clock sweep was at the end of the last two rounds. */
static uint32 swept[2];

/* The slots below this one got their first page, and were visited then. */
static uint32 filled;

static const char *
PageOf(uint32 slot)
{
	return BufferBlocks + (Size) slot * BLCKSZ;
}

/* Does a slot still have the page of an entry, settled as far as its header tells? */
static bool
StillHas(uint32 slot, const PCacheDescriptor *entry)
{
	PCacheDescriptor again = {.seq = PCACHE_DESC_FREE_SEQ};

	pg_read_barrier();
	return PCacheHarvestHeader(&PCacheLibrary->superblock.headers,
							   (const char *) GetBufferDescriptor(slot), slot, &again) &&
		memcmp(&again.spc_oid, &entry->spc_oid, sizeof(PCachePageKey)) == 0;
}

/*
 * Is there a settled page in a slot?  If so, fill in what an entry says of it, but for the
 * sum.  The page itself is not touched if touch is false, and then page_lsn is 0.
 *
 * Whoever changes a page has its content lock first, and gives it up when the page has
 * the LSN of the change.  So a page that is unlocked at two looks, and has the same
 * LSN, has not been changed in between, but for hints that are not logged.
 */
static bool
IsSettled(uint32 slot, bool touch, PCacheDescriptor *entry)
{
	const PCacheHeaderLayout *layout = &PCacheLibrary->superblock.headers;
	BufferDesc *header = GetBufferDescriptor(slot);
	const PageHeaderData *page;
	uint32		state;

	state = pg_atomic_read_u32(&header->state);
	pg_read_barrier();
	entry->seq = PCACHE_DESC_FREE_SEQ;
	entry->why_free = 0;
	if (!PCacheHarvestHeader(layout, (const char *) header, slot, entry) ||
		(entry->flags & PCACHE_DESC_PERMANENT) == 0 || entry->fork_number != MAIN_FORKNUM)
		return false;
	/* the tag is that of a page with this state */
	pg_read_barrier();
	if (((state ^ pg_atomic_read_u32(&header->state)) & ~(BUF_REFCOUNT_MASK | BUF_USAGECOUNT_MASK)) != 0)
		return false;
	if (!touch)
		return true;
	pg_read_barrier();
	page = (const PageHeaderData *) PageOf(slot);
	entry->page_lsn = PageXLogRecPtrGet(page->pd_lsn);

	/*
	 * the LSN is that of this page, and not of one that was read into the
	 * slot since
	 */
	return entry->page_lsn > GIST_BUILD_LSN && entry->page_lsn < redo &&
		!PCacheIsFirstOfIndex(entry, page) && StillHas(slot, entry);
}

/* Are two entries about the same version of the same page? */
static bool
IsSameVersion(const PCacheDescriptor *a, const PCacheDescriptor *b)
{
	PCachePageKey key_a = PCacheDescriptorKey(a);
	PCachePageKey key_b = PCacheDescriptorKey(b);

	return memcmp(&key_a, &key_b, sizeof(key_a)) == 0 && a->page_lsn == b->page_lsn;
}

/* Store an entry, of which perhaps nothing changes but what it is about. */
static void
StoreEntry(const PCacheDescriptor *entry)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheDescriptor *listed = &PCacheLedgerOf(&PCacheThePool)[entry->slot];

	if (memcmp((const char *) listed + sizeof(listed->seq),
			   (const char *) entry + sizeof(entry->seq),
			   sizeof(*entry) - sizeof(entry->seq)) != 0)
	{
		PCacheDescriptorStore(map, listed, entry);
		return;
	}
	__atomic_store_n(&listed->seq, entry->seq, __ATOMIC_RELEASE);
	PCacheFlush(map, listed, sizeof(*listed));
}

/*
 * Look again at the pages of the last round, and enter those that are as they were.
 *
 * An index's hint that an entry is dead may have been set before the first look, while the
 * page was being written.  It relies on a commit whose WAL perhaps was not flushed.  So
 * that is waited for.
 */
static bool
EnterPages(void)
{
	PCacheDescriptor again;

	if (n_seen == 0)
		return true;
	if (!XLogRecPtrIsInvalid(inserted) && GetFlushRecPtr(NULL) < inserted)
		return false;
	for (int i = 0; i < n_seen; i++)
	{
		PCacheDescriptor *entry = &seen_once[i];

		if (!IsSettled(entry->slot, true, &again) || !IsSameVersion(entry, &again))
			continue;
		entry->crc = PCacheDescriptorCrc(entry);
		entry->seq = generation;
		StoreEntry(entry);
	}
	(void) PCacheDrain(&PCacheThePool.map);
	n_seen = 0;
	return true;
}

/* Sum and flush a settled page, if it is still there when the sum is made. */
static void
SeePage(const PCacheDescriptor *entry)
{
	const char *page = PageOf(entry->slot);
	PCacheDescriptor again;

	seen_once[n_seen] = *entry;
	seen_once[n_seen].sum = PCacheSumOf(page);
	if (!IsSettled(entry->slot, true, &again) || !IsSameVersion(entry, &again))
		return;
	PCacheFlush(&PCacheThePool.map, page, BLCKSZ);
	n_seen++;
}

/*
 * List the page in a slot, unless its entry is about pg_control as it is.  Then the page
 * has not been touched.
 */
static void
ListSlot(uint32 slot)
{
	const PCacheDescriptor *listed = &PCacheLedgerOf(&PCacheThePool)[slot];
	PCacheDescriptor entry;
	PCachePageKey key;
	PCachePageKey listed_key;

	if (!IsSettled(slot, false, &entry))
		return;
	key = PCacheDescriptorKey(&entry);
	listed_key = PCacheDescriptorKey(listed);
	if (listed->seq == generation && memcmp(&key, &listed_key, sizeof(key)) == 0)
		return;
	if (IsSettled(slot, true, &entry))
		SeePage(&entry);
}

/*
 * There was a checkpoint.  What was listed for the one before, and has not been changed since,
 * its file has durably now as well: say so, without reading more of the page than its LSN.
 *
 * Entries of earlier times are about what was in memory then, and the page may have been read
 * again since.
 */
static void
ConfirmEntries(uint64 previous)
{
	const PCacheMapping *map = &PCacheThePool.map;
	PCacheDescriptor *ledger = PCacheLedgerOf(&PCacheThePool);
	PCacheDescriptor entry;

	for (uint32 slot = 0; slot < NBuffers; slot++)
	{
		PCacheDescriptor *listed = &ledger[slot];

		if (slot % HEADERS_PER_BEAT == 0)
			PCacheWatch();
		if (ShutdownRequestPending)
			return;
		if (listed->seq != previous || !IsSettled(slot, true, &entry) || !IsSameVersion(&entry, listed) ||
			!PCacheDescriptorIsIntact(listed, slot))
			continue;
		/* a word, which the checksum leaves out */
		__atomic_store_n(&listed->seq, generation, __ATOMIC_RELEASE);
		PCacheFlush(map, listed, sizeof(*listed));
	}
	(void) PCacheDrain(map);
}

/* Has the server got as far as to this slot?  Its list of free buffers goes upwards. */
static bool
IsFilled(uint32 slot)
{
	return slot < NBuffers &&
		(pg_atomic_read_u32(&GetBufferDescriptor(slot)->state) & BM_TAG_VALID) != 0;
}

/* Has a round taken its time, or no room for another step? */
static bool
IsOver(instr_time began, long usec)
{
	return PCacheMicrosecondsSince(began) >= usec || n_seen > ROUND_PAGES - SLOTS_PER_STEP;
}

/*
 * List what the clock sweep has filled between the ends of the last but one and of the last
 * round.  So what is replaced within a pause, as in a ring of buffers, is not flushed.
 * Where there is too much, what was filled last stays longest.
 */
static void
ListSwept(instr_time began, long usec)
{
	uint32		at = swept[0];

	while (at != swept[1] && !IsOver(began, usec))
	{
		for (int i = 0; i < SLOTS_PER_STEP && at != swept[1]; i++)
		{
			at = (at == 0 ? NBuffers : at) - 1;
			ListSlot(at);
		}
	}
}

/*
 * How far was WAL inserted?  The next record's place is behind the header of its page, but
 * up to there nothing can be flushed.
 */
static XLogRecPtr
EndOfInserted(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(next, wal_segment_size) == SizeOfXLogLongPHD)
		return next - SizeOfXLogLongPHD;
	if (next % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return next - SizeOfXLogShortPHD;
	return next;
}

/*
 * The first look at pages, which takes no longer than so many microseconds after it began.
 */
static void
SeePages(instr_time began, long usec)
{
	/* half of the time is for pages that were changed since they were listed */
	ListSwept(began, usec / 2);
	swept[1] = swept[0];
	swept[0] = StrategySyncStart(NULL, NULL);
	while (IsFilled(filled) && !IsOver(began, usec))
	{
		for (int i = 0; i < SLOTS_PER_STEP && IsFilled(filled); i++)
			ListSlot(filled++);
	}
	while (left_to_list > 0 && !IsOver(began, usec))
	{
		for (int i = 0; i < SLOTS_PER_STEP && left_to_list > 0; i++, left_to_list--)
		{
			ListSlot(next_to_list);
			next_to_list = (next_to_list + 1) % NBuffers;
		}
	}
	(void) PCacheDrain(&PCacheThePool.map);
	/* a hint that is set in recovery relies on nothing that may be lost */
	inserted = RecoveryInProgress() ? InvalidXLogRecPtr : EndOfInserted();
}

/*
 * One round, unless the pause since the last one is not over yet, in milliseconds.  control is
 * what pg_control says.  Returns whether there is more to do.
 */
bool
PCacheListPages(const ControlFileData *control, long pause)
{
	uint64		new_generation = PCacheLedgerGeneration(&PCacheLibrary->superblock, control);

	if (PCacheLibrary->superblock.power_rule != PCACHE_POWER_LEDGER ||
		PCacheFilesAreNotSynced() ||
		(control->data_checksum_version == 0 && !control->wal_log_hints) ||
		control->wal_level == WAL_LEVEL_MINIMAL)
		return false;
	if (new_generation != generation)
	{
		uint64		previous = generation != 0 ? generation : PCacheStart.checked_generation;

		/* what was seen below another redo point */
		n_seen = 0;
		generation = new_generation;
		redo = control->checkPointCopy.redo;
		if (previous != 0)
			ConfirmEntries(previous);
		left_to_list = NBuffers;
	}
	if (PCacheMicrosecondsSince(round_began) >= pause * 1000 && EnterPages())
	{
		INSTR_TIME_SET_CURRENT(round_began);
		SeePages(round_began, pause * 1000 / ROUND_SHARE);
	}
	return n_seen > 0 || left_to_list > 0 || swept[0] != swept[1];
}
