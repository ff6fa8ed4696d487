/*-------------------------------------------------------------------------
 *
 * pcache_health.c
 *	  What the server knows of its pool's media.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_health.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "storage/bufpage.h"
#include "storage/lwlock.h"
#include "storage/pcache_core.h"
#include "utils/injection_point.h"
#include "utils/timestamp.h"

/* What this process last heard of the pool's media. */
PCacheMediaReport PCacheMedia;

/*
 * What of the pool's file is behind other memory, by PCacheCoverBadBlocks().
 * Children of the postmaster inherit it, as they inherit the mapping.
 */
static PCacheRangeList Covered;

/*
 * Put memory that is always readable over the pages with bad blocks of this
 * report, in the mapping of the pool.
 *
 * The slots there are not used, but they have addresses: who looks at all of
 * shared buffers (pg_buffercache_numa touches each page) would die of SIGBUS.
 * Nobody may store to such a page, so it cannot be written.
 *
 * Called by the postmaster when it has mapped the pool, before it has children.
 */
void
PCacheCoverBadBlocks(const PCacheMediaReport *report)
{
	const PCacheMapping *map = &PCacheThePool.map;
	uint64		blocks_start = PCacheCtl->superblock.blocks_offset;
	uint64		blocks_end = blocks_start + (uint64) NBuffers * BLCKSZ;
	uint64		page_size = sysconf(_SC_PAGESIZE);

	Covered.n_ranges = 0;
	Covered.truncated = false;
	if (report->bad.truncated)
		return;					/* the server cannot start */
	if (PCacheThePool.fs_kind == PCACHE_FS_HUGETLBFS)
		page_size = PCacheThePool.page_size;

	for (uint32 i = 0; i < report->bad.n_ranges; i++)
	{
		const PCacheByteRange *range = &report->bad.ranges[i];
		uint64		start = Max(range->offset, blocks_start);
		uint64		end = Min(range->offset + range->length, blocks_end);

		if (start >= end)
			continue;
		start -= start % page_size;
		end = TYPEALIGN64(page_size, end);
		if (start < blocks_start || end > map->length)
			continue;

		/* first of all, see to it that nobody uses what is covered */
		PCacheRangeAdd(&Covered, start, end - start);
		if (Covered.truncated ||
			mmap(map->base + start, end - start, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		{
			ereport(WARNING,
					(errmsg("could not put other memory over bad blocks of persistent cache pool \"%s\": %m",
							PCacheThePool.path),
					 errdetail("A session that touches all of shared buffers will end with SIGBUS.")));
			break;
		}
	}
}

/*
 * What is covered counts as bad as long as it is covered, even if the media is
 * said to be clean by now: what is stored there does not get into the pool.
 */
static void
AddCovered(PCacheMediaReport *report)
{
	for (uint32 i = 0; i < Covered.n_ranges; i++)
	{
		const PCacheByteRange *range = &Covered.ranges[i];
		uint64		end = range->offset + range->length;
		uint64		block = range->offset - range->offset % BLCKSZ;

		while (block < end && PCacheMediaRangeIsBad(report, block, BLCKSZ))
			block += BLCKSZ;
		if (block >= end)
			continue;			/* nothing new, as a rule */
		PCacheRangeAdd(&report->bad, range->offset, range->length);
		PCacheRangeMerge(&report->bad);
		report->blocks = PCACHE_MEDIA_BAD;
	}
}

/* Tell what is wrong with the pool's media, or not known. */
static void
LogMedia(void)
{
	char		health[PCACHE_MEDIA_HEALTH_LEN];

	if (PCacheMedia.blocks == PCACHE_MEDIA_BAD)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" has bad blocks", PCacheThePool.path),
				 PCacheMedia.bad.truncated ?
				 errdetail("There are too many to list.") :
				 errdetail_plural("%u range; the pages in it are dropped, and their slots not used.",
								  "%u ranges; the pages in them are dropped, and their slots not used.",
								  PCacheMedia.bad.n_ranges, PCacheMedia.bad.n_ranges)));
	else if (PCacheMedia.blocks == PCACHE_MEDIA_UNKNOWN &&
			 PCacheThePool.fs_kind == PCACHE_FS_FSDAX)
		ereport(LOG,
				(errmsg("bad blocks of persistent cache pool \"%s\" are not known: %s",
						PCacheThePool.path, PCacheMedia.blocks_why)));
	if (PCacheMedia.health & PCACHE_DIMM_TROUBLE)
		ereport(WARNING,
				(errmsg("DIMMs of persistent cache pool \"%s\" are not healthy: %s",
						PCacheThePool.path,
						PCacheMediaHealthText(PCacheMedia.health, health, sizeof(health)))));
}

/*
 * Have everybody know what a process was told of the media.
 *
 * A superblock once said to be bad is left alone until the next start: it has
 * missed stores.
 */
