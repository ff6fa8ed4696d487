/*-------------------------------------------------------------------------
 *
 * pcache_create.h
 *	  Create a pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_create.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_CREATE_H
#define PCACHE_CREATE_H

#include "storage/pcache_pool.h"

/* A creation on its way. */
typedef struct PCacheCreation
{
	PCachePool *pool;
	PCacheDir	dir;
	bool		sparse;			/* some of it may not be allocated yet */
	const char *made;			/* the name that our file has, or NULL */
	char		final_path[MAXPGPATH];
} PCacheCreation;

/*
 * If not NULL: called with the pool's directory once the file with the temporary
 * name is ours, before anything is allocated, for those who remove it when a
 * signal ends them.
 */
extern void (*PCachePoolFileMade) (int dir_fd);

extern bool PCachePoolBeginCreate(PCacheCreation *creation,
								  const char *directory, bool replace,
								  bool sparse, uint64 capacity,
								  uint64 system_identifier,
								  uint32 catalog_version, PCachePool *pool,
								  PCacheSuperblock *sb, PCacheError *err);
extern bool PCachePoolFinishCreate(PCacheCreation *creation, PCacheError *err);
extern void PCachePoolAbortCreate(PCacheCreation *creation);
extern bool PCachePoolCreate(const char *directory, bool replace, uint64 capacity,
							 uint64 system_identifier, uint32 catalog_version,
							 PCachePool *pool, PCacheSuperblock *sb,
							 PCacheError *err);

#endif							/* PCACHE_CREATE_H */
