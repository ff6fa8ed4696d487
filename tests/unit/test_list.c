/*-------------------------------------------------------------------------
 *
 * test_list.c
 *	  The list of pages that survive a loss of power: all interleavings of the
 *	  library's worker and of who uses the buffers, with the power cut after each
 *	  step.
 *
 * pcache_list.c is included below, as it is, with pcache_harvest.c and
 * pcache_descriptor.c.  The macros before it have each read of a buffer header and of
 * a page's LSN, and each store to the ledger, end a step, and so do the sum, which is
 * taken line by line, flushes and drains.  Any other actor may go on there
 * (interleave.h).  The part of bufmgr.c is played by the programs below, which make the
 * same stores in the same order.
 *
 * The media is a shadow image of the pool: of each cache line it may hold any
 * version since the last one that the worker flushed, and then waited for.  After each
 * step, all of those images are shown to the page gate.  An entry that it believes, and
 * whose sum fits, must be about the last version of its page before the redo point: that
 * is what the checkpoint has left in the file, and what redo begins with.
 *
 * Last, what the worker looks at is left out, one thing after the other: see mutants[].
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_list.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_tablespace_d.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/pcache_library.h"
#include "storage/pcache_pool.h"

#define N_ACTORS		3

#include "unit.h"
#include "interleave.h"

/* ------------------------------------------------------------------------
 * The code under test
 * ------------------------------------------------------------------------
 */

static void HookMemcpy(void *dest, const void *src, size_t len);
static uint64 HookSeq(uint64 value);
static XLogRecPtr HookLsn(const PageXLogRecPtr *lsn);
static uint32 HookRead(volatile pg_atomic_uint32 *ptr);
static bool HookHarvestHeader(const PCacheHeaderLayout *layout, const char *header,
							  uint32 slot, PCacheDescriptor *entry);

#undef memcpy
#define memcpy HookMemcpy
#define __atomic_store_n(ptr, value, order) \
	(Step(), __atomic_store_n(ptr, HookSeq(value), order))

#include "pcache_descriptor.c"
#include "pcache_harvest.c"

/* a macro of 15, and a function of later releases */
#pragma push_macro("PageXLogRecPtrGet")
#undef PageXLogRecPtrGet
#define PageXLogRecPtrGet(val) HookLsn(&(val))
#define PCacheHarvestHeader HookHarvestHeader
#define pg_atomic_read_u32 HookRead

#include "pcache_list.c"

#undef memcpy
#undef __atomic_store_n
#pragma pop_macro("PageXLogRecPtrGet")
#undef PCacheHarvestHeader
#undef pg_atomic_read_u32

/* ------------------------------------------------------------------------
 * Mutants
 * ------------------------------------------------------------------------
 */

typedef enum Mutant
{
	M_NONE,
	M_NO_FIRST_LOCK,
	M_NO_SECOND_LOOK,
	M_NO_SECOND_LOCK,
	M_NO_SECOND_LSN,
	M_NO_SECOND_TAG,
	M_NO_VALID,
	M_NO_DIRTY,
	M_NO_IN_CHANGE,
	M_NO_REDO,
	M_CONFIRM_ALL,
	M_CONFIRM_NO_LOOK,
	M_CONFIRM_NO_LSN,
	M_CONFIRM_NO_TAG,
	M_SEQ_EVEN,
	M_SEQ_EVEN_NO_DRAIN,
	M_NO_PAGE_FLUSH,
	M_NO_PAGE_DRAIN,
	M_NO_ENTRY_FLUSH,
	M_NO_ENTRY_DRAIN,
	N_MUTANTS
} Mutant;

typedef enum Expected
{
	HARMLESS,					/* no violation at all */
	WRONG_PAGE,					/* a page is kept that must not be */
	LOST,						/* a page is never listed */
} Expected;

static const char *const kinds[] = {"none", "wrong page", "lost"};

static const struct
{
	const char *what;
	Expected	expected;
}			mutants[N_MUTANTS] = {
	[M_NONE] = {"the code as it is", HARMLESS},
	/* the second look finds what the first one has not */
	[M_NO_FIRST_LOCK] = {"first look: content lock not looked at", HARMLESS},
	[M_NO_SECOND_LOOK] = {"no second look", WRONG_PAGE},
	[M_NO_SECOND_LOCK] = {"second look: content lock not looked at", WRONG_PAGE},
	[M_NO_SECOND_LSN] = {"second look: any LSN will do", WRONG_PAGE},
	[M_NO_SECOND_TAG] = {"second look: any tag will do", WRONG_PAGE},
	[M_NO_VALID] = {"takes a page that is being read", WRONG_PAGE},
	/* the lock, or the LSN, tells of the same change */
	[M_NO_DIRTY] = {"takes a page that is dirty", HARMLESS},
	[M_NO_IN_CHANGE] = {"takes a page in I/O, or with its header locked", HARMLESS},
	/* the page gate asks, too */
	[M_NO_REDO] = {"takes a page that is younger than the redo point", HARMLESS},
	[M_CONFIRM_ALL] = {"confirm: entries of any time", WRONG_PAGE},
	[M_CONFIRM_NO_LOOK] = {"confirm: does not look at the page", WRONG_PAGE},
	[M_CONFIRM_NO_LSN] = {"confirm: any LSN will do", WRONG_PAGE},
	[M_CONFIRM_NO_TAG] = {"confirm: any tag will do", WRONG_PAGE},
	/* the page that the entry was about is not there any more */
	[M_SEQ_EVEN] = {"an entry is replaced with an even number in it", HARMLESS},
	[M_SEQ_EVEN_NO_DRAIN] = {"the same, and no drain before it", WRONG_PAGE},
	[M_NO_PAGE_FLUSH] = {"page not flushed", LOST},

	/*
	 * the sum tells whether the page is there, and the next drain waits for
	 * it
	 */
	[M_NO_PAGE_DRAIN] = {"no drain before entries", HARMLESS},
	[M_NO_ENTRY_FLUSH] = {"entry not flushed", LOST},
	/* that for the pages that are seen next waits for these as well */
	[M_NO_ENTRY_DRAIN] = {"no drain after entries", HARMLESS},
};

static Mutant mutant;

/* ------------------------------------------------------------------------
 * The world: all that the actors share
 * ------------------------------------------------------------------------
 */

#define N_SLOTS			2		/* that the interleavings are about */
#define MAX_SLOTS		100
#define N_TAGS			4
#define FIRST_REL		16384	/* the relation of tag 0 */
#define FIRST_BLOCK		7		/* its block */
#define WORKER			0		/* which actor is the worker */
#define MAX_CHECKPOINTS	4
#define MAX_HISTORY		6

#define LINE			PCACHE_CACHE_LINE
#define LINES_PER_SLOT	3		/* entry, page header, page contents */
#define N_LINES			(N_SLOTS * LINES_PER_SLOT)
#define CONTENTS_AT		4096	/* in the page */
#define MAX_VERSIONS	32

/* as in lwlock.c */
#define LOCK_EXCLUSIVE	(1 << 18)
#define LOCK_NO_WAITER	(1 << 30)

/* Long enough that no round ends early, in milliseconds */
#define PAUSE			1000000000L

/* A version of a page: a number, which its LSN is made of, and what it says. */
typedef struct PageVersion
{
	uint64		k;
	uint64		words;
} PageVersion;

static PCacheDescriptor ledger_memory[MAX_SLOTS] __attribute__((aligned(LINE)));
static BufferDescPadded header_memory[MAX_SLOTS] __attribute__((aligned(LINE)));
static char blocks[MAX_SLOTS * BLCKSZ] __attribute__((aligned(4096)));
static PCacheLibraryControl library_control;
static ControlFileData watched; /* the worker's */

