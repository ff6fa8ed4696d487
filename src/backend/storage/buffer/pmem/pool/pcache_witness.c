/*-------------------------------------------------------------------------
 *
 * pcache_witness.c
 *	  What a server last saw of its cluster: pg_control, and how far WAL went.
 *
 * A start that finds the cluster as the pool's server last saw it knows that
 * nobody else has run it to another checkpoint, and that it was not put back to an
 * earlier state: see rule "the cluster is as its server last saw it" of
 * README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_witness.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/hashfn.h"
#include "storage/pcache_pool.h"

/* Was the last server of the cluster shut down? */
bool
PCacheControlIsShutDown(const ControlFileData *control)
{
	return control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY;
}

/* Two clocks are read together if no more than this lies between, in nanoseconds. */
#define CLOCKS_APART	1000000
#define MAX_CLOCK_TRIES	100

/* What a clock says, in nanoseconds. */
int64
PCacheReadClock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * PCACHE_NSEC + now.tv_nsec;
}

/*
 * By how much the clock that files get their times from is ahead of the one that counts
 * from the boot on and is never set, in nanoseconds.  So it tells when the clock was set.
 * A process that has to wait between the two would take that for a clock that was set
 * back, so it reads them again.
 */
int64
PCacheClockOffset(void)
{
	int64		before;
	int64		real;
	int64		after;
	int			tries = 0;

	do
	{
		before = PCacheReadClock(CLOCK_BOOTTIME);
		real = PCacheReadClock(CLOCK_REALTIME);
		after = PCacheReadClock(CLOCK_BOOTTIME);
	} while (after - before > CLOCKS_APART && ++tries < MAX_CLOCK_TRIES);
	return real - after;
}

/*
 * The generation that a pg_control stands for: a hash of all that it says.
 *
 * In archive recovery the server writes it again and again to say how far replay
 * has come.  That is left out, because a sighting would always be late.  Hints of a page
 * may depend on it, but the sighting says how far WAL was replayed as well.
 */
uint64
PCacheGenerationOf(const ControlFileData *control)
{
	ControlFileData copy;

	/* with its padding, which is written and read like the rest */
	memcpy(&copy, control, sizeof(copy));
	if (copy.state == DB_IN_ARCHIVE_RECOVERY)
	{
		copy.time = 0;
		copy.minRecoveryPoint = 0;
		copy.minRecoveryPointTLI = 0;
	}
	return hash_bytes_extended((const unsigned char *) &copy,
							   offsetof(ControlFileData, crc), 0);
}

/*
 * What PCacheDescriptor.seq is in entries with a sum that are about a pg_control.  A start
 * that believes none of them changes ledger_id, and so nobody does later.  It is an even
 * number, and not one that other entries have.
 */
uint64
PCacheLedgerGeneration(const PCacheSuperblock *sb, const ControlFileData *control)
{
	return ((PCacheGenerationOf(control) ^ sb->ledger_id) & ~UINT64CONST(7)) +
		2 * PCACHE_DESC_SAVED_SEQ;
}

/*
 * Fill in a sighting of a pg_control, at a time in nanoseconds since 1970.  What
 * it says of WAL is left as it was.
 */
void
PCacheSightingMake(PCacheSighting *sighting, const ControlFileData *control,
				   int64 seen_at)
{
	uint64		generation = PCacheGenerationOf(control);

	/* whoever writes pg_control has synced it before somebody writes it again */
	if (sighting->generation != generation)
		sighting->synced_generation = sighting->generation;
	if (sighting->min_recovery_point != control->minRecoveryPoint)
		sighting->synced_recovery_point = Min(sighting->min_recovery_point,
											  control->minRecoveryPoint);
	sighting->generation = generation;
	sighting->checkpoint = control->checkPoint;
	sighting->min_recovery_point = control->minRecoveryPoint;
	sighting->seen_at = seen_at;
	sighting->clock_offset = PCacheClockOffset();
}

/*
 * Store a sighting, which gets the next number.  Whoever does may be killed at any
 * moment, and then the one before it is still there.  Nobody else may store one.  Only
 * persistent memory keeps it when power is lost, so an ordinary file is not written back.
 */
void
PCacheSightingStore(const PCacheMapping *map, PCacheSighting *sighting)
{
	PCacheSighting *slots = (PCacheSighting *) (map->base + PCACHE_SIGHTING_OFFSET);

	sighting->number++;
	sighting->crc = PCacheCrcOf(sighting);
	memcpy(&slots[sighting->number % 2], sighting, sizeof(*sighting));
	if (map->kind == PCACHE_PERSIST_PMEM)
		(void) PCachePersist(map, &slots[sighting->number % 2], sizeof(*sighting));
}

/*
 * Read the last sighting of an open pool.  Returns false, with all of it zero, if
 * there is none.
 */
