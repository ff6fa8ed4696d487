/*-------------------------------------------------------------------------
 *
 * test_protocol_startstop.c
 *	  Start and shutdown, cut off at any store: by the death of the process,
 *	  and by a power cut.
 *
 * test_protocol.c is about marks and seals while the server runs; this is
 * about what comes before and after.  The code under test is included below,
 * as it is: PersistentCacheShmemInit() with all that opens, mends and formats
 * a pool, PersistentCacheStartup(), PersistentCacheReachedConsistency(),
 * PersistentCacheShutdown(), and SealQueued() before the latter.  The rest of
 * the server is played by functions here.
 *
 * There is one actor.  The only concurrency of start and shutdown are helpers, and
 * the helper of a save does all its work here before the checkpointer goes on.
 * The actor stops after each store in turn.  What the code under test stores between
 * two calls is split into stores of 8, 16 or 32 bytes, from the first to the
 * last or the other way round, as a compiler or memcpy() may do.  The stores
 * to seq, which are atomic, are steps of their own.
 *
 * Death of the process: the next start finds what was stored until then.
 * Power cut: of each cache line the media have a version between the one that
 * was last flushed and drained and the last one; lines are independent.  The
 * parts of a superblock count as lines of 1 kB, since its CRC covers it all.
 *
 * The judge is the next start's: the real gates.  A page that they keep must
 * be, in every image, what the page is by then, and if it is kept as clean its
 * file must have it.  After a kill the next start runs, too, and is cut off
 * at each of its stores, on the lines as the first one left them: what was
 * not flushed then still is not.
 *
 * Each rule of the order of stores is broken at last, see mutants[].
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_protocol_startstop.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "access/rmgr.h"
#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecord.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/catversion.h"
#include "catalog/pg_tablespace_d.h"
#include "common/controldata_utils.h"
#include "common/file_perm.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "port/pg_crc32c.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pcache_allocate.h"
#include "storage/pcache_file.h"
#include "storage/pcache_find.h"
#include "storage/pcache_format.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_start.h"
#include "storage/pcache_stop.h"
#include "storage/pcache_without.h"
#include "storage/proc.h"
#include "storage/procnumber.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sync.h"
#include "utils/injection_point.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "unit.h"
#include "unit_server.h"

/* ------------------------------------------------------------------------
 * The code under test
 * ------------------------------------------------------------------------
 */

static void HookSeqStore(uint64 *seq, uint64 value);
static void HookAtomicWrite(volatile pg_atomic_uint64 *ptr, uint64 value);
static bool HookCas(volatile pg_atomic_uint64 *ptr, uint64 *expected, uint64 value);
static void HookPayload(void *dest, const void *src, size_t len);
static pid_t HookFork(void);
static pid_t HookWait(pid_t pid, int *status, int options);
static ssize_t HookPread(int fd, void *buf, size_t len, off_t offset);
static int	HookFallocate(int fd, off_t offset, off_t len);
static int	HookTruncate(int fd, off_t len);
static int	HookStatvfs(int fd, struct statvfs *vfs);
static int	HookStat(int fd, struct stat *st);
static time_t HookTime(void);

/* what is replaced stays there, under another name */
extern PCacheOpenResult RealPoolOpen(const char *directory, PCacheOpenMode mode,
									 PCachePool *opened, PCacheError *err);
extern bool RealUseHugePages(PCachePool *opened);
extern bool RealMayFormat(const PCachePool *opened, const PCacheRecord *record,
						  PCacheError *err);
extern bool RealWitnessMatches(const PCacheWatermark *watermark,
							   uint32 segment_size, PCacheError *err);
extern void RealMovePages(const PCachePageFacts *facts, uint64 slots_used);
extern bool RealWatermarkFromDisk(PCacheWatermark *watermark, uint32 timeline,
								  uint64 flushed, uint32 segment_size);

#undef memcpy
#undef pg_pread
#define pg_pread HookPread
#define posix_fallocate HookFallocate
#define ftruncate HookTruncate
#define fstatvfs HookStatvfs
#define fstat HookStat
#define PCachePoolOpen RealPoolOpen
#define PCachePoolUseHugePages RealUseHugePages
#define PCachePoolMayFormat RealMayFormat
#include "pcache_allocate.c"
#include "pcache_error.c"
#include "pcache_facts.c"
#include "pcache_pool.c"
#include "pcache_format.c"
#undef PCachePoolOpen
#undef PCachePoolUseHugePages
#undef PCachePoolMayFormat
#include "pcache_superblock.c"

#define PCacheWitnessMatches RealWitnessMatches
#define PCacheWatermarkFromDisk RealWatermarkFromDisk
#include "pcache_witness.c"
#undef PCacheWitnessMatches
#undef PCacheWatermarkFromDisk

#define __atomic_store_n(ptr, value, order) HookSeqStore(ptr, value)
#define memcpy HookPayload
#include "pcache_descriptor.c"
#undef memcpy
#undef __atomic_store_n

#define pg_atomic_write_u64 HookAtomicWrite
#define pg_atomic_compare_exchange_u64 HookCas
#include "pcache_kept.c"
#include "pcache_mark.c"
#include "pcache_queue.c"
#include "pcache_retag.c"
#include "pcache_untrusted.c"
#include "pcache_describe.c"
#include "pcache_shared.c"
#include "pcache_settings.c"
#include "pcache_helpers.c"
#include "pcache_sealer.c"
#include "pcache_watermark.c"
#define time(ptr) HookTime()
#include "pcache_checkpoint.c"
#undef time
#include "pcache_copies.c"
#include "pcache_recovery.c"
#include "pcache_open.c"
#include "pcache_shmem.c"
#include "pcache_giveup.c"
#undef PCACHE_SLOTS_PER_CHECK
#define PCACHE_SLOTS_PER_CHECK	4
#undef PCACHE_SLOTS_PER_CHUNK
#define PCACHE_SLOTS_PER_CHUNK	4
#define MAX_CLAIMED				400
#include "pcache_mapping.c"
#include "pcache_rebuild.c"
#define MOVES_PER_DRAIN	2
#define PCacheMovePages RealMovePages
#include "pcache_move.c"
#undef PCacheMovePages
/* no two slots may have the same page, after which the pool is not kept */
static void TwoSlots(void);
#define PCacheKeepPool() (TwoSlots(), PCacheKeepPool())
#include "pcache_unseal.c"
#undef PCacheKeepPool
#include "pcache_startup.c"
#include "pcache_shutdown.c"
#include "pcache_save.c"
#include "pcache_scrub.c"
#define fork_process HookFork
#define waitpid HookWait
#include "pcache_save_helpers.c"
#undef fork_process
#undef waitpid
#undef pg_atomic_write_u64
#undef pg_atomic_compare_exchange_u64

/* ------------------------------------------------------------------------
 * Mutants
 * ------------------------------------------------------------------------
 */

typedef enum Mutant
{
	M_NONE,
	M_STORE_SEQ_FIRST,
	M_STORE_NOT_ODD,
	M_STORE_PAST_CACHE,
	M_STORE_EQUAL_NO_FLUSH,
	M_SAVE_NO_PAGE_FLUSH,
	M_SAVE_NO_PAGE_DRAIN,
	M_SAVE_NO_DESC_FLUSH,
	M_SAVE_NO_DESC_DRAIN,
	M_SUPERBLOCK_NO_DRAIN,
	M_SUPERBLOCK_UNSURE,
	M_ADOPT_NOT_STORED,
	M_UNSEAL_NO_FLUSH,
	M_UNSEAL_ODD_NO_FLUSH,
	M_UNSEAL_NO_DRAIN,
	M_WATERMARK_NO_PERSIST,
	M_CONTROL_NO_PENDING,
	M_CONTROL_NO_CONFIRMED,
	M_EPOCH_EARLY,
	M_RESTORE_ODD_NO_FLUSH,
	M_RESTORE_NO_FLUSH,
	M_RESTORE_NO_DRAIN,
	M_REFORMAT_NOT_MARKED,
	M_MOVE_NO_PAGE_FLUSH,
	M_MOVE_NO_DESC_FLUSH,
	M_MOVE_NO_DRAIN,
	M_MOVE_SOURCE_SEALED,
	M_MOVE_EARLY,
	M_MOVE_EARLY_NO_DRAIN_1,
	M_MOVE_EARLY_NO_DRAIN_2,
	M_MOVE_EARLY_NO_DRAIN_3,
	N_MUTANTS
} Mutant;

typedef enum Expected
{
	HARMLESS,					/* no violation at all */
	WRONG_PAGE,					/* a page is kept that must not be */
	NO_SUPERBLOCK,				/* neither the first one nor the copy is
								 * intact */
	DAMAGED,					/* a descriptor looks damaged, and is not */
	REFUSED,					/* pg_control is the server's own, and is
								 * refused */
	TWICE,						/* a page is in two slots, and both are
								 * believed */
} Expected;

