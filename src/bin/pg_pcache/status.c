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
#include "common/logging.h"
#include "pg_pcache.h"

#define DESCRIPTORS_PER_READ	16384	/* 1 MB of them */

/* As many relations are shown if the user does not say how many. */
#define DEFAULT_TOP			10

static void
PrintCheckpoint(const char *key, const PCacheCheckpoint *checkpoint)
{
	if (checkpoint->location == 0)
		PrintLine(key, "none");
	else
		PrintLine(key, "%X/%X, redo %X/%X, timeline %u",
				  LSN_FORMAT_ARGS(checkpoint->location),
				  LSN_FORMAT_ARGS(checkpoint->redo),
				  checkpoint->timeline);
}

static void
PrintPlace(const PCacheMemoryPlace *place)
{
	char		devices[PCACHE_PLACE_TEXT_LEN];
	char		nodes[PCACHE_NUMA_TEXT_LEN];

	if (place->n_devices > 0)
		PrintLine("memory devices", "%s",
				  PCachePlaceText(place, devices, sizeof(devices)));
	if (place->numa_nodes != 0)
		PrintLine("NUMA nodes", "%s",
				  PCacheNumaNodesText(place->numa_nodes, nodes, sizeof(nodes)));
}

static void
PrintResult(const StatusResult *result)
{
	const PCacheSuperblocks *superblocks = &result->superblocks;
	const PCacheSuperblock *sb = &superblocks->chosen;

	if (result->server_pid != 0)
		PrintLine("server", "running (PID %d)", result->server_pid);
	else
		PrintLine("server", "not running");
	PrintLine("pool", "%s", result->pool.path);
	PrintLine("file system", "%s", PCacheFsKindName(result->pool.fs_kind));
	PrintPlace(&result->place);
	PrintLine("file size", "%s", FormatBytes(result->pool.file_size));
	if (superblocks->first_intact)
		PrintLine("superblock", "intact");
	else
		PrintLine("superblock", "damaged: %s",
				  superblocks->first_error.message);
	if (superblocks->copy_intact)
		PrintLine("superblock copy", "intact");
	else
		PrintLine("superblock copy", "damaged: %s",
				  superblocks->copy_error.message);

	PrintLine("format version", "%u", sb->format_version);
	PrintLine("pool uuid", "%s", FormatUuid(sb->pool_uuid));
	PrintLine("system identifier", "%llu",
			  (unsigned long long) sb->system_identifier);
	PrintLine("postgresql version", "%u", sb->pg_major);
	PrintLine("created", "%s", FormatTime(sb->created_at));

	/* in another format version only what is above is where we think */
	if (sb->format_version != PCACHE_FORMAT_VERSION)
		return;

	PrintLine("capacity", "%llu blocks", (unsigned long long) sb->capacity);
	PrintLine("cached data", "%s",
			  FormatBytes(sb->capacity * sb->block_size));
	PrintLine("slots used", "%llu", (unsigned long long) sb->slots_used);
	PrintLine("state", "%s", StateName(sb->state));
	PrintLine("mode", "%s", ModeName(sb->mode));
	PrintLine("incarnation", "%016llx", (unsigned long long) sb->incarnation);
	if (result->record_result == PCACHE_RECORD_OK)
		PrintLine("cluster's incarnation", "%016llx",
				  (unsigned long long) result->record.incarnation);
	else
		PrintLine("cluster's incarnation", "%s",
				  result->record_result == PCACHE_RECORD_MISSING ?
				  "none" : "damaged");
	PrintLine("timeline", "%u", sb->timeline);
	PrintCheckpoint("confirmed checkpoint", &sb->confirmed);
	PrintCheckpoint("pending checkpoint", &sb->pending);
	if (sb->min_recovery_point != 0)
		PrintLine("min. recovery point", "%X/%X, timeline %u",
				  LSN_FORMAT_ARGS(sb->min_recovery_point),
				  sb->min_recovery_point_timeline);
	PrintLine("checkpoint epoch", "%llu",
			  (unsigned long long) sb->checkpoint_epoch);
	PrintLine("data checksums", "%u", sb->data_checksum_version);
	PrintLine("saved pages", "%llu", (unsigned long long) sb->saved_pages);
	PrintLine("saved", "%s",
			  sb->saved_at != 0 ? FormatTime(sb->saved_at) : "never");
	PrintLine("sealed descriptors", "%llu", (unsigned long long) result->sealed);
	PrintLine("damaged descriptors", "%llu", (unsigned long long) result->damaged);
	if (result->watermark.flushed != 0)
		PrintLine("watermark", "%X/%X, timeline %u",
				  LSN_FORMAT_ARGS(result->watermark.flushed),
				  result->watermark.timeline);
	else
		PrintLine("watermark", "none");
	if (result->suspect.died != 0)
	{
		char		death[256];

		PCacheSuspectDescribe(&result->suspect, death, sizeof(death));
		PrintLine("suspect memory", "%s", death);
	}
	else
		PrintLine("suspect memory", "no");

	if (!result->count_relations)
		return;
	printf("\n%10s  %6s  %6s  %s\n", "pages", "share", "usage", "relation");
	for (int i = 0; i < result->n_shown; i++)
	{
		const RelationCount *relation = &result->relations[i];

		printf("%10llu  %5.1f%%  %6.2f  %s\n",
			   (unsigned long long) relation->pages,
			   100.0 * relation->pages / result->sealed,
			   (double) relation->usage / relation->pages,
			   FormatRelation(relation));
	}
	if (result->n_shown < result->n_relations)
		printf(_("(%d more)\n"), result->n_relations - result->n_shown);
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
	struct RelationCounter *counter = CreateRelationCounter();
	PCacheWatermark slots[2];

	for (uint64 start = 0; start < sb->slots_used; start += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, sb->slots_used - start);

		(void) PCacheReadDescriptors(result->pool.fd, start, n, chunk);
		for (uint32 i = 0; i < n; i++)
		{
			const PCacheDescriptor *desc = &chunk[i];
			RelationCount *relation;

			if (!PCacheSeqIsSealed(desc->seq))
				continue;
			if (!PCacheDescriptorIsIntact(desc, start + i) ||
				!PCacheDescriptorHasSaneTag(desc))
			{
				result->damaged++;
				continue;
			}
			result->sealed++;
			relation = CountRelation(counter, desc);
			relation->pages++;
			relation->forks[desc->fork_number]++;
			relation->usage += desc->usage_count;
		}
		if (options->progress)
			ReportProgress((start + n) * BLCKSZ, sb->slots_used * BLCKSZ, false);
	}
	if (options->progress)
		ReportProgress(sb->slots_used * BLCKSZ, sb->slots_used * BLCKSZ, true);
	pg_free(chunk);

	if (!PCacheReadExact(result->pool.fd, slots, sizeof(slots), PCACHE_WATERMARK_OFFSET) ||
		!PCacheWatermarkChoose(slots, &result->watermark))
		result->watermark.flushed = 0;
	PCacheSuspectRead(result->pool.fd, &result->suspect);

	result->relations = FinishRelationCounter(counter, &result->n_relations);
	if (options->relations == NULL)
		return;
	result->count_relations = true;
	result->n_shown = Min(result->n_relations,
						  options->relations[0] != '\0' ? atoi(options->relations) : DEFAULT_TOP);
	if (result->server_pid != 0 && result->n_shown > 0)
		ResolveRelationNames(options, sb->system_identifier,
							 result->relations, result->n_shown);
}