static struct
{
	PageVersion files[N_TAGS];
	PageVersion history[N_TAGS][MAX_HISTORY];	/* as WAL has it */
	uint64		n_history[N_TAGS];
	uint64		next_k;
	uint64		checkpoints;	/* the last one, in pg_control */
	uint64		redo_k[MAX_CHECKPOINTS + 1];
	uint64		delays;			/* who has the next checkpoint wait */
}			world;

/* The shadow image: versions[0] is certain to be on the media. */
typedef struct Line
{
	char	   *cpu;
	int			n;
	int			flushed;		/* version that waits for a drain */
	char		versions[MAX_VERSIONS][LINE] __attribute__((aligned(8)));
} Line;

static Line lines[N_LINES];
static bool in_model;			/* lines are written down */

static bool may_be_lost;		/* in this scenario */

/* For tests of the worker alone */
static uint32 sweep_at;
static bool not_synced;
static bool in_recovery;
static uint64 flushed_k;		/* how far WAL is on disk */
static bool flushed[MAX_SLOTS]; /* pages */
static int	n_sums;
static void (*on_confirm) (void);

/* Where in pcache_list.c is the worker? */
static bool confirming;			/* ConfirmEntries() */
static bool looking_again;		/* EnterPages() */
static bool after_sum;			/* SeePage(), which has made the sum */
static int	round_number;
static int	n_rounds;			/* in this scenario */

/* What the server, and the rest of the library, define elsewhere. */
int			NBuffers;
int			wal_segment_size = 16 * 1024 * 1024;
char	   *BufferBlocks = blocks;
BufferDescPadded *BufferDescriptors = header_memory;
volatile sig_atomic_t ShutdownRequestPending = false;
PCachePool	PCacheThePool;
PCacheLibraryControl *PCacheLibrary = &library_control;
PCacheLibraryStart PCacheStart;

static XLogRecPtr
LsnOf(uint64 k)
{
	/* the halves differ */
	return k << 32 | (k + 0x100);
}

/* A number that stands for a pg_control */
static uint64
GenerationOf(uint64 checkpoint)
{
	return checkpoint * 8 + 4;
}

static BufferDesc *
HeaderOf(int slot)
{
	return &header_memory[slot].bufferdesc;
}

static PageHeaderData *
PageHeaderOf(int slot)
{
	return (PageHeaderData *) (blocks + slot * BLCKSZ);
}

static uint64 *
WordsOf(int slot)
{
	return (uint64 *) (blocks + slot * BLCKSZ + CONTENTS_AT);
}

/* Hints, which are true whatever the page's version is */
static uint64 *
HintsOf(int slot)
{
	return WordsOf(slot) + 1;
}

static uint32 *
StateOf(int slot)
{
	return (uint32 *) &HeaderOf(slot)->state.value;
}

static uint32 *
LockOf(int slot)
{
	return (uint32 *) &HeaderOf(slot)->content_lock.state.value;
}

static int
TagOf(int slot)
{
	return BufTagGetRelFileLocator(&HeaderOf(slot)->tag).relNumber - FIRST_REL;
}

static void
SetTag(int slot, int tag)
{
	RelFileLocator rlocator = {DEFAULTTABLESPACE_OID, 5, FIRST_REL + tag};

	InitBufferTag(&HeaderOf(slot)->tag, &rlocator, MAIN_FORKNUM, FIRST_BLOCK + tag);
}

/* The header's page is that of another relation, so many OIDs further. */
static void
MoveTag(int slot, int spc, int db, int rel)
{
	BufferTag  *tag = &HeaderOf(slot)->tag;
	RelFileLocator rlocator = BufTagGetRelFileLocator(tag);

	rlocator.spcOid += spc;
	rlocator.dbOid += db;
	rlocator.relNumber += rel;
	InitBufferTag(tag, &rlocator, tag->forkNum, tag->blockNum);
}

/* Take down what the last step has stored. */
static void
NoteStores(void)
{
	for (int i = 0; in_model && i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (memcmp(line->cpu, line->versions[line->n - 1], LINE) == 0)
			continue;
		if (line->n == MAX_VERSIONS)
		{
			fprintf(stderr, "MAX_VERSIONS is too small\n");
			abort();
		}
		memcpy(line->versions[line->n++], line->cpu, LINE);
	}
}

/* What an actor may wait for, of a slot or of nothing */
enum
{
	WAIT_HEADER = 1,
	WAIT_SHARE,
	WAIT_EXCLUSIVE,
	WAIT_DELAYS,
};

