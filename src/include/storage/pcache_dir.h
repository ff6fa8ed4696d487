/*-------------------------------------------------------------------------
 *
 * pcache_dir.h
 *	  The directory of the pool: whom it belongs to, what it lies on, and which
 *	  files in it may be ours.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_dir.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_DIR_H
#define PCACHE_DIR_H

#include <sys/stat.h>

#include "storage/pcache_error.h"
#include "storage/pcache_layout.h"

/*
 * pcache_dir.c
 *
 * An open directory in which no other user can change anything; see there.
 */
typedef struct PCacheDir
{
	int			fd;				/* O_PATH; -1 if not open */
	char		path[MAXPGPATH];	/* absolute, links resolved */
	char		missing[MAXPGPATH]; /* what of the path does not exist, or "" */
} PCacheDir;

typedef enum PCacheDirResult
{
	PCACHE_DIR_OK,
	PCACHE_DIR_FAILED,			/* errno tells why */
	PCACHE_DIR_UNTRUSTED,		/* err tells why */
} PCacheDirResult;

extern const char *PCacheDirPgdata;
extern bool PCacheIsInside(const char *path, const char *directory);
extern bool PCacheDirIsTrusted(const struct stat *st, bool is_pools,
							   const char *path, PCacheError *err);
extern PCacheDirResult PCacheDirOpenExisting(const char *path, PCacheDir *dir,
											 PCacheError *err);
extern PCacheDirResult PCacheDirOpen(const char *path, PCacheDir *dir,
									 PCacheError *err);
extern PCacheDirResult PCacheDirOpenForFile(const char *path, PCacheDir *dir,
											PCacheError *err);
extern int	PCacheDirCountMissing(const PCacheDir *dir);
extern bool PCacheDirMakeMissing(PCacheDir *dir, PCacheError *err);
extern bool PCacheDirSync(const PCacheDir *dir);
extern void PCacheDirClose(PCacheDir *dir);

/* pcache_fs.c */
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
extern bool PCacheOpenExistingPart(const char *directory, PCacheDir *existing,
								   PCacheFsKind *kind, PCacheError *err);
extern bool PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
								PCacheError *err);

/* pcache_file.c */
extern bool PCacheDirHas(const PCacheDir *dir, const char *name,
						 const struct stat *st);
extern int	PCacheDirOpenFile(const PCacheDir *dir, const char *name,
							  int flags, const char *path, struct stat *st,
							  PCacheError *err);
extern bool PCacheFileIsWritable(int fd, const char *path, PCacheError *err);
extern bool PCacheFileKeepFromGroup(int fd, const char *path, PCacheError *err);
extern bool PCacheDirHasAllLinks(const PCacheDir *dir, int fd,
								 const char *path, PCacheError *err);

#endif							/* PCACHE_DIR_H */
