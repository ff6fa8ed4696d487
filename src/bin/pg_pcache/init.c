/*-------------------------------------------------------------------------
 *
 * init.c
 *	  pg_pcache init: create the pool.
 *
 * All is looked at before anything is changed.  Then the pool is made under a temporary
 * name, which a failure or a signal removes; directories stay.  With --force it takes the
 * place of the old pool, which is there until then, in one step.
 *
 * If there is no room for both, the old pool is made the new one in place.
 * That cannot be undone, but what can fail fails before.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/init.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"

typedef struct InitResult
{
	bool		dry_run;
	bool		replaced;		/* there was a pool, --force replaced it */
	char		directory[MAXPGPATH];
	PCacheFsKind fs_kind;
	PCacheGeometry geometry;
	uint64		system_identifier;
	uint8		pool_uuid[PCACHE_UUID_LEN]; /* not in a dry run */
	bool		huge_pages;		/* on tmpfs; not in a dry run */
} InitResult;

/* Everything that init finds out before it starts. */
typedef struct InitPlan
{
	char		directory[MAXPGPATH];	/* of the pool, links resolved */
	PCacheDir	existing;		/* the part of it that exists, open */
	PCachePool	old_pool;		/* open and locked, if there is one */
	bool		in_place;		/* no room for both */
	uint64		capacity;
	ControlFileData *control;
	Configuration conf;
} InitPlan;

/* From now on a signal removes the file that is not complete. */
static void
WatchPool(int dir_fd)
{
	WatchUnfinished(dir_fd, PCACHE_POOL_FILE_TMP);
	NoteUnfinished(true);
}

static uint64
ChooseCapacity(const PCacheOptions *options, const Configuration *conf)
{
	int64		blocks;

	if (options->size != NULL)
		return ParseSize(options->size, "--size");

	/* as the server does */
	blocks = Max((int64) conf->pool_size, conf->nbuffers);
	if (blocks <= 0)
		Refuse(psprintf(_("Use option %s."), "--size"),
			   _("could not determine the size of the pool"));
	return blocks;
}

/*
 * Find out how much of a directory is there already, and its path without links, which
 * has MAXPGPATH bytes.
 */
static void
ResolveDirectory(const char *directory, PCacheDir *existing, char *resolved)
{
	char		path[MAXPGPATH];
	PCacheError err;

	switch (PCacheDirOpenExisting(directory, existing, &err))
	{
		case PCACHE_DIR_OK:
			break;
		case PCACHE_DIR_FAILED:
			pg_fatal("could not access directory \"%s\": %m", directory);
		case PCACHE_DIR_UNTRUSTED:
			FailWith(&err);
	}
	snprintf(path, sizeof(path), "%s/%s", existing->path, existing->missing);
	canonicalize_path(path);
	strlcpy(resolved, path, MAXPGPATH);
}

/* The server would not use a pool in another directory than its own. */
static void
RefuseOtherDirectory(const char *configured, const char *directory)
{
	char		resolved[MAXPGPATH];
	PCacheDir	existing;

	ResolveDirectory(configured, &existing, resolved);
	PCacheDirClose(&existing);
	if (strcmp(directory, resolved) == 0)
		return;
	Refuse(psprintf(_("Leave out %s, or change the setting."), "--directory"),
		   _("\"%s\" is \"%s\", so the server would not use a pool in \"%s\""),
		   PCacheSetting("directory"), configured, directory);
}

