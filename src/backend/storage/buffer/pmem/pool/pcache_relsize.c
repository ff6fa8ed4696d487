/*-------------------------------------------------------------------------
 *
 * pcache_relsize.c
 *	  How long the relation forks are, each looked up once.
 *
 * Works on the files, below the storage manager, so that pg_pcache can use
 * it too.  The working directory must be PGDATA.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_relsize.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#ifdef FRONTEND
#include "common/logging.h"
#endif
#include "storage/pcache_layout.h"
#include "storage/pcache_pool.h"

typedef struct RelSizeKey
{
	RelFileLocator rlocator;
	ForkNumber	fork;
} RelSizeKey;

/*
 * A fork that exists.  One that does not is not remembered: a forged pool may
 * name as many of them as it has slots, of which all have the same hash value.
 */
typedef struct RelSizeEntry
{
	RelSizeKey	key;
	int64		nblocks;
	char		status;			/* for simplehash */
} RelSizeEntry;

static inline uint32
HashRelSizeKey(const RelSizeKey *key)
{
	return hash_combine(murmurhash32(key->rlocator.relNumber + key->fork),
						hash_combine(murmurhash32(key->rlocator.dbOid),
									 key->rlocator.spcOid));
}

static inline bool
RelSizeKeysEqual(const RelSizeKey *a, const RelSizeKey *b)
{
	return RelFileLocatorEquals(a->rlocator, b->rlocator) &&
		a->fork == b->fork;
}

#define SH_PREFIX		relsize
#define SH_ELEMENT_TYPE	RelSizeEntry
#define SH_KEY_TYPE		RelSizeKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, key)	HashRelSizeKey(&(key))
#define SH_EQUAL(tb, a, b)		RelSizeKeysEqual(&(a), &(b))
#define SH_SCOPE		static inline
#ifdef FRONTEND
#define SH_RAW_ALLOCATOR	pg_malloc0
#endif
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct PCacheRelSizes
{
	relsize_hash *hash;
	int64		unchanged_since;
	bool		only_written;

	/* of the database and tablespace that was looked at last */
	Oid			last_db;
	Oid			last_spc;
	bool		directory_changed;

	/* Neighbouring slots often hold the same relation. */
	RelSizeKey	last_key;
	int64		last_nblocks;
};

/*
 * unchanged_since is a time in nanoseconds since 1970, and a fork of which a file was
 * changed later, or a directory above it, is told; 0 if that does not matter.  With
 * only_written, a new owner or mode is no change.
 */
struct PCacheRelSizes *
PCacheRelSizesCreate(int64 unchanged_since, bool only_written)
{
	struct PCacheRelSizes *sizes = palloc0(sizeof(*sizes));

#ifdef FRONTEND
	sizes->hash = relsize_create(256, NULL);
#else
	sizes->hash = relsize_create(CurrentMemoryContext, 256, NULL);
#endif
	sizes->unchanged_since = unchanged_since;
	sizes->only_written = only_written;
	sizes->last_key.fork = InvalidForkNumber;
	sizes->last_spc = InvalidOid;
	return sizes;
}

void
PCacheRelSizesFree(struct PCacheRelSizes *sizes)
{
	relsize_destroy(sizes->hash);
	pfree(sizes);
}

/*
 * Whoever changes a file can set the time at which it was modified, but not that of
 * the change.  Some file systems tell only the second.
 */
static bool
WasChanged(const struct PCacheRelSizes *sizes, const struct stat *st)
{
	const struct timespec *at = sizes->only_written ? &st->st_mtim : &st->st_ctim;
	int64		nsec = at->tv_nsec != 0 ? at->tv_nsec : PCACHE_NSEC - 1;
	int64		sec = sizes->unchanged_since / PCACHE_NSEC;

	if (sizes->unchanged_since == 0)
		return false;
	/* anybody can set a time whose nanoseconds overflow 64 bits */
	if (at->tv_sec != sec)
		return at->tv_sec > sec;
	return nsec > sizes->unchanged_since % PCACHE_NSEC;
}

/*
 * Was a directory on the way to the database's files changed?  One that was put in its
 * place may hold files that were not.  Of a tablespace, both the link and its target count.
 * PGDATA itself has been changed by whoever starts.
 */
static bool
DirectoryWasChanged(const struct PCacheRelSizes *sizes, RelFileLocator rlocator)
{
	char	   *path = GetDatabasePath(rlocator.dbOid, rlocator.spcOid);
	struct stat st;
	bool		changed = false;

	for (char *end = path + strlen(path); !changed && end != NULL; end = strrchr(path, '/'))
	{
		*end = '\0';
		changed = lstat(path, &st) < 0 || WasChanged(sizes, &st) ||
			(S_ISLNK(st.st_mode) && (stat(path, &st) < 0 || WasChanged(sizes, &st)));
	}
	pfree(path);
	return changed;
}

/*
 * Add up the segments of a fork.  As in md.c, the first one that is not full
 * is the last one.
 */
static int64
StatFork(struct PCacheRelSizes *sizes, RelFileLocator rlocator, ForkNumber fork)
{
	RelPathStr	path = relpathperm(rlocator, fork);
	char		segment[MAXPGPATH];
	struct stat st;
	int64		nblocks;

	if (stat(path.str, &st) < 0)
		return PCACHE_REL_MISSING;
	if (sizes->unchanged_since != 0 &&
		(sizes->last_db != rlocator.dbOid || sizes->last_spc != rlocator.spcOid))
	{
		sizes->last_db = rlocator.dbOid;
		sizes->last_spc = rlocator.spcOid;
		sizes->directory_changed = DirectoryWasChanged(sizes, rlocator);
	}
	if (sizes->directory_changed || WasChanged(sizes, &st))
		return PCACHE_REL_CHANGED;
	nblocks = st.st_size / BLCKSZ;
	for (int segno = 1; nblocks == (int64) segno * RELSEG_SIZE; segno++)
	{
		snprintf(segment, sizeof(segment), "%s.%d", path.str, segno);
		if (stat(segment, &st) < 0)
			break;
		if (WasChanged(sizes, &st))
			return PCACHE_REL_CHANGED;
		nblocks += st.st_size / BLCKSZ;
	}
	return nblocks;
}

/* Not the relation that was asked for last. */
static pg_noinline int64
LookUp(struct PCacheRelSizes *sizes, RelSizeKey key)
{
	RelSizeEntry *entry = relsize_lookup(sizes->hash, key);
	int64		nblocks;
	bool		found;

	if (entry != NULL)
		nblocks = entry->nblocks;
	else
	{
		nblocks = StatFork(sizes, key.rlocator, key.fork);
		if (nblocks != PCACHE_REL_MISSING)
			relsize_insert(sizes->hash, key, &found)->nblocks = nblocks;
	}

	sizes->last_key = key;
	sizes->last_nblocks = nblocks;
	return nblocks;
}

/*
 * The length of a relation fork in blocks, or PCACHE_REL_MISSING if there is no such
 * file, or PCACHE_REL_CHANGED.  A file that cannot be looked at counts as missing.
 */
int64
PCacheRelSize(struct PCacheRelSizes *sizes, RelFileLocator rlocator,
			  ForkNumber fork)
{
	RelSizeKey	key = {rlocator, fork};

	if (RelSizeKeysEqual(&key, &sizes->last_key))
		return sizes->last_nblocks;
	return LookUp(sizes, key);
}
