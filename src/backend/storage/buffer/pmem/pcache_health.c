/*-------------------------------------------------------------------------
 *
 * pcache_health.c
 *	  What the server knows of its pool's media.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_health.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pcache_internal.h"
#include "storage/bufpage.h"
#include "utils/injection_point.h"

/* What this process last heard of the pool's media. */
PCacheMediaReport PCacheMedia;

/* Tell what is wrong with the pool's media, or not known. */
static void
LogMedia(void)
{
	char		health[PCACHE_MEDIA_HEALTH_LEN];

	if (PCacheMedia.blocks == PCACHE_MEDIA_BAD)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" has bad blocks", PCacheThePool.path),
				 PCacheMedia.bad.truncated ?
				 errdetail("There are too many to list.") :
				 errdetail("%u ranges; the pages in them are dropped, and their slots not used.",
						   PCacheMedia.bad.n_ranges)));
	else if (PCacheMedia.blocks == PCACHE_MEDIA_UNKNOWN &&
			 PCacheThePool.fs_kind == PCACHE_FS_FSDAX)
		ereport(LOG,
				(errmsg("bad blocks of persistent cache pool \"%s\" are not known: %s",
						PCacheThePool.path, PCacheMedia.blocks_why)));
	if (PCacheMedia.health & PCACHE_DIMM_TROUBLE)
		ereport(WARNING,
				(errmsg("DIMMs of persistent cache pool \"%s\" are not healthy: %s",
						PCacheThePool.path,
						PCacheMediaHealthText(PCacheMedia.health, health, sizeof(health)))));
}

/* Ask for the state of the pool's media. */
void
PCacheAskMedia(void)
{
	PCacheMediaReportFree(&PCacheMedia);
	PCacheMediaQuery(PCacheThePool.path, PCacheThePool.fd,
					 PCacheThePool.fs_kind, &PCacheMedia);
	INJECTION_POINT("persistent-cache-media", &PCacheMedia);
	PCachePublishMedia(&PCacheMedia);
}

/* Likewise, and log what is wrong with it. */
void
PCacheQueryMedia(void)
{
	PCacheAskMedia();
	LogMedia();
}

/* Does any part of the slot's block lie on a bad block? */
bool
PCacheBlockIsBad(uint32 slot)
{
	return PCacheMediaRangeIsBad(&PCacheMedia,
								 PCacheCtl->superblock.blocks_offset +
								 (uint64) slot * BLCKSZ,
								 BLCKSZ);
}

/* Does the slot's descriptor lie on a bad block? */
bool
PCacheDescriptorIsBad(uint32 slot)
{
	return PCacheMediaRangeIsBad(&PCacheMedia,
								 PCACHE_DESCRIPTORS_OFFSET +
								 (uint64) slot * sizeof(PCacheDescriptor),
								 sizeof(PCacheDescriptor));
}
