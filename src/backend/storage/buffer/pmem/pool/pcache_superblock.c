/*-------------------------------------------------------------------------
 *
 * pcache_superblock.c
 *	  The pool's superblock and its copy.
 *
 * The superblock is written as a whole: the first one, made durable, then
 * the copy, made durable.  So at any time at least one of the two is intact,
 * and whenever the caller goes on both say the same.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_superblock.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <time.h>

#include "port.h"
#include "storage/pcache_pool.h"

void
PCacheSuperblockSetCrc(PCacheSuperblock *sb)
{
	sb->crc = PCacheCrcOf(sb);
}

/*
 * Is this superblock undamaged?  A superblock of another format version can
 * be: its CRC may then lie elsewhere, and we do not claim to know.
 */
static bool
SuperblockIsIntact(const PCacheSuperblock *sb, PCacheError *err)
{
	if (memcmp(sb->magic, PCACHE_MAGIC_HEAD, PCACHE_MAGIC_LEN) != 0)
		return PCacheSetError(err, _("magic number is wrong"));
	if (sb->byte_order != PCACHE_BYTE_ORDER)
		return PCacheSetError(err, _("byte order does not match this machine"));
	if (sb->format_version != PCACHE_FORMAT_VERSION)
		return true;
	if (memcmp(sb->tail, PCACHE_MAGIC_TAIL, PCACHE_MAGIC_LEN) != 0)
		return PCacheSetError(err, _("trailing magic number is wrong"));
	if (sb->crc != PCacheCrcOf(sb))
		return PCacheSetError(err, _("checksum is wrong"));
	return true;
}

/*
 * Is the copy newer?  Only if the first one could not be written, because it
 * was on a bad block, and can be read again.
 */
static bool
CopyIsNewer(const PCacheSuperblock *first, const PCacheSuperblock *copy)
{
	return first->format_version == PCACHE_FORMAT_VERSION &&
		copy->format_version == PCACHE_FORMAT_VERSION &&
		memcmp(first->pool_uuid, copy->pool_uuid, PCACHE_UUID_LEN) == 0 &&
		copy->generation > first->generation;
}

/*
 * Choose between the superblock and its copy.
 *
 * The first one wins if it is intact.  It may be newer than the copy (a
 * crash between the two writes), and then it is the one to believe: nobody
 * relies on a transition before both are durable.  If it is older it was on a
 * bad block for a while, and loses.  An intact first
 * superblock of another format version loses against an intact copy of ours,
 * as only its version field can have been damaged then.
 *
 * err tells what is wrong with the first one, if it was not chosen.
 */
PCacheSuperblockSource
PCacheSuperblockChoose(const PCacheSuperblock *first,
					   const PCacheSuperblock *copy,
					   PCacheSuperblock *chosen, PCacheError *err)
{
	PCacheError copy_err;
	bool		first_intact = SuperblockIsIntact(first, err);
	bool		copy_intact = SuperblockIsIntact(copy, &copy_err);

	if (first_intact && copy_intact &&
		first->format_version != PCACHE_FORMAT_VERSION &&
		copy->format_version == PCACHE_FORMAT_VERSION)
	{
		PCacheSetError(err, _("format version %u is unknown"),
					   first->format_version);
		first_intact = false;
	}

	if (first_intact && copy_intact && CopyIsNewer(first, copy))
	{
		PCacheSetError(err, _("it is older than its copy"));
		first_intact = false;
	}

	if (first_intact)
	{
		*chosen = *first;
		return PCACHE_SB_FIRST;
	}
	if (copy_intact)
	{
		*chosen = *copy;
		return PCACHE_SB_COPY;
	}
	return PCACHE_SB_NONE;
}

/*
 * Read both superblocks of an open pool, and find out which one to believe.
 *
 * With read(), which reports a bad block as an error and not as SIGBUS.
 */
void
PCacheReadSuperblocks(int fd, PCacheSuperblocks *superblocks)
{
	PCacheSuperblock first;
	PCacheSuperblock copy;
	PCacheSuperblock ignored;

	memset(superblocks, 0, sizeof(*superblocks));
	/* what cannot be read as a whole has no magic number, either */
	if (!PCacheReadExact(fd, &first, sizeof(first), PCACHE_SUPERBLOCK_OFFSET))
		memset(&first, 0, sizeof(first));
	if (!PCacheReadExact(fd, &copy, sizeof(copy), PCACHE_COPY_OFFSET))
		memset(&copy, 0, sizeof(copy));

	superblocks->source =
		PCacheSuperblockChoose(&first, &copy, &superblocks->chosen,
							   &superblocks->first_error);
	superblocks->first_intact = (superblocks->source == PCACHE_SB_FIRST);
	/* judged beside the chosen one: a foreign format version is damage, then */
	superblocks->copy_intact =
		(PCacheSuperblockChoose(&copy,
								superblocks->source == PCACHE_SB_NONE ?
								&copy : &superblocks->chosen,
								&ignored,
								&superblocks->copy_error) == PCACHE_SB_FIRST);
}

/*
 * Write the superblock and its copy durably.  Returns false with errno set;
 * then either of the two may have been written, or none.
 *
 * One of them that is on a bad block is left alone, because the kernel
 * answers an access with SIGBUS; the other one has to do.  If both are, this
 * fails with EIO.  bad says so of the first one and of the copy.
 *
 * The caller must be the only one to write the superblock.
 */
