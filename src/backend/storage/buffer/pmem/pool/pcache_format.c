/*-------------------------------------------------------------------------
 *
 * pcache_format.c
 *	  What makes a file a pool: format it, and mend a file that has lost a part.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_format.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <time.h>
#include <unistd.h>

#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"

/* How many bytes of descriptors are formatted at once. */
#define FORMAT_AT_ONCE		(UINT64CONST(1) << 26)

/*
 * The largest capacity of a pool in a file of that many bytes; 0 if it is too
 * small for any.
 */
uint64
PCacheCapacityFor(uint64 file_size)
{
	uint64		capacity;

	file_size -= file_size % PCACHE_ALIGNMENT;
	capacity = file_size / (BLCKSZ + sizeof(PCacheDescriptor) + PCACHE_HEADER_SIZE);
	while (capacity > 0)
	{
		PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);
		uint64		fitting = file_size > g.blocks_offset ?
			(file_size - g.blocks_offset) / BLCKSZ : 0;

		if (fitting >= capacity)
		{
			/* what is left over, as far as there are descriptors for it */
			capacity = Min(fitting, (g.headers_offset - PCACHE_DESCRIPTORS_OFFSET) /
						   sizeof(PCacheDescriptor));
			break;
		}
		capacity = fitting;
	}
	return Min(capacity, PCACHE_MAX_CAPACITY);
}

/*
 * The capacity of a pool that is formatted because it cannot be used as it is.
 * Its own is in doubt then, so go by the size of the file.  size, which is pcache.size, counts
 * if there is room for it.
 */
uint64
PCacheReformatCapacity(const PCachePool *pool, uint64 nbuffers, uint64 size)
{
	uint64		capacity = Max(PCacheCapacityFor(pool->file_size), nbuffers);

	size = Min(size, PCACHE_MAX_CAPACITY);
	if (size > capacity &&
		PCachePoolHasRoom(pool, PCacheComputeGeometry(size, pool->page_size).pool_size))
		return size;
	return capacity;
}

/*
 * Set the hint of an error that says what is wrong with the superblocks of an open pool, of
 * which none is intact.
 */
void
PCachePoolSetDamagedHint(const PCachePool *pool, PCacheError *err)
{
	PCacheSetHint(err, _("Both superblocks of file \"%s\" are damaged, so a start makes an empty pool of it.  If it belongs to another cluster, set \"%s\" to a directory of its own for this one."),
				  pool->path, PCacheSetting("directory"));
}

/* What the kernel maps at least: a store next to a bad block is SIGBUS as well. */
#define MAPPED_AT_ONCE		4096

/*
 * The page in a slot is lost: have no start make an entry of the slot's buffer header, which
 * a killed server may have left.  The pool is mapped, and the caller drains.  Returns false,
 * with errno set, if there is a bad block.
 */
bool
PCacheForgetHeader(const PCachePool *pool, const PCacheSuperblock *sb, uint64 slot)
{
	char		around[MAPPED_AT_ONCE];
	uint64		offset = PCacheHeaderOffset(sb, slot);

	if (!PCacheReadExact(pool->fd, around, sizeof(around), offset - offset % sizeof(around)))
		return false;
	memset(pool->map.base + offset, 0, PCACHE_HEADER_SIZE);
	PCacheFlush(&pool->map, pool->map.base + offset, PCACHE_HEADER_SIZE);
	return true;
}

/*
 * Make the slots free whose pages touch a part of the file, in the ledger and in the headers;
 * the caller drains.  Adds to *lost how many of them were sealed.  The pool must be mapped.
 */
static bool
FreeSlots(PCachePool *pool, const PCacheSuperblock *sb, uint64 start, uint64 end,
		  uint64 *lost, PCacheError *err)
{
	uint64		first = (Max(start, sb->blocks_offset) - sb->blocks_offset) / BLCKSZ;
	uint64		last = (Max(end, sb->blocks_offset) - sb->blocks_offset + BLCKSZ - 1) / BLCKSZ;
	PCacheDescriptor descs[64];
	PCacheDescriptor free_slot;

	PCacheDescriptorSetFree(&free_slot);
	last = Min(last, sb->capacity);
	for (; first < last; first += lengthof(descs))
	{
		int			n = Min(lengthof(descs), last - first);
		bool		readable;

		if (PCachePoolIsInterrupted(err))
			return false;
		/* a bad block among them would be SIGBUS */
		readable = PCacheReadDescriptors(pool->fd, first, n, descs);
		for (int i = 0; i < n && readable; i++)
		{
			PCacheDescriptorStore(&pool->map,
								  (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET) + first + i,
								  &free_slot);
			if (PCacheSeqIsSealed(descs[i].seq))
				(*lost)++;
			/* in other states nobody looks at headers any more */
			if (sb->state == PCACHE_STATE_DIRTY)
				readable = PCacheForgetHeader(pool, sb, first + i);
		}
		if (!readable)
			return PCacheSetError(err, _("could not free the slots that were cut off persistent cache pool \"%s\": %m"),
								  pool->path);
	}
	return true;
}

