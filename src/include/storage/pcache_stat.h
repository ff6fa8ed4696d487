/*-------------------------------------------------------------------------
 *
 * pcache_stat.h
 *	  What the persistent cache tells about itself; for
 *	  contrib/pg_pcache/pcache_views.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_stat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_STAT_H
#define PCACHE_STAT_H

#include "common/relpath.h"
#include "datatype/timestamp.h"
#include "storage/pcache_gate.h"
#include "storage/relfilelocator.h"

typedef struct PersistentCacheStats
{
	char		path[MAXPGPATH];	/* of the pool file */
	PCacheSuperblock superblock;

	/* The outcome of the last start */
	PCacheVerdict start;
	TimestampTz started_at;
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint32		retired;		/* slots that are not used: bad blocks */
	uint64		startup_usec;
	uint64		rebuild_usec;	/* of startup_usec */
	uint64		younger;		/* kept pages that are younger than redo */
	uint64		redo_skipped;	/* records whose pages were among these */
	uint64		redo_called;	/* others of the same kinds */
	PCacheError power_cold;		/* why a loss of power makes it cold; or "" */

	PCacheMediaSummary media;
} PersistentCacheStats;

/* How much of a relation fork is cached. */
typedef struct PersistentCacheRelation
{
	RelFileLocator rlocator;
	ForkNumber	fork;
	uint32		buffers;
} PersistentCacheRelation;

/* pcache_tell.c */
extern bool PersistentCacheEnabled(void);
extern const char *PersistentCacheUnavailable(void);
extern const char *PersistentCacheModeName(void);
extern void PersistentCacheGetStats(PersistentCacheStats *stats);
extern PersistentCacheRelation *PersistentCacheGetRelations(uint32 *n);
extern void PersistentCacheNextStart(PCacheNextEvent event,
									 PCacheVerdict *verdict);

#endif							/* PCACHE_STAT_H */
