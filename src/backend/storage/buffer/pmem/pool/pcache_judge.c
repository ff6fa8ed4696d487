/*-------------------------------------------------------------------------
 *
 * pcache_judge.c
 *	  Page gates: may a page be kept?
 *
 * JudgeEntry() and PCacheYoungGate() decide, and their comments are the proof.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_judge.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "access/xlogdefs.h"
#include "storage/bufpage.h"
#include "storage/pcache_gate.h"

/* When was the pool's server last there, in seconds since 1970? */
static int64
LastThere(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	return sb->state == PCACHE_STATE_CLEAN ? sb->saved_at :
		facts->sighting.seen_at / PCACHE_NSEC;
}

/*
 * The least offset that the clock has (see PCacheClockOffset()) if it was not set back since
 * the pool's server was last there.  The offset is the time at which the host booted.  In
 * the same boot it stays, unless somebody sets the clock.  Another boot of this host began
 * after the server's end, so its offset is not below that time; of another host, which may
 * have been up for longer, the clock proves nothing.  A container may have a boot id of its
 * own, so an equal offset counts as the same boot.  A clock that was behind for a while, and
 * is right again, does not show.
 */
int64
PCacheLeastClockOffset(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	int64		now = PCacheClockOffset();
	int64		offset = sb->state == PCACHE_STATE_CLEAN ? sb->clock_offset :
		facts->sighting.clock_offset;

	if (PCacheHostRestarted(sb, facts) &&
		(offset < now - PCACHE_SIGHTING_TOLERANCE || offset > now + PCACHE_SIGHTING_TOLERANCE))
		return LastThere(sb, facts) * PCACHE_NSEC;
	return offset;
}

/*
 * Since when must nobody have changed a file that a page is kept of?
 *
 * After a clean stop, since the end of the second in which the pool was saved: all files
 * had been written by then.  Somebody may have repaired one later.
 *
 * A server that was killed has changed files itself until it died.  So it counts since the
 * last time at which its worker noted that it lived; if the cluster is shut down all the same,
 * as after the last checkpoint of recovery, since the end of that second.
 *
 * If the clock was set back since either, a file can have been changed later although its
 * time says otherwise, so all count as changed.
 */
static int64
UnchangedSince(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	int64		second = LastThere(sb, facts);

	if (second <= 0 || second > PCacheReadClock(CLOCK_REALTIME) / PCACHE_NSEC ||
		PCacheClockOffset() + PCACHE_SIGHTING_TOLERANCE < PCacheLeastClockOffset(sb, facts))
		return 1;
	return PCacheControlIsShutDown(facts->control) ? (second + 1) * PCACHE_NSEC :
		facts->sighting.seen_at + PCACHE_SIGHTING_TOLERANCE;
}

/* Fill in what the page gate goes by, of a pool that is to be kept. */
void
PCacheSetPageFacts(PCachePageFacts *facts, const PCacheSuperblock *sb,
				   const PCacheGateFacts *gate_facts)
{
	facts->redo = gate_facts->control->checkPointCopy.redo;
	facts->all_written = gate_facts->control->state == DB_SHUTDOWNED;
	facts->unchanged_since = UnchangedSince(sb, gate_facts);
	/* containers and their volumes change owners on the way to a start */
	facts->only_written = PCacheControlIsShutDown(gate_facts->control);
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
 * synced it as well does not matter while the host lives; after a loss of power it does, and
 * holds, because the LSN is below redo.
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
