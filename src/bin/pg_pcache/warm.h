/*-------------------------------------------------------------------------
 *
 * warm.h
 *	  What the files share that fill the pool from the data files.
 *
 * pagelist.c answers which of the listed pages there are, warmplan.c which
 * pages are read and where they go, and warmread.c reads and stores them.
 * warm.c is the driver.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/warm.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef WARM_H
#define WARM_H

#include "rebuild.h"

/* What a thread reads at once: 1 MB, that is a part of its CPU's cache. */
#define BLOCKS_PER_TASK		128

/*
 * Pages that nobody asked for are read along if there are at most so many of
 * them in a row.  A cloud volume with 3,000 IOPS and 125 MB/s transfers 42 kB
 * in the time that another read costs, and a disk that has to seek far more.
 */
#define MAX_GAP				5

/* Usage count of a page that was read once. */
#define USAGE_COUNT			1

/* A page that somebody wants. */
typedef struct ListedPage
{
	PCachePageKey key;
	uint8		usage_count;
} ListedPage;

struct PageList
{
	ListedPage *pages;
	uint64		n;
	uint64		allocated;
	WarmResult	result;			/* why pages were taken off the list */
};

/* Blocks of one segment that are read at once. */
typedef struct WarmTask
{
	int			file;			/* in the plan's files */
	uint32		first_block;
	uint32		n_blocks;		/* with those that nobody asked for */
	uint32		n_pages;		/* without them */
	uint64		first_page;		/* in the plan */
} WarmTask;

typedef struct WarmPlan
{
	const RelationFiles *files;
	uint32	   *slots;			/* that may be filled, in ascending order */
	uint64		n_slots;

	/* The i-th page goes into slots[i]. */
	uint32	   *blocks;			/* in the file of its task */
	uint8	   *usage_counts;
	uint64		n_pages;

	WarmTask   *tasks;
	uint64		n_tasks;
	uint64		allocated_tasks;
	WarmResult	result;
} WarmPlan;

/* pagelist.c */
extern void LocateListedPages(struct PageList *list, bool drop_unlogged,
							  RelationFiles *files);

/* warmplan.c */
extern void BeginWarmPlan(WarmPlan *plan, const RelationFiles *files,
						  uint32 *slots, uint64 n_slots);
extern void PlanAllPages(WarmPlan *plan, bool drop_unlogged,
						 const PageScan *scan);
extern void PlanListedPages(WarmPlan *plan, struct PageList *list,
							const PageScan *scan);
extern void FreeWarmPlan(WarmPlan *plan);

/* warmread.c */
extern void ReadPlannedPages(const Rebuild *r, WarmPlan *plan, uint64 lsn_limit);

#endif							/* WARM_H */