static const struct
{
	const char *what;
	Expected	expected;
}			mutants[N_MUTANTS] = {
	[M_NONE] = {"the code as it is", HARMLESS},
	[M_STORE_SEQ_FIRST] = {"descriptor: final seq before the payload", WRONG_PAGE},
	/* in this mode it is only the CRC that saves us */
	[M_STORE_NOT_ODD] = {"descriptor: payload under an even seq", DAMAGED},
	[M_STORE_PAST_CACHE] = {"descriptor: stored past the CPU cache, in any order", WRONG_PAGE},
	[M_STORE_EQUAL_NO_FLUSH] = {"descriptor: not flushed if it is there already", WRONG_PAGE},
	[M_SAVE_NO_PAGE_FLUSH] = {"shutdown: pages not flushed", WRONG_PAGE},
	[M_SAVE_NO_PAGE_DRAIN] = {"shutdown: no drain between pages and descriptors", WRONG_PAGE},
	[M_SAVE_NO_DESC_FLUSH] = {"shutdown: descriptors not flushed", WRONG_PAGE},

	/*
	 * unless one of them is bad, each superblock is drained before the other
	 * one is stored
	 */
	[M_SAVE_NO_DESC_DRAIN] = {"shutdown: no drain between descriptors and superblock", HARMLESS},
	[M_SUPERBLOCK_NO_DRAIN] = {"superblock: no drain before the copy", NO_SUPERBLOCK},
	[M_SUPERBLOCK_UNSURE] = {"superblock: what a dead process stored taken for durable", NO_SUPERBLOCK},
	/* the halves begin anew, and are two lines; a pool in use must agree */
	[M_ADOPT_NOT_STORED] = {"start: not durably \"attaching\"", REFUSED},
	[M_UNSEAL_NO_FLUSH] = {"start: slots not kept are made odd, not flushed", WRONG_PAGE},
	[M_UNSEAL_ODD_NO_FLUSH] = {"start: slots that are odd already not flushed", WRONG_PAGE},
	/* PCacheResetWatermark() drains before any slot is used */
	[M_UNSEAL_NO_DRAIN] = {"start: no drain after they are made odd", HARMLESS},
	/* nothing here flushes WAL; see tests/powercut/README, start-watermark */
	[M_WATERMARK_NO_PERSIST] = {"start: watermark not flushed", HARMLESS},
	[M_CONTROL_NO_PENDING] = {"pg_control: written before the pending half is durable", REFUSED},
	/* then the pending half counts, until it is that of the next update */
	[M_CONTROL_NO_CONFIRMED] = {"pg_control: confirmed half not made durable", REFUSED},
	[M_EPOCH_EARLY] = {"pg_control: old redo point with the epoch of a checkpoint under way", WRONG_PAGE},
	[M_RESTORE_ODD_NO_FLUSH] = {"file cut off: slots that are odd already not flushed", WRONG_PAGE},
	[M_RESTORE_NO_FLUSH] = {"file cut off: slots made free, not flushed", WRONG_PAGE},
	[M_RESTORE_NO_DRAIN] = {"file cut off: no drain before it is extended", WRONG_PAGE},
	[M_REFORMAT_NOT_MARKED] = {"file cut off, formatted: not \"empty\" before it is extended", WRONG_PAGE},
	[M_MOVE_NO_PAGE_FLUSH] = {"fewer slots: pages that were moved not flushed", WRONG_PAGE},
	[M_MOVE_NO_DESC_FLUSH] = {"fewer slots: descriptors not flushed", WRONG_PAGE},

	/*
	 * the pool is "attaching", and each store of a superblock begins with a
	 * drain
	 */
	[M_MOVE_NO_DRAIN] = {"fewer slots: no drain at all", HARMLESS},
	[M_MOVE_SOURCE_SEALED] = {"fewer slots: where the page was is not made free", TWICE},
	/* without that state the order is needed; at worst both slots are dropped */
	[M_MOVE_EARLY] = {"fewer slots: pages moved before the pool is \"attaching\"", TWICE},
	[M_MOVE_EARLY_NO_DRAIN_1] = {"the same, no drain before the page is copied", WRONG_PAGE},
	[M_MOVE_EARLY_NO_DRAIN_2] = {"the same, no drain before its descriptor is stored", WRONG_PAGE},
	[M_MOVE_EARLY_NO_DRAIN_3] = {"the same, no drain after its descriptor is stored", TWICE},
};

static Mutant mutant;

/* ------------------------------------------------------------------------
 * Media and world
 * ------------------------------------------------------------------------
 */

#define N_SLOTS			6
#define FEW_SLOTS		3		/* that some starts have */
#define N_TAGS			12
#define UNLOGGED_TAG	5		/* this one is of an unlogged relation */
#define FIRST_REL		16384

#define LINE			PCACHE_CACHE_LINE
#define SB_PART			1024
#define SB_PARTS		(PCACHE_SUPERBLOCK_SIZE / SB_PART)
#define CONTENTS_AT		4096	/* in the page */
#define POOL_SIZE		(3 * PCACHE_ALIGNMENT)
#define BLOCKS_AT		(2 * PCACHE_ALIGNMENT)
#define QUEUE_WORDS		3

/* lines that are followed */
#define FIRST_SB		0
#define COPY_SB			SB_PARTS
#define WATERMARK		(2 * SB_PARTS)
#define CONTROL(half)	(WATERMARK + 1 + (half))
#define DESCRIPTOR(slot) (CONTROL(2) + (slot))
#define HEADER(slot)	(DESCRIPTOR(N_SLOTS) + 2 * (slot))
#define CONTENTS(slot)	(HEADER(slot) + 1)
#define N_LINES			HEADER(N_SLOTS)

#define MAX_VERSIONS	48

typedef struct Line
{
	uint64		offset;			/* in the pool */
	int			len;
	int			n;
	int			flushed;		/* version that waits for a drain */
	char	   *versions[MAX_VERSIONS]; /* [0] is certain to be on the media */
} Line;

static char pool[POOL_SIZE] __attribute__((aligned(4096)));
static Line lines[N_LINES];
static char version_space[N_LINES][MAX_VERSIONS][SB_PART] __attribute__((aligned(64)));

/* What a page says.  All have the same LSN, as pages that are logged together do. */
#define PAGE_LSN		UINT64CONST(0x500)
#define CHECKPOINT_LSN	UINT64CONST(0x1000)

/* Whatever outlives the server, but for the pool. */
static struct
{
	uint64		file_size;
	uint64		contents[N_TAGS];	/* what the page is, by file and WAL */
	uint64		files[N_TAGS];
	uint64		next_contents;
	ControlFileData control;
	bool		have_record;
	PCacheRecord record;
	uint8		boots;
	uint64		randoms;
	uint64		cut_at;			/* the file was cut off there */
}			world;

/* The server's memory. */
static struct
{
	BufferDescPadded buffers[N_SLOTS];
	char		shared[64 * 1024] pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	int			mapping[N_TAGS];
	PCachePool	pool;
	PCacheDescriptor *descriptors;
}			ram __attribute__((aligned(PG_CACHE_LINE_SIZE)));

static enum
{
	OPENING,
	STARTING,
	RUNNING,
	SEALING,
	STOPPING,
}			phase;
static int	drains;				/* in this phase */
static bool sb_copied;			/* the new superblock is being stored */
static bool descriptor_stored;	/* before it is flushed */
static bool seq_written;		/* UnsealOthers() has changed the one it
								 * flushes */
static bool moving;				/* pages to the slots that stay */
static int	drains_before_moves;
static bool moved_early;		/* by a mutant */

#include "unit_protocol.h"

/* What the server defines elsewhere. */
BackendType MyBackendType = B_STARTUP;
ProcessingMode Mode = NormalProcessing;
bool		IsPostmasterEnvironment = true;
bool		ExitOnAnyError = true;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
bool		PCacheSaving = false;
sigjmp_buf *volatile PCacheMemoryErrorEscape = NULL;
char	   *BufferBlocks = pool + BLOCKS_AT;
BufferDescPadded *BufferDescriptors = ram.buffers;
static char lwlocks[1024 * sizeof(LWLockPadded)] __attribute__((aligned(128)));
LWLockPadded *MainLWLockArray = (LWLockPadded *) lwlocks;
char	   *DataDir = "/nowhere";
int			pg_file_create_mode = 0600;
bool		ArchiveRecoveryRequested = false;
bool		InArchiveRecovery = false;
bool		InRecovery = false;
RecoveryTargetType recoveryTarget = RECOVERY_TARGET_UNSET;
TimeLineID	recoveryTargetTLI = 1;
int			wal_segment_size = 16 * 1024 * 1024;
bool		(*WalIsDrained) (void) = NULL;
void		(*WalDrainHook) (void) = NULL;
bool		enableFsync = true;
PCacheMediaReport PCacheMedia;

static int	store_size;
static bool downwards;			/* the last store of a line first */
static int	step;
static int	cut_at;				/* stop there; 0: do not */
static jmp_buf cut;

static bool helper_fails;
static int	stop_at_check;		/* the start is given up there; 0: it is not */
static bool stopping;			/* ... or was, just now */
static pg_on_exit_callback at_exit;
static jmp_buf given_up;

static uint64 n_cuts;
static char *
Cpu(const Line *line)
{
	return pool + line->offset;
}

static const char *
Last(const Line *line)
{
	return line->versions[line->n - 1];
}

static void
CountStep(void)
{
	step++;
	if (step != cut_at)
		return;
	/* what the code has stored beyond this point has not happened */
	for (int i = 0; i < N_LINES; i++)
		memcpy(Cpu(&lines[i]), Last(&lines[i]), lines[i].len);
	longjmp(cut, 1);
}

/* Take down, store by store, what was stored since the last step. */
static void
NoteStores(void)
{
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];
		int			size = line->len > LINE ? line->len : store_size;
		int			n = line->len / size;

		if (memcmp(Cpu(line), Last(line), line->len) == 0)
			continue;
		for (int k = 0; k < n; k++)
		{
			int			at = (downwards ? n - 1 - k : k) * size;

			if (memcmp(Cpu(line) + at, Last(line) + at, size) == 0)
				continue;
			if (line->n == MAX_VERSIONS)
				fail_msg("MAX_VERSIONS is too small");
			memcpy(line->versions[line->n], Last(line), line->len);
			line->n++;
			memcpy(line->versions[line->n - 1] + at, Cpu(line) + at, size);
			CountStep();
		}
	}
}

static void
Step(void)
{
	NoteStores();
	CountStep();
}

/* ------------------------------------------------------------------------
 * What the code under test calls
 * ------------------------------------------------------------------------
 */

static int
SlotOfDescriptor(const void *addr)
{
	uint64		offset = (const char *) addr - pool;

	if (offset < PCACHE_DESCRIPTORS_OFFSET ||
		offset >= PCACHE_DESCRIPTORS_OFFSET + N_SLOTS * LINE)
		return -1;
	return (offset - PCACHE_DESCRIPTORS_OFFSET) / LINE;
}

