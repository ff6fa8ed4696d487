/*-------------------------------------------------------------------------
 *
 * pcache_resize.h
 *	  Give a pool another capacity, and keep its pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_resize.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_RESIZE_H
#define PCACHE_RESIZE_H

#include "storage/pcache_media.h"
#include "storage/pcache_pool.h"

typedef struct PCacheResize
{
	uint64		capacity;		/* in blocks, the new one */
	const PCacheMediaReport *media; /* of the pool as it is */
	bool		(*keep) (uint64 slot, void *arg);	/* NULL: every page */
	void	   *arg;
	bool		sparse;			/* on tmpfs, new slots have no blocks yet */
	void		(*step) (const char *name); /* for tests, or NULL */
	uint64		moved;			/* result: pages that were copied */
} PCacheResize;

extern bool PCachePoolMayGrow(const PCachePool *pool, uint64 nbuffers,
							  uint64 size, const PCacheMediaReport *media,
							  uint64 *capacity, PCacheError *err);
extern bool PCachePoolResize(PCachePool *pool, PCacheSuperblock *sb,
							 PCacheResize *resize, PCacheError *err);

#endif							/* PCACHE_RESIZE_H */
