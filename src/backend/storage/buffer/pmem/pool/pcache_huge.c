/*-------------------------------------------------------------------------
 *
 * pcache_huge.c
 *	  How many huge pages has the machine?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_huge.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_pool.h"

static bool
ReadCount(uint64 size_kb, const char *name, uint64 *count)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
			 (unsigned long long) size_kb, name);
	return PCacheReadNumber(path, "", count);
}

/*
 * What the kernel says of huge pages of that size, in kB, or of the size that it takes if
 * nobody says one (0).  Returns false if it does not tell.
 */
bool
PCacheReadHugePages(uint64 size_kb, PCacheHugePages *pages)
{
	uint64		idle;
	uint64		promised;
	uint64		overcommit;
	uint64		surplus;

	if ((size_kb == 0 && !PCacheReadNumber("/proc/meminfo", "Hugepagesize:", &size_kb)) ||
		!ReadCount(size_kb, "nr_hugepages", &pages->reserved) ||
		!ReadCount(size_kb, "free_hugepages", &idle) ||
		!ReadCount(size_kb, "resv_hugepages", &promised) ||
		!ReadCount(size_kb, "nr_overcommit_hugepages", &overcommit) ||
		!ReadCount(size_kb, "surplus_hugepages", &surplus))
		return false;
	pages->size_kb = size_kb;
	pages->unused = idle - Min(idle, promised);
	pages->more = overcommit - Min(overcommit, surplus);
	return true;
}
