/*-------------------------------------------------------------------------
 *
 * pcache_size.c
 *	  Does the pool have the size that pcache.size asks for?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_size.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_setting.h"
#include "storage/pcache_size.h"

/*
 * Is the pool, which has this superblock and our format, larger or smaller than one that
 * is created with these settings?  The setting is for new pools, and for those that become
 * larger because shared_buffers does, so nothing is changed; but whoever sets it expects
 * something.
 *
 * size is pcache.size, which says nothing below shared_buffers (nbuffers).  Both are in
 * blocks.  Sets err if it differs.
 */
bool
PCacheSizeDiffers(const PCachePool *pool, const PCacheSuperblock *sb,
				  uint64 size, uint64 nbuffers, PCacheError *err)
{
	if (size == 0 || size < nbuffers || sb->capacity < nbuffers)
		return false;

	/*
	 * one that was formatted again may have more blocks in a file of that
	 * size
	 */
	if (sb->capacity >= size &&
		PCacheComputeGeometry(size, pool->page_size).pool_size >= sb->pool_size)
		return false;
	PCacheSetError(err, _("\"%s\" has no effect on persistent cache pool \"%s\", which is there already"),
				   PCacheSetting("size"), pool->path);
	PCacheSetHint(err, _("The pool has room for %llu blocks, and \"%s\" asks for %llu.  Run \"pg_pcache init --force\" while the server is down to make a new one, with which the next start is cold."),
				  (unsigned long long) sb->capacity, PCacheSetting("size"),
				  (unsigned long long) size);
	return true;
}
