/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  pg_pcache verify and check: will the next start be warm?
 *
 * Both ask the same gates as pcache_startup.c does, about the same facts, and
 * change nothing.  verify looks at what a server has left, and refuses one that
 * runs.  check is also for a server that runs: it tells how the next start will
 * be if that is shut down cleanly now, with the configuration as it is on disk.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/verify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <dirent.h>
#include <sys/stat.h>

#include "common/logging.h"
#include "pg_pcache.h"
#include "storage/pcache_late_read.h"

/* Pages that are named one by one; the others are only counted. */
#define MAX_PAGES_TOLD	20

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

/* What comes before the next start has told how that will be. */
static void
ConcludeForecast(VerifyResult *result, const PCacheForecast *forecast)
{
	if (!forecast->starts)
		FailWith(&forecast->error);
	strlcpy(result->hint, forecast->error.hint, sizeof(result->hint));
	if (forecast->verdict.refusal != PCACHE_WARM)
		ConcludeCold(result, forecast->verdict.refusal, forecast->verdict.detail);
}

/* The pool cannot be used: does the server start without it? */
static void
JudgeUnavailable(const char *directory, const Configuration *conf, bool ours,
				 const PCacheError *err, VerifyResult *result)
{
	PCacheNextConfig config = NextConfig(conf);
	PCacheForecast forecast = {.error = *err};

	PCacheForetellWithout(directory, &config, ours, &forecast);
	ConcludeForecast(result, &forecast);
}

/* Does the server create a missing pool?  If not, it cannot use any. */
static void
JudgeMissingPool(const PCacheOptions *options, const char *directory,
				 const PCacheRecord *record, const PCacheError *record_error,
				 const Configuration *conf, PCacheError *err, VerifyResult *result)
{
	PCacheNextConfig config = NextConfig(conf);
	PCacheForecast forecast;

	/* with --directory, only the pool that was lost is created again */
	if (options->directory != NULL)
	{
		if (record == NULL || strcmp(directory, record->directory) != 0)
		{
			PCacheSetHint(err, _("Run \"pg_pcache init\" to create the persistent cache."));
			FailWith(err);
		}
		config.directory = NULL;
	}
	PCacheForetellMissing(directory, &config, record, record_error, err, &forecast);
	PCacheForetellWithout(directory, &config, false, &forecast);
	ConcludeForecast(result, &forecast);
}

/* Ask the pool gates. */
static void
JudgeForResult(const PCachePool *pool, const PCacheSuperblocks *superblocks,
			   const PCacheGateFacts *facts, const Configuration *conf,
			   PCacheNextEvent event, VerifyResult *result)
{
	PCacheNextConfig config = NextConfig(conf);
	PCacheForecast forecast;

	PCacheForetellPool(pool, superblocks, facts, &config, event, &forecast);
	if (superblocks->source == PCACHE_SB_COPY && event == PCACHE_NEXT_NOTHING)
		pg_log_info("using the copy of the superblock: the first one is damaged: %s",
					superblocks->first_error.message);
	PCacheForetellWithout(pool->directory, &config,
						  PCachePoolIsOurs(pool->directory, facts->record), &forecast);
	ConcludeForecast(result, &forecast);
}

/*
 * Does the server with this PID use the file of an open pool?  It holds that open
 * as long as it runs, whatever has become of the name, or of PGDATA's record.
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
	{
		pg_log_error("could not find out whether the server with PID %d uses persistent cache pool \"%s\": %m",
					 pid, pool->path);
		exit(EXIT_ERROR);
	}
	while (!found && (entry = readdir(files)) != NULL)
	{
		struct stat theirs;

		found = fstatat(dirfd(files), entry->d_name, &theirs, 0) == 0 &&
			theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
	}
	closedir(files);
	return found;
}

/*
 * Open the pool for a look.  If the server with this PID, unless that is 0, runs
 * with it, what that has locked is read as it is; any other pool that is locked
 * keeps the next start from it.
 */
static PCacheOpenResult
OpenForLook(const char *directory, int server_pid,
			PCachePool *pool, PCacheSuperblocks *superblocks,
			PCacheNextEvent *event, PCacheError *err)
{
	PCacheOpenResult opened;

	*event = PCACHE_NEXT_NOTHING;
	if (server_pid != 0)
	{
		opened = PCachePoolOpen(directory, PCACHE_OPEN_PEEK, pool, err);
		if (opened == PCACHE_OPEN_ERROR)
			return opened;
		if (opened == PCACHE_OPEN_OK && ServerUsesPool(server_pid, pool))
		{
			*event = PCACHE_NEXT_RESTART;
			ReadLiveSuperblocks(pool, superblocks);
			return PCACHE_OPEN_OK;
		}
		*event = PCACHE_NEXT_RESTART_APART;
		if (opened == PCACHE_OPEN_OK)
			PCachePoolClose(pool);
	}
	opened = PCachePoolOpen(directory, server_pid != 0 ? PCACHE_OPEN_TRY : PCACHE_OPEN_READ,
							pool, err);
	if (opened == PCACHE_OPEN_OK)
		PCacheReadSuperblocks(pool->fd, superblocks);
	return opened;
}

