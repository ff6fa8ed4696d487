/*-------------------------------------------------------------------------
 *
 * pcache_foretell.h
 *	  How will the next start be?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_foretell.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_FORETELL_H
#define PCACHE_FORETELL_H

#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

/* What comes before the start. */
typedef enum PCacheNextEvent
{
	PCACHE_NEXT_NOTHING,		/* the server is down */
	PCACHE_NEXT_RESTART,		/* the running server is shut down cleanly */
	PCACHE_NEXT_RESTART_APART,	/* likewise, but this is not its pool */
	PCACHE_NEXT_CRASH,			/* all its processes die */
	PCACHE_NEXT_HOST_CRASH,		/* so does the host */
} PCacheNextEvent;

/* The settings of that start. */
typedef struct PCacheNextConfig
{
	int			mode;			/* PersistentCacheMode */
	uint64		size;			/* pcache.size, in blocks */
	uint64		nbuffers;		/* shared_buffers; 0 if unknown */
	bool		cold_on_media_unknown;
	bool		required;		/* pcache.required */
	int			server_version; /* as PG_VERSION_NUM, 0 if unknown */
	bool		allow_unknown_minor;
} PCacheNextConfig;

extern void PCacheForetellMissing(const char *directory,
								  const PCacheNextConfig *config,
								  const PCacheError *open_error,
								  PCacheVerdict *verdict);
extern void PCacheForetellPool(const PCachePool *pool,
							   const PCacheSuperblocks *superblocks,
							   const PCacheGateFacts *facts,
							   const PCacheNextConfig *config,
							   PCacheNextEvent event,
							   PCacheVerdict *verdict);
extern void PCacheForetellWithout(const PCacheNextConfig *config,
								  PCacheVerdict *verdict);
extern bool PCacheMinorWillDo(int version, bool allow_unknown, PCacheError *err);
extern bool PCacheWasCutOff(const PCachePool *pool, const PCacheSuperblock *sb,
							uint64 system_identifier, PCacheError *err);
extern bool PCacheMediaWillDo(const PCachePool *pool, const PCacheSuperblock *sb,
							  const PCacheMediaReport *media, uint64 nbuffers,
							  bool always, PCacheError *err);
extern PCacheVerdict PCacheCutOffGate(const PCachePool *pool, const PCacheSuperblock *sb,
									  uint64 system_identifier,
									  const PCacheVerdict *verdict);
extern void PCacheSetUnusableMedia(const PCachePool *pool, PCacheError *err);
extern void PCacheSetTooSmall(const PCachePool *pool, uint64 capacity,
							  uint64 nbuffers, const PCacheError *why,
							  PCacheError *err);

#endif							/* PCACHE_FORETELL_H */
