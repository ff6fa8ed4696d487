/*-------------------------------------------------------------------------
 *
 * pcache_media_numa.c
 *	  NUMA nodes of a pool in memory, and which of them have no CPUs.
 *
 * A node without CPUs is the memory of a device: of a CXL expander, or of
 * persistent memory in the mode system-ram.  All that is known of nodes comes
 * from libnuma; without it, nothing is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_numa.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifdef USE_LIBNUMA
#include <numa.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#ifndef FRONTEND
#include "miscadmin.h"
#endif
#include "pcache_media_internal.h"
#include "port/pg_numa.h"

#if defined(USE_LIBNUMA) && defined(MADV_POPULATE_READ)

/* As many pages of the pool are asked for their node. */
#define SAMPLES		64

/*
 * Find the NUMA nodes of some of a mapping's pages, as a bit per node, or 0 if
 * they can't be found.
 *
 * A page has to be in our page table to be asked for.  It is put there by
 * madvise(), which fails for a page that is bad, where a load would raise
 * SIGBUS.  The pages are a golden section of the pool apart, so that no way to
 * interleave them over nodes is met by a multiple of its period.
 */
static uint64
SampleNodes(char *base, uint64 size)
{
	const double golden_section = 0.6180339887498949;
	uint64		page_size = sysconf(_SC_PAGESIZE);
	void	   *pages[SAMPLES];
	int			nodes_of[SAMPLES];
	unsigned long n = 0;
	double		position = 0;
	uint64		nodes = 0;
	int			rc;

	for (int i = 0; i < SAMPLES; i++)
	{
		char	   *page = base + (uint64) (position * (size / page_size)) * page_size;

		if (madvise(page, page_size, MADV_POPULATE_READ) == 0)
			pages[n++] = page;
		position += golden_section;
		if (position >= 1)
			position -= 1;
	}

#ifndef FRONTEND
	HOLD_INTERRUPTS();			/* the mapping must not be left behind */
#endif
	rc = pg_numa_query_pages(0, n, pages, nodes_of);
#ifndef FRONTEND
	RESUME_INTERRUPTS();
#endif
	if (rc < 0)
		return 0;
	for (unsigned long i = 0; i < n; i++)
	{
		if (nodes_of[i] >= PCACHE_MAX_NUMA_NODES)
			return 0;
		if (nodes_of[i] >= 0)
			nodes |= UINT64CONST(1) << nodes_of[i];
	}
	return nodes;
}

/*
 * Find the NUMA nodes of a pool in memory, as a bit per node, or 0 if they
 * can't be found.
 *
 * A pool with holes is not asked, since that would allocate pages.
 */
uint64
PCacheMediaGetNodes(int fd)
{
	struct stat st;
	char	   *base;
	uint64		nodes;

	if (pg_numa_init() < 0 || fstat(fd, &st) < 0 || st.st_size == 0 ||
		(uint64) st.st_blocks * 512 < (uint64) st.st_size)
		return 0;
	base = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return 0;
	nodes = SampleNodes(base, st.st_size);
	munmap(base, st.st_size);
	return nodes;
}

#else

uint64
PCacheMediaGetNodes(int fd)
{
	return 0;
}

#endif							/* USE_LIBNUMA && MADV_POPULATE_READ */

#ifdef USE_LIBNUMA

static bool
HasCpus(int node)
{
	struct bitmask *cpus = numa_allocate_cpumask();
	bool		has = numa_node_to_cpus(node, cpus) < 0 ||
		numa_bitmask_weight(cpus) > 0;

	numa_free_cpumask(cpus);
	return has;
}

#endif

/*
 * Those of the given NUMA nodes that have no CPUs.
 */
uint64
PCacheMemoryOnlyNodes(uint64 nodes)
{
	uint64		result = 0;

#ifdef USE_LIBNUMA
	if (nodes == 0 || numa_available() < 0)
		return 0;
	for (int node = 0; node < PCACHE_MAX_NUMA_NODES; node++)
	{
		if ((nodes & (UINT64CONST(1) << node)) != 0 && !HasCpus(node))
			result |= UINT64CONST(1) << node;
	}
#endif
	return result;
}
