/*-------------------------------------------------------------------------
 *
 * json.c
 *	  The results of pg_pcache's verbs, as JSON.
 *
 * One object, keys in snake_case.  Identifiers of 64 bits are strings, since
 * many readers of JSON would round them; sizes are numbers of bytes, or with
 * --human strings with a unit.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/json.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>

#include "access/xlogdefs.h"
#include "image.h"
#include "lib/stringinfo.h"

typedef struct JsonWriter
{
	StringInfoData buf;
	int			depth;
	bool		empty;			/* nothing in the innermost object yet */
} JsonWriter;

/* As in pg_combinebackup. */
static void
EscapeJson(StringInfo buf, const char *str)
{
	appendStringInfoCharMacro(buf, '"');
	for (const char *p = str; *p != '\0'; p++)
	{
		switch (*p)
		{
			case '\b':
				appendStringInfoString(buf, "\\b");
				break;
			case '\f':
				appendStringInfoString(buf, "\\f");
				break;
			case '\n':
				appendStringInfoString(buf, "\\n");
				break;
			case '\r':
				appendStringInfoString(buf, "\\r");
				break;
			case '\t':
				appendStringInfoString(buf, "\\t");
				break;
			case '"':
				appendStringInfoString(buf, "\\\"");
				break;
			case '\\':
				appendStringInfoString(buf, "\\\\");
				break;
			default:
				if ((unsigned char) *p < ' ')
					appendStringInfo(buf, "\\u%04x", (int) *p);
				else
					appendStringInfoCharMacro(buf, *p);
				break;
		}
	}
	appendStringInfoCharMacro(buf, '"');
}

static void
NewLine(JsonWriter *w)
{
	appendStringInfoChar(&w->buf, '\n');
	appendStringInfoSpaces(&w->buf, 2 * w->depth);
}

static void
Key(JsonWriter *w, const char *key)
{
	if (!w->empty)
		appendStringInfoChar(&w->buf, ',');
	NewLine(w);
	EscapeJson(&w->buf, key);
	appendStringInfoString(&w->buf, ": ");
	w->empty = false;
}

static void
OpenObject(JsonWriter *w, const char *key)
{
	if (key != NULL)
		Key(w, key);
	appendStringInfoChar(&w->buf, '{');
	w->depth++;
	w->empty = true;
}

static void
CloseObject(JsonWriter *w)
{
	w->depth--;
	NewLine(w);
	appendStringInfoChar(&w->buf, '}');
	w->empty = false;
}

static void
Begin(JsonWriter *w)
{
	initStringInfo(&w->buf);
	w->depth = 0;
	OpenObject(w, NULL);
}

static void
Finish(JsonWriter *w)
{
	CloseObject(w);
	puts(w->buf.data);
	pfree(w->buf.data);
}

/* A string, or null. */
static void
AddString(JsonWriter *w, const char *key, const char *value)
{
	Key(w, key);
	if (value != NULL)
		EscapeJson(&w->buf, value);
	else
		appendStringInfoString(&w->buf, "null");
}

static void
AddNumber(JsonWriter *w, const char *key, uint64 value)
{
	Key(w, key);
	appendStringInfo(&w->buf, "%llu", (unsigned long long) value);
}

static void
AddSeconds(JsonWriter *w, const char *key, double seconds)
{
	Key(w, key);
	appendStringInfo(&w->buf, "%.3f", seconds);
}

static void
AddBoolean(JsonWriter *w, const char *key, bool value)
{
	Key(w, key);
	appendStringInfoString(&w->buf, value ? "true" : "false");
}

static void
AddBytes(JsonWriter *w, const char *key, uint64 bytes, bool human)
{
	if (human)
		AddString(w, key, FormatBytes(bytes));
	else
		AddNumber(w, key, bytes);
}

static void
AddIdentifier(JsonWriter *w, const char *key, uint64 value)
{
	AddString(w, key, psprintf("%llu", (unsigned long long) value));
}

