/*-------------------------------------------------------------------------
 *
 * pcache_file.h
 *	  Which file in the pool's directory may be the pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_file.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_FILE_H
#define PCACHE_FILE_H

#include "storage/pcache_dir.h"

extern bool PCacheDirHas(const PCacheDir *dir, const char *name,
						 const struct stat *st);
extern int	PCacheDirOpenFile(const PCacheDir *dir, const char *name,
							  int flags, const char *path, struct stat *st,
							  PCacheError *err);
extern bool PCacheFileIsWritable(int fd, const char *path, PCacheError *err);
extern bool PCacheFileKeepFromGroup(int fd, const char *path, PCacheError *err);
extern bool PCacheFileHasOneName(int fd, const char *path, PCacheError *err);

#endif							/* PCACHE_FILE_H */
