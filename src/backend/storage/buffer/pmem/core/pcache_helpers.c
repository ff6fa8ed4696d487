/*-------------------------------------------------------------------------
 *
 * pcache_helpers.c
 *	  Processes that share the work of a start, or of a stop.
 *
 * Whoever takes part claims a few slots at a time, so none waits for another
 * one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_helpers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <unistd.h>

#include "storage/pcache_core.h"

/* 512 MB: a start of 6 ms alone, 4 ms with a helper.  Less is not worth one. */
#define SLOTS_PER_HELPER		65536

/* The rest of the server wants to start, too. */
#define MAX_HELPERS_BY_SIZE		4

/* How many processors may this process use? */
static int
CountProcessors(void)
{
#ifdef __linux__
	cpu_set_t	set;

	/* fails if the host may have more than fit into the set */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
#endif
	return Max(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

/*
 * How many helpers are worth their start, if there is something to be done to
 * nslots slots?
 */
int
PCacheHelpersFor(uint64 nslots)
{
	if (persistent_cache_workers >= 0)
		return persistent_cache_workers;
	return Min(Min(nslots / SLOTS_PER_HELPER, MAX_HELPERS_BY_SIZE),
			   CountProcessors() - 1);
}

/*
 * Claim n slots of nslots, beginning with *first, or fewer if these are the last
 * ones.  *next is the first slot that no process has claimed yet.  Returns how
 * many; 0 if none is left.
 */
uint32
PCacheClaimSlots(pg_atomic_uint64 *next, uint32 nslots, uint32 n, uint32 *first)
{
	uint64		slot = pg_atomic_fetch_add_u64(next, n);

	*first = (uint32) Min(slot, nslots);
	return Min(n, nslots - *first);
}
