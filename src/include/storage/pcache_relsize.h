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

extern struct PCacheRelSizes *PCacheRelSizesCreate(void);
extern void PCacheRelSizesFree(struct PCacheRelSizes *sizes);
extern int64 PCacheRelSize(struct PCacheRelSizes *sizes,
						   RelFileLocator rlocator, ForkNumber fork);

#endif							/* PCACHE_RELSIZE_H */