static void
AddLsn(JsonWriter *w, const char *key, XLogRecPtr lsn)
{
	AddString(w, key, psprintf("%X/%X", LSN_FORMAT_ARGS(lsn)));
}

/* A name that is made for readers, as a key or a keyword. */
static const char *
SnakeCase(const char *name)
{
	char	   *result = pstrdup(name);

	for (char *p = result; *p != '\0'; p++)
		*p = (*p == ' ') ? '_' : pg_ascii_tolower((unsigned char) *p);
	return result;
}

static const char *
NextStartName(NextStart next_start)
{
	static const char *const names[] = {
		[NEXT_START_WARM] = "warm",
		[NEXT_START_COLD] = "cold",
		[NEXT_START_UNKNOWN] = "unknown",
	};

	return names[next_start];
}

/* The next element of an array begins. */
static void
BeginElement(JsonWriter *w)
{
	if (!w->empty)
		appendStringInfoChar(&w->buf, ',');
	NewLine(w);
}

/* Of one relation, what verify and status both count, as an open object. */
static void
OpenRelation(JsonWriter *w, const RelationCount *relation)
{
	BeginElement(w);
	OpenObject(w, NULL);
	AddNumber(w, "tablespace", relation->rlocator.spcOid);
	AddNumber(w, "database", relation->rlocator.dbOid);
	AddNumber(w, "relfilenode", relation->rlocator.relNumber);
	AddString(w, "database_name", relation->database);
	AddString(w, "name", relation->name);
	AddNumber(w, "pages", relation->pages);
	OpenObject(w, "forks");
	for (ForkNumber fork = 0; fork <= MAX_FORKNUM; fork++)
		AddNumber(w, forkNames[fork], relation->forks[fork]);
	CloseObject(w);
	AddNumber(w, "usage_count", relation->usage);
}

static void
OpenArray(JsonWriter *w, const char *key)
{
	Key(w, key);
	appendStringInfoChar(&w->buf, '[');
	w->depth++;
	w->empty = true;
}

static void
CloseArray(JsonWriter *w)
{
	w->depth--;
	NewLine(w);
	appendStringInfoChar(&w->buf, ']');
	w->empty = false;
}

/* A string in an array. */
static void
AddElement(JsonWriter *w, const char *value)
{
	BeginElement(w);
	EscapeJson(&w->buf, value);
	w->empty = false;
}

static void
AddCheckpoint(JsonWriter *w, const char *key, const PCacheCheckpoint *checkpoint)
{
	if (checkpoint->location == 0)
	{
		AddString(w, key, NULL);
		return;
	}
	OpenObject(w, key);
	AddLsn(w, "location", checkpoint->location);
	AddLsn(w, "redo", checkpoint->redo);
	AddNumber(w, "timeline", checkpoint->timeline);
	CloseObject(w);
}

void
DropResultToJson(const DropResult *result, bool human)
{
	JsonWriter	w;
	bool		has_directory = result->directory[0] != '\0';

	Begin(&w);
	AddBoolean(&w, "dry_run", result->dry_run);
	AddBoolean(&w, "nothing_to_drop", result->nothing);
	AddString(&w, "pool", result->pool[0] != '\0' ? result->pool : NULL);
	OpenArray(&w, "leftovers");
	for (int i = 0; i < DROP_MAX_LEFTOVERS; i++)
	{
		if (result->leftovers[i] != NULL)
			AddElement(&w, result->leftovers[i]);
	}
	CloseArray(&w);
	AddString(&w, "directory", has_directory ? result->directory : NULL);
	AddBoolean(&w, "directory_removed",
			   has_directory && result->directory_stays == NULL);
	AddString(&w, "record", result->record[0] != '\0' ? result->record : NULL);
	AddBytes(&w, "freed", result->freed, human);
	AddBytes(&w, "overwritten", result->overwritten, human);
	Finish(&w);
}

