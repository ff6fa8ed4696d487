/*-------------------------------------------------------------------------
 *
 * pcache_gate.h
 *	  What a start looks at, what it makes of that, and how the next one will be.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_gate.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_GATE_H
#define PCACHE_GATE_H

#include "storage/pcache_pool.h"

/* pcache_verdict.c: what a start makes of a pool, and why */

/* The LSN of pages in a GiST index that is being built (GistBuildLSN). */
#define GIST_BUILD_LSN	1

/*
 * What a start makes of the pool.  PCACHE_COLD_* is for what the gates can say: the
 * first one that is shut decides, and the whole pool is dropped; PCachePoolGate() has the
 * order.
 */
typedef enum PCacheRefusal
{
	PCACHE_WARM,
	PCACHE_COLD_NEW,			/* just created, or never used */
	PCACHE_COLD_SUPERBLOCK,
	PCACHE_COLD_VERSION,
	PCACHE_COLD_GEOMETRY,
	PCACHE_COLD_SYSTEM_IDENTIFIER,
	PCACHE_COLD_CUT_OFF,		/* starts that kept pages did not become ready */
	PCACHE_COLD_DIRTY,
	PCACHE_COLD_CONTROL_STATE,
	PCACHE_COLD_TIMELINE,
	PCACHE_COLD_CHECKPOINT,
	PCACHE_COLD_CONTROL_CHANGED,
	PCACHE_COLD_CHECKSUMS,
	PCACHE_COLD_BACKUP_LABEL,
	PCACHE_COLD_RECOVERY_TARGET,
	PCACHE_COLD_POWER,
	PCACHE_COLD_MEDIA,
	PCACHE_COLD_MEDIA_UNKNOWN,
	PCACHE_COLD_WATERMARK,
	PCACHE_COLD_SUSPECT,		/* a process may have overwritten pages */
	PCACHE_COLD_NO_PAGES,		/* there is none that could be kept */
	PCACHE_COLD_HOLE,			/* where the reasons not to believe it are */

	/* PCachePoolGate() says none of these. */
	PCACHE_COLD_PAGES,			/* none of those that there are can be kept */
	PCACHE_COLD_IMAGE,			/* there is none to be loaded */
	PCACHE_UNAVAILABLE,			/* the server starts without the pool */
	PCACHE_OFF,					/* likewise, as it is configured */
	PCACHE_REFUSED,				/* the server does not start */
	PCACHE_UNKNOWN_CONFIGURATION,
	PCACHE_NUM_REFUSALS
} PCacheRefusal;

/*
 * The one answer to "how will the start be?" and "how was it?": of the log, the views
 * and pg_pcache.
 */
typedef struct PCacheVerdict
{
	PCacheRefusal refusal;

	/*
	 * translated; the message is "" when warm, and the hint says what to do,
	 * or what the answer does not consider
	 */
	PCacheError why;
} PCacheVerdict;

/* If the pool cannot be used, the server starts with the buffers that it has anyway. */
static inline PCacheRefusal
PCacheWithoutPool(bool required)
{
	return required ? PCACHE_REFUSED : PCACHE_UNAVAILABLE;
}

/* Is there a pool to be used, be it warm or cold? */
static inline bool
PCacheHasPool(const PCacheVerdict *verdict)
{
	return verdict->refusal < PCACHE_UNAVAILABLE;
}

extern PCacheVerdict PCacheRefuse(PCacheRefusal refusal, const char *fmt,...) pg_attribute_printf(2, 3);
extern const char *PCacheRefusalName(PCacheRefusal refusal);

