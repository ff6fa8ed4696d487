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

#include "storage/pcache_record.h"
#include "storage/pcache_setting.h"

extern bool PCacheIsDefaultDirectory(const char *configured);
extern bool PCacheCanonicalDirectory(char *directory, PCacheError *err);
extern void PCacheFindDirectory(const char *pgdata, const char *configured,
								const PCacheRecord *record, char *directory);
extern bool PCacheDirectoryIsAllowed(const char *pgdata, const char *configured,
									 const char *directory, PCacheError *err);

#endif							/* PCACHE_FIND_H */
