/*-------------------------------------------------------------------------
 *
 * pcache_record.h
 *	  PGDATA's record of its pool.
 *
 * It lies in PGDATA proper, and not in the pool's directory.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_record.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_RECORD_H
#define PCACHE_RECORD_H

#include "storage/pcache_error.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_paths.h"

typedef struct PCacheRecord
{
	char		directory[MAXPGPATH];	/* absolute, links resolved */
	uint64		capacity;		/* in blocks */
	uint8		pool_uuid[PCACHE_UUID_LEN];
	PCacheFsKind fs_kind;
	uint64		incarnation;	/* 0 until a server used the pool, and once
								 * one ran without it */
	uint8		image[PCACHE_DIGEST_LEN];	/* digest of the image that was
											 * saved after the last stop;
											 * zeros if there is none */
} PCacheRecord;

typedef enum PCacheRecordResult
{
	PCACHE_RECORD_OK,
	PCACHE_RECORD_MISSING,
	PCACHE_RECORD_ERROR,
} PCacheRecordResult;

extern PCacheRecordResult PCacheRecordRead(const char *datadir,
										   PCacheRecord *record,
										   PCacheError *err);
extern bool PCacheRecordMayBeWritten(const char *datadir, const char *directory,
									 PCacheError *err);
extern bool PCacheRecordWrite(const char *datadir, int file_mode,
							  const PCacheRecord *record,
							  PCacheError *err);

#endif							/* PCACHE_RECORD_H */
