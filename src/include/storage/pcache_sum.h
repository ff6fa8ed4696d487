/*-------------------------------------------------------------------------
 *
 * pcache_sum.h
 *	  The sum by which a page is recognized after power was lost.
 *
 * Two implementations: pcache_sum_xxhash.c and pcache_sum_none.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_sum.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SUM_H
#define PCACHE_SUM_H

extern bool PCacheHasSums(void);
extern uint64 PCacheSumOf(const char *page);

#endif							/* PCACHE_SUM_H */
