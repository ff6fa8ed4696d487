/*-------------------------------------------------------------------------
 *
 * pcache_library.h
 *	  What the files of the library share.
 *
 * The library is preloaded by a server.  Its rules are in
 * src/backend/storage/buffer/pmem/README.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_library.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_LIBRARY_H
#define PCACHE_LIBRARY_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"
#include "storage/buf_internals.h"
#include "storage/pcache_gate.h"

/* The pool has a server's headers as they are in its memory. */
StaticAssertDecl(sizeof(BufferDescPadded) == PCACHE_HEADER_SIZE, "BufferDescPadded");

/* A buffer's tag and what an entry of the ledger says of it are the same bytes. */
StaticAssertDecl(sizeof(BufferTag) == sizeof(PCachePageKey) &&
				 offsetof(BufferTag, forkNum) == offsetof(PCachePageKey, fork_number) &&
				 offsetof(BufferTag, blockNum) == offsetof(PCachePageKey, block_number),
				 "BufferTag");
StaticAssertDecl(offsetof(PCacheDescriptor, block_number) - offsetof(PCacheDescriptor, spc_oid) ==
				 offsetof(PCachePageKey, block_number), "PCacheDescriptor");

/* Settings, see pg_pcache.c */
extern int	pcache_mode;
extern int	pcache_recovery;
extern char *pcache_directory;
extern int	pcache_size;
extern bool pcache_required;
extern int	pcache_on_media_unknown;
extern int	pcache_workers;
extern int	pcache_worker_delay;
extern bool pcache_allow_unknown_minor;

/* the most that pcache.workers can be */
#define PCACHE_MAX_WORKERS	64

/*
 * What processes tell each other, in the server's shared memory.  superblock is
 * what is on media.  The postmaster writes it before there are children and after
 * they are gone, and the worker in between.
 */
typedef struct PCacheLibraryControl
{
	PCacheSuperblock superblock;
	bool		tell_again;		/* the log was not collected yet at the start */

	/* of the records that a shorter recovery may skip; by the startup process */
	uint64		redo_skipped;
	uint64		redo_called;
} PCacheLibraryControl;

/*
 * What the last start has made of the pool.  The postmaster fills it in, and its
 * children inherit it.
 */
typedef struct PCacheLibraryStart
{
	bool		in_use;			/* shared buffers lie in the pool */
	PCacheVerdict verdict;		/* at first as foretold */
	TimestampTz started_at;
	bool		post_mortem;	/* the pool's server was killed */
	bool		power_lost;		/* likewise, because the host was restarted */
	uint64		checked_generation; /* of entries whose sums were found to fit */
	PCacheError power_cold;		/* why the start after a loss of power will be
								 * cold; "" if it may be warm */
	uint64		found;			/* pages that were saved */
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		young;			/* of those that were kept: see
								 * PCacheYoungGate() */
	XLogRecPtr	young_lsn;		/* the last one that they have */
	uint64		wal_bytes;		/* that were read to know where WAL ends */
	uint64		wal_usec;		/* how long that took */
	uint32		retired;		/* slots on bad blocks, never to be used */
	Size		huge_bytes;		/* of the server's segment, in huge pages */
	uint64		startup_usec;
	uint64		rebuild_usec;
	uint64		judge_usec;		/* if post mortem */
	PCacheMediaReport media;
	TimestampTz media_checked;	/* 0: never asked */
} PCacheLibraryStart;

/* What a start goes by, or the answer about the next one. */
typedef struct PCacheLibraryFacts
{
	PCacheSuperblocks superblocks;
	ControlFileData control;
	PCacheMediaReport media;
	PCacheSignals signals;
	PCacheGateFacts gate;		/* with pointers to the above */
} PCacheLibraryFacts;

/* pcache_shared.c */
extern bool PCacheIsPreloaded;	/* PCacheLibrary is NULL until the start */
extern PCachePool PCacheThePool;
extern PCacheLibraryControl *PCacheLibrary;
extern PCacheLibraryStart PCacheStart;
extern BufferDescPadded *PCacheHeadersOf(const PCachePool *pool,
										 const PCacheSuperblock *sb);
extern PCacheDescriptor *PCacheLedgerOf(const PCachePool *pool);
extern uint64 PCacheMicrosecondsSince(instr_time start);

/* pcache_attach.c */
extern void PCacheOpenForServer(void);
extern void PCacheStartServer(void);


/* pcache_memory.c */
extern void PCacheTurnHugePagesOff(void);
extern void PCacheRestoreHugePages(void);
extern void PCacheTurnHugePagesOffAgain(void);
extern Size PCacheArrangeSegment(const PCachePool *pool, const PCacheSuperblock *sb,
								 char *headers, char *blocks);
