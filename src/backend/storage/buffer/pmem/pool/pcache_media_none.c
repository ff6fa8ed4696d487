/*-------------------------------------------------------------------------
 *
 * pcache_media_none.c
 *	  What sysfs tells of the region and the DIMMs below a namespace.
 *
 * The twin of pcache_media_ndctl.c for builds without libndctl.  All that it
 * lacks is the DIMMs' SMART data and the region's own list of bad blocks.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_none.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifndef USE_LIBNDCTL

#include "pcache_media_internal.h"

#ifdef __linux__

/*
 * Parse a decimal number that is all of digits.  Returns false if it is none.
 */
static bool
ParseInteger(const char *digits, int64 *number)
{
	char	   *end;

	errno = 0;
	*number = strtoll(digits, &end, 10);
	return errno == 0 && end != digits && *end == '\0';
}

/*
 * Health flags from the words in a DIMM's "flags" attribute.
 */
static uint32
ParseFlags(char *words)
{
	uint32		health = 0;
	char	   *rest = NULL;

	for (const char *word = strtok_r(words, " ", &rest);
		 word != NULL;
		 word = strtok_r(NULL, " ", &rest))
	{
		if (strcmp(word, "not_armed") == 0)
			health |= PCACHE_DIMM_NOT_ARMED;
		else if (strcmp(word, "map_fail") == 0)
			health |= PCACHE_DIMM_MAP_FAIL;
		else if (strcmp(word, "flush_fail") == 0)
			health |= PCACHE_DIMM_FLUSH_FAIL;
		else if (strcmp(word, "save_fail") == 0)
			health |= PCACHE_DIMM_SAVE_FAIL;
		else if (strcmp(word, "restore_fail") == 0)
			health |= PCACHE_DIMM_RESTORE_FAIL;
		else if (strcmp(word, "smart_event") == 0)
			health |= PCACHE_DIMM_SMART_EVENT;
	}
	return health;
}

/*
 * Add one DIMM (nmem0) to the report.  bus_path is its parent in sysfs.
 */
static void
AddDimm(const PCacheMediaEnv *env, const char *bus_path, const char *name,
		PCacheMediaReport *report)
{
	/* Each platform has its own directory for what only its firmware knows. */
	static const char *const platforms[] = {"nfit", "papr", "cxl"};
	char		directory[MAXPGPATH];
	char		id[256];
	char		value[256];
	bool		has_id = false;
	int64		count = -1;
	uint32		health = PCACHE_DIMM_SMART_UNKNOWN;

	for (int i = 0; i < (int) lengthof(platforms) && !has_id; i++)
	{
		snprintf(directory, sizeof(directory), "%s/%s/%s", bus_path, name, platforms[i]);
		has_id = PCacheMediaReadAttribute(env, directory, "id", id, sizeof(id));
	}
	if (has_id)
	{
		if (!PCacheMediaReadAttribute(env, directory, "dirty_shutdown",
									  value, sizeof(value)) ||
			!ParseInteger(value, &count))
			count = -1;
		if (PCacheMediaReadAttribute(env, directory, "flags", value, sizeof(value)))
			health |= ParseFlags(value);
		else
			health |= PCACHE_DIMM_FLAGS_UNKNOWN;
	}
	else
		health |= PCACHE_DIMM_FLAGS_UNKNOWN;
	PCacheMediaAddDimm(report, name, has_id ? id : NULL, count, health);
}

/*
 * Add all DIMMs of a region.
 */
static void
AddDimms(const PCacheMediaEnv *env, const char *region_path,
		 PCacheMediaReport *report)
{
	char		bus_path[MAXPGPATH];
	char		value[256];
	int64		n_mappings;

	strlcpy(bus_path, region_path, sizeof(bus_path));
	*strrchr(bus_path, '/') = '\0';

	if (!PCacheMediaReadAttribute(env, region_path, "mappings", value, sizeof(value)))
	{
		PCacheMediaDimmsUnknown(report, _("could not read \"%s/%s\": %m"),
								region_path, "mappings");
		return;
	}
	if (!ParseInteger(value, &n_mappings))
	{
		PCacheMediaDimmsUnknown(report, _("could not parse \"%s/%s\""),
								region_path, "mappings");
		return;
	}
	for (int64 i = 0; i < n_mappings; i++)
	{
		char		name[32];
		char	   *comma;

		/* nmem0,OFFSET,LENGTH,POSITION */
		snprintf(name, sizeof(name), "mapping%lld", (long long) i);
		if (!PCacheMediaReadAttribute(env, region_path, name, value, sizeof(value)))
		{
			PCacheMediaDimmsUnknown(report, _("could not read \"%s/%s\": %m"),
									region_path, name);
			return;
		}
		comma = strchr(value, ',');
		if (comma == NULL || comma == value)
		{
			PCacheMediaDimmsUnknown(report, _("could not parse \"%s/%s\""),
									region_path, name);
			return;
		}
		*comma = '\0';
		AddDimm(env, bus_path, value, report);
	}
}

void
PCacheMediaQueryNamespace(const PCacheMediaEnv *env,
						  const PCacheMediaDevice *device,
						  PCacheMediaReport *report, PCacheRangeList *bad)
{
	const char *slash = strrchr(device->region_path, '/');
	char		namespace_name[PCACHE_MEDIA_NAME_LEN];
	char		value[64];
	PCachePersistenceDomain domain = PCACHE_DOMAIN_UNKNOWN;
	int64		numa_node;

	/* A pfn or btt device names the namespace that it is made of. */
	if (!PCacheMediaReadAttribute(env, device->claim_path, "namespace",
								  namespace_name, sizeof(namespace_name)))
		strlcpy(namespace_name, device->claim, sizeof(namespace_name));

	if (PCacheMediaReadAttribute(env, device->region_path, "persistence_domain",
								 value, sizeof(value)))
	{
		if (strcmp(value, "cpu_cache") == 0)
			domain = PCACHE_DOMAIN_CPU_CACHE;
		else if (strcmp(value, "memory_controller") == 0)
			domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
		else if (strcmp(value, "none") == 0)
			domain = PCACHE_DOMAIN_NONE;
	}
	if (!PCacheMediaReadAttribute(env, device->region_path, "numa_node",
								  value, sizeof(value)) ||
		!ParseInteger(value, &numa_node) ||
		numa_node < 0 || numa_node > PG_INT32_MAX)
		numa_node = -1;

	PCacheMediaSetPlace(report, device, namespace_name, slash + 1, domain,
						(int) numa_node);
	AddDimms(env, device->region_path, report);
}

#else							/* !__linux__ */

void
PCacheMediaQueryNamespace(const PCacheMediaEnv *env,
						  const PCacheMediaDevice *device,
						  PCacheMediaReport *report, PCacheRangeList *bad)
{
}

#endif							/* __linux__ */

#endif							/* !USE_LIBNDCTL */
