/*-------------------------------------------------------------------------
 *
 * clear.c
 *	  Have the kernel clear bad blocks, and save what was around them.
 *
 * Part of "pg_pcache rebuild"; what is looked at, and in which order, is in
 * rebuild.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/clear.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"

/* In which parts of this size metadata is saved around a bad block. */
#define SECTOR_SIZE		512

/* Less than the kernel's page is never given back. */
#define MIN_UNIT		4096


/*
 * The ranges to punch: the bad ones, extended to what the file system can
 * give back.  The list is malloc'd.
 */
static PCacheRangeList
RangesToClear(const Cluster *c)
{
	const PCacheMediaReport *media = &c->judge.media;
	PCacheRangeList list = {0};
	struct statvfs vfs;
	uint64		unit;

	if (media->bad.n_ranges == 0 && !media->bad.truncated)
		return list;
	if (fstatvfs(c->pool.fd, &vfs) < 0)
		pg_fatal("could not stat file system of \"%s\": %m", c->pool.path);
	unit = Max(vfs.f_bsize, MIN_UNIT);

	if (media->bad.truncated)
	{
		if (!c->options->reset)
			Refuse(psprintf(_("To clear all of it, use option %s."), "--reset"),
				   _("persistent cache pool \"%s\" has too many bad blocks to list"), c->pool.path);
		PCacheRangeAdd(&list, 0, c->pool.file_size);
		return list;
	}
	for (uint32 i = 0; i < media->bad.n_ranges; i++)
	{
		const PCacheByteRange *bad = &media->bad.ranges[i];
		uint64		start = bad->offset - bad->offset % unit;
		uint64		end = TYPEALIGN64(unit, bad->offset + bad->length);

		end = Min(end, c->pool.file_size);
		if (start < end)
			PCacheRangeAdd(&list, start, end - start);
	}
	PCacheRangeMerge(&list);
	return list;
}

static bool
RangesOverlap(const PCacheByteRange *range, uint64 offset, uint64 length)
{
	return range->offset < offset + length && offset < range->offset + range->length;
}

static bool
OverlapsAny(const PCacheRangeList *list, uint64 offset, uint64 length)
{
	for (uint32 i = 0; i < list->n_ranges; i++)
	{
		if (RangesOverlap(&list->ranges[i], offset, length))
			return true;
	}
	return false;
}

/*
 * Free the slots whose page is about to be punched, and say so durably
 * before.  Their descriptors and headers are elsewhere, or are punched too.
 */
static void
FreeSlotsIn(Cluster *c, const PCacheRangeList *list)
{
	const PCacheSuperblock *sb = &c->superblocks.chosen;

	for (uint32 i = 0; i < list->n_ranges; i++)
	{
		const PCacheByteRange *range = &list->ranges[i];
		uint64		end = range->offset + range->length;
		uint64		first;

		if (end <= sb->blocks_offset)
			continue;
		first = range->offset <= sb->blocks_offset ? 0 :
			(range->offset - sb->blocks_offset) / BLCKSZ;
		for (uint64 slot = first; slot < sb->capacity &&
			 sb->blocks_offset + slot * BLCKSZ < end; slot++)
		{
			if (!OverlapsAny(list, PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor),
							 sizeof(PCacheDescriptor)))
				FreeSlot(c, slot);
			if (!OverlapsAny(list, PCacheHeaderOffset(sb, slot), PCACHE_HEADER_SIZE))
				ForgetHeader(c, slot);
		}
	}
	DrainPool(c);
}

/* What of the metadata in a range can still be read. */
typedef struct SavedSectors
{
	char	   *bytes;
	bool	   *readable;		/* for each sector */
	uint64		length;
} SavedSectors;

