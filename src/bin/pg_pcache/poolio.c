/*-------------------------------------------------------------------------
 *
 * poolio.c
 *	  Store to a pool that is being rebuilt.
 *
 * Everything durable that "pg_pcache rebuild" and "init" do goes through here, but
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
#include "rebuild.h"

/*
 * A point at which the tool may be killed.  For tests of exactly that:
 * PG_PCACHE_KILL_AT=NAME[:N] does it, the N-th time that the point is reached,
 * and PG_PCACHE_TRACE_STEPS=1 tells which there are.
 */
void
RebuildStep(const char *name)
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

/* The one that is on media, or is about to be. */
PCacheSuperblock *
RebuildSuperblock(Rebuild *r)
{
	return &r->superblocks.chosen;
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
SuperblockIsUsable(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;

	return IsKnown(&r->superblocks) &&
		PCacheGeometryGate(sb, r->pool.file_size).refusal == PCACHE_WARM;
}

/* A slot's descriptor in the mapped pool. */
PCacheDescriptor *
MappedDescriptor(const Rebuild *r, uint64 slot)
{
	return (PCacheDescriptor *) (r->pool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

/* What was to be stored could not be, with errno set. */
void
FailToWrite(const Rebuild *r)
{
	pg_fatal("could not write persistent cache pool \"%s\": %m", r->pool.path);
}

/* Wait until all stores are durable. */
void
DrainPool(const Rebuild *r)
{
	if (!PCacheDrain(&r->pool.map))
		FailToWrite(r);
}

/* Store both superblocks, durably. */
void
StoreSuperblock(Rebuild *r)
{
	if (!PCacheSuperblockStore(&r->pool.map, RebuildSuperblock(r)))
		FailToWrite(r);
}

/*
 * Map the pool, unless it is, with all of its file allocated.
 *
 * Who keeps pages has called PCachePoolRestoreSize() before.  So a pool that
 * still has holes is about to be emptied, and its descriptors may speak of pages
 * there until it is.
 */
void
MapPool(Rebuild *r)
{
	PCacheSuperblock *sb = RebuildSuperblock(r);
	PCacheError err;

	if (r->pool.map.base != NULL)
		return;
	if (PCachePoolHasHoles(&r->pool) &&
		((IsKnown(&r->superblocks) && !PCachePoolMarkEmpty(&r->pool, sb, &err)) ||
		 !PCachePoolSetSize(&r->pool, r->pool.file_size, &err)))
		FailWith(&err);
	if (!PCachePoolMap(&r->pool, &err))
		FailWith(&err);
}

/* Give the file another size, and map it. */
static void
SetPoolSize(PCachePool *pool, uint64 size)
{
	PCacheError err;

	if (pool->map.base != NULL && !PCacheUnmap(&pool->map))
		pg_fatal("could not unmap persistent cache pool \"%s\": %m", pool->path);
	if (!PCachePoolSetSize(pool, size, &err) || !PCachePoolMap(pool, &err))
		FailWith(&err);
}

/* Can a slot, once it is mended, be used? */
bool
SlotIsBad(const Rebuild *r, const PCacheSuperblock *sb, uint64 slot)
{
	const PCacheMediaReport *media = &r->judge.media;

	return PCacheMediaRangeIsBad(media, sb->blocks_offset + slot * BLCKSZ, BLCKSZ) ||
		PCacheMediaRangeIsBad(media,
							  PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor),
							  sizeof(PCacheDescriptor));
}

/* Make a slot free, as far as the caller's drain is concerned. */
void
FreeSlot(const Rebuild *r, uint64 slot)
{
	PCacheDescriptor desc;

	PCacheDescriptorSetFree(&desc);
	PCacheDescriptorStore(&r->pool.map, MappedDescriptor(r, slot), &desc);
}

/*
 * Likewise of a pool that may be that of a killed server: the next start makes its entries of
 * the headers.
 */
void
ForgetHeader(const Rebuild *r, uint64 slot)
{
	if (!PCacheForgetHeader(&r->pool, &r->superblocks.chosen, slot))
		FailToWrite(r);
}

/* Of a pool with that many blocks, on this one's file system. */
PCacheGeometry
GeometryFor(const PCachePool *pool, uint64 capacity)
{
	return PCacheComputeGeometry(capacity, pool->page_size);
}

/*
 * Make an open pool an empty one, of this capacity and of the cluster with
 * this pg_control.  It gets a new UUID.  Updates superblocks.
 */
void
EmptyPool(PCachePool *pool, PCacheSuperblocks *superblocks,
		  const ControlFileData *control, uint64 capacity)
{
	PCacheGeometry g = GeometryFor(pool, capacity);
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
	RebuildStep("reset-allocated");
	if (known && !cut_off && !PCachePoolMarkEmpty(pool, sb, &err))
		FailWith(&err);
	if (known)
		RebuildStep("reset-marked");
	if (g.pool_size < pool->file_size)
		SetPoolSize(pool, g.pool_size);
	RebuildStep("reset-sized");
	(void) PCachePoolUseHugePages(pool);
	if (!PCachePoolFormat(pool, capacity, control->system_identifier,
						  control->catalog_version_no, sb, &err))
		FailWith(&err);
	superblocks->source = PCACHE_SB_FIRST;
	RebuildStep("reset-formatted");
}
