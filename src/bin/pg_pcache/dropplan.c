/*-------------------------------------------------------------------------
 *
 * dropplan.c
 *	  What does "pg_pcache drop" have to remove, and may it?
 *
 * Nothing is changed here, but the pool and what a creation left are locked from here
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

/* Where is the pool? */
static void
ChooseDirectory(const PCacheOptions *options, DropPlan *plan)
{
	char	   *configured = NULL;
	const char *directory = options->directory;
	PCacheError err;

	if (directory == NULL)
		directory = configured = ReadPoolDirectory(options);
	if (directory == NULL)
	{
		pg_log_error("\"%s\" is not set", PCacheSetting("directory"));
		pg_log_error_hint("Give the directory of the pool with %s.", "--directory");
		exit(EXIT_ERROR);
	}
	TakeDirectory(directory, plan->directory);
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
	if (!plan->is_untrusted && PCacheIsInside(plan->directory, options->pgdata))
	{
		if (!options->force)
			pg_fatal("directory \"%s\" is inside the data directory", plan->directory);
		PCacheDirClose(&plan->dir);
		plan->is_untrusted = true;
	}
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

	PCacheReadSuperblocks(plan->pool.fd, &superblocks);
	why = WhyForeign(&superblocks, plan->control);
	if (why == NULL || options->force)
		return;
	if (!PCachePoolMayFormat(&plan->pool, &err))
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
 * Find what an interrupted creation has left in the directory.  It is ours if
 * the pool is.
 */
static void
CheckLeftover(const PCacheOptions *options, DropPlan *plan, DropResult *result)
{
	char		path[MAXPGPATH];
	PCacheError err;
	struct stat st;
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", plan->directory, PCACHE_POOL_FILE_TMP);
	fd = PCacheDirOpenFile(&plan->dir, PCACHE_POOL_FILE_TMP,
						   options->dry_run ? O_RDONLY : O_RDWR, path, &st, &err);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || !PCacheFileHasOneName(fd, path, &err))
		FailWith(&err);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
	{
		pg_log_error("could not lock file \"%s\": %m", path);
		pg_log_error_hint("Is another pg_pcache creating a pool there?");
		exit(EXIT_ERROR);
	}
	if (plan->pool.fd < 0 && !options->force)
	{
		close(fd);
		pg_log_warning("file \"%s\" is left behind", path);
		pg_log_warning_hint("Use %s to remove it, if nobody else needs it.", "--force");
		return;
	}
	plan->leftover_fd = fd;
	strlcpy(result->leftover, path, sizeof(result->leftover));
	result->freed += (uint64) st.st_blocks * 512;
}

/* Is a name in the directory one that goes before the directory does? */
static bool
IsRemoved(const DropPlan *plan, const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	if (strcmp(name, PCACHE_POOL_FILE) == 0)
		return plan->pool.fd >= 0;
	return strcmp(name, PCACHE_POOL_FILE_TMP) == 0 && plan->leftover_fd >= 0;
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
	struct stat st;
	struct stat parent_st;
	int			parent;

	if (plan->pool.fd < 0)
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
	plan->leftover_fd = -1;

	plan->control = ReadControlFile(options);
	RefuseRunningServer(options->pgdata);
	ChooseDirectory(options, plan);
	if (plan->dir.fd >= 0)
	{
		CheckPool(options, plan, result);
		CheckLeftover(options, plan, result);
		CheckDirectory(plan, result);
	}
}