static SavedSectors
SaveSectors(const Cluster *c, const PCacheByteRange *range, uint64 limit)
{
	SavedSectors saved = {0};
	uint64		end = Min(range->offset + range->length, limit);

	if (range->offset >= end)
		return saved;
	saved.length = end - range->offset;
	saved.bytes = pg_malloc0(saved.length);
	saved.readable = pg_malloc0(saved.length / SECTOR_SIZE);
	for (uint64 done = 0; done < saved.length; done += SECTOR_SIZE)
		saved.readable[done / SECTOR_SIZE] =
			!PCacheMediaRangeIsBad(&c->judge.media, range->offset + done, SECTOR_SIZE) &&
			PCacheReadExact(c->pool.fd, saved.bytes + done, SECTOR_SIZE,
							range->offset + done);
	return saved;
}

/*
 * Descriptors and headers that are put back must not speak of pages that are punched.
 * FreeSlotsIn() saw to those that stay where they are.
 */
static void
FreeSavedSlots(const PCacheSuperblock *sb, const PCacheRangeList *list,
			   const PCacheByteRange *range, SavedSectors *saved)
{
	for (uint64 done = 0; done < saved->length; done += sizeof(PCacheDescriptor))
	{
		uint64		offset = range->offset + done;
		uint64		slot = (offset - PCACHE_DESCRIPTORS_OFFSET) / sizeof(PCacheDescriptor);

		if (offset < PCACHE_DESCRIPTORS_OFFSET || slot >= sb->capacity)
			continue;
		if (OverlapsAny(list, sb->blocks_offset + slot * BLCKSZ, BLCKSZ))
			PCacheDescriptorSetFree((PCacheDescriptor *) (saved->bytes + done));
	}
	for (uint64 done = 0; done < saved->length; done += PCACHE_HEADER_SIZE)
	{
		uint64		offset = range->offset + done;
		uint64		slot = (offset - PCacheHeaderOffset(sb, 0)) / PCACHE_HEADER_SIZE;

		if (offset < PCacheHeaderOffset(sb, 0) || slot >= sb->capacity)
			continue;
		if (OverlapsAny(list, sb->blocks_offset + slot * BLCKSZ, BLCKSZ))
			memset(saved->bytes + done, 0, PCACHE_HEADER_SIZE);
	}
}

static void
PutBackSectors(const Cluster *c, const PCacheByteRange *range, SavedSectors *saved)
{
	for (uint64 done = 0; done < saved->length; done += SECTOR_SIZE)
	{
		if (saved->readable[done / SECTOR_SIZE])
			PCacheMemcpyNodrain(&c->pool.map,
								c->pool.map.base + range->offset + done,
								saved->bytes + done, SECTOR_SIZE);
	}
	DrainPool(c);
}

