/*-------------------------------------------------------------------------
 *
 * pcache_server.c
 *	  Is this a server that the library knows?
 *
 * The library uses what a server keeps in memory, and that is no interface.  So it
 * does nothing in a server that it was neither compiled for nor tried with.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_server.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "postmaster/postmaster.h"
#include "storage/bufmgr.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_library.h"
#include "utils/guc_tables.h"

static int
NumberOf(const char *setting)
{
	return atoi(GetConfigOption(setting, false, false));
}

static struct config_generic *
FindSetting(const char *name)
{
	int			n;
	struct config_generic **settings = PCacheGucVariables(&n);

	for (int i = 0; i < n; i++)
	{
		if (strcmp(settings[i]->name, name) == 0)
			return settings[i];
	}
	return NULL;
}

/*
 * Is this a patched server of release 1.0.0?  Then err says it.  Asked before there are
 * settings: that server takes those of the library for its own.  In a newer one the names
 * of its settings are only other names of the library's.
 */
bool
PCacheServerHasOwnCache(PCacheError *err)
{
	if (FindSetting("persistent_cache_mode") == NULL)
		return false;
	PCacheSetError(err, _("this server has a persistent cache of its own, so the library pg_pcache is not used"));
	PCacheSetHint(err, _("Set \"persistent_cache_mode\", or run an unpatched or a newer server."));
	return true;
}

/*
 * Does another copy of the library, from another file, have the settings already?  It
 * would end the server to define them twice.
 */
bool
PCacheIsLoadedTwice(PCacheError *err)
{
	const struct config_generic *setting = FindSetting("pcache.mode");

	if (setting == NULL || (setting->flags & GUC_CUSTOM_PLACEHOLDER) != 0)
		return false;
	PCacheSetError(err, _("the library pg_pcache is preloaded twice, from two files, and only the first one is used"));
	PCacheSetHint(err, _("Remove it from \"shared_preload_libraries\" if the server preloads it by itself."));
	return true;
}

/*
 * Can the library be used with this server?  Asked before it opens anything.
 */
bool
PCacheServerIsKnown(PCacheError *err)
{
	int			version = NumberOf("server_version_num");

#ifdef EXEC_BACKEND
	return PCacheSetError(err, _("pg_pcache does not work with a server that was built with EXEC_BACKEND"));
#endif
	if (version / 10000 != PG_VERSION_NUM / 10000 || NumberOf("block_size") != BLCKSZ)
	{
		PCacheSetError(err, _("pg_pcache was built for PostgreSQL %d with blocks of %d bytes"),
					   PG_VERSION_NUM / 10000, BLCKSZ);
		return PCacheSetHint(err, _("Install the pg_pcache that belongs to this server."));
	}
	return PCacheMinorWillDo(version, pcache_allow_unknown_minor, err);
}

/*
 * Which bits of an LWLock say that somebody holds it?  They differ between major
 * versions, so a lock of our own tells.  The lowest ones count those who share it, up to
 * the one that is set if it is held exclusively.  Returns 0 if it looks otherwise.
 */
static uint32
LearnLockHeld(void)
{
	LWLock		lock;
	uint32		initial;
	uint32		shared;
	uint32		exclusive;

	LWLockInitialize(&lock, LWTRANCHE_BUFFER_CONTENT);
	initial = pg_atomic_read_u32(&lock.state);
	(void) LWLockConditionalAcquire(&lock, LW_SHARED);
	shared = pg_atomic_read_u32(&lock.state) ^ initial;
	LWLockRelease(&lock);
	(void) LWLockConditionalAcquire(&lock, LW_EXCLUSIVE);
	exclusive = pg_atomic_read_u32(&lock.state) ^ initial;
	LWLockRelease(&lock);
	if (shared != 1 || pg_popcount32(exclusive) != 1 || exclusive < MAX_BACKENDS)
		return 0;
	return exclusive | (exclusive - 1);
}

