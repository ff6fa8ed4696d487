/*-------------------------------------------------------------------------
 *
 * pcache_place.c
 *	  In which directory is the pool of a cluster?
 *
 * Server and pg_pcache ask this, so that a program never judges, repairs or
 * removes another pool than the one that the next start will open.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_place.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <sys/stat.h>

#include "storage/pcache_record.h"

/*
 * Find the directory of the pool.
 *
 * pgdata is absolute.  configured is persistent_cache_directory, or NULL if
 * that is not known, and record is PGDATA's, or NULL.  directory has MAXPGPATH
 * bytes.
 *
 * With the default, a pool in PGDATA, or one to which a symbolic link in PGDATA
 * leads, is taken before what the record names.  There is mostly no such link,
 * because tools that copy files would follow it and copy the pool.
 */
void
PCacheFindDirectory(const char *pgdata, const char *configured,
					const PCacheRecord *record, char *directory)
{
	char		path[MAXPGPATH];
	struct stat st;
	bool		is_default = configured == NULL ||
		strcmp(configured, PCACHE_DEFAULT_DIRECTORY) == 0;

	if (!is_default)
	{
		strlcpy(directory, configured, MAXPGPATH);
		return;
	}
	snprintf(directory, MAXPGPATH, "%s/%s", pgdata, PCACHE_DEFAULT_DIRECTORY);
	if (record == NULL)
		return;
	/* any other error is for who opens it */
	snprintf(path, sizeof(path), "%s/%s", directory, PCACHE_POOL_FILE);
	if (stat(path, &st) < 0 && errno == ENOENT)
		strlcpy(directory, record->directory, MAXPGPATH);
}
