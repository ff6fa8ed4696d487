/*-------------------------------------------------------------------------
 *
 * init.c
 *	  pg_pcache init: create the pool.
 *
 * All is looked at before anything is changed.  Then the pool is made under a temporary
 * name, which a failure or a signal removes; directories stay.  With --force it takes the
 * place of the old pool, which is there until then, in one step.
 *
 * If there is no room for both, the old one gives its room back before.  That cannot be undone,
 * so what can be asked is asked before; whatever fails later leaves a pool for a cold start.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/init.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/stat.h>
#include <unistd.h>

#include "pg_pcache.h"

/* What init finds out before it starts, and what it has made. */
typedef struct Init
{
	const PCacheOptions *options;
	ControlFileData *control;
	Configuration conf;
	char		directory[MAXPGPATH];	/* of the pool, links resolved */
	PCacheDir	existing;		/* the part of it that exists, open */
	PCachePool	old_pool;		/* open and locked, if there is one */
	bool		replaced;		/* there was one */
	bool		old_must_go;	/* before, as there is no room for both */
	uint64		capacity;
	PCacheGeometry geometry;
	PCacheFsKind fs_kind;
	PCachePool	pool;			/* the new one; not in a dry run */
	uint8		pool_uuid[PCACHE_UUID_LEN];
} Init;

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
 * Find out how much of a directory is there already, on what kind of file system, and its path
 * without links, which has MAXPGPATH bytes.
 */
static void
ResolveDirectory(const char *directory, PCacheDir *existing, PCacheFsKind *fs_kind, char *resolved)
{
	char		path[MAXPGPATH];
	PCacheError err;

	if (!PCacheOpenExistingPart(directory, existing, fs_kind, &err))
		FailWith(&err);
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
	PCacheFsKind fs_kind;

	ResolveDirectory(configured, &existing, &fs_kind, resolved);
	PCacheDirClose(&existing);
	if (strcmp(directory, resolved) == 0)
		return;
	Refuse(psprintf(_("Leave out %s, or change the setting."), "--directory"),
		   _("\"%s\" is \"%s\", so the server would not use a pool in \"%s\""),
		   PCacheSetting("directory"), configured, directory);
}

