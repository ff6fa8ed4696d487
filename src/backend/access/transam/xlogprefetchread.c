/*-------------------------------------------------------------------------
 *
 * xlogprefetchread.c
 *	  Recovery reads ahead into shared buffers: recovery_prefetch = read.
 *
 * xlogprefetcher.c looks ahead in WAL, and has the kernel read the blocks that
 * redo will need.  With recovery_prefetch = read, it starts asynchronous reads
 * into shared buffers instead, so that redo finds the page there.  With
 * buffered I/O and with io_method = sync that does not pay, and the kernel is
 * advised as before.
 *
 * A read is started and then forgotten: nothing is pinned here when the call
 * returns, and nobody waits.  Until the read has completed, the AIO subsystem
 * keeps the buffer pinned, as it does for the reads of a backend that has
 * failed meanwhile.  Whoever wants the page before waits for it, and whoever
 * finds that the read has failed reads again, and reports the error.  So a
 * read ahead has no more consequences than that of a backend which looked at
 * the page at that moment.  README.prefetch in this directory has the
 * argument in full.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/access/transam/xlogprefetchread.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogprefetcher.h"
#include "access/xlogprefetchread.h"
#include "catalog/pg_class_d.h"
#include "storage/aio.h"
#include "storage/buf_internals.h"
#include "storage/fd.h"
#include "utils/memutils.h"

/*
 * A read that was started.  The AIO subsystem stores the result into the
 * operation when it takes back the handle, which may be any time later, so
 * this must not go away or be used again before.
 */
typedef struct
{
	ReadBuffersOperation op;
	Buffer		buffer;
	XLogRecPtr	lsn;			/* of the record that refers to the block */
} StartedRead;

/* A ring: the oldest read is at reads_next. */
static StartedRead *reads = NULL;
static int	reads_max = 0;
static int	reads_next = 0;

/* Are we between the begin and the end of redo? */
static bool in_redo = false;

/*
 * Pages that a record replaces which is not replayed yet, by image or by
 * initialization.  A page is noted by the LSN of that record, in the two places
 * that its hash value gives, and nothing is ever removed: what is not beyond
 * the last replayed record does not count.  If two other pages have the same
 * places, a page may look as if it was noted.  Then it is not read ahead.
 */
#define REPLACED_BITS 14
#define REPLACED_MASK ((1 << REPLACED_BITS) - 1)
static XLogRecPtr *replaced = NULL;

/*
 * The first record since recovery_prefetch is "read".  Of those before it that
 * are queued, nothing was noted.
 */
static XLogRecPtr noted_from = InvalidXLogRecPtr;

/*
 * How many reads may be under way?  Each of them pins its buffer and takes a
 * handle, and has its share of both.  One handle is left for redo itself.
 */
static int
MaxReads(void)
{
	return Max(Min((int) GetPinLimit(), io_max_concurrency - 1), 0);
}

/*
 * Is it worth while to read?  If the kernel has a page cache to read into,
 * advice does the same for less.  With io_method = sync, a read would be done
 * here, in the place of redo.
 */
static bool
CanRead(void)
{
	return recovery_prefetch == RECOVERY_PREFETCH_READ &&
		(io_direct_flags & IO_DIRECT_DATA) != 0 &&
		io_method != IOMETHOD_SYNC && MaxReads() > 0;
}

int
XLogPrefetchReadLimit(int limit)
{
	return CanRead() ? Min(limit, MaxReads()) : limit;
}

/*
 * Redo begins.  Nothing may be read before: the records of the checkpoint and
 * of the redo point are looked at when shared buffers may not be used yet.
 */
void
XLogPrefetchReadBegin(void)
{
	if (reads == NULL)
	{
		reads_max = MaxReads();
		reads = (StartedRead *)
			MemoryContextAllocZero(TopMemoryContext,
								   Max(reads_max, 1) * sizeof(StartedRead));
		for (int i = 0; i < reads_max; i++)
			pgaio_wref_clear(&reads[i].op.io_wref);
	}
	in_redo = true;
}

/*
 * Redo has ended.  Reads for records that will not be replayed, because
 * recovery ends before them, may be under way.
 */
void
XLogPrefetchReadEnd(void)
{
	in_redo = false;
	for (int i = 0; i < reads_max; i++)
		if (pgaio_wref_valid(&reads[i].op.io_wref))
			pgaio_wref_wait(&reads[i].op.io_wref);
}

