/*-------------------------------------------------------------------------
 *
 * pcache_media_daxctl.c
 *	  What libdaxctl knows of the dax devices that serve as memory.
 *
 * Used by the server and by pg_pcache when configured --with-libndctl, which
 * stands for libdaxctl as well; the twin is pcache_media_dax_none.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_daxctl.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifdef USE_LIBNDCTL

#include <daxctl/libdaxctl.h>

#include "pcache_media_internal.h"

/* libdaxctl complains to stderr of what a user may not read. */
static void
DiscardLog(struct daxctl_ctx *ctx, int priority, const char *file, int line,
		   const char *fn, const char *format, va_list args)
{
}

void
PCacheMediaQueryDax(const PCacheMediaEnv *env, uint64 nodes,
					PCacheMemoryPlace *place)
{
	struct daxctl_ctx *ctx;
	struct daxctl_region *region;
	struct daxctl_dev *dev;

	/* most hosts have no such memory, and then nothing is to be asked */
	if (nodes == 0 || daxctl_new(&ctx) < 0)
		return;
	daxctl_set_log_fn(ctx, DiscardLog);
	daxctl_region_foreach(ctx, region)
	{
		daxctl_dev_foreach(region, dev)
		{
			int			node = daxctl_dev_get_target_node(dev);

			/* only a device in the mode system-ram has memory */
			if (daxctl_dev_get_memory(dev) != NULL &&
				node >= 0 && node < PCACHE_MAX_NUMA_NODES &&
				(nodes & (UINT64CONST(1) << node)) != 0)
				PCachePlaceAddDevice(place, daxctl_dev_get_devname(dev),
									 PCACHE_MEMORY_SYSTEM_RAM, node);
		}
	}
	daxctl_unref(ctx);
}

#endif							/* USE_LIBNDCTL */
