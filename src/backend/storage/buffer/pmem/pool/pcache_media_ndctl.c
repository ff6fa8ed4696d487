/*-------------------------------------------------------------------------
 *
 * pcache_media_ndctl.c
 *	  What libndctl knows of the region and the DIMMs below a namespace.
 *
 * Without it, nothing is known of them.  Only what any user can read is asked, and so
 * server and tool agree whoever runs them.  Root alone may ask a DIMM for its SMART data,
 * of which all see that an event is pending, and see the addresses of the region's bad
 * blocks, which the kernel adds to those of the disk.
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

#include <ndctl/libndctl.h>

#include "pcache_media_internal.h"

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
 * Add one DIMM to the report.
 */
static void
AddDimm(struct ndctl_dimm *dimm, PCacheMediaReport *report)
{
	uint32		health = 0;

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

	/* the count is the kernel's, which it took from SMART at boot */
	PCacheMediaAddDimm(report, ndctl_dimm_get_devname(dimm),
					   ndctl_dimm_get_unique_id(dimm),
					   ndctl_dimm_get_dirty_shutdown(dimm), health);
}

/*
 * Add to the report all that is known of the region and of the DIMMs below a device.
 */
void
PCacheMediaQueryNamespace(const PCacheMediaDevice *device, PCacheMediaReport *report)
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
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("could not initialize libndctl: %m"));
		return;
	}
	ndctl_set_log_fn(ctx, DiscardLog);

	ndns = FindNamespace(ctx, device->claim);
	if (ndns == NULL)
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("libndctl knows no namespace of %s"),
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
	PCacheMediaAddRegion(report, ndctl_region_get_devname(region), domain);

	ndctl_mapping_foreach(region, mapping)
	{
		struct ndctl_dimm *dimm = ndctl_mapping_get_dimm(mapping);

		if (dimm != NULL)
			AddDimm(dimm, report);
		else
			PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("a DIMM of %s is missing"),
							   ndctl_region_get_devname(region));
	}
	ndctl_unref(ctx);
}

#else							/* !USE_LIBNDCTL */

#include "pcache_media_internal.h"

void
PCacheMediaQueryNamespace(const PCacheMediaDevice *device, PCacheMediaReport *report)
{
	PCacheMediaAddRegion(report, device->region, PCACHE_DOMAIN_UNKNOWN);
	PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("pg_pcache was built without libndctl"));
}

#endif							/* USE_LIBNDCTL */
