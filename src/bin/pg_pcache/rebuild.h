/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *	  What rebuild.c and clear.c share.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/rebuild.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef REBUILD_H
#define REBUILD_H

#include "pg_pcache.h"

typedef struct RebuildResult
{
	bool		dry_run;
	char		pool[MAXPGPATH];	/* of the file */
	bool		superblock_restored;
	bool		copy_restored;
	uint32		bad_ranges;
	uint64		bad_bytes;
	uint64		still_bad_bytes;
	uint64		cut_off_bytes;	/* that the file was short of */
	uint64		formatted;		/* descriptors */
	uint64		lost;			/* of them, to bad blocks or cut off */
	bool		reset;
	uint64		capacity;		/* in blocks */
	uint64		file_size;
	PCacheVerdict verdict;		/* not in a dry run, as what follows */
	uint64		kept;			/* pages */
} RebuildResult;

extern void ClearBadBlocks(Cluster *c, RebuildResult *result);

#endif							/* REBUILD_H */
