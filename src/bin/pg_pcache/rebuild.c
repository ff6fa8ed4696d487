/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  pg_pcache rebuild: mend a pool in place.
 *
 * All is looked at before anything is changed.  Then, each only if asked for
 * or needed: clear bad blocks, format damaged descriptors, restore damaged
 * superblocks, empty the pool (--reset), give it another size (--resize), and
 * fill it from the data files (--warm-from-files).
 *
 * At any point of this the tool, or the machine, may die.  Most steps leave
 * the pool valid, since to drop a page is always right.  Where they would not
 * it is first durably marked as "attaching", as it is while a server starts,
 * so that the next start is cold; that mark goes last.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/rebuild.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "common/logging.h"
#include "rebuild.h"

/* In which parts of this size metadata is saved around a bad block. */
#define SECTOR_SIZE		512

/* Less than the kernel's page is never given back. */
#define MIN_UNIT		4096

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

static PCacheSuperblock *
Superblock(Rebuild *r)
{
	return &r->superblocks.chosen;
}

PCacheDescriptor *
MappedDescriptor(const Rebuild *r, uint64 slot)
{
	return (PCacheDescriptor *) (r->pool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

pg_noreturn static void FailToWrite(const Rebuild *r);

static void
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

void
StoreSuperblock(Rebuild *r)
{
	if (!PCacheSuperblockStore(&r->pool.map, Superblock(r)))
		FailToWrite(r);
}

static void
MapPool(Rebuild *r)
{
	PCacheError err;

	if (r->pool.map.base == NULL && !PCachePoolMap(&r->pool, &err))
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

/*
 * Write the cluster's record of the pool as the superblock now is, but with
 * the incarnation given: only who has emptied or filled the pool may make the
 * two agree.
 */
void
StoreRecord(Rebuild *r, uint64 incarnation)
{
	const PCacheSuperblock *sb = Superblock(r);
	PCacheError err;

	memset(&r->record, 0, sizeof(r->record));
	strlcpy(r->record.directory, r->directory, sizeof(r->record.directory));
	r->record.capacity = sb->capacity;
	memcpy(r->record.pool_uuid, sb->pool_uuid, PCACHE_UUID_LEN);
	r->record.fs_kind = r->pool.fs_kind;
	r->record.incarnation = incarnation;
	if (!PCacheRecordWrite(r->options->pgdata, pg_file_create_mode,
							  &r->record, &err))
		FailWith(&err);
	r->have_record = true;
}

/* Is the superblock one that we can go on with? */
static bool
SuperblockIsUsable(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;

	return r->superblocks.source != PCACHE_SB_NONE &&
		sb->format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(sb, r->pool.file_size).refusal == PCACHE_WARM;
}

/*
 * Only the pool that goes with the data directory is touched, unless the user
 * insists, and then none of its pages is worth anything.
 */
static void
CheckIdentity(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;
	const PCacheOptions *options = r->options;
	bool		known = r->superblocks.source != PCACHE_SB_NONE;
	char		detail[1024];

	if (known && sb->system_identifier != r->control->system_identifier)
		snprintf(detail, sizeof(detail),
				 _("It belongs to another cluster, with system identifier %llu; this one has %llu."),
				 (unsigned long long) sb->system_identifier,
				 (unsigned long long) r->control->system_identifier);
	else if (!r->have_record)
		snprintf(detail, sizeof(detail),
				 _("The data directory has no record of a pool."));
	else if (known && memcmp(sb->pool_uuid, r->record.pool_uuid, PCACHE_UUID_LEN) != 0)
		snprintf(detail, sizeof(detail),
				 _("Its UUID is %s; the data directory was last used with pool %s."),
				 FormatUuid(sb->pool_uuid), FormatUuid(r->record.pool_uuid));
	else if (!known && strcmp(r->record.directory, r->directory) != 0)
		snprintf(detail, sizeof(detail),
				 _("Its superblock is damaged, and the data directory was last used with the pool in \"%s\"."),
				 r->record.directory);
	else
		return;

	if (options->force && options->reset)
		return;
	pg_log_error("persistent cache pool \"%s\" does not go with this data directory",
				 r->pool.path);
	pg_log_error_detail("%s", detail);
	pg_log_error_hint("To make it an empty pool of this cluster, use options %s and %s.",
					  "--reset", "--force");
	exit(EXIT_ERROR);
}

static void
RefuseUnusable(const Rebuild *r)
{
	const PCacheSuperblock *sb = &r->superblocks.chosen;

	if (SuperblockIsUsable(r) || r->options->reset)
		return;
	pg_log_error("persistent cache pool \"%s\" cannot be repaired", r->pool.path);
	if (r->superblocks.source == PCACHE_SB_NONE)
		pg_log_error_detail("Both superblocks are damaged.  The first one: %s.  The copy: %s.",
							r->superblocks.first_error.message,
							r->superblocks.copy_error.message);
	else if (sb->format_version != PCACHE_FORMAT_VERSION)
		pg_log_error_detail("It has format version %u; this program has %u.",
							sb->format_version, PCACHE_FORMAT_VERSION);
	else
		pg_log_error_detail("%s", PCacheGeometryGate(sb, r->pool.file_size).detail);
	pg_log_error_hint("To make it an empty pool, use option %s.", "--reset");
	exit(EXIT_ERROR);
}

/* Open the pool, and read all that it says of itself. */
static void
OpenPool(Rebuild *r)
{
	PCacheError err;
	char		directory[MAXPGPATH];
	PCacheOpenMode mode = r->options->dry_run ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE;

	switch (PCacheRecordRead(r->options->pgdata, &r->record, &err))
	{
		case PCACHE_RECORD_OK:
			r->have_record = true;
			break;
		case PCACHE_RECORD_MISSING:
			break;
		case PCACHE_RECORD_ERROR:
			pg_log_warning("%s", err.message);
			break;
	}
	FindPoolDirectory(r->options, &r->conf, r->have_record ? &r->record : NULL,
					  directory);
	switch (PCachePoolOpen(directory, mode, &r->pool, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			PCacheSetHint(&err, _("Is its file system mounted?  Otherwise run \"pg_pcache init%s\" to create the pool, and \"pg_pcache rebuild --warm-from-files\" to fill it."),
						  r->have_record ? " --force" : "");
			FailWith(&err);
			break;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			FailWith(&err);
	}
	ResolvePath(directory, r->directory);
	ResolvePath(r->pool.path, r->result.pool);
	strlcpy(r->pool.path, r->result.pool, sizeof(r->pool.path));
	PCacheReadSuperblocks(r->pool.fd, &r->superblocks);
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

/* Is this descriptor one that has to be formatted? */
static bool
IsDamage(PCachePageVerdict verdict)
{
	switch (verdict)
	{
		case PCACHE_PAGE_CRC:
		case PCACHE_PAGE_TAG:
		case PCACHE_PAGE_BAD_BLOCK:
		case PCACHE_PAGE_DUPLICATE:
			return true;
		default:
			/* sound, even if the next start has no use for it */
			return false;
	}
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
 * The ranges to punch: the bad ones, extended to what the file system can
 * give back.  The list is malloc'd.
 */
static PCacheRangeList
RangesToClear(const Rebuild *r)
{
	const PCacheMediaReport *media = &r->judge.media;
	PCacheRangeList list = {0};
	struct statvfs vfs;
	uint64		unit;

	if (media->bad.n_ranges == 0 && !media->bad.truncated)
		return list;
	if (fstatvfs(r->pool.fd, &vfs) < 0)
		pg_fatal("could not stat file system of \"%s\": %m", r->pool.path);
	unit = Max(vfs.f_bsize, MIN_UNIT);

	if (media->bad.truncated)
	{
		if (!r->options->reset)
		{
			pg_log_error("persistent cache pool \"%s\" has too many bad blocks to list",
						 r->pool.path);
			pg_log_error_hint("To clear all of it, use option %s.", "--reset");
			exit(EXIT_ERROR);
		}
		PCacheRangeAdd(&list, 0, r->pool.file_size);
		return list;
	}
	for (uint32 i = 0; i < media->bad.n_ranges; i++)
	{
		const PCacheByteRange *bad = &media->bad.ranges[i];
		uint64		start = bad->offset - bad->offset % unit;
		uint64		end = TYPEALIGN64(unit, bad->offset + bad->length);

		end = Min(end, r->pool.file_size);
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

/*
 * Free the slots whose page is about to be punched, and say so durably
 * before.  Their descriptors are elsewhere, or are punched too.
 */
static void
FreeSlotsIn(Rebuild *r, const PCacheRangeList *list)
{
	const PCacheSuperblock *sb = Superblock(r);

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
			uint64		offset = PCACHE_DESCRIPTORS_OFFSET + slot * sizeof(PCacheDescriptor);
			bool		punched = false;

			for (uint32 j = 0; j < list->n_ranges && !punched; j++)
				punched = RangesOverlap(&list->ranges[j], offset, sizeof(PCacheDescriptor));
			if (!punched)
				FreeSlot(r, slot);
		}
	}
	DrainPool(r);
}

/* What of the metadata in a range can still be read. */
typedef struct SavedSectors
{
	char	   *bytes;
	bool	   *readable;		/* for each sector */
	uint64		length;
} SavedSectors;

static SavedSectors
SaveSectors(const Rebuild *r, const PCacheByteRange *range, uint64 limit)
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
			!PCacheMediaRangeIsBad(&r->judge.media, range->offset + done, SECTOR_SIZE) &&
			PCacheReadExact(r->pool.fd, saved.bytes + done, SECTOR_SIZE,
							range->offset + done);
	return saved;
}

/*
 * Descriptors that are put back must not speak of pages that are punched.
 * FreeSlotsIn() saw to the descriptors that stay where they are.
 */
static void
FreeSavedDescriptors(const PCacheSuperblock *sb, const PCacheRangeList *list,
					 const PCacheByteRange *range, SavedSectors *saved)
{
	for (uint64 done = 0; done < saved->length; done += sizeof(PCacheDescriptor))
	{
		uint64		offset = range->offset + done;
		uint64		slot = (offset - PCACHE_DESCRIPTORS_OFFSET) / sizeof(PCacheDescriptor);

		if (offset < PCACHE_DESCRIPTORS_OFFSET || slot >= sb->capacity)
			continue;
		for (uint32 i = 0; i < list->n_ranges; i++)
		{
			if (RangesOverlap(&list->ranges[i], sb->blocks_offset + slot * BLCKSZ, BLCKSZ))
				PCacheDescriptorSetFree((PCacheDescriptor *) (saved->bytes + done));
		}
	}
}

static void
PutBackSectors(const Rebuild *r, const PCacheByteRange *range, SavedSectors *saved)
{
	for (uint64 done = 0; done < saved->length; done += SECTOR_SIZE)
	{
		if (saved->readable[done / SECTOR_SIZE])
			PCacheMemcpyNodrain(&r->pool.map,
								r->pool.map.base + range->offset + done,
								saved->bytes + done, SECTOR_SIZE);
	}
	DrainPool(r);
}

static void
PunchAndAllocate(const Rebuild *r, const PCacheByteRange *range)
{
	int			rc;

	do
	{
		rc = fallocate(r->pool.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   range->offset, range->length);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		pg_fatal("could not punch a hole of %llu bytes at offset %llu into file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, r->pool.path);
	RebuildStep("punched");
	do
	{
		rc = posix_fallocate(r->pool.fd, range->offset, range->length);
	} while (rc == EINTR);
	if (rc != 0)
	{
		errno = rc;
		pg_fatal("could not allocate %llu bytes at offset %llu of file \"%s\": %m",
				 (unsigned long long) range->length,
				 (unsigned long long) range->offset, r->pool.path);
	}
}

/*
 * Around the time at which the note of a fault is not there, the pool must be
 * cold: set this state in the superblocks that can be written to.
 */
static void
SetStateAvoiding(Rebuild *r, uint32 state)
{
	const bool	bad[2] = {
		PCacheMediaRangeIsBad(&r->judge.media, PCACHE_SUPERBLOCK_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE),
		PCacheMediaRangeIsBad(&r->judge.media, PCACHE_COPY_OFFSET,
							  PCACHE_SUPERBLOCK_SIZE),
	};

	Superblock(r)->state = state;
	if (!PCacheSuperblockStoreAvoiding(&r->pool.map, Superblock(r), bad))
		FailToWrite(r);
}

/*
 * The sector with the note of a fault was exchanged.  If it could not be read
 * before, nobody knows whether there was a note: then there is one now.
 */
static void
RestoreSuspect(const Rebuild *r, const PCacheByteRange *range,
			   const SavedSectors *saved)
{
	uint64		sector = (PCACHE_SUSPECT_OFFSET - range->offset) / SECTOR_SIZE;

	if (saved->readable[sector])
		return;
	memset(r->pool.map.base + PCACHE_SUSPECT_OFFSET, 0xFF, sizeof(PCacheSuspect));
	if (!PCachePersist(&r->pool.map, r->pool.map.base + PCACHE_SUSPECT_OFFSET,
					   sizeof(PCacheSuspect)))
		FailToWrite(r);
}

/*
 * Clear bad blocks, and what the pool remembers of memory errors: give their
 * part of the file back, and get a new one.
 * Pages in it are gone; of superblocks, watermark and its neighbour, and
 * descriptors what can be read is put back.  Each step leaves the pool valid.
 */
static void
ClearBadBlocks(Rebuild *r)
{
	PCacheRangeList list = RangesToClear(r);
	uint64		before = 0;
	bool		usable = SuperblockIsUsable(r);

	if (list.n_ranges == 0)
		return;
	for (uint32 i = 0; i < r->judge.media.bad.n_ranges; i++)
		before += r->judge.media.bad.ranges[i].length;
	r->result.bad_ranges = r->judge.media.bad.n_ranges;
	r->result.bad_bytes = before;
	if (r->options->dry_run)
		return;

	if (usable)
	{
		FreeSlotsIn(r, &list);
		RebuildStep("slots-freed");
	}
	for (uint32 i = 0; i < list.n_ranges; i++)
	{
		const PCacheByteRange *range = &list.ranges[i];
		bool		note = usable && !r->options->reset &&
			RangesOverlap(range, PCACHE_SUSPECT_OFFSET, sizeof(PCacheSuspect));
		uint32		state = Superblock(r)->state;
		SavedSectors saved;

		if (note)
		{
			SetStateAvoiding(r, PCACHE_STATE_ATTACHING);
			RebuildStep("marked-for-note");
		}
		saved = SaveSectors(r, range, usable ? Superblock(r)->blocks_offset : 0);
		FreeSavedDescriptors(Superblock(r), &list, range, &saved);
		PunchAndAllocate(r, range);
		RebuildStep("allocated");
		if (!PCacheForgetMemoryErrors(&r->pool.map, range->offset, range->length))
			FailToWrite(r);
		RebuildStep("forgotten");
		/* what is still bad must not be touched */
		QueryMedia(&r->pool, &r->judge.media);
		for (uint64 done = 0; done < saved.length; done += SECTOR_SIZE)
		{
			if (PCacheMediaRangeIsBad(&r->judge.media, range->offset + done, SECTOR_SIZE))
			{
				pg_log_error("could not clear bad blocks at offset %llu of persistent cache pool \"%s\"",
							 (unsigned long long) (range->offset + done), r->pool.path);
				pg_log_error_hint("Create a pool on other media with \"pg_pcache init --force\".");
				exit(EXIT_ERROR);
			}
		}
		PutBackSectors(r, range, &saved);
		RebuildStep("put-back");
		if (note)
		{
			RestoreSuspect(r, range, &saved);
			RebuildStep("note-restored");
			SetStateAvoiding(r, state);
			RebuildStep("unmarked-for-note");
		}
		pg_free(saved.bytes);
		pg_free(saved.readable);
	}
	free(list.ranges);

	for (uint32 i = 0; i < r->judge.media.bad.n_ranges; i++)
		r->result.still_bad_bytes += r->judge.media.bad.ranges[i].length;
	if (r->judge.media.bad.truncated)
		r->result.still_bad_bytes = before;
	if (r->result.still_bad_bytes > 0)
	{
		pg_log_warning("%llu bytes of persistent cache pool \"%s\" are still bad",
					   (unsigned long long) r->result.still_bad_bytes, r->pool.path);
		pg_log_warning_detail("The server does not use the slots that they are in.");
	}
}

/*
 * Format the descriptors that the page gates found damaged.
 *
 * Of two with the same tag none is right, and each would be believed if only
 * the other one were gone: then the pool must be cold meanwhile.
 */
static void
FormatDamaged(Rebuild *r)
{
	const PageScan *scan = &r->scan;
	PCacheSuperblock *sb = Superblock(r);
	uint32		state = sb->state;
	bool		twins = scan->counts[PCACHE_PAGE_DUPLICATE] > 0;

	for (int verdict = 0; verdict < PCACHE_NUM_PAGE_VERDICTS; verdict++)
	{
		if (IsDamage(verdict))
			r->result.formatted += scan->counts[verdict];
	}
	r->result.lost = scan->counts[PCACHE_PAGE_BAD_BLOCK];
	if (r->options->dry_run || r->result.formatted == 0)
		return;

	if (twins)
	{
		sb->state = PCACHE_STATE_ATTACHING;
		StoreSuperblock(r);
		RebuildStep("marked-for-twins");
	}
	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		if (IsDamage(scan->verdicts[slot]) && !SlotIsBad(r, sb, slot))
		{
			FreeSlot(r, slot);
			RebuildStep("slot-formatted");
		}
	}
	DrainPool(r);
	RebuildStep("slots-formatted");
	if (twins)
	{
		sb->state = state;
		StoreSuperblock(r);
		RebuildStep("unmarked");
	}
}

/* Bad blocks, descriptors and superblocks of a pool that can be repaired. */
static void
Repair(Rebuild *r)
{
	bool		dry_run = r->options->dry_run;
	bool		usable = SuperblockIsUsable(r);
	uint64		lost;
	PCacheError err;

	if (usable)
		r->result.cut_off_bytes = Superblock(r)->pool_size - r->pool.file_size;
	if (!dry_run && r->result.cut_off_bytes > 0 && !r->options->reset)
	{
		if (!PCachePoolRestoreSize(&r->pool, Superblock(r), &lost, &err))
			FailWith(&err);
		RebuildStep("size-restored");
	}
	r->result.superblock_restored = usable && !r->superblocks.first_intact;
	r->result.copy_restored = usable && !r->superblocks.copy_intact;
	if (!dry_run)
		MapPool(r);
	ClearBadBlocks(r);
	if (!usable || r->options->reset)
		return;
	if (!dry_run && r->result.bad_ranges > 0)
	{
		PCacheSuperblocks now;

		PCacheReadSuperblocks(r->pool.fd, &now);
		r->result.superblock_restored |= !now.first_intact;
		r->result.copy_restored |= !now.copy_intact;
	}
	if (!dry_run && (r->result.superblock_restored || r->result.copy_restored))
	{
		StoreSuperblock(r);
		RebuildStep("superblock-restored");
	}
	FormatDamaged(r);
}

/* What the pool is to be able to hold. */
static uint64
ChooseCapacity(const Rebuild *r)
{
	uint64		capacity;

	if (r->options->resize != NULL)
		return ParseSize(r->options->resize, "--resize");
	if (SuperblockIsUsable(r))
		return r->superblocks.chosen.capacity;
	capacity = r->have_record ? r->record.capacity : PCacheCapacityFor(r->pool.file_size);
	if (capacity == 0)
	{
		pg_log_error("could not determine the size of the pool");
		pg_log_error_hint("Use option %s.", "--resize");
		exit(EXIT_ERROR);
	}
	return capacity;
}

static PCacheGeometry
GeometryFor(const PCachePool *pool, uint64 capacity)
{
	return PCacheComputeGeometry(capacity, pool->page_size);
}

/*
 * Make an open pool an empty one, of this capacity and of the cluster with
 * this pg_control.  It gets a new UUID, so that a state file from before does
 * not match it.  Updates superblocks.
 */
void
EmptyPool(PCachePool *pool, PCacheSuperblocks *superblocks,
		  const ControlFileData *control, uint64 capacity)
{
	PCacheGeometry g = GeometryFor(pool, capacity);
	PCacheSuperblock *sb = &superblocks->chosen;
	bool		known = superblocks->source != PCACHE_SB_NONE &&
		sb->format_version == PCACHE_FORMAT_VERSION;
	bool		cut_off = known && pool->file_size < sb->pool_size;
	PCacheError err;

	/* what was cut off must not come back as pages of zeros */
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

/*
 * Give the pool another capacity, and keep the pages in the slots that the
 * new one has as well.
 *
 * The descriptor array in front of the blocks may grow or shrink, so the
 * blocks' offset moves by a number of slots.  Instead of the blocks the
 * numbering moves: the page in slot s of n will be in slot (s - shift) mod n,
 * which nearly always is where it lies.  The others, as many as the offset
 * moves by, are copied to where the old layout has no page.
 */
static void
Resize(Rebuild *r, uint64 capacity)
{
	PCacheSuperblock *sb = Superblock(r);
	PCacheGeometry g = GeometryFor(&r->pool, capacity);
	uint64		n = Min(sb->slots_used, capacity);
	int64		shift = ((int64) g.blocks_offset - (int64) sb->blocks_offset) / BLCKSZ;
	uint64		old_offset = sb->blocks_offset;
	uint32		state = sb->state;
	PCacheDescriptor *descs;
	PGIOAlignedBlock page;

	for (uint64 slot = n; slot < r->scan.slots; slot++)
		r->result.not_fitting += (r->scan.verdicts[slot] == PCACHE_PAGE_KEPT);
	if (r->options->dry_run)
		return;

	descs = pg_malloc_array(PCacheDescriptor, Max(n, 1));
	for (uint64 slot = 0; slot < n; slot++)
		PCacheDescriptorSetFree(&descs[slot]);
	if (g.pool_size > r->pool.file_size)
		SetPoolSize(&r->pool, g.pool_size);
	RebuildStep("resize-allocated");
	sb->state = PCACHE_STATE_ATTACHING;
	StoreSuperblock(r);
	RebuildStep("resize-marked");

	for (uint64 slot = 0; slot < n; slot++)
	{
		uint64		new_slot = ((int64) slot - shift % (int64) n + n) % n;
		uint64		from = old_offset + slot * BLCKSZ;
		uint64		to = g.blocks_offset + new_slot * BLCKSZ;
		PCacheDescriptor *desc = &descs[new_slot];

		if (IsDamage(r->scan.verdicts[slot]) ||
			r->scan.verdicts[slot] == PCACHE_PAGE_FREE ||
			!PCacheReadDescriptors(r->pool.fd, slot, 1, desc))
		{
			PCacheDescriptorSetFree(desc);
			continue;
		}
		if (from != to)
		{
			if (PCacheMediaRangeIsBad(&r->judge.media, to, BLCKSZ) ||
				!PCacheReadExact(r->pool.fd, page.data, BLCKSZ, from))
			{
				PCacheDescriptorSetFree(desc);
				continue;
			}
			PCacheMemcpyNodrain(&r->pool.map, r->pool.map.base + to, page.data, BLCKSZ);
			r->result.moved++;
		}
		desc->slot = new_slot;
		desc->crc = PCacheDescriptorCrc(desc);
	}
	DrainPool(r);
	RebuildStep("resize-copied");

	for (uint64 slot = 0; slot < capacity; slot++)
	{
		if (slot < n)
			PCacheDescriptorStore(&r->pool.map, MappedDescriptor(r, slot),
								  &descs[slot]);
		else
			FreeSlot(r, slot);
		if (slot == capacity / 2)
			RebuildStep("resize-half-described");
	}
	DrainPool(r);
	pg_free(descs);
	RebuildStep("resize-described");

	if (g.pool_size != r->pool.file_size)
		SetPoolSize(&r->pool, g.pool_size);
	RebuildStep("resize-sized");
	(void) PCachePoolUseHugePages(&r->pool);
	sb->capacity = capacity;
	sb->blocks_offset = g.blocks_offset;
	sb->pool_size = g.pool_size;
	sb->slots_used = n;
	/* still to be marked when the cluster knows of the new size */
	StoreSuperblock(r);
	RebuildStep("resize-new-layout");
	StoreRecord(r, r->record.incarnation);
	RebuildStep("resize-recorded");
	sb->state = state;
	StoreSuperblock(r);
	RebuildStep("resize-done");
}

/* What the next start will make of it now. */
static void
Conclude(Rebuild *r)
{
	PCacheVerdict verdict;
	RebuildResult *result = &r->result;

	PCacheReadSuperblocks(r->pool.fd, &r->superblocks);
	FreeFacts(&r->judge);
	GatherFacts(r->options, r->control, &r->conf,
				r->have_record ? &r->record : NULL, &r->pool, &r->judge);
	verdict = JudgePool(&r->superblocks, &r->judge.facts);
	if (verdict.refusal == PCACHE_WARM)
	{
		PageScan	scan;
		PCacheOptions quiet = *r->options;

		quiet.progress = false;
		ScanPages(&quiet, &r->pool, Superblock(r), r->control,
				  r->conf.nbuffers, &r->judge, &scan);
		result->kept = scan.counts[PCACHE_PAGE_KEPT];
		result->next_start = NEXT_START_WARM;
		if (ColdForWantOfPages(Superblock(r), &scan, result->detail,
							   sizeof(result->detail)) != NULL)
			result->next_start = NEXT_START_COLD;
		else if (r->conf.mode == NULL || r->conf.nbuffers < 0)
		{
			result->next_start = NEXT_START_UNKNOWN;
			strlcpy(result->detail, _("the server's configuration could not be read"),
					sizeof(result->detail));
		}
		FreeScan(&scan);
	}
	else
	{
		result->next_start = NEXT_START_COLD;
		strlcpy(result->detail, verdict.detail, sizeof(result->detail));
	}
	if (r->conf.mode != NULL && strcmp(r->conf.mode, "off") == 0)
	{
		result->next_start = NEXT_START_COLD;
		strlcpy(result->detail, _("persistent_cache_mode is off"), sizeof(result->detail));
	}
	else
	{
		/* no reason to fail: who makes the pool smaller may change that next */
		(void) PoolIsTooSmall(&r->pool, result->capacity, r->conf.nbuffers,
							  PG_LOG_WARNING,
							  _("Decrease \"shared_buffers\" before you start the server."));
	}
}

static void
PrintPages(const char *key, uint64 pages)
{
	PrintLine(key, ngettext("%llu page", "%llu pages", pages),
			  (unsigned long long) pages);
}

static void
PrintResult(const RebuildResult *result, bool human)
{
	if (result->dry_run)
		printf(_("Dry run: nothing was changed.  This would be done:\n\n"));
	PrintLine("pool", "%s", result->pool);
	PrintLine("superblock", result->superblock_restored ? "restored" : result->reset ? "formatted" : "intact");
	PrintLine("superblock copy", result->copy_restored ? "restored" : result->reset ? "formatted" : "intact");
	PrintLine("bad blocks",
			  ngettext("%s in %u range", "%s in %u ranges", result->bad_ranges),
			  FormatBytes(result->bad_bytes, human), result->bad_ranges);
	if (result->still_bad_bytes > 0)
		PrintLine("still bad", "%s", FormatBytes(result->still_bad_bytes, human));
	if (result->cut_off_bytes > 0)
		PrintLine("cut off", "%s", FormatBytes(result->cut_off_bytes, human));
	PrintLine("descriptors formatted", "%llu", (unsigned long long) result->formatted);
	PrintPages("lost", result->lost);
	if (result->reset)
		PrintLine("reset", "all pages dropped");
	if (result->capacity != result->old_capacity)
		PrintLine("resized", "from %llu to %llu blocks",
				  (unsigned long long) result->old_capacity,
				  (unsigned long long) result->capacity);
	PrintLine("capacity", "%llu blocks", (unsigned long long) result->capacity);
	PrintLine("cached data", "%s", FormatBytes(result->capacity * BLCKSZ, human));
	PrintLine("file size", "%s", FormatBytes(result->file_size, human));
	if (result->resized)
	{
		PrintPages("moved", result->moved);
		PrintPages("not fitting", result->not_fitting);
	}
	if (result->warm_from_files)
	{
		const WarmResult *warm = &result->warm;

		PrintLine("relations", "%llu", (unsigned long long) warm->relations);
		PrintLine("pages in files", "%llu", (unsigned long long) warm->file_pages);
		PrintLine("in the pool already", "%llu", (unsigned long long) warm->already);
		PrintLine("read from files", "%llu", (unsigned long long) warm->read);
		PrintLine("no room", "%llu", (unsigned long long) warm->no_room);
		PrintLine("invalid header", "%llu", (unsigned long long) warm->bad_header);
		PrintLine("wrong checksum", "%llu", (unsigned long long) warm->bad_checksum);
		PrintLine("WAL not durable", "%llu", (unsigned long long) warm->bad_lsn);
		PrintLine("unreadable", "%llu", (unsigned long long) warm->unreadable);
		if (!result->dry_run)
			PrintLine("time", "%.3f s", warm->seconds);
	}
	if (!result->dry_run)
	{
		putchar('\n');
		PrintNextStart(result->next_start, result->detail, result->kept, result->kept);
	}
}

int
DoRebuild(const PCacheOptions *options)
{
	Rebuild		r = {0};
	PCacheError err;
	uint64		capacity;
	bool		resize;

	r.options = options;
	r.control = ReadControlFile(options);
	RefuseRunningServer(options->pgdata);
	if (options->relations != NULL)
		r.choices = ParseRelationChoices(options->relations);
	ReadConfiguration(options, &r.conf);
	OpenPool(&r);
	CheckIdentity(&r);
	if (options->reset &&
		!PCachePoolMayFormat(&r.pool, r.have_record ? &r.record : NULL, &err))
		FailWith(&err);
	RefuseUnusable(&r);
	capacity = ChooseCapacity(&r);
	GatherFacts(options, r.control, &r.conf, r.have_record ? &r.record : NULL,
				&r.pool, &r.judge);

	r.result.dry_run = options->dry_run;
	r.result.reset = options->reset;
	r.result.warm_from_files = options->warm_from_files;
	r.result.old_capacity = SuperblockIsUsable(&r) ? Superblock(&r)->capacity : capacity;
	r.result.capacity = capacity;
	resize = !options->reset && capacity != r.result.old_capacity;
	r.result.resized = resize;
	if (options->warm_from_files)
		PlanWarming(&r, capacity);
	if (SuperblockIsUsable(&r))
	{
		PCacheOptions quiet = *options;

		/* all slots: verdicts beyond shared_buffers matter, too */
		quiet.progress = false;
		ScanPages(&quiet, &r.pool, Superblock(&r), r.control, -1, &r.judge, &r.scan);
	}

	Repair(&r);
	if (options->reset && !options->dry_run)
	{
		EmptyPool(&r.pool, &r.superblocks, r.control, capacity);
		StoreRecord(&r, Superblock(&r)->incarnation);
		RebuildStep("reset-recorded");
	}
	else if (resize)
		Resize(&r, capacity);
	r.judge.facts.file_size = r.pool.file_size;
	r.judge.facts.record = r.have_record ? &r.record : NULL;
	if (options->warm_from_files)
		WarmFromFiles(&r);
	r.result.file_size = options->dry_run ? GeometryFor(&r.pool, capacity).pool_size :
		r.pool.file_size;
	if (!options->dry_run)
		Conclude(&r);

	if (options->json)
		RebuildResultToJson(&r.result, options->human);
	else
		PrintResult(&r.result, options->human);
	PCachePoolClose(&r.pool);

	if (options->dry_run || (options->reset && !options->warm_from_files))
		return EXIT_WARM;
	switch (r.result.next_start)
	{
		case NEXT_START_WARM:
			return EXIT_WARM;
		case NEXT_START_COLD:
			return EXIT_COLD;
		case NEXT_START_UNKNOWN:
			return EXIT_UNKNOWN;
	}
	return EXIT_ERROR;			/* keep compiler quiet */
}
