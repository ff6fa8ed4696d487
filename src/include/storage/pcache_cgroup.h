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

#define PCACHE_CGROUP_ROOT	"/sys/fs/cgroup"

/* Of a control group and those above it, in bytes; PG_UINT64_MAX without a limit. */
typedef struct PCacheCgroup
{
	uint64		limit;
	uint64		room;			/* the page cache counts as free */
} PCacheCgroup;

extern bool PCacheReadNumber(const char *path, const char *name, uint64 *number);
extern PCacheCgroup PCacheReadCgroup(const char *groups, const char *root);

#endif							/* PCACHE_CGROUP_H */