/*
 * The file of an open pool, which passed the geometry gate, is shorter than its
 * superblock says, or has holes: allocate what is missing, or with sparse, on tmpfs, all but
 * the blocks.
 *
 * The pages there are lost.  Their slots are made free, durably, before there
 * is anything to be read in their place: so a crash in between leaves nothing
 * behind that could be taken for a page.  That includes slots that look free:
 * whoever marked one may have been killed before the mark was flushed.
 *
 * A superblock that was in a hole is damaged, and so is a descriptor, which the
 * page gate finds.  What was between them may have been a reason not to believe
 * the pool, so it is made "empty" if something is missing there, in sb as well.
 *
 * The pool must not be mapped, and nobody else use it.  Returns how many
 * sealed pages were lost.  After an error the file is as long as it was.
 */
bool
PCachePoolRestoreSize(PCachePool *pool, PCacheSuperblock *sb, bool sparse,
					  uint64 *lost, PCacheError *err)
{
	bool		has_holes = PCachePoolHasHoles(pool);
	bool		head_is_lost = PCachePoolHeadIsLost(pool);
	uint64		start;
	uint64		end;
	bool		ok;

	*lost = 0;
	if (has_holes)
	{
		if (head_is_lost && !PCachePoolMarkEmpty(pool, sb, err))
			return false;
		/* what is stored to below */
		if (!PCachePoolAllocate(pool, 0, sb->blocks_offset, err))
			return false;
	}
	if (!PCachePoolMap(pool, err))
		return false;
	ok = FreeSlots(pool, sb, pool->file_size, sb->pool_size, lost, err);
	for (end = sb->blocks_offset;
		 ok && has_holes && PCachePoolNextHole(pool, end, &start, &end);)
		ok = FreeSlots(pool, sb, start, end, lost, err);
	if (ok && !PCacheDrain(&pool->map))
	{
		PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
					   pool->path);
		ok = false;
	}
	PCacheUnmap(&pool->map);
	return ok && PCachePoolSetSize(pool, sb->pool_size,
								   sparse ? sb->blocks_offset : sb->pool_size, err);
}

/*
 * The file of an open pool is about to get bytes that its superblock counts
 * as pages already, because it was cut off or has holes: make the pool "empty"
 * before, durably.  Otherwise a crash until it is formatted would leave a pool
 * with the size that its superblock says, whose descriptors speak of pages of
 * zeros.
 *
 * sb is the intact superblock, of our format version.  The pool may be mapped
 * or not, and is left so.
 */
bool
PCachePoolMarkEmpty(PCachePool *pool, PCacheSuperblock *sb, PCacheError *err)
{
	/* a file that ends there has no copy */
	const bool	missing[2] = {
		false, pool->file_size < PCACHE_COPY_OFFSET + PCACHE_SUPERBLOCK_SIZE
	};
	bool		mapped = pool->map.base != NULL;
	bool		ok;

	/* one of them may be in a hole */
	if (!PCachePoolAllocate(pool, 0, Min(pool->file_size, PCACHE_NOTES_OFFSET), err))
		return false;
	if (!mapped && !PCachePoolMap(pool, err))
		return false;
	sb->state = PCACHE_STATE_EMPTY;
	ok = PCacheSuperblockStoreAvoiding(&pool->map, sb, missing);
	if (!ok)
		PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
					   pool->path);
	if (!mapped)
		PCacheUnmap(&pool->map);
	return ok;
}

/*
 * Nothing of an open pool is kept: it is made "empty", if it is of our format version.  With
 * shed it gives back all but its head, at once, whoever else has its file open, and the next
 * start formats it anew.  The head is a whole page, which on hugetlbfs may have pages of the
 * cache in it.
 *
 * A store to a superblock on a bad block would be SIGBUS.  No start uses such a pool.
 */