static bool
IsThere(int wait, int slot)
{
	switch (wait)
	{
		case WAIT_HEADER:
			return (*StateOf(slot) & BM_LOCKED) == 0;
		case WAIT_SHARE:
			return (*LockOf(slot) & LOCK_EXCLUSIVE) == 0;
		case WAIT_EXCLUSIVE:
			return (*LockOf(slot) & ~LOCK_NO_WAITER) == 0;
		case WAIT_DELAYS:
			return world.delays == 0;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * What the worker calls
 * ------------------------------------------------------------------------
 */

/* Reads of a header, and stores to the ledger: both in pieces. */
static void
HookMemcpy(void *dest, const void *src, size_t len)
{
	bool		is_read = (const char *) src >= (const char *) header_memory &&
		(const char *) src < (const char *) (header_memory + MAX_SLOTS);
	bool		is_store = (char *) dest >= (char *) ledger_memory &&
		(char *) dest < (char *) (ledger_memory + MAX_SLOTS);
	size_t		half = len > sizeof(uint32) ? TYPEALIGN(sizeof(uint32), len / 2) : len;

	if (!is_read && !is_store)
	{
		memcpy(dest, src, len);
		return;
	}
	for (size_t at = 0; at < len; at += half)
	{
		size_t		n = Min(half, len - at);

		Step();
		memcpy((char *) dest + at, (const char *) src + at, n);
		if (is_read)
			actors[me].history = HashBytes(actors[me].history, (char *) dest + at, n);
	}
}

/*
 * What the worker does from here on depends on this only, on what is given, and on what
 * all can see.
 */
static void
ForgetAllBut(uint64 value)
{
	uint64		hash = Mix(Mix(generation, left_to_list), Mix(filled, round_number));

	hash = Mix(Mix(hash, confirming), Mix(looking_again + 2 * after_sum, n_seen));
	Forget(hash, HashBytes(value, seen_once, sizeof(seen_once[0]) * (n_seen + 1)));
}

/* The number that is about to be stored in an entry */
static uint64
HookSeq(uint64 value)
{
	return (mutant == M_SEQ_EVEN || mutant == M_SEQ_EVEN_NO_DRAIN) && (value & 1) != 0 ?
		generation : value;
}

/* What the first look has found in a slot */
static PCacheDescriptor *
SeenIn(uint32 slot)
{
	for (int i = 0; i < n_seen + after_sum; i++)
	{
		if (seen_once[i].slot == slot)
			return &seen_once[i];
	}
	return NULL;
}

/* The state in a header */
static uint32
HookRead(volatile pg_atomic_uint32 *ptr)
{
	Step();
	Saw(ptr->value);
	return ptr->value;
}

static XLogRecPtr
HookLsn(const PageXLogRecPtr *lsn)
{
	uint32		slot = ((const char *) lsn - blocks) / BLCKSZ;
	uint32		high;
	uint32		low;

	if ((looking_again || after_sum) && SeenIn(slot) != NULL &&
		(mutant == M_NO_SECOND_LOOK || mutant == M_NO_SECOND_LSN))
		return SeenIn(slot)->page_lsn;
	if (confirming && (mutant == M_CONFIRM_NO_LOOK || mutant == M_CONFIRM_NO_LSN))
		return ledger_memory[slot].page_lsn;
	Step();
	high = lsn->xlogid;
	Saw(high);
	Step();
	low = lsn->xrecoff;
	Saw(low);
	return (uint64) high << 32 | low;
}

static bool
HookHarvestHeader(const PCacheHeaderLayout *layout, const char *header, uint32 slot,
				  PCacheDescriptor *entry)
{
	PCacheHeaderLayout changed = *layout;
	const PCacheDescriptor *before = confirming ? &ledger_memory[slot] :
		looking_again || after_sum ? SeenIn(slot) : NULL;
	bool		again = !confirming && before != NULL;
	bool		result;

	if ((mutant == M_NO_SECOND_LOOK && again) || (mutant == M_CONFIRM_NO_LOOK && confirming))
	{
		*entry = *before;
		return true;
	}
	if ((mutant == M_NO_FIRST_LOCK && before == NULL) || (mutant == M_NO_SECOND_LOCK && again))
		changed.lock_held = 0;
	if (mutant == M_NO_VALID)
	{
		changed.present &= ~BM_VALID;
		changed.in_change &= ~BM_IO_IN_PROGRESS;
	}
	if (mutant == M_NO_DIRTY)
		changed.dirty = 0;
	if (mutant == M_NO_IN_CHANGE)
		changed.in_change = 0;
	result = PCacheHarvestHeader(&changed, header, slot, entry);
	if (result && ((mutant == M_NO_SECOND_TAG && again) ||
				   (mutant == M_CONFIRM_NO_TAG && confirming)))
		memcpy(&entry->spc_oid, &before->spc_oid, sizeof(PCachePageKey));
	if (!result)
		ForgetAllBut(slot);
	return result;
}

static uint64
SumOfLines(const char *header, const char *contents)
{
	return Mix(HashBytes(1, header, LINE), HashBytes(2, contents, LINE)) | 1;
}

/* The sum of the lines that differ, one after the other */
uint64
PCacheSumOf(const char *page)
{
	char		copy[2][LINE] __attribute__((aligned(8)));

	n_sums++;
	for (int i = 0; i < 2; i++)
	{
		Step();
		memcpy(copy[i], page + i * CONTENTS_AT, LINE);
		actors[me].history = HashBytes(actors[me].history, copy[i], LINE);
	}
	ForgetAllBut(SumOfLines(copy[0], copy[1]));
	after_sum = true;
	return SumOfLines(copy[0], copy[1]);
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	bool		is_page = len == BLCKSZ;
	const char *start = addr;

	after_sum = false;

	if (mutant == (is_page ? M_NO_PAGE_FLUSH : M_NO_ENTRY_FLUSH))
		return;
	if (is_page)
		flushed[(start - blocks) / BLCKSZ] = true;
	for (int i = 0; in_model && i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (line->cpu + LINE <= start || line->cpu >= start + len)
			continue;
		Step();					/* line by line, in any state of the others */
		line->flushed = line->n - 1;
	}
}

bool
PCacheDrain(const PCacheMapping *mapping)
{
	bool		is_of_pages = !looking_again && !confirming;

	Step();
	looking_again = confirming = false;
	if (mutant == (is_of_pages ? M_NO_PAGE_DRAIN : M_NO_ENTRY_DRAIN) ||
		(is_of_pages && mutant == M_SEQ_EVEN_NO_DRAIN))
		return true;
	for (int i = 0; in_model && i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (line->flushed == 0)
			continue;
		memmove(line->versions[0], line->versions[line->flushed],
				(line->n - line->flushed) * LINE);
		line->n -= line->flushed;
		line->flushed = 0;
	}
	ForgetAllBut(0);
	return true;
}

/* The worker looks at pg_control; PCacheListPages() has a pointer to what it has seen. */
static void
Look(void)
{
	Step();
	Saw(world.checkpoints);
	watched.checkPoint = world.checkpoints;
	watched.checkPointCopy.redo = mutant == M_NO_REDO ? PG_UINT64_MAX :
		LsnOf(world.redo_k[world.checkpoints]);
	watched.data_checksum_version = 1;
	watched.wal_level = WAL_LEVEL_REPLICA;
}

/* Called when entries are going to be confirmed, and nowhere else. */
void
PCacheWatch(void)
{
	confirming = true;
	if (on_confirm != NULL)
		on_confirm();
	Look();
}

uint64
PCacheLedgerGeneration(const PCacheSuperblock *sb, const ControlFileData *control)
{
	return GenerationOf(control->checkPoint);
}

PCacheDescriptor *
PCacheLedgerOf(const PCachePool *pool)
{
	return ledger_memory;
}

uint64
PCacheMicrosecondsSince(instr_time start)
{
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	return INSTR_TIME_GET_MICROSEC(elapsed);
}

/* Called when pages are going to be looked at again, and nowhere else. */
XLogRecPtr
GetFlushRecPtr(TimeLineID *insertTLI)
{
	looking_again = true;
	after_sum = false;
	return LsnOf(flushed_k);
}

XLogRecPtr
GetXLogInsertRecPtr(void)
{
	return LsnOf(world.next_k);
}

bool
RecoveryInProgress(void)
{
	return in_recovery;
}

bool
PCacheFilesAreNotSynced(void)
{
	return not_synced;
}

int
StrategySyncStart(uint32 *complete_passes, uint32 *num_buf_alloc)
{
	return sweep_at;
}

#ifdef USE_ASSERT_CHECKING
void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}
#endif

/* All relations are there. */
int64
PCacheRelSize(struct PCacheRelSizes *sizes, RelFileLocator rlocator, ForkNumber fork)
{
	return 1000;
}

/* ------------------------------------------------------------------------
 * What bufmgr.c does, and who else there is
 * ------------------------------------------------------------------------
 */

static uint32
LockHeader(int slot)
{
	StepAndWait(WAIT_HEADER, slot);
	*StateOf(slot) |= BM_LOCKED;
	Saw(*StateOf(slot));
	return *StateOf(slot);
}

static void
UnlockHeader(int slot, uint32 state)
{
	Step();
	*StateOf(slot) = state & ~BM_LOCKED;
}

/* Change bits of the header's state. */
static void
SetState(int slot, uint32 clear, uint32 set)
{
	uint32		state = LockHeader(slot);

	UnlockHeader(slot, (state & ~clear) | set);
}

static void
LockContents(int slot)
{
	StepAndWait(WAIT_EXCLUSIVE, slot);
	*LockOf(slot) |= LOCK_EXCLUSIVE;
}

static void
UnlockContents(int slot)
{
	Step();
	*LockOf(slot) &= ~LOCK_EXCLUSIVE;
}

static void
LockContentsShared(int slot)
{
	StepAndWait(WAIT_SHARE, slot);
	(*LockOf(slot))++;
}

static void
UnlockContentsShared(int slot)
{
	Step();
	(*LockOf(slot))--;
}

/* A page has another version, by a record. */
static void
AddVersion(int tag, uint64 k, uint64 words)
{
	if (world.n_history[tag] == MAX_HISTORY)
		abort();
	world.history[tag][world.n_history[tag]++] = (PageVersion)
	{
		k, words
	};
}

/* XLogInsert() */
static uint64
Insert(void)
{
	Step();
	Saw(world.next_k);
	return world.next_k++;
}

/* PageSetLSN() */
static void
StoreLsn(int slot, uint64 k)
{
	Step();
	PageHeaderOf(slot)->pd_lsn.xlogid = LsnOf(k) >> 32;
	Step();
	PageHeaderOf(slot)->pd_lsn.xrecoff = (uint32) LsnOf(k);
}

static void
StoreWord(int slot, int half, uint64 words)
{
	Step();
	memcpy((char *) WordsOf(slot) + 4 * half, (char *) &words + 4 * half, 4);
}

/* A change that is logged.  Some mark the page dirty first, and some change it first. */
static void
Change(int slot, uint64 words)
{
	uint64		k;

	LockContents(slot);
	StoreWord(slot, 0, words);
	SetState(slot, 0, BM_DIRTY | BM_JUST_DIRTIED);
	StoreWord(slot, 1, words);
	k = Insert();
	AddVersion(TagOf(slot), k, words);
	StoreLsn(slot, k);
	UnlockContents(slot);
}

/* MarkBufferDirtyHint(), with a full-page image */
static void
HintLogged(int slot)
{
	uint32		state;
	uint64		k;

	LockContentsShared(slot);
	Step();
	*HintsOf(slot) |= 1;
	Step();
	world.delays++;				/* DELAY_CHKPT_START */
	k = Insert();
	state = LockHeader(slot);
	if ((state & BM_DIRTY) == 0)
	{
		AddVersion(TagOf(slot), k, *WordsOf(slot));
		StoreLsn(slot, k);
	}
	UnlockHeader(slot, state | BM_DIRTY | BM_JUST_DIRTIED);
	Step();
	world.delays--;
	UnlockContentsShared(slot);
}

/* A hint of a hot standby's session: in memory only */
static void
HintInMemory(int slot)
{
	LockContentsShared(slot);
	Step();
	*HintsOf(slot) |= 1;
	UnlockContentsShared(slot);
}

/* FlushBuffer() */
static void
WriteBack(int slot)
{
	uint32		state;

	LockContentsShared(slot);
	SetState(slot, BM_JUST_DIRTIED, BM_IO_IN_PROGRESS);
	Step();
	world.files[TagOf(slot)] = (PageVersion)
	{
		PageHeaderOf(slot)->pd_lsn.xlogid, *WordsOf(slot)
	};
	state = LockHeader(slot);
	if ((state & BM_JUST_DIRTIED) == 0)
		state &= ~BM_DIRTY;
	UnlockHeader(slot, state & ~BM_IO_IN_PROGRESS);
	UnlockContentsShared(slot);
}

/* InvalidateBuffer(), and the end of GetVictimBuffer() */
static void
Invalidate(int slot)
{
	uint32		state = LockHeader(slot);

	Step();
	ClearBufferTag(&HeaderOf(slot)->tag);
	UnlockHeader(slot, state & ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK));
}

