/*-------------------------------------------------------------------------
 *
 * pcache_chunk.h
 *	  The pages of a chunk of slots, in the order of the mapping table.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/backend/storage/buffer/pmem/pcache_chunk.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_CHUNK_H
#define PCACHE_CHUNK_H

#include "pcache_internal.h"
#include "storage/buf_internals.h"

/*
 * Two processes that put pages into the mapping table must not write the same
 * cache lines by turns.  So pages belong to families, which two bits of the hash
 * code tell apart, and a process puts in one family after the other.
 *
 * The three bits below tell apart the eight buckets of a cache line of 64 bytes.
 * The five lowest bits, which include these two, choose the freelist from which
 * dynahash.c takes an element, unless it is empty.  The partition's number has
 * the seven lowest bits.  So a partition belongs to one family, which the locks
 * rely on, and nearly always a cache line and a freelist, too, which is only
 * faster.
 */
#define PCACHE_NUM_FAMILIES		4
#define PCacheHashFamily(hash)	(((hash) >> 3) % PCACHE_NUM_FAMILIES)

StaticAssertDecl(NUM_BUFFER_PARTITIONS % (8 * PCACHE_NUM_FAMILIES) == 0,
				 "a partition must belong to one family");

/* A page that has passed its gate. */
typedef struct PCacheJudgedPage
{
	uint32		slot;
	uint32		hash;			/* BufTableHashCode() of the tag */
	BufferTag	tag;
} PCacheJudgedPage;

struct PCacheJudgedChunk
{
	uint32		nslots;			/* at most */
	PCacheDescriptor *descs;	/* of the slots that are being judged */

	/* The pages to be kept, by slot, and sorted by family and bucket. */
	PCacheJudgedPage *pages;
	PCacheJudgedPage *sorted;
	uint32		npages;

	/*
	 * Each family has nranges bins, one for each range of buckets.  The pages
	 * of bin b begin at sorted[begin[b]], and end before sorted[begin[b +
	 * 1]].
	 */
	uint32	   *begin;
	uint32		nranges;
	uint32		bucket_mask;
	int			range_shift;
};

/* Where do the pages of a family begin?  They end where the next one begins. */
static inline uint32
PCacheFamilyBegin(const PCacheJudgedChunk *chunk, int family)
{
	return chunk->begin[family * chunk->nranges];
}

#endif							/* PCACHE_CHUNK_H */