static void
HookSeqStore(uint64 *seq, uint64 value)
{
	Step();
	/* the odd one before the payload, and nothing else, is the next number */
	if (mutant == M_STORE_NOT_ODD && value == *seq + 1 && (value & 1) != 0)
		return;
	*seq = value;
	descriptor_stored = true;
	Step();
}

static void
HookPayload(void *dest, const void *src, size_t len)
{
	if (mutant == M_STORE_SEQ_FIRST && phase != SEALING)
	{
		Step();
		memcpy((char *) dest - sizeof(uint64), (const char *) src - sizeof(uint64),
			   sizeof(uint64));
		Step();
	}
	memcpy(dest, src, len);
}

static void
HookAtomicWrite(volatile pg_atomic_uint64 *ptr, uint64 value)
{
	if (SlotOfDescriptor((const void *) ptr) < 0)
	{
		ptr->value = value;
		return;
	}
	Step();
	if (moving && mutant == M_MOVE_SOURCE_SEALED &&
		SlotOfDescriptor((const void *) ptr) >= NBuffers)
		return;
	ptr->value = value;
	seq_written = true;
	Step();
}

static bool
HookCas(volatile pg_atomic_uint64 *ptr, uint64 *expected, uint64 value)
{
	bool		same;

	Step();
	same = ptr->value == *expected;
	if (same)
		ptr->value = value;
	else
		*expected = ptr->value;
	Step();
	return same;
}

static ssize_t
HookPread(int fd, void *buf, size_t len, off_t offset)
{
	Step();
	if (offset >= world.file_size)
		return 0;
	len = Min(len, world.file_size - offset);
	memcpy(buf, pool + offset, len);
	return len;
}

static int
HookStatvfs(int fd, struct statvfs *vfs)
{
	/* one that does not say how large it is */
	memset(vfs, 0, sizeof(*vfs));
	return 0;
}

/* The file has no holes. */
static int
HookStat(int fd, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_blocks = (world.file_size + 511) / 512;
	return 0;
}

/* New parts of the file are zero, in memory and on the media. */
static int
HookFallocate(int fd, off_t offset, off_t len)
{
	Step();
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (line->offset < world.file_size)
			continue;
		memset(Cpu(line), 0, line->len);
		memset(line->versions[0], 0, line->len);
		line->n = 1;
		line->flushed = 0;
	}
	world.file_size = Max(world.file_size, offset + len);
	Step();
	return 0;
}

static int
HookTruncate(int fd, off_t len)
{
	abort();
}

bool
PCacheMap(const char *path, bool volatile_memory, PCacheMapping *mapping)
{
	mapping->base = pool;
	mapping->length = world.file_size;
	mapping->kind = PCACHE_PERSIST_PMEM;
	return true;
}

bool
PCacheUnmap(PCacheMapping *mapping)
{
	Step();
	mapping->base = NULL;
	return true;
}

static void
Flush(const void *addr, size_t len)
{
	uint64		start = (const char *) addr - pool;

	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (line->offset + line->len <= start || line->offset >= start + len)
			continue;
		Step();
		line->flushed = line->n - 1;
	}
}

static void
Drain(void)
{
	Step();
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];
		int			gone = line->flushed;

		if (gone <= 0)
			continue;
		for (int v = gone; v < line->n; v++)
			memcpy(line->versions[v - gone], line->versions[v], line->len);
		line->n -= gone;
		line->flushed = 0;
	}
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	bool		descriptor = SlotOfDescriptor(addr) >= 0;
	bool		was_written = seq_written;
	bool		was_stored = descriptor_stored;

	seq_written = descriptor_stored = false;
	NoteStores();
	if (descriptor && len == LINE && !was_stored && mutant == M_STORE_EQUAL_NO_FLUSH)
		return;
	if (descriptor && phase == STARTING && len == sizeof(uint64) &&
		(mutant == M_UNSEAL_NO_FLUSH ||
		 (mutant == M_UNSEAL_ODD_NO_FLUSH && !was_written)))
		return;
	if (descriptor && moving && mutant == M_MOVE_NO_DESC_FLUSH)
		return;
	if (phase == STOPPING && mutant == (descriptor ? M_SAVE_NO_DESC_FLUSH : M_SAVE_NO_PAGE_FLUSH))
		return;
	if (descriptor && phase == OPENING && len == LINE &&
		world.file_size < POOL_SIZE)
	{
		const Line *line = &lines[DESCRIPTOR(SlotOfDescriptor(addr))];

		if (mutant == M_RESTORE_NO_FLUSH ||
			(mutant == M_RESTORE_ODD_NO_FLUSH && line->n > 1 &&
			 (*(uint64 *) line->versions[1] & 1) != 0 &&
			 ((PCacheDescriptor *) line->versions[1])->version == PCACHE_DESC_VERSION))
			return;
	}
	Flush(addr, len);
}

bool
PCacheDrain(const PCacheMapping *mapping)
{
	drains++;
	Step();
	if (phase == STOPPING && drains == 1 && mutant == M_SAVE_NO_PAGE_DRAIN)
		return true;
	if (phase == STOPPING && drains == 2 && mutant == M_SAVE_NO_DESC_DRAIN)
		return true;
	if (phase == STARTING && mutant == M_UNSEAL_NO_DRAIN)
		return true;
	if (moving && mutant == M_MOVE_NO_DRAIN)
		return true;
	if (moving && mutant >= M_MOVE_EARLY_NO_DRAIN_1 && mutant <= M_MOVE_EARLY_NO_DRAIN_3 &&
		(drains - drains_before_moves - 1) % 3 == mutant - M_MOVE_EARLY_NO_DRAIN_1)
		return true;
	if (phase == OPENING && world.file_size < POOL_SIZE && mutant == M_RESTORE_NO_DRAIN)
		return true;
	Drain();
	return true;
}

bool
PCachePersist(const PCacheMapping *mapping, const void *addr, size_t len)
{
	uint64		offset = (const char *) addr - pool;
	bool		superblock = offset < PCACHE_WATERMARK_OFFSET;

	NoteStores();
	if (superblock && len == PCACHE_SUPERBLOCK_SIZE)
	{
		if (sb_copied ? mutant == M_SUPERBLOCK_NO_DRAIN : mutant == M_SUPERBLOCK_UNSURE)
		{
			Flush(addr, sb_copied ? len : 0);
			return true;
		}
	}
	if (offset == PCACHE_WATERMARK_OFFSET && mutant == M_WATERMARK_NO_PERSIST)
	{
		Drain();
		return true;
	}
	if (offset == PCACHE_CONTROL_OFFSET && len == sizeof(PCacheControlSeen) &&
		mutant == M_CONTROL_NO_PENDING)
		return true;
	if (offset == PCACHE_CONTROL_OFFSET + sizeof(PCacheControlSeen) &&
		mutant == M_CONTROL_NO_CONFIRMED)
		return true;
	Flush(addr, len);
	Drain();
	return true;
}

void
PCacheMovePages(const PCachePageFacts *facts, uint64 slots_used)
{
	moving = true;
	drains_before_moves = drains;
	RealMovePages(facts, slots_used);
	moving = false;
}

/* The pages that would be moved later, by a pool that may still be believed. */
static void
MoveTooEarly(void)
{
	PCachePageFacts facts = {
		.lsn_limit = PG_UINT64_MAX,
		.completed_epoch = PG_UINT64_MAX,
		.drop_unlogged = InRecovery,
		.media = &PCacheMedia,
		.blocks_offset = BLOCKS_AT,
		.file_size = world.file_size,
	};

	if (phase == STARTING && !moved_early && NBuffers < N_SLOTS)
	{
		moved_early = true;
		PCacheMovePages(&facts, N_SLOTS);
	}
}

/* update_controlfile() may take the time a second later. */
static time_t
HookTime(void)
{
	return world.control.time;
}

void
PCacheMemcpyNodrain(const PCacheMapping *mapping, void *dest, const void *src, size_t len)
{
	Step();
	if (len == PCACHE_SUPERBLOCK_SIZE)
	{
		const PCacheSuperblock *sb = src;

		/* what is already in the pool is not the new one yet */
		sb_copied = (const char *) src < pool || (const char *) src >= pool + POOL_SIZE;

		if (mutant >= M_MOVE_EARLY && mutant <= M_MOVE_EARLY_NO_DRAIN_3 && sb->state == PCACHE_STATE_ATTACHING)
			MoveTooEarly();
		if (mutant == M_ADOPT_NOT_STORED && sb->state == PCACHE_STATE_ATTACHING)
			return;
		if (mutant == M_REFORMAT_NOT_MARKED && sb->state == PCACHE_STATE_EMPTY &&
			world.file_size < POOL_SIZE)
			return;
	}
	memcpy(dest, src, len);
	NoteStores();
	if (len != BLCKSZ || mutant != M_MOVE_NO_PAGE_FLUSH)
		Flush(dest, len);
}

void
PCacheStreamNodrain(const PCacheMapping *mapping, void *dest, const void *src, size_t len)
{
	PCacheMemcpyNodrain(mapping, dest, src, len);
}

/* The store of a superblock begins. */
static void
BeginSuperblock(void)
{
	sb_copied = false;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	BeginSuperblock();
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

bool
LWLockIsHeldExclusive(LWLock *lock)
{
	return false;
}

uint32
LockBufHdr(BufferDesc *buf)
{
	uint32		state = buf->state.value | BM_LOCKED;

	buf->state.value = state;
	return state;
}

PCacheOpenResult
PCachePoolOpen(const char *directory, PCacheOpenMode mode, PCachePool *opened,
			   PCacheError *err)
{
	opened->fd = -1;
	opened->map.base = NULL;
	strcpy(opened->path, "pool");
	strcpy(opened->directory, "/directory");
	opened->fs_kind = PCACHE_FS_FSDAX;
	opened->page_size = PCACHE_ALIGNMENT;
	opened->file_size = world.file_size;
	return PCACHE_OPEN_OK;
}

bool
PCachePoolUseHugePages(PCachePool *opened)
{
	return false;
}

PCacheRecordResult
PCacheRecordRead(const char *datadir, PCacheRecord *record, PCacheError *err)
{
	if (!world.have_record)
		return PCACHE_RECORD_MISSING;
	*record = world.record;
	return PCACHE_RECORD_OK;
}

/* It is durable, or it is not there. */
bool
PCacheRecordWrite(const char *datadir, int file_mode,
				  const PCacheRecord *record, PCacheError *err)
{
	Step();
	world.record = *record;
	world.have_record = true;
	Step();
	return true;
}

void
PCacheGatherServerFacts(const PCachePool *opened, PCacheRecord *record,
						PCacheGateFacts *facts)
{
	PCacheError err;

	PCacheGatherFacts(opened, &PCacheMedia, facts);
	if (PCacheRecordRead(DataDir, record, &err) == PCACHE_RECORD_OK)
		facts->record = record;
}

bool
PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN])
{
	memset(boot_id, world.boots, PCACHE_UUID_LEN);
	return true;
}

