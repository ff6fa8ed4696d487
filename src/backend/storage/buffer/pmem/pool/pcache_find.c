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

#include "port.h"
#include "storage/pcache_dir.h"
#include "storage/pcache_find.h"
#include "storage/pcache_record.h"
#include "storage/pcache_setting.h"

/*
 * Is persistent_cache_directory the default?  NULL stands for that, too.  The
 * library has no default.
 */
bool
PCacheIsDefaultDirectory(const char *configured)
{
	return !PCacheIsLibrary() &&
		(configured == NULL || strcmp(configured, PCACHE_DEFAULT_DIRECTORY) == 0);
}

/*
 * Is this a name that a setting may have for the pool's directory?  If so, it is
 * made canonical, and is not longer then.
 *
 * The place of the pool must not depend on where the server is started, nor on
 * what ".." means beyond a symbolic link.  Sets err, to a detail, if not.
 */
bool
PCacheCanonicalDirectory(char *directory, PCacheError *err)
{
	char		canonical[MAXPGPATH];

	for (const char *name = directory; name != NULL; name = strchr(name, '/'))
	{
		name += strspn(name, "/");
		if (strncmp(name, "..", 2) == 0 && (name[2] == '/' || name[2] == '\0'))
		{
			PCacheSetError(err, _("The path must not contain \"..\"."));
			return false;
		}
	}

	/* the data directory could not remember it */
	if (strchr(directory, '\n') != NULL)
	{
		PCacheSetError(err, _("The path must not contain a newline."));
		return false;
	}

	if (strlcpy(canonical, directory, sizeof(canonical)) >= MAXPGPATH - PCACHE_PATH_RESERVE)
	{
		PCacheSetError(err, _("The path must be shorter than %d bytes."),
					   MAXPGPATH - PCACHE_PATH_RESERVE);
		return false;
	}
	canonicalize_path(canonical);
	if (is_absolute_path(canonical) || PCacheIsDefaultDirectory(canonical))
	{
		strcpy(directory, canonical);
		return true;
	}
	if (PCacheIsLibrary())
		PCacheSetError(err, _("The directory must be an absolute path."));
	else
		PCacheSetError(err, _("The directory must be an absolute path, or \"%s\", which stands for the directory of that name in the data directory."),
					   PCACHE_DEFAULT_DIRECTORY);
	return false;
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
		strlcpy(directory, configured != NULL ? configured : "", MAXPGPATH);
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
	if (PCacheIsLibrary() && directory[0] == '\0')
	{
		PCacheSetError(err, _("\"%s\" is not set"), PCacheSetting("directory"));
		PCacheSetHint(err, _("Set it to a directory on tmpfs, hugetlbfs or fsdax that belongs to the user that owns the server process."));
		return false;
	}
	if (PCacheIsLibrary() && !is_absolute_path(directory))
	{
		PCacheSetError(err, _("\"%s\" is not an absolute path: \"%s\""),
					   PCacheSetting("directory"), directory);
		return false;
	}
	if (realpath(directory, real_directory) == NULL)
		strlcpy(real_directory, directory, sizeof(real_directory));
	if (realpath(pgdata, real_pgdata) == NULL)
		strlcpy(real_pgdata, pgdata, sizeof(real_pgdata));
	if (!PCacheIsInside(real_directory, real_pgdata))
		return true;
	PCacheSetError(err, _("persistent cache directory \"%s\" is inside the data directory"),
				   directory);
	if (PCacheIsLibrary())
		PCacheSetHint(err, _("Choose a directory outside."));
	else
		PCacheSetHint(err, _("Set \"persistent_cache_directory\" to \"%s\", or to a directory outside."),
					  PCACHE_DEFAULT_DIRECTORY);
	return false;
}
