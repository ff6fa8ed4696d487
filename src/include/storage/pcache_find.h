/*-------------------------------------------------------------------------
 *
 * pcache_find.h
 *	  In which directory the pool is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_find.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_FIND_H
#define PCACHE_FIND_H

#include "storage/pcache_error.h"
#include "storage/pcache_setting.h"

/* room that a directory's path leaves for the names of files in it */
#define PCACHE_PATH_RESERVE			64

extern bool PCacheCanonicalDirectory(char *directory, PCacheError *err);
extern bool PCacheDirectoryIsAllowed(const char *pgdata, const char *directory,
									 PCacheError *err);

#endif							/* PCACHE_FIND_H */