/*
 * Compare each page that will be kept with what its data file has.  By read(),
 * so that a bad block is an error, of one page.
 */
static void
ComparePool(const PCacheOptions *options, const PCachePool *pool,
			const PCacheSuperblock *sb, const ControlFileData *control,
			const PageScan *scan, VerifyResult *result)
{
	struct RelationCounter *counter = CreateRelationCounter();
	PCachePageFacts facts = {.completed_epoch = scan->completed_epoch,
	.redo = scan->redo};
	SegmentFile file = {.fd = -1};
	PGIOAlignedBlock cached;
	PGIOAlignedBlock stored;
	int			n_told = 0;

	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		PCacheDescriptor desc;
		PageComparison comparison;
		RelationCount *relation;
		bool		dirty;

		if (options->progress && slot % 1024 == 0)
			ReportProgress(slot * BLCKSZ, scan->slots * BLCKSZ, false);
		if (scan->verdicts[slot] != PCACHE_PAGE_KEPT ||
			!PCacheReadDescriptors(pool->fd, slot, 1, &desc))
			continue;
		dirty = PCachePageIsDirty(&desc, &facts);
		if (!PCacheReadExact(pool->fd, cached.data, BLCKSZ,
							 sb->blocks_offset + slot * BLCKSZ) ||
			!ReadRelationBlock(&file, &desc, &stored))
			comparison = PAGE_UNREADABLE;
		else
			comparison = ComparePages(&cached, &stored, &desc, dirty,
									  control->data_checksum_version != 0);
		result->comparisons[comparison]++;

		relation = CountRelation(counter, &desc);
		relation->pages++;
		relation->forks[desc.fork_number]++;
		relation->dirty += dirty;
		relation->usage += desc.usage_count;
		relation->comparisons[comparison]++;

		if (comparison == PAGE_IMPOSSIBLE || comparison == PAGE_UNREADABLE ||
			comparison == PAGE_STORED_CHECKSUM)
		{
			if (n_told++ < MAX_PAGES_TOLD)
				pg_log_error("page in slot %llu: %s: %s, fork %s, block %u",
							 (unsigned long long) slot,
							 PageComparisonName(comparison),
							 FormatRelation(relation),
							 forkNames[desc.fork_number], desc.block_number);
		}
	}
	if (n_told > MAX_PAGES_TOLD)
		pg_log_error_detail(ngettext("There is %d more such page.",
									 "There are %d more such pages.",
									 n_told - MAX_PAGES_TOLD),
							n_told - MAX_PAGES_TOLD);
	if (options->progress)
		ReportProgress(scan->slots * BLCKSZ, scan->slots * BLCKSZ, true);
	CloseSegment(&file);
	result->compared = true;
	result->deep = options->deep;
	result->relations = FinishRelationCounter(counter, &result->n_relations);
}

/* No pool is used if a read could go on after its server, see pcache_late_read.c. */
static bool
ReadsEnd(const PCacheOptions *options, PCacheError *err)
{
	char	   *io_method = ReadSetting(options, "io_method");
	char	   *debug_io_direct = ReadSetting(options, "debug_io_direct");
	bool		end = io_method == NULL || debug_io_direct == NULL ||
		PCacheReadsEndWithProcess(io_method, debug_io_direct, err);

	free(io_method);
	free(debug_io_direct);
	return end;
}

