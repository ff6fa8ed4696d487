/*-------------------------------------------------------------------------
 *
 * pcache_media_ndctl.c
 *	  What libndctl knows of the region and the DIMMs below a namespace.
 *
 * Without it, nothing is known of them.  Bad blocks are read from sysfs in any case, see
 * pcache_media_sysfs.c.
 *
 * Most of it can be read by any user.  Root alone may ask a DIMM for its
 * SMART data and see physical addresses, without which the region's bad
 * blocks can't be located: what is refused is left out, since the disk's own
 * list of bad blocks is read in any case.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_ndctl.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#ifdef USE_LIBNDCTL

#include <limits.h>
#include <linux/ndctl.h>
#include <ndctl/libndctl.h>

#include "pcache_media_internal.h"

/* struct badblock counts sectors of this size. */
#define SECTOR_SIZE				512

/*
 * libndctl complains to stderr of each attribute that a user may not read or
 * that a DIMM does not have.
 */
static void
DiscardLog(struct ndctl_ctx *ctx, int priority, const char *file, int line,
		   const char *fn, const char *format, va_list args)
{
}

/*
 * Name of the device that the kernel made a disk of: the namespace itself, or
 * the pfn or btt device that claimed it.
 */
static const char *
ClaimOfNamespace(struct ndctl_namespace *ndns)
{
	struct ndctl_pfn *pfn = ndctl_namespace_get_pfn(ndns);
	struct ndctl_btt *btt = ndctl_namespace_get_btt(ndns);

	if (pfn != NULL)
		return ndctl_pfn_get_devname(pfn);
	if (btt != NULL)
		return ndctl_btt_get_devname(btt);
	return ndctl_namespace_get_devname(ndns);
}

/*
 * Find the namespace with a given claim.  Returns NULL if there is none.
 *
 * Asking each namespace for its block device would make libndctl wait until
 * all buses are probed, and ours must be: its file system is mounted.
 */
static struct ndctl_namespace *
FindNamespace(struct ndctl_ctx *ctx, const char *claim)
{
	struct ndctl_bus *bus;
	struct ndctl_region *region;
	struct ndctl_namespace *ndns;

	ndctl_bus_foreach(ctx, bus)
	{
		ndctl_region_foreach(bus, region)
		{
			ndctl_namespace_foreach(region, ndns)
			{
				if (strcmp(ClaimOfNamespace(ndns), claim) == 0)
					return ndns;
			}
		}
	}
	return NULL;
}

/*
 * Add the region's bad blocks, as far as they are on the namespace's disk.
 * What is behind the end of the disk is left to the caller.
 */
static void
AddRegionBadBlocks(struct ndctl_region *region, struct ndctl_namespace *ndns,
				   PCacheRangeList *bad)
{
	struct ndctl_pfn *pfn = ndctl_namespace_get_pfn(ndns);
	unsigned long long region_start = ndctl_region_get_resource(region);
	unsigned long long disk_start;
	struct badblock *badblock;

	/* A pfn device keeps its page map before the disk's first byte. */
	disk_start = pfn != NULL ? ndctl_pfn_get_resource(pfn) :
		ndctl_namespace_get_resource(ndns);

	/* All ones, or with some kernels 0, if we may not know. */
	if (region_start == ULLONG_MAX || region_start == 0 ||
		disk_start == ULLONG_MAX || disk_start < region_start)
		return;

	ndctl_region_badblock_foreach(region, badblock)
	{
		uint64		start = region_start + badblock->offset * SECTOR_SIZE;
		uint64		end = start + (uint64) badblock->len * SECTOR_SIZE;

		if (end <= disk_start)
			continue;
		start = Max(start, disk_start);
		PCacheRangeAdd(bad, start - disk_start, end - start);
	}
}

/*
 * Ask a DIMM for its SMART data.  Returns health flags, and in *count the
 * number of unsafe shutdowns if it has one to give.
 */
static uint32
QuerySmart(struct ndctl_dimm *dimm, int64 *count)
{
	struct ndctl_cmd *cmd = NULL;
	uint32		health = PCACHE_DIMM_SMART_UNKNOWN;

	if (ndctl_dimm_is_cmd_supported(dimm, ND_CMD_SMART))
		cmd = ndctl_dimm_cmd_new_smart(dimm);
	if (cmd == NULL)
		return health;

	if (ndctl_cmd_submit_xlat(cmd) >= 0)
	{
		unsigned int valid = ndctl_cmd_smart_get_flags(cmd);

		if (valid & ND_SMART_HEALTH_VALID)
		{
			unsigned int state = ndctl_cmd_smart_get_health(cmd);

			health = 0;
			if (state & (ND_SMART_CRITICAL_HEALTH | ND_SMART_FATAL_HEALTH))
				health |= PCACHE_DIMM_SMART_CRITICAL;
			if (state & ND_SMART_NON_CRITICAL_HEALTH)
				health |= PCACHE_DIMM_SMART_EVENT;
		}
		if ((valid & ND_SMART_ALARM_VALID) &&
			ndctl_cmd_smart_get_alarm_flags(cmd) != 0)
			health |= PCACHE_DIMM_SMART_EVENT;
		if (valid & ND_SMART_SHUTDOWN_COUNT_VALID)
			*count = ndctl_cmd_smart_get_shutdown_count(cmd);
	}
	ndctl_cmd_unref(cmd);
	return health;
}

