/*-------------------------------------------------------------------------
 *
 * dropplan.c
 *	  What does "pg_pcache drop" have to remove, and may it?
 *
 * Nothing is changed here, but the pool and its leftovers are locked from here
 * on.  Rule "only this data directory's pool is dropped" says whose pool is
 * removed.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/dropplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "drop.h"

/* What can be beside the pool. */
const char *const DropLeftoverNames[DROP_MAX_LEFTOVERS] = {
	PCACHE_POOL_FILE_TMP, PCACHE_POOL_FILE_OLD
};

static void
ReadRecord(const PCacheOptions *options, DropPlan *plan)
{
	PCacheError err;

	snprintf(plan->record_path, sizeof(plan->record_path), "%s/%s",
			 options->pgdata, PCACHE_RECORD_FILE);
	if (!PCacheIsLibrary())
		snprintf(plan->default_directory, sizeof(plan->default_directory), "%s/%s",
				 options->pgdata, PCACHE_DEFAULT_DIRECTORY);
	plan->record_result = PCacheRecordRead(options->pgdata, &plan->record, &err);
	if (plan->record_result == PCACHE_RECORD_ERROR && !options->force)
	{
		PCacheSetHint(&err, _("Use %s to look for the pool by the configuration, and remove this file all the same."),
					  "--force");
		FailWith(&err);
	}
}

/*
 * Where is the pool?  The record comes before the configuration, which may
 * already be that of a server without the cache.
 */