/* How the headers of this server look, for who judges them when it is dead. */
void
PCacheDescribeHeaders(PCacheHeaderLayout *layout)
{
	memset(layout, 0, sizeof(*layout));
	layout->tag = offsetof(BufferDesc, tag);
	layout->state = offsetof(BufferDesc, state);
	layout->content_lock = offsetof(BufferDesc, content_lock) + offsetof(LWLock, state);
	layout->present = BM_VALID | BM_TAG_VALID;
	layout->dirty = BM_DIRTY;
	layout->in_change = BM_IO_IN_PROGRESS | BM_IO_ERROR | BM_LOCKED;
	layout->permanent = BM_PERMANENT;
	layout->usage_count_mask = BUF_USAGECOUNT_MASK;
	layout->usage_count_one = BUF_USAGECOUNT_ONE;
	layout->lock_held = LearnLockHeld();
}

/*
 * Do the buffer headers that the server has just made look as they should?
 */
bool
PCacheHeadersAreKnown(PCacheError *err)
{
	const int	samples[] = {0, 1, NBuffers / 2, NBuffers - 1};
	uint32		lock_held = LearnLockHeld();

	for (int i = 0; i < lengthof(samples); i++)
	{
		int			slot = samples[i];
		BufferDesc *buf = &BufferDescriptors[slot].bufferdesc;

		if (buf->buf_id != slot || pg_atomic_read_u32(&buf->state) != 0 || lock_held == 0 ||
			(pg_atomic_read_u32(&buf->content_lock.state) & lock_held) != 0 ||
			buf->freeNext != (slot == NBuffers - 1 ? FREENEXT_END_OF_LIST : slot + 1))
			return PCacheSetError(err, _("the buffer headers of this server are not those of PostgreSQL %s"),
								  PG_VERSION);
	}
	return true;
}

/* Will the setting have another value after a restart? */
bool
PCacheSettingIsPending(const char *name)
{
	const struct config_generic *setting = FindSetting(name);

	return setting != NULL && (setting->status & GUC_PENDING_RESTART) != 0;
}

static const char *const read_error_settings[] = {
	"zero_damaged_pages", "ignore_checksum_failure"
};

/*
 * Somebody has set zero_damaged_pages or ignore_checksum_failure.  Any page that is read
 * from now on may not be what its file has.
 */
static void
NoteReadErrors(bool newval, void *extra)
{
	if (newval && PCacheStart.in_use)
		PCacheStoreNote(PCACHE_READ_ERRORS_OFFSET, true);
}

/*
 * Is one of them on?  The postmaster asks for its own value, which it has read before
 * the library was loaded, and which its children begin with.
 */
bool
PCacheReadErrorsAreIgnored(void)
{
	for (int i = 0; i < lengthof(read_error_settings); i++)
	{
		if (strcmp(GetConfigOption(read_error_settings[i], false, false), "on") == 0)
			return true;
	}
	return false;
}

/*
 * Somebody has set fsync.  Without it, a checkpoint does not mean that files have on disk
 * what was written before.  The postmaster hears of a change before its children do.
 */
static void
NoteFsync(bool newval, void *extra)
{
	if (!newval && PCacheStart.in_use)
		PCacheStoreNote(PCACHE_NOT_SYNCED_OFFSET, true);
}

/* Was fsync off at any time since the start?  There must be a pool. */
bool
PCacheFilesAreNotSynced(void)
{
	return *(const volatile uint64 *) (PCacheThePool.map.base + PCACHE_NOT_SYNCED_OFFSET) != 0;
}

/* Be told when a setting changes; no server has a hook of its own there. */
static void
WatchSetting(const char *name, GucBoolAssignHook hook)
{
	struct config_generic *setting = FindSetting(name);

	if (setting != NULL && setting->vartype == PGC_BOOL)
		((struct config_bool *) setting)->assign_hook = hook;
}

/* To be called once, while the server preloads libraries. */
void
PCacheWatchSettings(void)
{
	for (int i = 0; i < lengthof(read_error_settings); i++)
		WatchSetting(read_error_settings[i], NoteReadErrors);
	WatchSetting("fsync", NoteFsync);
}

/*
 * Does this process only print a setting that depends on shared memory ("postgres -C")?
 * It goes on as a server would, up to the point where that is made, and has the server
 * log less, which nobody else sets in this way.
 */
bool
PCacheIsQuery(void)
{
	const struct config_generic *setting = FindSetting("log_min_messages");

	return setting != NULL && setting->source == PGC_S_OVERRIDE;
}
