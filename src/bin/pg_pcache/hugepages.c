/*-------------------------------------------------------------------------
 *
 * hugepages.c
 *	  Would the server start without its pool?
 *
 * With the pool it needs no huge pages of its own.  Without it, it takes huge_pages as it is set,
 * and with "on" it does not start if there are not enough.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/hugepages.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/stat.h>

#include "pg_pcache.h"
#include "storage/pcache_pool.h"

/*
 * How many huge pages of that size will shared memory take?  A server that is down tells
 * exactly; while one runs, its buffers are the least.  Returns 0 if that is unknown.
 */
static uint64
CountNeeded(const Cluster *c, uint64 size_kb)
{
	uint64		bytes = size_kb * 1024;
	char	   *value;
	uint64		needed = 0;

	if (c->server_pid != 0)
		return (Max(c->conf.nbuffers, 0) * BLCKSZ + bytes - 1) / bytes;
	value = ReadSetting(c->options, "shared_memory_size_in_huge_pages");
	if (value != NULL && value[0] != '-')
		needed = strtoull(value, NULL, 10);
	free(value);
	return needed;
}

/*
 * How many can the server have?  A pool on hugetlbfs gives its own back before, and so does
 * a server that runs.
 */
static uint64
CountAvailable(const Cluster *c, const PCacheHugePages *pages)
{
	uint64		returned = c->server_pid != 0 ? PCacheHugeSegment(c->server_pid) : 0;
	struct stat st;

	if (c->pool.fd >= 0 && c->pool.fs_kind == PCACHE_FS_HUGETLBFS && fstat(c->pool.fd, &st) == 0)
		returned += (uint64) st.st_blocks * 512;
	return pages->unused + pages->more + returned / (pages->size_kb * 1024);
}

/*
 * Does huge_pages keep the server down if it cannot use the pool?  Then err says why.
 * False if that is unknown.
 */
bool
HugePagesAreLacking(const Cluster *c, PCacheError *err)
{
	PCacheHugePages pages;
	uint64		needed;
	uint64		available;

	if (!c->conf.needs_huge_pages || !PCacheReadHugePages(c->conf.huge_page_kb, &pages))
		return false;
	needed = CountNeeded(c, pages.size_kb);
	available = CountAvailable(c, &pages);
	if (needed <= available)
		return false;
	PCacheSetError(err, _("\"%s\" is \"on\", which takes %llu huge pages of %llu kB then, and there are %llu"),
				   "huge_pages", (unsigned long long) needed,
				   (unsigned long long) pages.size_kb, (unsigned long long) available);
	PCacheSetHint(err, _("Set \"%s\" to \"try\", or reserve as many with vm.nr_hugepages."),
				  "huge_pages");
	return true;
}