void
InitResultToJson(const InitResult *result, bool human)
{
	JsonWriter	w;
	uint64		data_size = result->geometry.capacity * BLCKSZ;

	Begin(&w);
	AddBoolean(&w, "dry_run", result->dry_run);
	AddBoolean(&w, "replaced", result->replaced);
	AddString(&w, "pool", psprintf("%s/%s", result->directory, PCACHE_POOL_FILE));
	AddString(&w, "file_system", PCacheFsKindName(result->fs_kind));
	AddNumber(&w, "capacity", result->geometry.capacity);
	AddBytes(&w, "cached_data", data_size, human);
	AddBytes(&w, "file_size", result->geometry.pool_size, human);
	AddIdentifier(&w, "system_identifier", result->system_identifier);
	AddString(&w, "pool_uuid",
			  result->dry_run ? NULL : FormatUuid(result->pool_uuid));
	if (result->fs_kind == PCACHE_FS_TMPFS && !result->dry_run)
		AddBoolean(&w, "huge_pages", result->huge_pages);
	OpenObject(&w, "settings");
	AddString(&w, "pcache.mode", "planned_restart");
	if (!result->is_default)
		AddString(&w, "pcache.directory", result->directory);
	AddString(&w, "shared_buffers", FormatSetting(data_size));
	CloseObject(&w);
	Finish(&w);
}

void
SaveResultToJson(const SaveResult *result, bool human)
{
	JsonWriter	w;

	Begin(&w);
	AddBoolean(&w, "dry_run", result->dry_run);
	AddBoolean(&w, "host_stays", result->host_stays);
	if (!result->host_stays)
	{
		AddString(&w, "pool", result->pool);
		AddString(&w, "image", result->detail[0] != '\0' ? NULL : result->image);
		AddString(&w, "detail", result->detail[0] != '\0' ? result->detail : NULL);
		AddString(&w, "contents", result->kind == PCACHE_IMAGE_LIST ? "list" : "pages");
		AddString(&w, "compression", CompressionName(result->compression));
		AddNumber(&w, "pages_in_pool", result->saved_pages);
		AddNumber(&w, "pages_saved", result->pages);
		AddNumber(&w, "pages_unreadable", result->unreadable);
		AddBytes(&w, "image_size", result->image_size, human);
		AddBytes(&w, "uncompressed_size", result->raw_size, human);
		AddSeconds(&w, "seconds", result->seconds);
	}
	Finish(&w);
}

/* Devices and NUMA nodes that hold the pool; what is unknown is left empty. */
static void
AddPlace(JsonWriter *w, const PCacheMemoryPlace *place)
{
	uint32		n = Min(place->n_devices, PCACHE_MAX_MEMORY_DEVICES);

	OpenArray(w, "memory_devices");
	for (uint32 i = 0; i < n; i++)
	{
		const PCacheMemoryDevice *device = &place->devices[i];

		BeginElement(w);
		OpenObject(w, NULL);
		AddString(w, "device", device->name);
		AddString(w, "mode", PCacheMemoryModeName(device->mode));
		if (device->numa_node >= 0)
			AddNumber(w, "numa_node", device->numa_node);
		else
			AddString(w, "numa_node", NULL);
		CloseObject(w);
	}
	CloseArray(w);
	OpenArray(w, "numa_nodes");
	for (int node = 0; node < PCACHE_MAX_NUMA_NODES; node++)
	{
		if ((place->numa_nodes & (UINT64CONST(1) << node)) == 0)
			continue;
		BeginElement(w);
		appendStringInfo(&w->buf, "%d", node);
		w->empty = false;
	}
	CloseArray(w);
}

