/*-------------------------------------------------------------------------
 *
 * pcache_unavailable.c
 *	  A server that starts without its pool, because it cannot use it.
 *
 * A cache must not cost a start.  So whatever is wrong with the pool, the
 * server starts without it, as an unpatched server would, unless
 * persistent_cache_required is on.  README has the rules, in "A start without
 * the pool".
 *
 * Mostly the postmaster finds out when it opens the pool.  Later the startup
 * process may, when buffers are in the pool already; or it finds that pages which
 * were kept cannot be used after all.  Then it has the postmaster begin again.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/start/pcache_unavailable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/file_perm.h"
#include "miscadmin.h"
#include "storage/pcache_start.h"
#include "storage/pcache_stat.h"
#include "storage/pcache_without.h"
#include "storage/pg_shmem.h"

/* Why this server runs without its pool; "" if it does not. */
static PCacheError unavailable;

/*
 * Why does this server run without its pool, although it is configured?  NULL
 * if it does not.  For any process.
 */
const char *
PersistentCacheUnavailable(void)
{
	return unavailable.message[0] != '\0' ? unavailable.message : NULL;
}

/*
 * The postmaster is about to create shared memory.  Is it to do without the pool,
 * because of what the startup process has found?  Then err says why.
 */
bool
PCacheDoWithout(PCacheError *err)
{
	unavailable.message[0] = '\0';
	PCacheUnmapBuffers();
	return PCacheBeginAgain(err);
}

/*
 * The pool cannot be used, for the reason given: have the server run without it.
 * Returns where its buffers are.
 *
 * record is PGDATA's, or zeros.  locked_by_us says that somebody of this cluster
 * has the pool locked: then the server does not start, because what that process
 * is about to make would be lost.  Nor does it if persistent_cache_required is
 * on, or if there is no memory.
 *
 * Called by the postmaster.  Nobody looks at the pool afterwards.
 */
char *
PCacheRunWithout(const PCacheRecord *record, bool locked_by_us, const PCacheError *why)
{
	PCacheError err = *why;
	PCacheError failure;
	bool		gives_back = PCacheThePool.fd >= 0 &&
		PCachePoolIsOurs(PCachePoolDirectory, record);

	if (persistent_cache_required || locked_by_us || PCachePostmasterInterrupted() ||
		!PCacheMemoryForBuffers(PCachePoolDirectory, NBuffers * (uint64) BLCKSZ,
								huge_pages != HUGE_PAGES_OFF, gives_back, &err))
		PCacheRefuseToStart(&err);
	if (gives_back && !PCachePoolGiveBack(&PCacheThePool, &failure))
		PCacheReportError(LOG, &failure);
	PCachePoolClose(&PCacheThePool);

	ereport(WARNING,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg_internal("%s", err.message),
			 errdetail("The server starts without the persistent cache."),
			 err.hint[0] != '\0' ? errhint_internal("%s", err.hint) : 0));
	unavailable = err;
	PCacheCtl = NULL;
	return PCacheMapBuffers();
}

/*
 * This server runs without the pool, although it may have one: say so in the
 * data directory, durably, before anything in it changes.  Without a record of
 * a pool there is nothing to do.  Called by the startup process.
 *
 * Failing is no reason not to start, since an unpatched server would: then
 * pg_control has to tell.
 */
void
PCacheNoteRunWithout(void)
{
	PCacheRecord record;
	PCacheError err;

	switch (PCacheRecordRead(DataDir, &record, &err))
	{
		case PCACHE_RECORD_MISSING:
			return;
		case PCACHE_RECORD_OK:
			if (record.incarnation == 0)
				return;
			record.incarnation = 0;
			memset(record.image, 0, PCACHE_DIGEST_LEN);
			if (PCacheRecordWrite(DataDir, pg_file_create_mode, &record, &err))
				return;
			break;
		case PCACHE_RECORD_ERROR:
			break;
	}
	ereport(WARNING,
			(errmsg("could not record that the server runs without its persistent cache"),
			 errdetail_internal("%s", err.message)));
}
