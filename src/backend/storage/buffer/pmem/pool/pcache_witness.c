/*-------------------------------------------------------------------------
 *
 * pcache_witness.c
 *	  How far WAL was written, and a witness of that in the WAL.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_witness.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/hashfn.h"
#include "storage/pcache_witness.h"

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
	{
		PCacheSetError(err, _("could not open file \"%s\": %m"), path);
		return false;
	}
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
	{
		PCacheSetError(err, _("there is no witness yet"));
		return false;
	}
	/* it comes from pg_control, which pg_pcache takes as it is */
	if (!IsValidWalSegSize(wal_segment_size))
	{
		PCacheSetError(err, _("a WAL segment cannot have %u bytes"),
					   wal_segment_size);
		return false;
	}
	if (!WitnessFromDisk(&found, watermark->timeline, watermark->witness,
						 wal_segment_size, err))
		return false;
	if (found.witness_hash != watermark->witness_hash)
	{
		PCacheSetError(err, _("the WAL before %X/%X on timeline %u is not what was written"),
					   LSN_FORMAT_ARGS(watermark->witness), watermark->timeline);
		return false;
	}
	return true;
}