void
StatusResultToJson(const StatusResult *result, bool human)
{
	JsonWriter	w;
	const PCacheSuperblocks *superblocks = &result->superblocks;
	const PCacheSuperblock *sb = &superblocks->chosen;

	Begin(&w);
	AddBoolean(&w, "server_running", result->server_pid != 0);
	if (result->server_pid != 0)
		AddNumber(&w, "server_pid", result->server_pid);
	else
		AddString(&w, "server_pid", NULL);
	AddString(&w, "pool", result->pool.path);
	AddString(&w, "file_system", PCacheFsKindName(result->pool.fs_kind));
	AddPlace(&w, &result->place);
	AddBytes(&w, "file_size", result->pool.file_size, human);
	AddBoolean(&w, "superblock_intact", superblocks->first_intact);
	AddBoolean(&w, "superblock_copy_intact", superblocks->copy_intact);
	AddNumber(&w, "format_version", sb->format_version);
	AddString(&w, "pool_uuid", FormatUuid(sb->pool_uuid));
	AddIdentifier(&w, "system_identifier", sb->system_identifier);
	AddNumber(&w, "postgresql_version", sb->pg_major);
	AddString(&w, "created", FormatTimeUtc(sb->created_at));

	/* in another format version only what is above is where we think */
	if (sb->format_version == PCACHE_FORMAT_VERSION)
	{
		AddNumber(&w, "capacity", sb->capacity);
		AddBytes(&w, "cached_data", sb->capacity * sb->block_size, human);
		AddNumber(&w, "slots_used", sb->slots_used);
		AddString(&w, "state", StateName(sb->state));
		AddString(&w, "mode", sb->mode != 0 ? ModeName(sb->mode) : NULL);
		AddString(&w, "incarnation",
				  psprintf("%016llx", (unsigned long long) sb->incarnation));
		AddString(&w, "cluster_incarnation",
				  result->record_result != PCACHE_RECORD_OK ? NULL :
				  psprintf("%016llx",
						   (unsigned long long) result->record.incarnation));
		AddNumber(&w, "timeline", sb->timeline);
		AddCheckpoint(&w, "confirmed_checkpoint", &sb->confirmed);
		AddCheckpoint(&w, "pending_checkpoint", &sb->pending);
		if (sb->min_recovery_point != 0)
		{
			OpenObject(&w, "min_recovery_point");
			AddLsn(&w, "location", sb->min_recovery_point);
			AddNumber(&w, "timeline", sb->min_recovery_point_timeline);
			CloseObject(&w);
		}
		else
			AddString(&w, "min_recovery_point", NULL);
		AddNumber(&w, "checkpoint_epoch", sb->checkpoint_epoch);
		AddNumber(&w, "data_checksum_version", sb->data_checksum_version);
		AddNumber(&w, "saved_pages", sb->saved_pages);
		AddString(&w, "saved",
				  sb->saved_at != 0 ? FormatTimeUtc(sb->saved_at) : NULL);
		AddNumber(&w, "sealed_descriptors", result->sealed);
		AddNumber(&w, "damaged_descriptors", result->damaged);
		if (result->watermark.flushed != 0)
		{
			OpenObject(&w, "watermark");
			AddLsn(&w, "flushed", result->watermark.flushed);
			AddNumber(&w, "timeline", result->watermark.timeline);
			CloseObject(&w);
		}
		else
			AddString(&w, "watermark", NULL);
		if (result->suspect.died != 0)
		{
			char		death[256];
			bool		intact = PCacheSuspectIsIntact(&result->suspect);

			PCacheSuspectDescribe(&result->suspect, death, sizeof(death));
			OpenObject(&w, "suspect_memory");
			AddString(&w, "detail", death);
			if (intact)
			{
				AddNumber(&w, "signal", PCacheSuspectSignal(&result->suspect));
				AddNumber(&w, "pid", PCacheSuspectPid(&result->suspect));
			}
			AddString(&w, "died",
					  intact ? FormatTimeUtc(result->suspect.died_at) : NULL);
			CloseObject(&w);
		}
		else
			AddString(&w, "suspect_memory", NULL);
		if (result->count_relations)
		{
			OpenArray(&w, "relations");
			for (int i = 0; i < result->n_shown; i++)
			{
				OpenRelation(&w, &result->relations[i]);
				CloseObject(&w);
			}
			CloseArray(&w);
			AddNumber(&w, "relations_in_all", result->n_relations);
		}
	}
	Finish(&w);
}

