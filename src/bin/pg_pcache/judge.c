/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  Ask the gates about a pool: what the server will find, and decide.
 *
 * Serves verify and check, which tell, rebuild, which mends, and save and load.
 * The gates are those of the server (pcache_gate.c); what is here gathers the
 * facts for them, as pcache_attach.c does in the server.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/judge.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "pg_pcache.h"
#include "storage/pcache_late_read.h"

/* A superblock that a server is just writing looks damaged, but not long. */
#define READ_ATTEMPTS		5
#define READ_RETRY_USEC		20000L

/* That a server is ready is noted by its worker, which looks every 100 ms. */
#define READY_ATTEMPTS		50

/* Read the superblocks of a pool that a server may be writing to. */
void
ReadLiveSuperblocks(const PCachePool *pool, PCacheSuperblocks *superblocks)
{
	PCacheReadSuperblocks(pool->fd, superblocks);
	for (int i = 1; i < READ_ATTEMPTS &&
		 !(superblocks->first_intact && superblocks->copy_intact); i++)
	{
		pg_usleep(READ_RETRY_USEC);
		PCacheReadSuperblocks(pool->fd, superblocks);
	}
}

#ifdef USE_INJECTION_POINTS
/*
 * For tests: PG_PCACHE_BAD_BLOCKS is a list of offset:length.  Such a range is
 * bad as long as there is anything but zeros in it, which is what there is
 * once it was cleared; with a "!" it cannot be cleared.
 */
static void
InjectBadBlocks(const PCachePool *pool, PCacheMediaReport *media)
{
	const char *list = getenv("PG_PCACHE_BAD_BLOCKS");

	if (list == NULL)
		return;
	if (media->bad.n_ranges == 0)
		media->blocks = PCACHE_MEDIA_CLEAN;
	while (*list != '\0')
	{
		char	   *end;
		uint64		offset = strtoull(list, &end, 10);
		uint64		length = strtoull(end + 1, &end, 10);
		bool		bad = (*end == '!');
		char	   *bytes = pg_malloc0(length);

		if (PCacheReadExact(pool->fd, bytes, length, offset))
		{
			for (uint64 i = 0; i < length && !bad; i++)
				bad = bytes[i] != 0;
		}
		pg_free(bytes);
		if (bad)
		{
			media->blocks = PCACHE_MEDIA_BAD;
			PCacheRangeAdd(&media->bad, offset, length);
		}
		end += (*end == '!');
		list = (*end == ',') ? end + 1 : end;
		if (end == list && *end != '\0')
			pg_fatal("could not parse PG_PCACHE_BAD_BLOCKS");
	}
	PCacheRangeMerge(&media->bad);
}
#endif

/* Find out, once more if need be, what is wrong with the pool's media. */
void
QueryMedia(const PCachePool *pool, PCacheMediaReport *media)
{
	PCacheMediaReportFree(media);
	PCacheMediaQuery(pool->path, pool->fd, pool->fs_kind, media);
#ifdef USE_INJECTION_POINTS
	InjectBadBlocks(pool, media);
#endif
}

/* Does a standby have a recovery target?  Unknown counts as yes. */
static bool
HasRecoveryTarget(const PCacheOptions *options)
{
	char	   *values[PCACHE_N_RECOVERY_TARGETS];
	bool		has_target = false;

	ReadSettings(options, lengthof(values), PCacheRecoveryTargets, values);
	for (int i = 0; i < lengthof(values); i++)
	{
		has_target |= (values[i] == NULL || values[i][0] != '\0');
		free(values[i]);
	}
	return has_target;
}

/*
 * Gather what the pool gates look at beside the pool: what the cluster tells.
 * Makes PGDATA the working directory, where the gates look for files.
 */
