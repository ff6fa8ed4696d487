/*-------------------------------------------------------------------------
 *
 * status.c
 *	  pg_pcache status: show what the pool says of itself.
 *
 * Takes no lock and changes nothing, so it can look at the pool of a server
 * that is running.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/status.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "access/xlog_internal.h"
#include "pg_pcache.h"

#define DESCRIPTORS_PER_READ	16384	/* 1 MB of them */

typedef struct StatusResult
{
	int			server_pid;		/* 0 if no server is running */
	bool		use_known;		/* whether that uses the pool */
	bool		in_use;
	PCachePool	pool;
	PCacheSuperblocks superblocks;
	PCacheSuspect suspect;		/* died is 0 if no process died of a fault */
	uint64		listed;			/* pages */
	uint64		damaged;		/* likewise */
} StatusResult;

/* A place in WAL; redo is NULL if it is none of a checkpoint. */
static void
PrintPlace(const char *label, const char *key, XLogRecPtr location, const XLogRecPtr *redo, uint32 timeline)
{
	if (location == 0)
	{
		PrintField(label, key, Shown(AsString(NULL), redo != NULL ? "none" : NULL));
		return;
	}
	PrintField(label, NULL,
			   AsString(psprintf("%X/%X%s, timeline %u", LSN_FORMAT_ARGS(location),
								 redo != NULL ? psprintf(", redo %X/%X", LSN_FORMAT_ARGS(*redo)) : "", timeline)));
	OpenObject(key);
	PrintField(NULL, "location", AsLsn(location));
	if (redo != NULL)
		PrintField(NULL, "redo", AsLsn(*redo));
	PrintField(NULL, "timeline", AsNumber(timeline));
	CloseObject();
}

static void
PrintSuperblock(const char *label, const char *key, bool intact, const PCacheError *err)
{
	PrintField(label, key, Shown(AsBoolean(intact), intact ? "intact" :
								 psprintf("damaged: %s", err->message)));
}

/* Did a process die of a fault that may have overwritten pages? */
static void
PrintSuspect(const PCacheSuspect *suspect)
{
	char		death[256];
	bool		intact = PCacheSuspectIsIntact(suspect);

	if (suspect->died == 0)
	{
		PrintField("suspect memory", "suspect_memory", Shown(AsString(NULL), "no"));
		return;
	}
	PCacheSuspectDescribe(suspect, death, sizeof(death));
	PrintField("suspect memory", NULL, AsString(death));
	OpenObject("suspect_memory");
	PrintField(NULL, "detail", AsString(death));
	if (intact)
	{
		PrintField(NULL, "signal", AsNumber(PCacheSuspectSignal(suspect)));
		PrintField(NULL, "pid", AsNumber(PCacheSuspectPid(suspect)));
	}
	PrintField(NULL, "died", intact ? AsTime(suspect->died_at) : AsString(NULL));
	CloseObject();
}

/* The numbers are those of PersistentCacheMode; a new pool has none. */
static const char *
ModeName(uint32 mode)
{
	static const char *const names[] = {
		[PERSISTENT_CACHE_OFF] = "none",
		[PERSISTENT_CACHE_PLANNED_RESTART] = "planned_restart",
		[PERSISTENT_CACHE_ALWAYS] = "always",
	};

	return PCacheNameOf(names, mode);
}

/* What is where we think it is, since the pool has our format version. */
static void
PrintState(const StatusResult *result)
{
	const PCacheSuperblock *sb = &result->superblocks.chosen;

	PrintField("capacity", "capacity", AsBlocks(sb->capacity));
	PrintField("cached data", "cached_data", AsBytes(sb->capacity * sb->block_size));
	PrintField("slots used", "slots_used", AsNumber(sb->slots_used));
	PrintField("state", "state", AsString(PCacheStateName(sb->state)));
	PrintField("mode", "mode", Shown(AsString(sb->mode != 0 ? ModeName(sb->mode) : NULL),
									 ModeName(sb->mode)));
	PrintField("incarnation", "incarnation",
			   AsString(psprintf("%016llx", (unsigned long long) sb->incarnation)));
	PrintPlace("saved checkpoint", "saved_checkpoint", sb->saved.location, &sb->saved.redo, sb->saved.timeline);
	PrintPlace("min. recovery point", "min_recovery_point", sb->min_recovery_point, NULL,
			   sb->min_recovery_point_timeline);
	PrintField("data checksums", "data_checksum_version", AsNumber(sb->data_checksum_version));
	PrintField("saved pages", "saved_pages", AsNumber(sb->saved_pages));
	PrintField("saved", "saved",
			   sb->saved_at != 0 ? AsTime(sb->saved_at) : Shown(AsString(NULL), "never"));
	PrintField("listed pages", "listed_pages", AsNumber(result->listed));
	PrintField("damaged entries", "damaged_entries", AsNumber(result->damaged));
	PrintSuspect(&result->suspect);
	PrintField("after a loss of power", "after_power_loss",
			   AsString(PCachePowerRuleName(sb->power_rule)));
}