static void
AddWarmResult(JsonWriter *w, const char *key, const WarmResult *warm, bool is_list)
{
	OpenObject(w, key);
	if (is_list)
	{
		AddNumber(w, "listed", warm->listed);
		AddNumber(w, "listed_twice", warm->duplicates);
		AddNumber(w, "relation_gone", warm->gone);
		AddNumber(w, "beyond_end", warm->beyond_end);
		AddNumber(w, "unlogged", warm->unlogged);
	}
	AddNumber(w, "relations", warm->relations);
	AddNumber(w, "pages_in_files", warm->file_pages);
	AddNumber(w, "already_in_pool", warm->already);
	AddNumber(w, "read", warm->read);
	AddNumber(w, "no_room", warm->no_room);
	AddNumber(w, "invalid_header", warm->bad_header);
	AddNumber(w, "wrong_checksum", warm->bad_checksum);
	AddNumber(w, "wal_not_durable", warm->bad_lsn);
	AddNumber(w, "unreadable", warm->unreadable);
	AddSeconds(w, "seconds", warm->seconds);
	CloseObject(w);
}

void
ImageInfoToJson(const ImageInfo *info, bool human)
{
	const PCacheImageHeader *header = &info->image.header;
	const PCacheSuperblock *sb = &info->image.superblock;
	JsonWriter	w;

	Begin(&w);
	AddString(&w, "image", info->image.path);
	AddNumber(&w, "format_version", header->format_version);
	AddString(&w, "contents", header->kind == PCACHE_IMAGE_LIST ? "list" : "pages");
	AddString(&w, "compression", CompressionName(header->compression));
	AddBytes(&w, "image_size", header->image_size, human);
	AddBytes(&w, "uncompressed_size", header->raw_size, human);
	AddNumber(&w, "chunks", header->n_chunks);
	AddNumber(&w, "pages", header->n_pages);
	AddNumber(&w, "pages_saved", sb->saved_pages);
	AddString(&w, "created", FormatTimeUtc(header->created_at));
	AddString(&w, "image_uuid", FormatUuid(header->image_uuid));
	AddBoolean(&w, "named", info->named);
	AddString(&w, "pool_uuid", FormatUuid(sb->pool_uuid));
	AddIdentifier(&w, "system_identifier", header->system_identifier);
	AddNumber(&w, "postgresql_version", header->pg_major);
	AddNumber(&w, "capacity", sb->capacity);
	AddNumber(&w, "slots_used", sb->slots_used);
	AddLsn(&w, "checkpoint", sb->confirmed.location);
	AddString(&w, "saved", FormatTimeUtc(sb->saved_at));
	if (info->verified)
	{
		AddNumber(&w, "damaged_chunks", info->damaged_chunks);
		AddNumber(&w, "damaged_pages", info->damaged_pages);
		AddString(&w, "next_start", NextStartName(info->next_start));
		AddString(&w, "detail", info->next_start == NEXT_START_WARM ? NULL : info->detail);
		AddString(&w, "hint", info->hint[0] != '\0' ? info->hint : NULL);
	}
	Finish(&w);
}

void
LoadResultToJson(const LoadResult *result, bool human)
{
	JsonWriter	w;

	Begin(&w);
	AddBoolean(&w, "dry_run", result->dry_run);
	AddString(&w, "pool", result->pool);
	AddString(&w, "image", result->image);
	AddBoolean(&w, "already_warm", result->already);
	AddBoolean(&w, "loaded", result->loaded);
	AddBytes(&w, "image_size", result->image_size, human);
	AddNumber(&w, "pages_loaded", result->pages);
	AddNumber(&w, "damaged_chunks", result->damaged_chunks);
	AddNumber(&w, "damaged_pages", result->damaged_pages);
	AddNumber(&w, "pages_on_bad_blocks", result->bad_slots);
	if (result->is_list)
		AddWarmResult(&w, "list", &result->warm, true);
	else
		AddString(&w, "list", NULL);
	AddNumber(&w, "pages_saved", result->saved_pages);
	AddBoolean(&w, "image_removed", result->removed);
	AddString(&w, "next_start", NextStartName(result->next_start));
	AddString(&w, "detail", result->next_start == NEXT_START_WARM ?
			  NULL : result->detail);
	AddString(&w, "hint", result->hint[0] != '\0' ? result->hint : NULL);
	AddNumber(&w, "pages_kept", result->kept);
	AddSeconds(&w, "seconds", result->seconds);
	Finish(&w);
}

