/*-------------------------------------------------------------------------
 *
 * pcache_paths.h
 *	  Names of the persistent cache's files in the data directory.
 *
 * For programs that copy or compare data directories: none of these may be
 * carried over to another one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_paths.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_PATHS_H
#define PCACHE_PATHS_H

/* the directory of the pool, if the configuration names no other one */
#define PCACHE_DEFAULT_DIRECTORY	"pg_pcache"

/* room that a directory's path leaves for the names of files in it */
#define PCACHE_PATH_RESERVE			64

/* see pcache_record.c; also the prefix of its temporary file */
#define PCACHE_RECORD_FILE		"pg_pcache.state"

/* Does a path relative to the data directory belong to the cache? */
static inline bool
PCacheOwnsPath(const char *path)
{
	const size_t len = strlen(PCACHE_DEFAULT_DIRECTORY);

	return strncmp(path, PCACHE_DEFAULT_DIRECTORY, len) == 0 &&
		(path[len] == '\0' || path[len] == '/' ||
		 strncmp(path, PCACHE_RECORD_FILE, strlen(PCACHE_RECORD_FILE)) == 0);
}

#endif							/* PCACHE_PATHS_H */
