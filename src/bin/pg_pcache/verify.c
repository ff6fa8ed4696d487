/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  pg_pcache verify: will the next start be warm?
 *
 * Asks the same gates as pcache_startup.c does, about the same facts, and
 * changes nothing.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/verify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "common/logging.h"
#include "pg_pcache.h"

#define DESCRIPTORS_PER_READ	16384	/* 1 MB of them */

/* A page that passed its gate; to find duplicates. */
typedef struct KeptKey
{
	uint32		spc_oid;
	uint32		db_oid;
	uint32		rel_number;
	int32		fork_number;
	uint32		block_number;
} KeptKey;

typedef struct KeptPage
{
	KeptKey		key;
	bool		duplicated;
	char		status;			/* for simplehash */
} KeptPage;

#define SH_PREFIX		kept
#define SH_ELEMENT_TYPE	KeptPage
#define SH_KEY_TYPE		KeptKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) &(k), sizeof(KeptKey))
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(KeptKey)) == 0)
#define SH_SCOPE		static inline
#define SH_RAW_ALLOCATOR	pg_malloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* The configuration of the next start; each may be unknown. */
typedef struct Configuration
{
	char	   *mode;			/* NULL if unknown */
	char	   *directory;		/* NULL if unknown */
	int64		nbuffers;		/* -1 if unknown */
	bool		cold_on_media_unknown;
} Configuration;

/* How the next start will recover, by the files that ask for it. */
typedef struct RecoveryFiles
{
	bool		backup_label;
	bool		recovery_signal;
	bool		standby_signal;
} RecoveryFiles;

static void Conclude(VerifyResult *result, NextStart next_start,
					 const char *reason, const char *fmt,...) pg_attribute_printf(4, 5);

static void
Conclude(VerifyResult *result, NextStart next_start, const char *reason,
		 const char *fmt,...)
{
	va_list		ap;

	result->next_start = next_start;
	result->reason = reason;
	va_start(ap, fmt);
	vsnprintf(result->detail, sizeof(result->detail), fmt, ap);
	va_end(ap);
}

static void
ConcludeCold(VerifyResult *result, PCacheRefusal refusal, const char *detail)
{
	Conclude(result, NEXT_START_COLD, PCacheRefusalName(refusal), "%s", detail);
}

static void
ReadConfiguration(const PCacheOptions *options, Configuration *conf)
{
	char	   *on_media_unknown;

	conf->mode = ReadSetting(options, "persistent_cache_mode");
	conf->nbuffers = -1;
	conf->directory = NULL;
	conf->cold_on_media_unknown = false;
	/* who does not know the one, does not know the others */
	if (conf->mode != NULL)
	{
		conf->directory = ReadSetting(options, "persistent_cache_directory");
		conf->nbuffers = ReadSharedBuffers(options);

		on_media_unknown = ReadSetting(options, "persistent_cache_on_media_unknown");
		conf->cold_on_media_unknown = on_media_unknown != NULL &&
			strcmp(on_media_unknown, "cold") == 0;
		free(on_media_unknown);
	}
}

/* Does a standby have a recovery target?  Unknown counts as yes. */
static bool
HasRecoveryTarget(const PCacheOptions *options)
{
	static const char *const names[] = {
		"recovery_target",
		"recovery_target_lsn",
		"recovery_target_name",
		"recovery_target_time",
		"recovery_target_xid",
	};

	for (int i = 0; i < lengthof(names); i++)
	{
		char	   *value = ReadSetting(options, names[i]);
		bool		is_set = (value == NULL || value[0] != '\0');

		free(value);
		if (is_set)
			return true;
	}
	return false;
}

static void
FindDirectory(const PCacheOptions *options, const Configuration *conf,
			  const PCacheStateFile *state, char *directory)
{
	const char *from = NULL;

	if (options->directory != NULL)
		from = options->directory;
	else if (conf->directory == NULL && state != NULL)
		from = state->directory;
	else if (conf->directory != NULL &&
			 strcmp(conf->directory, PCACHE_DEFAULT_DIRECTORY) != 0)
		from = conf->directory;

	if (from == NULL)
		snprintf(directory, MAXPGPATH, "%s/%s",
				 options->pgdata, PCACHE_DEFAULT_DIRECTORY);
	else if (strlcpy(directory, from, MAXPGPATH) >= MAXPGPATH - 64)
		pg_fatal("directory name \"%s\" is too long", from);
	canonicalize_path(directory);
	if (!is_absolute_path(directory))
		pg_fatal("persistent cache directory location must be an absolute path");
}