void
RebuildResultToJson(const RebuildResult *result, bool human)
{
	JsonWriter	w;

	Begin(&w);
	AddBoolean(&w, "dry_run", result->dry_run);
	AddString(&w, "pool", result->pool);
	AddBoolean(&w, "superblock_restored", result->superblock_restored);
	AddBoolean(&w, "superblock_copy_restored", result->copy_restored);
	AddNumber(&w, "bad_ranges", result->bad_ranges);
	AddBytes(&w, "bad_bytes", result->bad_bytes, human);
	AddBytes(&w, "still_bad_bytes", result->still_bad_bytes, human);
	AddBytes(&w, "cut_off_bytes", result->cut_off_bytes, human);
	AddNumber(&w, "descriptors_formatted", result->formatted);
	AddNumber(&w, "pages_lost", result->lost);
	AddBoolean(&w, "reset", result->reset);
	AddBoolean(&w, "resized", result->resized);
	AddNumber(&w, "old_capacity", result->old_capacity);
	AddNumber(&w, "capacity", result->capacity);
	AddBytes(&w, "cached_data", result->capacity * BLCKSZ, human);
	AddBytes(&w, "file_size", result->file_size, human);
	AddNumber(&w, "pages_moved", result->moved);
	AddNumber(&w, "pages_not_fitting", result->not_fitting);
	if (result->warm_from_files)
		AddWarmResult(&w, "warm_from_files", &result->warm, false);
	else
		AddString(&w, "warm_from_files", NULL);
	if (!result->dry_run)
	{
		AddString(&w, "next_start", NextStartName(result->next_start));
		AddString(&w, "detail", result->next_start == NEXT_START_WARM ?
				  NULL : result->detail);
		AddNumber(&w, "pages_kept", result->kept);
	}
	Finish(&w);
}

static void
AddComparisons(JsonWriter *w, const char *key,
			   const uint64 comparisons[NUM_PAGE_COMPARISONS])
{
	OpenObject(w, key);
	for (int i = 0; i < NUM_PAGE_COMPARISONS; i++)
		AddNumber(w, SnakeCase(PageComparisonName(i)), comparisons[i]);
	CloseObject(w);
}

void
VerifyResultToJson(const VerifyResult *result)
{
	JsonWriter	w;

	Begin(&w);
	AddString(&w, "next_start", NextStartName(result->next_start));
	AddString(&w, "reason",
			  result->reason != NULL ? SnakeCase(result->reason) : NULL);
	AddString(&w, "detail", result->reason != NULL ? result->detail : NULL);
	AddString(&w, "hint", result->hint[0] != '\0' ? result->hint : NULL);
	AddString(&w, "pool", result->pool[0] != '\0' ? result->pool : NULL);
	if (result->scanned)
	{
		AddNumber(&w, "slots", result->slots);
		AddNumber(&w, "saved_pages", result->saved);
		OpenObject(&w, "pages");
		for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
			AddNumber(&w, SnakeCase(PCachePageVerdictName(i)), result->counts[i]);
		CloseObject(&w);
	}
	if (result->compared)
		AddComparisons(&w, "compared", result->comparisons);
	if (result->deep)
	{
		OpenArray(&w, "relations");
		for (int i = 0; i < result->n_relations; i++)
		{
			OpenRelation(&w, &result->relations[i]);
			AddNumber(&w, "dirty", result->relations[i].dirty);
			AddComparisons(&w, "compared", result->relations[i].comparisons);
			CloseObject(&w);
		}
		CloseArray(&w);
	}
	Finish(&w);
}
