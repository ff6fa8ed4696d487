/*-------------------------------------------------------------------------
 *
 * pcache_untrusted.c
 *	  Pages that were read although something was wrong with them.
 *
 * With zero_damaged_pages, ignore_checksum_failure, or RBM_ZERO_ON_ERROR, a
 * page that cannot be verified gets into a buffer all the same.  What is in
 * the buffer is not what is in the file, or not what was written there.
 * PostgreSQL asks the file again after a restart, with the settings of that
 * time, so such a page must not be kept.
 *
 * There are hardly ever any, so those who only want to know read a counter on
 * a line that nobody writes, and no bit.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_untrusted.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache_run.h"
#include "storage/shmem.h"

/*
 * A bit for each buffer.  count is never below the number of bits that are
 * set: it goes up before a bit is set, and down after one is cleared.
 */
struct PersistentCacheUntrustedMap
{
	union
	{
		pg_atomic_uint64 count;
		char		pad[PG_CACHE_LINE_SIZE];
	};
	pg_atomic_uint64 words[FLEXIBLE_ARRAY_MEMBER];
};

/* NULL unless PersistentCacheEnabled(). */
PersistentCacheUntrustedMap *PersistentCacheUntrusted = NULL;

/* Bytes of shared memory for the map. */
Size
PCacheUntrustedShmemSize(void)
{
	Size		words = (NBuffers + BITS_PER_WORD - 1) / BITS_PER_WORD;

	return add_size(offsetof(PersistentCacheUntrustedMap, words),
					mul_size(words, sizeof(uint64)));
}

/* Allocate the map, empty.  Called by the postmaster. */
void
PCacheUntrustedShmemInit(void)
{
	bool		found;

	PersistentCacheUntrusted = ShmemInitStruct("Persistent Cache Untrusted Pages",
											   PCacheUntrustedShmemSize(), &found);
	memset(PersistentCacheUntrusted, 0, PCacheUntrustedShmemSize());
}

static inline pg_atomic_uint64 *
UntrustedWord(int buf_id)
{
	return &PersistentCacheUntrusted->words[buf_id / BITS_PER_WORD];
}

static inline uint64
UntrustedBit(int buf_id)
{
	return UINT64CONST(1) << (buf_id % BITS_PER_WORD);
}

/*
 * A page that could not be verified is about to become valid in a buffer, as
 * zeros or as it is.  Until the buffer gets another tag it is never sealed nor
 * saved, whatever happens to the page.
 *
 * Called by who completes the read, which may be an I/O worker or any other
 * process, in a critical section; BM_IO_IN_PROGRESS keeps others from marking
 * the buffer.  The mark is for the case that the slot is sealed, which it
 * should not be.
 */
void
PersistentCacheReadWithErrors(Buffer buffer)
{
	int			buf_id = buffer - 1;

	if (PersistentCacheUntrusted == NULL || BufferIsLocal(buffer))
		return;
	pg_atomic_fetch_add_u64(&PersistentCacheUntrusted->count, 1);
	if (pg_atomic_fetch_or_u64(UntrustedWord(buf_id), UntrustedBit(buf_id)) &
		UntrustedBit(buf_id))
		pg_atomic_fetch_sub_u64(&PersistentCacheUntrusted->count, 1);
	PersistentCacheMark(buf_id);
}

/*
 * Is the page in this buffer one that was read with errors?  Who has seen,
 * under the buffer header lock, that the buffer is valid gets the answer for
 * that page.
 */
bool
PCacheIsUntrusted(int buf_id)
{
	return pg_atomic_read_u64(&PersistentCacheUntrusted->count) != 0 &&
		(pg_atomic_read_u64(UntrustedWord(buf_id)) & UntrustedBit(buf_id)) != 0;
}

/* How many there are; more for a moment, if one is just coming or going. */
uint64
PCacheCountUntrusted(void)
{
	return pg_atomic_read_u64(&PersistentCacheUntrusted->count);
}

/* The buffer is about to get another page. */
void
PCacheTrustAgain(int buf_id)
{
	if (likely(!PCacheIsUntrusted(buf_id)))
		return;
	pg_atomic_fetch_and_u64(UntrustedWord(buf_id), ~UntrustedBit(buf_id));
	pg_atomic_fetch_sub_u64(&PersistentCacheUntrusted->count, 1);
}
