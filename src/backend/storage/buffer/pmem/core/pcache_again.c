/*-------------------------------------------------------------------------
 *
 * pcache_again.c
 *	  A start that begins again, because it cannot go on as it is.
 *
 * The startup process says why in shared memory, and ends.  The postmaster then
 * starts another one, without the pool or cold.  README has the rules, in "A start
 * without the pool".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_again.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pcache_core.h"
#include "utils/pgstat_internal.h"

/* What the postmaster was told by PCacheStartAgain(), until it has done so. */
static PCacheAgain again = {PCACHE_AGAIN_NOT};

/* Has the start that is under way to go on with a promotion? */
static bool promote_again = false;

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
		SaveStatistics();
		if (persistent_cache_required)
			PCacheReportError(FATAL, why);
	}
	PCacheCtl->start.again.why = *why;
	PCacheCtl->start.again.promote = PromoteIsTriggered();
	PCacheCtl->start.again.how = how;
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
 * The startup process has ended, or all processes have: is that because the
 * server is to start again?
 *
 * Called by the postmaster.  It believes little of what is in shared memory.
 */
bool
PersistentCacheStartsAgain(void)
{
	if (PCacheCtl != NULL && PCacheCtl->start.again.how != PCACHE_AGAIN_NOT)
	{
		again = PCacheCtl->start.again;
		again.why.message[sizeof(again.why.message) - 1] = '\0';
		again.why.hint[sizeof(again.why.hint) - 1] = '\0';
	}
	return again.how != PCACHE_AGAIN_NOT;
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
	return without;
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
 * Has the startup process ended before it had taken up the pool?  It may have
 * given up, or not have come to the pool, as while restore_command runs.  Then
 * there is nothing to write, in the pool, in data files, or in pg_control.
 *
 * Asked by the checkpointer when the server is stopped, after the startup
 * process is gone.
 */
bool
PersistentCacheStartGivenUp(void)
{
	return PCacheCtl != NULL && PCacheCtl->start.started_at == 0;
}
