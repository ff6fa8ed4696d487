/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  Ask the gates about a pool: what the server will find, and decide.
 *
 * Serves verify, which tells, and rebuild, which mends.  The gates are those
 * of the server (pcache_gate.c); what is here gathers the facts for them, as
 * pcache_startup.c does in the server.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/judge.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/archive.h"
#include "common/hashfn.h"
#include "common/logging.h"
#include "pg_pcache.h"
#include "storage/pcache_resize.h"
#include "storage/pcache_shrink.h"

#define DESCRIPTORS_PER_READ	16384	/* 1 MB of them */

/* A superblock that a server is just writing looks damaged, but not long. */
#define READ_ATTEMPTS		5
#define READ_RETRY_USEC		20000L

/* So that nobody can forge a pool whose pages have the same hash values. */
static uint64 hash_seed;

/* A page that passed its gate; to find duplicates. */
typedef struct KeptPage
{
	PCachePageKey key;
	uint32		slot;
	bool		duplicated;
	char		status;			/* for simplehash */
} KeptPage;

#define SH_PREFIX		kept
#define SH_ELEMENT_TYPE	KeptPage
#define SH_KEY_TYPE		PCachePageKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k) \
	((uint32) hash_bytes_extended((const unsigned char *) &(k), sizeof(PCachePageKey), hash_seed))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(PCachePageKey)) == 0)
#define SH_SCOPE		static inline
#define SH_RAW_ALLOCATOR	pg_malloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct PageSet
{
	kept_hash  *pages;
};

/* What the cluster will use the pool with, as far as that is known. */
void
ReadConfiguration(const PCacheOptions *options, Configuration *conf)
{
	char	   *on_media_unknown;
	char	   *required;
	char	   *huge_pages;
	int64		pool_size;

	conf->mode = ReadSetting(options, "persistent_cache_mode");
	conf->nbuffers = -1;
	conf->directory = NULL;
	conf->pool_size = 0;
	conf->cold_on_media_unknown = false;
	conf->required = false;
	conf->huge_pages = true;
	/* who does not know the one, does not know the others */
	if (conf->mode != NULL)
	{
		conf->directory = ReadSetting(options, "persistent_cache_directory");
		conf->nbuffers = ReadSizeSetting(options, "shared_buffers");
		pool_size = ReadSizeSetting(options, "persistent_cache_size");
		conf->pool_size = Max(pool_size, 0);

		on_media_unknown = ReadSetting(options, "persistent_cache_on_media_unknown");
		conf->cold_on_media_unknown = on_media_unknown != NULL &&
			strcmp(on_media_unknown, "cold") == 0;
		free(on_media_unknown);
		required = ReadSetting(options, "persistent_cache_required");
		conf->required = required != NULL && strcmp(required, "on") == 0;
		free(required);
		huge_pages = ReadSetting(options, "huge_pages");
		conf->huge_pages = huge_pages == NULL || strcmp(huge_pages, "off") != 0;
		free(huge_pages);
	}
}

/* Is it known that the next start does without the pool? */
bool
ModeIsOff(const Configuration *conf)
{
	return conf->mode != NULL && strcmp(conf->mode, "off") == 0;
}

/* The configuration, as the questions about the next start want it. */
PCacheNextConfig
NextConfig(const Configuration *conf)
{
	PCacheNextConfig config = {
		.mode = conf->mode != NULL && strcmp(conf->mode, "always") == 0 ?
		PERSISTENT_CACHE_ALWAYS : PERSISTENT_CACHE_PLANNED_RESTART,
		.directory = conf->directory,
		.size = conf->pool_size,
		.nbuffers = Max(conf->nbuffers, 0),
		.cold_on_media_unknown = conf->cold_on_media_unknown,
		.required = conf->required,
		.huge_pages = conf->huge_pages,
	};

	return config;
}

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

/* Does a standby have a recovery target?  Unknown counts as yes. */
static bool
HasRecoveryTarget(const PCacheOptions *options)
{
	for (int i = 0; i < PCACHE_N_RECOVERY_TARGETS; i++)
	{
		char	   *value = ReadSetting(options, PCacheRecoveryTargets[i]);
		bool		is_set = (value == NULL || value[0] != '\0');

		free(value);
		if (is_set)
			return true;
	}
	return false;
}