/* The kernel tells its boots. */
bool
PCacheBootIsAnother(PCacheFsKind kind, const uint8 used[PCACHE_UUID_LEN],
					const uint8 found[PCACHE_UUID_LEN])
{
	return memcmp(used, found, PCACHE_UUID_LEN) != 0;
}

bool
PCacheWasOtherBoot(const PCacheSuperblock *sb)
{
	uint8		now[PCACHE_UUID_LEN];

	(void) PCacheReadBootId(now);
	return PCacheBootIsAnother(sb->fs_kind, sb->boot_id, now);
}

bool
pg_strong_random(void *buf, size_t len)
{
	memset(buf, ++world.randoms & 0xFF, len);
	return true;
}

ControlFileData *
get_controlfile(const char *datadir, bool *crc_ok)
{
	ControlFileData *copy = malloc(sizeof(ControlFileData));

	*copy = world.control;
	*crc_ok = true;
	return copy;
}

uint64
GetSystemIdentifier(void)
{
	return world.control.system_identifier;
}

/* There is one timeline only. */
List *
readTimeLineHistory(TimeLineID targetTLI)
{
	return NIL;
}

TimeLineID
tliOfPointInHistory(XLogRecPtr ptr, List *history)
{
	return 1;
}

/* All WAL is there. */
bool
PCacheWitnessMatches(const PCacheWatermark *watermark, uint32 segment_size,
					 PCacheError *err)
{
	return watermark->witness != 0;
}

bool
PCacheWatermarkFromDisk(PCacheWatermark *watermark, uint32 timeline,
						uint64 flushed, uint32 segment_size)
{
	watermark->flushed = flushed;
	watermark->witness = flushed;
	watermark->witness_hash = flushed * 3;
	watermark->timeline = timeline;
	watermark->crc = PCacheWatermarkCrc(watermark);
	return true;
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	/* each server has the same at the same place */
	static const char *names[16];
	static Size ends[16];
	Size		begin = 0;
	int			i = 0;

	*found = false;
	while (names[i] != NULL && strcmp(names[i], name) != 0)
		begin = ends[i++];
	names[i] = name;
	ends[i] = begin + CACHELINEALIGN(size);
	if (i == lengthof(names) - 1 || ends[i] > sizeof(ram.shared))
		abort();
	return ram.shared + begin;
}

int
BufTableLinkBuffer(int slot, uint32 hash)
{
	int			k = GetBufferDescriptor(slot)->tag.relNumber - FIRST_REL;
	int			twin = ram.mapping[k];

	ram.mapping[k] = slot;
	return twin;
}

/* All buffers are in one chain. */
void
BufTableFilterChain(uint32 hash, bool (*keep) (int slot, void *arg), void *arg)
{
	for (int slot = 0; slot < NBuffers; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		int			k = buf->tag.relNumber - FIRST_REL;

		if ((buf->state.value & BM_TAG_VALID) != 0 && !keep(slot, arg))
			ram.mapping[k] = -1;
	}
}

void
BufTableReset(void)
{
	for (int tag = 0; tag < N_TAGS; tag++)
		ram.mapping[tag] = -1;
}

uint32
BufTableHashCode(BufferTag *tag)
{
	return 0;
}

void
BufTablePopulate(void)
{
}

void
BufTablePrefetch(uint32 hash, bool chain)
{
}

void
InitBufferHeaders(int first, int n)
{
	for (int i = first; i < first + n; i++)
	{
		BufferDesc *buf = GetBufferDescriptor(i);

		assert_int_equal(pg_atomic_read_u32(&buf->state), 0);
		buf->buf_id = i;
		buf->wait_backend_pgprocno = INVALID_PROC_NUMBER;
		buf->freeNext = i + 1 < NBuffers ? i + 1 : FREENEXT_END_OF_LIST;
	}
}

/* What it relies on. */
void
StrategyRebuildFreeList(int nfree)
{
	for (int i = 0; i < NBuffers; i++)
	{
		BufferDesc *buf = GetBufferDescriptor(i);
		uint32		state = pg_atomic_read_u32(&buf->state);

		assert_int_equal(buf->wait_backend_pgprocno, INVALID_PROC_NUMBER);
		if ((state & BM_TAG_VALID) == 0 && BUF_STATE_GET_REFCOUNT(state) == 0)
			nfree--;
		else
			assert_int_equal(buf->freeNext, FREENEXT_NOT_IN_LIST);
	}
	assert_int_equal(nfree, 0);
}

/* All relations are there. */
struct PCacheRelSizes *
PCacheRelSizesCreate(int64 unchanged_since)
{
	return NULL;
}

void
PCacheRelSizesFree(struct PCacheRelSizes *sizes)
{
}

int64
PCacheRelSize(struct PCacheRelSizes *sizes, RelFileLocator rlocator, ForkNumber fork)
{
	return 1000;
}

/* ... and all blocks are fine. */
void
PCacheMediaQuery(const char *path, int fd, PCacheFsKind kind, PCacheMediaReport *report)
{
	memset(report, 0, sizeof(*report));
	report->blocks = PCACHE_MEDIA_CLEAN;
	report->dimms_state = PCACHE_MEDIA_CLEAN;
	report->domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
}

void
PCacheMediaReportFree(PCacheMediaReport *report)
{
}

/*
 * A helper that saves all before the checkpointer comes to it.  There is one
 * processor here, so a drain of the checkpointer is one of the helper, too; that
 * the helper must drain is for tests/tap/t/292_save_helpers.pl to show.
 */
static pid_t
HookFork(void)
{
	return SaveClaims(getppid()) ? 1 : -1;
}

/* It has failed at last, or it has not. */
static pid_t
HookWait(pid_t pid, int *status, int options)
{
	*status = helper_fails ? SIGKILL : 0;
	return pid;
}

void
PersistentCacheChildDied(int pid, int exitstatus)
{
}

void
PCacheQueryMedia(void)
{
	PCacheMediaQuery(NULL, 0, PCACHE_FS_FSDAX, &PCacheMedia);
}

void
PCacheMediaRememberDimms(const PCacheMediaReport *report, PCacheSuperblock *sb)
{
	sb->dimms_state = report->dimms_state;
}

PCacheDimmComparison
PCacheMediaCompareDimms(const PCacheSuperblock *sb, const PCacheMediaReport *now,
						char *why, size_t why_len)
{
	return PCACHE_DIMMS_SAME;
}

bool
PCacheBlockIsBad(uint32 slot)
{
	return false;
}

bool
PCacheDescriptorIsBad(uint32 slot)
{
	return false;
}

bool
PCacheRememberBadDescriptors(void)
{
	return true;
}

bool
PCacheIsInside(const char *path, const char *directory)
{
	return false;
}

const char *
PCacheFsKindName(PCacheFsKind kind)
{
	return "";
}

bool
PCacheFsKindOf(const PCacheDir *dir, int fd, PCacheFsKind *kind, uint64 *page_size)
{
	abort();
}

/* whose it is, is for test_pool.c and test_dir.c */
const char *PCacheDirPgdata;

PCacheDirResult
PCacheDirOpen(const char *path, PCacheDir *dir, PCacheError *err)
{
	abort();
}

void
PCacheDirClose(PCacheDir *dir)
{
	abort();
}

bool
PCacheDirSync(const PCacheDir *dir)
{
	abort();
}

bool
PCacheDirHas(const PCacheDir *dir, const char *name, const struct stat *st)
{
	abort();
}

int
PCacheDirOpenFile(const PCacheDir *dir, const char *name, int flags,
				  const char *path, struct stat *st, PCacheError *err)
{
	abort();
}

bool
PCacheDirHasAllLinks(const PCacheDir *dir, int fd, const char *path,
					 PCacheError *err)
{
	abort();
}

bool
PCachePoolMayFormat(const PCachePool *opened, const PCacheRecord *record,
					PCacheError *err)
{
	return true;
}

void
PCacheFindDirectory(const char *pgdata, const char *configured,
					const PCacheRecord *record, char *directory)
{
	strlcpy(directory, configured, MAXPGPATH);
}

uint64
PCachePoolHeldMemory(const char *directory, bool *huge)
{
	return 0;
}

uint64
PCacheFileSizeLimit(void)
{
	return PG_UINT64_MAX;
}

bool
PCachePoolIsOurs(const char *directory, const PCacheRecord *record)
{
	abort();
}

bool
PCacheKindSurvives(PCacheFsKind kind, const char *path, PCacheError *err)
{
	return true;
}

void
PCacheSetTooSmall(const PCachePool *opened, uint64 capacity, uint64 nbuffers,
				  const PCacheError *why, PCacheError *err)
{
	abort();
}

void
PCacheSetUnusableMedia(const PCachePool *opened, PCacheError *err)
{
	abort();
}

/* The pool can be used, so nobody starts without it, or again. */
bool
PCacheDoWithout(PCacheError *err)
{
	return false;
}

char *
PCacheRunWithout(const PCacheRecord *record, bool locked_by_us, const PCacheError *why)
{
	abort();
}

void
PCacheNoteRunWithout(void)
{
	abort();
}

bool
PersistentCacheStartGivenUp(void)
{
	return PCacheCtl->start.started_at == 0;
}

void
PCachePromoteAgain(void)
{
}

