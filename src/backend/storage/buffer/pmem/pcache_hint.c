/*-------------------------------------------------------------------------
 *
 * pcache_hint.c
 *	  Changes without WAL of their own that rely on WAL about another page.
 *
 * A kept page has whatever was last in memory.  A change that has no WAL
 * record must therefore not say more than durable WAL does, because nothing
 * takes it back if WAL is lost.  See "Changes without WAL" in README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_hint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/bufmgr.h"
#include "storage/pcache.h"

/*
 * Is all WAL durable that made a heap page what it is?
 *
 * The caller has the buffer pinned, and its content lock at least shared.  We
 * take no other lock that anybody waits for, allocate nothing, and raise no
 * error, so this may be called wherever a hint bit may be set.  During recovery
 * "durable" means up to minRecoveryPoint, as XLogNeedsFlush() has it; nobody
 * uses the answer there, since a standby kills no index entries.
 *
 * Pages of unlogged and temporary tables have no LSN, and count as durable.
 */
bool
PersistentCacheHeapPageIsDurable(Buffer buffer)
{
	return !XLogNeedsFlush(BufferGetLSNAtomic(buffer));
}