/* Look at the pool, as the server will at its next start. */
static void
Verify(const PCacheOptions *options, const ControlFileData *control,
	   const Configuration *conf, int server_pid, VerifyResult *result)
{
	PCacheRecord record_file;
	PCacheRecord *record = NULL;
	PCachePool	pool;
	PCacheError err;
	PCacheError record_err;
	const PCacheError *record_error = NULL;
	char		directory[MAXPGPATH];
	PCacheSuperblocks superblocks;
	PCacheNextEvent event;
	Judge		judge;
	PageScan	scan;
	const char *cold;
	char		detail[sizeof(result->detail)];

	switch (PCacheRecordRead(options->pgdata, &record_file, &err))
	{
		case PCACHE_RECORD_OK:
			record = &record_file;
			break;
		case PCACHE_RECORD_MISSING:
			break;
		case PCACHE_RECORD_ERROR:
			pg_log_warning("%s", err.message);
			record_err = err;
			record_error = &record_err;
			break;
	}
	FindPoolDirectory(options, conf, record, directory);
	if ((conf->mode != NULL && !ReadsEnd(options, &err)) ||
		(options->directory == NULL &&
		 !PCacheDirectoryIsAllowed(options->pgdata, conf->directory, directory, &err)))
	{
		JudgeUnavailable(directory, conf, false, &err, result);
		return;
	}

	switch (OpenForLook(directory, server_pid, &pool, &superblocks, &event, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			JudgeMissingPool(options, directory, record, record_error, conf, &err, result);
			return;
		case PCACHE_OPEN_LOCKED:
			if (PCachePoolIsOurs(directory, record))
				FailWith(&err);
			/* FALLTHROUGH */
		case PCACHE_OPEN_ERROR:
			JudgeUnavailable(directory, conf, false, &err, result);
			return;
	}
	ResolvePath(pool.path, result->pool);

	GatherFacts(options, control, conf, record, &pool, true, &judge);
	JudgeForResult(&pool, &superblocks, &judge.facts, conf, event, result);
	/* which pages there will be is not known as long as a server runs */
	if (result->next_start != NEXT_START_COLD && event == PCACHE_NEXT_NOTHING)
	{
		ScanPages(options->progress, &pool, &superblocks.chosen, control,
				  conf->nbuffers, true, &judge, &scan);
		result->scanned = true;
		result->slots = scan.staying;
		result->saved = scan.saved;
		memcpy(result->counts, scan.counts, sizeof(result->counts));
		cold = ColdForWantOfPages(&superblocks.chosen, &scan, detail, sizeof(detail));
		if (cold != NULL)
			Conclude(result, NEXT_START_COLD, cold, "%s", detail);
		if (options->pages || options->deep)
			ComparePool(options, &pool, &superblocks.chosen, control, &scan,
						result);
		FreeScan(&scan);
	}
	FreeFacts(&judge);
	PCachePoolClose(&pool);
}

static void
PrintResult(const VerifyResult *result)
{
	if (result->next_start == NEXT_START_WARM && !result->scanned)
	{
		printf(_("next start: WARM, if the server is shut down cleanly\n"));
		return;
	}
	PrintNextStart(result->next_start, result->detail,
				   result->counts[PCACHE_PAGE_KEPT], result->saved);
	if (result->hint[0] != '\0')
		printf(_("hint: %s\n"), result->hint);
	if (!result->scanned)
		return;

	putchar('\n');
	PrintLine("slots", "%llu", (unsigned long long) result->slots);
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
		PrintLine(PCachePageVerdictName(i), "%llu",
				  (unsigned long long) result->counts[i]);

	if (!result->compared)
		return;
	printf(_("\nkept pages, compared with the data files:\n"));
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		PrintLine(PageComparisonName(i), "%llu",
				  (unsigned long long) result->comparisons[i]);

	if (!result->deep)
		return;
	printf("\n%10s %10s", "pages", "dirty");
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		printf(" %*s", Max(10, (int) strlen(PageComparisonName(i))), PageComparisonName(i));
	printf("  relation\n");
	for (int i = 0; i < result->n_relations; i++)
	{
		const RelationCount *relation = &result->relations[i];

		printf("%10llu %10llu", (unsigned long long) relation->pages,
			   (unsigned long long) relation->dirty);
		for (int j = 0; j < NUM_PAGE_COMPARISONS; j++)
			printf(" %*llu", Max(10, (int) strlen(PageComparisonName(j))),
				   (unsigned long long) relation->comparisons[j]);
		printf("  %s\n", FormatRelation(relation));
	}
}

int
DoVerify(const PCacheOptions *options)
{
	VerifyResult result;
	Configuration conf;
	const ControlFileData *control = ReadControlFile(options);
	int			exit_status = EXIT_ERROR;
	int			server_pid = 0;

	if (options->verb == VERB_VERIFY)
		RefuseRunningServer(options->pgdata);
	else
		server_pid = RunningServer(options->pgdata);
	/* a restart gives them again, and a start does not */
	if (server_pid != 0)
		AskWithServerArguments(options);
	memset(&result, 0, sizeof(result));
	result.next_start = NEXT_START_WARM;
	ReadConfiguration(options, &conf);

	if (ModeIsOff(&conf))
		Conclude(&result, NEXT_START_COLD, "off",
				 _("persistent_cache_mode is off"));
	else
		Verify(options, control, &conf, server_pid, &result);

	if (result.next_start == NEXT_START_WARM &&
		(conf.mode == NULL || conf.nbuffers < 0))
		Conclude(&result, NEXT_START_UNKNOWN, "configuration",
				 _("the server's configuration could not be read"));

	if (options->json)
		VerifyResultToJson(&result);
	else
		PrintResult(&result);

	/* pages that must not be there are worse than a cold start */
	if (result.comparisons[PAGE_IMPOSSIBLE] > 0 ||
		result.comparisons[PAGE_UNREADABLE] > 0 ||
		result.comparisons[PAGE_STORED_CHECKSUM] > 0)
		return EXIT_ERROR;

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