static void
PunchAndAllocate(const Cluster *c, const PCacheByteRange *range)
{
	int			rc;

	do
	{
		rc = fallocate(c->pool.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   range->offset, range->length);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		pg_fatal("could not punch a hole of %llu bytes at offset %llu into file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, c->pool.path);
	Step("punched");
	do
	{
		rc = posix_fallocate(c->pool.fd, range->offset, range->length);
	} while (rc == EINTR);
	if (rc != 0)
	{
		errno = rc;
		pg_fatal("could not allocate %llu bytes at offset %llu of file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, c->pool.path);
	}
}

/*
 * Around the time at which notes that speak against the pool are not there, it must be
 * cold: set this state in the superblocks that can be written to.
 */
static void
SetStateAvoiding(Cluster *c, uint32 state)
{
	const bool	bad[2] = {
		PCacheMediaRangeIsBad(&c->judge.media, PCACHE_SUPERBLOCK_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE),
		PCacheMediaRangeIsBad(&c->judge.media, PCACHE_COPY_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE),
	};

	c->superblocks.chosen.state = state;
	if (!PCacheSuperblockStoreAvoiding(&c->pool.map, &c->superblocks.chosen, bad))
		FailToWrite(c);
}

/*
 * Sectors with notes may have been exchanged.  If they could not be read before, nobody
 * knows what these said: now they say whatever speaks against the pool.  What was
 * last seen of the cluster is damaged as well.
 */
static void
RestoreNotes(const Cluster *c, const PCacheByteRange *range, const SavedSectors *saved)
{
	for (uint64 done = 0; done < saved->length; done += SECTOR_SIZE)
	{
		uint64		start = Max(range->offset + done, PCACHE_SUSPECT_OFFSET);
		uint64		end = Min(range->offset + done + SECTOR_SIZE, PCACHE_NOTES_END);

		if (saved->readable[done / SECTOR_SIZE] || start >= end)
			continue;
		memset(c->pool.map.base + start, 0xFF, end - start);
		if (!PCachePersist(&c->pool.map, c->pool.map.base + start, end - start))
			FailToWrite(c);
	}
}

/*
 * Clear bad blocks, and what the pool remembers of memory errors: give their
 * part of the file back, and get a new one.
 * Pages in it are gone; of superblocks, notes and descriptors
 * what can be read is put back.  Each step leaves the pool valid.
 */
void
ClearBadBlocks(Cluster *c, ClearedBlocks *result)
{
	PCacheRangeList list = RangesToClear(c);
	bool		usable = SuperblockIsUsable(c);

	if (list.n_ranges == 0)
		return;
	for (uint32 i = 0; i < c->judge.media.bad.n_ranges; i++)
		result->bytes += c->judge.media.bad.ranges[i].length;
	result->ranges = c->judge.media.bad.n_ranges;
	if (c->options->dry_run)
		return;

	if (usable)
	{
		FreeSlotsIn(c, &list);
		Step("slots-freed");
	}
	for (uint32 i = 0; i < list.n_ranges; i++)
	{
		const PCacheByteRange *range = &list.ranges[i];
		bool		note = usable && !c->options->reset &&
			RangesOverlap(range, PCACHE_SUSPECT_OFFSET, PCACHE_NOTES_END - PCACHE_SUSPECT_OFFSET);
		uint32		state = c->superblocks.chosen.state;
		SavedSectors saved;

		if (note)
		{
			SetStateAvoiding(c, PCACHE_STATE_EMPTY);
			Step("marked-for-note");
		}
		saved = SaveSectors(c, range, usable ? c->superblocks.chosen.blocks_offset : 0);
		FreeSavedSlots(&c->superblocks.chosen, &list, range, &saved);
		PunchAndAllocate(c, range);
		Step("allocated");
		if (!PCacheForgetMemoryErrors(&c->pool.map, range->offset, range->length))
			FailToWrite(c);
		Step("forgotten");
		/* what is still bad must not be touched */
		QueryMedia(&c->pool, &c->judge.media);
		for (uint64 done = 0; done < saved.length; done += SECTOR_SIZE)
		{
			if (PCacheMediaRangeIsBad(&c->judge.media, range->offset + done, SECTOR_SIZE))
				Refuse(_("Create a pool on other media with \"pg_pcache init --force\"."),
					   _("could not clear bad blocks at offset %llu of persistent cache pool \"%s\""),
					   (unsigned long long) (range->offset + done), c->pool.path);
		}
		PutBackSectors(c, range, &saved);
		Step("put-back");
		if (note)
		{
			RestoreNotes(c, range, &saved);
			Step("note-restored");
			SetStateAvoiding(c, state);
			Step("unmarked-for-note");
		}
		pg_free(saved.bytes);
		pg_free(saved.readable);
	}
	free(list.ranges);

	for (uint32 i = 0; i < c->judge.media.bad.n_ranges; i++)
		result->still_bad += c->judge.media.bad.ranges[i].length;
	if (c->judge.media.bad.truncated)
		result->still_bad = result->bytes;
	if (result->still_bad > 0)
	{
		pg_log_warning("%llu bytes of persistent cache pool \"%s\" are still bad",
					   (unsigned long long) result->still_bad, c->pool.path);
		pg_log_warning_detail("The server does not use the slots that they are in.");
	}
}