/* Where PGDATA, or the command line, says that the pool is. */
static void
FindDirectory(const PCacheOptions *options, const StatusResult *result,
			  char *directory)
{
	if (options->directory != NULL)
	{
		if (strlcpy(directory, options->directory, MAXPGPATH) >= MAXPGPATH - 64)
			pg_fatal("directory name \"%s\" is too long", options->directory);
		canonicalize_path(directory);
	}
	else if (result->record_result == PCACHE_RECORD_OK)
		strlcpy(directory, result->record.directory, MAXPGPATH);
	else
		snprintf(directory, MAXPGPATH, "%s/%s",
				 options->pgdata, PCACHE_DEFAULT_DIRECTORY);
}

int
DoStatus(const PCacheOptions *options)
{
	StatusResult result;
	PCacheError state_err;
	PCacheError err;
	PCacheMediaReport media;
	char		directory[MAXPGPATH];

	memset(&result, 0, sizeof(result));
	if (!FileExists(options->pgdata, XLOG_CONTROL_FILE))
		pg_fatal("directory \"%s\" is not a database cluster directory",
				 options->pgdata);
	result.server_pid = RunningServer(options->pgdata);
	result.record_result = PCacheRecordRead(options->pgdata, &result.record,
											&state_err);
	if (result.record_result == PCACHE_RECORD_ERROR)
		pg_log_warning("%s", state_err.message);
	FindDirectory(options, &result, directory);

	switch (PCachePoolOpen(directory, PCACHE_OPEN_PEEK, &result.pool, &err))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			if (result.record_result == PCACHE_RECORD_OK)
				PCacheSetHint(&err, _("The pool was created on %s, and is gone."),
							  PCacheFsKindName(result.record.fs_kind));
			else
				PCacheSetHint(&err, _("Run \"pg_pcache init\" to create the persistent cache."));
			FailWith(&err);
			break;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			FailWith(&err);
	}

	PCacheMediaQuery(result.pool.path, result.pool.fd, result.pool.fs_kind, &media);
	result.place = media.place;
	PCacheMediaReportFree(&media);

	if (result.server_pid != 0)
		ReadLiveSuperblocks(&result.pool, &result.superblocks);
	else
		PCacheReadSuperblocks(result.pool.fd, &result.superblocks);
	if (result.superblocks.source == PCACHE_SB_NONE)
	{
		pg_log_error("both superblocks of persistent cache pool \"%s\" are damaged",
					 result.pool.path);
		pg_log_error_detail("The first one: %s.  The copy: %s.",
							result.superblocks.first_error.message,
							result.superblocks.copy_error.message);
		exit(EXIT_ERROR);
	}

	if (result.superblocks.chosen.format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(&result.superblocks.chosen,
						   result.pool.file_size).refusal == PCACHE_WARM)
		CountDescriptors(options, &result);

	if (options->json)
		StatusResultToJson(&result, options->human);
	else
		PrintResult(&result);
	PCachePoolClose(&result.pool);
	return 0;
}
