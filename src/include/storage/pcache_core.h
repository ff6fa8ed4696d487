/*-------------------------------------------------------------------------
 *
 * pcache_core.h
 *	  What the server side of the persistent cache shares among all its files.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_core.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_CORE_H
#define PCACHE_CORE_H

#include <setjmp.h>

#include "storage/buf_internals.h"
#include "storage/pcache.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_memory_error.h"
#include "utils/guc.h"

/* How the postmaster is to start again, see pcache_again.c. */
typedef enum PCacheAgainHow
{
	PCACHE_AGAIN_NOT,
	PCACHE_AGAIN_COLD,
	PCACHE_AGAIN_WITHOUT,		/* the pool */
} PCacheAgainHow;

typedef struct PCacheAgain
{
	PCacheAgainHow how;
	bool		promote;		/* a promotion was under way */
	PCacheError why;
} PCacheAgain;

/*
 * The outcome of the last start.  Written by the postmaster or by the startup
 * process before anybody else looks.
 */
typedef struct PCacheOutcome
{
	/* Why the pool had to be made empty when it was opened, if it had to. */
	PCacheVerdict opened;
	uint64		cut_off;		/* saved pages that the file had lost by then */

	PCacheVerdict verdict;
	TimestampTz started_at;		/* when the pool was taken up; 0: not yet */
	uint64		pages[PCACHE_NUM_PAGE_VERDICTS];
	uint64		kept_dirty;		/* of the pages kept */
	uint64		moved;			/* pages, to slots that stay */
	uint64		startup_usec;	/* spent on all of it */
	uint64		rebuild_usec;	/* of it, on the mapping table and freelist */
	uint32		retired;		/* slots on bad blocks, never to be used */
	PCacheAgain again;			/* said by the startup process before it ends */
} PCacheOutcome;

/*
 * The last answer to PCacheAskMedia(), and what is not to be touched because
 * of it.  Under PersistentCacheLock.
 */
typedef struct PCacheHealth
{
	PCacheMediaSummary media;
	bool		superblock_bad[2];	/* the first one, and its copy */
	bool		suspect_bad;	/* the note of a fault */
	bool		copy_notes_bad; /* the notes of copies */
} PCacheHealth;

/*
 * What pg_control has, as far as this server has written it.  Under
 * ControlFileLock.
 */
typedef struct PCacheControlFile
{
	uint64		updates;		/* 0 before the pool is ours */
	XLogRecPtr	checkpoint;		/* location of the one in pg_control */
	uint64		completed_epoch;	/* that this checkpoint has completed */
} PCacheControlFile;

/* So many processes can explain their deaths, see pcache_crash.c. */
#define PCACHE_MAX_EXPLAINED	1024

/*
 * What all processes know of the pool, in shared memory.  Topics above have
 * structs of their own, which pcache_shmem.c allocates as well.
 *
 * superblock is what the first superblock and its copy on the media say; who
 * changes it holds PersistentCacheLock exclusively and stores it before the
 * lock is released.
 */
typedef struct PersistentCacheControl
{
	PCacheSuperblock superblock;
	PCacheOutcome start;
	PCacheHealth health;
	PCacheControlFile control_file;

	/*
	 * For persistent_cache_mode = always.  attached is set once the startup
	 * process has decided about each slot; the sealer waits for it.  epoch is
	 * bumped by the checkpointer only.
	 */
	pg_atomic_uint64 attached;
	pg_atomic_uint64 epoch;

	/* Deaths that say nothing against shared buffers: signal << 32 | PID. */
	pg_atomic_uint64 explained[PCACHE_MAX_EXPLAINED];
} PersistentCacheControl;

/* Bitmaps have a bit for each buffer, in words of so many. */
#define BITS_PER_WORD	64

/*
 * pcache_shared.c
 *
 * PCacheCtl is NULL, and PCacheThePool.fd is -1, in a server that runs without a
 * pool.
 */
extern PersistentCacheControl *PCacheCtl;
extern PCachePool PCacheThePool;
extern char PCachePoolDirectory[MAXPGPATH];

extern bool PCacheStoreSuperblock(int elevel);
extern void PCacheReportError(int elevel, const PCacheError *err);

static inline PCacheDescriptor *
PCacheGetDescriptor(uint32 slot)
{
	return (PCacheDescriptor *) (PCacheThePool.map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

static inline pg_atomic_uint64 *
PCacheSeq(PCacheDescriptor *desc)
{
	return (pg_atomic_uint64 *) &desc->seq;
}

/* pcache_settings.c; the series declares it in guc_hooks.h in a later step */
extern bool check_persistent_cache_directory(char **newval, void **extra,
											 GucSource source);

/* pcache_kept.c */
extern Size PCacheKeptShmemSize(void);
extern void PCacheKeptShmemInit(void);
extern void PCacheSetKept(int buf_id);
extern void PCacheClearKept(int buf_id);
extern bool PCacheIsKept(int buf_id);
extern uint64 PCacheKeptOf64(int first);

/* pcache_health.c */
extern PCacheMediaReport PCacheMedia;
extern void PCacheCoverBadBlocks(const PCacheMediaReport *report);
extern void PCacheAskMedia(void);
extern void PCacheQueryMedia(void);
extern bool PCacheBlockIsBad(uint32 slot);
extern bool PCacheDescriptorIsBad(uint32 slot);
extern bool PCacheRememberBadDescriptors(void);

/* pcache_crash.c */
extern void PCacheExplainDeath(int signal);
extern void PCacheNoteOwnFault(int signal);

/* pcache_fault.c */
extern void PCacheCatchFaults(void);

/* pcache_sigbus.c */
extern bool PCacheSaving;
extern sigjmp_buf *volatile PCacheMemoryErrorEscape;

/* pcache_numa.c */
extern void PCacheApplyNuma(const PCacheMemoryPlace *place);

/* pcache_copies.c */
extern void PCacheForgetCopies(XLogRecPtr redo);
extern void PCacheSpareCopied(void);

/* pcache_buffers.c */
extern char *PCacheMapBuffers(void);
extern void PCacheUnmapBuffers(void);

/* pcache_again.c */
extern bool PCacheBeginAgain(PCacheError *err);
extern void PCachePromoteAgain(void);
pg_noreturn extern void PCacheStartAgain(PCacheAgainHow how, const PCacheError *why);
pg_noreturn extern void PCacheStartAgainUnwritten(void);

/* pcache_helpers.c */
extern int	PCacheHelpersFor(uint64 nslots);
extern uint32 PCacheClaimSlots(pg_atomic_uint64 *next, uint32 nslots, uint32 n,
							   uint32 *first);

/* pcache_server_facts.c */
extern void PCacheGatherServerFacts(const PCachePool *pool,
									PCacheRecord *record,
									PCacheGateFacts *facts);

#endif							/* PCACHE_CORE_H */
