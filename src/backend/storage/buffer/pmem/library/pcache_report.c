/*-------------------------------------------------------------------------
 *
 * pcache_report.c
 *	  What the library says in the server's log.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/library/pcache_report.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

void
PCacheReportError(int elevel, const PCacheError *err)
{
	ereport(elevel,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg_internal("%s", err->message),
			 err->hint[0] != '\0' ? errhint_internal("%s", err->hint) : 0));
}

/* Store the superblock, or say in the log why that fails. */
bool
PCacheStoreOrTell(void)
{
	if (PCacheSuperblockStore(&PCacheThePool.map, &PCacheLibrary->superblock))
		return true;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write superblock of persistent cache pool \"%s\": %m",
					PCacheThePool.path)));
	return false;
}

/*
 * Store one of the notes in the pool that are a number each, for the next start.  There
 * must be a pool.  Nothing but its mapping is used: the syslogger, and a backend that only
 * refuses a connection, have given up shared memory, and get here if fsync is switched off.
 */
void
PCacheStoreNote(uint64 offset, uint64 value)
{
	uint64	   *note = (uint64 *) (PCacheThePool.map.base + offset);

	*note = value;
	(void) PCachePersist(&PCacheThePool.map, note, sizeof(*note));
}

/* The reasons why pages were dropped, each with its number; "" if none were. */
static void
ListDropped(StringInfo dropped)
{
	initStringInfo(dropped);
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		if (i == PCACHE_PAGE_KEPT || i == PCACHE_PAGE_FREE || PCacheStart.pages[i] == 0)
			continue;
		appendStringInfo(dropped, "%s%s " UINT64_FORMAT, dropped->len > 0 ? ", " : "",
						 PCachePageVerdictName(i), PCacheStart.pages[i]);
	}
}

/* Warn of what the pool's place does not do. */
static void
LogPlace(void)
{
	const PCacheMediaReport *media = &PCacheStart.media;

	if (PCacheThePool.fs_kind == PCACHE_FS_FILE)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" is an ordinary file on disk",
						PCacheThePool.path),
				 errdetail("The kernel will write changed pages back to it while the server runs."),
				 errhint("Put the pool on persistent memory (fsdax), tmpfs or hugetlbfs.")));
	if (PCacheStart.retired > 0)
		ereport(WARNING,
				(errmsg("persistent cache pool \"%s\" has bad blocks", PCacheThePool.path),
				 errdetail_plural("%u buffer is not used.", "%u buffers are not used.",
								  PCacheStart.retired, PCacheStart.retired)));
	else if (media->blocks == PCACHE_MEDIA_UNKNOWN && PCacheThePool.fs_kind == PCACHE_FS_FSDAX)
		ereport(LOG,
				(errmsg("bad blocks of persistent cache pool \"%s\" are not known: %s",
						PCacheThePool.path, media->blocks_why)));
	if (PCacheStart.power_lost && media->dimms_state == PCACHE_MEDIA_UNKNOWN)
		ereport(LOG,
				(errmsg("persistent cache: it is not known whether DIMMs were shut down safely: %s",
						media->dimms_why)));
	if (pcache_mode == PERSISTENT_CACHE_ALWAYS && PCacheStart.power_cold.message[0] != '\0' &&
		!PCacheFsIsMemory(PCacheThePool.fs_kind))
		ereport(LOG,
				(errmsg("persistent cache: a start after a loss of power will be cold: %s",
						PCacheStart.power_cold.message),
				 errdetail("Pages are kept when processes are killed, and when the server is shut down cleanly."),
				 PCacheStart.power_cold.hint[0] != '\0' ?
				 errhint_internal("%s", PCacheStart.power_cold.hint) : 0));
}

/* Tell how the server starts, and why. */
void
PCacheLogStart(void)
{
	uint64		kept = PCacheStart.pages[PCACHE_PAGE_KEPT];
	StringInfoData dropped;
	PCacheError err;

	LogPlace();
	/* a pool that is there is used with the size that it has */
	if (PCacheSizeDiffers(&PCacheThePool, &PCacheLibrary->superblock, pcache_size, NBuffers, &err))
		PCacheReportError(LOG, &err);
	ListDropped(&dropped);
	if (PCacheStart.verdict.refusal != PCACHE_WARM)
	{
		ereport(LOG,
				(errmsg("persistent cache: starting cold: %s", PCacheStart.verdict.why.message),
				 dropped.len > 0 ? errdetail("Dropped: %s.", dropped.data) : 0,
				 PCacheStart.verdict.why.hint[0] != '\0' ?
				 errhint_internal("%s", PCacheStart.verdict.why.hint) : 0));
		pfree(dropped.data);
		return;
	}
	if (PCacheStart.post_mortem)
		ereport(LOG,
				(errmsg(PCacheStart.power_lost ?
						"persistent cache: power was lost; what was there was checked in %.3f ms" :
						"persistent cache: the server was killed; what it left was judged in %.3f ms",
						PCacheStart.judge_usec / 1000.0)));
	ereport(LOG,
			(errmsg("persistent cache: kept " UINT64_FORMAT " of " UINT64_FORMAT " saved pages in %d slots, rebuilt in %.3f ms (%.0f ns per page), %.3f ms in all",
					kept, PCacheStart.found, NBuffers,
					PCacheStart.rebuild_usec / 1000.0,
					kept == 0 ? 0.0 : PCacheStart.rebuild_usec * 1000.0 / kept,
					PCacheStart.startup_usec / 1000.0),
			 dropped.len > 0 ? errdetail("Dropped: %s.", dropped.data) : 0));
	if (PCacheStart.young > 0)
		ereport(LOG,
				(errmsg("persistent cache: " UINT64_FORMAT " of these pages are younger than the redo point; " UINT64_FORMAT " MB of WAL were read first, in %.3f ms",
						PCacheStart.young, PCacheStart.wal_bytes >> 20,
						PCacheStart.wal_usec / 1000.0)));
	pfree(dropped.data);
}

/* Warn that the server runs with its own buffers, and why. */
void
PCacheLogWithout(void)
{
	const PCacheError *err = &PCacheStart.verdict.why;

	ereport(WARNING,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg_internal("%s", err->message),
			 errdetail("The server starts without the persistent cache."),
			 err->hint[0] != '\0' ? errhint_internal("%s", err->hint) : 0));
}
