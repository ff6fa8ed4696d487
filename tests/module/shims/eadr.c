/*-------------------------------------------------------------------------
 *
 * eadr.c
 *	  A platform that saves the CPU caches when power is lost.
 *
 * Preloaded beside the shim of tests/powercut, which has the pool on fsdax.  All block devices
 * are a disk that was made of a namespace: EADR_DISK is its directory in a copy of what sysfs
 * would have, .../ndbus0/region0/namespace0.0/block/pmem0.  libndctl knows that namespace, and
 * says of its region what the file persistence_domain there says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/module/shims/eadr.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

char *
realpath(const char *path, char *resolved)
{
	char	   *(*next) (const char *, char *) = dlsym(RTLD_NEXT, "realpath");

	if (strncmp(path, "/sys/dev/block/", 15) == 0)
		path = getenv("EADR_DISK");
	return next(path, resolved);
}

char *
__realpath_chk(const char *path, char *resolved, size_t len)
{
	return realpath(path, resolved);
}

/* There is one of each. */
static int	thing;

#define ONE(function)	void *function(void *of) { return &thing; }
#define NONE(function)	void *function(void *of) { return NULL; }

ONE(ndctl_unref)
ONE(ndctl_bus_get_first)
NONE(ndctl_bus_get_next)
ONE(ndctl_region_get_first)
NONE(ndctl_region_get_next)
ONE(ndctl_namespace_get_first)
NONE(ndctl_namespace_get_next)
ONE(ndctl_namespace_get_region)
NONE(ndctl_namespace_get_pfn)
NONE(ndctl_namespace_get_btt)
NONE(ndctl_mapping_get_first)
NONE(ndctl_region_get_first_badblock)

int
ndctl_new(void **ctx)
{
	*ctx = &thing;
	return 0;
}

void
ndctl_set_log_fn(void *ctx, void *function)
{
}

const char *
ndctl_namespace_get_devname(void *namespace)
{
	return "namespace0.0";
}

const char *
ndctl_region_get_devname(void *region)
{
	return "region0";
}

int
ndctl_region_get_numa_node(void *region)
{
	return 0;
}

/* as without the right to know it */
unsigned long long
ndctl_region_get_resource(void *region)
{
	return ULLONG_MAX;
}

unsigned long long
ndctl_namespace_get_resource(void *namespace)
{
	return ULLONG_MAX;
}

/* PERSISTENCE_CPU_CACHE */
int
ndctl_region_get_persistence_domain(void *region)
{
	return 20;
}