void
GatherClusterFacts(const Rebuild *r, Judge *judge)
{
	PCacheGateFacts *facts = &judge->facts;
	PCacheSignals signals;

	if (chdir(r->options->pgdata) < 0)
		pg_fatal("could not change directory to \"%s\": %m", r->options->pgdata);
	memset(judge, 0, sizeof(*judge));
	facts->control = r->control;
	facts->cold_on_media_unknown = r->conf.cold_on_media_unknown;

	PCacheReadSignals(r->options->pgdata, &signals);
	PCacheSetRecovery(facts, &signals,
					  signals.standby && HasRecoveryTarget(r->options));
	judge->drop_unlogged = r->control->state != DB_SHUTDOWNED ||
		signals.backup_label || signals.recovery || signals.standby;
}

/*
 * Ask the pool gates what the next start makes of the pool, whose superblocks
 * were read.  The facts point into r, which must stay where it is.
 */
void
JudgePool(Rebuild *r)
{
	PCacheMediaReportFree(&r->judge.media);
	GatherClusterFacts(r, &r->judge);
	QueryMedia(&r->pool, &r->judge.media);
	PCacheGatherFacts(&r->pool, &r->judge.media, &r->judge.facts);
	r->judge.verdict = PCacheSuperblocksGate(&r->superblocks, &r->judge.facts);
}

/*
 * Does the configuration let the server use a pool in that place?  No pool is used
 * if a read could go on after its server, see pcache_late_read.c.
 */
bool
SettingsAllowPool(const Rebuild *r, PCacheError *err)
{
	const Configuration *conf = &r->conf;

	if (conf->io_method != NULL && conf->debug_io_direct != NULL &&
		!PCacheReadsEndWithProcess(conf->io_method, conf->debug_io_direct, err))
		return false;
	return r->options->directory != NULL ||
		PCacheDirectoryIsAllowed(r->options->pgdata, r->directory, err);
}

/* What the server's next start makes of the open pool, which JudgePool() has judged. */
PCacheVerdict
ForetellStart(const Rebuild *r)
{
	PCacheNextConfig config = NextConfig(&r->conf);
	PCacheVerdict verdict = {PCACHE_REFUSED};

	if (SettingsAllowPool(r, &verdict.why))
		PCacheForetellPool(&r->pool, &r->superblocks, &r->judge.facts, &config, r->event, &verdict);
	PCacheForetellWithout(&config, &verdict);
	return verdict;
}

/* Is there a pool, with a superblock, of this cluster? */
bool
PoolIsOurs(const Rebuild *r)
{
	return r->superblocks.source != PCACHE_SB_NONE &&
		r->superblocks.chosen.system_identifier == r->control->system_identifier;
}

