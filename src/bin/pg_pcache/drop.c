/*-------------------------------------------------------------------------
 *
 * drop.c
 *	  pg_pcache drop: take the pool away again.
 *
 * All is looked at before anything is changed (dropplan.c).  Then, in this
 * order, and each step durably before the next one: what an interrupted creation
 * left, the pool, and its directory if nothing else is in it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/drop.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_utils.h"
#include "common/logging.h"
#include "drop.h"
#include "storage/pcache_image.h"

static void
RemoveFromPool(const DropPlan *plan, const char *name)
{
	if (unlinkat(plan->dir.fd, name, 0) < 0)
		pg_fatal("could not remove file \"%s/%s\": %m", plan->dir.path, name);
	if (!PCacheDirSync(&plan->dir))
		pg_fatal("could not fsync directory \"%s\": %m", plan->dir.path);
}

/*
 * Remove the directory, which is open.  Nobody else can have exchanged it, nor
 * one above it, since all of them are trusted.  That it stays is no error.
 */
static void
RemoveDirectory(const DropPlan *plan, DropResult *result)
{
	PCacheDir	parent = {.fd = -1};
	const char *name = last_dir_separator(plan->dir.path) + 1;
	struct stat st;

	parent.fd = openat(plan->dir.fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent.fd < 0 || fstat(plan->dir.fd, &st) < 0)
		pg_fatal("could not access directory \"%s\": %m", plan->dir.path);
	if (!PCacheDirHas(&parent, name, &st))
		result->directory_stays = _("it was renamed");
	else if (unlinkat(parent.fd, name, AT_REMOVEDIR) < 0)
		result->directory_stays = errno == ENOTEMPTY || errno == EEXIST ?
			_("it is not empty") : errno == EBUSY ?
			_("it is a mount point") : psprintf("%m");
	else if (!PCacheDirSync(&parent))
		pg_fatal("could not fsync directory above \"%s\": %m", plan->dir.path);
	PCacheDirClose(&parent);
}

/* Do it. */
static void
CarryOut(const PCacheOptions *options, DropPlan *plan, DropResult *result)
{
	if (plan->leftover_fd >= 0)
		RemoveFromPool(plan, PCACHE_POOL_FILE_TMP);
	Step("drop-leftovers");
	if (plan->pool.fd >= 0)
		RemoveFromPool(plan, PCACHE_POOL_FILE);
	Step("drop-pool");
	if (plan->remove_directory)
		RemoveDirectory(plan, result);
	Step("drop-directory");

	/* one that was started since found no lock to wait for on the way */
	RefuseRunningServer(options->pgdata);
}

/* The configuration may ask for what was just dropped. */
static void
WarnOfMode(const PCacheOptions *options)
{
	char	   *mode = ReadSetting(options, PCacheSetting("mode"));

	if (mode != NULL && pg_strcasecmp(mode, "off") != 0)
	{
		pg_log_warning("\"%s\" is \"%s\", so the next start of the server may create the pool again",
					   PCacheSetting("mode"), mode);
		pg_log_warning_hint("Set it to \"off\", or remove the settings of the persistent cache from the configuration.");
	}
	free(mode);
}

/* An image of the pool has a copy of what was in it. */
static void
WarnOfImage(const PCacheOptions *options)
{
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", options->pgdata, PCACHE_IMAGE_SUFFIX);
	if (lstat(path, &st) < 0)
		return;
	pg_log_warning("image \"%s\" is left", path);
	pg_log_warning_hint("It holds pages of the cluster.  Remove it, too, if you are not going to load it.");
}

/* A path, or nothing if it is "". */
static FieldValue
AsPath(const char *path)
{
	return AsString(path[0] != '\0' ? path : NULL);
}

static void
PrintResult(const DropResult *result, const char *directory)
{
	bool		has_directory = result->directory[0] != '\0';
	bool		removed = has_directory && result->directory_stays == NULL;

	if (result->nothing)
		Text(_("There is nothing to drop: there is no pool in directory \"%s\".\n"),
			 directory);
	else if (result->dry_run)
		Text(_("Dry run: nothing was changed.  This would be removed:\n\n"));
	else
		Text(_("This was removed:\n\n"));

	PrintField(NULL, "dry_run", AsBoolean(result->dry_run));
	PrintField(NULL, "nothing_to_drop", AsBoolean(result->nothing));
	PrintField(result->nothing ? NULL : "pool", "pool",
			   Shown(AsPath(result->pool), result->pool[0] != '\0' ? result->pool : _("none")));
	PrintField("leftover", "leftover", AsPath(result->leftover));
	PrintField(result->nothing ? NULL : "directory", "directory",
			   has_directory && !removed ?
			   Shown(AsPath(result->directory),
					 psprintf(_("%s stays: %s"), result->directory, result->directory_stays)) :
			   AsPath(result->directory));
	PrintField(NULL, "directory_removed", AsBoolean(removed));
	PrintField(result->nothing ? NULL : "freed", "freed", AsBytes(result->freed));
}

int
DoDrop(const PCacheOptions *options)
{
	DropPlan	plan;
	DropResult	result = {0};

	PlanDrop(options, &plan, &result);
	result.dry_run = options->dry_run;
	result.nothing = plan.pool.fd < 0 && plan.leftover_fd < 0 && !plan.remove_directory;
	if (!result.nothing && !options->dry_run)
		CarryOut(options, &plan, &result);
	if (!result.nothing)
		WarnOfMode(options);
	if (!options->dry_run)
		WarnOfImage(options);

	BeginOutput(options);
	PrintResult(&result, plan.directory);
	EndOutput();
	if (plan.leftover_fd >= 0)
		close(plan.leftover_fd);
	PCachePoolClose(&plan.pool);
	PCacheDirClose(&plan.dir);
	return 0;
}
