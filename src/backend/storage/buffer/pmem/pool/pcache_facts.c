/*-------------------------------------------------------------------------
 *
 * pcache_facts.c
 *	  Gather what the pool gates look at.
 *
 * A start of the server, its answer about the next start, and pg_pcache all
 * gather the same facts in the same way, so that they come to the same
 * verdict.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_facts.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

/* The settings each of which gives recovery a target, unless it is "". */
const char *const PCacheRecoveryTargets[PCACHE_N_RECOVERY_TARGETS] = {
	"recovery_target",
	"recovery_target_lsn",
	"recovery_target_name",
	"recovery_target_time",
	"recovery_target_xid",
};

/* A note that is a number; the largest one if it cannot be read. */
static uint64
ReadNote(int fd, uint64 offset)
{
	uint64		note;

	return PCacheReadExact(fd, &note, sizeof(note), offset) ? note : PG_UINT64_MAX;
}

/*
 * Fill in what an open pool, its media and the host tell.  Control file,
 * recovery and policy are for the caller.
 *
 * facts must be zeroed; it is going to point to media.
 */
void
PCacheGatherFacts(const PCachePool *pool, const PCacheMediaReport *media,
				  PCacheGateFacts *facts)
{
	struct stat st;

	facts->file_size = pool->file_size;
	facts->media = media;
	facts->head_is_lost = PCachePoolHeadIsLost(pool);
	(void) PCacheReadBootId(facts->boot_id);
	PCacheSuspectRead(pool->fd, &facts->suspect);
	if (fstat(pool->fd, &st) == 0)
	{
		facts->pool_device = st.st_dev;
		facts->pool_inode = st.st_ino;
	}
	(void) PCacheReadSighting(pool->fd, &facts->sighting);
	facts->read_errors_ignored = ReadNote(pool->fd, PCACHE_READ_ERRORS_OFFSET) != 0;
	facts->rolled_back_at = ReadNote(pool->fd, PCACHE_ROLLED_BACK_OFFSET);
	facts->not_synced = ReadNote(pool->fd, PCACHE_NOT_SYNCED_OFFSET) != 0;
}

static bool
IsThere(const char *datadir, const char *name)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s", datadir, name);
	return access(path, F_OK) == 0;
}

/*
 * Which files in PGDATA ask for recovery?  Their names are in access/xlog.h,
 * which only the server can include.
 */
void
PCacheReadSignals(const char *datadir, PCacheSignals *signals)
{
	signals->backup_label = IsThere(datadir, "backup_label");
	signals->recovery = IsThere(datadir, "recovery.signal");
	signals->standby = IsThere(datadir, "standby.signal");
}

/*
 * Fill in how the start will recover.  has_target says whether the
 * configuration has a recovery target.
 */
void
PCacheSetRecovery(PCacheGateFacts *facts, const PCacheSignals *signals,
				  bool has_target)
{
	facts->backup_label = signals->backup_label;

	/* a standby follows its primary; anything else picks where to stop */
	facts->recovery_target = signals->standby ? has_target : signals->recovery;
}
