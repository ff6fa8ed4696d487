/*-------------------------------------------------------------------------
 *
 * pcache_power.h
 *	  What survives a loss of power.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_power.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_POWER_H
#define PCACHE_POWER_H

#include "storage/pcache_error.h"
#include "storage/pcache_media.h"

/* What a server runs with, as far as it matters when power is lost. */
typedef struct PCachePowerFacts
{
	PCacheFsKind fs_kind;		/* of the pool */
	PCachePersistenceDomain domain;
	bool		cold_on_media_unknown;
	bool		fsync;
	bool		logs_hints;		/* data checksums or wal_log_hints */
	bool		logs_all;		/* wal_level is not minimal */
} PCachePowerFacts;

extern PCachePowerRule PCachePowerRuleFor(const PCachePowerFacts *facts,
										  PCacheError *why);
extern const char *PCachePowerRuleName(PCachePowerRule rule);

#endif							/* PCACHE_POWER_H */