void
PCacheStartAgain(PCacheAgainHow how, const PCacheError *why)
{
	abort();
}

void
PCacheStartAgainUnwritten(void)
{
	abort();
}

/* There are no bad blocks. */
bool
PCacheMediaIsUsable(const PCacheMediaReport *report, bool always)
{
	return true;
}

bool
PCacheDirectoryIsAllowed(const char *pgdata, const char *configured,
						 const char *directory, PCacheError *err)
{
	return true;
}

bool
PCachePoolMayGrow(const PCachePool *opened, uint64 nbuffers, uint64 size,
				  const PCacheMediaReport *media, uint64 *capacity,
				  PCacheError *err)
{
	abort();
}

bool
PCachePoolResize(PCachePool *opened, PCacheSuperblock *sb, PCacheResize *resize,
				 PCacheError *err)
{
	abort();
}

/* All reads end with their process. */
const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	return "";
}

bool
PCacheReadsEndWithProcess(const char *io_method, const char *debug_io_direct,
						  PCacheError *err)
{
	return true;
}

/* shown, and not 0 once the pool is taken up */
TimestampTz
GetCurrentTimestamp(void)
{
	return 1;
}

void
PCacheForetellStart(PCacheNextEvent event, PCacheVerdict *verdict)
{
	verdict->refusal = PCACHE_WARM;
}

bool
PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
					PCacheError *err)
{
	abort();
}

/* nothing to see, or not called */
void
PCacheApplyNuma(const PCacheMemoryPlace *place)
{
}

/* There are no bad blocks. */
void
PCacheCoverBadBlocks(const PCacheMediaReport *report)
{
}

PCacheSealerControl *PCacheSealerCtl;

void
PCacheRoundShmemInit(void)
{
}

uint64
PCacheCountDrains(void)
{
	return 0;
}

void
InjectionPointRun(const char *name, void *arg)
{
}

void
ConditionVariableInit(ConditionVariable *cv)
{
}

/* There are no helpers to tell, and none to wait for. */
void
ConditionVariableBroadcast(ConditionVariable *cv)
{
}

void
ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
}

bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout,
							uint32 wait_event_info)
{
	abort();
}

bool
ConditionVariableCancelSleep(void)
{
	return false;
}

volatile sig_atomic_t postmaster_possibly_dead = false;

void
TerminateBackgroundWorker(BackgroundWorkerHandle *handle)
{
	abort();
}

bool
RegisterDynamicBackgroundWorker(BackgroundWorker *worker,
								BackgroundWorkerHandle **handle)
{
	abort();
}

int
s_lock(volatile slock_t *lock, const char *file, int line, const char *func)
{
	abort();
}

void *
palloc(Size size)
{
	return malloc(size);
}

void
pfree(void *p)
{
	free(p);
}

void *
palloc0(Size size)
{
	return calloc(1, size);
}

void *
palloc_extended(Size size, int flags)
{
	return calloc(1, size);
}

void *
palloc_mul(Size size, Size count)
{
	return calloc(count, size);
}

static void
TwoSlots(void)
{
	Violation(TWICE, "two slots are kept with the same tag");
}

bool
PostmasterIsAliveInternal(void)
{
	return true;
}

void *
palloc0_mul(Size size, Size count)
{
	return calloc(count, size);
}

/* Is the server to be stopped?  The startup process asks in its loops. */
bool
IsStartupShutdownRequested(void)
{
	return stopping;
}

void
ProcessStartupProcInterrupts(void)
{
	stopping = stop_at_check > 0 && --stop_at_check == 0;
	if (stopping)
		proc_exit(1);
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	at_exit = function;
}

/* The pool of a start that was given up is not in use. */
void
CheckPointBuffers(int flags)
{
	fail_msg("buffers are written");
}

void
ProcessSyncRequests(void)
{
}

/* No standby is stopped here, and no memory error is met. */
bool
RecoveryInProgress(void)
{
	return false;
}

void
EmitErrorReport(void)
{
}

void
FlushErrorState(void)
{
}

void
PersistentCacheInitChild(void)
{
}

/* The checkpointer exits right away. */
void
on_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	function(0, arg);
}

bool
PostmasterShutdownRequested(void)
{
	return false;
}

void
proc_exit(int code)
{
	at_exit(code, 0);
	asking = false;
	Step();
	longjmp(given_up, 1);
}

void
initStringInfo(StringInfo str)
{
	memset(str, 0, sizeof(*str));
}

void
appendStringInfo(StringInfo str, const char *fmt,...)
{
}

/* What is logged is nobody's business, but errors must not happen. */
bool
errstart(int elevel, const char *domain)
{
	if (elevel >= ERROR)
		abort();
	return false;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errmsg(const char *fmt,...)
{
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errdetail_plural(const char *fmt_singular, const char *fmt_plural,
				 unsigned long n,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

int
errhint_internal(const char *fmt,...)
{
	return 0;
}

int
errcode(int sqlerrcode)
{
	return 0;
}

int
errcode_for_file_access(void)
{
	return 0;
}

/* ------------------------------------------------------------------------
 * The rest of the server
 * ------------------------------------------------------------------------
 */

static int
TagOf(int slot)
{
	return GetBufferDescriptor(slot)->tag.relNumber - FIRST_REL;
}

static bool
HasPage(int slot)
{
	return (ram.buffers[slot].bufferdesc.state.value & BM_TAG_VALID) != 0;
}

static void
StorePage(int slot, uint64 contents)
{
	char	   *page = pool + BLOCKS_AT + slot * BLCKSZ;

	*(uint64 *) (page + CONTENTS_AT) = contents;
	PageXLogRecPtrSet(((PageHeader) page)->pd_lsn, PAGE_LSN);
	Step();
}

static void
Evict(int slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);

	PersistentCacheMark(slot);
	ram.mapping[TagOf(slot)] = -1;
	ClearBufferTag(&buf->tag);
	buf->state.value &= ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK);
}

/* A page gets into a slot, from its file or by redo. */
static void
Load(int slot, int tag, bool dirty)
{
	BufferDesc *buf = GetBufferDescriptor(slot);

	PersistentCacheRetag(slot, false);
	ram.mapping[tag] = slot;
	SetTag(&buf->tag, tag);
	/* the hotter ones are where there will be no slots */
	buf->state.value |= BM_TAG_VALID | BM_VALID | BUF_USAGECOUNT_ONE * (slot < FEW_SLOTS ? 1 : 3);
	if (tag != UNLOGGED_TAG)
		buf->state.value |= BM_PERMANENT;
	if (dirty)
		buf->state.value |= BM_DIRTY | BM_JUST_DIRTIED;
	StorePage(slot, world.contents[tag]);
}

/* As UpdateControlFile() does. */
static void
WriteControl(ControlFileData *next)
{
	if (mutant == M_EPOCH_EARLY)
		PCacheCtl->control_file.completed_epoch = PCacheCtl->epoch.value;
	PersistentCacheControlPending(next);
	Step();
	next->time++;
	next->crc++;
	world.control = *next;
	Step();
	PersistentCacheControlConfirmed(next);
	Step();
}

/* Its WAL is flushed before anybody relies on it. */
static void
Change(int slot)
{
	int			tag = TagOf(slot);

	PersistentCacheMark(slot);
	world.contents[tag] = ++world.next_contents;
	ram.buffers[slot].bufferdesc.state.value |= BM_DIRTY | BM_JUST_DIRTIED;
	StorePage(slot, world.contents[tag]);
}

/* Somebody else, such as one who moves minRecoveryPoint, updates pg_control. */
static void
UpdateControl(void)
{
	ControlFileData next = world.control;

	next.unloggedLSN++;
	WriteControl(&next);
}

static void
Checkpoint(DBState state)
{
	ControlFileData next;

	PersistentCacheCheckpointStart();
	Step();
	UpdateControl();
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		if ((ram.buffers[slot].bufferdesc.state.value & BM_DIRTY) == 0)
			continue;
		world.files[TagOf(slot)] = world.contents[TagOf(slot)];
		ram.buffers[slot].bufferdesc.state.value &= ~(BM_DIRTY | BM_JUST_DIRTIED);
		Step();
	}
	next = world.control;
	next.state = state;
	next.checkPoint += 0x100;
	next.checkPointCopy.redo = next.checkPoint;
	/* its record is flushed */
	(void) PCacheWatermarkFromDisk(&PCacheWatermarkCtl->written, 1, next.checkPoint + 0x80,
								   wal_segment_size);
	PersistentCacheWalFlushed(next.checkPoint + 0x80, 1);
	WriteControl(&next);
}

static void
OpenServer(void)
{
	/* it is another process */
	remembered = false;
	moving = moved_early = false;
	persistent_cache_workers = 0;
	helper_fails = false;
	stop_at_check = 0;
	memset(&ram, 0, sizeof(ram));
	for (int slot = 0; slot < N_SLOTS; slot++)
		ram.buffers[slot].bufferdesc.buf_id = slot;
	BufTableReset();
	/* who flushed these is dead */
	for (int i = 0; i < N_LINES; i++)
		lines[i].flushed = 0;

	phase = OPENING;
	drains = 0;
	BeginSuperblock();
	memset(&PCacheThePool, 0, sizeof(PCacheThePool));
	PCacheThePool.fd = -1;
	(void) PersistentCacheShmemInit();

	phase = STARTING;
	drains = 0;
	InRecovery = world.control.state != DB_SHUTDOWNED;
}