/* Decide where the pool will be. */
static void
ChooseDirectory(const PCacheOptions *options, InitPlan *plan)
{
	char		directory[MAXPGPATH];
	const char *configured = plan->conf.directory;
	PCacheError err;

	if (options->directory != NULL)
		TakeDirectory(options->directory, directory);
	else
	{
		strlcpy(directory, configured != NULL ? configured : "", MAXPGPATH);
		RequireReadableConfiguration();
		canonicalize_path(directory);
		if (!PCacheDirectoryIsAllowed(options->pgdata, directory, &err))
			FailWith(&err);
	}
	ResolveDirectory(directory, &plan->existing, plan->directory);
	if (strlen(plan->directory) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", plan->directory);
	if (strchr(plan->directory, '\n') != NULL ||
		strchr(plan->directory, '\r') != NULL)
		pg_fatal("directory name \"%s\" contains a newline or carriage return character",
				 plan->directory);

	if (options->directory != NULL && configured != NULL)
		RefuseOtherDirectory(configured, plan->directory);
	if (PCacheIsInside(plan->directory, options->pgdata))
		Refuse(_("Choose a directory outside."),
			   _("directory \"%s\" is inside the data directory"), plan->directory);
}

static void
CheckDirectory(InitPlan *plan)
{
	if (faccessat(plan->existing.fd, ".", W_OK | X_OK, 0) < 0)
		pg_fatal("could not write to directory \"%s\": %m",
				 plan->existing.path);
}

static void
RefuseOldPool(const InitPlan *plan)
{
	PCacheSuperblocks superblocks;
	const char *foreign;

	PCacheReadSuperblocks(plan->old_pool.fd, &superblocks);
	foreign = WhyForeign(&superblocks, plan->control);
	pg_log_error("persistent cache pool \"%s\" already exists",
				 plan->old_pool.path);
	pg_log_error_detail("%s", foreign != NULL ? foreign : _("It belongs to this cluster."));
	pg_log_error_hint("Use %s to replace it, or choose another directory.",
					  "--force");
	exit(EXIT_ERROR);
}

/*
 * Is there a pool?  With --force that is fine, unless somebody uses it; it stays
 * locked until we are done.
 */
static void
CheckOldPool(const PCacheOptions *options, InitPlan *plan)
{
	PCacheError err;

	plan->old_pool.fd = -1;
	if (!OpenPoolOrFail(plan->directory, options->dry_run ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE,
						&plan->old_pool, &err))
		return;
	if (!options->force)
		RefuseOldPool(plan);
	if (!PCachePoolMayFormat(&plan->old_pool, &err))
		FailWith(&err);
}

/*
 * Is there room for the pool, once an old one is gone?  On tmpfs it is memory, all of which
 * is allocated at once, and the kernel kills somebody if there is too little.
 */
static void
CheckSpace(InitPlan *plan, InitResult *result)
{
	PCacheError err;
	uint64		size;

	memset(&result->geometry, 0, sizeof(result->geometry));
	if (PCacheSpaceFor(&plan->existing, plan->capacity, &result->geometry, &err) &&
		(result->fs_kind != PCACHE_FS_TMPFS ||
		 PCacheMemoryWillDo(result->geometry.pool_size, result->geometry.pool_size, &err)))
	{
#ifdef USE_INJECTION_POINTS
		/* for tests, which have no full file system */
		plan->in_place = plan->old_pool.fd >= 0 &&
			getenv("PG_PCACHE_IN_PLACE") != NULL;
#endif
		return;
	}

	size = result->geometry.pool_size;
	if (plan->old_pool.fd < 0 || size == 0 || !PCachePoolHasRoom(&plan->old_pool, size) ||
		!PCachePoolHasMemory(&plan->old_pool, size, &err))
		FailWith(&err);
	plan->in_place = true;
}

/*
 * Report, once a second until stopped, how much of the pool is allocated.
 * A process of its own does that: the call that allocates it all may take
 * long, and starts anew on some file systems if a signal interrupts it.
 */
static pid_t
StartProgress(int dir_fd, uint64 total)
{
	pid_t		parent = getpid();
	pid_t		pid = ForkChild();

	if (pid > 0)
		return pid;

	OnEndSignals(SIG_DFL);
	while (getppid() == parent)
	{
		struct stat st;

		if (fstatat(dir_fd, PCACHE_POOL_FILE_TMP, &st, AT_SYMLINK_NOFOLLOW) == 0)
			ReportProgress((uint64) st.st_blocks * 512, total, false);
		pg_usleep(1000000L);
	}
	_exit(0);
}

static void
StopProgress(pid_t pid, uint64 total)
{
	kill(pid, SIGKILL);
	(void) WaitForChild(pid);
	ReportProgress(total, total, true);
}

/* Make the old pool the new one. */
static void
ReuseOldPool(InitPlan *plan, PCachePool *pool, PCacheSuperblock *sb)
{
	PCacheSuperblocks superblocks;

	*pool = plan->old_pool;
	PCacheReadSuperblocks(pool->fd, &superblocks);
	EmptyPool(pool, &superblocks, plan->control, plan->capacity);
	*sb = superblocks.chosen;
}

/* Do it. */
static void
CarryOut(const PCacheOptions *options, InitPlan *plan, InitResult *result)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	pid_t		progress = 0;
	bool		created;

	if (!PCacheDirMakeMissing(&plan->existing, &err))
		FailWith(&err);
	if (plan->in_place)
		ReuseOldPool(plan, &pool, &sb);
	else
	{
		if (options->progress)
			progress = StartProgress(plan->existing.fd, result->geometry.pool_size);
		PCachePoolFileMade = WatchPool;
		created = PCachePoolCreate(plan->directory, plan->old_pool.fd >= 0, plan->capacity,
								   plan->control->system_identifier,
								   plan->control->catalog_version_no,
								   &pool, &sb, &err);
		if (progress != 0)
			StopProgress(progress, result->geometry.pool_size);
		/* it is complete, or was removed again */
		NoteUnfinished(false);
		if (!created)
			FailWith(&err);
		Step("init-created");
	}

	result->geometry.pool_size = pool.file_size;
	result->fs_kind = pool.fs_kind;
	memcpy(result->pool_uuid, sb.pool_uuid, PCACHE_UUID_LEN);
	result->huge_pages = pool.huge_pages;
	PCachePoolClose(&pool);
	if (!plan->in_place)
		PCachePoolClose(&plan->old_pool);
}