/* GetVictimBuffer() of a clean buffer */
static void
Evict(int slot)
{
	uint32		state = LockHeader(slot);

	UnlockHeader(slot, state + BUF_REFCOUNT_ONE);
	Invalidate(slot);
}

/* ReadBuffer(), into a victim, or into one that was invalidated */
static void
Read(int slot, int tag)
{
	uint32		state = LockHeader(slot);

	Step();
	SetTag(slot, tag);
	UnlockHeader(slot, state | BM_TAG_VALID | BM_PERMANENT | BUF_USAGECOUNT_ONE);
	SetState(slot, 0, BM_IO_IN_PROGRESS);
	StoreWord(slot, 0, world.files[tag].words);
	StoreWord(slot, 1, world.files[tag].words);
	Step();
	*HintsOf(slot) = 0;
	StoreLsn(slot, world.files[tag].k);
	SetState(slot, BM_IO_IN_PROGRESS, BM_VALID);
	state = LockHeader(slot);
	UnlockHeader(slot, state & ~BUF_REFCOUNT_MASK);
}

/* Which version does redo of a checkpoint begin with? */
static const PageVersion *
VersionBefore(int tag, uint64 checkpoint)
{
	const PageVersion *last = NULL;

	for (int i = 0; i < world.n_history[tag]; i++)
	{
		if (world.history[tag][i].k < world.redo_k[checkpoint])
			last = &world.history[tag][i];
	}
	return last;
}

/* The checkpointer: the redo point, BufferSync(), and pg_control. */
static void
Checkpoint(void)
{
	uint64		number;
	uint32		state[N_SLOTS] = {0};

	Step();
	number = world.checkpoints + 1;
	world.redo_k[number] = world.next_k;
	StepAndWait(WAIT_DELAYS, 0);
	for (int slot = 0; slot < NBuffers; slot++)
	{
		state[slot] = LockHeader(slot);
		UnlockHeader(slot, state[slot]);
	}
	for (int slot = 0; slot < NBuffers; slot++)
	{
		if ((state[slot] & BM_DIRTY) != 0)
			WriteBack(slot);
	}
	for (int tag = 0; tag < N_TAGS; tag++)
	{
		const PageVersion *before = VersionBefore(tag, number);

		/* or else this is not what a server does */
		if (before != NULL && world.files[tag].k < before->k)
			abort();
	}
	Step();
	world.checkpoints = number;
}

/* The next round, whose pause is over. */
static bool
NextRound(long pause)
{
	instr_time	ago;

	INSTR_TIME_SET_CURRENT(ago);
	while (INSTR_TIME_GET_MILLISEC(ago) < 2.0 * PAUSE)
		INSTR_TIME_ADD(ago, ago);
	INSTR_TIME_SET_ZERO(round_began);
	INSTR_TIME_SUBTRACT(round_began, ago);
	return PCacheListPages(&watched, pause);
}

/* Two rounds, in which nobody else does anything */
static void
ListNow(void)
{
	Look();
	(void) NextRound(PAUSE);
	(void) NextRound(PAUSE);
}

static void
ListPages(void)
{
	for (round_number = 0; round_number < n_rounds; round_number++)
	{
		ForgetAllBut(0);
		Look();
		(void) NextRound(PAUSE);
	}
}

/* ------------------------------------------------------------------------
 * Scenarios
 * ------------------------------------------------------------------------
 */

static void
Nothing(void)
{
}

static void
ChangeOnce(void)
{
	Change(0, 50);
}

static void
ChangeAndWrite(void)
{
	Change(0, 51);
	WriteBack(0);
}

static void
ChangeWriteCheckpoint(void)
{
	Change(0, 52);
	WriteBack(0);
	Checkpoint();
}

static void
ChangeCheckpointChange(void)
{
	Change(0, 53);
	Checkpoint();
	Change(0, 54);
}

static void
HintOnce(void)
{
	HintLogged(0);
}

static void
HintAndCheckpoint(void)
{
	HintLogged(0);
	Checkpoint();
}

static void
HintOfStandby(void)
{
	HintInMemory(0);
}

static void
EvictAndRead(void)
{
	Evict(0);
	Read(0, 2);
}

static void
EvictAndReadYounger(void)
{
	Evict(0);
	Read(0, 3);
}

static void
EvictReadChange(void)
{
	Evict(0);
	Read(0, 2);
	Change(0, 55);
}

static void
InvalidateOnce(void)
{
	Invalidate(0);
}

static void
InvalidateAndRead(void)
{
	Invalidate(0);
	Read(0, 2);
}

/* A page goes, and comes back in another slot, to be changed there. */
static void
Move(void)
{
	Evict(0);
	Read(0, 2);
	Evict(1);
	Read(1, 0);
	Change(1, 56);
	WriteBack(1);
	Checkpoint();
}

/* What goes comes back, in the same slot. */
static void
EvictAndReturn(void)
{
	Evict(0);
	Read(0, 2);
	Evict(0);
	Read(0, 0);
}

/* Likewise, but it was changed elsewhere meanwhile, and it goes again. */
static void
ReturnChanged(void)
{
	Evict(0);
	Read(0, 2);
	Step();
	AddVersion(0, world.next_k, 57);
	world.files[0] = (PageVersion)
	{
		world.next_k++, 57
	};
	Checkpoint();
	Evict(0);
	Read(0, 0);
	Evict(0);
	Read(0, 1);
}

typedef enum FirstState
{
	NOT_LISTED,					/* the ledger is empty */
	LISTED,						/* both slots are listed */
	CHECKED,					/* likewise, by a server before this one */
	OTHER_LEDGER,				/* by another one, see Reset() */
} FirstState;