bool
PCachePoolDiscard(PCachePool *pool, PCacheSuperblocks *superblocks, bool shed, PCacheError *err)
{
	uint64		size = TYPEALIGN64(pool->page_size, PCACHE_DESCRIPTORS_OFFSET);

	if (superblocks->source != PCACHE_SB_NONE &&
		superblocks->chosen.format_version == PCACHE_FORMAT_VERSION)
	{
		PCacheMediaReport *media = palloc(sizeof(*media));
		bool		is_bad;

		PCacheMediaQuery(pool->path, pool->fd, pool->fs_kind, media);
		is_bad = PCacheMediaRangeIsBad(media, 0, PCACHE_NOTES_OFFSET);
		PCacheMediaReportFree(media);
		pfree(media);
		if (!is_bad && !PCachePoolMarkEmpty(pool, &superblocks->chosen, err))
			return false;
	}
	if (!shed || pool->file_size <= size || ftruncate(pool->fd, size) == 0)
		return true;
	return PCacheSetError(err, _("could not truncate file \"%s\" to %llu MB: %m"),
						  pool->path, (unsigned long long) (size >> 20));
}

/*
 * Format an open pool that is mapped for writing: all slots free, state
 * "empty".  The file must be large enough.  Returns the new superblock, too.
 *
 * If it is interrupted the pool has no new superblock yet, and must not have
 * one that would be believed.
 */
bool
PCachePoolFormat(PCachePool *pool, uint64 capacity, uint64 system_identifier,
				 uint32 catalog_version, PCacheSuperblock *sb,
				 PCacheError *err)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);
	PCacheDescriptor *descs;

	Assert(pool->map.base != NULL && pool->map.length >= g.pool_size);

	memset(sb, 0, sizeof(*sb));
	memcpy(sb->magic, PCACHE_MAGIC_HEAD, PCACHE_MAGIC_LEN);
	memcpy(sb->tail, PCACHE_MAGIC_TAIL, PCACHE_MAGIC_LEN);
	sb->format_version = PCACHE_FORMAT_VERSION;
	sb->superblock_size = PCACHE_SUPERBLOCK_SIZE;
	if (!pg_strong_random(sb->pool_uuid, PCACHE_UUID_LEN))
		return PCacheSetError(err, _("could not generate a UUID for the persistent cache pool"));
	sb->system_identifier = system_identifier;
	sb->pool_size = pool->file_size;
	sb->created_at = time(NULL);
	sb->pg_major = PG_VERSION_NUM / 10000;
	sb->byte_order = PCACHE_BYTE_ORDER;
	sb->block_size = BLCKSZ;
	sb->descriptor_size = sizeof(PCacheDescriptor);
	sb->blocks_per_segment = RELSEG_SIZE;
	sb->pg_control_version = PG_CONTROL_VERSION;
	sb->catalog_version = catalog_version;
	sb->fs_kind = pool->fs_kind;
	sb->capacity = capacity;
	sb->descriptors_offset = PCACHE_DESCRIPTORS_OFFSET;
	sb->blocks_offset = g.blocks_offset;
	sb->state = PCACHE_STATE_EMPTY;
	(void) PCacheReadBootId(sb->boot_id);

	/*
	 * Free descriptors before there is a superblock that speaks of them, and
	 * no old notes.
	 */
	memset(pool->map.base + PCACHE_NOTES_OFFSET, 0,
		   PCACHE_DESCRIPTORS_OFFSET - PCACHE_NOTES_OFFSET);
	PCacheFlush(&pool->map, pool->map.base + PCACHE_NOTES_OFFSET,
				PCACHE_DESCRIPTORS_OFFSET - PCACHE_NOTES_OFFSET);
	descs = (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET);
	for (uint64 first = 0; first < capacity;
		 first += FORMAT_AT_ONCE / sizeof(PCacheDescriptor))
	{
		uint64		n = Min(FORMAT_AT_ONCE / sizeof(PCacheDescriptor), capacity - first);

		if (PCachePoolIsInterrupted(err))
			return false;
		memset(&descs[first], 0, n * sizeof(PCacheDescriptor));
		for (uint64 i = first; i < first + n; i++)
			descs[i].seq = PCACHE_DESC_FREE_SEQ;
		PCacheFlush(&pool->map, &descs[first], n * sizeof(PCacheDescriptor));
	}
	if (!PCacheDrain(&pool->map) ||
		!PCacheSuperblockStore(&pool->map, sb))
		return PCacheSetError(err, _("could not write persistent cache pool \"%s\": %m"),
							  pool->path);
	return true;
}
