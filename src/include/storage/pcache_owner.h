/*-------------------------------------------------------------------------
 *
 * pcache_owner.h
 *	  Directories and files that belong to another user than they should.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_owner.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_OWNER_H
#define PCACHE_OWNER_H

#include <sys/types.h>

#include "storage/pcache_error.h"

/* What has the wrong owner. */
typedef enum PCacheOwned
{
	PCACHE_OWNED_DIRECTORY,
	PCACHE_OWNED_MOUNT_POINT,	/* a directory with a file system of its own */
	PCACHE_OWNED_POOL,
} PCacheOwned;

extern void PCacheSetWrongOwner(PCacheOwned what, const char *path, uid_t owner,
								PCacheError *err);

#endif							/* PCACHE_OWNER_H */
