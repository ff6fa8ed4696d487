/*-------------------------------------------------------------------------
 *
 * pcache_shrink.h
 *	  Which pages stay when shared buffers get smaller.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_shrink.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SHRINK_H
#define PCACHE_SHRINK_H

#include "storage/pcache_gate.h"

typedef struct PCacheShrink
{
	uint64		slots;			/* of the pool's last user */
	uint64		staying;		/* the first ones, which stay */
	uint64		not_fitting;	/* pages that have to go; set by the choice */
	uint64		twins;			/* slots with a page that another one claims */
	uint64		next_page;		/* where PCacheShrinkNextMove() is */
	uint64		next_room;
	uint8	   *what;			/* of each slot, see pcache_shrink.c */

	/* of the caller, for PCacheShrinkDecide(); each may be NULL */
	const PCacheSuperblock *superblock; /* see PCacheReadLedger() */
	uint64		generation;		/* likewise */
	void		(*seen) (uint64 slot, PCachePageVerdict verdict, void *arg);
	void	   *arg;
	void		(*interrupts) (void);
} PCacheShrink;

extern PCacheShrink *PCacheShrinkCreate(uint64 slots, uint64 staying);
extern void PCacheShrinkFree(PCacheShrink *shrink);
extern void PCacheShrinkAdd(PCacheShrink *shrink, uint64 slot, bool is_bad,
							PCachePageVerdict verdict, uint8 usage_count);
extern void PCacheShrinkChoose(PCacheShrink *shrink);
extern void PCacheShrinkDecide(PCacheShrink *shrink, int fd,
							   const PCachePageFacts *facts);
extern bool PCacheShrinkIsTwin(const PCacheShrink *shrink, uint64 slot);
extern bool PCacheShrinkMakesRoom(const PCacheShrink *shrink, uint64 slot);
extern bool PCacheShrinkKeeps(const PCacheShrink *shrink, uint64 slot);
extern bool PCacheShrinkNextMove(PCacheShrink *shrink, uint32 *from, uint32 *to);

#endif							/* PCACHE_SHRINK_H */