static const struct
{
	const char *name;
	FirstState	start;
	void		(*second) (void);
	void		(*third) (void);
	bool		for_mutants;
	bool		two_slots;
	bool		may_be_lost;	/* nobody asks whether it is listed in the end */
	Expected	expected;		/* HARMLESS, unless it is known not to be */
}			scenarios[] = {
	{"nothing", NOT_LISTED, Nothing,.for_mutants = true},
	{"a change", NOT_LISTED, ChangeOnce,.for_mutants = true},
	{"a change of a page that is listed", LISTED, ChangeOnce},
	{"a change, written back", NOT_LISTED, ChangeAndWrite,.for_mutants = true},
	{"a change, written back, a checkpoint", NOT_LISTED, ChangeWriteCheckpoint,.for_mutants = true},
	{"the same of a page that is listed", LISTED, ChangeWriteCheckpoint,.for_mutants = true},
	{"a checkpoint between changes", LISTED, ChangeCheckpointChange,.for_mutants = true},
	{"a checkpoint", LISTED, Checkpoint},
	{"a change, and a checkpoint", LISTED, ChangeOnce, Checkpoint},
	{"a change written back, and a checkpoint", NOT_LISTED, ChangeAndWrite, Checkpoint},
	{"a logged hint", NOT_LISTED, HintOnce},
	{"a logged hint of a page that is listed, a checkpoint", LISTED, HintAndCheckpoint},
	{"a logged hint, and a checkpoint", LISTED, HintOnce, Checkpoint},
	{"a hint, and a change", NOT_LISTED, HintOnce, ChangeOnce},
	{"eviction, another page", NOT_LISTED, EvictAndRead,.for_mutants = true},
	{"eviction of a page that is listed, another page", LISTED, EvictAndRead,.for_mutants = true},
	{"eviction, a younger page", NOT_LISTED, EvictAndReadYounger,.for_mutants = true},
	{"eviction, another page, changed", NOT_LISTED, EvictReadChange},
	{"eviction, another page, and a checkpoint", LISTED, EvictAndRead, Checkpoint},
	{"invalidation", NOT_LISTED, InvalidateOnce},
	{"invalidation, another page", LISTED, InvalidateAndRead,.for_mutants = true},
	{"a page moves to another slot, a checkpoint", LISTED, Move,.for_mutants = true,.two_slots = true},

	{"eviction, and the page comes back changed", LISTED, ReturnChanged},
	{"a page that was listed before the start", CHECKED, ChangeOnce},
	{"the same, and a checkpoint", CHECKED, ChangeOnce, Checkpoint},
	{"a page that was listed by somebody else", OTHER_LEDGER, Nothing,.for_mutants = true},
	{"the same, and a change", OTHER_LEDGER, ChangeOnce},

	/* with the LSN that it had, all of it between two looks (H63) */
	{"eviction, and the page comes back", NOT_LISTED, EvictAndReturn,.may_be_lost = true},

	/*
	 * What is known to be so; if it is mended, this test says so.  The page
	 * does not fit its entry any more, and is not listed again.
	 */
	{"a hint of a hot standby", LISTED, HintOfStandby,.expected = LOST},
};

static void
FillPage(int slot, const PageVersion *version)
{
	memset(PageHeaderOf(slot), 0, BLCKSZ);
	PageHeaderOf(slot)->pd_special = BLCKSZ;
	PageHeaderOf(slot)->pd_lsn.xlogid = LsnOf(version->k) >> 32;
	PageHeaderOf(slot)->pd_lsn.xrecoff = (uint32) LsnOf(version->k);
	*WordsOf(slot) = version->words;
}

/* The worker is a new process, and the ledger is empty. */
static void
ResetWorker(int n_buffers)
{
	NBuffers = n_buffers;
	memset(seen_once, 0, sizeof(seen_once[0]) * (MAX_SLOTS + 1));
	n_seen = 0;
	inserted = InvalidXLogRecPtr;
	generation = 0;
	redo = 0;
	next_to_list = left_to_list = 0;
	memset(&PCacheStart, 0, sizeof(PCacheStart));
	memset(swept, 0, sizeof(swept));
	filled = 0;
	confirming = looking_again = after_sum = false;
	sweep_at = 0;
	not_synced = in_recovery = false;
	flushed_k = 1000;
	on_confirm = NULL;
	memset(flushed, 0, sizeof(flushed));
	for (int slot = 0; slot < MAX_SLOTS; slot++)
		PCacheDescriptorSetFree(&ledger_memory[slot]);

	memset(&library_control, 0, sizeof(library_control));
	library_control.superblock.power_rule = PCACHE_POWER_LEDGER;
	library_control.superblock.headers = (PCacheHeaderLayout)
	{
		.tag = offsetof(BufferDesc, tag),
			.state = offsetof(BufferDesc, state),
			.content_lock = offsetof(BufferDesc, content_lock) + offsetof(LWLock, state),
			.present = BM_VALID | BM_TAG_VALID,
			.dirty = BM_DIRTY,
			.in_change = BM_IO_IN_PROGRESS | BM_IO_ERROR | BM_LOCKED,
			.permanent = BM_PERMANENT,
			.usage_count_mask = BUF_USAGECOUNT_MASK,
			.usage_count_one = BUF_USAGECOUNT_ONE,
			.lock_held = LOCK_EXCLUSIVE | (LOCK_EXCLUSIVE - 1),
	};
}

/* A valid and clean page in a slot */
static void
FillSlot(int slot, int tag)
{
	HeaderOf(slot)->buf_id = slot;
	SetTag(slot, tag);
	*StateOf(slot) = BM_VALID | BM_TAG_VALID | BM_PERMANENT | BUF_USAGECOUNT_ONE;
	*LockOf(slot) = LOCK_NO_WAITER;
	FillPage(slot, &world.files[tag % N_TAGS]);
}

/* A record may have changed several pages, so all but one have the same LSN. */
static void
ResetWorld(void)
{
	static const uint64 first_k[N_TAGS] = {10, 10, 10, 25};

	memset(&world, 0, sizeof(world));
	memset(header_memory, 0, sizeof(header_memory));
	world.checkpoints = 1;
	world.redo_k[1] = 20;
	world.next_k = 30;
	for (int tag = 0; tag < N_TAGS; tag++)
	{
		world.files[tag].k = first_k[tag];
		world.files[tag].words = UINT64CONST(0x0101010101010101) * (tag + 1);
		world.history[tag][0] = world.files[tag];
		world.n_history[tag] = 1;
	}
}

/* The world as it is when a scenario begins. */
static void
Reset(int scenario)
{
	Mutant		save_mutant = mutant;

	mutant = M_NONE;
	me = WORKER;
	in_model = false;
	ResetWorld();
	ResetWorker(scenarios[scenario].two_slots ? 2 : 1);
	/* one way to come to a slot is enough */
	filled = NBuffers;
	for (int slot = 0; slot < N_SLOTS; slot++)
		FillSlot(slot, slot);
	for (int i = 0; i < N_LINES; i++)
	{
		int			slot = i / LINES_PER_SLOT;
		int			part = i % LINES_PER_SLOT;

		lines[i].cpu = part == 0 ? (char *) &ledger_memory[slot] :
			blocks + slot * BLCKSZ + (part - 1) * CONTENTS_AT;
		lines[i].n = 1;
		lines[i].flushed = 0;
	}

	/*
	 * The pool was used by a server whose pages have the same tags and LSNs,
	 * and other contents, as of a cluster that was made by initdb as this one
	 * was.  What was read since has not got to the media.
	 */
	if (scenarios[scenario].start == OTHER_LEDGER)
	{
		for (int slot = 0; slot < N_SLOTS; slot++)
			*WordsOf(slot) ^= 0xFF;
	}
	if (scenarios[scenario].start != NOT_LISTED)
		ListNow();
	for (int i = 0; i < N_LINES; i++)
		memcpy(lines[i].versions[0], lines[i].cpu, LINE);
	in_model = true;
	if (scenarios[scenario].start >= CHECKED)
	{
		uint64		earlier = GenerationOf(99);

		generation = 0;
		if (scenarios[scenario].start == CHECKED)
			PCacheStart.checked_generation = earlier;
		for (int slot = 0; slot < N_SLOTS; slot++)
		{
			ledger_memory[slot].seq = earlier;
			memcpy(lines[slot * LINES_PER_SLOT].versions[0], &ledger_memory[slot], LINE);
			if (scenarios[scenario].start == OTHER_LEDGER)
				*WordsOf(slot) ^= 0xFF;
		}
	}
	NoteStores();

	mutant = save_mutant;
	may_be_lost = scenarios[scenario].may_be_lost;
	n_rounds = scenarios[scenario].start == NOT_LISTED ? 3 : 2;
	if (mutant == M_CONFIRM_ALL && scenarios[scenario].start == OTHER_LEDGER)
		PCacheStart.checked_generation = GenerationOf(99);
	n_actors = scenarios[scenario].third != NULL ? 3 : 2;
	actors[WORKER].program = ListPages;
	actors[1].program = scenarios[scenario].second;
	actors[2].program = scenarios[scenario].third;
}

