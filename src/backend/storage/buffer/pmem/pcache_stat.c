/*-------------------------------------------------------------------------
 *
 * pcache_stat.c
 *	  Counters of the persistent cache, and what contrib/pg_pcache shows.
 *
 * Nobody who uses a buffer pays for these: marks are counted per process and
 * only where a mark is flushed anyway, the rest by the sealer.  Readers take
 * no buffer header lock.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_stat.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

/* A scan can be interrupted after so many slots. */
#define SLOTS_PER_INTERRUPT	65536

/* For how many relations a scan counts beside the hash table. */
#define RECENT_RELATIONS	16

/* How long to wait for a sealer that does not run, and in steps of what. */
#define SEALER_WAIT_MS		10000
#define SEALER_STEP_MS		100

/* An entry in the table of relations. */
typedef struct RelationCount
{
	PersistentCacheRelation relation;
	char		status;			/* for simplehash */
} RelationCount;

/* Not a good hash in general, but numbers of files differ in their low bits. */
static inline uint32
HashRelation(const PersistentCacheRelation *key)
{
	return murmurhash32(key->rlocator.relNumber ^ ((uint32) key->fork << 30) ^
						(key->rlocator.dbOid << 15));
}

static inline bool
SameRelation(const PersistentCacheRelation *a, const PersistentCacheRelation *b)
{
	return RelFileLocatorEquals(a->rlocator, b->rlocator) && a->fork == b->fork;
}

#define SH_PREFIX		relcount
#define SH_ELEMENT_TYPE	RelationCount
#define SH_KEY_TYPE		PersistentCacheRelation
#define SH_KEY			relation
#define SH_HASH_KEY(tb, key)	HashRelation(&(key))
#define SH_EQUAL(tb, a, b)	SameRelation(&(a), &(b))
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* For counters that only one process writes at a time. */
static inline void
AddTo(pg_atomic_uint64 *counter, uint64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

static void
SealerEnd(int code, Datum arg)
{
	pg_atomic_write_u32(&PCacheCtl->sealer.procno, INVALID_PROC_NUMBER);
}

/* The sealer is ready to work: others may set its latch. */
void
PCacheSealerBegin(void)
{
	before_shmem_exit(SealerEnd, 0);
	pg_atomic_write_u32(&PCacheCtl->sealer.procno, MyProcNumber);
}

/* The sealer is about to go through the queue. */
void
PCacheRoundBegin(void)
{
	(void) pg_atomic_fetch_add_u64(&PCacheCtl->sealer.rounds_begun, 1);
}

/* It has looked at all that was in the queue when it began. */
void
PCacheRoundDone(void)
{
	pg_atomic_write_membarrier_u64(&PCacheCtl->sealer.rounds_done,
								   pg_atomic_read_u64(&PCacheCtl->sealer.rounds_begun));
	ConditionVariableBroadcast(&PCacheCtl->sealer.round_done);
}

/*
 * The sealer has sealed a batch, which took two drains; failed pages were
 * flushed as well, but changed meanwhile.
 */
void
PCacheCountSeals(uint64 seals, uint64 failed)
{
	PCacheSealerControl *sealer = &PCacheCtl->sealer;

	AddTo(&sealer->seals, seals);
	AddTo(&sealer->failed_seals, failed);
	AddTo(&sealer->flushed_bytes,
		  (seals + failed) * (BLCKSZ + sizeof(PCacheDescriptor)));
	AddTo(&sealer->drains, 2);
}

/* Drains by all processes: the sealer's, one per mark, one per watermark. */
uint64
PCacheCountDrains(void)
{
	return pg_atomic_read_u64(&PCacheCtl->sealer.drains) +
		pg_atomic_read_u64(&PCacheCtl->watermark_updates) +
		PCacheCountMarks();
}

/*
 * Have everybody know what a process was told of the media.
 *
 * A superblock once said to be bad is left alone until the next start: it has
 * missed stores.
 */
void
PCachePublishMedia(const PCacheMediaReport *report)
{
	PCacheMediaSummary summary;

	memset(&summary, 0, sizeof(summary));
	summary.checked_at = GetCurrentTimestamp();
	summary.blocks = report->blocks;
	strlcpy(summary.blocks_why, report->blocks_why, sizeof(summary.blocks_why));
	summary.bad_ranges = report->bad.n_ranges;
	for (uint32 i = 0; i < report->bad.n_ranges; i++)
		summary.bad_bytes += report->bad.ranges[i].length;
	summary.bad_truncated = report->bad.truncated;
	summary.dimms_state = report->dimms_state;
	strlcpy(summary.dimms_why, report->dimms_why, sizeof(summary.dimms_why));
	summary.n_dimms = report->n_dimms;
	summary.health = report->health;
	summary.domain = report->domain;
	summary.place = report->place;

	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheCtl->media = summary;
	PCacheCtl->superblock_bad[0] |=
		PCacheMediaRangeIsBad(report, PCACHE_SUPERBLOCK_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE);
	PCacheCtl->superblock_bad[1] |=
		PCacheMediaRangeIsBad(report, PCACHE_COPY_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE);
	PCacheCtl->suspect_bad |=
		PCacheMediaRangeIsBad(report, PCACHE_SUSPECT_OFFSET,
							  sizeof(PCacheSuspect));
	PCacheCtl->copy_notes_bad |=
		PCacheMediaRangeIsBad(report, PCACHE_COPY_NOTES_OFFSET,
							  PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote));
	LWLockRelease(PersistentCacheLock);
}

