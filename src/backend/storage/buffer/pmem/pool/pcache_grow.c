/*-------------------------------------------------------------------------
 *
 * pcache_grow.c
 *	  Has a pool the capacity that the settings ask for?  If it is too small it is made
 *	  larger, and keeps its pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_grow.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"

/*
 * Why is an open pool not made large enough for nbuffers?  why says it, as a detail and a hint.
 * Returns false, and sets *capacity, if it is.
 */
static bool
IsNotToGrow(const PCachePool *pool, uint64 nbuffers, uint64 size,
			const PCacheMediaReport *media, uint64 *capacity, PCacheError *why)
{
	uint64		capacities[] = {Max(nbuffers, Min(size, PCACHE_MAX_CAPACITY)), nbuffers};
	uint64		file_size = 0;

	if (pool->fs_kind == PCACHE_FS_FILE)
	{
		PCacheSetError(why, _("On an ordinary file system, no pool is made larger."));
		PCacheSetHint(why, _("Decrease \"shared_buffers\", or make a new pool with \"pg_pcache init --force\"."));
		return true;
	}
	if (media->bad.n_ranges > 0)
	{
		PCacheSetError(why, _("The pool has bad blocks, so it is not made larger."));
		PCacheSetHint(why, _("Run \"pg_pcache rebuild\" to clear them, or decrease \"shared_buffers\"."));
		return true;
	}
	if (nbuffers > PCACHE_MAX_CAPACITY)
	{
		PCacheSetError(why, _("The persistent cache cannot have more than %d blocks."),
					   PCACHE_MAX_CAPACITY);
		PCacheSetHint(why, _("Decrease \"shared_buffers\"."));
		return true;
	}
	for (int i = 0; i < lengthof(capacities); i++)
	{
		*capacity = capacities[i];
		file_size = PCacheComputeGeometry(*capacity, pool->page_size).pool_size;
		if (PCachePoolHasRoom(pool, file_size))
			return false;
	}
	if (errno == EFBIG)
		PCacheSetError(why, _("The limit on the size of files does not let it become larger: the file needs %llu MB."),
					   (unsigned long long) (file_size >> 20));
	else
		PCacheSetError(why, _("There is no room to make it larger: the file needs %llu MB."),
					   (unsigned long long) (file_size >> 20));
	PCachePoolSetRoomHint(pool, why);
	return true;
}

/*
 * An open pool with this capacity is too small for nbuffers.  May the server make it larger?
 * Not on an ordinary file system, where it creates none either; nor if there is no room, or if
 * there are bad blocks.
 *
 * Sets *capacity to size, which is pcache.size, if that is larger and there is room for it, or
 * else to nbuffers.  All of them are in blocks.  Returns false with err filled in if it may not.
 */
bool
PCachePoolMayGrow(const PCachePool *pool, uint64 old_capacity, uint64 nbuffers, uint64 size,
				  const PCacheMediaReport *media, uint64 *capacity, PCacheError *err)
{
	PCacheError why;

	if (!IsNotToGrow(pool, nbuffers, size, media, capacity, &why))
		return true;
	PCacheSetError(err, _("persistent cache pool \"%s\" is too small for \"shared_buffers\": it has room for %llu blocks, %llu are needed"),
				   pool->path, (unsigned long long) old_capacity,
				   (unsigned long long) nbuffers);
	return PCacheSetHint(err, "%s  %s", why.message, why.hint);
}

/*
 * How many of its first slots does an open pool give up that gets this capacity?  Its head
 * grows into their blocks.
 */
uint64
PCachePoolSlotsGivenUp(const PCachePool *pool, const PCacheSuperblock *sb, uint64 capacity)
{
	return (PCacheComputeGeometry(capacity, pool->page_size).blocks_offset - sb->blocks_offset) / BLCKSZ;
}

/*
 * Give an open pool, which is clean, and whose file has its full size, a larger capacity.
 * holes are those in its file.  The pool is mapped afterwards.
 *
 * Ledger and buffer headers lie before the blocks, so they grow into them.  No block is
 * moved: the one in slot s is in slot s - shift afterwards, and the first ones are given up.
 * These are 1.6 % of what the pool grows by.
 *
 * The pool is durably "empty" until all is stored that goes with the new size.  On tmpfs
 * the blocks that are new are not allocated.  An entry that speaks of a hole is given up as
 * well: where all of the file is allocated, that would look like a page.  Adds to *given_up
 * how many pages were.
 *
 * Returns false with err filled in; unless that comes before the first store, the next start
 * is cold.
 */
