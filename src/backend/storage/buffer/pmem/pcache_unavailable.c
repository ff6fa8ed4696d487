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
 *	  src/backend/storage/buffer/pmem/pcache_unavailable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pcache_internal.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pg_shmem.h"
#include "utils/pgstat_internal.h"

bool		persistent_cache_required = false;

/* What the postmaster was told by PCacheStartAgain(), until it has done so. */
static PCacheAgain again = {PCACHE_AGAIN_NOT};

/* Has the start that is under way to go on with a promotion? */
static bool promote_again = false;

/* Why this server runs without its pool; "" if it does not. */
static PCacheError unavailable;

/* The buffers of such a server. */
static void *buffers = NULL;
static Size buffers_size;

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
 * Map shared memory for buffers, in huge pages if they are to be had.
 *
 * PostgreSQL's own shared memory was sized without buffers.  huge_pages = on is
 * taken as "try" here: the administrator has reserved them for the pool.
 */
static char *
MapBuffers(void)
{
	Size		size = NBuffers * (Size) BLCKSZ;
	int			flags = MAP_SHARED | MAP_ANONYMOUS;
	void	   *memory = MAP_FAILED;

#ifdef MAP_HUGETLB
	if (huge_pages != HUGE_PAGES_OFF)
	{
		Size		page_size;
		int			huge_flags;

		GetHugePageSize(&page_size, &huge_flags);
		buffers_size = TYPEALIGN(page_size, size);
		memory = mmap(NULL, buffers_size, PROT_READ | PROT_WRITE,
					  flags | huge_flags, -1, 0);
	}
#endif
	if (memory == MAP_FAILED)
	{
		buffers_size = size;
		memory = mmap(NULL, buffers_size, PROT_READ | PROT_WRITE, flags, -1, 0);
	}
	if (memory == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map %zu MB of shared memory for buffers: %m", size >> 20)));
	buffers = memory;
	return buffers;
}

/* Unmap the buffers of a server without its pool, if there are any. */
void
PCacheUnmapBuffers(void)
{
	if (buffers != NULL)
		munmap(buffers, buffers_size);
	buffers = NULL;
}

/*
 * The postmaster is about to create shared memory.  Is it to do without the pool,
 * because of what the startup process has found?  Then err says why.
 */
bool
PCacheBeginAgain(PCacheError *err)
{
	bool		without = again.how == PCACHE_AGAIN_WITHOUT;

	*err = again.why;
	promote_again = again.how != PCACHE_AGAIN_NOT && again.promote;
	again.how = PCACHE_AGAIN_NOT;
	unavailable.message[0] = '\0';
	PCacheUnmapBuffers();
	return without;
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
	return MapBuffers();
}

/*
 * After a clean stop this start has read the cumulative statistics, and removed
 * their file.  Write it again, for the next start.
 */
static void
SaveStatistics(void)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);

	if (!crc_ok || (control->state != DB_SHUTDOWNED &&
					control->state != DB_SHUTDOWNED_IN_RECOVERY))
		return;
	pgstat_before_server_shutdown(0, 0);
	/* the checkpointer does so as well, if the server is told to stop now */
	pgStatLocal.shmem->is_shutdown = false;
}

/*
 * The start cannot go on as it is, for the reason given.  The postmaster begins
 * again: without the pool if that is what failed, and otherwise cold, since the
 * pool is in state "attaching".
 *
 * Called by the startup process before anybody can connect, and before anything
 * was written on behalf of a new life of the cluster.
 */
void
PCacheStartAgain(PCacheAgainHow how, const PCacheError *why)
{
	/*
	 * What has to do without the pool finds that out before redo, when
	 * pg_control has not changed.  If the server is told to stop now, that is
	 * as if this start had not been tried (PersistentCacheStartGivenUp).
	 */
	if (how == PCACHE_AGAIN_WITHOUT)
	{
		PCacheCtl->given_up = true;
		SaveStatistics();
		if (persistent_cache_required)
			PCacheReportError(FATAL, why);
	}
	PCacheCtl->again.why = *why;
	PCacheCtl->again.promote = PromoteIsTriggered();
	PCacheCtl->again.how = how;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg_internal("%s", why->message),
			 how == PCACHE_AGAIN_WITHOUT ?
			 errdetail("The server begins to start again, without the persistent cache.") :
			 errdetail("The server begins to start again, without the persistent cache's pages."),
			 why->hint[0] != '\0' ? errhint_internal("%s", why->hint) : 0));
	proc_exit(1);
}

/* The same, because a store to the pool has failed; errno says why. */
void
PCacheStartAgainUnwritten(void)
{
	PCacheError err;

	PCacheSetError(&err, _("could not write persistent cache pool \"%s\": %m"),
				   PCacheThePool.path);
	err.hint[0] = '\0';
	PCacheStartAgain(PCACHE_AGAIN_WITHOUT, &err);
}

/*
 * The start before this one has ended in the middle of a promotion, which has
 * taken away the file that asked for it: ask for it again.
 *
 * Called by the startup process before redo.
 */
void
PCachePromoteAgain(void)
{
	FILE	   *file;

	if (!promote_again)
		return;
	file = AllocateFile(PROMOTE_SIGNAL_FILE, "w");
	if (file == NULL || FreeFile(file) != 0)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", PROMOTE_SIGNAL_FILE),
				 errhint("Promote the server again.")));
	else
		raise(SIGUSR2);
}

/*
 * The startup process has ended, or all processes have: is that because the
 * server is to start again?
 *
 * Called by the postmaster.  It believes little of what is in shared memory.
 */
bool
PersistentCacheStartsAgain(void)
{
	if (PCacheCtl != NULL && PCacheCtl->again.how != PCACHE_AGAIN_NOT)
	{
		again = PCacheCtl->again;
		again.why.message[sizeof(again.why.message) - 1] = '\0';
		again.why.hint[sizeof(again.why.hint) - 1] = '\0';
	}
	return again.how != PCACHE_AGAIN_NOT;
}