/* ------------------------------------------------------------------------
 * Power cuts
 * ------------------------------------------------------------------------
 */

static const PCacheMediaReport no_bad_blocks = {0};
static uint64 n_images;
static uint64 n_kept;

/* Does a start after a checkpoint believe an entry with this page? */
static bool
IsKept(const PCacheDescriptor *entry, int slot, uint64 checkpoint, const char *header,
	   const char *contents)
{
	PCachePageFacts facts = {
		.file_size = PG_UINT64_MAX,
		.drop_unlogged = true,
		.redo = LsnOf(world.redo_k[checkpoint]),
		.generation = GenerationOf(checkpoint),
		.sums_only = true,
		.media = &no_bad_blocks,
	};

	return PCachePageGate(entry, slot, &facts) == PCACHE_PAGE_KEPT &&
		entry->sum == SumOfLines(header, contents);
}

/* A page is kept.  Must it be another one? */
static void
CheckKept(const PCacheDescriptor *entry, uint64 checkpoint, const char *header,
		  const char *contents)
{
	int			tag = entry->rel_number - FIRST_REL;
	const PageVersion *version = tag >= 0 && tag < N_TAGS ? VersionBefore(tag, checkpoint) : NULL;

	if (version == NULL || entry->block_number != FIRST_BLOCK + tag)
		Violation(WRONG_PAGE, "a page is kept that no file has");
	else if (entry->page_lsn != LsnOf(version->k) ||
			 PageXLogRecPtrGet(((const PageHeaderData *) header)->pd_lsn) != LsnOf(version->k))
		Violation(WRONG_PAGE, "tag %d is kept for checkpoint %d with another LSN", tag,
				  (int) checkpoint);
	else if (memcmp(contents, &version->words, sizeof(uint64)) != 0)
		Violation(WRONG_PAGE, "tag %d is kept for checkpoint %d with other contents", tag,
				  (int) checkpoint);
}

/* The power fails now: is there an image from which a wrong page is kept? */
static void
CheckState(void)
{
	for (int slot = 0; slot < NBuffers; slot++)
	{
		const Line *line = &lines[slot * LINES_PER_SLOT];

		for (int e = 0; e < line->n; e++)
		{
			const PCacheDescriptor *entry = (const PCacheDescriptor *) line->versions[e];

			n_images += line[1].n * line[2].n;
			for (uint64 checkpoint = 1; checkpoint <= world.checkpoints; checkpoint++)
			{
				if (entry->seq != GenerationOf(checkpoint))
					continue;
				for (int h = 0; h < line[1].n; h++)
				{
					for (int c = 0; c < line[2].n; c++)
					{
						if (!IsKept(entry, slot, checkpoint, line[1].versions[h], line[2].versions[c]))
							continue;
						n_kept++;
						CheckKept(entry, checkpoint, line[1].versions[h], line[2].versions[c]);
					}
				}
			}
		}
	}
}

/* All are through.  After one more checkpoint, what is settled must be kept for certain. */
static void
CheckEnd(void)
{
	me = WORKER;
	Checkpoint();
	ListNow();
	NoteStores();
	CheckState();
	if (may_be_lost)
		return;
	for (int slot = 0; slot < NBuffers; slot++)
	{
		const Line *line = &lines[slot * LINES_PER_SLOT];

		if ((*StateOf(slot) & (BM_VALID | BM_DIRTY)) != BM_VALID)
			continue;
		for (int e = 0; e < line->n; e++)
		{
			for (int h = 0; h < line[1].n; h++)
			{
				for (int c = 0; c < line[2].n; c++)
				{
					if (!IsKept((const PCacheDescriptor *) line->versions[e], slot,
								world.checkpoints, line[1].versions[h], line[2].versions[c]))
						Violation(LOST, "slot %d is not listed in the end", slot);
				}
			}
		}
	}
}

static uint64
HashWorld(void)
{
	uint64		hash = HashBytes(1, &world, sizeof(world));

	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		hash = HashBytes(hash, &HeaderOf(slot)->tag, sizeof(BufferTag));
		hash = Mix(Mix(hash, *StateOf(slot)), *LockOf(slot));
	}
	for (int i = 0; i < N_LINES; i++)
	{
		hash = Mix(Mix(hash, lines[i].n), lines[i].flushed);
		hash = HashBytes(hash, lines[i].versions, lines[i].n * LINE);
	}
	return hash;
}

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

