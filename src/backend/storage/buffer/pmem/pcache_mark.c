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

#include "miscadmin.h"
#include "pcache_internal.h"
#include "port/pg_bitutils.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#define BITS_PER_WORD	64

/* NULL unless persistent_cache_mode is always. */
PCacheDescriptor *PersistentCacheDescriptors = NULL;

static pg_atomic_uint64 *QueueSummary = NULL;
static pg_atomic_uint64 *QueueWords = NULL;
static pg_atomic_uint64 *KeptWords = NULL;
static PCacheMarkCounter *MarkCounters = NULL;

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

static inline uint32
NumMarkCounters(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static inline Size
BitmapsSize(void)
{
	return mul_size(add_size(mul_size(2, QueueNumWords()), QueueNumSummaries()),
					sizeof(uint64));
}

/*
 * Bytes of shared memory for the queue, for the bitmap of kept pages, and for
 * the counters of marks.
 */
Size
PCacheQueueShmemSize(void)
{
	return add_size(CACHELINEALIGN(BitmapsSize()),
					mul_size(NumMarkCounters(), sizeof(PCacheMarkCounter)));
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
	KeptWords = QueueWords + QueueNumWords();
	MarkCounters = (PCacheMarkCounter *)
		((char *) space + CACHELINEALIGN(BitmapsSize()));
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
	PCacheEnqueue(buf_id);

	if (likely(MyProcNumber != INVALID_PROC_NUMBER))
	{
		pg_atomic_uint64 *marks = &MarkCounters[MyProcNumber].marks;

		pg_atomic_write_u64(marks, pg_atomic_read_u64(marks) + 1);
	}
}

/*
 * How many sealed slots were marked since the start.  Each seal was of a slot
 * that is not sealed, each mark counted is of one that is; so this tells how
 * many are, without looking at them.
 */
uint64
PCacheCountMarks(void)
{
	uint64		marks = 0;

	for (uint32 i = 0; i < NumMarkCounters(); i++)
		marks += pg_atomic_read_u64(&MarkCounters[i].marks);
	return marks;
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

/*
 * A buffer is about to get a new tag.  It is queued unless it belongs to a
 * ring, whose pages are not worth it.  Called in each mode but off.
 */
void
PersistentCacheRetagBuffer(int buf_id, bool ring)
{
	PCacheTrustAgain(buf_id);
	if (PersistentCacheDescriptors == NULL)
		return;
	if (PCacheIsKept(buf_id))
		PCacheClearKept(buf_id);
	PersistentCacheMarkBuffer(buf_id);
	if (!ring)
		PCacheEnqueue(buf_id);
}

/* Remember that a page was kept over the last start. */
void
PCacheSetKept(int buf_id)
{
	pg_atomic_fetch_or_u64(&KeptWords[buf_id / BITS_PER_WORD],
						   UINT64CONST(1) << (buf_id % BITS_PER_WORD));
}

/* Forget that; it is an ordinary page from now on. */
void
PCacheClearKept(int buf_id)
{
	pg_atomic_fetch_and_u64(&KeptWords[buf_id / BITS_PER_WORD],
							~(UINT64CONST(1) << (buf_id % BITS_PER_WORD)));
}

/* Is the page in this buffer one that was kept over the last start? */
bool
PCacheIsKept(int buf_id)
{
	return (pg_atomic_read_u64(&KeptWords[buf_id / BITS_PER_WORD]) &
			(UINT64CONST(1) << (buf_id % BITS_PER_WORD))) != 0;
}

/*
 * The same for 64 buffers, a bit each; the first must be a multiple of 64.
 */
uint64
PCacheKeptOf64(int first)
{
	StaticAssertDecl(BITS_PER_WORD == 64, "a word is 64 buffers");
	return pg_atomic_read_u64(&KeptWords[first / BITS_PER_WORD]);
}
