/*-------------------------------------------------------------------------
 *
 * pcache_resize.c
 *	  Give a pool another capacity, and keep its pages.
 *
 * The server makes a pool larger that has become too small for shared_buffers.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_resize.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_allocate.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_resize.h"

static void
Step(const PCacheResize *resize, const char *name)
{
	if (resize->step != NULL)
		resize->step(name);
}

static PCacheDescriptor *
Mapped(const PCachePool *pool, uint64 slot)
{
	return (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

static bool
Store(PCachePool *pool, PCacheSuperblock *sb, PCacheError *err)
{
	if (PCacheSuperblockStore(&pool->map, sb))
		return true;
	PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
				   pool->path);
	return false;
}

static bool
SetSizeAndMap(PCachePool *pool, uint64 size, uint64 allocated, PCacheError *err)
{
	if (pool->map.base != NULL && !PCacheUnmap(&pool->map))
	{
		PCacheSetError(err, _("could not unmap persistent cache pool \"%s\": %m"),
					   pool->path);
		return false;
	}
	return PCachePoolSetSizeSparse(pool, size, allocated, err) && PCachePoolMap(pool, err);
}

/*
 * Make the descriptor of a slot one of another slot, where the page is by now.
 * One that was damaged must not become one that is intact.
 */
static void
Renumber(PCacheDescriptor *desc, uint32 slot, uint32 new_slot)
{
	bool		intact = PCacheDescriptorIsIntact(desc, slot);

	desc->slot = new_slot;
	desc->crc = PCacheDescriptorCrc(desc);
	if (!intact)
		desc->crc = ~desc->crc;
}

/*
 * Copy the pages that do not lie where the new layout has them, and fill in the
 * descriptors of the first n slots.
 */
static void
MovePages(PCachePool *pool, uint64 old_offset, uint64 new_offset, uint64 n,
		  PCacheResize *resize, PCacheDescriptor *descs)
{
	int64		shift = ((int64) new_offset - (int64) old_offset) / BLCKSZ;
	PGIOAlignedBlock page;

	for (uint64 slot = 0; slot < n; slot++)
		PCacheDescriptorSetFree(&descs[slot]);
	for (uint64 slot = 0; slot < n; slot++)
	{
		uint64		new_slot = ((int64) slot - shift % (int64) n + n) % n;
		uint64		from = old_offset + slot * BLCKSZ;
		uint64		to = new_offset + new_slot * BLCKSZ;
		PCacheDescriptor *desc = &descs[new_slot];

		if ((resize->keep != NULL && !resize->keep(slot, resize->arg)) ||
			!PCacheReadDescriptors(pool->fd, slot, 1, desc) ||
			!PCacheSeqIsSealed(desc->seq))
		{
			PCacheDescriptorSetFree(desc);
			continue;
		}
		if (from != to)
		{
			if (PCacheMediaRangeIsBad(resize->media, to, BLCKSZ) ||
				!PCacheReadExact(pool->fd, page.data, BLCKSZ, from))
			{
				PCacheDescriptorSetFree(desc);
				continue;
			}
			PCacheMemcpyNodrain(&pool->map, pool->map.base + to, page.data, BLCKSZ);
			resize->moved++;
		}
		Renumber(desc, slot, new_slot);
	}
}

/*
 * May the server make an open pool large enough for nbuffers?  Not on an ordinary
 * file system, where it creates none either; nor if there is no room, or if
 * there are bad blocks.
 *
 * Sets *capacity to size, which is pcache.size, if that is larger and
 * there is room for it.  All three are in blocks.  Sets err, to a detail and a
 * hint, if it may not.
 */
