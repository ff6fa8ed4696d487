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
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_power.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_gate.h"

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
	static const char *const names[] = {
		[PCACHE_POWER_COLD] = "cold",
		[PCACHE_POWER_LEDGER] = "ledger",
		[PCACHE_POWER_HEADERS] = "headers",
	};

	return PCacheNameOf(names, rule);
}

static const PCacheVerdict warm = {PCACHE_WARM};

/* Was the host restarted since the pool was in use? */
bool
PCacheHostRestarted(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	return PCacheBootIsAnother(sb->fs_kind, sb->boot_id, facts->boot_id);
}

/* Did the memory below the pool survive what the host went through? */
static PCacheVerdict
GatePower(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	char		why[256];

	if (!PCacheHostRestarted(sb, facts))
		return warm;
	if (sb->fs_kind != PCACHE_FS_FSDAX)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the pool was not on persistent memory"));
	if (facts->media->domain == PCACHE_DOMAIN_NONE)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the platform does not save what was flushed to the DIMMs"));
	if (facts->media->domain == PCACHE_DOMAIN_UNKNOWN && facts->cold_on_media_unknown)
		return PCacheRefuse(PCACHE_COLD_MEDIA_UNKNOWN,
							_("it is not known whether the platform saves what was flushed to the DIMMs"));
	switch (PCacheMediaCompareDimms(sb, facts->media, why, sizeof(why)))
	{
		case PCACHE_MEDIA_CLEAN:
			break;
		case PCACHE_MEDIA_UNKNOWN:
			if (facts->cold_on_media_unknown)
				return PCacheRefuse(PCACHE_COLD_MEDIA_UNKNOWN,
									_("it is not known whether the DIMMs were shut down safely: %s"), why);
			break;
		case PCACHE_MEDIA_BAD:
			return PCacheRefuse(PCACHE_COLD_POWER,
								_("the DIMMs were not shut down safely: %s"), why);
	}
	return warm;
}

/* There is nothing to go by.  Say why, as far as it still shows. */
static PCacheVerdict
RefuseWithoutRule(const PCacheSuperblock *sb, const PCacheGateFacts *facts, bool logs_hints)
{
	PCachePowerFacts power = {
		.fs_kind = sb->fs_kind,
		.domain = facts->media->domain,
		.cold_on_media_unknown = facts->cold_on_media_unknown,
		.fsync = true,
		.logs_hints = logs_hints,
		.logs_all = facts->control->wal_level != 0,
	};
	PCacheError why;

	if (PCachePowerRuleFor(&power, &why) == PCACHE_POWER_COLD)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the server was not shut down cleanly (%s)"),
							why.message);
	return PCacheRefuse(PCACHE_COLD_POWER,
						_("the host was restarted, and the server was not shut down cleanly"));
}

/* The server was in use when power was lost.  Is there something to go by? */
PCacheVerdict
PCachePowerGate(const PCacheSuperblock *sb, const PCacheGateFacts *facts)
{
	const ControlFileData *control = facts->control;
	bool		logs_hints = control->data_checksum_version != 0 || control->wal_log_hints;

	if (sb->power_rule == PCACHE_POWER_COLD)
		return RefuseWithoutRule(sb, facts, logs_hints);
	if (facts->not_synced)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and files may not have been synced, because \"fsync\" was off"));
	/* a hint that is not logged may be missing in the file */
	if (!logs_hints)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and hint bits were not logged"));
	if (sb->power_rule == PCACHE_POWER_HEADERS && facts->media->domain != PCACHE_DOMAIN_CPU_CACHE)
		return PCacheRefuse(PCACHE_COLD_POWER,
							_("the host was restarted, and the platform does not say any more that it saves the CPU caches"));
	return GatePower(sb, facts);
}
