/*-------------------------------------------------------------------------
 *
 * pcache_sighting.c
 *	  What a server last saw of its cluster.
 *
 * A start that finds the cluster as the pool's server last saw it knows that
 * nobody else has run it to another checkpoint, and that it was not put back to an
 * earlier state: see rule "the cluster is as its server last saw it" of
 * README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_sighting.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <time.h>

#include "common/hashfn.h"
#include "storage/pcache_error.h"
#include "storage/pcache_witness.h"

/*
 * By how much the clock that files get their times from is ahead of the one that counts
 * from the boot on and is never set, in nanoseconds.  So it tells when the clock was set.
 */
int64
PCacheClockOffset(void)
{
	struct timespec real;
	struct timespec boot;

	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (real.tv_sec - boot.tv_sec) * PCACHE_NSEC + real.tv_nsec - boot.tv_nsec;
}

/*
 * The generation that a pg_control stands for: a hash of all that it says.
 *
 * In archive recovery the server writes it again and again to say how far replay
 * has come.  That is left out, because a sighting would always be late.  Hints of a page
 * may depend on it, but the sighting says how far WAL was replayed as well.
 */
uint64
PCacheGenerationOf(const ControlFileData *control)
{
	ControlFileData copy;

	/* with its padding, which is written and read like the rest */
	memcpy(&copy, control, sizeof(copy));
	if (copy.state == DB_IN_ARCHIVE_RECOVERY)
	{
		copy.time = 0;
		copy.minRecoveryPoint = 0;
		copy.minRecoveryPointTLI = 0;
	}
	return hash_bytes_extended((const unsigned char *) &copy,
							   offsetof(ControlFileData, crc), 0);
}

/*
 * What PCacheDescriptor.seq is in entries with a sum that are about a pg_control.  A start
 * that believes none of them changes ledger_id, and so nobody does later.  It is an even
 * number, and not one that other entries have.
 */
uint64
PCacheLedgerGeneration(const PCacheSuperblock *sb, const ControlFileData *control)
{
	return ((PCacheGenerationOf(control) ^ sb->ledger_id) & ~UINT64CONST(7)) +
		2 * PCACHE_DESC_SAVED_SEQ;
}

/*
 * Fill in a sighting of a pg_control, at a time in nanoseconds since 1970.  What
 * it says of WAL is left as it was.
 */
void
PCacheSightingMake(PCacheSighting *sighting, const ControlFileData *control,
				   int64 seen_at)
{
	uint64		generation = PCacheGenerationOf(control);

	/* whoever writes pg_control has synced it before somebody writes it again */
	if (sighting->generation != generation)
		sighting->synced_generation = sighting->generation;
	if (sighting->min_recovery_point != control->minRecoveryPoint)
		sighting->synced_recovery_point = Min(sighting->min_recovery_point,
											  control->minRecoveryPoint);
	sighting->generation = generation;
	sighting->checkpoint = control->checkPoint;
	sighting->min_recovery_point = control->minRecoveryPoint;
	sighting->seen_at = seen_at;
	sighting->clock_offset = PCacheClockOffset();
}

/*
 * Store a sighting, which gets the next number.  Whoever does may be killed at any
 * moment, and then the one before it is still there.  Nobody else may store one.  Only
 * persistent memory keeps it when power is lost, so an ordinary file is not written back.
 */
void
PCacheSightingStore(const PCacheMapping *map, PCacheSighting *sighting)
{
	PCacheSighting *slots = (PCacheSighting *) (map->base + PCACHE_SIGHTING_OFFSET);

	sighting->number++;
	sighting->crc = PCacheCrcOf(sighting);
	memcpy(&slots[sighting->number % 2], sighting, sizeof(*sighting));
	if (map->kind == PCACHE_PERSIST_PMEM)
		(void) PCachePersist(map, &slots[sighting->number % 2], sizeof(*sighting));
}

/*
 * Read the last sighting of an open pool.  Returns false, with all of it zero, if
 * there is none.
 */
bool
PCacheReadSighting(int fd, PCacheSighting *sighting)
{
	PCacheSighting slots[2];

	memset(sighting, 0, sizeof(*sighting));
	if (!PCacheReadExact(fd, slots, sizeof(slots), PCACHE_SIGHTING_OFFSET))
		return false;
	for (int i = 0; i < 2; i++)
	{
		if (slots[i].number > sighting->number && slots[i].crc == PCacheCrcOf(&slots[i]))
			*sighting = slots[i];
	}
	return sighting->number != 0;
}
