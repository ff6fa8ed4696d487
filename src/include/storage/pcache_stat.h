/*-------------------------------------------------------------------------
 *
 * pcache_stat.h
 *	  What the persistent cache tells about itself; for contrib/pg_pcache.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_stat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_STAT_H
#define PCACHE_STAT_H

#include "access/xlogdefs.h"
#include "common/relpath.h"
#include "datatype/timestamp.h"
#include "storage/pcache_foretell.h"
#include "storage/relfilelocator.h"

typedef struct PersistentCacheStats
{
	char		path[MAXPGPATH];	/* of the pool file */
	PCacheSuperblock superblock;

	/* The outcome of the last start */
	PCacheVerdict start;
	TimestampTz started_at;
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		kept_dirty;
	uint32		retired;		/* slots that are not used: bad blocks */
	uint64		startup_usec;
	uint64		rebuild_usec;	/* of startup_usec */

	PCacheMediaSummary media;

	/* The rest is of mode always only, and counts since the start. */
	bool		protocol;		/* is it? */
	int			sealer_pid;		/* 0 if it does not run */
	uint64		marks;			/* of slots that were sealed */
	uint64		seals;
	uint64		failed_seals;	/* the page was changed meanwhile */
	uint64		flushed_bytes;	/* by the sealer */
	uint64		drains;			/* by all processes */
	uint64		queued;			/* slots now */
	uint64		sealed;			/* slots now */
	XLogRecPtr	watermark;		/* invalid if there is none yet */
	TimeLineID	watermark_timeline;
} PersistentCacheStats;

/* How much of a relation fork is cached. */
typedef struct PersistentCacheRelation
{
	RelFileLocator rlocator;
	ForkNumber	fork;
	uint32		buffers;
	uint32		sealed;			/* of them */
	uint32		kept;			/* of them, over the last start */
} PersistentCacheRelation;

/*
 * The server and the library have these each, in pcache_tell.c.  In the server
 * they are in the files that are named here.
 *
 * pcache_shared.c
 */
extern bool PersistentCacheEnabled(void);

/* pcache_unavailable.c */
extern const char *PersistentCacheUnavailable(void);

/* pcache_stat.c */
extern const char *PersistentCacheModeName(void);
extern bool PersistentCacheHasProtocol(void);
extern void PersistentCacheGetStats(PersistentCacheStats *stats);

/* pcache_relations.c */
extern PersistentCacheRelation *PersistentCacheGetRelations(uint32 *n);

/* pcache_seal_now.c */
extern uint32 PersistentCacheSealNow(uint32 wait_event_info);

/* pcache_next_start.c */
extern void PersistentCacheNextStart(PCacheNextEvent event,
									 PCacheVerdict *verdict);

#endif							/* PCACHE_STAT_H */