/*
 * Where the server will look for the pool; directory has MAXPGPATH bytes.
 */
void
FindPoolDirectory(const PCacheOptions *options, const Configuration *conf,
				  const PCacheRecord *record, char *directory)
{
	if (options->directory == NULL)
		PCacheFindDirectory(options->pgdata, conf->directory, record, directory);
	else if (strlcpy(directory, options->directory, MAXPGPATH) >= MAXPGPATH - PCACHE_PATH_RESERVE)
		pg_fatal("directory name \"%s\" is too long", options->directory);
	canonicalize_path(directory);
	if (!is_absolute_path(directory))
		pg_fatal("persistent cache directory location must be an absolute path");
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

/*
 * Run a command.  What it prints goes to stderr, since stdout is for what we
 * say, which may be JSON; and it reads nothing that is meant for us.
 */
static int
RunQuietly(const char *command)
{
	int			in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	int			out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	int			null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int			rc;

	fflush(NULL);
	if (out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
		dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		pg_fatal("could not redirect input and output of \"%s\": %m", "restore_command");
	rc = system(command);
	if (dup2(out, STDOUT_FILENO) < 0)
		pg_fatal("could not redirect input and output of \"%s\": %m", "restore_command");
	/* it may have been closed */
	if (in >= 0)
		(void) dup2(in, STDIN_FILENO);
	else
		close(STDIN_FILENO);
	close(in);
	close(out);
	close(null);
	return rc;
}

/*
 * Where the archive may put a file.  restore_command gets the name as it is, in
 * a shell.
 */
static const char *
TemporaryParent(void)
{
	const char *tmpdir = getenv("TMPDIR");
	static const char harmless[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";

	if (tmpdir != NULL && tmpdir[0] == '/' &&
		tmpdir[strspn(tmpdir, harmless)] == '\0')
		return tmpdir;
	return "/tmp";
}

/*
 * Can the archive restore this file?
 *
 * A command that is not there, or dies of a signal, is no answer: the server
 * would not start then.  verify says so; rebuild has other things to do.
 */
static bool
ArchiveHas(const PCacheOptions *options, const ControlFileData *control,
		   const char *restore_command, const char *name)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	char		restart_file[MAXFNAMELEN];
	char	   *command;
	int			rc;
	bool		restored;

	snprintf(directory, sizeof(directory), "%s/pg_pcache.XXXXXX", TemporaryParent());
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	/* for %r: the archive must keep all that it has */
	XLogFileName(restart_file, 0, 0, control->xlog_seg_size);
	/* exits if restore_command makes no sense, as the server's start does */
	command = BuildRestoreCommand(restore_command, path, name, restart_file);
	pg_free(command);

	if (mkdtemp(directory) == NULL)
		pg_fatal("could not create directory \"%s\": %m", directory);
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	command = BuildRestoreCommand(restore_command, path, name, restart_file);
	rc = RunQuietly(command);
	pg_free(command);
	restored = rc == 0 && access(path, F_OK) == 0;
	(void) unlink(path);
	if (rmdir(directory) < 0)
		pg_log_warning("could not remove directory \"%s\": %m", directory);

	if (wait_result_is_any_signal(rc, true))
	{
		/*
		 * The server would not start, which is what two verbs are asked.  And
		 * who interrupts the command means us as well.
		 */
		if ((options->verb & (VERB_CHECK | VERB_VERIFY)) != 0 || wait_result_is_signal(rc, SIGINT) ||
			wait_result_is_signal(rc, SIGQUIT) || wait_result_is_signal(rc, SIGTERM))
			pg_fatal("\"%s\" failed: %s", "restore_command", wait_result_to_str(rc));
		pg_log_warning("\"%s\" failed: %s", "restore_command", wait_result_to_str(rc));
	}
	return restored;
}

/* Is there a history of this timeline?  As existsTimeLineHistory() looks. */
static bool
TimelineHasHistory(const PCacheOptions *options, const ControlFileData *control,
				   const char *restore_command, uint32 timeline)
{
	char		name[MAXFNAMELEN];
	char		path[MAXPGPATH];

	TLHistoryFileName(name, timeline);
	snprintf(path, sizeof(path), XLOGDIR "/%s", name);
	return FileExists(options->pgdata, path) ||
		(restore_command != NULL && restore_command[0] != '\0' &&
		 ArchiveHas(options, control, restore_command, name));
}

/* Which timeline recovery will follow, as InitWalRecovery() finds out. */
static uint32
RecoveryTimeline(const PCacheOptions *options, const ControlFileData *control,
				 bool archive_recovery)
{
	uint32		timeline = Max(control->checkPointCopy.ThisTimeLineID,
							   control->minRecoveryPointTLI);
	char	   *goal;
	char	   *restore_command;

	if (!archive_recovery)
		return timeline;
	goal = ReadSetting(options, "recovery_target_timeline");
	if (goal == NULL || strcmp(goal, "latest") == 0)
	{
		/* as findNewestTimeLine(); it is what happens by default, too */
		restore_command = ReadSetting(options, "restore_command");
		while (TimelineHasHistory(options, control, restore_command, timeline + 1))
			timeline++;
		free(restore_command);
	}
	else if (strcmp(goal, "current") != 0)
		timeline = strtoul(goal, NULL, 0);
	free(goal);
	return timeline;
}

/*
 * Gather what the pool gates look at beside the pool: what the cluster tells.
 * record is NULL if PGDATA has none.  Makes PGDATA the working directory, where
 * the gates look for files and restore_command is run.  That is done only if
 * crashed is true: the gates ask for the timeline of the next recovery if the
 * pool was in use when its server crashed, and no archive is to keep others
 * waiting.
 */
void
GatherClusterFacts(const PCacheOptions *options, const ControlFileData *control,
				   const Configuration *conf, const PCacheRecord *record,
				   bool crashed, Judge *judge)
{
	PCacheGateFacts *facts = &judge->facts;
	PCacheSignals signals;

	if (chdir(options->pgdata) < 0)
		pg_fatal("could not change directory to \"%s\": %m", options->pgdata);
	memset(judge, 0, sizeof(*judge));
	facts->control = control;
	facts->record = record;
	facts->cold_on_media_unknown = conf->cold_on_media_unknown;

	PCacheReadSignals(options->pgdata, &signals);
	PCacheSetRecovery(facts, &signals,
					  signals.standby && HasRecoveryTarget(options),
					  RecoveryTimeline(options, control,
									   crashed && (signals.standby || signals.recovery)));
	judge->drop_unlogged = control->state != DB_SHUTDOWNED ||
		signals.backup_label || signals.recovery || signals.standby;
}

/*
 * The same, with what the media and the pool itself tell.  The facts point into
 * judge, which must stay where it is.
 */
void
GatherFacts(const PCacheOptions *options, const ControlFileData *control,
			const Configuration *conf, const PCacheRecord *record,
			const PCachePool *pool, bool crashed, Judge *judge)
{
	GatherClusterFacts(options, control, conf, record, crashed, judge);
	QueryMedia(pool, &judge->media);
	PCacheGatherFacts(pool, &judge->media, &judge->facts);
}

void
FreeFacts(Judge *judge)
{
	PCacheMediaReportFree(&judge->media);
}

/*
 * The server won't start on a pool that has no room for shared_buffers, unless
 * it can make it larger: tell so, as an error or a warning.  Without media it
 * matters only that there is no room now.
 */
bool
PoolIsTooSmall(const PCachePool *pool, uint64 capacity,
			   const Configuration *conf, const PCacheMediaReport *media,
			   enum pg_log_level level, const char *hint)
{
	PCacheError err = {{0}};
	uint64		larger;

	/* not known, or enough */
	if (conf->nbuffers < 0 || capacity >= (uint64) conf->nbuffers)
		return false;
	if (media != NULL &&
		PCachePoolMayGrow(pool, conf->nbuffers, conf->pool_size, media, &larger, &err))
		return false;
	pg_log_generic(level, PG_LOG_PRIMARY,
				   "persistent cache pool \"%s\" is too small for \"shared_buffers\": it has room for %llu blocks, %lld are needed",
				   pool->path, (unsigned long long) capacity,
				   (long long) conf->nbuffers);
	if (media != NULL)
		pg_log_generic(level, PG_LOG_DETAIL, "%s", err.message);
	pg_log_generic(level, PG_LOG_HINT, "%s", hint);
	return true;
}

/* The same as an error, which ends the program, whatever the server can do. */
void
RefuseSmallPool(const PCachePool *pool, uint64 capacity,
				const Configuration *conf)
{
	if (PoolIsTooSmall(pool, capacity, conf, NULL, PG_LOG_ERROR,
					   _("Decrease \"shared_buffers\", or make the pool larger with \"pg_pcache rebuild --resize\".")))
		exit(EXIT_ERROR);
}

/* Remember what the page gates say. */
static void
NoteVerdict(uint64 slot, PCachePageVerdict verdict, void *arg)
{
	PageScan   *scan = arg;

	scan->verdicts[slot] = verdict;
}

/*
 * What the page gates, and then the choice, say of a slot.  If there was a
 * choice, the gates have been asked for it.
 */
static PCachePageVerdict
JudgeSlot(const PCachePageFacts *facts, const PCacheShrink *shrink,
		  const PageScan *scan, uint64 slot, const PCacheDescriptor *desc)
{
	/* beyond the slots that matter, only what is sealed does */
	if (slot >= scan->slots)
		return PCacheSeqIsSealed(desc->seq) ? PCACHE_PAGE_NOT_FITTING : PCACHE_PAGE_FREE;

	if (shrink == NULL)
		return PCachePageGate(desc, slot, facts);
	if (PCacheShrinkIsTwin(shrink, slot))
		return PCACHE_PAGE_DUPLICATE;
	if (scan->verdicts[slot] == PCACHE_PAGE_KEPT && !PCacheShrinkKeeps(shrink, slot))
		return PCACHE_PAGE_NOT_FITTING;
	return scan->verdicts[slot];
}

/*
 * Free slots are counted only if they stay, and those that a page will be moved
 * to are free no longer.
 */
static void
CountFilledSlots(PCacheShrink *shrink, PageScan *scan)
{
	uint32		from;
	uint32		to;

	while (PCacheShrinkNextMove(shrink, &from, &to))
		scan->counts[PCACHE_PAGE_FREE] -= (scan->verdicts[to] == PCACHE_PAGE_FREE);
}

/* Find the holes of a pool's file, which the next start fills. */
static void
FindHoles(const PCachePool *pool, PCacheRangeList *holes)
{
	uint64		start;
	uint64		end = 0;

	if (!PCachePoolHasHoles(pool))
		return;
	while (PCachePoolNextHole(pool, end, &start, &end))
		PCacheRangeAdd(holes, start, end - start);
	PCacheRangeMerge(holes);
}

/*
 * Ask the page gates for each slot that the pool's last user had; the next
 * one, with nbuffers, may have fewer (-1: that is not known).  If so, pages are
 * moved, as a start does, and there is a verdict for each slot; or else pages
 * beyond nbuffers do not fit.  progress tells whether to report that.
 *
 * The pool's superblock must have passed the geometry gate.  If it did not
 * pass all pool gates the answers tell what is wrong with descriptors, not
 * what will be kept.
 */
void
ScanPages(bool progress, const PCachePool *pool,
		  const PCacheSuperblock *sb, const ControlFileData *control,
		  int64 nbuffers, bool move, const Judge *judge, PageScan *scan)
{
	PCachePageFacts facts = {0};
	PCacheShrink *shrink = NULL;
	uint64		slots_used = sb->slots_used;
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor,
											  DESCRIPTORS_PER_READ);
	kept_hash  *pages;
	bool		found;

	if (hash_seed == 0 && !pg_strong_random(&hash_seed, sizeof(hash_seed)))
		pg_fatal("could not generate a random number");
	pages = kept_create(1024, NULL);

	facts.lsn_limit = PCacheLsnLimit(sb, &judge->facts);
	PCacheSetCompleted(&facts, sb, control);
	PCacheSetCopied(&facts, &judge->facts);
	facts.drop_unlogged = judge->drop_unlogged;
	facts.host_restarted = PCacheHostRestarted(sb, &judge->facts);
	facts.sizes = PCacheRelSizesCreate();
	facts.media = &judge->media;
	facts.blocks_offset = sb->blocks_offset;
	facts.file_size = pool->file_size;
	FindHoles(pool, &facts.holes);

	memset(scan, 0, sizeof(*scan));
	scan->staying = (nbuffers < 0) ? slots_used : Min(slots_used, nbuffers);
	scan->slots = move ? slots_used : scan->staying;
	scan->verdicts = pg_malloc0(Max(scan->slots, 1));
	if (scan->staying < scan->slots)
	{
		shrink = PCacheShrinkCreate(slots_used, scan->staying);
		shrink->seen = NoteVerdict;
		shrink->arg = scan;
		PCacheShrinkDecide(shrink, pool->fd, &facts);
	}
	scan->completed_epoch = facts.completed_epoch;
	scan->redo = facts.redo;
	scan->kept = pg_malloc_object(struct PageSet);
	scan->kept->pages = pages;
	for (uint64 start = 0; start < slots_used; start += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, slots_used - start);

		/* descriptors that can't be read come back damaged */
		(void) PCacheReadDescriptors(pool->fd, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
		{
			const PCacheDescriptor *desc = &chunk[i];
			uint64		slot = start + i;
			PCachePageVerdict verdict;
			KeptPage   *page;

			if (PCacheSeqIsSealed(desc->seq))
				scan->sealed++;
			verdict = JudgeSlot(&facts, shrink, scan, slot, desc);
			if (slot < scan->slots)
				scan->verdicts[slot] = verdict;
			if (slot < scan->staying || verdict != PCACHE_PAGE_FREE)
				scan->counts[verdict]++;
			if (verdict != PCACHE_PAGE_KEPT)
				continue;

			/* of pages with the same tag none is kept */
			page = kept_insert(pages, PCacheDescriptorKey(desc), &found);
			if (!found)
			{
				page->slot = slot;
				page->duplicated = false;
				continue;
			}
			scan->verdicts[slot] = PCACHE_PAGE_DUPLICATE;
			scan->counts[PCACHE_PAGE_KEPT]--;
			scan->counts[PCACHE_PAGE_DUPLICATE]++;
			if (!page->duplicated)
			{
				page->duplicated = true;
				scan->verdicts[page->slot] = PCACHE_PAGE_DUPLICATE;
				scan->counts[PCACHE_PAGE_KEPT]--;
				scan->counts[PCACHE_PAGE_DUPLICATE]++;
			}
		}
		if (progress)
			ReportProgress((start + n) * BLCKSZ, slots_used * BLCKSZ, false);
	}
	if (progress)
		ReportProgress(slots_used * BLCKSZ, slots_used * BLCKSZ, true);

	/*
	 * A damaged descriptor may look free.  After a clean stop the superblock
	 * knows better; what it says in a pool in use is of an earlier one.
	 */
	scan->saved = scan->sealed;
	if (sb->state == PCACHE_STATE_CLEAN)
		scan->saved = Max(scan->saved, sb->saved_pages);
	if (shrink != NULL)
	{
		CountFilledSlots(shrink, scan);
		PCacheShrinkFree(shrink);
	}
	PCacheRelSizesFree(facts.sizes);
	free(facts.holes.ranges);
	pg_free(chunk);
}

/*
 * Is the next start cold, since no page can be kept?  If so, detail says why,
 * and the result is the reason's name in JSON; otherwise it is NULL.
 */
const char *
ColdForWantOfPages(const PCacheSuperblock *sb, const PageScan *scan,
				   char *detail, size_t size)
{
	PCacheVerdict empty =
		PCacheEmptyGate(sb->state == PCACHE_STATE_CLEAN, scan->saved);

	if (empty.refusal != PCACHE_WARM)
	{
		strlcpy(detail, empty.detail, size);
		return PCacheRefusalName(empty.refusal);
	}
	if (scan->counts[PCACHE_PAGE_KEPT] > 0)
		return NULL;
	snprintf(detail, size, _("none of the %llu saved pages can be kept"),
			 (unsigned long long) scan->saved);
	return "pages";
}

/* Does one of the slots hold this page, to be kept? */
bool
ScanHasPage(const PageScan *scan, PCachePageKey key)
{
	KeptPage   *page = kept_lookup(scan->kept->pages, key);

	return page != NULL && !page->duplicated;
}

void
FreeScan(PageScan *scan)
{
	kept_destroy(scan->kept->pages);
	pg_free(scan->kept);
	pg_free(scan->verdicts);
}
