/*-------------------------------------------------------------------------
 *
 * pcache_range.c
 *	  Sorted lists of ranges of bytes: the bad ones of a pool or of a disk.
 *
 * A list is malloc'd, and has a limit: what does not fit makes it "truncated",
 * which stands for every byte there is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_range.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_pool.h"

/*
 * Append a range, in bytes.  A list that is full, or for which there is no
 * memory, is marked as truncated: it then stands for everything.
 */
void
PCacheRangeAdd(PCacheRangeList *list, uint64 offset, uint64 length)
{
	if (length > PG_UINT64_MAX - offset)
		length = PG_UINT64_MAX - offset;
	if (length == 0)
		return;

	if (list->n_ranges == list->max_ranges)
	{
		uint32		max_ranges = Max(16, list->max_ranges * 2);
		PCacheByteRange *ranges = NULL;

		if (max_ranges > PCACHE_MAX_RANGES)
			max_ranges = PCACHE_MAX_RANGES;
		if (max_ranges > list->max_ranges)
			ranges = realloc(list->ranges, max_ranges * sizeof(*ranges));
		if (ranges == NULL)
		{
			list->truncated = true;
			return;
		}
		list->ranges = ranges;
		list->max_ranges = max_ranges;
	}
	list->ranges[list->n_ranges].offset = offset;
	list->ranges[list->n_ranges].length = length;
	list->n_ranges++;
}

static int
CompareRanges(const void *a, const void *b)
{
	const PCacheByteRange *left = a;
	const PCacheByteRange *right = b;

	if (left->offset != right->offset)
		return left->offset < right->offset ? -1 : 1;
	return 0;
}

/*
 * Sort a list, and join ranges that overlap or touch.
 */
void
PCacheRangeMerge(PCacheRangeList *list)
{
	uint32		last = 0;

	if (list->n_ranges == 0)
		return;
	qsort(list->ranges, list->n_ranges, sizeof(PCacheByteRange), CompareRanges);
	for (uint32 i = 1; i < list->n_ranges; i++)
	{
		PCacheByteRange *kept = &list->ranges[last];
		uint64		kept_end = kept->offset + kept->length;
		uint64		end = list->ranges[i].offset + list->ranges[i].length;

		if (list->ranges[i].offset <= kept_end)
			kept->length = Max(kept_end, end) - kept->offset;
		else
			list->ranges[++last] = list->ranges[i];
	}
	list->n_ranges = last + 1;
}

/*
 * First range of a merged list that ends behind offset; n_ranges if none.
 */
uint32
PCacheRangeFirstBehind(const PCacheRangeList *list, uint64 offset)
{
	uint32		low = 0;
	uint32		high = list->n_ranges;

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;
		const PCacheByteRange *range = &list->ranges[middle];

		if (range->offset + range->length > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * Cut a merged list down to [start, start + length).
 */
void
PCacheRangeClip(PCacheRangeList *list, uint64 start, uint64 length)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < list->n_ranges; i++)
	{
		uint64		from = Max(list->ranges[i].offset, start);
		uint64		to = Min(list->ranges[i].offset + list->ranges[i].length,
							 start + length);

		if (from < to)
		{
			list->ranges[kept].offset = from;
			list->ranges[kept].length = to - from;
			kept++;
		}
	}
	list->n_ranges = kept;
}