static void
PrintResult(const StatusResult *result)
{
	const PCacheSuperblocks *superblocks = &result->superblocks;
	const PCacheSuperblock *sb = &superblocks->chosen;
	bool		runs = result->server_pid != 0;

	PrintField("server", "server_running",
			   Shown(AsBoolean(runs), !runs ? "not running" :
					 psprintf(result->use_known && !result->in_use ?
							  "running without this pool (PID %d)" : "running (PID %d)",
							  result->server_pid)));
	PrintField(NULL, "server_pid", runs ? AsNumber(result->server_pid) : AsString(NULL));
	PrintField(NULL, "server_uses_pool",
			   result->use_known ? AsBoolean(result->in_use) : AsString(NULL));
	PrintField("pool", "pool", AsString(result->pool.path));
	PrintField("file system", "file_system", AsString(PCacheFsKindName(result->pool.fs_kind)));
	PrintField("file size", "file_size", AsBytes(result->pool.file_size));
	PrintSuperblock("superblock", "superblock_intact", superblocks->first_intact,
					&superblocks->first_error);
	PrintSuperblock("superblock copy", "superblock_copy_intact", superblocks->copy_intact,
					&superblocks->copy_error);
	PrintField("format version", "format_version", AsNumber(sb->format_version));
	PrintField("pool uuid", "pool_uuid", AsString(FormatUuid(sb->pool_uuid)));
	PrintField("system identifier", "system_identifier", AsIdentifier(sb->system_identifier));
	PrintField("postgresql version", "postgresql_version", AsNumber(sb->pg_major));
	PrintField("created", "created", AsTime(sb->created_at));
	if (sb->format_version == PCACHE_FORMAT_VERSION)
		PrintState(result);
}

/*
 * Count what the descriptors on media speak of.  A server may be changing them
 * meanwhile: each one is taken as it is when it is read, and one that is caught
 * in change is no error.
 */
static void
CountDescriptors(const PCacheOptions *options, StatusResult *result)
{
	const PCacheSuperblock *sb = &result->superblocks.chosen;
	PCacheDescriptor *chunk = pg_malloc_array(PCacheDescriptor,
											  DESCRIPTORS_PER_READ);

	for (uint64 start = 0; start < sb->slots_used; start += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, sb->slots_used - start);

		(void) PCacheReadLedger(result->pool.fd, sb, 0, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
		{
			const PCacheDescriptor *desc = &chunk[i];

			if (!PCacheSeqIsSealed(desc->seq))
				continue;
			if (PCacheDescriptorIsIntact(desc, start + i) &&
				PCacheDescriptorHasSaneTag(desc))
				result->listed++;
			else
				result->damaged++;
		}
		if (options->progress)
			ReportProgress((start + n) * BLCKSZ, sb->slots_used * BLCKSZ, false);
	}
	if (options->progress)
		ReportProgress(sb->slots_used * BLCKSZ, sb->slots_used * BLCKSZ, true);
	pg_free(chunk);

	PCacheSuspectRead(result->pool.fd, &result->suspect);
}

/*
 * Does the pool have the size that the configuration asks for?  That is only known of the
 * pool that the configuration names.
 */
static void
TellSize(const PCacheOptions *options, const StatusResult *result)
{
	int64		nbuffers;
	int64		size;
	PCacheError err;

	if (options->directory != NULL ||
		result->superblocks.chosen.format_version != PCACHE_FORMAT_VERSION)
		return;
	ReadSizes(options, &size, &nbuffers);
	if (size <= 0 || nbuffers < 0 ||
		!PCacheSizeDiffers(&result->pool, &result->superblocks.chosen, size, nbuffers, &err))
		return;
	pg_log_warning("%s", err.message);
	pg_log_warning_hint("%s", err.hint);
}

int
DoStatus(const PCacheOptions *options)
{
	StatusResult result;
	PCacheError err;
	char		directory[MAXPGPATH];

	memset(&result, 0, sizeof(result));
	if (!FileExists(options->pgdata, XLOG_CONTROL_FILE))
		pg_fatal("directory \"%s\" is not a database cluster directory",
				 options->pgdata);
	result.server_pid = RunningServer(options->pgdata);
	if (result.server_pid != 0)
		AskWithArguments(ServerArguments(options));
	FindDirectory(options, options->directory != NULL ? NULL : ReadPoolDirectory(options), directory);

	if (!OpenPoolOrFail(directory, PCACHE_OPEN_PEEK, &result.pool, &err))
		Refuse(_("Run \"pg_pcache init\" to create the persistent cache."), "%s", err.message);

	if (result.server_pid != 0)
	{
		result.use_known = ServerUsesPool(result.server_pid, &result.pool, &result.in_use);
		ReadLiveSuperblocks(&result.pool, &result.superblocks);
	}
	else
		PCacheReadSuperblocks(result.pool.fd, &result.superblocks);
	if (result.superblocks.source == PCACHE_SB_NONE)
	{
		if (!PCachePoolMayFormat(&result.pool, &err))
			FailWith(&err);
		pg_log_error("both superblocks of persistent cache pool \"%s\" are damaged",
					 result.pool.path);
		pg_log_error_detail("The first one: %s.  The copy: %s.",
							result.superblocks.first_error.message,
							result.superblocks.copy_error.message);
		PCachePoolSetDamagedHint(&result.pool, &err);
		pg_log_error_hint("%s", err.hint);
		exit(EXIT_ERROR);
	}

	if (result.superblocks.chosen.format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(&result.superblocks.chosen,
						   result.pool.file_size).refusal == PCACHE_WARM)
		CountDescriptors(options, &result);
	TellSize(options, &result);

	BeginOutput(options);
	PrintResult(&result);
	EndOutput();
	PCachePoolClose(&result.pool);
	return 0;
}
