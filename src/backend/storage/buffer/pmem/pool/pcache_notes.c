/*-------------------------------------------------------------------------
 *
 * pcache_notes.c
 *	  What the pool remembers of faults: memory that cannot be read, and that a process
 *	  died.
 *
 * Persistent memory lists its bad blocks by itself, though not in every case
 * soon enough.  DRAM below tmpfs and hugetlbfs does not: without a record the
 * next start would hand out the same slot again, and crash again.
 * Formatting the pool clears all records; the server removes none.  pg_pcache
 * rebuild removes those of memory that it has exchanged for other.
 *
 * A process that dies of a wild store may have made others before, into
 * shared buffers.  PostgreSQL throws them away after the crash of a process;
 * with this note the next start does, too.
 *
 * The process that dies stores the note, if it gets to that, and then the
 * postmaster, both without any lock, since a dead process may hold them all.  The next
 * start removes it once nothing in the pool is trusted any more, and formatting the
 * pool does.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_notes.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <time.h>

#include "port.h"
#ifndef FRONTEND
#include "port/atomics.h"
#endif
#include "storage/pcache_pool.h"

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

/*
 * Can signal, PID and time of a note be shown?  If not, it is a note all the
 * same: it was being stored, or was damaged.
 */
bool
PCacheSuspectIsIntact(const PCacheSuspect *suspect)
{
	return suspect->crc == PCacheCrcOf(suspect);
}

/*
 * Read the note of an open pool.  If it cannot be read that counts as a note,
 * as nobody can say that there is none.
 */
void
PCacheSuspectRead(int fd, PCacheSuspect *suspect)
{
	if (!PCacheReadExact(fd, suspect, sizeof(*suspect), PCACHE_SUSPECT_OFFSET))
		memset(suspect, 0xFF, sizeof(*suspect));
}

/*
 * Say in words, translated, what a note tells: the beginning of a sentence.
 */
void
PCacheSuspectDescribe(const PCacheSuspect *suspect, char *text, size_t len)
{
	if (PCacheSuspectIsIntact(suspect) && PCacheSuspectSignal(suspect) == 0)
		snprintf(text, len, _("a server process (reported by PID %d) was not ended by SIGKILL"),
				 PCacheSuspectPid(suspect));
	else if (PCacheSuspectIsIntact(suspect))
		snprintf(text, len,
				 _("server process (PID %d) was terminated by signal %d: %s"),
				 PCacheSuspectPid(suspect), PCacheSuspectSignal(suspect),
				 pg_strsignal(PCacheSuspectSignal(suspect)));
	else
		snprintf(text, len,
				 _("a server process may have died of a fault (the pool's note of that is damaged)"));
}

#ifndef FRONTEND

/*
 * Note, durably, that a process died of this signal.  A note that is there
 * already is replaced, which is of use to who is about to remove it: see
 * PCacheSuspectForget().
 *
 * Called without any lock, perhaps by several processes at the same time, of
 * which all but the postmaster are in a signal handler.  Notes that get mixed are
 * one that is damaged, which is a note.  A failure to drain cannot be helped here.
 */
void
PCacheSuspectStore(const PCacheMapping *map, int signal, int pid)
{
	PCacheSuspect *media = (PCacheSuspect *) (map->base + PCACHE_SUSPECT_OFFSET);
	PCacheSuspect suspect = {0};

	suspect.died = PCacheSuspectDeath(signal, pid);
	suspect.died_at = time(NULL);
	suspect.crc = PCacheCrcOf(&suspect);

	/* died tells by itself, so whatever gets lost with the power, it is seen */
	pg_atomic_write_u64((pg_atomic_uint64 *) &media->died, suspect.died);
	memcpy((char *) media + sizeof(suspect.died),
		   (char *) &suspect + sizeof(suspect.died),
		   sizeof(suspect) - sizeof(suspect.died));
	(void) PCachePersist(map, media, sizeof(*media));
}

#endif							/* !FRONTEND */

/*
 * Remove the note of this death, durably, but no other one: a process may have
 * died since the caller looked.  Nothing that the note is about may be trusted
 * any more, durably.  Returns false with errno set.
 */
bool
PCacheSuspectForget(const PCacheMapping *map, uint64 died)
{
	PCacheSuspect *media = (PCacheSuspect *) (map->base + PCACHE_SUSPECT_OFFSET);

#ifndef FRONTEND
	if (!pg_atomic_compare_exchange_u64((pg_atomic_uint64 *) &media->died,
										&died, 0))
		return true;
#else
	/* the pool is locked, so there is no postmaster */
	if (media->died != died)
		return true;
	media->died = 0;
#endif
	return PCachePersist(map, media, sizeof(*media));
}
