/*-------------------------------------------------------------------------
 *
 * pcache_setting.c
 *	  Settings with which a pool can be used: its directory, and how the server reads.
 *
 * Server and pg_pcache ask this, so that a program never judges or repairs
 * another pool than the one that the next start will open.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_setting.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <limits.h>
#include <unistd.h>

#include "port.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_setting.h"

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
			return PCacheSetError(err, _("The path must not contain \"..\"."));
	}

	if (strchr(directory, '\n') != NULL)
		return PCacheSetError(err, _("The path must not contain a newline."));

	if (strlcpy(canonical, directory, sizeof(canonical)) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		return PCacheSetError(err, _("The path must be shorter than %d bytes."),
							  MAXPGPATH - PCACHE_PATH_RESERVE);
	canonicalize_path(canonical);
	if (is_absolute_path(canonical))
	{
		strcpy(directory, canonical);
		return true;
	}
	return PCacheSetError(err, _("The directory must be an absolute path."));
}

/*
 * May the pool be in this directory?  "" says that none is configured.  Not in PGDATA,
 * because base backups and pg_rewind would copy it.
 */
bool
PCacheDirectoryIsAllowed(const char *pgdata, const char *directory, PCacheError *err)
{
	char		existing[MAXPGPATH];
	char		real_directory[PATH_MAX];
	char		real_pgdata[PATH_MAX];
	char		target[MAXPGPATH];
	int			n_links = 0;

	if (directory[0] == '\0')
	{
		PCacheSetError(err, _("\"%s\" is not set"), PCacheSetting("directory"));
		return PCacheSetHint(err, _("Set it to a directory on tmpfs, hugetlbfs or fsdax that belongs to the user that owns the server process."));
	}
	if (!is_absolute_path(directory))
		return PCacheSetError(err, _("\"%s\" is not an absolute path: \"%s\""),
							  PCacheSetting("directory"), directory);

	/*
	 * If the directory does not exist yet, its nearest existing parent
	 * decides.  A link to what does not exist is followed.
	 */
	strlcpy(existing, directory, sizeof(existing));
	while (realpath(existing, real_directory) == NULL)
	{
		ssize_t		len = n_links < PCACHE_MAX_SYMLINKS ? readlink(existing, target, sizeof(target) - 1) : -1;

		get_parent_directory(existing);
		if (len < 0)
			continue;
		target[len] = '\0';
		n_links++;
		if (is_absolute_path(target))
			strlcpy(existing, target, sizeof(existing));
		else
			join_path_components(existing, existing, target);
	}
	if (realpath(pgdata, real_pgdata) == NULL)
		strlcpy(real_pgdata, pgdata, sizeof(real_pgdata));
	if (!PCacheIsInside(directory, pgdata) && !PCacheIsInside(real_directory, real_pgdata))
		return true;
	PCacheSetError(err, _("persistent cache directory \"%s\" is inside the data directory"),
				   directory);
	return PCacheSetHint(err, _("Choose a directory outside."));
}

/*
 * Is "data" among the words of debug_io_direct?  None of the other words
 * contains it.
 */
static bool
IsDirectForData(const char *debug_io_direct)
{
	for (const char *p = debug_io_direct; *p != '\0'; p++)
	{
		if (pg_strncasecmp(p, "data", strlen("data")) == 0)
			return true;
	}
	return false;
}

/*
 * Does no read outlive its process, with these values of the settings
 * io_method and debug_io_direct?  If one may, returns false, with the error.
 * A setting that the server does not know is NULL.
 */
bool
PCacheReadsEndWithProcess(const char *io_method, const char *debug_io_direct,
						  PCacheError *err)
{
	if (io_method == NULL || debug_io_direct == NULL ||
		pg_strcasecmp(io_method, "io_uring") != 0 || !IsDirectForData(debug_io_direct))
		return true;
	PCacheSetError(err, _("a persistent cache cannot be used with \"io_method\" = \"io_uring\" and \"debug_io_direct\" = \"data\", because a read that a killed server has started may still overwrite a page of the next one"));
	return PCacheSetHint(err, _("Set \"io_method\" to \"worker\" or \"sync\", or remove \"data\" from \"debug_io_direct\"."));
}