/* The postmaster, and its startup process until there is consistency. */
static void
StartServer(void)
{
	ControlFileData control;

	OpenServer();
	if (InRecovery)
	{
		/* a relation that is not logged begins anew */
		world.contents[UNLOGGED_TAG] = world.files[UNLOGGED_TAG] = ++world.next_contents;
	}
	PersistentCacheStartup(false);

	phase = RUNNING;
	/* redo gets each page that its file lacks, and changes some */
	for (int tag = 0; InRecovery && tag < N_TAGS; tag++)
	{
		if (world.files[tag] == world.contents[tag] || ram.mapping[tag] >= 0)
			continue;
		for (int slot = 0; slot < NBuffers; slot++)
		{
			if (!HasPage(slot))
			{
				Load(slot, tag, true);
				break;
			}
		}
	}
	for (int slot = 0; slot < NBuffers; slot += 3)
	{
		if (HasPage(slot) && TagOf(slot) != UNLOGGED_TAG)
			Change(slot);
	}
	if (InRecovery)
		Checkpoint(DB_SHUTDOWNED);
	control = world.control;
	control.state = DB_IN_PRODUCTION;
	WriteControl(&control);
	Step();
	PersistentCacheReachedConsistency();
}

/* Give all slots that are free, and one more, other pages. */
static void
UseSlots(void)
{
	if (HasPage(1))
		Evict(1);
	for (int slot = 0; slot < NBuffers; slot++)
	{
		if (HasPage(slot))
			continue;
		for (int tag = N_TAGS - 1; tag >= 0; tag--)
		{
			/* of what redo had no room for, the files are not complete */
			if (ram.mapping[tag] >= 0 || world.files[tag] != world.contents[tag])
				continue;
			Load(slot, tag, false);
			Change(slot);
			break;
		}
	}
	Step();
}

static void
Seal(void)
{
	phase = SEALING;
	SealQueued();
	phase = RUNNING;
}

static void
StartAndUse(void)
{
	StartServer();
	UseSlots();
	if (persistent_cache_mode == PERSISTENT_CACHE_ALWAYS)
		Seal();
}

static void
StopServer(void)
{
	Checkpoint(DB_SHUTDOWNED);
	phase = STOPPING;
	drains = 0;
	PersistentCacheShutdown();
}

/*
 * The startup process is told to exit while it looks at slots, and then the
 * checkpointer.
 */
static void
GiveUpStart(int check)
{
	OpenServer();
	stop_at_check = check;
	stopping = false;
	asking = false;
	if (setjmp(given_up) == 0)
	{
		PersistentCacheStartup(false);
		/* it asks less often if a mutant has made it cold */
		assert_int_not_equal(mutant, M_NONE);
		return;
	}
	phase = STOPPING;
	drains = 0;
	PersistentCacheShutdown();
	Step();
}

static void
GiveUpRebuild(void)
{
	GiveUpStart(1);
}

/* Some slots are unsealed by then. */
static void
GiveUpUnsealing(void)
{
	GiveUpStart(3);
}

/* With fewer slots. */
static void
StartAndUseFew(void)
{
	NBuffers = FEW_SLOTS;
	StartAndUse();
}

/* Some pages are moved by then. */
static void
GiveUpMoving(void)
{
	NBuffers = FEW_SLOTS;
	GiveUpStart(5);
}

/* What the checkpointer does once the shutdown checkpoint is done. */
static void
Save(void)
{
	phase = STOPPING;
	drains = 0;
	PersistentCacheShutdown();
	Step();
}

/* The same with a helper. */
static void
SaveTogether(void)
{
	persistent_cache_workers = 1;
	Save();
}

/* All that it has stored is stored again. */
static void
SaveAnew(void)
{
	helper_fails = true;
	SaveTogether();
}

/* ------------------------------------------------------------------------
 * The judge
 * ------------------------------------------------------------------------
 */

#define MAX_SUPERBLOCKS	64

typedef struct Superblocks
{
	int			n;
	PCacheSuperblock images[MAX_SUPERBLOCKS];
} Superblocks;

static bool power;				/* the power was cut, not only the process */

static int
FirstVersion(const Line *line)
{
	return power ? 0 : line->n - 1;
}

/* All that one of the two superblocks may be: each intact one, and a torn one. */
static void
ListSuperblocks(int first_line, Superblocks *list)
{
	int			v[SB_PARTS];
	bool		torn = false;

	list->n = 0;
	for (int p = 0; p < SB_PARTS; p++)
		v[p] = FirstVersion(&lines[first_line + p]);
	for (;;)
	{
		PCacheSuperblock *sb = &list->images[list->n];
		PCacheError err;
		bool		intact;
		bool		known = false;
		int			p;

		if (list->n == MAX_SUPERBLOCKS - 1)
			fail_msg("MAX_SUPERBLOCKS is too small");
		for (p = 0; p < SB_PARTS; p++)
			memcpy((char *) sb + p * SB_PART, lines[first_line + p].versions[v[p]], SB_PART);
		intact = SuperblockIsIntact(sb, &err);
		for (int k = 0; intact && k < list->n && !known; k++)
			known = memcmp(&list->images[k], sb, sizeof(*sb)) == 0;
		if (intact ? !known : !torn)
			list->n++;
		torn |= !intact;

		for (p = 0; p < SB_PARTS && ++v[p] == lines[first_line + p].n; p++)
			v[p] = FirstVersion(&lines[first_line + p]);
		if (p == SB_PARTS)
			return;
	}
}

static void
JudgePage(int slot, const PCacheDescriptor *desc, const PCachePageFacts *facts)
{
	const Line *header = &lines[HEADER(slot)];
	const Line *contents = &lines[CONTENTS(slot)];
	int			tag = desc->rel_number - FIRST_REL;

	if (tag < 0 || tag >= N_TAGS)
	{
		Violation(WRONG_PAGE, "slot %d: a page of nobody is kept", slot);
		return;
	}
	for (int v = FirstVersion(header); v < header->n; v++)
	{
		if (PageXLogRecPtrGet(((PageHeader) header->versions[v])->pd_lsn) != desc->page_lsn)
			Violation(WRONG_PAGE, "slot %d: page %d is kept with another LSN", slot, tag);
	}
	for (int v = FirstVersion(contents); v < contents->n; v++)
	{
		if (*(uint64 *) contents->versions[v] != world.contents[tag])
			Violation(WRONG_PAGE, "slot %d: page %d is kept with other contents", slot, tag);
	}
	if (!PCachePageIsDirty(desc, facts) && world.files[tag] != world.contents[tag])
		Violation(WRONG_PAGE, "slot %d: page %d is kept as clean, and is not in its file", slot, tag);
}

/* Versions of a descriptor; one that was stored past the cache may be torn. */
static void
JudgeSlot(int slot, const PCachePageFacts *facts)
{
	const Line *line = &lines[DESCRIPTOR(slot)];
	int			first = FirstVersion(line);

	for (int v = first; v < line->n; v++)
	{
		const PCacheDescriptor *desc = (const PCacheDescriptor *) line->versions[v];

		n_images++;
		switch (PCachePageGate(desc, slot, facts))
		{
			case PCACHE_PAGE_KEPT:
				n_kept++;
				JudgePage(slot, desc, facts);
				break;
			case PCACHE_PAGE_CRC:
				/* it may not be the worst that a mutant does */
				if (mutant == M_NONE || mutants[mutant].expected == DAMAGED)
					Violation(DAMAGED, "slot %d: the descriptor looks damaged", slot);
				break;
			default:
				break;
		}
	}
	if (mutant != M_STORE_PAST_CACHE)
		return;
	for (int words = 0; words < 1 << (LINE / sizeof(uint64)); words++)
	{
		PCacheDescriptor torn;

		for (int w = 0; w < LINE / sizeof(uint64); w++)
			((uint64 *) &torn)[w] = ((uint64 *) line->versions[(words >> w) & 1 ? line->n - 1 : first])[w];
		if (PCachePageGate(&torn, slot, facts) == PCACHE_PAGE_KEPT)
			JudgePage(slot, &torn, facts);
	}
}

/* What would the next start keep, by this superblock? */
static void
JudgeSuperblock(const PCacheSuperblock *sb)
{
	const Line *watermark = &lines[WATERMARK];
	const Line *halves = &lines[CONTROL(0)];
	int			first_half[2] = {FirstVersion(&halves[0]), FirstVersion(&halves[1])};
	int			n_half[2] = {halves[0].n - first_half[0], halves[1].n - first_half[1]};
	int			n_seen = n_half[0] * n_half[1];
	PCacheMediaReport media;
	PCacheGateFacts facts = {
		.control = &world.control,
		.record = world.have_record ? &world.record : NULL,
		.file_size = world.file_size,
		.media = &media,
		.recovery_timeline = 1,
	};

	PCacheMediaQuery(NULL, 0, PCACHE_FS_FSDAX, &media);
	memset(facts.boot_id, world.boots + power, PCACHE_UUID_LEN);
	for (int i = FirstVersion(watermark) * n_seen; i < watermark->n * n_seen; i++)
	{
		int			v = i / n_seen;
		int			h[2] = {first_half[0] + i % n_half[0],
		first_half[1] + i % n_seen / n_half[0]};
		PCacheVerdict verdict;
		PCachePageFacts page_facts = {
			.drop_unlogged = world.control.state != DB_SHUTDOWNED,
			.media = &media,
			.blocks_offset = sb->blocks_offset,
			.file_size = world.file_size,
			.host_restarted = power,
		};

		n_images++;
		for (int half = 0; half < 2; half++)
			memcpy(&facts.control_seen[half], halves[half].versions[h[half]], LINE);
		if (!PCacheWatermarkChoose((const PCacheWatermark *) watermark->versions[v],
								   &facts.watermark))
			facts.watermark.flushed = 0;
		verdict = PCachePoolGate(sb, &facts);
		if (verdict.refusal == PCACHE_COLD_CONTROL_CHANGED && sb->state == PCACHE_STATE_DIRTY)
			Violation(REFUSED, "%s", verdict.why.message);
		if (verdict.refusal != PCACHE_WARM)
			continue;
		page_facts.lsn_limit = PCacheLsnLimit(sb, &facts);
		PCacheSetCompleted(&page_facts, sb, &facts);
		for (int slot = 0; slot < Min(sb->slots_used, N_SLOTS); slot++)
		{
			/* what the file lacks reads as zeros */
			if (lines[DESCRIPTOR(slot)].offset < world.file_size)
				JudgeSlot(slot, &page_facts);
		}
	}
}

