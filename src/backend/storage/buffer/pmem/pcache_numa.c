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
 *	  src/backend/storage/buffer/pmem/pcache_numa.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef USE_LIBNUMA
#include <numa.h>
#endif

#include "pcache_internal.h"
#include "port/pg_numa.h"

#ifdef USE_LIBNUMA

/* May this process run on any node but this one? */
static bool
RunsElsewhere(int node)
{
	struct bitmask *mask = numa_get_run_node_mask();
	bool		elsewhere = false;

	for (int i = 0; i <= numa_max_node(); i++)
	{
		if (i != node && numa_bitmask_isbitset(mask, i))
			elsewhere = true;
	}
	numa_bitmask_free(mask);
	return elsewhere;
}

/* Move to the node; children that are forked later inherit it. */
static void
BindToNode(int node)
{
	if (numa_run_on_node(node) < 0)
	{
		ereport(WARNING,
				(errmsg("could not bind the server to NUMA node %d of the persistent cache: %m",
						node)));
		return;
	}
	numa_set_preferred(node);
	ereport(LOG,
			(errmsg("bound the server to NUMA node %d of the persistent cache", node)));
}
#endif

/*
 * Do as persistent_cache_numa says, for a pool on the given NUMA node (-1 if
 * that is not known).  Called by the postmaster before it forks anything.
 */
void
PCacheApplyNuma(int node)
{
	if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_OFF)
		return;

	if (node < 0 || pg_numa_init() < 0)
	{
		if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_BIND)
			ereport(WARNING,
					(errmsg("could not bind the server to the NUMA node of the persistent cache"),
					 node < 0 ?
					 errdetail("The NUMA node of pool \"%s\" is not known.", PCacheThePool.path) :
					 errdetail("NUMA is not supported on this machine, or by this build.")));
		return;
	}

#ifdef USE_LIBNUMA
	if (!RunsElsewhere(node))
		return;
	if (persistent_cache_numa == PERSISTENT_CACHE_NUMA_BIND)
		BindToNode(node);
	else
		ereport(WARNING,
				(errmsg("the server may run on other NUMA nodes than node %d of the persistent cache", node),
				 errhint("Set \"persistent_cache_numa\" to \"bind\", or start the server with numactl.")));
#endif
}