extern void PCacheGiveHeadersBack(void);
extern void PCacheUncoverReservation(void);

/* pcache_prepare.c */
extern bool PCacheOpenLibraryPool(PCachePool *pool, PCacheError *err);
extern bool PCachePreparePool(PCachePool *pool, PCacheSuperblock *sb, const PCachePlan *plan,
							  PCacheError *err);
extern bool PCacheMakeLarger(PCachePool *pool, PCacheSuperblock *sb, uint64 capacity,
							 const PCacheRangeList *holes, PCacheError *err);

/* pcache_table.c */
extern void PCacheInitializeHeaders(const PCachePool *pool,
									const PCacheSuperblock *sb, uint32 first,
									uint32 n);
extern void PCacheFillTable(const PCachePool *pool, const PCacheSuperblock *sb,
							const PCachePageFacts *facts, uint64 slots_used,
							uint64 *pages);
extern uint32 PCacheRetireSlots(const PCachePool *pool, const PCacheSuperblock *sb,
								const PCacheMediaReport *media);
extern void PCacheUseHeaders(const PCachePool *pool, const PCacheSuperblock *sb);

/* pcache_young.c */
extern void PCacheAllowYoung(const PCacheLibraryFacts *start, PCachePageFacts *facts);
extern bool PCacheTakeYoung(const PCachePool *pool, const PCacheSuperblock *sb,
							const PCachePageFacts *facts, PCachePageVerdict verdict,
							uint32 slot, PCacheDescriptor *entry);
extern bool PCacheWasYoung(const PCachePool *pool, uint32 slot, const BufferTag *tag);

/* pcache_redo.c */
extern void PCacheShortenRedo(void);

/* pcache_detach.c */
extern bool PCacheSavePostMortem(PCachePool *pool, PCacheSuperblock *sb,
								 const ControlFileData *control,
								 const PCacheMediaReport *media,
								 const PCacheRangeList *holes, PCacheError *err);
extern void PCacheSaveAtExit(int code, Datum arg);

/* pcache_watch.c */
extern bool PCacheReadControl(ControlFileData *control);
extern void PCacheNoteStart(const PCacheGateFacts *facts);
extern const ControlFileData *PCacheWatchedControl(void);
extern void PCacheBeginWatch(void);
extern void PCacheWatch(void);
extern void PCacheWaitAndWatch(long milliseconds);

/* pcache_list.c */
extern bool PCacheListPages(const ControlFileData *control, long pause);

/* pcache_check.c */
extern bool PCacheSaveWhatFits(PCachePool *pool, PCacheSuperblock *sb,
							   const ControlFileData *control, PCacheError *err);

/* pcache_death.c */
extern void PCacheNoteCrash(void);
extern void PCacheForgetDeaths(void);
extern void PCacheWatchDeaths(void);

/* pcache_replay.c */
extern void PCacheWatchReplay(void);


/* pcache_server.c */
extern bool PCacheServerHasOwnCache(PCacheError *err);
extern bool PCacheIsLoadedTwice(PCacheError *err);
extern bool PCacheServerIsKnown(PCacheError *err);
extern void PCacheDescribeHeaders(PCacheHeaderLayout *layout);
extern bool PCacheHeadersAreKnown(PCacheError *err);
extern bool PCacheSettingIsPending(const char *name);
extern bool PCacheReadErrorsAreIgnored(void);
extern bool PCacheFilesAreNotSynced(void);
extern void PCacheWatchSettings(void);
extern bool PCacheIsQuery(void);

/* pcache_worker.c */
extern void PCacheRegisterWorker(void);
extern bool PCacheWorkerIsRegistered(PCacheError *err);
extern PGDLLEXPORT void pg_pcache_worker_main(Datum arg);

/* pcache_tell.c */
extern const char *PCacheWhyUnavailable(void);
extern bool PCacheGatherLibraryFacts(const PCachePool *pool,
									 PCacheLibraryFacts *facts, PCacheError *err);
extern void PCacheForgetLibraryFacts(PCacheLibraryFacts *facts);
extern PCachePlan PCacheForetellLibrary(PCacheNextEvent event, PCacheLibraryFacts *facts);
extern void PCacheNextStart(PCacheNextEvent event, PCacheVerdict *verdict);

/* pcache_report.c */
extern void PCacheReportError(int elevel, const PCacheError *err);
extern bool PCacheStoreOrTell(void);
extern void PCacheStoreNote(uint64 offset, uint64 value);
extern void PCacheLogStart(void);
extern void PCacheLogWithout(void);

#endif							/* PCACHE_LIBRARY_H */
