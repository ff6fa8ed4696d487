/*-------------------------------------------------------------------------
 *
 * pcache_kept.c
 *	  Which pages were kept over the last start.
 *
 * There is a bit for each buffer, in mode always only.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_kept.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/pcache_core.h"
#include "storage/shmem.h"

static pg_atomic_uint64 *KeptWords = NULL;

/* Bytes of shared memory for the bits. */
Size
PCacheKeptShmemSize(void)
{
	return mul_size((NBuffers + BITS_PER_WORD - 1) / BITS_PER_WORD, sizeof(uint64));
}

/* Allocate them: nothing was kept.  Called by the postmaster. */
void
PCacheKeptShmemInit(void)
{
	bool		found;

	KeptWords = ShmemInitStruct("Persistent Cache Kept Pages",
								PCacheKeptShmemSize(), &found);
	memset(KeptWords, 0, PCacheKeptShmemSize());
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