static void
JudgeCut(void)
{
	static Superblocks first;
	static Superblocks copy;

	n_cuts++;
	ListSuperblocks(FIRST_SB, &first);
	ListSuperblocks(COPY_SB, &copy);
	for (int f = 0; f < first.n; f++)
	{
		for (int c = 0; c < copy.n; c++)
		{
			static PCacheSuperblock chosen;
			PCacheError err;

			if (PCacheSuperblockChoose(&first.images[f], &copy.images[c], &chosen,
									   &err) != PCACHE_SB_NONE)
				JudgeSuperblock(&chosen);
			else
				Violation(NO_SUPERBLOCK, "neither superblock is intact");
		}
	}
}

static void
JudgeBoth(void)
{
	power = false;
	JudgeCut();
	power = true;
	JudgeCut();
	power = false;
}

/* ------------------------------------------------------------------------
 * Scenarios
 * ------------------------------------------------------------------------
 */

/* An empty pool, and a first life in a mode that ends with a clean stop. */
static void
FirstLife(int mode)
{
	PCacheSuperblock sb;
	PCacheError err;
	PCachePool	created = {.fd = -1,.path = "pool",.fs_kind = PCACHE_FS_FSDAX};

	memset(&world, 0, sizeof(world));
	memset(pool, 0, PCACHE_WATERMARK_OFFSET + 3 * LINE);
	memset(pool + PCACHE_DESCRIPTORS_OFFSET, 0, N_SLOTS * LINE);
	memset(pool + BLOCKS_AT, 0, N_SLOTS * BLCKSZ);
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];
		int			page = i - HEADER(0);

		line->len = i < WATERMARK ? SB_PART : LINE;
		if (i < WATERMARK)
			line->offset = i * SB_PART;
		else if (i == WATERMARK)
			line->offset = PCACHE_WATERMARK_OFFSET;
		else if (i < DESCRIPTOR(0))
			line->offset = PCACHE_CONTROL_OFFSET + (i - CONTROL(0)) * LINE;
		else if (page < 0)
			line->offset = PCACHE_DESCRIPTORS_OFFSET + (i - DESCRIPTOR(0)) * LINE;
		else
			line->offset = BLOCKS_AT + page / 2 * BLCKSZ + page % 2 * CONTENTS_AT;
		line->n = 1;
		line->flushed = 0;
		for (int v = 0; v < MAX_VERSIONS; v++)
			line->versions[v] = version_space[i][v];
		memset(line->versions[0], 0, line->len);
	}
	world.file_size = POOL_SIZE;
	world.control.system_identifier = 4711;
	world.control.state = DB_SHUTDOWNED;
	world.control.pg_control_version = PG_CONTROL_VERSION;
	world.control.catalog_version_no = CATALOG_VERSION_NO;
	world.control.checkPoint = CHECKPOINT_LSN;
	world.control.checkPointCopy.redo = CHECKPOINT_LSN;
	world.control.checkPointCopy.ThisTimeLineID = 1;
	world.control.xlog_seg_size = wal_segment_size;
	world.control.crc = 1;
	world.next_contents = 100;
	for (int tag = 0; tag < N_TAGS; tag++)
		world.files[tag] = world.contents[tag] = tag + 1;

	phase = OPENING;
	created.file_size = POOL_SIZE;
	if (!PCachePoolMap(&created, &err) ||
		!PCachePoolFormat(&created, N_SLOTS, 4711, CATALOG_VERSION_NO, &sb, &err))
		fail_msg("%s", err.message);

	persistent_cache_directory = "/tmp";
	persistent_cache_mode = mode;
	StartServer();
	for (int slot = 0; slot < N_SLOTS; slot++)
		Load(slot, slot, false);
	Change(2);
	StopServer();
}

/*
 * Another life, in the middle: kept pages, some changed and sealed again,
 * some not, and slots with other pages than their descriptors say.
 */
static void
SecondLife(int mode)
{
	persistent_cache_mode = mode;
	StartServer();
	if (mode == PERSISTENT_CACHE_ALWAYS)
	{
		Change(4);
		Evict(5);
		Load(5, 9, false);
		Change(5);
		Seal();
	}
	/* its payload stays that of another page with the same LSN */
	Evict(1);
	Load(1, 7, false);
	Evict(2);
	Load(2, 8, false);
	Change(2);
}

static void
RunningAlways(void)
{
	FirstLife(PERSISTENT_CACHE_ALWAYS);
	SecondLife(PERSISTENT_CACHE_ALWAYS);
	Checkpoint(DB_SHUTDOWNED);
	/* a hint that a logical walsender has set */
	ram.buffers[4].bufferdesc.state.value |= BM_DIRTY;
}

static void
RunningPlanned(void)
{
	FirstLife(PERSISTENT_CACHE_PLANNED_RESTART);
	SecondLife(PERSISTENT_CACHE_PLANNED_RESTART);
	Checkpoint(DB_SHUTDOWNED);
}

/*
 * Killed when it had stored all descriptors, and had flushed none.  The same
 * pages get into the same slots again.
 */
static void
RunningAfterKilledSave(void)
{
	int			tags[N_SLOTS];

	RunningPlanned();
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		PCacheDescriptor desc;

		tags[slot] = TagOf(slot);
		DescribeBuffer(slot, &desc, InvalidXLogRecPtr);
		memcpy(PCacheGetDescriptor(slot), &desc, sizeof(desc));
	}
	NoteStores();
	StartServer();
	for (int slot = 0; slot < N_SLOTS; slot++)
		Load(slot, tags[slot], false);
	Checkpoint(DB_SHUTDOWNED);
}

static void
RunningUnsealed(void)
{
	FirstLife(PERSISTENT_CACHE_ALWAYS);
	SecondLife(PERSISTENT_CACHE_ALWAYS);
}

static void
StoppedAlways(void)
{
	RunningAlways();
	Save();
}

static void
StoppedPlanned(void)
{
	RunningPlanned();
	Save();
}

static void
PlannedThenAlways(void)
{
	StoppedPlanned();
	persistent_cache_mode = PERSISTENT_CACHE_ALWAYS;
}

static void
AlwaysThenPlanned(void)
{
	StoppedAlways();
	persistent_cache_mode = PERSISTENT_CACHE_PLANNED_RESTART;
}

/* A mark that was not flushed when all was killed. */
static void
LeaveMarks(void)
{
	for (int slot = 3; slot < N_SLOTS; slot++)
	{
		PCacheDescriptor *desc = PCacheGetDescriptor(slot);

		if (PCacheSeqIsSealed(desc->seq))
			desc->seq++;
	}
	NoteStores();
}

static void
CrashedAlways(void)
{
	RunningUnsealed();
	LeaveMarks();
}

/* PGDATA was last used with another incarnation: nothing is kept. */
static void
CrashedOther(void)
{
	CrashedAlways();
	world.record.incarnation++;
}

/* The file was cut off: behind slot 2, or in the middle of the descriptors. */
static void
CutOffBlocks(void)
{
	CrashedAlways();
	world.file_size = BLOCKS_AT + 3 * BLCKSZ;
}

static void
CutOffBlocksClean(void)
{
	StoppedAlways();
	world.file_size = BLOCKS_AT + 3 * BLCKSZ;
}

/* Behind one of the slots that go. */
static void
CutOffFew(void)
{
	StoppedAlways();
	world.file_size = BLOCKS_AT + 5 * BLCKSZ;
}

static void
CutOffDescriptors(void)
{
	StoppedAlways();
	world.file_size = PCACHE_DESCRIPTORS_OFFSET + 4 * LINE;
}

static void
CutOffDescriptorsCrashed(void)
{
	RunningUnsealed();
	Seal();
	world.file_size = PCACHE_DESCRIPTORS_OFFSET + 4 * LINE;
}

/* The sealer stops anywhere, and the server is shut down. */
static int	sealer_cut;

static const struct
{
	const char *name;
	void		(*before) (void);
	void		(*phase) (void);
	bool		warm;			/* is the pool in the end? */
	bool		sealer;			/* which is cut off first, in each place */
}			scenarios[] = {
	{"shutdown, always", RunningAlways, Save,.warm = true},
	{"shutdown, planned_restart", RunningPlanned, Save,.warm = true},
	{"shutdown with a helper, always", RunningAlways, SaveTogether,.warm = true},
	{"shutdown with a helper, planned_restart", RunningPlanned, SaveTogether,.warm = true},
	{"shutdown with a helper that fails, always", RunningAlways, SaveAnew,.warm = true},
	{"shutdown with a helper that fails, planned_restart", RunningPlanned, SaveAnew,.warm = true},
	{"shutdown, after one that was killed", RunningAfterKilledSave, Save,.warm = true},
	{"sealer stops anywhere, shutdown", RunningUnsealed, StopServer,.warm = true,.sealer = true},
	{"start after clean stop, always", StoppedAlways, StartAndUse,.warm = true},
	{"start after clean stop, planned_restart", StoppedPlanned, StartAndUse},
	{"start after clean stop, always now", PlannedThenAlways, StartAndUse,.warm = true},
	{"start after clean stop, planned_restart now", AlwaysThenPlanned, StartAndUse},
	{"start after crash", CrashedAlways, StartAndUse,.warm = true},
	{"cold start after crash", CrashedOther, StartAndUse,.warm = true},
	{"start given up in the rebuild, always", StoppedAlways, GiveUpRebuild,.warm = true},
	{"start given up in the rebuild, planned_restart", StoppedPlanned, GiveUpRebuild,.warm = true},
	{"start given up in the rebuild after crash", CrashedAlways, GiveUpRebuild,.warm = true},
	{"start given up while unsealing", StoppedAlways, GiveUpUnsealing,.warm = true},
	{"start given up while unsealing after crash", CrashedAlways, GiveUpUnsealing,.warm = true},
	{"start with fewer slots, always", StoppedAlways, StartAndUseFew,.warm = true},
	{"start with fewer slots, planned_restart", StoppedPlanned, StartAndUseFew},
	{"start with fewer slots after crash", RunningUnsealed, StartAndUseFew,.warm = true},
	{"start with fewer slots, blocks cut off", CutOffFew, StartAndUseFew,.warm = true},
	{"start given up while moving, always", StoppedAlways, GiveUpMoving,.warm = true},
	{"start given up while moving, planned_restart", StoppedPlanned, GiveUpMoving,.warm = true},
	{"start given up while moving after crash", RunningUnsealed, GiveUpMoving,.warm = true},
	{"start, blocks cut off, crash", CutOffBlocks, StartAndUse,.warm = true},
	{"start, blocks cut off", CutOffBlocksClean, StartAndUse,.warm = true},
	{"start, descriptors cut off", CutOffDescriptors, StartAndUse,.warm = true},
	{"start, descriptors cut off, crash", CutOffDescriptorsCrashed, StartAndUse,.warm = true},
};

