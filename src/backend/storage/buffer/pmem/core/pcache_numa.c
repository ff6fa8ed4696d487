/*-------------------------------------------------------------------------
 *
 * pcache_numa.c
 *	  Have the server run near its pool.
 *
 * Without libnuma nothing can be done, and "bind" says so.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_numa.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef USE_LIBNUMA
#include <numa.h>
#endif

#include "port/pg_numa.h"
#include "storage/pcache_core.h"

#ifdef USE_LIBNUMA

/* The nodes that this process may run on. */
static uint64
RunNodes(void)
{
	struct bitmask *mask = numa_get_run_node_mask();
	uint64		nodes = 0;

	for (int i = 0; i <= Min(numa_max_node(), PCACHE_MAX_NUMA_NODES - 1); i++)
	{
		if (numa_bitmask_isbitset(mask, i))
			nodes |= UINT64CONST(1) << i;
	}
	numa_bitmask_free(mask);
	return nodes;
}

/*
 * Move to the given nodes, which have CPUs; children that are forked later
 * inherit it.  memory_only has those of the pool's nodes that have none.
 */
static void
BindToNodes(uint64 nodes, uint64 memory_only)
{
	struct bitmask *mask = numa_allocate_nodemask();
	char		text[PCACHE_NUMA_TEXT_LEN];
	char		memory_text[PCACHE_NUMA_TEXT_LEN];
	int			rc;

	for (int i = 0; i < PCACHE_MAX_NUMA_NODES; i++)
	{
		if ((nodes & (UINT64CONST(1) << i)) != 0)
			numa_bitmask_setbit(mask, i);
	}
	rc = numa_run_on_node_mask(mask);
	numa_bitmask_free(mask);
	PCacheNumaNodesText(nodes, text, sizeof(text));
	if (rc < 0)
	{
		ereport(WARNING,
				(errmsg("could not bind the server to NUMA node %s of the persistent cache: %m",
						text)));
		return;
	}
	if (PCacheNumaNode(nodes) >= 0)
		numa_set_preferred(PCacheNumaNode(nodes));
	PCacheNumaNodesText(memory_only, memory_text, sizeof(memory_text));
	ereport(LOG,
			(errmsg("bound the server to NUMA node %s of the persistent cache", text),
			 memory_only == 0 ? 0 :
			 errdetail("It is the nearest one to node %s, which has memory and no CPUs.",
					   memory_text)));
}

/*
 * A node without CPUs is no mistake of anybody's, because nobody can run there.
 * For a pool in ordinary memory, "warn" says nothing either, since its pages
 * are where the process ran that allocated them.
 */
static void
RunNear(const PCacheMemoryPlace *place)
{
	uint64		near = PCacheNearestCpuNodes(place->numa_nodes);
	uint64		memory_only = PCacheMemoryOnlyNodes(place->numa_nodes);
	char		text[PCACHE_NUMA_TEXT_LEN];

	if ((RunNodes() & ~near) == 0)
		return;
	if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_BIND)
		BindToNodes(near, memory_only);
	else if (memory_only == 0 && place->n_devices > 0)
		ereport(WARNING,
				(errmsg("the server may run on other NUMA nodes than node %s of the persistent cache",
						PCacheNumaNodesText(place->numa_nodes, text, sizeof(text))),
				 errhint("Set \"persistent_cache_numa\" to \"bind\", or start the server with numactl.")));
}
#endif

/*
 * Do as persistent_cache_numa says, for a pool in the given place.  Called by
 * the postmaster before it forks anything.
 */
void
PCacheApplyNuma(const PCacheMemoryPlace *place)
{
	uint64		nodes = place->numa_nodes;

	if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_OFF)
		return;

	if (nodes == 0 || pg_numa_init() < 0)
	{
		if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_BIND)
			ereport(WARNING,
					(errmsg("could not bind the server to the NUMA node of the persistent cache"),
					 nodes == 0 ?
					 errdetail("The NUMA node of pool \"%s\" is not known.", PCacheThePool.path) :
					 errdetail("NUMA is not supported on this machine, or by this build.")));
		return;
	}

#ifdef USE_LIBNUMA
	RunNear(place);
#endif
}
