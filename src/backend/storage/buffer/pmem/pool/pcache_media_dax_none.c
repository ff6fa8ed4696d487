/*-------------------------------------------------------------------------
 *
 * pcache_media_dax_none.c
 *	  What sysfs tells of the dax devices that serve as memory.
 *
 * The twin of pcache_media_daxctl.c for builds without libdaxctl.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_dax_none.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifndef USE_LIBNDCTL

#ifdef __linux__
#include <dirent.h>
#include <limits.h>
#endif

#include "pcache_media_internal.h"

#ifdef __linux__

/* Does the driver kmem, which makes memory of it, have the device? */
static bool
IsSystemRam(const char *device_path)
{
	char		link_path[MAXPGPATH];
	char		driver[PATH_MAX];

	snprintf(link_path, sizeof(link_path), "%s/driver", device_path);
	return realpath(link_path, driver) != NULL &&
		strcmp(PCacheMediaBaseName(driver), "kmem") == 0;
}

void
PCacheMediaQueryDax(const PCacheMediaEnv *env, uint64 nodes,
					PCacheMemoryPlace *place)
{
	char		devices[MAXPGPATH];
	DIR		   *dir;
	struct dirent *entry;

	/* most hosts have no such memory, and then nothing is to be asked */
	if (nodes == 0)
		return;
	snprintf(devices, sizeof(devices), "%s/bus/dax/devices", env->sysfs_root);
	dir = opendir(devices);
	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL)
	{
		char		path[MAXPGPATH];
		char		value[64];
		int			node;

		snprintf(path, sizeof(path), "%s/%s", devices, entry->d_name);
		if (entry->d_name[0] != '.' && IsSystemRam(path) &&
			PCacheMediaReadAttribute(env, path, "target_node", value, sizeof(value)) &&
			sscanf(value, "%d", &node) == 1 &&
			node >= 0 && node < PCACHE_MAX_NUMA_NODES &&
			(nodes & (UINT64CONST(1) << node)) != 0)
			PCachePlaceAddDevice(place, entry->d_name,
								 PCACHE_MEMORY_SYSTEM_RAM, node);
	}
	closedir(dir);
}

#else							/* !__linux__ */

void
PCacheMediaQueryDax(const PCacheMediaEnv *env, uint64 nodes,
					PCacheMemoryPlace *place)
{
}

#endif							/* __linux__ */

#endif							/* !USE_LIBNDCTL */
