/*-------------------------------------------------------------------------
 *
 * pcache_relsize.h
 *	  How large relations are, for the page gates.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_relsize.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_RELSIZE_H
#define PCACHE_RELSIZE_H

#include "common/relpath.h"
#include "storage/relfilelocator.h"

struct PCacheRelSizes;

/* What PCacheRelSize() says instead of a length. */
#define PCACHE_REL_MISSING	(-1)
#define PCACHE_REL_CHANGED	(-2)

extern struct PCacheRelSizes *PCacheRelSizesCreate(int64 unchanged_since);
extern void PCacheRelSizesFree(struct PCacheRelSizes *sizes);
extern int64 PCacheRelSize(struct PCacheRelSizes *sizes,
						   RelFileLocator rlocator, ForkNumber fork);

#endif							/* PCACHE_RELSIZE_H */