/* The two places of a page among those that are replaced. */
static void
PlacesOf(const DecodedBkpBlock *block, XLogRecPtr **one, XLogRecPtr **other)
{
	BufferTag	tag;
	uint32		hash;

	InitBufferTag(&tag, &block->rlocator, block->forknum, block->blkno);
	hash = BufTableHashCode(&tag);
	*one = &replaced[hash & REPLACED_MASK];
	*other = &replaced[(hash >> REPLACED_BITS) & REPLACED_MASK];
}

void
XLogPrefetchReadNote(const DecodedBkpBlock *block, XLogRecPtr lsn)
{
	XLogRecPtr *one;
	XLogRecPtr *other;

	if (recovery_prefetch != RECOVERY_PREFETCH_READ)
	{
		noted_from = InvalidXLogRecPtr;
		return;
	}

	if (XLogRecPtrIsInvalid(noted_from))
		noted_from = lsn;
	if (!block->has_image && (block->flags & BKPBLOCK_WILL_INIT) == 0)
		return;

	if (replaced == NULL)
		replaced = (XLogRecPtr *)
			MemoryContextAllocZero(TopMemoryContext,
								   (REPLACED_MASK + 1) * sizeof(XLogRecPtr));
	PlacesOf(block, &one, &other);
	*one = Max(*one, lsn);
	*other = Max(*other, lsn);
}

bool
XLogPrefetchReadReplaced(const DecodedBkpBlock *block, XLogRecPtr replayed)
{
	XLogRecPtr *one;
	XLogRecPtr *other;

	if (recovery_prefetch != RECOVERY_PREFETCH_READ || replaced == NULL)
		return false;

	PlacesOf(block, &one, &other);
	return *one > replayed && *other > replayed;
}

/*
 * A place in the ring for another read, or NULL if too many are under way.
 */
static StartedRead *
NextRead(XLogRecPtr replayed)
{
	StartedRead *read;

	read = &reads[reads_next];
	if (pgaio_wref_valid(&read->op.io_wref) &&
		!pgaio_wref_check_done(&read->op.io_wref))
	{
		if (read->lsn > replayed)
			return NULL;

		/*
		 * Its record was replayed without a look at the page.  With io_uring,
		 * nobody has seen the read complete then.
		 */
		pgaio_wref_wait(&read->op.io_wref);
	}
	pgaio_wref_clear(&read->op.io_wref);
	return read;
}

/*
 * The buffer that has a block, or InvalidBuffer.  It is not pinned, so the answer
 * may be outdated when the caller gets it.
 */
static Buffer
FindBlock(const RelFileLocator *rlocator, ForkNumber forknum, BlockNumber blkno)
{
	BufferTag	tag;
	uint32		hashcode;
	LWLock	   *partition_lock;
	int			buf_id;

	InitBufferTag(&tag, rlocator, forknum, blkno);
	hashcode = BufTableHashCode(&tag);
	partition_lock = BufMappingPartitionLock(hashcode);
	LWLockAcquire(partition_lock, LW_SHARED);
	buf_id = BufTableLookup(&tag, hashcode);
	LWLockRelease(partition_lock);
	return buf_id + 1;
}

PrefetchBufferResult
XLogPrefetchReadBlock(SMgrRelation reln, DecodedBkpBlock *block,
					  XLogRecPtr lsn, XLogRecPtr replayed)
{
	PrefetchBufferResult result = {InvalidBuffer, false};
	StartedRead *read;

	if (!CanRead() || !in_redo ||
		XLogRecPtrIsInvalid(noted_from) || noted_from > replayed)
		return PrefetchSharedBuffer(reln, block->forknum, block->blkno);

	result.recent_buffer = FindBlock(&reln->smgr_rlocator.locator,
									 block->forknum, block->blkno);
	if (BufferIsValid(result.recent_buffer))
		return result;

	read = NextRead(replayed);
	if (read == NULL)
		return PrefetchSharedBuffer(reln, block->forknum, block->blkno);

	read->lsn = lsn;
	read->op.rel = NULL;
	read->op.smgr = reln;
	read->op.persistence = RELPERSISTENCE_PERMANENT;
	read->op.forknum = block->forknum;
	read->op.strategy = NULL;
	if (StartReadBuffer(&read->op, &read->buffer, block->blkno, 0))
	{
		result.initiated_io = true;
		block->prefetch_buffer = read->buffer;
		reads_next = (reads_next + 1) % reads_max;
	}
	else
		result.recent_buffer = read->buffer;
	ReleaseBuffer(read->buffer);

	return result;
}