/* Decide where the pool will be. */
static void
ChooseDirectory(Init *init)
{
	const PCacheOptions *options = init->options;
	char		directory[MAXPGPATH];
	const char *configured = init->conf.directory;

	FindDirectory(options, configured, directory);
	ResolveDirectory(directory, &init->existing, &init->fs_kind, init->directory);
	if (strlen(init->directory) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", init->directory);
	if (strchr(init->directory, '\n') != NULL ||
		strchr(init->directory, '\r') != NULL)
		pg_fatal("directory name \"%s\" contains a newline or carriage return character",
				 init->directory);

	if (options->directory != NULL && configured != NULL)
		RefuseOtherDirectory(configured, init->directory);
	if (PCacheIsInside(init->directory, options->pgdata))
		Refuse(_("Choose a directory outside."),
			   _("directory \"%s\" is inside the data directory"), init->directory);
}

static void
RefuseOldPool(const Init *init)
{
	PCacheSuperblocks superblocks;
	const char *foreign;

	PCacheReadSuperblocks(init->old_pool.fd, &superblocks);
	foreign = WhyForeign(&superblocks, init->control);
	pg_log_error("persistent cache pool \"%s\" already exists",
				 init->old_pool.path);
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
CheckOldPool(Init *init)
{
	PCacheError err;

	if (!OpenPoolOrFail(init->directory, init->options->dry_run ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE,
						&init->old_pool, &err))
		return;
	if (!init->options->force)
		RefuseOldPool(init);
	if (!PCachePoolMayFormat(&init->old_pool, &err))
		FailWith(&err);
	init->replaced = true;
}

/* The new pool, for who reports how much of it is allocated. */
static const PCachePool *allocated_pool;
static uint64 allocated_total;

/* For PCachePoolInterrupted: reports progress, and never interrupts. */
static bool
ReportAllocated(void)
{
	struct stat st;

	if (fstat(allocated_pool->fd, &st) == 0)
		ReportProgress((uint64) st.st_blocks * 512, allocated_total, false);
	return false;
}

/* Do it. */
static void
CarryOut(Init *init)
{
	PCacheSuperblock sb;
	PCacheError err;
	bool		created;

	if (!PCacheDirMakeMissing(&init->existing, &err))
		FailWith(&err);
	if (init->old_must_go)
		ShedPool(&init->old_pool);
	if (init->options->progress)
	{
		allocated_pool = &init->pool;
		allocated_total = init->geometry.pool_size;
		PCachePoolInterrupted = ReportAllocated;
	}
	PCachePoolFileMade = WatchPoolFile;
	created = PCachePoolCreate(init->directory, init->old_pool.fd >= 0, init->capacity,
							   init->control->system_identifier,
							   init->control->catalog_version_no,
							   &init->pool, &sb, &err);
	PCachePoolInterrupted = NULL;
	/* it is complete, or was removed again */
	NoteUnfinished(false);
	if (!created)
		FailWith(&err);
	if (init->options->progress)
		ReportProgress(allocated_total, allocated_total, true);
	Step("init-created");
	init->geometry.pool_size = init->pool.file_size;
	init->fs_kind = init->pool.fs_kind;
	memcpy(init->pool_uuid, sb.pool_uuid, PCACHE_UUID_LEN);
	PCachePoolClose(&init->pool);
	PCachePoolClose(&init->old_pool);
}

static void
PrintResult(const Init *init)
{
	bool		dry_run = init->options->dry_run;
	uint64		data_size = init->geometry.capacity * BLCKSZ;
	const char *libraries = init->conf.libraries != NULL ? init->conf.libraries : "";

	if (dry_run)
		Text(_("Dry run: nothing was changed.  This would be %s:\n\n"),
			 init->replaced ? _("replaced") : _("created"));
	PrintField(NULL, "dry_run", AsBoolean(dry_run));
	PrintField(NULL, "replaced", AsBoolean(init->replaced));
	PrintField("pool", "pool", AsString(psprintf("%s/%s", init->directory, PCACHE_POOL_FILE)));
	PrintField("file system", "file_system", AsString(PCacheFsKindName(init->fs_kind)));
	PrintField("capacity", "capacity", AsBlocks(init->geometry.capacity));
	PrintField("cached data", "cached_data", AsBytes(data_size));
	PrintField("file size", "file_size", AsBytes(init->geometry.pool_size));
	PrintField("system identifier", "system_identifier", AsIdentifier(init->control->system_identifier));
	PrintField("pool uuid", "pool_uuid", AsString(dry_run ? NULL : FormatUuid(init->pool_uuid)));
	if (init->fs_kind == PCACHE_FS_TMPFS && !dry_run)
		PrintField("huge pages", "huge_pages", AsBoolean(init->pool.huge_pages));
	libraries = init->conf.preloaded ? NULL :
		psprintf("%s%s%s", libraries, libraries[0] != '\0' ? ", " : "", LIBRARY_NAME);

	Text(_("\nTo use it, put this into postgresql.conf:\n\n"));
	if (libraries != NULL)
		Text("    shared_preload_libraries = '%s'\n", escape_single_quotes_ascii(libraries));
	Text("    pcache.mode = planned_restart\n");
	Text("    pcache.directory = '%s'\n",
		 escape_single_quotes_ascii(init->directory));
	Text("    shared_buffers = %s\n", FormatSetting(data_size));
	OpenObject("settings");
	if (libraries != NULL)
		PrintField(NULL, "shared_preload_libraries", AsString(libraries));
	PrintField(NULL, "pcache.mode", AsString("planned_restart"));
	PrintField(NULL, "pcache.directory", AsString(init->directory));
	PrintField(NULL, "shared_buffers", AsString(FormatSetting(data_size)));
	CloseObject();
}

int
DoInit(const PCacheOptions *options)
{
	Init		init = {.options = options};

	init.control = ReadControlFile(options);
	RefuseRunningServer(options->pgdata);
	ReadConfiguration(options, &init.conf);
	ChooseDirectory(&init);
	CheckOldPool(&init);
	init.capacity = ChooseCapacity(options, &init.conf);
	init.old_must_go = OldPoolMustGo(&init.existing, init.fs_kind, init.capacity, &init.old_pool,
									 &init.geometry);
	if (!options->dry_run)
		CarryOut(&init);
	if (init.fs_kind == PCACHE_FS_FILE)
	{
		pg_log_warning("directory \"%s\" is on an ordinary file system", init.directory);
		pg_log_warning_detail("The kernel will write changed pages back to the pool while the server runs, in addition to the data files.");
		pg_log_warning_hint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs.");
	}

	BeginOutput(options);
	PrintResult(&init);
	EndOutput();
	return 0;
}
