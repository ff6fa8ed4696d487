/*-------------------------------------------------------------------------
 *
 * load.h
 *	  What load.c and loadlist.c share.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/load.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef LOAD_H
#define LOAD_H

#include "image.h"
#include "rebuild.h"

/* Everything about a load on its way. */
typedef struct Loading
{
	Rebuild		r;				/* the pool, and what it goes with */
	PCacheCreation creation;
	bool		creating;		/* the pool has a temporary name still */
	Image		image;
	uint64		n_allocations;	/* tasks of the threads that only allocate */
	LoadResult	result;			/* counted when a worker ends */
} Loading;

/* load.c */
extern void ConcludeByPool(Loading *l);
extern void PlanPool(Loading *l, PCacheMissing *plan);
extern void CreatePool(Loading *l, const PCacheMissing *plan, bool sparse,
					   uint64 capacity);
extern void FinishPool(Loading *l);
extern void Discard(Loading *l);

/* loadlist.c */
extern void LoadList(Loading *l);

#endif							/* LOAD_H */