/* The sealer's process, or NULL. */
static PGPROC *
SealerProc(void)
{
	ProcNumber	procno = pg_atomic_read_u32(&PCacheCtl->sealer.procno);

	return procno == INVALID_PROC_NUMBER ? NULL : GetPGProcByNumber(procno);
}

static void
GetProtocolStats(PersistentCacheStats *stats)
{
	PCacheSealerControl *sealer = &PCacheCtl->sealer;
	PGPROC	   *proc = SealerProc();

	stats->sealer_pid = proc == NULL ? 0 : proc->pid;

	stats->marks = PCacheCountMarks();
	stats->seals = pg_atomic_read_u64(&sealer->seals);
	stats->failed_seals = pg_atomic_read_u64(&sealer->failed_seals);
	stats->flushed_bytes = pg_atomic_read_u64(&sealer->flushed_bytes);
	stats->drains = PCacheCountDrains();
	stats->queued = PCacheQueueLength();

	stats->sealed = stats->pages[PCACHE_PAGE_KEPT] + stats->seals;
	stats->sealed -= Min(stats->sealed, stats->marks);
	stats->sealed = Min(stats->sealed, NBuffers);

	/* the two may be of different updates, which differ in timeline rarely */
	stats->watermark = PCacheCtl->watermark.flushed;
	stats->watermark_timeline = PCacheCtl->watermark.timeline;
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
	stats->media = PCacheCtl->media;
	LWLockRelease(PersistentCacheLock);

	/* written by the startup process, before anybody could connect */
	stats->start = PCacheCtl->verdict;
	stats->started_at = PCacheCtl->started_at;
	memcpy(stats->pages, PCacheCtl->pages, sizeof(stats->pages));
	stats->kept_dirty = PCacheCtl->kept_dirty;
	stats->retired = PCacheCtl->retired;
	stats->startup_usec = PCacheCtl->startup_usec;
	stats->rebuild_usec = PCacheCtl->rebuild_usec;

	stats->protocol = PersistentCacheDescriptors != NULL;
	if (stats->protocol)
		GetProtocolStats(stats);
}

/*
 * What a page belongs to, in two words.  Descriptors and buffer tags have the
 * same four fields side by side, as PersistentCacheRelation does.
 */
typedef struct PackedRelation
{
	uint64		place;			/* tablespace and database */
	uint64		file;			/* relation number and fork */
} PackedRelation;

#define IS_PACKED(type, first, second, third, fourth) \
	(offsetof(type, second) == offsetof(type, first) + 4 && \
	 offsetof(type, third) == offsetof(type, first) + 8 && \
	 offsetof(type, fourth) == offsetof(type, first) + 12)

StaticAssertDecl(sizeof(PackedRelation) == 16, "PackedRelation");
StaticAssertDecl(IS_PACKED(PCacheDescriptor, spc_oid, db_oid, rel_number, fork_number),
				 "PCacheDescriptor");
