/*-------------------------------------------------------------------------
 *
 * pcache_queue.c
 *	  Slots that wait for the sealer.
 *
 * The queue is a bitmap with one bit per slot, and a summary bitmap with one
 * bit per word of it.  It cannot overflow, holds each slot at most once, and
 * takes no lock.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_queue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "storage/pcache_run.h"
#include "storage/shmem.h"

static pg_atomic_uint64 *QueueSummary = NULL;
static pg_atomic_uint64 *QueueWords = NULL;

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

/* Bytes of shared memory for the queue. */
Size
PCacheQueueShmemSize(void)
{
	return mul_size(add_size(QueueNumWords(), QueueNumSummaries()), sizeof(uint64));
}

/* Allocate the queue, empty.  Called by the postmaster. */
void
PCacheQueueShmemInit(void)
{
	bool		found;

	QueueSummary = ShmemInitStruct("Persistent Cache Queue",
								   PCacheQueueShmemSize(), &found);
	memset(QueueSummary, 0, PCacheQueueShmemSize());
	QueueWords = QueueSummary + QueueNumSummaries();
}

/*
 * Have the sealer look at a slot.  Whoever turns a word from zero sets the
 * bit of the summary; the sealer clears the summary before the word, so the
 * bit can't get lost.
 */
void
PCacheEnqueue(int buf_id)
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
 * Begin a walk over the queue.
 */
void
PCacheDequeueStart(PCacheQueueWalk *walk)
{
	walk->next_summary = 0;
	walk->summary = 0;
}

/*
 * Take up to max slots, at least BITS_PER_WORD, out of the queue.  Returns how
 * many; 0 at the end of the walk.  Each word is visited once in a walk, so
 * slots that are queued again meanwhile are for the next one.
 *
 * Called by the sealer only.
 */
int
PCacheDequeue(PCacheQueueWalk *walk, int *slots, int max)
{
	int			n = 0;

	while (n <= max - BITS_PER_WORD)
	{
		uint32		word;
		uint64		bits;

		if (walk->summary == 0)
		{
			if (walk->next_summary == QueueNumSummaries())
				break;
			if (pg_atomic_read_u64(&QueueSummary[walk->next_summary]) != 0)
				walk->summary =
					pg_atomic_exchange_u64(&QueueSummary[walk->next_summary], 0);
			walk->next_summary++;
			continue;
		}
		word = (walk->next_summary - 1) * BITS_PER_WORD +
			pg_rightmost_one_pos64(walk->summary);
		walk->summary &= walk->summary - 1;
		bits = pg_atomic_exchange_u64(&QueueWords[word], 0);
		while (bits != 0)
		{
			slots[n++] = word * BITS_PER_WORD + pg_rightmost_one_pos64(bits);
			bits &= bits - 1;
		}
	}
	return n;
}

/*
 * A walk may have been cut short by the death of a sealer: have all words
 * looked at again.  Called when a sealer starts.
 */
void
PCacheQueueRecover(void)
{
	for (uint32 word = 0; word < QueueNumWords(); word++)
		pg_atomic_fetch_or_u64(&QueueSummary[word / BITS_PER_WORD],
							   UINT64CONST(1) << (word % BITS_PER_WORD));
}

/* How many slots wait for the sealer. */
uint64
PCacheQueueLength(void)
{
	uint64		n = 0;

	for (uint32 word = 0; word < QueueNumWords(); word++)
	{
		uint64		bits = pg_atomic_read_u64(&QueueWords[word]);

		if (bits != 0)
			n += pg_popcount64(bits);
	}
	return n;
}
