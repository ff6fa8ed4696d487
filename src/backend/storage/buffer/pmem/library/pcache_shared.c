/*-------------------------------------------------------------------------
 *
 * pcache_shared.c
 *	  What all files of the library know: the pool, and what the start has made of it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_shared.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/pcache_library.h"

PCachePool	PCacheThePool = {.fd = -1};
PCacheLibraryControl *PCacheLibrary = NULL;
PCacheLibraryStart PCacheStart;
