/*-------------------------------------------------------------------------
 *
 * poolio.c
 *	  Store to a pool that a verb changes.
 *
 * Everything durable that rebuild, load and init do goes through here, but
 * for the steps that each file describes.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/poolio.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"

/*
 * A point at which the tool may be killed.  For tests of exactly that:
 * PG_PCACHE_KILL_AT=NAME[:N] does it, the N-th time that the point is reached,
 * and PG_PCACHE_TRACE_STEPS=1 tells which there are.
 */
void
Step(const char *name)
{
#ifdef USE_INJECTION_POINTS
	static int	count = 0;
	const char *at = getenv("PG_PCACHE_KILL_AT");
	size_t		len = strlen(name);

	if (getenv("PG_PCACHE_TRACE_STEPS") != NULL)
		fprintf(stderr, "step: %s\n", name);
	if (at == NULL || strncmp(at, name, len) != 0)
		return;
	if (at[len] == '\0' ||
		(at[len] == ':' && __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) == atoi(at + len + 1)))
		raise(SIGKILL);
#endif
}

/* Is there a superblock, and of our format? */
static bool
IsKnown(const PCacheSuperblocks *superblocks)
{
	return superblocks->source != PCACHE_SB_NONE &&
		superblocks->chosen.format_version == PCACHE_FORMAT_VERSION;
}

/* Is the superblock one that we can go on with? */
bool
SuperblockIsUsable(const Cluster *c)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;

	return IsKnown(&c->superblocks) &&
		PCacheGeometryGate(sb, c->pool.file_size).refusal == PCACHE_WARM;
}

/* A slot's descriptor in the mapped pool. */
PCacheDescriptor *
MappedDescriptor(const Cluster *c, uint64 slot)
{
	return (PCacheDescriptor *) (c->pool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

/* What was to be stored could not be, with errno set. */
void
FailToWrite(const Cluster *c)
{
	pg_fatal("could not write persistent cache pool \"%s\": %m", c->pool.path);
}

/* Wait until all stores are durable. */
void
DrainPool(const Cluster *c)
{
	if (!PCacheDrain(&c->pool.map))
		FailToWrite(c);
}

/* Store both superblocks, durably. */
void
StoreSuperblock(Cluster *c)
{
	if (!PCacheSuperblockStore(&c->pool.map, &c->superblocks.chosen))
		FailToWrite(c);
}

/*
 * Map the pool, unless it is, with all of its file allocated.
 *
 * Who keeps pages has called PCachePoolRestoreSize() before.  So a pool that
 * still has holes is about to be emptied, and its descriptors may speak of pages
 * there until it is.
 */
void
MapPool(Cluster *c)
{
	PCacheSuperblock *sb = &c->superblocks.chosen;
	PCacheError err;

	if (c->pool.map.base != NULL)
		return;
	if (PCachePoolHasHoles(&c->pool) &&
		((IsKnown(&c->superblocks) && !PCachePoolMarkEmpty(&c->pool, sb, &err)) ||
		 !PCachePoolSetSize(&c->pool, c->pool.file_size, c->pool.file_size, &err)))
		FailWith(&err);
	if (!PCachePoolMap(&c->pool, &err))
		FailWith(&err);
}

/* Give the file another size, and map it. */
static void
SetPoolSize(PCachePool *pool, uint64 size)
{
	PCacheError err;

	if (pool->map.base != NULL && !PCacheUnmap(&pool->map))
		pg_fatal("could not unmap persistent cache pool \"%s\": %m", pool->path);
	if (!PCachePoolSetSize(pool, size, size, &err) || !PCachePoolMap(pool, &err))
		FailWith(&err);
}

/* Can a slot, once it is mended, be used? */
bool
SlotIsBad(const Cluster *c, const PCacheSuperblock *sb, uint64 slot)
{
	const PCacheMediaReport *media = &c->judge.media;

	return PCacheMediaRangeIsBad(media, sb->blocks_offset + slot * BLCKSZ, BLCKSZ) ||
		PCacheMediaRangeIsBad(media,
							  PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor),
							  sizeof(PCacheDescriptor));
}

/*
 * Make an open pool an empty one, of this capacity and of the cluster with
 * this pg_control.  It gets a new UUID.  Updates superblocks.
 */
void
EmptyPool(PCachePool *pool, PCacheSuperblocks *superblocks,
		  const ControlFileData *control, uint64 capacity)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, pool->page_size);
	PCacheSuperblock *sb = &superblocks->chosen;
	bool		known = IsKnown(superblocks);
	bool		cut_off = known &&
		(pool->file_size < sb->pool_size || PCachePoolHasHoles(pool));
	PCacheError err;

	/* what was cut off, or is a hole, must not come back as pages of zeros */
	if (cut_off && !PCachePoolMarkEmpty(pool, sb, &err))
		FailWith(&err);
	/* otherwise, if there is no room, all is as it was */
	SetPoolSize(pool, Max(g.pool_size, pool->file_size));
	Step("reset-allocated");
	if (known && !cut_off && !PCachePoolMarkEmpty(pool, sb, &err))
		FailWith(&err);
	if (known)
		Step("reset-marked");
	if (g.pool_size < pool->file_size)
		SetPoolSize(pool, g.pool_size);
	Step("reset-sized");
	(void) PCachePoolUseHugePages(pool);
	if (!PCachePoolFormat(pool, capacity, control->system_identifier,
						  control->catalog_version_no, sb, &err))
		FailWith(&err);
	superblocks->source = PCACHE_SB_FIRST;
	Step("reset-formatted");
}