static void
PublishMedia(const PCacheMediaReport *report)
{
	PCacheMediaSummary summary;

	memset(&summary, 0, sizeof(summary));
	summary.checked_at = GetCurrentTimestamp();
	summary.blocks = report->blocks;
	strlcpy(summary.blocks_why, report->blocks_why, sizeof(summary.blocks_why));
	summary.bad_ranges = report->bad.n_ranges;
	for (uint32 i = 0; i < report->bad.n_ranges; i++)
		summary.bad_bytes += report->bad.ranges[i].length;
	summary.bad_truncated = report->bad.truncated;
	summary.dimms_state = report->dimms_state;
	strlcpy(summary.dimms_why, report->dimms_why, sizeof(summary.dimms_why));
	summary.n_dimms = report->n_dimms;
	summary.health = report->health;
	summary.domain = report->domain;
	summary.place = report->place;

	LWLockAcquire(PersistentCacheLock, LW_EXCLUSIVE);
	PCacheCtl->health.media = summary;
	PCacheCtl->health.superblock_bad[0] |=
		PCacheMediaRangeIsBad(report, PCACHE_SUPERBLOCK_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE);
	PCacheCtl->health.superblock_bad[1] |=
		PCacheMediaRangeIsBad(report, PCACHE_COPY_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE);
	PCacheCtl->health.suspect_bad |=
		PCacheMediaRangeIsBad(report, PCACHE_SUSPECT_OFFSET,
							  sizeof(PCacheSuspect));
	PCacheCtl->health.copy_notes_bad |=
		PCacheMediaRangeIsBad(report, PCACHE_COPY_NOTES_OFFSET,
							  PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote));
	LWLockRelease(PersistentCacheLock);
}

/* Ask for the state of the pool's media. */
void
PCacheAskMedia(void)
{
	PCacheMediaReportFree(&PCacheMedia);
	PCacheMediaQuery(PCacheThePool.path, PCacheThePool.fd,
					 PCacheThePool.fs_kind, &PCacheMedia);
	INJECTION_POINT("persistent-cache-media", &PCacheMedia);
	AddCovered(&PCacheMedia);
	PublishMedia(&PCacheMedia);
}

/* Likewise, and log what is wrong with it. */
void
PCacheQueryMedia(void)
{
	PCacheAskMedia();
	LogMedia();
}

/* Does any part of the slot's block lie on a bad block? */
bool
PCacheBlockIsBad(uint32 slot)
{
	return PCacheMediaRangeIsBad(&PCacheMedia,
								 PCacheCtl->superblock.blocks_offset +
								 (uint64) slot * BLCKSZ,
								 BLCKSZ);
}

/* Does the slot's descriptor lie on a bad block? */
bool
PCacheDescriptorIsBad(uint32 slot)
{
	return PCacheMediaRangeIsBad(&PCacheMedia,
								 PCACHE_DESCRIPTORS_OFFSET +
								 (uint64) slot * sizeof(PCacheDescriptor),
								 sizeof(PCacheDescriptor));
}

/* Is [start, end) within one range of the list? */
static bool
RangeIsIn(const PCacheRangeList *list, uint64 start, uint64 end)
{
	for (uint32 i = 0; i < list->n_ranges; i++)
	{
		if (list->ranges[i].offset <= start &&
			list->ranges[i].offset + list->ranges[i].length >= end)
			return true;
	}
	return false;
}

/*
 * Record in the pool, durably, on which bad blocks there are descriptors.
 *
 * Those are not stored to, so they still say what they said before.  The list of
 * bad blocks may be lost, as with a restart of the host, and what is below can
 * often be read: it is the whole sector that is listed for one bad line.  Returns
 * false if there is no room for that.
 */
bool
PCacheRememberBadDescriptors(void)
{
	const uint64 descriptors_end = PCACHE_DESCRIPTORS_OFFSET +
		(uint64) NBuffers * sizeof(PCacheDescriptor);
	PCacheRangeList known = {0};
	bool		done = true;

	if (PCacheMedia.bad.n_ranges == 0)
		return true;
	if (PCacheReadMemoryErrors(PCacheThePool.fd, &known))
		PCacheRangeMerge(&known);
	for (uint32 i = 0; done && i < PCacheMedia.bad.n_ranges; i++)
	{
		const PCacheByteRange *range = &PCacheMedia.bad.ranges[i];
		uint64		start = Max(range->offset, PCACHE_DESCRIPTORS_OFFSET);
		uint64		end = Min(range->offset + range->length, descriptors_end);

		if (start >= end || RangeIsIn(&known, start, end))
			continue;
		if (end - start > PG_UINT32_MAX)
			done = false;
		else
			done = PCacheNoteMemoryError(&PCacheThePool.map, start, end - start);
	}
	free(known.ranges);
	return done;
}
