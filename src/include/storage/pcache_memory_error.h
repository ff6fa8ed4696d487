/*-------------------------------------------------------------------------
 *
 * pcache_memory_error.h
 *	  What the pool remembers of bad memory, and of processes that may have
 *	  overwritten pages.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_memory_error.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_MEMORY_ERROR_H
#define PCACHE_MEMORY_ERROR_H

#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"
#include "storage/pcache_range.h"

extern bool PCacheNoteMemoryError(const PCacheMapping *map,
								  uint64 offset, uint32 length);
extern bool PCacheReadMemoryErrors(int fd, PCacheRangeList *bad);
extern bool PCacheForgetMemoryErrors(const PCacheMapping *map,
									 uint64 offset, uint64 length);

#endif							/* PCACHE_MEMORY_ERROR_H */
