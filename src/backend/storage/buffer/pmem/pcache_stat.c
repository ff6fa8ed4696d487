/*-------------------------------------------------------------------------
 *
 * pcache_stat.c
 *	  What the persistent cache tells about itself; contrib/pg_pcache shows it.
 *
 * Nobody who uses a buffer pays for these: marks are counted per process and
 * only where a mark is flushed anyway, the rest by the sealer.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_stat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lwlock.h"
#include "storage/pcache_run.h"
#include "storage/pcache_stat.h"

static void
GetProtocolStats(PersistentCacheStats *stats)
{
	PCacheSealerControl *sealer = PCacheSealerCtl;
	PGPROC	   *proc = PCacheSealerProc();

	stats->sealer_pid = proc == NULL ? 0 : proc->pid;

	stats->marks = PCacheCountMarks();
	stats->seals = pg_atomic_read_u64(&sealer->seals);
	stats->failed_seals = pg_atomic_read_u64(&sealer->failed_seals);
	stats->flushed_bytes = pg_atomic_read_u64(&sealer->flushed_bytes);
	stats->drains = PCacheCountDrains();
	stats->queued = PCacheQueueLength();

	stats->sealed = PCacheCountSealed();

	/* the two may be of different updates, which differ in timeline rarely */
	stats->watermark = PCacheWatermarkCtl->watermark.flushed;
	stats->watermark_timeline = PCacheWatermarkCtl->watermark.timeline;
}

/* The value of persistent_cache_mode. */
const char *
PersistentCacheModeName(void)
{
	for (const struct config_enum_entry *entry = persistent_cache_mode_options;
		 entry->name != NULL; entry++)
	{
		if (entry->val == persistent_cache_mode)
			return entry->name;
	}
	return "unknown";
}

/* Are pages sealed while the server runs? */
bool
PersistentCacheHasProtocol(void)
{
	return PersistentCacheDescriptors != NULL;
}

/*
 * All that is known of the cache.  Only if PersistentCacheEnabled().
 */
void
PersistentCacheGetStats(PersistentCacheStats *stats)
{
	memset(stats, 0, sizeof(*stats));
	snprintf(stats->path, sizeof(stats->path), "%s/%s",
			 PCachePoolDirectory, PCACHE_POOL_FILE);

	LWLockAcquire(PersistentCacheLock, LW_SHARED);
	stats->superblock = PCacheCtl->superblock;
	stats->media = PCacheCtl->health.media;
	LWLockRelease(PersistentCacheLock);

	/* written by the startup process, before anybody could connect */
	stats->start = PCacheCtl->start.verdict;
	stats->started_at = PCacheCtl->start.started_at;
	memcpy(stats->pages, PCacheCtl->start.pages, sizeof(stats->pages));
	stats->kept_dirty = PCacheCtl->start.kept_dirty;
	stats->retired = PCacheCtl->start.retired;
	stats->startup_usec = PCacheCtl->start.startup_usec;
	stats->rebuild_usec = PCacheCtl->start.rebuild_usec;

	stats->protocol = PersistentCacheHasProtocol();
	if (stats->protocol)
		GetProtocolStats(stats);
}