static void
TestInterleavings(void **state)
{
	int			wrong = 0;

	mutant = M_NONE;
	for (int i = 0; i < lengthof(scenarios); i++)
	{
		uint64		states = n_states;
		uint64		images = n_images;
		uint64		kept = n_kept;
		Expected	found;

		Search(i);
		found = violation[0] != '\0' ? violation_kind : HARMLESS;
		print_message("%-52s %8llu states, %9llu images, page kept in %9llu%s%s%s%s\n",
					  scenarios[i].name,
					  (unsigned long long) (n_states - states),
					  (unsigned long long) (n_images - images),
					  (unsigned long long) (n_kept - kept),
					  found != HARMLESS ? "; " : "", found != HARMLESS ? kinds[found] : "",
					  found != HARMLESS ? ": " : "", violation);
		assert_true(n_kept > kept);
		if (found == scenarios[i].expected)
			continue;
		print_message("    expected: %s\n", kinds[scenarios[i].expected]);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

static void
TestMutants(void **state)
{
	int			wrong = 0;

	for (mutant = M_NONE + 1; mutant < N_MUTANTS; mutant++)
	{
		const char *where = NULL;
		Expected	found = HARMLESS;

		for (int i = 0; i < lengthof(scenarios) && where == NULL; i++)
		{
			if (!scenarios[i].for_mutants)
				continue;
			Search(i);
			if (violation[0] == '\0')
				continue;
			where = scenarios[i].name;
			found = violation_kind;
		}
		print_message("%-48s %-10s %s%s%s\n", mutants[mutant].what, kinds[found],
					  where != NULL ? where : "", where != NULL ? ": " : "",
					  where != NULL ? violation : "");
		if (found == mutants[mutant].expected)
			continue;
		print_message("    expected: %s\n", kinds[mutants[mutant].expected]);
		wrong++;
	}
	mutant = M_NONE;
	in_model = false;
	assert_int_equal(wrong, 0);
}

/* ------------------------------------------------------------------------
 * The worker alone
 * ------------------------------------------------------------------------
 */

static void
SetLsn(int slot, XLogRecPtr lsn)
{
	PageXLogRecPtrSet(PageHeaderOf(slot)->pd_lsn, lsn);
}

/* So many slots with a settled page each, that is not listed. */
static void
BeginAlone(int n_buffers)
{
	mutant = M_NONE;
	in_model = false;
	alone = true;
	me = WORKER;
	ResetWorld();
	ResetWorker(n_buffers);
	for (int slot = 0; slot < n_buffers; slot++)
	{
		FillSlot(slot, slot);
		SetLsn(slot, LsnOf(10));
	}
	n_sums = 0;
	Look();
}

/* What is dirty or younger than the redo point, the checkpoint has written. */
static void
BeginCheckpoint(void)
{
	world.checkpoints++;
	world.redo_k[world.checkpoints] = world.next_k++;
	Look();
}

/* Is the page in a slot listed for the last checkpoint, as it is? */
static bool
IsListed(int slot)
{
	const PCacheDescriptor *entry = &ledger_memory[slot];
	PCachePageKey key = PCacheDescriptorKey(entry);

	return PCacheDescriptorIsIntact(entry, slot) && entry->seq == GenerationOf(world.checkpoints) &&
		memcmp(&key, &HeaderOf(slot)->tag, sizeof(key)) == 0 &&
		entry->page_lsn == PageXLogRecPtrGet(PageHeaderOf(slot)->pd_lsn) &&
		entry->sum == PCacheSumOf((char *) PageHeaderOf(slot));
}

static int
CountListed(void)
{
	int			n = 0;

	for (int slot = 0; slot < NBuffers; slot++)
		n += IsListed(slot);
	return n;
}

/* Change something of the page in the one slot there is, and list it if it is settled. */
#define EXPECT_LISTED(expected, ...) \
	do { \
		BeginAlone(1); \
		__VA_ARGS__; \
		/* seen once, and then looked at again */ \
		assert_int_equal(NextRound(PAUSE), expected); \
		assert_int_equal(flushed[0], expected); \
		assert_int_equal(n_sums > 0, expected); \
		assert_true(ledger_memory[0].seq == PCACHE_DESC_FREE_SEQ); \
		assert_false(NextRound(PAUSE)); \
		assert_int_equal(IsListed(0), expected); \
		if (!(expected)) \
			assert_true(ledger_memory[0].seq == PCACHE_DESC_FREE_SEQ); \
	} while (0)

/* Which pages are listed? */
static void
TestListed(void **state)
{
	EXPECT_LISTED(true, (void) 0);
	assert_int_equal(ledger_memory[0].flags, PCACHE_DESC_PERMANENT);
	assert_int_equal(ledger_memory[0].usage_count, 1);
	EXPECT_LISTED(true, *StateOf(0) |= 7);	/* pins */
	EXPECT_LISTED(true, *LockOf(0) |= 1U << 31);	/* waiters, and nobody who
													 * holds it */

	EXPECT_LISTED(false, *StateOf(0) &= ~BM_VALID);
	EXPECT_LISTED(false, *StateOf(0) &= ~BM_TAG_VALID);
	EXPECT_LISTED(false, *StateOf(0) &= ~BM_PERMANENT);
	EXPECT_LISTED(false, *StateOf(0) |= BM_DIRTY);
	EXPECT_LISTED(false, *StateOf(0) |= BM_LOCKED);
	EXPECT_LISTED(false, *StateOf(0) |= BM_IO_IN_PROGRESS);
	EXPECT_LISTED(false, *StateOf(0) |= BM_IO_ERROR);
	EXPECT_LISTED(false, *LockOf(0) |= LOCK_EXCLUSIVE);
	EXPECT_LISTED(false, *LockOf(0) += 1);
	EXPECT_LISTED(false, *LockOf(0) += LOCK_EXCLUSIVE - 1);
	for (int fork = MAIN_FORKNUM + 1; fork <= MAX_FORKNUM; fork++)
		EXPECT_LISTED(false, HeaderOf(0)->tag.forkNum = fork);

	/* no LSN, that of a GiST index that is being built, and redo */
	EXPECT_LISTED(false, SetLsn(0, 0));
	EXPECT_LISTED(false, SetLsn(0, 1));
	EXPECT_LISTED(true, SetLsn(0, 2));
	EXPECT_LISTED(true, SetLsn(0, LsnOf(20) - 1));
	EXPECT_LISTED(false, SetLsn(0, LsnOf(20)));
	EXPECT_LISTED(false, SetLsn(0, PG_UINT64_MAX));

	/* first pages of indexes */
	EXPECT_LISTED(true, HeaderOf(0)->tag.blockNum = 0);
	EXPECT_LISTED(false, HeaderOf(0)->tag.blockNum = 0, PageHeaderOf(0)->pd_special = BLCKSZ - 16);
	EXPECT_LISTED(true, HeaderOf(0)->tag.blockNum = 1, PageHeaderOf(0)->pd_special = BLCKSZ - 16);
}

/*
 * Change something of a page that is listed, or of its entry, and have a checkpoint.  There
 * is no time to list anything, but what is settled is confirmed, without reading it.
 */
#define EXPECT_CONFIRMED(expected, ...) \
	do { \
		BeginAlone(1); \
		ListNow(); \
		__VA_ARGS__; \
		n_sums = 0; \
		flushed[0] = false; \
		entry = ledger_memory[0]; \
		BeginCheckpoint(); \
		assert_true(NextRound(0)); \
		assert_int_equal(n_sums, 0); \
		assert_false(flushed[0]); \
		if (expected) \
			entry.seq = GenerationOf(2); \
		assert_memory_equal(&ledger_memory[0], &entry, sizeof(entry)); \
	} while (0)

/* Which entries are confirmed when there was a checkpoint? */
static void
TestConfirmed(void **state)
{
	PCacheDescriptor *listed = ledger_memory;
	PCacheDescriptor entry;

	EXPECT_CONFIRMED(true, (void) 0);
	EXPECT_CONFIRMED(true, *StateOf(0) |= 7);
	/* its sum will tell */
	EXPECT_CONFIRMED(true, *HintsOf(0) |= 1);

	/* another page, or another version of it */
	EXPECT_CONFIRMED(false, MoveTag(0, 1, 0, 0));
	EXPECT_CONFIRMED(false, MoveTag(0, 0, 1, 0));
	EXPECT_CONFIRMED(false, MoveTag(0, 0, 0, 1));
	EXPECT_CONFIRMED(false, HeaderOf(0)->tag.forkNum++);
	EXPECT_CONFIRMED(false, HeaderOf(0)->tag.blockNum++);
	EXPECT_CONFIRMED(false, SetLsn(0, LsnOf(10) + 1));
	EXPECT_CONFIRMED(false, SetLsn(0, LsnOf(10) - 1));
	EXPECT_CONFIRMED(false, SetLsn(0, LsnOf(11)));
	EXPECT_CONFIRMED(false, SetLsn(0, LsnOf(30)));

	/* a page that is not settled */
	EXPECT_CONFIRMED(false, *StateOf(0) &= ~BM_VALID);
	EXPECT_CONFIRMED(false, *StateOf(0) &= ~BM_TAG_VALID);
	EXPECT_CONFIRMED(false, *StateOf(0) &= ~BM_PERMANENT);
	EXPECT_CONFIRMED(false, *StateOf(0) |= BM_DIRTY);
	EXPECT_CONFIRMED(false, *StateOf(0) |= BM_LOCKED);
	EXPECT_CONFIRMED(false, *StateOf(0) |= BM_IO_IN_PROGRESS);
	EXPECT_CONFIRMED(false, *StateOf(0) |= BM_IO_ERROR);
	EXPECT_CONFIRMED(false, *LockOf(0) |= LOCK_EXCLUSIVE);
	EXPECT_CONFIRMED(false, *LockOf(0) += 1);

	/* an entry that is not about the checkpoint before */
	EXPECT_CONFIRMED(false, listed->seq = GenerationOf(0));
	EXPECT_CONFIRMED(false, listed->seq = GenerationOf(1) + 1);
	EXPECT_CONFIRMED(false, listed->seq = PCACHE_DESC_SAVED_SEQ);
	EXPECT_CONFIRMED(false, PCacheDescriptorSetFree(listed));
	/* a damaged one */
	EXPECT_CONFIRMED(false, listed->sum++);
	EXPECT_CONFIRMED(false, listed->slot++);
	EXPECT_CONFIRMED(false, listed->crc++);

	/* the worker is a new one, and the start has judged the entry or not */
	EXPECT_CONFIRMED(false, generation = 0);
	EXPECT_CONFIRMED(false, generation = 0, PCacheStart.checked_generation = GenerationOf(0));
	EXPECT_CONFIRMED(true, generation = 0, PCacheStart.checked_generation = GenerationOf(1));
	/* it is asked to stop */
	EXPECT_CONFIRMED(false, ShutdownRequestPending = true);
	ShutdownRequestPending = false;
}

/* What is not confirmed is listed anew, if it is settled then. */
static void
TestListedAgain(void **state)
{
	BeginAlone(2);
	ListNow();
	assert_int_equal(CountListed(), 2);

	/* somebody reads one of them */
	LockContentsShared(0);
	BeginCheckpoint();
	assert_true(NextRound(0));
	assert_false(IsListed(0));
	assert_true(IsListed(1));
	UnlockContentsShared(0);
	ListNow();
	assert_true(IsListed(0));

	/* one was changed, and one is replaced */
	Change(0, 60);
	WriteBack(0);
	Evict(1);
	Read(1, 2);
	ListNow();
	assert_int_equal(CountListed(), 0);
	BeginCheckpoint();
	ListNow();
	assert_int_equal(CountListed(), 2);
}

/* Between the two looks there is a change, another page, or a checkpoint. */
static void
TestLooks(void **state)
{
	BeginAlone(4);
	assert_true(NextRound(PAUSE));
	Change(0, 62);
	WriteBack(0);
	Evict(1);
	Read(1, 2);
	LockContents(2);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 1);
	assert_true(IsListed(3));
	UnlockContents(2);

	/* what was seen below another redo point is seen anew */
	BeginAlone(2);
	assert_true(NextRound(PAUSE));
	BeginCheckpoint();
	n_sums = 0;
	assert_true(NextRound(PAUSE));
	assert_true(n_sums >= 2);
	assert_int_equal(CountListed(), 0);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 2);

	/* WAL that was inserted before the first one must be on disk */
	BeginAlone(2);
	flushed_k = world.next_k - 1;
	assert_true(NextRound(PAUSE));
	n_sums = 0;
	for (int i = 0; i < 3; i++)
		assert_true(NextRound(PAUSE));
	assert_int_equal(n_sums, 0);
	assert_int_equal(CountListed(), 0);
	flushed_k = world.next_k++;
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 2);

	/* but not in recovery */
	BeginAlone(2);
	flushed_k = 0;
	in_recovery = true;
	assert_true(NextRound(PAUSE));
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 2);
}

