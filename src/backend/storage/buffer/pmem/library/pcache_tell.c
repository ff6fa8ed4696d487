/*-------------------------------------------------------------------------
 *
 * pcache_tell.c
 *	  What the library tells about itself; contrib/pg_pcache/pcache_views.c shows it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_tell.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"
#include "storage/pcache_stat.h"
#include "utils/guc.h"
#include "utils/hsearch.h"

/* A scan can be interrupted after so many buffers. */
#define SLOTS_PER_INTERRUPT	65536

/* Does this server have its shared buffers in the pool? */
bool
PersistentCacheEnabled(void)
{
	return PCacheStart.in_use;
}

/* Why not, although it is configured?  NULL if it does, or is not. */
const char *
PersistentCacheUnavailable(void)
{
	if (!PCacheIsPreloaded)
		return _("pg_pcache is not in \"shared_preload_libraries\"");
	if (PCacheLibrary == NULL && pcache_mode != PERSISTENT_CACHE_OFF)
		return _("another library in \"shared_preload_libraries\" does not call the hooks of pg_pcache");
	return PCacheStart.verdict.refusal == PCACHE_UNAVAILABLE ? PCacheStart.verdict.why.message : NULL;
}

const char *
PersistentCacheModeName(void)
{
	return !PCacheIsPreloaded ? "off" : GetConfigOption("pcache.mode", false, false);
}

/* All that is known of the cache.  Only if PersistentCacheEnabled(). */
void
PersistentCacheGetStats(PersistentCacheStats *stats)
{
	memset(stats, 0, sizeof(*stats));
	strlcpy(stats->path, PCacheThePool.path, sizeof(stats->path));
	stats->superblock = PCacheLibrary->superblock;
	stats->media = PCacheStart.media;
	stats->start = PCacheStart.verdict;
	stats->started_at = PCacheStart.started_at;
	memcpy(stats->pages, PCacheStart.pages, sizeof(stats->pages));
	stats->retired = PCacheStart.retired;
	stats->startup_usec = PCacheStart.startup_usec;
	stats->rebuild_usec = PCacheStart.rebuild_usec;
	stats->younger = PCacheStart.young;
	stats->redo_skipped = PCacheLibrary->redo_skipped;
	stats->redo_called = PCacheLibrary->redo_called;
	stats->power_cold = PCacheStart.power_cold;
}

/* A relation fork: the first four fields of a buffer's tag */
typedef struct ForkKey
{
	Oid			spc_oid;
	Oid			db_oid;
	Oid			rel_number;
	int32		fork;
} ForkKey;

StaticAssertDecl(sizeof(ForkKey) == offsetof(BufferTag, blockNum), "ForkKey");

typedef struct ForkCount
{
	ForkKey		key;
	uint32		buffers;
} ForkCount;

/*
 * Count the cached pages of each relation fork.  Returns a palloc'd array of *n
 * entries, in no particular order.
 *
 * A header is read without its lock, so a page that is replaced just now may be
 * counted for a relation that it does not belong to.  It is a statistic only.
 */
PersistentCacheRelation *
PersistentCacheGetRelations(uint32 *n)
{
	HASHCTL		ctl = {.keysize = sizeof(ForkKey),.entrysize = sizeof(ForkCount)};
	HTAB	   *counts = hash_create("relations in shared buffers", 1024, &ctl,
									 HASH_ELEM | HASH_BLOBS);
	ForkCount  *count = NULL;
	HASH_SEQ_STATUS scan;
	PersistentCacheRelation *result;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state = pg_atomic_read_u32(&buf->state);
		ForkKey		key;
		bool		found;

		if (slot % SLOTS_PER_INTERRUPT == 0)
			CHECK_FOR_INTERRUPTS();
		if ((state & (BM_VALID | BM_TAG_VALID)) != (BM_VALID | BM_TAG_VALID))
			continue;
		memcpy(&key, &buf->tag, sizeof(key));
		if (count == NULL || memcmp(&count->key, &key, sizeof(key)) != 0)
		{
			count = hash_search(counts, &key, HASH_ENTER, &found);
			if (!found)
				count->buffers = 0;
		}
		count->buffers++;
	}

	result = palloc0(sizeof(*result) * Max(hash_get_num_entries(counts), 1));
	*n = 0;
	hash_seq_init(&scan, counts);
	while ((count = hash_seq_search(&scan)) != NULL)
	{
		memcpy(&result[*n].rlocator, &count->key, sizeof(result->rlocator));
		result[*n].fork = count->key.fork;
		result[(*n)++].buffers = count->buffers;
	}
	hash_destroy(counts);
	return result;
}

/*
 * Gather what the gates look at, from pg_control as it is on disk, into facts that are
 * zeroed.  Used for a start, and for the answer about the next one.
 */
