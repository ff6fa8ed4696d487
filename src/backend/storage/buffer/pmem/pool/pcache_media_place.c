/*-------------------------------------------------------------------------
 *
 * pcache_media_place.c
 *	  Devices and NUMA nodes that hold the pool, and how they are called.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_place.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "pcache_media_internal.h"
#include "port/pg_bitutils.h"

/*
 * Names for modes, as ndctl and daxctl have them; not translated.
 */
const char *
PCacheMemoryModeName(PCacheMemoryMode mode)
{
	switch (mode)
	{
		case PCACHE_MEMORY_RAW:
			return "raw";
		case PCACHE_MEMORY_FSDAX:
			return "fsdax";
		case PCACHE_MEMORY_SECTOR:
			return "sector";
		case PCACHE_MEMORY_SYSTEM_RAM:
			return "system-ram";
	}
	return "raw";
}

/*
 * Add a device, in order of names.  More of them than there is room for are
 * only counted.
 */
void
PCachePlaceAddDevice(PCacheMemoryPlace *place, const char *name,
					 PCacheMemoryMode mode, int numa_node)
{
	PCacheMemoryDevice *device = place->devices;
	uint32		n = Min(place->n_devices, PCACHE_MAX_MEMORY_DEVICES);
	uint32		i = 0;

	place->n_devices++;
	while (i < n && strcmp(device->name, name) < 0)
	{
		device++;
		i++;
	}
	if (i == PCACHE_MAX_MEMORY_DEVICES)
		return;
	memmove(device + 1, device,
			(Min(n, PCACHE_MAX_MEMORY_DEVICES - 1) - i) * sizeof(*device));
	strlcpy(device->name, name, sizeof(device->name));
	device->mode = mode;
	device->numa_node = numa_node;
}

/*
 * The NUMA node, or -1 if it is unknown or there are several.
 */
int
PCacheNumaNode(uint64 nodes)
{
	if (pg_popcount64(nodes) != 1)
		return -1;
	return pg_rightmost_one_pos64(nodes);
}

/*
 * Write the numbers of NUMA nodes into buf, as "2, 3", and return buf.
 */
const char *
PCacheNumaNodesText(uint64 nodes, char *buf, size_t len)
{
	buf[0] = '\0';
	for (int node = 0; node < PCACHE_MAX_NUMA_NODES; node++)
	{
		size_t		used = strlen(buf);

		if ((nodes & (UINT64CONST(1) << node)) != 0)
			snprintf(buf + used, len - used, used > 0 ? ", %d" : "%d", node);
	}
	return buf;
}

/*
 * Write a description of the devices into buf, and return buf:
 * "dax0.0 (system-ram, NUMA node 2), dax1.0 (system-ram, NUMA node 3)".
 */
const char *
PCachePlaceText(const PCacheMemoryPlace *place, char *buf, size_t len)
{
	uint32		n = Min(place->n_devices, PCACHE_MAX_MEMORY_DEVICES);

	buf[0] = '\0';
	for (uint32 i = 0; i < n; i++)
	{
		const PCacheMemoryDevice *device = &place->devices[i];
		const char *mode = PCacheMemoryModeName(device->mode);
		const char *separator = i > 0 ? ", " : "";
		size_t		used = strlen(buf);

		if (device->numa_node >= 0)
			snprintf(buf + used, len - used, _("%s%s (%s, NUMA node %d)"),
					 separator, device->name, mode, device->numa_node);
		else
			snprintf(buf + used, len - used, "%s%s (%s)",
					 separator, device->name, mode);
	}
	if (place->n_devices > n)
		strlcat(buf, ", ...", len);
	return buf;
}
