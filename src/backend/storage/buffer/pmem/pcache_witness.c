/*-------------------------------------------------------------------------
 *
 * pcache_witness.c
 *	  The WAL watermark on media, and its witness in the WAL.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_witness.c
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
#include "port/pg_crc32c.h"
#include "storage/pcache_pool.h"

uint32
PCacheWatermarkCrc(const PCacheWatermark *watermark)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, watermark, offsetof(PCacheWatermark, crc));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Choose between the two slots: the intact one that is further on.  Returns
 * false if neither is intact.
 */
bool
PCacheWatermarkChoose(const PCacheWatermark slots[2], PCacheWatermark *chosen)
{
	bool		found = false;

	for (int i = 0; i < 2; i++)
	{
		if (slots[i].flushed == 0 ||
			slots[i].crc != PCacheWatermarkCrc(&slots[i]))
			continue;
		if (!found || slots[i].flushed > chosen->flushed)
			*chosen = slots[i];
		found = true;
	}
	return found;
}

/* Hash the PCACHE_WITNESS_LEN bytes of WAL that end at an LSN. */
uint64
PCacheWitnessHash(const char *bytes, uint64 end, uint32 timeline)
{
	return hash_bytes_extended((const unsigned char *) bytes, PCACHE_WITNESS_LEN,
							   end ^ ((uint64) timeline << 40));
}

/*
 * Can the PCACHE_WITNESS_LEN bytes that end at this LSN serve as witness?
 * They must lie on one WAL page, without its header, and must not be padding:
 * both are the same in every history.
 */
bool
PCacheWitnessIsUsable(const char *bytes, uint64 end)
{
	uint64		in_page = end % XLOG_BLCKSZ == 0 ? XLOG_BLCKSZ : end % XLOG_BLCKSZ;

	if (in_page < SizeOfXLogLongPHD + PCACHE_WITNESS_LEN)
		return false;
	for (int i = PCACHE_WITNESS_LEN - PCACHE_WITNESS_TAIL; i < PCACHE_WITNESS_LEN; i++)
	{
		if (bytes[i] != 0)
			return true;
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
	char		name[MAXFNAMELEN];
	char		path[MAXPGPATH];
	char		bytes[PCACHE_WITNESS_LEN];
	XLogSegNo	segno;
	uint64		start = watermark->witness - PCACHE_WITNESS_LEN;
	int			fd;

	if (watermark->witness < PCACHE_WITNESS_LEN)
	{
		PCacheSetError(err, _("there is no witness yet"));
		return false;
	}
	XLByteToSeg(start, segno, wal_segment_size);
	XLogFileName(name, watermark->timeline, segno, wal_segment_size);
	snprintf(path, sizeof(path), XLOGDIR "/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
	{
		PCacheSetError(err, _("could not open file \"%s\": %m"), path);
		return false;
	}
	if (!PCacheReadExact(fd, bytes, sizeof(bytes),
						 XLogSegmentOffset(start, wal_segment_size)))
	{
		PCacheSetError(err, _("could not read file \"%s\": %m"), path);
		close(fd);
		return false;
	}
	close(fd);
	if (PCacheWitnessHash(bytes, watermark->witness, watermark->timeline) !=
		watermark->witness_hash)
	{
		PCacheSetError(err, _("the WAL before %X/%X on timeline %u is not what was written"),
					   LSN_FORMAT_ARGS(watermark->witness), watermark->timeline);
		return false;
	}
	return true;
}