bool
PCacheSuperblockStoreAvoiding(const PCacheMapping *map, PCacheSuperblock *sb,
							  const bool bad[2])
{
	static const off_t offsets[] = {PCACHE_SUPERBLOCK_OFFSET, PCACHE_COPY_OFFSET};
	const PCacheSuperblock *first =
		(const PCacheSuperblock *) (map->base + PCACHE_SUPERBLOCK_OFFSET);
	char	   *copy = map->base + PCACHE_COPY_OFFSET;
	PCacheError err;

	if (bad[0] && bad[1])
	{
		errno = EIO;
		return false;
	}

	/*
	 * If the last store was interrupted, the first one may be the only intact
	 * one: do not overwrite it before there is a copy.  Whoever made that
	 * store may have been killed before its flush, so neither of the two is
	 * known to be durable: each must be before the other one is overwritten.
	 */
	if (!bad[0] && !bad[1])
	{
		if (memcmp(first, copy, sizeof(PCacheSuperblock)) != 0 &&
			SuperblockIsIntact(first, &err) &&
			!CopyIsNewer(first, (const PCacheSuperblock *) copy))
		{
			if (!PCachePersist(map, first, sizeof(PCacheSuperblock)))
				return false;
			PCacheMemcpyNodrain(map, copy, first, sizeof(PCacheSuperblock));
		}
		if (!PCachePersist(map, copy, sizeof(PCacheSuperblock)))
			return false;
	}

	sb->generation++;
	PCacheSuperblockSetCrc(sb);
	for (int i = 0; i < lengthof(offsets); i++)
	{
		char	   *dest = map->base + offsets[i];

		if (bad[i])
			continue;
		PCacheMemcpyNodrain(map, dest, sb, sizeof(PCacheSuperblock));
		if (!PCachePersist(map, dest, sizeof(PCacheSuperblock)))
			return false;
	}
	return true;
}

/*
 * Make the pool that of a new incarnation of the cluster, in state
 * "empty": until somebody sets another one, nothing in it is kept.
 *
 * control is the cluster's; mode and slots_used are what the pool will be
 * used with.  DIMMs are the caller's business.  Returns false if there are no
 * random numbers.
 */
bool
PCacheSuperblockAdopt(PCacheSuperblock *sb, const ControlFileData *control,
					  PCacheFsKind fs_kind, PersistentCacheMode mode,
					  uint64 slots_used)
{
	if (!pg_strong_random(&sb->incarnation, sizeof(sb->incarnation)))
		return false;
	sb->system_identifier = control->system_identifier;
	sb->pg_major = PG_VERSION_NUM / 10000;
	sb->pg_control_version = control->pg_control_version;
	sb->catalog_version = control->catalog_version_no;
	sb->fs_kind = fs_kind;
	sb->state = PCACHE_STATE_EMPTY;
	sb->mode = mode;
	sb->slots_used = slots_used;
	sb->data_checksum_version = control->data_checksum_version;
	(void) PCacheReadBootId(sb->boot_id);
	return true;
}

/*
 * Say that all descriptors and pages are durable, and go with pg_control as
 * it is on disk after a clean shutdown.  The caller sets saved_at, the time after which
 * the pool's server wrote to no data file, and clock_offset.
 */
void
PCacheSuperblockSetClean(PCacheSuperblock *sb, const ControlFileData *control,
						 uint64 saved_pages)
{
	sb->state = PCACHE_STATE_CLEAN;
	sb->control_state = control->state;
	sb->saved.location = control->checkPoint;
	sb->saved.redo = control->checkPointCopy.redo;
	sb->saved.timeline = control->checkPointCopy.ThisTimeLineID;
	sb->saved.control_crc = control->crc;
	sb->min_recovery_point = control->minRecoveryPoint;
	sb->min_recovery_point_timeline = control->minRecoveryPointTLI;
	sb->data_checksum_version = control->data_checksum_version;
	sb->saved_pages = saved_pages;
}

/*
 * Give a pool that was just formatted the identity of one that was saved, and
 * all that its server knew of the cluster.  What is about the file and the
 * memory below it stays.
 */
void
PCacheSuperblockBecome(PCacheSuperblock *sb, const PCacheSuperblock *saved)
{
	PCacheSuperblock formatted = *sb;

	*sb = *saved;
	sb->pool_size = formatted.pool_size;
	sb->fs_kind = formatted.fs_kind;
	sb->capacity = formatted.capacity;
	sb->descriptors_offset = formatted.descriptors_offset;
	sb->blocks_offset = formatted.blocks_offset;
	sb->generation = formatted.generation;

	/*
	 * The offset of another boot, perhaps of another host, cannot be compared
	 * with that of this clock.  From now on a clock that is set back is
	 * noticed.  If it is behind the time of the stop, files are written
	 * meanwhile that look older, so it counts as set back in this boot.
	 */
	if (memcmp(sb->boot_id, formatted.boot_id, PCACHE_UUID_LEN) != 0)
		sb->clock_offset = sb->saved_at > PCacheReadClock(CLOCK_REALTIME) / PCACHE_NSEC ?
			sb->saved_at * PCACHE_NSEC : PCacheClockOffset();
	memcpy(sb->boot_id, formatted.boot_id, PCACHE_UUID_LEN);
	sb->n_dimms = formatted.n_dimms;
	sb->dimms_state = formatted.dimms_state;
	memcpy(sb->dimms, formatted.dimms, sizeof(sb->dimms));
}

bool
PCacheSuperblockStore(const PCacheMapping *map, PCacheSuperblock *sb)
{
	static const bool none_bad[2] = {false, false};

	return PCacheSuperblockStoreAvoiding(map, sb, none_bad);
}

/* The name of a state of the pool, for users. */
const char *
PCacheStateName(uint32 state)
{
	static const char *const names[] = {
		[PCACHE_STATE_EMPTY] = "empty",
		[PCACHE_STATE_DIRTY] = "dirty",
		[PCACHE_STATE_CLEAN] = "clean",
	};

	return PCacheNameOf(names, state);
}
