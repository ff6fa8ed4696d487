/*-------------------------------------------------------------------------
 *
 * pcache_power.c
 *	  What will a start go by if power is lost while the server runs in mode
 *	  always?
 *
 * Asked by each start, which notes the answer in the pool, and by pg_pcache check.  No
 * answer is taken from the platform that it does not give.  Where it is not known what
 * the platform saves, a ledger does no harm: a page is believed by its sum.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_power.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_pool.h"

static PCachePowerRule
Cold(PCacheError *why, const char *message, const char *hint)
{
	PCacheSetError(why, "%s", message);
	if (hint != NULL)
		PCacheSetHint(why, "%s", hint);
	return PCACHE_POWER_COLD;
}

/* The rule, and if that is PCACHE_POWER_COLD, why; otherwise why is empty. */
PCachePowerRule
PCachePowerRuleFor(const PCachePowerFacts *facts, PCacheError *why)
{
	memset(why, 0, sizeof(*why));
	if (PCacheFsIsMemory(facts->fs_kind))
		return Cold(why, _("the pool is in memory, which is lost with the power"), NULL);
	if (facts->fs_kind != PCACHE_FS_FSDAX)
		return Cold(why, _("the pool is an ordinary file, whose pages reach the media in any order"), NULL);
#ifndef USE_LIBPMEM
	return Cold(why, _("pg_pcache was built without libpmem"), NULL);
#endif
	if (!facts->fsync)
		return Cold(why, _("\"fsync\" is off, or was off before a clean stop"), NULL);
	/* a page whose hint was not logged may differ from what its file has */
	if (!facts->logs_hints)
		return Cold(why, _("hint bits are not logged"),
					_("Switch on data checksums or \"wal_log_hints\"."));
	switch (facts->domain)
	{
		case PCACHE_DOMAIN_CPU_CACHE:
			return PCACHE_POWER_HEADERS;
		case PCACHE_DOMAIN_NONE:
			return Cold(why, _("the platform does not save what was flushed to the DIMMs"), NULL);
		case PCACHE_DOMAIN_UNKNOWN:
			if (facts->cold_on_media_unknown)
				return Cold(why, _("it is not known whether the platform saves what was flushed to the DIMMs"), NULL);
			break;
		case PCACHE_DOMAIN_MEMORY_CONTROLLER:
			break;
	}

	/*
	 * relations that are not logged may change without their LSNs, and be
	 * truncated
	 */
	if (!facts->logs_all)
		return Cold(why, _("\"wal_level\" is \"minimal\""), NULL);
	if (!PCacheHasSums())
		return Cold(why, _("pg_pcache was built without libxxhash"), NULL);
	return PCACHE_POWER_LEDGER;
}

/* The name of a rule, for views and JSON. */
const char *
PCachePowerRuleName(PCachePowerRule rule)
{
	switch (rule)
	{
		case PCACHE_POWER_COLD:
			return "cold";
		case PCACHE_POWER_LEDGER:
			return "ledger";
		case PCACHE_POWER_HEADERS:
			return "headers";
	}
	return "unknown";
}
