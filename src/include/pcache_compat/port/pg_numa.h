/*-------------------------------------------------------------------------
 *
 * pg_numa.h
 *	  For servers that have no such header, which 18 was the first to have.
 *
 * The compiler looks here only for what it finds nowhere else (-idirafter).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/pcache_compat/port/pg_numa.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_NUMA_H
#define PG_NUMA_H

#ifdef USE_LIBNUMA

#include <numa.h>
#include <numaif.h>

static inline int
pg_numa_init(void)
{
	/* libnuma before 2.0.19 does not notice that a container forbids it */
	if (get_mempolicy(NULL, NULL, 0, 0, 0) < 0 && errno == EPERM)
		return -1;
	return numa_available();
}

static inline int
pg_numa_query_pages(int pid, unsigned long count, void **pages, int *status)
{
	return numa_move_pages(pid, count, pages, NULL, status, 0) < 0 ? -1 : 0;
}

#endif

#endif							/* PG_NUMA_H */