/* All that the pool gates look at beside the superblock. */
typedef struct PCacheGateFacts
{
	const ControlFileData *control; /* as on disk before this start */
	uint64		file_size;		/* of the pool */
	bool		backup_label;	/* recovery starts from a backup */
	bool		recovery_target;	/* any recovery but a standby's */
	const PCacheMediaReport *media;
	bool		cold_on_media_unknown;	/* pcache.on_media_unknown */
	bool		head_is_lost;	/* see PCachePoolHeadIsLost() */
	PCacheSuspect suspect;		/* died is 0 if no process died of a fault */
	bool		read_errors_ignored;	/* see pcache_server.c */
	uint64		pool_device;	/* which file the pool is */
	uint64		pool_inode;
	uint64		rolled_back_at; /* see pcache_replay.c */
	bool		not_synced;		/* fsync was off */

	/* For pools that are in use after an unclean stop */
	PCacheSighting sighting;	/* number is 0 if there is none */
	uint8		boot_id[PCACHE_UUID_LEN];
} PCacheGateFacts;

/* Files in PGDATA that ask for recovery; standby.signal outweighs the other. */
typedef struct PCacheSignals
{
	bool		backup_label;
	bool		recovery;
	bool		standby;
} PCacheSignals;

/* pcache_facts.c */
#define PCACHE_N_RECOVERY_TARGETS	5
extern const char *const PCacheRecoveryTargets[PCACHE_N_RECOVERY_TARGETS];
extern void PCacheGatherFacts(const PCachePool *pool,
							  const PCacheMediaReport *media,
							  PCacheGateFacts *facts);
extern void PCacheReadSignals(const char *datadir, PCacheSignals *signals);
extern void PCacheSetRecovery(PCacheGateFacts *facts,
							  const PCacheSignals *signals,
							  bool has_target);

/* pcache_gate.c */
extern PCacheVerdict PCacheGeometryGate(const PCacheSuperblock *sb,
										uint64 file_size);
extern PCacheVerdict PCachePoolGate(const PCacheSuperblock *sb,
									const PCacheGateFacts *facts);
extern PCacheVerdict PCacheSuperblocksGate(const PCacheSuperblocks *superblocks,
										   const PCacheGateFacts *facts);
extern PCacheVerdict PCacheEmptyGate(bool was_clean, uint64 found,
									 uint64 kept);

/* pcache_judge.c */

/* Page gates, asked for each slot of a pool that passed the pool gates. */
typedef enum PCachePageVerdict
{
	PCACHE_PAGE_KEPT,
	PCACHE_PAGE_FREE,
	PCACHE_PAGE_CRC,
	PCACHE_PAGE_TAG,
	PCACHE_PAGE_NO_FILE,
	PCACHE_PAGE_BEYOND_EOF,
	PCACHE_PAGE_UNLOGGED,
	PCACHE_PAGE_NO_LSN,
	PCACHE_PAGE_FORK,			/* only pages of main forks have an LSN */
	PCACHE_PAGE_YOUNGER,		/* than the redo point: not known to be synced */
	PCACHE_PAGE_DIRTY,			/* when the server ended */
	PCACHE_PAGE_IN_CHANGE,		/* likewise: locked, or an I/O not finished */
	PCACHE_PAGE_FILE_CHANGED,	/* after the server has ended */
	PCACHE_PAGE_GENERATION,		/* not confirmed for the last checkpoint */
	PCACHE_PAGE_LOST,			/* changed since it was listed, or lost */
	PCACHE_PAGE_FIRST,			/* of an index, which may change without WAL */
	PCACHE_PAGE_BAD_BLOCK,
	PCACHE_PAGE_DUPLICATE,
	PCACHE_PAGE_NOT_FITTING,	/* there are fewer shared buffers, or the
								 * ledger has become larger */
	PCACHE_NUM_PAGE_VERDICTS
} PCachePageVerdict;

extern const char *PCachePageVerdictName(PCachePageVerdict verdict);

typedef struct PCachePageFacts
{
	bool		drop_unlogged;	/* recovery resets unlogged relations */
	uint64		redo;
	bool		all_written;	/* pg_control is that of a shutdown checkpoint */
	uint64		young_up_to;	/* see PCacheYoungGate(); 0 if there is none */
	uint64		generation;		/* of pg_control as it is */
	bool		sums_only;		/* saved entries do not count */
	int64		unchanged_since;	/* both for PCacheRelSizesCreate() */
	bool		only_written;
	struct PCacheRelSizes *sizes;
	const PCacheMediaReport *media;
	uint64		blocks_offset;	/* of slot 0 in the pool, in bytes */
	uint64		file_size;		/* of the pool, in bytes */
	PCacheRangeList holes;		/* in its file, if they are still there */
} PCachePageFacts;

