/*-------------------------------------------------------------------------
 *
 * hotset.h
 *	  The pages that a server holds in shared buffers, and how another server
 *	  gets them.
 *
 * hotset_scan.c asks the buffer headers, hotset_encode.c packs the answer, and
 * pg_hotset.c hands it out.  On a standby, hotset_worker.c fetches it by
 * hotset_source.c, keeps it by hotset_file.c, compares it with the own buffers
 * by hotset_compare.c, decides by hotset_plan.c, and hotset_job.c has
 * hotset_warm.c read what is missing, in a worker for each database.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOTSET_H
#define HOTSET_H

#include "hotset_set.h"
#include "lib/stringinfo.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"

#if PG_VERSION_NUM < 170000 || PG_VERSION_NUM >= 190000
#error "pg_hotset is for PostgreSQL 17 and 18"
#endif

#define HOTSET_FILE			"pg_hotset.list"

/* Gives each fork a number, in the order in which they are first seen. */
typedef struct HotsetForkMap HotsetForkMap;

/* What of a list is in shared buffers, and what else is there */
typedef struct HotsetComparison
{
	bits8	   *here;			/* a bit for each page of the list */
	uint32		nhere;
	int			nfree;			/* buffers in the free list */
	int			ncandidates;	/* buffers that could be given up, coldest
								 * first */
	int		   *candidates;
	int			colder[HOTSET_HEAT_MASK + 2];	/* candidates with a usage
												 * count below the index;
												 * empty ones are below 0 */
} HotsetComparison;

/* What a round will do */
typedef struct HotsetPlan
{
	HotsetSet  *missing;		/* pages to be read */
	bits8	   *was_read;		/* a bit for each of them */
	uint8	   *waits;			/* what is remembered of each page of the list */
	int			nvictims;		/* buffers to be given up for them, coldest
								 * first */
	int		   *victims;
	int			victim_heat;	/* none of them had a greater usage count */
	uint32		no_room;		/* pages that stay missing */
	uint32		evicted_again;	/* pages that we had before */
} HotsetPlan;

/* What a round has done; skipped is for its leader */
typedef struct HotsetCounts
{
	uint64		read;			/* pages */
	uint64		skipped;		/* pages that no longer exist, or whose
								 * relation was locked */
	uint64		evicted;		/* buffers given up */
} HotsetCounts;

/*
 * What the workers of a round are told, and what they report.  Behind it in the
 * segment: the victims, a bit for each page that is to be read, and these pages
 * as a list.  One worker at a time uses it.
 */
typedef struct HotsetJob
{
	HotsetCounts counts;
	int			next_victim;
	int			nvictims;
	int			victim_heat;	/* a buffer that is hotter now stays */
	Size		bits_offset;
	Size		list_offset;
	Size		list_length;
} HotsetJob;

#define HotsetJobVictims(job) ((int *) ((char *) (job) + MAXALIGN(sizeof(HotsetJob))))

/* What a worker gets when it is started */
typedef struct HotsetWorkerArgs
{
	dsm_handle	segment;
	Oid			database;		/* whose pages it reads; InvalidOid: shared
								 * ones */
	Oid			connection;		/* database to connect to */
} HotsetWorkerArgs;

/* Should a round end early? */
typedef bool (*HotsetStopCheck) (void);

typedef enum HotsetState
{
	HOTSET_OFF,
	HOTSET_WAITING,
	HOTSET_ASKING,
	HOTSET_WARMING,
	HOTSET_PRIMARY,
} HotsetState;

/* What pg_stat_hotset shows, in shared memory */
typedef struct HotsetStats
{
	LWLock		lock;
	int			pid;
	HotsetState state;
	char		from[128];		/* host and port of the last list's sender */
	char		problem[256];	/* why there was no newer list; empty: none */
	TimestampTz problem_since;
	TimestampTz received;
	HotsetOrigin origin;
	uint32		list_bytes;
	uint32		list_pages;
	uint32		pages_here;
	uint32		no_room;
	TimestampTz compared;
	uint64		lists;
	uint64		failures;
	uint64		read;
	uint64		skipped;
	uint64		evicted;
	uint64		evicted_again;
} HotsetStats;

/* pg_hotset.c */
extern int	hotset_interval;
extern int	hotset_max_rate;
extern int	hotset_timeout;
extern char *hotset_source;
extern char *hotset_dbname;

/* hotset_forks.c */
extern HotsetForkMap *HotsetForkMapCreate(void);
extern uint32 HotsetForkMapAdd(HotsetForkMap *map, const HotsetFork *fork);
extern bool HotsetForkMapFind(HotsetForkMap *map, const HotsetFork *fork, uint32 *number);
extern uint32 HotsetForkMapCount(const HotsetForkMap *map);
extern void HotsetForkMapList(HotsetForkMap *map, HotsetRelation *relations);

/* hotset_encode.c */
extern void HotsetEncode(const HotsetSet *set, Size max_bytes, StringInfo out);

/* hotset_scan.c */
extern HotsetSet *HotsetScan(void);
extern HotsetSet *HotsetSort(HotsetForkMap *map, uint64 *keys, uint32 nkeys);
extern uint64 HotsetKey(uint32 fork_number, BlockNumber block, int heat);

/* hotset_file.c */
extern HotsetSet *HotsetReadFile(const char *path, StringInfo raw, const char **problem);
extern void HotsetWriteFile(const char *path, const char *data, Size length);

/* hotset_source.c */
extern bool HotsetFetch(StringInfo list, StringInfo from, StringInfo problem);

/* hotset_compare.c */
extern HotsetComparison *HotsetCompare(const HotsetSet *list, bool cool);

/* hotset_plan.c */
extern HotsetPlan *HotsetMakePlan(const HotsetSet *list, const HotsetComparison *comparison, const StringInfo memory);
extern void HotsetRemember(const HotsetSet *list, const HotsetComparison *comparison, const HotsetPlan *plan,
						   StringInfo memory);

/* hotset_job.c */
extern void HotsetRunJob(HotsetPlan *plan, HotsetCounts *counts, HotsetStopCheck stop);

/* hotset_stat.c */
extern HotsetStats *HotsetAttachStats(void);
extern void HotsetSetState(HotsetState state);

#endif							/* HOTSET_H */
