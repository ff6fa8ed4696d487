/*-------------------------------------------------------------------------
 *
 * pcache_relations.c
 *	  How much of each relation is cached; contrib/pg_pcache shows it.
 *
 * Nobody who uses a buffer pays for this: it takes no buffer header lock.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_relations.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache_core.h"
#include "storage/pcache_stat.h"

/* A scan can be interrupted after so many slots. */
#define SLOTS_PER_INTERRUPT	65536

/* For how many relations a scan counts beside the hash table. */
#define RECENT_RELATIONS	16

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

/*
 * What a page belongs to, in two words.  Descriptors and buffer tags have the
 * same four fields side by side, as PersistentCacheRelation does.
 */
typedef struct PackedRelation
{
	uint64		database;		/* and tablespace */
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
	bool		header_first = !protocol || PCacheCtl->start.retired > 0;
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
		if (unlikely(recent->key.database != key.database || recent->key.file != key.file))
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