bool
PCacheGatherLibraryFacts(const PCachePool *pool, PCacheLibraryFacts *facts, PCacheError *err)
{
	PCacheGateFacts *gate = &facts->gate;

	if (!PCacheReadControl(&facts->control))
	{
		PCacheSetError(err, _("\"pg_control\" cannot be read"));
		return false;
	}
	PCacheMediaQuery(pool->path, pool->fd, pool->fs_kind, &facts->media);
	PCacheGatherFacts(pool, &facts->media, gate);
	gate->control = &facts->control;
	gate->cold_on_media_unknown = pcache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD;
	PCacheReadSignals(DataDir, &facts->signals);
	PCacheSetRecovery(gate, &facts->signals, recoveryTarget != RECOVERY_TARGET_UNSET);
	return true;
}

void
PCacheForgetLibraryFacts(PCacheLibraryFacts *facts)
{
	PCacheMediaReportFree(&facts->media);
	memset(facts, 0, sizeof(*facts));
}

/* The settings of this server, which the next one will have unless somebody changes them. */
static void
CurrentConfig(PCacheNextConfig *config)
{
	memset(config, 0, sizeof(*config));
	config->mode = pcache_mode;
	config->size = pcache_size;
	config->nbuffers = NBuffers;
	config->cold_on_media_unknown = pcache_on_media_unknown == PERSISTENT_CACHE_MEDIA_COLD;
	config->required = pcache_required;
}

/* Ask the gates about the pool as it is.  facts are zeroed, and get what they look at. */
static void
JudgeNow(const PCacheNextConfig *config, PCacheNextEvent event, PCacheLibraryFacts *facts,
		 PCacheVerdict *verdict)
{
	PCacheSuperblocks *superblocks = palloc(sizeof(*superblocks));

	verdict->refusal = PCACHE_REFUSED;
	if (PCacheGatherLibraryFacts(&PCacheThePool, facts, &verdict->why))
	{
		PCacheReadSuperblocks(PCacheThePool.fd, superblocks);
		PCacheForetellPool(&PCacheThePool, superblocks, &facts->gate, config, event, verdict);
	}
	pfree(superblocks);
}

/*
 * How will this very start be?  It has opened the pool, if there is one, and has done
 * nothing to it.  Then facts are what it will go by.
 */
void
PCacheForetellThisStart(PCacheLibraryFacts *facts, PCacheVerdict *verdict)
{
	PCacheNextConfig config;
	PCacheError not_opened;
	PCachePool	pool;

	CurrentConfig(&config);
	if (PCacheThePool.fd >= 0)
	{
		JudgeNow(&config, PCACHE_NEXT_NOTHING, facts, verdict);
		return;
	}
	(void) PCachePoolOpen(pcache_directory, PCACHE_OPEN_PEEK, &pool, &not_opened);
	PCacheForetellMissing(pcache_directory, &config, &not_opened, verdict);
}

/*
 * How will the start be that follows this event?  By the settings of this server:
 * if one waits for a restart, the answer says which.
 */
void
PersistentCacheNextStart(PCacheNextEvent event, PCacheVerdict *verdict)
{
	static const char *const settings[] = {
		"pcache.mode", "pcache.directory", "pcache.size", "pcache.required", "shared_buffers"
	};
	PCacheNextConfig config;

	if (pcache_mode == PERSISTENT_CACHE_OFF || !PCacheIsPreloaded)
	{
		*verdict = PCacheRefuse(PCACHE_OFF, _("%s is off"), PCacheSetting("mode"));
		return;
	}
	CurrentConfig(&config);
	if (PCacheStart.in_use)
	{
		PCacheLibraryFacts *facts = palloc0_object(PCacheLibraryFacts);

		JudgeNow(&config, event, facts, verdict);
		PCacheForgetLibraryFacts(facts);
		pfree(facts);
	}
	else
	{
		*verdict = PCacheStart.verdict;
		if (PCacheLibrary == NULL)
			PCacheSetError(&verdict->why, "%s", PersistentCacheUnavailable());
		verdict->refusal = PCACHE_REFUSED;
		PCacheForetellWithout(&config, verdict);
	}
	for (int i = 0; verdict->why.hint[0] == '\0' && i < lengthof(settings); i++)
	{
		if (PCacheSettingIsPending(settings[i]))
			PCacheSetHint(&verdict->why,
						  _("\"%s\" will change with the restart, and this answer does not consider that."),
						  settings[i]);
	}
	if (verdict->refusal == PCACHE_WARM && verdict->why.hint[0] == '\0')
		(void) PCacheSizeDiffers(&PCacheThePool, &PCacheLibrary->superblock,
								 config.size, config.nbuffers, &verdict->why);
}
