/*-------------------------------------------------------------------------
 *
 * pcache_cgroup.h
 *	  How much memory a control group may use.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_cgroup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_CGROUP_H
#define PCACHE_CGROUP_H

#include "storage/pcache_error.h"

#define PCACHE_CGROUP_ROOT	"/sys/fs/cgroup"

/*
 * What the server should have beside the pool: its other shared memory, and some sessions.
 * It is a guess, and is for a limit that is far too small.
 */
#define PCACHE_MEMORY_BESIDE(pool_size)	Max((pool_size) / 8, UINT64CONST(128) << 20)

/* Shared memory beside the buffers, which depends on many settings: also a guess. */
#define PCACHE_SEGMENT_BESIDE(buffers)	((buffers) / 32 + (UINT64CONST(128) << 20))

/* Of a control group and those above it, in bytes; PG_UINT64_MAX without a limit. */
typedef struct PCacheCgroup
{
	uint64		limit;
	uint64		room;			/* the page cache counts as free */
} PCacheCgroup;

extern bool PCacheReadNumber(const char *path, const char *name, uint64 *number);
extern PCacheCgroup PCacheReadCgroup(const char *groups, const char *root);
extern bool PCacheMemoryWillDo(uint64 lacking, uint64 size, const char *groups,
							   PCacheError *err);

#endif							/* PCACHE_CGROUP_H */