static void
ChooseDirectory(const PCacheOptions *options, DropPlan *plan)
{
	char	   *configured = NULL;
	const char *directory = plan->default_directory;
	PCacheError err;

	if (options->directory != NULL)
		directory = options->directory;
	else if (plan->record_result == PCACHE_RECORD_OK)
		directory = plan->record.directory;
	else
	{
		configured = ReadPoolDirectory(options);
		if (PCacheIsLibrary() && configured == NULL)
		{
			pg_log_error("\"%s\" is not set", PCacheSetting("directory"));
			pg_log_error_hint("Give the directory of the pool with %s.", "--directory");
			exit(EXIT_ERROR);
		}
		if (!PCacheIsDefaultDirectory(configured))
			directory = configured;
	}
	if (strlcpy(plan->directory, directory, MAXPGPATH) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", directory);
	canonicalize_path(plan->directory);
	if (!is_absolute_path(plan->directory))
		pg_fatal("persistent cache directory location must be an absolute path");
	free(configured);

	switch (PCacheDirOpen(plan->directory, &plan->dir, &err))
	{
		case PCACHE_DIR_OK:
			strlcpy(plan->directory, plan->dir.path, sizeof(plan->directory));
			break;
		case PCACHE_DIR_FAILED:
			if (errno != ENOENT)
				pg_fatal("could not access directory \"%s\": %m", plan->directory);
			break;
		case PCACHE_DIR_UNTRUSTED:
			if (!options->force)
				FailWith(&err);
			pg_log_warning("%s", err.message);
			pg_log_warning_detail("Nothing is removed there.");
			plan->is_untrusted = true;
			break;
	}
	if (!plan->is_untrusted && strcmp(plan->directory, plan->default_directory) != 0 &&
		PCacheIsInside(plan->directory, options->pgdata))
	{
		if (!options->force)
			pg_fatal("directory \"%s\" is inside the data directory", plan->directory);
		PCacheDirClose(&plan->dir);
		plan->is_untrusted = true;
	}
	plan->is_recorded = plan->record_result == PCACHE_RECORD_OK &&
		strcmp(plan->record.directory, plan->directory) == 0;
	plan->keeps_record = plan->record_result == PCACHE_RECORD_OK &&
		!plan->is_recorded;
}

/*
 * Is the pool that of this data directory?  If not, returns why, as a detail
 * of the message.
 *
 * A copy of the cluster, such as a standby, has the same system identifier.  If
 * its record was copied as well, only the incarnation tells that another server
 * has used the pool since.  The library has no record.  Whoever drops the pool of
 * the server that this one was copied from, while that is down, costs it a warm
 * start.
 */
static const char *
WhyForeign(const DropPlan *plan, const PCacheSuperblocks *superblocks)
{
	const PCacheSuperblock *sb = &superblocks->chosen;

	if (superblocks->source == PCACHE_SB_NONE)
		return _("Its superblock is damaged, so the cluster it belongs to is not known.");
	if (sb->system_identifier != plan->control->system_identifier)
		return psprintf(_("It belongs to another cluster, with system identifier %llu; this one has %llu."),
						(unsigned long long) sb->system_identifier,
						(unsigned long long) plan->control->system_identifier);
	if (PCacheIsLibrary())
		return NULL;
	if (plan->record_result != PCACHE_RECORD_OK)
		return _("The data directory has no record of it.");
	if (memcmp(sb->pool_uuid, plan->record.pool_uuid, PCACHE_UUID_LEN) != 0)
		return psprintf(_("The pool that the data directory has a record of is another one, in \"%s\"."),
						plan->record.directory);
	if (sb->format_version == PCACHE_FORMAT_VERSION &&
		sb->incarnation != 0 && plan->record.incarnation != 0 &&
		sb->incarnation != plan->record.incarnation)
		return _("Another server has used it since, perhaps on a copy of this data directory.");
	return NULL;
}

/* Open the pool, and refuse one that is not ours. */
static void
CheckPool(const PCacheOptions *options, DropPlan *plan, DropResult *result)
{
	PCacheError err;
	PCacheSuperblocks superblocks;
	const char *why;
	struct stat st;

	switch (PCachePoolOpen(plan->directory,
						   options->dry_run ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE,
						   &plan->pool, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			return;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			FailWith(&err);
	}
	if (fstat(plan->pool.fd, &st) < 0)
		pg_fatal("could not stat file \"%s\": %m", plan->pool.path);
	if (!PCacheDirHas(&plan->dir, PCACHE_POOL_FILE, &st))
		pg_fatal("persistent cache pool \"%s\" was replaced while it was opened",
				 plan->pool.path);
	strlcpy(result->pool, plan->pool.path, sizeof(result->pool));
	/* hugetlbfs also counts blocks of 512 bytes */
	result->freed += (uint64) st.st_blocks * 512;
	plan->overwrite_pool = IsOnPersistentMemory(plan->pool.fd);
	if (plan->overwrite_pool)
		result->overwritten += st.st_size;

	PCacheReadSuperblocks(plan->pool.fd, &superblocks);
	why = WhyForeign(plan, &superblocks);
	if (why == NULL || options->force)
		return;
	if (!PCachePoolMayFormat(&plan->pool,
							 plan->is_recorded ? &plan->record : NULL, &err))
		pg_log_error("file \"%s\" is not a persistent cache pool", plan->pool.path);
	else
	{
		pg_log_error("persistent cache pool \"%s\" is not known to be that of this data directory",
					 plan->pool.path);
		pg_log_error_detail("%s", why);
	}
	pg_log_error_hint("Use %s to remove it all the same, if nobody else needs it.",
					  "--force");
	exit(EXIT_ERROR);
}

/*
 * The pool that the record speaks of is not there.  Memory forgets; anything
 * else may just not be mounted.  A damaged record may speak of another place,
 * which nothing would name once it is removed.
 */
static void
ReportMissingPool(const PCacheOptions *options, const DropPlan *plan)
{
	if (plan->pool.fd < 0 && plan->record_result == PCACHE_RECORD_ERROR &&
		options->directory == NULL)
	{
		pg_log_error("file \"%s\" is damaged, and there is no persistent cache pool in directory \"%s\"",
					 plan->record_path, plan->directory);
		pg_log_error_hint("Give the directory of the pool with %s; the file may still show it.",
						  "--directory");
		exit(EXIT_ERROR);
	}
	if (plan->pool.fd >= 0 || !plan->is_recorded || plan->is_untrusted ||
		PCacheFsIsMemory(plan->record.fs_kind))
		return;
	pg_log_warning("there is no persistent cache pool in directory \"%s\"",
				   plan->directory);
	pg_log_warning_hint("If its file system (%s) is not mounted, the pool is still on it: mount it, and remove the file.",
						PCacheFsKindName(plan->record.fs_kind));
}

/*
 * Find what an interrupted creation has left in the directory.  It is ours if
 * the pool is, or if the record says that ours was there.
 */
static void
CheckLeftovers(const PCacheOptions *options, DropPlan *plan, DropResult *result)
{
	struct stat pool_st = {0};

	if (plan->pool.fd >= 0 && fstat(plan->pool.fd, &pool_st) < 0)
		pg_fatal("could not stat file \"%s\": %m", plan->pool.path);
	for (int i = 0; i < DROP_MAX_LEFTOVERS; i++)
	{
		char		path[MAXPGPATH];
		PCacheError err;
		struct stat st;
		bool		is_pool;
		int			fd;

		snprintf(path, sizeof(path), "%s/%s", plan->directory, DropLeftoverNames[i]);
		fd = PCacheDirOpenFile(&plan->dir, DropLeftoverNames[i],
							   options->dry_run ? O_RDONLY : O_RDWR, path,
							   &st, &err);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0 || !PCacheDirHasAllLinks(&plan->dir, fd, path, &err))
			FailWith(&err);
		is_pool = plan->pool.fd >= 0 && st.st_dev == pool_st.st_dev &&
			st.st_ino == pool_st.st_ino;
		if (!is_pool && flock(fd, LOCK_EX | LOCK_NB) < 0)
		{
			pg_log_error("could not lock file \"%s\": %m", path);
			pg_log_error_hint("Is another pg_pcache creating a pool there?");
			exit(EXIT_ERROR);
		}
		if (plan->pool.fd < 0 && !plan->is_recorded && !options->force)
		{
			close(fd);
			pg_log_warning("file \"%s\" is left behind", path);
			pg_log_warning_hint("Use %s to remove it, if nobody else needs it.", "--force");
			continue;
		}
		plan->leftover_fd[i] = fd;
		result->leftovers[i] = pg_strdup(path);
		/* what is the pool under another name goes with that */
		if (is_pool)
			continue;
		result->freed += (uint64) st.st_blocks * 512;
		plan->overwrite_leftover[i] = IsOnPersistentMemory(fd);
		if (plan->overwrite_leftover[i])
			result->overwritten += st.st_size;
	}
}

/* Is a name in the directory one that goes before the directory does? */
static bool
IsRemoved(const DropPlan *plan, const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	if (strcmp(name, PCACHE_POOL_FILE) == 0)
		return plan->pool.fd >= 0;
	for (int i = 0; i < DROP_MAX_LEFTOVERS; i++)
	{
		if (strcmp(name, DropLeftoverNames[i]) == 0)
			return plan->leftover_fd[i] >= 0;
	}
	return false;
}

static bool
BecomesEmpty(const DropPlan *plan)
{
	int			fd = openat(plan->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR		   *entries = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool		empty = true;

	if (entries == NULL)
		pg_fatal("could not open directory \"%s\": %m", plan->dir.path);
	while (errno = 0, (entry = readdir(entries)) != NULL)
		empty = empty && IsRemoved(plan, entry->d_name);
	if (errno != 0)
		pg_fatal("could not read directory \"%s\": %m", plan->dir.path);
	closedir(entries);
	return empty;
}

/*
 * Does the directory go with the pool?  Nobody has noted who made it, but "init"
 * and the server make an empty one again that we may make.  So it goes if nothing
 * else is in it, unless it is a mount point or root has to make it.
 */
static void
CheckDirectory(DropPlan *plan, DropResult *result)
{
	bool		is_default = strcmp(plan->directory, plan->default_directory) == 0;
	struct stat st;
	struct stat parent_st;
	int			parent;

	if (plan->pool.fd < 0 && !plan->is_recorded && !is_default)
		return;
	parent = openat(plan->dir.fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0 || fstat(parent, &parent_st) < 0 || fstat(plan->dir.fd, &st) < 0)
		pg_fatal("could not access directory \"%s\": %m", plan->dir.path);
	strlcpy(result->directory, plan->directory, sizeof(result->directory));
	if (st.st_dev != parent_st.st_dev)
		result->directory_stays = _("it is a mount point");
	else if (!BecomesEmpty(plan))
		result->directory_stays = _("it is not empty");
	else if (faccessat(parent, ".", W_OK | X_OK, 0) < 0)
		result->directory_stays = _("the directory above it is not writable");
	else
		plan->remove_directory = true;
	close(parent);
}

/*
 * Find out all that there is to remove, or give up with a message.  The caller
 * closes what is open in the plan.
 */
void
PlanDrop(const PCacheOptions *options, DropPlan *plan, DropResult *result)
{
	memset(plan, 0, sizeof(*plan));
	plan->dir.fd = -1;
	plan->pool.fd = -1;
	for (int i = 0; i < DROP_MAX_LEFTOVERS; i++)
		plan->leftover_fd[i] = -1;

	plan->control = ReadControlFile(options);
	RefuseRunningServer(options->pgdata);
	ReadRecord(options, plan);
	ChooseDirectory(options, plan);
	if (plan->dir.fd >= 0)
	{
		CheckPool(options, plan, result);
		CheckLeftovers(options, plan, result);
		CheckDirectory(plan, result);
	}
	ReportMissingPool(options, plan);
	if (!plan->keeps_record && plan->record_result != PCACHE_RECORD_MISSING)
	{
		plan->remove_record = true;
		strlcpy(result->record, plan->record_path, sizeof(result->record));
	}
}