/* Does the server create a missing pool again?  If not, it won't start. */
static void
JudgeMissingPool(const PCacheOptions *options, const char *directory,
				 const PCacheStateFile *state, PCacheError *err,
				 VerifyResult *result)
{
	char		default_directory[MAXPGPATH];
	char		existing[MAXPGPATH];
	PCacheFsKind kind;
	uint64		page_size;

	snprintf(default_directory, sizeof(default_directory), "%s/%s",
			 options->pgdata, PCACHE_DEFAULT_DIRECTORY);

	if (state == NULL ||
		(strcmp(directory, state->directory) != 0 &&
		 strcmp(directory, default_directory) != 0))
	{
		PCacheSetHint(err, _("Run \"pg_pcache init\" to create the persistent cache."));
		FailWith(err);
	}
	if (state->fs_kind != PCACHE_FS_TMPFS &&
		state->fs_kind != PCACHE_FS_HUGETLBFS)
	{
		PCacheSetHint(err, _("Is the file system (%s) with \"%s\" mounted?  Otherwise run \"pg_pcache init --force\" to create the pool anew."),
					  PCacheFsKindName(state->fs_kind), state->directory);
		FailWith(err);
	}

	/* as PCacheMakeDirectory() will ask, when the server calls it */
	ExistingPart(state->directory, existing);
	if (!PCacheFsKindOfPath(existing, &kind, &page_size))
		pg_fatal("could not stat file system of \"%s\": %m", existing);
	if (kind != state->fs_kind)
	{
		pg_log_error("persistent cache directory \"%s\" is gone, and \"%s\" is on %s instead of %s",
					 state->directory, existing,
					 PCacheFsKindName(kind), PCacheFsKindName(state->fs_kind));
		pg_log_error_hint("Mount the file system that held the pool, or run \"pg_pcache init --force\" to choose another place.");
		exit(EXIT_ERROR);
	}
	Conclude(result, NEXT_START_COLD, PCacheRefusalName(PCACHE_COLD_NEW),
			 _("the pool was lost with its %s file system, and will be created again"),
			 PCacheFsKindName(state->fs_kind));
}

/*
 * The server won't start on a pool that has no room for shared_buffers,
 * unless the pool is so damaged that it makes a new one of it.
 */
static void
RefuseSmallPool(const PCachePool *pool, const PCacheSuperblock *sb,
				int64 nbuffers)
{
	if (nbuffers < 0 || sb->capacity >= (uint64) nbuffers)
		return;
	pg_log_error("persistent cache pool \"%s\" is too small for \"shared_buffers\": it has room for %llu blocks, %lld are needed",
				 pool->path, (unsigned long long) sb->capacity,
				 (long long) nbuffers);
	pg_log_error_hint("Decrease \"shared_buffers\", or create a larger pool with \"pg_pcache init --force --size\".");
	exit(EXIT_ERROR);
}

/* Ask the pool gates. */
static void
JudgePool(const PCachePool *pool, const Superblocks *superblocks,
		  const PCacheGateFacts *facts, int64 nbuffers, VerifyResult *result)
{
	PCacheVerdict verdict;

	switch (superblocks->source)
	{
		case PCACHE_SB_NONE:
			ConcludeCold(result, PCACHE_COLD_SUPERBLOCK,
						 superblocks->first_error.message);
			return;
		case PCACHE_SB_COPY:
			pg_log_info("using the copy of the superblock: the first one is damaged: %s",
						superblocks->first_error.message);
			break;
		case PCACHE_SB_FIRST:
			break;
	}
	verdict = PCachePoolGate(&superblocks->chosen, facts);
	if (superblocks->chosen.format_version == PCACHE_FORMAT_VERSION &&
		verdict.refusal != PCACHE_COLD_GEOMETRY)
		RefuseSmallPool(pool, &superblocks->chosen, nbuffers);
	if (verdict.refusal != PCACHE_WARM)
		ConcludeCold(result, verdict.refusal, verdict.detail);
}

/*
 * Ask the page gates for each slot that the pool's last user had; the next
 * one may have fewer.
 */