StaticAssertDecl(IS_PACKED(BufferTag, spcOid, dbOid, relNumber, forkNum),
				 "BufferTag");
StaticAssertDecl(IS_PACKED(PersistentCacheRelation, rlocator.spcOid, rlocator.dbOid,
						   rlocator.relNumber, fork), "PersistentCacheRelation");

/* Counts of a relation fork that are not in the hash table yet. */
typedef struct RecentCount
{
	PackedRelation key;
	uint32		buffers;		/* 0: this is not used */
	uint32		sealed;
	uint32		kept;
} RecentCount;

/*
 * Which page is in a slot that is sealed?  The descriptor says so, and has not
 * changed meanwhile if seq has not.
 */
static inline bool
SealedTag(int slot, PackedRelation *key)
{
	PCacheDescriptor *desc = &PersistentCacheDescriptors[slot];
	uint64		seq = pg_atomic_read_u64(PCacheSeq(desc));

	if (!PCacheSeqIsSealed(seq))
		return false;
	pg_read_barrier();
	memcpy(key, &desc->spc_oid, sizeof(*key));
	pg_read_barrier();
	return pg_atomic_read_u64(PCacheSeq(desc)) == seq;
}

/*
 * Which page is in a slot, by its header?  Without the header lock the answer
 * may be a mixture of two pages, if one replaces the other just now; the
 * second look makes that all but impossible, and it is for a statistic only.
 */
static inline bool
HeaderTag(int slot, PackedRelation *key)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = pg_atomic_read_u32(&buf->state);
	bool		has_number;

	if ((state & (BM_VALID | BM_TAG_VALID)) != (BM_VALID | BM_TAG_VALID))
		return false;
	pg_read_barrier();
	memcpy(key, &buf->tag, sizeof(*key));
	has_number = RelFileNumberIsValid(BufTagGetRelNumber(&buf->tag));
	pg_read_barrier();
	state = pg_atomic_read_u32(&buf->state);
	return (state & (BM_VALID | BM_TAG_VALID)) == (BM_VALID | BM_TAG_VALID) &&
		has_number;
}

/* Add recent counts to the table. */
static void
FoldCount(relcount_hash *counts, const RecentCount *recent)
{
	PersistentCacheRelation key = {0};
	RelationCount *count;
	bool		found;

	if (recent->buffers == 0)
		return;
	memcpy(&key, &recent->key, sizeof(recent->key));
	count = relcount_insert(counts, key, &found);
	if (!found)
	{
		count->relation.buffers = 0;
		count->relation.sealed = 0;
		count->relation.kept = 0;
	}
	count->relation.buffers += recent->buffers;
	count->relation.sealed += recent->sealed;
	count->relation.kept += recent->kept;
}

/*
 * Count the cached pages of each relation fork.  Returns a palloc'd array of
 * *n entries, in no particular order.
 *
 * For most slots this reads one cache line only, be it the descriptor of one
 * that is sealed or the header of another.  The descriptor may be on a bad
 * block, so if there are any the headers, which tell, are read first.
 *
 * Works without a pool as well.
 */