/* ------------------------------------------------------------------------
 * The search
 * ------------------------------------------------------------------------
 */

typedef struct SavedState
{
	char		world[sizeof(world)];
	char		ram[sizeof(ram)];
	PCachePool	pool;
	PCacheDescriptor *descriptors;
	int			n[N_LINES];
	int			flushed[N_LINES];
	char		versions[N_LINES][MAX_VERSIONS][SB_PART];
} SavedState;

static SavedState snapshots[2];

static void
Take(SavedState *s)
{
	memcpy(s->world, &world, sizeof(world));
	memcpy(s->ram, &ram, sizeof(ram));
	s->pool = PCacheThePool;
	s->descriptors = PersistentCacheDescriptors;
	for (int i = 0; i < N_LINES; i++)
	{
		s->n[i] = lines[i].n;
		s->flushed[i] = lines[i].flushed;
		for (int v = 0; v < lines[i].n; v++)
			memcpy(s->versions[i][v], lines[i].versions[v], lines[i].len);
	}
}

static void
Restore(const SavedState *s)
{
	memcpy(&world, s->world, sizeof(world));
	memcpy(&ram, s->ram, sizeof(ram));
	PCacheThePool = s->pool;
	PersistentCacheDescriptors = s->descriptors;
	for (int i = 0; i < N_LINES; i++)
	{
		lines[i].n = s->n[i];
		lines[i].flushed = s->flushed[i];
		for (int v = 0; v < lines[i].n; v++)
			memcpy(lines[i].versions[v], s->versions[i][v], lines[i].len);
		memcpy(Cpu(&lines[i]), Last(&lines[i]), lines[i].len);
	}
}

/*
 * Has what outlives the server been the same before?  It depends on nothing
 * else what the next start does.
 */
static uint64 *seen;
static uint64 seen_used;

#define SEEN_SIZE	(1 << 22)

static uint64
HashWords(uint64 hash, const void *data, size_t len)
{
	const uint64 *words = data;

	for (size_t i = 0; i < len / sizeof(uint64); i++)
	{
		hash = (hash ^ words[i]) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 29;
	}
	return hash;
}

static bool
WasSeen(void)
{
	uint64		hash = HashWords(1, &world, sizeof(world));

	for (int i = 0; i < N_LINES; i++)
	{
		for (int v = 0; v < lines[i].n; v++)
			hash = HashWords(hash + i, lines[i].versions[v], lines[i].len);
	}
	hash |= 1;
	if (seen == NULL)
		seen = calloc(SEEN_SIZE, sizeof(uint64));
	for (uint64 i = hash % SEEN_SIZE;; i = (i + 1) % SEEN_SIZE)
	{
		if (seen[i] == hash)
			return true;
		if (seen[i] != 0)
			continue;
		seen[i] = hash;
		if (++seen_used == SEEN_SIZE / 2)
			fail_msg("SEEN_SIZE is too small");
		return false;
	}
}

static void
ForgetSeen(void)
{
	if (seen_used > 0)
		memset(seen, 0, SEEN_SIZE * sizeof(uint64));
	seen_used = 0;
}

/* Run something up to a step.  Returns false if it came to its end. */
static bool
RunUntil(void (*what) (void), int at)
{
	step = 0;
	cut_at = at;
	if (setjmp(cut) != 0)
	{
		cut_at = 0;
		return true;
	}
	what();
	cut_at = 0;
	NoteStores();
	return false;
}

/* The next start, cut off at each of its stores in turn. */
static void
StartAfterKill(void)
{
	bool		more = true;

	Take(&snapshots[1]);
	for (int at = 1; more && violation[0] == '\0'; at++)
	{
		Restore(&snapshots[1]);
		NBuffers = N_SLOTS;
		more = RunUntil(StartAndUse, at);
		if (!WasSeen())
			JudgeBoth();
	}
}

static void
CutAnywhere(int scenario, bool again)
{
	bool		more = true;

	Take(&snapshots[0]);
	for (int at = 1; more && violation[0] == '\0'; at++)
	{
		uint64		kept;

		Restore(&snapshots[0]);
		more = RunUntil(scenarios[scenario].phase, at);
		kept = n_kept;
		if (!more || !WasSeen())
		{
			JudgeBoth();
			if (again && violation[0] == '\0')
				StartAfterKill();
		}
		if (!more && mutant == M_NONE && violation[0] == '\0' &&
			(n_kept > kept) != scenarios[scenario].warm)
			fail_msg("%s: in the end the pool is %s", scenarios[scenario].name,
					 n_kept > kept ? "warm" : "cold");
		if (violation[0] != '\0')
			print_message("    cut at step %d\n", at);
	}
}

static void
RunScenario(int scenario, bool again)
{
	Mutant		save_mutant = mutant;
	static SavedState running;
	bool		more = true;

	violation[0] = '\0';
	mutant = M_NONE;
	cut_at = 0;
	NBuffers = N_SLOTS;
	scenarios[scenario].before();
	NoteStores();
	mutant = save_mutant;
	ForgetSeen();
	if (!scenarios[scenario].sealer)
	{
		CutAnywhere(scenario, again);
		return;
	}
	Take(&running);
	for (sealer_cut = 1; more && violation[0] == '\0'; sealer_cut++)
	{
		Restore(&running);
		more = RunUntil(Seal, sealer_cut);
		JudgeBoth();
		CutAnywhere(scenario, false);
	}
}

static void
TestStartStop(void **state)
{
	mutant = M_NONE;
	for (int i = 0; i < lengthof(scenarios); i++)
	{
		uint64		cuts = n_cuts;
		uint64		images = n_images;
		uint64		kept = n_kept;

		for (store_size = 8; store_size <= 32; store_size *= 2)
		{
			for (int down = 0; down < 2; down++)
			{
				downwards = down != 0;
				RunScenario(i, store_size == 32 && !downwards);
				if (violation[0] != '\0')
					fail_msg("%s, stores of %d bytes%s: %s", scenarios[i].name, store_size,
							 downwards ? ", downwards" : "", violation);
			}
		}
		print_message("%-44s %8llu cuts, %10llu images, page kept in %9llu\n",
					  scenarios[i].name,
					  (unsigned long long) (n_cuts - cuts),
					  (unsigned long long) (n_images - images),
					  (unsigned long long) (n_kept - kept));
		assert_true(n_kept > kept);
	}
}

static void
TestMutants(void **state)
{
	static const char *const names[] = {"none", "wrong page", "no superblock", "damage", "refused", "twice"};
	int			wrong = 0;

	store_size = 32;
	downwards = false;
	for (mutant = M_NONE + 1; mutant < N_MUTANTS; mutant++)
	{
		int			where = -1;

		for (int again = 0; again < 2 && where < 0; again++)
		{
			for (int i = 0; i < lengthof(scenarios) && where < 0; i++)
			{
				RunScenario(i, again != 0);
				if (violation[0] == '\0')
					continue;
				where = i;
			}
		}
		wrong += JudgeMutant(names, where >= 0 ? scenarios[where].name : NULL);
	}
	mutant = M_NONE;
	assert_int_equal(wrong, 0);
}

/* Each buffer is in one chunk, and claims that follow each other are far apart. */
static void
TestClaims(void **state)
{
	static PCacheRebuildControl control;
	static int	claimed[MAX_CLAIMED];
	uint32		first;
	uint32		n;

	PCacheRebuildCtl = &control;
	for (NBuffers = 1; NBuffers <= MAX_CLAIMED; NBuffers++)
	{
		uint32		region_size = NBuffers / PCACHE_SLOTS_PER_CHUNK / REGIONS * PCACHE_SLOTS_PER_CHUNK;

		memset(claimed, 0, sizeof(claimed));
		pg_atomic_write_u64(&PCacheRebuildCtl->next_slot, 0);
		for (uint32 claim = 0; (n = ClaimChunk(&first)) > 0; claim++)
		{
			if (claim < REGIONS && region_size > 0)
				assert_int_equal(first, claim * region_size);
			for (uint32 i = first; i < first + n; i++)
				claimed[i]++;
		}
		for (int i = 0; i < MAX_CLAIMED; i++)
			assert_int_equal(claimed[i], i < NBuffers ? 1 : 0);
	}
	NBuffers = N_SLOTS;
}

/* A walreceiver that fetches the checkpoint does not publish what it flushes. */
static void
TestWalReceiverBeforeStart(void **state)
{
	static char before[sizeof(pool)];

	store_size = 32;
	downwards = false;
	for (int attached = 0; attached <= 1; attached++)
	{
		XLogRecPtr	flushed;

		StoppedAlways();
		OpenServer();
		pg_atomic_write_u64(&PCacheCtl->attached, attached);
		flushed = world.control.checkPoint + 0x8000;
		assert_true(PCacheWatermarkFromDisk(&PCacheWatermarkCtl->written, 1, flushed,
											wal_segment_size));
		memcpy(before, pool, sizeof(pool));
		MyBackendType = B_WAL_RECEIVER;
		PersistentCacheWalFlushed(flushed, 1);
		MyBackendType = B_STARTUP;
		assert_int_equal(memcmp(before, pool, sizeof(pool)) != 0, attached);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestClaims),
		cmocka_unit_test(TestWalReceiverBeforeStart),
		cmocka_unit_test(TestStartStop),
		cmocka_unit_test(TestMutants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
