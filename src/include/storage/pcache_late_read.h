/*-------------------------------------------------------------------------
 *
 * pcache_late_read.h
 *	  Reads that go on after their process.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_late_read.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_LATE_READ_H
#define PCACHE_LATE_READ_H

#include "storage/pcache_error.h"

extern bool PCacheReadsEndWithProcess(const char *io_method,
									  const char *debug_io_direct,
									  PCacheError *err);

#endif							/* PCACHE_LATE_READ_H */