/* Where the server will look for the pool. */
static void
FindPoolDirectory(Rebuild *r)
{
	const char *given = r->options->directory;

	if (given == NULL)
		strlcpy(r->directory, r->conf.directory != NULL ? r->conf.directory : "", MAXPGPATH);
	else if (strlcpy(r->directory, given, MAXPGPATH) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", given);
	canonicalize_path(r->directory);
	/* verify and check tell how the server starts without one */
	if (given == NULL)
	{
		PCacheError err;

		RequireReadableConfiguration();
		if ((r->options->verb & VERBS_THAT_FORETELL) == 0 &&
			!PCacheDirectoryIsAllowed(r->options->pgdata, r->directory, &err))
			FailWith(&err);
	}
	else if (!is_absolute_path(r->directory))
		pg_fatal("persistent cache directory location must be an absolute path");
}

/* errno says why. */
pg_noreturn static void
CannotTellWhetherUsed(int pid, const PCachePool *pool)
{
	pg_log_error("could not find out whether the server with PID %d uses persistent cache pool \"%s\": %m",
				 pid, pool->path);
	if (errno == EACCES || errno == EPERM)
		pg_log_error_hint("Run pg_pcache as the user that runs the server, and outside of a sandbox.");
	exit(EXIT_ERROR);
}

/*
 * Does the server with this PID use the file of an open pool?  It holds that open
 * as long as it runs, whatever has become of the name.
 */
static bool
ServerUsesPool(int pid, const PCachePool *pool)
{
	char		path[MAXPGPATH];
	struct stat ours;
	DIR		   *files;
	struct dirent *entry;
	bool		found = false;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	files = opendir(path);
	if (files == NULL || fstat(pool->fd, &ours) < 0)
		CannotTellWhetherUsed(pid, pool);
	while (!found && (entry = readdir(files)) != NULL)
	{
		struct stat theirs;

		/*
		 * the server may close a file meanwhile, and then it is not the
		 * pool's
		 */
		if (fstatat(dirfd(files), entry->d_name, &theirs, 0) == 0)
			found = theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
		else if (errno == EACCES || errno == EPERM)
			CannotTellWhetherUsed(pid, pool);
	}
	closedir(files);
	return found;
}

/*
 * Open the pool, and read its superblocks.  For verbs that only look, what the
 * server that runs has locked is read as it is; any other pool that is locked
 * keeps the next start from it.
 */
static PCacheOpenResult
OpenPool(Rebuild *r)
{
	PCacheOpenMode mode = PCACHE_OPEN_READ;
	PCacheOpenResult opened;

	r->event = PCACHE_NEXT_NOTHING;
	if (r->server_pid != 0)
	{
		opened = PCachePoolOpen(r->directory, PCACHE_OPEN_PEEK, &r->pool, &r->open_error);
		if (opened == PCACHE_OPEN_ERROR)
			return opened;
		if (opened == PCACHE_OPEN_OK && ServerUsesPool(r->server_pid, &r->pool))
		{
			r->event = PCACHE_NEXT_RESTART;
			ReadLiveSuperblocks(&r->pool, &r->superblocks);
			/* or else a restart just after a start would look cold */
			for (int i = 1; i < READY_ATTEMPTS && r->superblocks.chosen.starts_from != 0; i++)
			{
				pg_usleep(READ_RETRY_USEC);
				ReadLiveSuperblocks(&r->pool, &r->superblocks);
			}
			return PCACHE_OPEN_OK;
		}
		r->event = PCACHE_NEXT_RESTART_APART;
		if (opened == PCACHE_OPEN_OK)
			PCachePoolClose(&r->pool);
		mode = PCACHE_OPEN_TRY;
	}
	else if ((r->options->verb & VERBS_THAT_FORETELL) == 0 && !r->options->dry_run)
		mode = PCACHE_OPEN_WRITE;
	opened = PCachePoolOpen(r->directory, mode, &r->pool, &r->open_error);
	if (opened == PCACHE_OPEN_OK)
		PCacheReadSuperblocks(r->pool.fd, &r->superblocks);
	return opened;
}

/*
 * Find the pool of the cluster, open it, read what it says of itself, and ask
 * the gates about it.  Gives up if a server runs, but for the verbs that are about one,
 * and if a pool that is to be changed or copied is locked or cannot be opened.  That it is not
 * there is for the caller to judge.
 */
void
OpenAndJudge(const PCacheOptions *options, Rebuild *r)
{
	bool		looks = (options->verb & VERBS_THAT_FORETELL) != 0;

	r->options = options;
	r->pool.fd = -1;
	r->opened = PCACHE_OPEN_MISSING;
	r->control = ReadControlFile(options);
	if ((options->verb & VERBS_OF_A_RUNNING_SERVER) != 0)
		r->server_pid = RunningServer(options->pgdata);
	else
		RefuseRunningServer(options->pgdata);
	/* a restart gives them again, and a start does not */
	if (r->server_pid != 0)
		AskWithServerArguments(options);
	ReadConfiguration(options, &r->conf);
	/* that is all there is to tell */
	if (looks && ModeIsOff(&r->conf))
		return;

	FindPoolDirectory(r);
	/* the caller says why there can be none */
	if (!is_absolute_path(r->directory))
		return;
	r->opened = OpenPool(r);
	if (!looks && (r->opened == PCACHE_OPEN_LOCKED || r->opened == PCACHE_OPEN_ERROR))
		FailWith(&r->open_error);
	if (r->opened != PCACHE_OPEN_OK)
		return;
	if (!looks)
	{
		strlcpy(r->directory, r->pool.directory, sizeof(r->directory));
		snprintf(r->pool.path, sizeof(r->pool.path), "%s/%s", r->directory, PCACHE_POOL_FILE);
	}
	JudgePool(r);
}