bool
PCachePoolMayGrow(const PCachePool *pool, uint64 nbuffers, uint64 size,
				  const PCacheMediaReport *media, uint64 *capacity,
				  PCacheError *err)
{
	PCacheGeometry g;

	if (pool->fs_kind == PCACHE_FS_FILE)
	{
		PCacheSetError(err, _("On an ordinary file system, no pool is made larger."));
		PCacheSetHint(err, _("Decrease \"shared_buffers\", or make a new pool with \"pg_pcache init --force\"."));
		return false;
	}
	if (media->bad.n_ranges > 0)
	{
		PCacheSetError(err, _("The pool has bad blocks, so it is not made larger."));
		PCacheSetHint(err, _("Run \"pg_pcache rebuild\" to clear them, or decrease \"shared_buffers\"."));
		return false;
	}
	if (nbuffers > PCACHE_MAX_CAPACITY)
	{
		PCacheSetError(err, _("The persistent cache cannot have more than %d blocks."),
					   PCACHE_MAX_CAPACITY);
		PCacheSetHint(err, _("Decrease \"shared_buffers\"."));
		return false;
	}
	*capacity = Min(Max(nbuffers, size), PCACHE_MAX_CAPACITY);
	g = PCacheComputeGeometry(*capacity, pool->page_size);
	if (PCachePoolHasRoom(pool, g.pool_size))
		return true;
	*capacity = nbuffers;
	g = PCacheComputeGeometry(nbuffers, pool->page_size);
	if (PCachePoolHasRoom(pool, g.pool_size))
		return true;
	if (errno == EFBIG)
		PCacheSetError(err, _("The limit on the size of files does not let it become larger: the file needs %llu MB."),
					   (unsigned long long) (g.pool_size >> 20));
	else
		PCacheSetError(err, _("There is no room to make it larger: the file needs %llu MB."),
					   (unsigned long long) (g.pool_size >> 20));
	PCachePoolSetRoomHint(pool, err);
	return false;
}

/*
 * Give an open pool, whose superblock passed the geometry gate, the capacity
 * that resize says, and keep the pages in the slots that the new one has as
 * well.  The file must have its full size.  The pool is mapped afterwards.
 *
 * The descriptor array in front of the blocks may grow or shrink, so the
 * blocks' offset moves by a number of slots.  Instead of the blocks the
 * numbering moves: the page in slot s of n will be in slot (s - shift) mod n,
 * which nearly always is where it lies.  The others, as many as the offset
 * moves by, are copied to where the old layout has no page.
 *
 * Meanwhile the pool is in state "attaching", so that a crash on the way makes
 * the next start cold.  It is left in that state, durably: the caller puts back
 * the one that it was in, once all is recorded that goes with the new size.
 *
 * What takes long is to allocate memory, which can be interrupted.  Once it has
 * stored anything it goes on, because a pool that is half done is lost.
 *
 * Needs memory for all descriptors.  Returns false with err filled in; unless
 * that comes before the first store, the next start is cold.  So it is if the
 * caller is killed while it allocates, because the file then has another size
 * than the superblock says.
 */
bool
PCachePoolResize(PCachePool *pool, PCacheSuperblock *sb, PCacheResize *resize,
				 PCacheError *err)
{
	PCacheGeometry g = PCacheComputeGeometry(resize->capacity, pool->page_size);
	uint64		n = Min(sb->slots_used, resize->capacity);
	uint64		size = Max(g.pool_size, pool->file_size);
	uint64		allocated = resize->sparse ? g.blocks_offset + n * BLCKSZ : size;
	PCacheDescriptor *descs;
	PCacheDescriptor free_slot;
	bool		drained;

	resize->moved = 0;
	descs = malloc(Max(n, 1) * sizeof(PCacheDescriptor));
	if (descs == NULL)
	{
		PCacheSetError(err, _("out of memory"));
		return false;
	}
	if (!SetSizeAndMap(pool, size, Min(TYPEALIGN(PCACHE_ALIGNMENT, allocated), size), err))
	{
		free(descs);
		return false;
	}
	Step(resize, "resize-allocated");
	sb->state = PCACHE_STATE_ATTACHING;
	if (!Store(pool, sb, err))
	{
		free(descs);
		return false;
	}
	Step(resize, "resize-marked");

	MovePages(pool, sb->blocks_offset, g.blocks_offset, n, resize, descs);
	drained = PCacheDrain(&pool->map);
	Step(resize, "resize-copied");

	PCacheDescriptorSetFree(&free_slot);
	for (uint64 slot = 0; drained && slot < resize->capacity; slot++)
	{
		PCacheDescriptorStore(&pool->map, Mapped(pool, slot),
							  slot < n ? &descs[slot] : &free_slot);
		if (slot == resize->capacity / 2)
			Step(resize, "resize-half-described");
	}
	free(descs);
	if (!drained || !PCacheDrain(&pool->map))
	{
		PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
					   pool->path);
		return false;
	}
	Step(resize, "resize-described");

	if (g.pool_size != pool->file_size && !SetSizeAndMap(pool, g.pool_size, g.pool_size, err))
		return false;
	Step(resize, "resize-sized");
	if (!resize->sparse)
		(void) PCachePoolUseHugePages(pool);
	sb->capacity = resize->capacity;
	sb->blocks_offset = g.blocks_offset;
	sb->pool_size = g.pool_size;
	sb->slots_used = n;
	if (!Store(pool, sb, err))
		return false;
	Step(resize, "resize-new-layout");
	return true;
}