/*
 * Add one DIMM to the report.
 */
static void
AddDimm(struct ndctl_dimm *dimm, PCacheMediaReport *report)
{
	int64		smart_count = -1;
	int64		count = ndctl_dimm_get_dirty_shutdown(dimm);
	uint32		health = QuerySmart(dimm, &smart_count);

	if (ndctl_dimm_failed_arm(dimm))
		health |= PCACHE_DIMM_NOT_ARMED;
	if (ndctl_dimm_failed_map(dimm))
		health |= PCACHE_DIMM_MAP_FAIL;
	if (ndctl_dimm_failed_flush(dimm))
		health |= PCACHE_DIMM_FLUSH_FAIL;
	if (ndctl_dimm_failed_save(dimm))
		health |= PCACHE_DIMM_SAVE_FAIL;
	if (ndctl_dimm_failed_restore(dimm))
		health |= PCACHE_DIMM_RESTORE_FAIL;
	if (ndctl_dimm_smart_pending(dimm))
		health |= PCACHE_DIMM_SMART_EVENT;

	/*
	 * The kernel's count, which it took from SMART at boot, can be read by
	 * all users, so server and tool agree on it whoever runs them.
	 */
	PCacheMediaAddDimm(report, ndctl_dimm_get_devname(dimm),
					   ndctl_dimm_get_unique_id(dimm),
					   count >= 0 ? count : smart_count, health);
}

void
PCacheMediaQueryNamespace(const PCacheMediaEnv *env,
						  const PCacheMediaDevice *device,
						  PCacheMediaReport *report, PCacheRangeList *bad)
{
	struct ndctl_ctx *ctx;
	struct ndctl_namespace *ndns;
	struct ndctl_region *region;
	struct ndctl_mapping *mapping;
	PCachePersistenceDomain domain = PCACHE_DOMAIN_UNKNOWN;
	int			rc;

	rc = ndctl_new(&ctx);
	if (rc < 0)
	{
		errno = -rc;
		PCacheMediaDimmsUnknown(report, _("could not initialize libndctl: %m"));
		return;
	}
	ndctl_set_log_fn(ctx, DiscardLog);

	ndns = FindNamespace(ctx, device->claim);
	if (ndns == NULL)
	{
		PCacheMediaDimmsUnknown(report, _("libndctl knows no namespace of %s"),
								device->claim);
		ndctl_unref(ctx);
		return;
	}
	region = ndctl_namespace_get_region(ndns);

	switch (ndctl_region_get_persistence_domain(region))
	{
		case PERSISTENCE_NONE:
			domain = PCACHE_DOMAIN_NONE;
			break;
		case PERSISTENCE_MEM_CTRL:
			domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
			break;
		case PERSISTENCE_CPU_CACHE:
			domain = PCACHE_DOMAIN_CPU_CACHE;
			break;
		case PERSISTENCE_UNKNOWN:
			break;
	}
	PCacheMediaAddNamespace(report, ndctl_namespace_get_devname(ndns),
							ndctl_region_get_devname(region), domain);

	ndctl_mapping_foreach(region, mapping)
	{
		struct ndctl_dimm *dimm = ndctl_mapping_get_dimm(mapping);

		if (dimm != NULL)
			AddDimm(dimm, report);
		else
			PCacheMediaDimmsUnknown(report, _("a DIMM of %s is missing"),
									ndctl_region_get_devname(region));
	}

	AddRegionBadBlocks(region, ndns, bad);
	ndctl_unref(ctx);
}

#else							/* !USE_LIBNDCTL */

#include "pcache_media_internal.h"

void
PCacheMediaQueryNamespace(const PCacheMediaEnv *env,
						  const PCacheMediaDevice *device,
						  PCacheMediaReport *report, PCacheRangeList *bad)
{
	PCacheMediaAddNamespace(report, device->claim, PCacheMediaBaseName(device->region_path),
							PCACHE_DOMAIN_UNKNOWN);
	PCacheMediaDimmsUnknown(report, _("pg_pcache was built without libndctl"));
}

#endif							/* USE_LIBNDCTL */
