/*-------------------------------------------------------------------------
 *
 * pcache_mark.c
 *	  Mark a slot as in change, and queue it for the sealer.
 *
 * The queue is a bitmap with one bit per slot, and a summary bitmap with one
 * bit per word of it.  It cannot overflow, holds each slot at most once, and
 * takes no lock.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_mark.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pcache_internal.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/shmem.h"

#define BITS_PER_WORD	64

/* NULL unless persistent_cache_mode is always. */
PCacheDescriptor *PersistentCacheDescriptors = NULL;

static pg_atomic_uint64 *QueueSummary = NULL;
static pg_atomic_uint64 *QueueWords = NULL;
static uint64 *KeptWords = NULL;

static inline uint32
QueueNumWords(void)
{
	return (NBuffers + BITS_PER_WORD - 1) / BITS_PER_WORD;
}

static inline uint32
QueueNumSummaries(void)
{
	return (QueueNumWords() + BITS_PER_WORD - 1) / BITS_PER_WORD;
}

/* Bytes of shared memory for the queue, and for the bitmap of kept pages. */
Size
PCacheQueueShmemSize(void)
{
	return mul_size(add_size(mul_size(2, QueueNumWords()), QueueNumSummaries()),
					sizeof(uint64));
}

/* Allocate the queue, empty.  Called by the postmaster. */
void
PCacheQueueShmemInit(void)
{
	bool		found;
	uint64	   *space;

	space = ShmemInitStruct("Persistent Cache Queue",
							PCacheQueueShmemSize(), &found);
	memset(space, 0, PCacheQueueShmemSize());
	QueueSummary = (pg_atomic_uint64 *) space;
	QueueWords = QueueSummary + QueueNumSummaries();
	KeptWords = space + QueueNumSummaries() + QueueNumWords();
}

/*
 * Have the sealer look at a slot.  Whoever turns a word from zero sets the
 * bit of the summary; the sealer clears the summary before the word, so the
 * bit can't get lost.
 */
void
PersistentCacheEnqueue(int buf_id)
{
	uint32		word = buf_id / BITS_PER_WORD;
	uint64		bit = UINT64CONST(1) << (buf_id % BITS_PER_WORD);

	if (pg_atomic_read_u64(&QueueWords[word]) & bit)
		return;
	if (pg_atomic_fetch_or_u64(&QueueWords[word], bit) == 0)
		pg_atomic_fetch_or_u64(&QueueSummary[word / BITS_PER_WORD],
							   UINT64CONST(1) << (word % BITS_PER_WORD));
}

/*
 * Take up to max slots out of the queue, beginning at summary word *position,
 * which is advanced.  Returns how many; less than max only once *position
 * has reached the end.  Called by the sealer only.
 */
int
PCacheDequeue(uint32 *position, int *slots, int max)
{
	int			n = 0;

	for (; *position < QueueNumSummaries(); (*position)++)
	{
		uint64		summary;

		if (pg_atomic_read_u64(&QueueSummary[*position]) == 0)
			continue;
		if (n > max - BITS_PER_WORD)
			return n;
		summary = pg_atomic_exchange_u64(&QueueSummary[*position], 0);
		while (summary != 0)
		{
			int			i = pg_rightmost_one_pos64(summary);
			uint32		word = *position * BITS_PER_WORD + i;
			uint64		bits;

			if (n > max - BITS_PER_WORD)
			{
				/* the rest is for the next call */
				pg_atomic_fetch_or_u64(&QueueSummary[*position], summary);
				return n;
			}
			summary &= summary - 1;
			bits = pg_atomic_exchange_u64(&QueueWords[word], 0);
			while (bits != 0)
			{
				slots[n++] = word * BITS_PER_WORD + pg_rightmost_one_pos64(bits);
				bits &= bits - 1;
			}
		}
	}
	return n;
}

/*
 * Make sure that the slot is not trusted, durably, before its page changes
 * or its tag does.
 *
 * The caller excludes other markers of the same slot until we return: by the
 * exclusive content lock, by the buffer header lock, or because it owns a
 * buffer that nobody can find.  Otherwise one could find seq odd already, and
 * go on before the first one's mark is durable.
 */
void
PersistentCacheMarkBuffer(int buf_id)
{
	PCacheDescriptor *desc = &PersistentCacheDescriptors[buf_id];
	pg_atomic_uint64 *seq = PCacheSeq(desc);
	uint64		old = pg_atomic_read_u64(seq);

	/* from even to the next odd, from odd to the odd after it */
	while (!pg_atomic_compare_exchange_u64(seq, &old, (old + 1) | 1))
		;
	if (!PCacheSeqIsSealed(old))
		return;

	(void) PCachePersist(&PCacheThePool.map, desc, sizeof(desc->seq));
	PersistentCacheEnqueue(buf_id);
}

/*
 * A buffer got a new tag.  It is queued unless it belongs to a ring, whose
 * pages are not worth it.
 */
void
PersistentCacheRetagBuffer(int buf_id, bool ring)
{
	KeptWords[buf_id / BITS_PER_WORD] &= ~(UINT64CONST(1) << (buf_id % BITS_PER_WORD));
	PersistentCacheMarkBuffer(buf_id);
	if (!ring)
		PersistentCacheEnqueue(buf_id);
}

/* Remember that a page was kept over the last start. */
void
PCacheSetKept(int buf_id)
{
	KeptWords[buf_id / BITS_PER_WORD] |= UINT64CONST(1) << (buf_id % BITS_PER_WORD);
}

/*
 * Is this buffer's page one that was kept over the last start, or what redo
 * made of it, with all changes up to lsn?  Then it cannot be torn, and a
 * full-page image from that LSN has nothing to give.  The startup process
 * asks, during redo, with the buffer locked.
 */
bool
PersistentCachePageIsNewer(Buffer buffer, XLogRecPtr lsn)
{
	int			buf_id = buffer - 1;

	if (KeptWords == NULL || BufferIsLocal(buffer) ||
		(KeptWords[buf_id / BITS_PER_WORD] &
		 (UINT64CONST(1) << (buf_id % BITS_PER_WORD))) == 0)
		return false;
	return PageGetLSN(BufferGetPage(buffer)) >= lsn;
}