static void
ScanPages(const PCacheOptions *options, const PCachePool *pool,
		  const PCacheSuperblock *sb, int64 nbuffers,
		  const PCachePageFacts *facts, VerifyResult *result)
{
	uint64		slots_used = sb->slots_used;
	uint64	   *counts = result->counts;
	uint64		sealed = 0;
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor,
											  DESCRIPTORS_PER_READ);
	kept_hash  *pages = kept_create(1024, NULL);
	bool		found;

	result->scanned = true;
	result->slots = (nbuffers < 0) ? slots_used : Min(slots_used, nbuffers);
	for (uint64 start = 0; start < slots_used; start += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, slots_used - start);

		/* descriptors that can't be read come back damaged */
		(void) PCacheReadDescriptors(pool->fd, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
		{
			const PCacheDescriptor *desc = &chunk[i];
			PCachePageVerdict verdict;
			KeptKey		key;
			KeptPage   *page;

			if (PCacheSeqIsSealed(desc->seq))
				sealed++;
			if (start + i >= result->slots)
			{
				if (PCacheSeqIsSealed(desc->seq))
					result->not_fitting++;
				continue;
			}

			verdict = PCachePageGate(desc, start + i, facts);
			if (verdict != PCACHE_PAGE_KEPT)
			{
				counts[verdict]++;
				continue;
			}

			/* of pages with the same tag none is kept */
			key.spc_oid = desc->spc_oid;
			key.db_oid = desc->db_oid;
			key.rel_number = desc->rel_number;
			key.fork_number = desc->fork_number;
			key.block_number = desc->block_number;
			page = kept_insert(pages, key, &found);
			if (!found)
			{
				page->duplicated = false;
				counts[PCACHE_PAGE_KEPT]++;
				continue;
			}
			counts[PCACHE_PAGE_DUPLICATE]++;
			if (!page->duplicated)
			{
				page->duplicated = true;
				counts[PCACHE_PAGE_KEPT]--;
				counts[PCACHE_PAGE_DUPLICATE]++;
			}
		}
		if (options->progress)
			ReportProgress((start + n) * BLCKSZ, slots_used * BLCKSZ, false);
	}
	if (options->progress)
		ReportProgress(slots_used * BLCKSZ, slots_used * BLCKSZ, true);

	/* a damaged descriptor may look free: then the superblock knows better */
	result->saved = Max(sealed, sb->saved_pages);
	kept_destroy(pages);
	pg_free(chunk);
}

