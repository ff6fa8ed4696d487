/*-------------------------------------------------------------------------
 *
 * pcache_range.h
 *	  Sorted lists of ranges of bytes; see pcache_range.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_range.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_RANGE_H
#define PCACHE_RANGE_H

/* More ranges than this, and the list stands for everything. */
#define PCACHE_MAX_RANGES		4096

typedef struct PCacheByteRange
{
	uint64		offset;			/* in bytes */
	uint64		length;			/* in bytes, never 0 */
} PCacheByteRange;

typedef struct PCacheRangeList
{
	PCacheByteRange *ranges;	/* malloc'd; NULL if there are none */
	uint32		n_ranges;
	uint32		max_ranges;		/* allocated */
	bool		truncated;		/* there are more: treat all as bad */
} PCacheRangeList;

extern void PCacheRangeAdd(PCacheRangeList *list,
						   uint64 offset, uint64 length);
extern void PCacheRangeMerge(PCacheRangeList *list);
extern uint32 PCacheRangeFirstBehind(const PCacheRangeList *list,
									 uint64 offset);
extern void PCacheRangeClip(PCacheRangeList *list,
							uint64 start, uint64 length);

/*
 * Is any byte of [offset, offset + length) in one of a merged list's ranges?
 * Here, because it is asked for each slot of a pool, and nearly always of lists
 * that are empty.
 */
static inline bool
PCacheRangeOverlaps(const PCacheRangeList *list, uint64 offset, uint64 length)
{
	uint32		i;

	if (list->truncated)
		return true;
	if (list->n_ranges == 0 || length == 0)
		return false;
	i = PCacheRangeFirstBehind(list, offset);
	return i < list->n_ranges &&
		(list->ranges[i].offset <= offset ||
		 list->ranges[i].offset - offset < length);
}

#endif							/* PCACHE_RANGE_H */