PersistentCacheRelation *
PersistentCacheGetRelations(uint32 *n)
{
	bool		protocol = PersistentCacheDescriptors != NULL;
	bool		header_first = !protocol || PCacheCtl->retired > 0;
	relcount_hash *counts = relcount_create(CurrentMemoryContext, 1024, NULL);
	RecentCount recents[RECENT_RELATIONS] = {0};
	RelationCount *count;
	relcount_iterator iterator;
	PersistentCacheRelation *result;
	uint64		kept = 0;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		PackedRelation key;
		RecentCount *recent;
		bool		sealed;

		if (slot % SLOTS_PER_INTERRUPT == 0)
			CHECK_FOR_INTERRUPTS();
		if (slot % 64 == 0 && protocol)
			kept = PCacheKeptOf64(slot);

		if (header_first)
		{
			if (!HeaderTag(slot, &key))
				continue;
			sealed = protocol &&
				PCacheSeqIsSealed(pg_atomic_read_u64(PCacheSeq(&PersistentCacheDescriptors[slot])));
		}
		else
		{
			sealed = SealedTag(slot, &key);
			if (!sealed && !HeaderTag(slot, &key))
				continue;
		}

		/* by number and fork, whatever the byte order */
		recent = &recents[(key.file ^ (key.file >> 32)) % RECENT_RELATIONS];
		if (unlikely(recent->key.place != key.place || recent->key.file != key.file))
		{
			FoldCount(counts, recent);
			memset(recent, 0, sizeof(*recent));
			recent->key = key;
		}
		recent->buffers++;
		recent->sealed += sealed;
		recent->kept += (kept >> (slot % 64)) & 1;
	}
	for (int i = 0; i < RECENT_RELATIONS; i++)
		FoldCount(counts, &recents[i]);

	result = palloc_array(PersistentCacheRelation, Max(counts->members, 1));
	*n = 0;
	relcount_start_iterate(counts, &iterator);
	while ((count = relcount_iterate(counts, &iterator)) != NULL)
		result[(*n)++] = count->relation;
	relcount_destroy(counts);
	return result;
}

/*
 * Queue all that could be sealed and is not.  Returns how many.
 */
static uint32
QueueUnsealed(void)
{
	uint32		n = 0;

	for (int slot = 0; slot < NBuffers; slot++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(slot)->state);

		if (slot % SLOTS_PER_INTERRUPT == 0)
			CHECK_FOR_INTERRUPTS();
		if ((state & (BM_VALID | BM_PERMANENT)) != (BM_VALID | BM_PERMANENT))
			continue;
		if (PCacheIsUntrusted(slot))
			continue;
		if (PCacheSeqIsSealed(pg_atomic_read_u64(PCacheSeq(&PersistentCacheDescriptors[slot]))))
			continue;
		PCacheEnqueue(slot);
		n++;
	}
	return n;
}

/* Wait for the sealer to go through the queue as it is now. */
static void
WaitForRound(uint32 wait_event_info)
{
	PCacheSealerControl *sealer = &PCacheCtl->sealer;
	int			waited = 0;
	uint64		round;

	/* the round that is under way may be past what was just queued */
	pg_memory_barrier();
	round = pg_atomic_read_u64(&sealer->rounds_begun) + 1;

	ConditionVariablePrepareToSleep(&sealer->round_done);
	while (pg_atomic_read_u64(&sealer->rounds_done) < round)
	{
		PGPROC	   *proc = SealerProc();

		if (proc != NULL)
		{
			SetLatch(&proc->procLatch);
			waited = 0;
		}
		else if (waited >= SEALER_WAIT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the persistent cache sealer is not running"),
					 errhint("It needs one of \"max_worker_processes\".")));
		if (ConditionVariableTimedSleep(&sealer->round_done, SEALER_STEP_MS,
										wait_event_info))
			waited += SEALER_STEP_MS;
	}
	ConditionVariableCancelSleep();
}

/*
 * Make the WAL of all pages that are sealed now durable: a page is kept only
 * if its WAL is.  That of a session that has only read, and pruned a page, may
 * not be.  A record of our own tells where all that is inserted ends.
 */
static void
FlushWalOfSealed(void)
{
	char		nothing = 0;

	/* a standby has flushed what it replays */
	if (RecoveryInProgress())
		return;
	XLogBeginInsert();
	XLogRegisterData(&nothing, sizeof(nothing));
	XLogFlush(XLogInsert(RM_XLOG_ID, XLOG_NOOP));
}

/*
 * Have all pages sealed that can be, and their WAL durable.  Goes on as long as that helps: a busy
 * server always has some that are in change.  wait_event_info is what to show
 * meanwhile.
 *
 * Returns how many permanent pages are left unsealed.  Can be interrupted.
 * Only in mode always.
 */
uint32
PersistentCacheSealNow(uint32 wait_event_info)
{
	uint32		left = QueueUnsealed();
	uint32		before = left + 1;

	while (left > 0 && left < before)
	{
		before = left;
		WaitForRound(wait_event_info);
		left = QueueUnsealed();
	}
	FlushWalOfSealed();
	return left;
}
