/*-------------------------------------------------------------------------
 *
 * pcache_mark.c
 *	  Mark a slot as in change.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_mark.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/pcache_run.h"
#include "storage/proc.h"
#include "storage/shmem.h"

/*
 * How many slots a process has marked that were sealed.  One line for each
 * process, lest marks contend for it.
 */
typedef union MarkCounter
{
	pg_atomic_uint64 marks;
	char		pad[PG_CACHE_LINE_SIZE];
} MarkCounter;

static MarkCounter *MarkCounters = NULL;

static inline uint32
NumMarkCounters(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

/* Bytes of shared memory for the counters of marks. */
Size
PCacheMarkShmemSize(void)
{
	return mul_size(NumMarkCounters(), sizeof(MarkCounter));
}

/* Allocate the counters.  Called by the postmaster. */
void
PCacheMarkShmemInit(void)
{
	bool		found;

	MarkCounters = ShmemInitStruct("Persistent Cache Marks",
								   PCacheMarkShmemSize(), &found);
	memset(MarkCounters, 0, PCacheMarkShmemSize());
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