static void
NextCheckpoint(void)
{
	BeginCheckpoint();
	on_confirm = NULL;
}

/* There is another checkpoint while entries are confirmed. */
static void
TestCheckpointMeanwhile(void **state)
{
	BeginAlone(2);
	ListNow();
	world.next_k = 35;
	Change(0, 61);
	WriteBack(0);
	on_confirm = NextCheckpoint;
	world.next_k = 34;			/* the change is before the second one only */
	BeginCheckpoint();
	world.next_k = 40;
	assert_true(NextRound(0));
	assert_int_equal(world.checkpoints, 3);
	assert_true(ledger_memory[0].seq == GenerationOf(1));
	assert_true(ledger_memory[1].seq == GenerationOf(2));
	n_sums = 0;
	assert_true(NextRound(PAUSE));
	assert_int_equal(n_sums, 1);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 2);
}

#define EXPECT_ASLEEP(...) \
	do { \
		BeginAlone(2); \
		PCacheStart.checked_generation = GenerationOf(0); \
		ledger_memory[0].seq = GenerationOf(0); \
		__VA_ARGS__; \
		assert_false(NextRound(PAUSE)); \
		assert_int_equal(n_sums, 0); \
		assert_true(ledger_memory[0].seq == GenerationOf(0)); \
		assert_true(ledger_memory[1].seq == PCACHE_DESC_FREE_SEQ); \
	} while (0)

/* Without what the rule asks for, nothing is touched. */
static void
TestConditions(void **state)
{
	EXPECT_ASLEEP(library_control.superblock.power_rule = PCACHE_POWER_COLD);
	EXPECT_ASLEEP(library_control.superblock.power_rule = PCACHE_POWER_HEADERS);
	EXPECT_ASLEEP(not_synced = true);
	EXPECT_ASLEEP(watched.data_checksum_version = 0);
	EXPECT_ASLEEP(watched.wal_level = WAL_LEVEL_MINIMAL);

	BeginAlone(2);
	watched.data_checksum_version = 0;
	watched.wal_log_hints = true;
	assert_true(NextRound(PAUSE));
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), 2);
	watched.wal_log_hints = false;
}

/* Put other pages into slots. */
static void
Replace(int first, int end)
{
	for (int slot = first; slot < end; slot++)
	{
		FillSlot(slot, 2 * MAX_SLOTS + slot);
		SetLsn(slot, LsnOf(11));
	}
}

/* A round goes after the clock sweep, one round behind, and after the list of free buffers. */
static void
TestRounds(void **state)
{
	const int	n = MAX_SLOTS;

	BeginAlone(n);
	sweep_at = 30;
	/* no time */
	assert_true(NextRound(0));
	assert_int_equal(n_sums, 0);
	/* the sweep is where it was, so there is no more to do then */
	assert_true(NextRound(PAUSE));
	for (int slot = 0; slot < n; slot++)
		assert_true(flushed[slot]);
	assert_int_equal(CountListed(), 0);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), n);

	/* what is filled now is seen in the round after the next end of one */
	Replace(40, 50);
	sweep_at = 50;
	n_sums = 0;
	assert_true(NextRound(PAUSE));
	assert_int_equal(n_sums, 0);
	assert_true(NextRound(PAUSE));
	assert_int_equal(n_sums, 10);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), n);

	/* what is replaced behind that is not, until there is a checkpoint */
	Replace(0, 10);
	ListNow();
	assert_int_equal(CountListed(), n - 10);

	/* round the end */
	Replace(90, n);
	sweep_at = 5;
	assert_true(NextRound(PAUSE));
	ListNow();
	assert_int_equal(CountListed(), n - 5);
	BeginCheckpoint();
	n_sums = 0;
	assert_true(NextRound(PAUSE));
	assert_int_equal(n_sums, 5);
	assert_false(NextRound(PAUSE));
	assert_int_equal(CountListed(), n);

	/* free buffers are filled upwards, without the sweep */
	BeginAlone(n);
	for (int slot = 40; slot < n; slot++)
		*StateOf(slot) = 0;
	ListNow();
	assert_int_equal(CountListed(), 40);
	Replace(40, 64);
	ListNow();
	assert_int_equal(CountListed(), 64);
	Replace(64, n);
	ListNow();
	assert_int_equal(CountListed(), n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestListed),
		cmocka_unit_test(TestConfirmed),
		cmocka_unit_test(TestListedAgain),
		cmocka_unit_test(TestLooks),
		cmocka_unit_test(TestCheckpointMeanwhile),
		cmocka_unit_test(TestConditions),
		cmocka_unit_test(TestRounds),
		cmocka_unit_test(TestInterleavings),
		cmocka_unit_test(TestMutants),
	};

	return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