/* Look at the pool, as the server will. */
static void
Verify(const PCacheOptions *options, const ControlFileData *control,
	   const Configuration *conf, VerifyResult *result)
{
	PCacheStateFile state_file;
	PCacheStateFile *state = NULL;
	PCachePool	pool;
	PCacheError err;
	char		directory[MAXPGPATH];
	Superblocks superblocks;
	RecoveryFiles files;
	PCacheGateFacts facts = {0};
	PCachePageFacts page_facts = {0};
	PCacheMediaReport media = {0};
	PCacheWatermark watermarks[2];

	switch (PCacheStateFileRead(options->pgdata, &state_file, &err))
	{
		case PCACHE_STATEFILE_OK:
			state = &state_file;
			break;
		case PCACHE_STATEFILE_MISSING:
			break;
		case PCACHE_STATEFILE_ERROR:
			pg_log_warning("%s", err.message);
			break;
	}
	FindDirectory(options, conf, state, directory);

	switch (PCachePoolOpen(directory, PCACHE_OPEN_READ, &pool, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			JudgeMissingPool(options, directory, state, &err, result);
			return;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			FailWith(&err);
	}
	ResolvePath(pool.path, result->pool);

	files.backup_label = FileExists(options->pgdata, "backup_label");
	files.recovery_signal = FileExists(options->pgdata, "recovery.signal");
	files.standby_signal = FileExists(options->pgdata, "standby.signal");

	facts.control = control;
	facts.state = state;
	facts.file_size = pool.file_size;
	facts.backup_label = files.backup_label;
	/* standby.signal wins if there are both */
	facts.recovery_target = files.standby_signal ?
		HasRecoveryTarget(options) : files.recovery_signal;

	PCacheMediaQuery(pool.path, pool.fd, pool.fs_kind, &media);
	facts.media = &media;
	facts.cold_on_media_unknown = conf->cold_on_media_unknown;

	facts.recovery_timeline = Max(control->checkPointCopy.ThisTimeLineID,
								  control->minRecoveryPointTLI);
	(void) PCacheReadBootId(facts.boot_id);
	if (!PCacheReadExact(pool.fd, watermarks, sizeof(watermarks), PCACHE_WATERMARK_OFFSET) ||
		!PCacheWatermarkChoose(watermarks, &facts.watermark))
		facts.watermark.flushed = 0;

	/* where the gates look for relations and WAL */
	if (chdir(options->pgdata) < 0)
		pg_fatal("could not change directory to \"%s\": %m", options->pgdata);

	ReadSuperblocks(&pool, &superblocks);
	JudgePool(&pool, &superblocks, &facts, conf->nbuffers, result);
	if (result->next_start == NEXT_START_COLD)
	{
		PCacheMediaReportFree(&media);
		PCachePoolClose(&pool);
		return;
	}

	page_facts.lsn_limit = PCacheLsnLimit(&superblocks.chosen, &facts);
	page_facts.completed_epoch = superblocks.chosen.state == PCACHE_STATE_CLEAN ?
		PG_UINT64_MAX : PCacheCompletedEpoch(&superblocks.chosen, control);
	page_facts.drop_unlogged = control->state != DB_SHUTDOWNED ||
		files.backup_label || files.recovery_signal || files.standby_signal;
	page_facts.sizes = PCacheRelSizesCreate();
	page_facts.media = &media;
	page_facts.blocks_offset = superblocks.chosen.blocks_offset;
	ScanPages(options, &pool, &superblocks.chosen, conf->nbuffers,
			  &page_facts, result);
	PCacheRelSizesFree(page_facts.sizes);
	PCacheMediaReportFree(&media);
	PCachePoolClose(&pool);

	if (result->counts[PCACHE_PAGE_KEPT] == 0 && result->saved > 0)
		Conclude(result, NEXT_START_COLD, "pages",
				 _("none of the %llu saved pages can be kept"),
				 (unsigned long long) result->saved);
}

static void
PrintResult(const VerifyResult *result)
{
	static const char *const titles[] = {
		[NEXT_START_WARM] = "WARM",
		[NEXT_START_COLD] = "COLD",
		[NEXT_START_UNKNOWN] = "UNKNOWN",
	};

	printf("next start: %s", titles[result->next_start]);
	if (result->next_start == NEXT_START_WARM)
		printf(", %llu of %llu pages\n",
			   (unsigned long long) result->counts[PCACHE_PAGE_KEPT],
			   (unsigned long long) result->saved);
	else
		printf(": %s\n", result->detail);
	if (!result->scanned)
		return;

	putchar('\n');
	PrintLine("slots", "%llu", (unsigned long long) result->slots);
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PrintLine(PCachePageVerdictName(i), "%llu",
				  (unsigned long long) result->counts[i]);
	PrintLine("not fitting", "%llu", (unsigned long long) result->not_fitting);
}

int
DoVerify(const PCacheOptions *options)
{
	VerifyResult result;
	Configuration conf;
	const ControlFileData *control = ReadControlFile(options);
	int			exit_status = EXIT_ERROR;

	RefuseRunningServer(options->pgdata);
	memset(&result, 0, sizeof(result));
	result.next_start = NEXT_START_WARM;
	ReadConfiguration(options, &conf);

	if (conf.mode != NULL && strcmp(conf.mode, "off") == 0)
		Conclude(&result, NEXT_START_COLD, "off",
				 _("persistent_cache_mode is off"));
	else
		Verify(options, control, &conf, &result);

	if (result.next_start == NEXT_START_WARM &&
		(conf.mode == NULL || conf.nbuffers < 0))
		Conclude(&result, NEXT_START_UNKNOWN, "configuration",
				 _("the server's configuration could not be read"));

	if (options->json)
		VerifyResultToJson(&result);
	else
		PrintResult(&result);

	switch (result.next_start)
	{
		case NEXT_START_WARM:
			exit_status = EXIT_WARM;
			break;
		case NEXT_START_COLD:
			exit_status = EXIT_COLD;
			break;
		case NEXT_START_UNKNOWN:
			exit_status = EXIT_UNKNOWN;
			break;
	}
	return exit_status;
}