bool
PCacheReadSighting(int fd, PCacheSighting *sighting)
{
	PCacheSighting slots[2];

	memset(sighting, 0, sizeof(*sighting));
	if (!PCacheReadExact(fd, slots, sizeof(slots), PCACHE_SIGHTING_OFFSET))
		return false;
	for (int i = 0; i < 2; i++)
	{
		if (slots[i].number > sighting->number && slots[i].crc == PCacheCrcOf(&slots[i]))
			*sighting = slots[i];
	}
	return sighting->number != 0;
}

/*
 * Is the watermark behind an LSN on a timeline?  A later timeline is further
 * on, even if less of it was written.
 */
bool
PCacheWatermarkIsBehind(const PCacheWatermark *watermark, uint32 timeline,
						uint64 written)
{
	if (watermark->timeline != timeline)
		return watermark->timeline < timeline;
	return watermark->written < written;
}

/*
 * How many bytes before an LSN are its witness: they don't reach into the
 * segment before, which may be gone.
 */
static uint32
WitnessLength(uint64 end, uint32 wal_segment_size)
{
	return Min(PCACHE_WITNESS_LEN, (end - 1) % wal_segment_size + 1);
}

static uint64
WitnessHash(const char *bytes, uint32 len, uint64 end, uint32 timeline)
{
	return hash_bytes_extended((const unsigned char *) bytes, len,
							   end ^ ((uint64) timeline << 40));
}

/* How many of the bytes are left without the zeros at their end? */
static size_t
WithoutTrailingZeros(const char *bytes, size_t len)
{
	while (len > 0 && bytes[len - 1] == 0)
		len--;
	return len;
}

/*
 * Read the bytes of WAL between two LSNs, which are in one segment.  The
 * working directory must be PGDATA.  err tells why that failed.
 */
static bool
ReadWal(uint32 timeline, uint64 start, uint64 end, uint32 wal_segment_size,
		char *bytes, PCacheError *err)
{
	char		name[MAXFNAMELEN];
	char		path[MAXPGPATH];
	XLogSegNo	segno;
	int			fd;
	bool		ok;

	XLByteToSeg(start, segno, wal_segment_size);
	XLogFileName(name, timeline, segno, wal_segment_size);
	snprintf(path, sizeof(path), XLOGDIR "/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return PCacheSetError(err, _("could not open file \"%s\": %m"), path);
	ok = PCacheReadExact(fd, bytes, end - start,
						 XLogSegmentOffset(start, wal_segment_size));
	if (!ok)
		PCacheSetError(err, _("could not read file \"%s\": %m"), path);
	close(fd);
	return ok;
}

/* Have the bytes on disk before an LSN witness a watermark. */
static bool
WitnessFromDisk(PCacheWatermark *watermark, uint32 timeline, uint64 end,
				uint32 wal_segment_size, PCacheError *err)
{
	char		bytes[PCACHE_WITNESS_LEN];
	uint32		len = WitnessLength(end, wal_segment_size);

	if (!ReadWal(timeline, end - len, end, wal_segment_size, bytes, err))
		return false;
	watermark->witness = end;
	watermark->witness_hash = WitnessHash(bytes, len, end, timeline);
	watermark->timeline = timeline;
	return true;
}

/*
 * Make a watermark for WAL that was written up to an LSN.  There may
 * be padding before that, up to a segment of it.  Returns false if no witness
 * is found.  The working directory must be PGDATA.
 */
bool
PCacheWatermarkFromDisk(PCacheWatermark *watermark, uint32 timeline,
						uint64 written, uint32 wal_segment_size)
{
	char		bytes[XLOG_BLCKSZ];
	uint64		end = written;
	PCacheError err;

	while (end > 0 && end + wal_segment_size + XLOG_BLCKSZ > written)
	{
		uint64		start = (end - 1) / XLOG_BLCKSZ * XLOG_BLCKSZ;
		size_t		used;

		if (!ReadWal(timeline, start, end, wal_segment_size, bytes, &err))
			return false;
		used = WithoutTrailingZeros(bytes, end - start);
		if (used > 0)
		{
			if (!WitnessFromDisk(watermark, timeline, start + used,
								 wal_segment_size, &err))
				return false;
			watermark->written = written;
			watermark->reserved = 0;
			return true;
		}
		end = start;
	}
	return false;
}

/*
 * Does the WAL on disk have the bytes that the watermark's witness saw?  The
 * working directory must be PGDATA.  err tells why not.
 */
bool
PCacheWitnessMatches(const PCacheWatermark *watermark, uint32 wal_segment_size,
					 PCacheError *err)
{
	PCacheWatermark found;

	if (watermark->witness == 0)
		return PCacheSetError(err, _("there is no witness yet"));
	/* it comes from pg_control, which pg_pcache takes as it is */
	if (!IsValidWalSegSize(wal_segment_size))
		return PCacheSetError(err, _("a WAL segment cannot have %u bytes"),
							  wal_segment_size);
	if (!WitnessFromDisk(&found, watermark->timeline, watermark->witness,
						 wal_segment_size, err))
		return false;
	if (found.witness_hash != watermark->witness_hash)
		return PCacheSetError(err, _("the WAL before %X/%X on timeline %u is not what was written"),
							  LSN_FORMAT_ARGS(watermark->witness), watermark->timeline);
	return true;
}
