/*-------------------------------------------------------------------------
 *
 * pcache_memory_error.c
 *	  Memory errors, remembered in the pool: those that a server process died
 *	  of, and bad blocks below descriptors.
 *
 * Persistent memory lists its bad blocks by itself, though not in every case
 * soon enough.  DRAM below tmpfs and hugetlbfs does not: without a record the
 * next start would hand out the same slot again, and crash again.
 *
 * Formatting the pool clears all entries; the server removes none.  pg_pcache
 * rebuild removes those of memory that it has exchanged for other.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_memory_error.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#include "port/atomics.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_error.h"
#include "storage/pcache_memory_error.h"

#ifndef FRONTEND

/*
 * Record, durably, that [offset, offset + length) of a mapped pool cannot be
 * used.  offset is not 0.  Returns false if there is no room left.
 *
 * Called from a signal handler, perhaps by several processes at the same
 * time, and perhaps with the record itself on bad memory.
 */
bool
PCacheNoteMemoryError(const PCacheMapping *map, uint64 offset, uint32 length)
{
	PCacheMemoryError *entries =
		(PCacheMemoryError *) (map->base + PCACHE_MEMORY_ERRORS_OFFSET);

	for (int i = 0; i < PCACHE_MAX_MEMORY_ERRORS; i++)
	{
		PCacheMemoryError *entry = &entries[i];
		uint64		expected = 0;

		if (!pg_atomic_compare_exchange_u64((pg_atomic_uint64 *) &entry->offset,
											&expected, offset) &&
			expected != offset)
			continue;
		/* who died over the same range before may not have come to this */
		entry->length = Max(entry->length, length);
		entry->crc = PCacheCrcOf(entry);
		(void) PCachePersist(map, entry, sizeof(*entry));
		return true;
	}
	return false;
}

#endif							/* !FRONTEND */

/*
 * Add the ranges that an open pool remembers to a list.  Returns whether there
 * are any; then the list is to be merged.
 */
bool
PCacheReadMemoryErrors(int fd, PCacheRangeList *bad)
{
	PCacheMemoryError entries[PCACHE_MAX_MEMORY_ERRORS];
	bool		any = false;

	if (!PCacheReadExact(fd, entries, sizeof(entries), PCACHE_MEMORY_ERRORS_OFFSET))
		return false;
	for (int i = 0; i < PCACHE_MAX_MEMORY_ERRORS; i++)
	{
		if (entries[i].offset == 0 || entries[i].length == 0 ||
			entries[i].crc != PCacheCrcOf(&entries[i]))
			continue;
		PCacheRangeAdd(bad, entries[i].offset, entries[i].length);
		any = true;
	}
	return any;
}

/*
 * Remove, durably, what a mapped pool remembers of [offset, offset + length):
 * there is other memory now.  Nobody else may use the pool.  Returns false
 * with errno set.
 */
bool
PCacheForgetMemoryErrors(const PCacheMapping *map, uint64 offset, uint64 length)
{
	PCacheMemoryError *entries =
		(PCacheMemoryError *) (map->base + PCACHE_MEMORY_ERRORS_OFFSET);

	for (int i = 0; i < PCACHE_MAX_MEMORY_ERRORS; i++)
	{
		PCacheMemoryError *entry = &entries[i];

		if (entry->offset == 0 || entry->offset < offset ||
			entry->offset + entry->length > offset + length)
			continue;
		memset(entry, 0, sizeof(*entry));
		if (!PCachePersist(map, entry, sizeof(*entry)))
			return false;
	}
	return true;
}
