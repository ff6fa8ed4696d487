/*-------------------------------------------------------------------------
 *
 * pcache_find.c
 *	  In which directory is the pool of a cluster?
 *
 * Server and pg_pcache ask this, so that a program never judges or repairs
 * another pool than the one that the next start will open.  "pg_pcache drop" goes
 * by the record first, because the settings may be gone by then.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_find.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <limits.h>
#include <sys/stat.h>

#include "storage/pcache_dir.h"
#include "storage/pcache_find.h"
#include "storage/pcache_record.h"

/* Is persistent_cache_directory the default?  NULL stands for that, too. */
bool
PCacheIsDefaultDirectory(const char *configured)
{
	return configured == NULL || strcmp(configured, PCACHE_DEFAULT_DIRECTORY) == 0;
}

/*
 * Find the directory of the pool.
 *
 * pgdata is absolute.  configured is persistent_cache_directory, or NULL if
 * that is not known, and record is PGDATA's, or NULL.  directory has MAXPGPATH
 * bytes.
 *
 * With the default, a pool in PGDATA is taken before what the record names.
 */
void
PCacheFindDirectory(const char *pgdata, const char *configured,
					const PCacheRecord *record, char *directory)
{
	char		path[MAXPGPATH];
	struct stat st;

	if (!PCacheIsDefaultDirectory(configured))
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

/*
 * May the pool be in this directory, which PCacheFindDirectory() found?  Inside
 * PGDATA only the default is allowed: base backups and pg_rewind leave out a pool
 * by that name only.
 */
bool
PCacheDirectoryIsAllowed(const char *pgdata, const char *configured,
						 const char *directory, PCacheError *err)
{
	char		real_directory[PATH_MAX];
	char		real_pgdata[PATH_MAX];

	if (PCacheIsDefaultDirectory(configured))
		return true;
	if (realpath(directory, real_directory) == NULL)
		strlcpy(real_directory, directory, sizeof(real_directory));
	if (realpath(pgdata, real_pgdata) == NULL)
		strlcpy(real_pgdata, pgdata, sizeof(real_pgdata));
	if (!PCacheIsInside(real_directory, real_pgdata))
		return true;
	PCacheSetError(err, _("persistent cache directory \"%s\" is inside the data directory"),
				   directory);
	PCacheSetHint(err, _("Set \"persistent_cache_directory\" to \"%s\", or to a directory outside."),
				  PCACHE_DEFAULT_DIRECTORY);
	return false;
}