bool
PCachePoolGrow(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity,
			   const PCacheRangeList *holes, uint64 *given_up, PCacheError *err)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, pool->page_size);
	uint64		shift = PCachePoolSlotsGivenUp(pool, sb, capacity);
	uint64		n = sb->slots_used;
	PCacheDescriptor *entries = malloc(Max(n, 1) * sizeof(PCacheDescriptor));
	PCacheDescriptor *ledger;
	PCacheDescriptor free_slot;

	Assert(sb->state == PCACHE_STATE_CLEAN);
	if (entries == NULL)
		return PCacheSetError(err, _("out of memory"));
	/* those that can't be read come back damaged */
	(void) PCacheReadDescriptors(pool->fd, 0, n, entries);
	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if (!PCachePoolSetSize(pool, Max(g.pool_size, pool->file_size), g.blocks_offset, err) ||
		!PCachePoolMap(pool, err))
	{
		free(entries);
		return false;
	}
	sb->state = PCACHE_STATE_EMPTY;
	if (!PCacheSuperblockStore(&pool->map, sb))
		goto fail;

	for (uint64 slot = 0; slot < n; slot++)
	{
		PCacheDescriptor *entry = &entries[slot];

		if (!PCacheSeqIsSealed(entry->seq))
			continue;
		if (slot >= shift && PCacheDescriptorIsIntact(entry, slot) &&
			!PCacheRangeOverlaps(holes, sb->blocks_offset + slot * BLCKSZ, BLCKSZ))
		{
			entry->slot = slot - shift;
			entry->crc = PCacheDescriptorCrc(entry);
			continue;
		}
		PCacheDescriptorSetFree(entry);
		(*given_up)++;
	}
	n -= Min(n, shift);
	ledger = (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET);
	PCacheDescriptorSetFree(&free_slot);
	for (uint64 slot = 0; slot < capacity; slot++)
		PCacheDescriptorStore(&pool->map, &ledger[slot],
							  slot < n ? &entries[slot + shift] : &free_slot);
	if (!PCacheDrain(&pool->map))
		goto fail;

	sb->state = PCACHE_STATE_CLEAN;
	sb->capacity = capacity;
	sb->blocks_offset = g.blocks_offset;
	sb->pool_size = pool->file_size;
	sb->slots_used = n;
	if (!PCacheSuperblockStore(&pool->map, sb))
		goto fail;
	free(entries);
	return true;

fail:
	PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"), pool->path);
	free(entries);
	return false;
}

/*
 * Is the pool, which has this superblock and our format, larger or smaller than one that
 * is created with these settings?  The setting is for new pools, and for those that become
 * larger because shared_buffers does, so nothing is changed; but whoever sets it expects
 * something.
 *
 * size is pcache.size, which says nothing below shared_buffers (nbuffers).  Both are in
 * blocks.  Sets err if it differs.
 */
bool
PCacheSizeDiffers(const PCachePool *pool, const PCacheSuperblock *sb,
				  uint64 size, uint64 nbuffers, PCacheError *err)
{
	if (size == 0 || size < nbuffers || sb->capacity < nbuffers)
		return false;

	/*
	 * one that was formatted again may have more blocks in a file of that
	 * size
	 */
	if (sb->capacity >= size &&
		PCacheComputeGeometry(size, pool->page_size).pool_size >= sb->pool_size)
		return false;
	PCacheSetError(err, _("\"%s\" has no effect on persistent cache pool \"%s\", which is there already"),
				   PCacheSetting("size"), pool->path);
	PCacheSetHint(err, _("The pool has room for %llu blocks, and \"%s\" asks for %llu.  Run \"pg_pcache init --force\" while the server is down to make a new one, with which the next start is cold."),
				  (unsigned long long) sb->capacity, PCacheSetting("size"),
				  (unsigned long long) size);
	return true;
}
