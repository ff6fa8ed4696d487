/*-------------------------------------------------------------------------
 *
 * poolio.c
 *	  Store to a pool that a verb changes, and make room for a new one.
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

/* Is there a superblock, and of our format, and does it fit the file? */
bool
SuperblockIsUsable(const Cluster *c)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;

	return c->superblocks.source != PCACHE_SB_NONE &&
		sb->format_version == PCACHE_FORMAT_VERSION &&
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
 * May a new pool be made in an open directory?  Exits if there is no room even without the old
 * one, whose fd is -1 if there is none.  Returns whether the old one has to give its room back
 * first, by ShedPool().  On tmpfs room is memory, all of which is allocated at once, and the
 * kernel kills somebody if there is too little.
 */
bool
OldPoolMustGo(const PCacheDir *existing, PCacheFsKind fs_kind, uint64 capacity,
			  const PCachePool *old_pool, PCacheGeometry *geometry)
{
	PCacheError err;
	uint64		size;

	if (faccessat(existing->fd, ".", W_OK | X_OK, 0) < 0)
		pg_fatal("could not write to directory \"%s\": %m", existing->path);
	memset(geometry, 0, sizeof(*geometry));
	if (PCacheSpaceFor(existing, capacity, geometry, &err) &&
		(fs_kind != PCACHE_FS_TMPFS ||
		 PCacheMemoryWillDo(geometry->pool_size, geometry->pool_size, &err)))
	{
#ifdef USE_INJECTION_POINTS
		/* for tests, which have no full file system */
		return old_pool->fd >= 0 && getenv("PG_PCACHE_NO_ROOM_FOR_BOTH") != NULL;
#else
		return false;
#endif
	}
	size = geometry->pool_size;
	if (old_pool->fd < 0 || size == 0 || size > PCacheFileSizeLimit() ||
		!PCachePoolHasRoom(old_pool, size) ||
		!PCachePoolHasMemory(old_pool, size, &err))
		FailWith(&err);
	return true;
}

/* Have an open pool that is going to be replaced give its room back. */
void
ShedPool(PCachePool *pool)
{
	PCacheSuperblocks superblocks;
	PCacheError err;

	PCacheReadSuperblocks(pool->fd, &superblocks);
	if (!PCachePoolDiscard(pool, &superblocks, true, &err))
		FailWith(&err);
	Step("old-pool-shed");
}