struct PageHeaderData;

extern PCachePageVerdict PCachePageGate(const PCacheDescriptor *desc,
										uint32 slot,
										const PCachePageFacts *facts);
extern bool PCacheYoungGate(const PCacheDescriptor *desc,
							const struct PageHeaderData *page, uint32 slot,
							const PCachePageFacts *facts);
extern int64 PCacheLeastClockOffset(const PCacheSuperblock *sb,
									const PCacheGateFacts *facts);
extern void PCacheSetPageFacts(PCachePageFacts *facts,
							   const PCacheSuperblock *sb,
							   const PCacheGateFacts *gate_facts);

/* pcache_power.c: what survives a loss of power */

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
extern bool PCacheHostRestarted(const PCacheSuperblock *sb,
								const PCacheGateFacts *facts);
extern PCacheVerdict PCachePowerGate(const PCacheSuperblock *sb,
									 const PCacheGateFacts *facts);

/* pcache_foretell.c: how the next start will be */

/* What comes before the start. */
typedef enum PCacheNextEvent
{
	PCACHE_NEXT_NOTHING,		/* the server is down */
	PCACHE_NEXT_RESTART,		/* the running server is shut down cleanly */
	PCACHE_NEXT_RESTART_APART,	/* likewise, but this is not its pool */
	PCACHE_NEXT_CRASH,			/* all its processes die */
	PCACHE_NEXT_CRASH_RESTART,	/* all but the postmaster, which begins anew */
	PCACHE_NEXT_HOST_CRASH,		/* so does the host */
} PCacheNextEvent;

/* The settings of that start. */
typedef struct PCacheNextConfig
{
	uint64		size;			/* pcache.size, in blocks */
	uint64		nbuffers;		/* shared_buffers; 0 if unknown */
	bool		cold_on_media_unknown;
	bool		required;		/* pcache.required */
	int			server_version; /* as PG_VERSION_NUM, 0 if unknown */
	bool		allow_unknown_minor;
} PCacheNextConfig;

/* How many blocks does a new pool get? */
static inline uint64
PCacheNewCapacity(const PCacheNextConfig *config)
{
	return Max(config->size, config->nbuffers);
}

/* What a start does to have a pool with room for shared buffers, before it keeps pages. */
typedef enum PCachePlannedAction
{
	PCACHE_PLAN_USE,			/* the pool is used as it is */
	PCACHE_PLAN_CREATE,
	PCACHE_PLAN_FORMAT,			/* it is made an empty one */
	PCACHE_PLAN_MEND,			/* what the file lacks is allocated, empty */
} PCachePlannedAction;

typedef struct PCachePlan
{
	PCacheVerdict verdict;		/* the rest is for one that has a pool */
	PCachePlannedAction action;
	PCacheFsKind fs_kind;		/* of the place where it is created */
	uint64		capacity;		/* in blocks; more than the pool has if it is
								 * made larger */
} PCachePlan;

extern PCachePlan PCacheForetellMissing(const char *directory,
										const PCacheNextConfig *config,
										const PCacheError *open_error);
extern PCachePlan PCacheForetellPool(const PCachePool *pool,
									 const PCacheSuperblocks *superblocks,
									 const PCacheGateFacts *facts,
									 const PCacheNextConfig *config,
									 PCacheNextEvent event);
extern bool PCacheMinorWillDo(int version, bool allow_unknown, PCacheError *err);
extern bool PCacheWasCutOff(const PCachePool *pool, const PCacheSuperblock *sb,
							uint64 system_identifier, PCacheError *err);
extern bool PCacheMediaWillDo(const PCachePool *pool, const PCacheSuperblock *sb,
							  const PCacheMediaReport *media, uint64 nbuffers,
							  PCacheError *err);

#endif							/* PCACHE_GATE_H */
