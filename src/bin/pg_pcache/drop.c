/*-------------------------------------------------------------------------
 *
 * drop.c
 *	  pg_pcache drop: take the pool away again.
 *
 * All is looked at before anything is changed, and the pool and what an interrupted creation
 * has left are locked from there on.  Then the latter is removed, and the pool, each durably.
 * The directory stays: nobody has noted who made it.
 *
 * Rule "only this data directory's pool is dropped" says whose pool is removed.
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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pg_pcache.h"
#include "storage/pcache_image.h"

/* What there is to remove. */
typedef struct Drop
{
	const PCacheOptions *options;
	char		directory[MAXPGPATH];	/* of the pool */
	PCacheDir	dir;			/* the same, open if it exists */
	PCachePool	pool;			/* open and locked, if there is one */
	char	   *leftover;		/* of an interrupted creation, which is locked */
	uint64		freed;			/* bytes */
} Drop;

/* Where is the pool? */
static void
ChooseDirectory(Drop *drop)
{
	const PCacheOptions *options = drop->options;
	const char *directory = options->directory != NULL ? options->directory : ReadPoolDirectory(options);
	PCacheError err;

	if (directory == NULL)
		Refuse(psprintf(_("Give the directory of the pool with %s."), "--directory"),
			   _("\"%s\" is not set"), PCacheSetting("directory"));
	TakeDirectory(directory, drop->directory);
	switch (PCacheDirOpen(drop->directory, true, &drop->dir, &err))
	{
		case PCACHE_DIR_OK:
			strlcpy(drop->directory, drop->dir.path, sizeof(drop->directory));
			break;
		case PCACHE_DIR_FAILED:
			if (errno != ENOENT)
				pg_fatal("could not access directory \"%s\": %m", drop->directory);
			break;
		case PCACHE_DIR_UNTRUSTED:
			if (!options->force)
				FailWith(&err);
			pg_log_warning("%s", err.message);
			pg_log_warning_detail("Nothing is removed there.");
			return;
	}
	if (PCacheIsInside(drop->directory, options->pgdata))
	{
		if (!options->force)
			pg_fatal("directory \"%s\" is inside the data directory", drop->directory);
		PCacheDirClose(&drop->dir);
	}
}

/* Open the pool, and refuse one that is not ours. */
static void
CheckPool(Drop *drop, const ControlFileData *control)
{
	PCachePool *pool = &drop->pool;
	PCacheError err;
	PCacheSuperblocks superblocks;
	const char *why;
	struct stat st;

	if (!OpenPoolOrFail(drop->directory, drop->options->dry_run ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE,
						pool, &err))
		return;
	if (fstat(pool->fd, &st) < 0)
		pg_fatal("could not stat file \"%s\": %m", pool->path);
	if (!PCacheDirHas(&drop->dir, PCACHE_POOL_FILE, &st))
		pg_fatal("persistent cache pool \"%s\" was replaced while it was opened", pool->path);
	/* hugetlbfs also counts blocks of 512 bytes */
	drop->freed += (uint64) st.st_blocks * 512;

	PCacheReadSuperblocks(pool->fd, &superblocks);
	why = WhyForeign(&superblocks, control);
	if (why == NULL || drop->options->force)
		return;
	if (!PCachePoolMayFormat(pool, &err))
		pg_log_error("file \"%s\" is not a persistent cache pool", pool->path);
	else
	{
		pg_log_error("persistent cache pool \"%s\" is not known to be that of this data directory", pool->path);
		pg_log_error_detail("%s", why);
	}
	pg_log_error_hint("Use %s to remove it all the same, if nobody else needs it.", "--force");
	exit(EXIT_ERROR);
}

/*
 * Find what an interrupted creation has left in the directory.  It is ours if the pool is.  It
 * stays open, and locked, until we end.
 */
static void
CheckLeftover(Drop *drop)
{
	char	   *path = psprintf("%s/%s", drop->directory, PCACHE_POOL_FILE_TMP);
	PCacheError err;
	struct stat st;
	int			fd = PCacheDirOpenFile(&drop->dir, PCACHE_POOL_FILE_TMP,
									   drop->options->dry_run ? O_RDONLY : O_RDWR, path, &st, &err);

	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || !PCacheFileHasOneName(fd, path, &err))
		FailWith(&err);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		Refuse(_("Is another pg_pcache creating a pool there?"),
			   _("could not lock file \"%s\": %m"), path);
	if (drop->pool.fd < 0 && !drop->options->force)
	{
		pg_log_warning("file \"%s\" is left behind", path);
		pg_log_warning_hint("Use %s to remove it, if nobody else needs it.", "--force");
		return;
	}
	drop->leftover = path;
	drop->freed += (uint64) st.st_blocks * 512;
}

static void
Remove(const Drop *drop, const char *name)
{
	if (unlinkat(drop->dir.fd, name, 0) < 0)
		pg_fatal("could not remove file \"%s/%s\": %m", drop->dir.path, name);
	if (!PCacheDirSync(&drop->dir))
		pg_fatal("could not fsync directory \"%s\": %m", drop->dir.path);
}

/* Do it. */
static void
CarryOut(const Drop *drop)
{
	if (drop->leftover != NULL)
		Remove(drop, PCACHE_POOL_FILE_TMP);
	Step("drop-leftovers");
	if (drop->pool.fd >= 0)
		Remove(drop, PCACHE_POOL_FILE);
	Step("drop-pool");

	/* one that was started since found no lock to wait for on the way */
	RefuseRunningServer(drop->options->pgdata);
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

static void
PrintResult(const Drop *drop, bool nothing)
{
	const char *pool = drop->pool.fd >= 0 ? drop->pool.path : NULL;

	if (nothing)
		Text(_("There is nothing to drop: there is no pool in directory \"%s\".\n"), drop->directory);
	else if (drop->options->dry_run)
		Text(_("Dry run: nothing was changed.  This would be removed:\n\n"));
	else
		Text(_("This was removed:\n\n"));

	PrintField(NULL, "dry_run", AsBoolean(drop->options->dry_run));
	PrintField(NULL, "nothing_to_drop", AsBoolean(nothing));
	PrintField(nothing ? NULL : "pool", "pool", Shown(AsString(pool), pool != NULL ? pool : _("none")));
	PrintField("leftover", "leftover", AsString(drop->leftover));
	PrintField(nothing ? NULL : "freed", "freed", AsBytes(drop->freed));
}

int
DoDrop(const PCacheOptions *options)
{
	Drop		drop = {.options = options,.dir.fd = -1,.pool.fd = -1};
	ControlFileData *control = ReadControlFile(options);
	bool		nothing;

	RefuseRunningServer(options->pgdata);
	ChooseDirectory(&drop);
	if (drop.dir.fd >= 0)
	{
		CheckPool(&drop, control);
		CheckLeftover(&drop);
	}
	nothing = drop.pool.fd < 0 && drop.leftover == NULL;
	if (!nothing && !options->dry_run)
		CarryOut(&drop);
	if (!nothing)
		WarnOfMode(options);
	if (!options->dry_run)
		WarnOfImage(options);

	BeginOutput(options);
	PrintResult(&drop, nothing);
	EndOutput();
	return 0;
}
