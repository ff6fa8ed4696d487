/*-------------------------------------------------------------------------
 *
 * json.c
 *	  The results of pg_pcache's verbs, as JSON.
 *
 * One object, keys in snake_case.  Identifiers of 64 bits are strings, since
 * many readers of JSON would round them; sizes are numbers, or with --human
 * strings, as in ndctl.
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
#include "lib/stringinfo.h"
#include "pg_pcache.h"

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
String(JsonWriter *w, const char *key, const char *value)
{
	Key(w, key);
	if (value != NULL)
		EscapeJson(&w->buf, value);
	else
		appendStringInfoString(&w->buf, "null");
}

static void
Number(JsonWriter *w, const char *key, uint64 value)
{
	Key(w, key);
	appendStringInfo(&w->buf, "%llu", (unsigned long long) value);
}

static void
Boolean(JsonWriter *w, const char *key, bool value)
{
	Key(w, key);
	appendStringInfoString(&w->buf, value ? "true" : "false");
}

static void
Bytes(JsonWriter *w, const char *key, uint64 bytes, bool human)
{
	if (human)
		String(w, key, FormatBytes(bytes, true));
	else
		Number(w, key, bytes);
}

static void
Identifier(JsonWriter *w, const char *key, uint64 value)
{
	String(w, key, psprintf("%llu", (unsigned long long) value));
}

static void
Lsn(JsonWriter *w, const char *key, XLogRecPtr lsn)
{
	String(w, key, psprintf("%X/%X", LSN_FORMAT_ARGS(lsn)));
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

static void
Checkpoint(JsonWriter *w, const char *key, const PCacheCheckpoint *checkpoint)
{
	if (checkpoint->location == 0)
	{
		String(w, key, NULL);
		return;
	}
	OpenObject(w, key);
	Lsn(w, "location", checkpoint->location);
	Lsn(w, "redo", checkpoint->redo);
	Number(w, "timeline", checkpoint->timeline);
	CloseObject(w);
}

void
InitResultToJson(const InitResult *result, bool human)
{
	JsonWriter	w;
	uint64		data_size = result->geometry.capacity * BLCKSZ;

	Begin(&w);
	Boolean(&w, "dry_run", result->dry_run);
	Boolean(&w, "replaced", result->replaced);
	String(&w, "pool", psprintf("%s/%s", result->directory, PCACHE_POOL_FILE));
	String(&w, "symbolic_link", result->link[0] != '\0' ? result->link : NULL);
	String(&w, "file_system", PCacheFsKindName(result->fs_kind));
	Number(&w, "capacity", result->geometry.capacity);
	Bytes(&w, "cached_data", data_size, human);
	Bytes(&w, "file_size", result->geometry.pool_size, human);
	Identifier(&w, "system_identifier", result->system_identifier);
	String(&w, "pool_uuid",
		   result->dry_run ? NULL : FormatUuid(result->pool_uuid));
	OpenObject(&w, "settings");
	String(&w, "persistent_cache_mode", "planned_restart");
	String(&w, "shared_buffers", FormatSetting(data_size));
	CloseObject(&w);
	Finish(&w);
}

void
StatusResultToJson(const StatusResult *result, bool human)
{
	JsonWriter	w;
	const Superblocks *superblocks = &result->superblocks;
	const PCacheSuperblock *sb = &superblocks->chosen;

	Begin(&w);
	Boolean(&w, "server_running", result->server_pid != 0);
	if (result->server_pid != 0)
		Number(&w, "server_pid", result->server_pid);
	else
		String(&w, "server_pid", NULL);
	String(&w, "pool", result->pool.path);
	String(&w, "file_system", PCacheFsKindName(result->pool.fs_kind));
	Bytes(&w, "file_size", result->pool.file_size, human);
	Boolean(&w, "superblock_intact", superblocks->first_intact);
	Boolean(&w, "superblock_copy_intact", superblocks->copy_intact);
	Number(&w, "format_version", sb->format_version);
	String(&w, "pool_uuid", FormatUuid(sb->pool_uuid));
	Identifier(&w, "system_identifier", sb->system_identifier);
	Number(&w, "postgresql_version", sb->pg_major);
	String(&w, "created", FormatTimeUtc(sb->created_at));

	/* in another format version only what is above is where we think */
	if (sb->format_version == PCACHE_FORMAT_VERSION)
	{
		Number(&w, "capacity", sb->capacity);
		Bytes(&w, "cached_data", sb->capacity * sb->block_size, human);
		Number(&w, "slots_used", sb->slots_used);
		String(&w, "state", StateName(sb->state));
		String(&w, "mode", sb->mode != 0 ? ModeName(sb->mode) : NULL);
		String(&w, "incarnation",
			   psprintf("%016llx", (unsigned long long) sb->incarnation));
		String(&w, "cluster_incarnation",
			   result->state_result != PCACHE_STATEFILE_OK ? NULL :
			   psprintf("%016llx",
						(unsigned long long) result->state.incarnation));
		Number(&w, "timeline", sb->timeline);
		Checkpoint(&w, "confirmed_checkpoint", &sb->confirmed);
		Checkpoint(&w, "pending_checkpoint", &sb->pending);
		if (sb->min_recovery_point != 0)
		{
			OpenObject(&w, "min_recovery_point");
			Lsn(&w, "location", sb->min_recovery_point);
			Number(&w, "timeline", sb->min_recovery_point_timeline);
			CloseObject(&w);
		}
		else
			String(&w, "min_recovery_point", NULL);
		Number(&w, "checkpoint_epoch", sb->checkpoint_epoch);
		Number(&w, "data_checksum_version", sb->data_checksum_version);
		Number(&w, "saved_pages", sb->saved_pages);
		String(&w, "saved",
			   sb->saved_at != 0 ? FormatTimeUtc(sb->saved_at) : NULL);
	}
	Finish(&w);
}

void
VerifyResultToJson(const VerifyResult *result)
{
	static const char *const names[] = {
		[NEXT_START_WARM] = "warm",
		[NEXT_START_COLD] = "cold",
		[NEXT_START_UNKNOWN] = "unknown",
	};
	JsonWriter	w;

	Begin(&w);
	String(&w, "next_start", names[result->next_start]);
	String(&w, "reason",
		   result->reason != NULL ? SnakeCase(result->reason) : NULL);
	String(&w, "detail", result->reason != NULL ? result->detail : NULL);
	String(&w, "pool", result->pool[0] != '\0' ? result->pool : NULL);
	if (result->scanned)
	{
		Number(&w, "slots", result->slots);
		Number(&w, "saved_pages", result->saved);
		OpenObject(&w, "pages");
		for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
			Number(&w, SnakeCase(PCachePageVerdictName(i)), result->counts[i]);
		Number(&w, "not_fitting", result->not_fitting);
		CloseObject(&w);
	}
	Finish(&w);
}
