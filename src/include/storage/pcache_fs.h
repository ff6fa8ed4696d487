/*-------------------------------------------------------------------------
 *
 * pcache_fs.h
 *	  Kinds of file systems.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_fs.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_FS_H
#define PCACHE_FS_H

#include "storage/pcache_dir.h"

/* Is it memory, which outlives the server but not the host? */
static inline bool
PCacheFsIsMemory(PCacheFsKind kind)
{
	return kind == PCACHE_FS_TMPFS || kind == PCACHE_FS_HUGETLBFS;
}

extern bool PCacheFsKindOf(const PCacheDir *dir, int fd, PCacheFsKind *kind,
						   uint64 *page_size);
extern const char *PCacheFsKindName(PCacheFsKind kind);
extern uint64 PCacheFileSizeLimit(void);
extern bool PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN]);
extern bool PCacheBootIsAnother(PCacheFsKind kind, const uint8 used[PCACHE_UUID_LEN],
								const uint8 found[PCACHE_UUID_LEN]);
extern bool PCacheWasOtherBoot(const PCacheSuperblock *sb);
extern bool PCacheOpenExistingPart(const char *directory, PCacheDir *existing,
								   PCacheFsKind *kind, PCacheError *err);
extern bool PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
								PCacheError *err);

#endif							/* PCACHE_FS_H */