/* What shared_preload_libraries has to be, or NULL if it is. */
static char *
PreloadLibraries(const Configuration *conf)
{
	if (conf->preloaded)
		return NULL;
	return conf->libraries == NULL || conf->libraries[0] == '\0' ? pg_strdup("pg_pcache") :
		psprintf("%s, pg_pcache", conf->libraries);
}

static void
PrintResult(const InitResult *result, const char *libraries)
{
	uint64		data_size = result->geometry.capacity * BLCKSZ;

	if (result->dry_run)
		Text(_("Dry run: nothing was changed.  This would be %s:\n\n"),
			 result->replaced ? _("replaced") : _("created"));
	PrintField(NULL, "dry_run", AsBoolean(result->dry_run));
	PrintField(NULL, "replaced", AsBoolean(result->replaced));
	PrintField("pool", "pool", AsString(psprintf("%s/%s", result->directory, PCACHE_POOL_FILE)));
	PrintField("file system", "file_system", AsString(PCacheFsKindName(result->fs_kind)));
	PrintField("capacity", "capacity", AsBlocks(result->geometry.capacity));
	PrintField("cached data", "cached_data", AsBytes(data_size));
	PrintField("file size", "file_size", AsBytes(result->geometry.pool_size));
	PrintField("system identifier", "system_identifier", AsIdentifier(result->system_identifier));
	PrintField("pool uuid", "pool_uuid",
			   AsString(result->dry_run ? NULL : FormatUuid(result->pool_uuid)));
	if (result->fs_kind == PCACHE_FS_TMPFS && !result->dry_run)
		PrintField("huge pages", "huge_pages", AsBoolean(result->huge_pages));

	Text(_("\nTo use it, put this into postgresql.conf:\n\n"));
	if (libraries != NULL)
		Text("    shared_preload_libraries = '%s'\n", escape_single_quotes_ascii(libraries));
	Text("    pcache.mode = planned_restart\n");
	Text("    pcache.directory = '%s'\n",
		 escape_single_quotes_ascii(result->directory));
	Text("    shared_buffers = %s\n", FormatSetting(data_size));
	OpenObject("settings");
	if (libraries != NULL)
		PrintField(NULL, "shared_preload_libraries", AsString(libraries));
	PrintField(NULL, "pcache.mode", AsString("planned_restart"));
	PrintField(NULL, "pcache.directory", AsString(result->directory));
	PrintField(NULL, "shared_buffers", AsString(FormatSetting(data_size)));
	CloseObject();
}

int
DoInit(const PCacheOptions *options)
{
	InitPlan	plan = {{0}};
	InitResult	result = {0};
	uint64		page_size;

	plan.control = ReadControlFile(options);
	RefuseRunningServer(options->pgdata);
	ReadConfiguration(options, &plan.conf);
	ChooseDirectory(options, &plan);
	CheckOldPool(options, &plan);
	CheckDirectory(&plan);
	plan.capacity = ChooseCapacity(options, &plan.conf);
	if (!PCacheFsKindOf(&plan.existing, plan.existing.fd, &result.fs_kind,
						&page_size))
		pg_fatal("could not stat file system of \"%s\": %m",
				 plan.existing.path);
	CheckSpace(&plan, &result);

	result.dry_run = options->dry_run;
	result.replaced = (plan.old_pool.fd >= 0);
	result.system_identifier = plan.control->system_identifier;
	strlcpy(result.directory, plan.directory, sizeof(result.directory));
	if (!options->dry_run)
		CarryOut(options, &plan, &result);

	if (result.fs_kind == PCACHE_FS_FILE)
	{
		pg_log_warning("directory \"%s\" is on an ordinary file system",
					   result.directory);
		pg_log_warning_detail("The kernel will write changed pages back to the pool while the server runs, in addition to the data files.");
		pg_log_warning_hint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs.");
	}

	BeginOutput(options);
	PrintResult(&result, PreloadLibraries(&plan.conf));
	EndOutput();
	return 0;
}
