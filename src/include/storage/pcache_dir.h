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
							   bool is_mount_point, const char *path,
							   PCacheError *err);
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

#endif							/* PCACHE_DIR_H */
