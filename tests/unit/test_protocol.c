/*-------------------------------------------------------------------------
 *
 * test_protocol.c
 *	  Mark and seal under power cuts: all interleavings of who changes pages
 *	  and of the sealer, with the power cut after each step.
 *
 * pcache_mark.c, pcache_sealer.c and pcache_descriptor.c are included below, as
 * they are, and the files that these need.  What they ask of the server, and
 * pcache_persist.h, is defined here.  The macros after the includes put
 * functions of this file in the place of the atomic operations, of memcpy(),
 * of PageGetLSN() and of UnlockBufHdr(): each of these, like each of the
 * other calls, ends a step, and any other actor may go on (interleave.h).
 *
 * bufmgr.c cannot be had without the rest of the server; its part is played by
 * the programs below, which make the same calls and stores in the same order.
 *
 * The media is a shadow image.  Of each cache line it may hold any version
 * since the last one that some actor flushed, and then waited for by a drain
 * of its own; the lines are independent.  After each step, all of those
 * images are shown to the real page gate: a page that it keeps must be the
 * page as it is in shared buffers, complete, and under the tag by which it can
 * be found there.
 *
 * Last, to show that all of it is needed and that this test would notice, each
 * step of the protocol is left out, or done wrong: see mutants[].
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_protocol.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog.h"
#include "catalog/pg_tablespace_d.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pcache_run.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sync.h"
#include "utils/wait_event.h"

#define N_ACTORS		3

#include "unit.h"
#include "interleave.h"

/* ------------------------------------------------------------------------
 * What the code under test calls
 * ------------------------------------------------------------------------
 */

static uint64 HookRead(volatile pg_atomic_uint64 *ptr);
static void HookWrite(volatile pg_atomic_uint64 *ptr, uint64 value);
static bool HookCas(volatile pg_atomic_uint64 *ptr, uint64 *expected, uint64 value);
static uint64 HookExchange(volatile pg_atomic_uint64 *ptr, uint64 value);
static uint64 HookFetchOr(volatile pg_atomic_uint64 *ptr, uint64 bits);
static uint64 HookFetchAnd(volatile pg_atomic_uint64 *ptr, uint64 bits);
static uint64 HookFetchAdd(volatile pg_atomic_uint64 *ptr, int64 add);
static void HookMemcpy(void *dest, const void *src, size_t len);
static XLogRecPtr HookPageGetLSN(const PageData *page);
static void HookUnlockBufHdr(BufferDesc *buf, uint32 state);
static void SealerEnqueue(int buf_id);

#undef memcpy
#define pg_atomic_read_u64 HookRead
#define pg_atomic_write_u64 HookWrite
#define pg_atomic_compare_exchange_u64 HookCas
#define pg_atomic_exchange_u64 HookExchange
#define pg_atomic_fetch_or_u64 HookFetchOr
#define pg_atomic_fetch_and_u64 HookFetchAnd
#define pg_atomic_fetch_add_u64 HookFetchAdd
#define pg_atomic_fetch_sub_u64(ptr, sub) HookFetchAdd(ptr, -(sub))
#define memcpy HookMemcpy
#define PageGetLSN HookPageGetLSN
#define UnlockBufHdr HookUnlockBufHdr

#include "pcache_descriptor.c"
#include "pcache_kept.c"
#include "pcache_mark.c"
#include "pcache_queue.c"
#include "pcache_retag.c"
#include "pcache_untrusted.c"
#define PCacheEnqueue SealerEnqueue
#include "pcache_sealer.c"
#undef PCacheEnqueue
#include "pcache_describe.c"

#undef memcpy
#undef UnlockBufHdr

/* ------------------------------------------------------------------------
 * Mutants
 * ------------------------------------------------------------------------
 */

typedef enum Mutant
{
	M_NONE,
	M_MARK_NO_FLUSH,
	M_MARK_NO_DRAIN,
	M_MARK_AFTER_CHANGE,
	M_MARK_ODD_STAYS,
	M_MARK_PLAIN_STORE,
	M_MARK_NO_QUEUE,
	M_HINT_NO_MARK,
	M_HINT_NO_HEADER_LOCK,
	M_EVICT_NO_MARK,
	M_EVICT_MARK_AFTER_TAG,
	M_EVICT_MARK_AFTER_MAPPING,
	M_RETAG_NO_MARK,
	M_SEALER_NO_LOCK_CHECK,
	M_SEALER_NO_HEADER_LOCK,
	M_SEALER_NO_VALID_CHECK,
	M_SEALER_EPOCH_EARLY,
	M_SEALER_PLAIN_STORE,
	M_SEALER_SEQ_FIRST,
	M_SEALER_NO_PAGE_FLUSH,
	M_SEALER_NO_PAGE_DRAIN,
	M_SEALER_NO_DESC_FLUSH,
	M_SEALER_NO_DESC_DRAIN,
	M_SEALER_NO_REQUEUE_LOCKED,
	M_SEALER_NO_REQUEUE_FAILED,
	M_QUEUE_SUMMARY_LATE,
	M_ERRORS_NO_BIT,
	M_ERRORS_AFTER_VALID,
	M_ERRORS_COUNT_LAST,
	M_SEALER_NO_ERRORS_CHECK,
	M_SEALER_ERRORS_CHECK_FIRST,
	M_RETAG_NOT_TRUSTED,
	N_MUTANTS
} Mutant;

typedef enum Expected
{
	HARMLESS,					/* no violation at all */
	WRONG_PAGE,					/* a page is kept that must not be */
	LOST,						/* a page is never sealed */
} Expected;

static const struct
{
	const char *what;
	Expected	expected;
}			mutants[N_MUTANTS] = {
	[M_NONE] = {"the code as it is", HARMLESS},
	[M_MARK_NO_FLUSH] = {"mark: does not flush", WRONG_PAGE},
	[M_MARK_NO_DRAIN] = {"mark: does not drain", WRONG_PAGE},
	[M_MARK_AFTER_CHANGE] = {"mark: after the change, not before it", WRONG_PAGE},
	[M_MARK_ODD_STAYS] = {"mark: an odd seq is left as it is", WRONG_PAGE},
	[M_MARK_PLAIN_STORE] = {"mark: plain store, not compare-and-swap", WRONG_PAGE},
	[M_MARK_NO_QUEUE] = {"mark: does not queue", LOST},
	[M_HINT_NO_MARK] = {"hint LSN: no mark", WRONG_PAGE},
	/* see rule "seq moves before the first store of a change" */
	[M_HINT_NO_HEADER_LOCK] = {"hint LSN: mark not under the header lock", WRONG_PAGE},
	[M_EVICT_NO_MARK] = {"eviction: no mark", WRONG_PAGE},
	/* only the mapping table matters */
	[M_EVICT_MARK_AFTER_TAG] = {"eviction: mark after the tag is cleared", HARMLESS},
	[M_EVICT_MARK_AFTER_MAPPING] = {"eviction: mark after the tag has left the mapping", WRONG_PAGE},
	[M_RETAG_NO_MARK] = {"new tag: no mark, not queued", LOST},
	[M_SEALER_NO_LOCK_CHECK] = {"sealer: content lock not looked at", WRONG_PAGE},
	[M_SEALER_NO_HEADER_LOCK] = {"sealer: header lock not taken", WRONG_PAGE},
	[M_SEALER_NO_VALID_CHECK] = {"sealer: takes a page that is being read", WRONG_PAGE},
	[M_SEALER_EPOCH_EARLY] = {"sealer: epoch read before the content lock is looked at", WRONG_PAGE},
	[M_SEALER_PLAIN_STORE] = {"sealer: plain store, not compare-and-swap", WRONG_PAGE},
	[M_SEALER_SEQ_FIRST] = {"sealer: seq before the rest of the descriptor", WRONG_PAGE},
	[M_SEALER_NO_PAGE_FLUSH] = {"sealer: page not flushed", WRONG_PAGE},
	[M_SEALER_NO_PAGE_DRAIN] = {"sealer: no drain before descriptors", WRONG_PAGE},
	[M_SEALER_NO_DESC_FLUSH] = {"sealer: descriptor not flushed", LOST},
	[M_SEALER_NO_DESC_DRAIN] = {"sealer: no drain after descriptors", LOST},
	[M_SEALER_NO_REQUEUE_LOCKED] = {"sealer: does not queue a locked page again", LOST},
	[M_SEALER_NO_REQUEUE_FAILED] = {"sealer: does not queue again if seq has moved", LOST},
	[M_QUEUE_SUMMARY_LATE] = {"queue: summary cleared after the word", LOST},
	[M_ERRORS_NO_BIT] = {"read with errors: nobody is told", WRONG_PAGE},
	[M_ERRORS_AFTER_VALID] = {"read with errors: told when the page is valid", WRONG_PAGE},
	/* the page is not valid yet, so nobody asks */
	[M_ERRORS_COUNT_LAST] = {"read with errors: counted after the bit is set", HARMLESS},
	[M_SEALER_NO_ERRORS_CHECK] = {"sealer: does not ask for errors", WRONG_PAGE},
	/* the mark for the read has moved seq since */
	[M_SEALER_ERRORS_CHECK_FIRST] = {"sealer: asks for errors before the header is locked", HARMLESS},
	[M_RETAG_NOT_TRUSTED] = {"new tag: errors of the page before are not forgotten", LOST},
};

static Mutant mutant;

/* ------------------------------------------------------------------------
 * The world: all that the actors share
 * ------------------------------------------------------------------------
 */

#define N_SLOTS			2
#define N_TAGS			3
#define FIRST_REL		16384	/* the relation of tag 0; block 0 each */
#define SEALER			0		/* which actor is the sealer */
#define NOBODY			(-1)

#define LINE			PCACHE_CACHE_LINE
#define LINES_PER_SLOT	3		/* descriptor, page header, page contents */
#define N_LINES			(N_SLOTS * LINES_PER_SLOT)
#define CONTENTS_AT		4096	/* in the page */
#define MAX_VERSIONS	24
#define QUEUE_WORDS		3		/* summary, queue, kept pages: one word each */

/* What a page says; the high and low half of an LSN always differ. */
typedef struct Contents
{
	XLogRecPtr	lsn;
	uint64		words;
} Contents;

static union
{
	PCacheDescriptor desc[N_SLOTS];
	char		align[LINE];
}			descriptors __attribute__((aligned(LINE)));
static char blocks[N_SLOTS * BLCKSZ] __attribute__((aligned(4096)));
static PersistentCacheControl control;

/* What pcache_untrusted.c allocates; in use where pages are read with errors. */
static union
{
	pg_atomic_uint64 words[8192 / sizeof(uint64)];
	char		space[8192];
}			untrusted __attribute__((aligned(PCACHE_CACHE_LINE)));
static bool reads_with_errors;
static bool counts_last;		/* for M_ERRORS_COUNT_LAST */
static bool early_errors;		/* for M_SEALER_ERRORS_CHECK_FIRST */

/* The queue, the bits of kept pages, and counters of marks. */
static union
{
	pg_atomic_uint64 words[QUEUE_WORDS];
	char		space[8192];
}			queue __attribute__((aligned(PCACHE_CACHE_LINE)));

static struct
{
	/* the server's */
	struct
	{
		uint32		state;		/* of the header; the tag is in its place */
		int			exclusive;	/* who holds the content lock, or NOBODY */
		int			shared;		/* how many do */
	}			buf[N_SLOTS];
	int			mapping[N_TAGS];	/* slot, or -1 */
	Contents	files[N_TAGS];
	uint64		completed_epoch;

	/* the test's own: what is in shared buffers when nobody is in a change */
	struct
	{
		bool		complete;
		bool		to_be_sealed;	/* in the end */
		bool		with_errors;	/* it was read so, and never to be kept */
		int			tag;
		Contents	contents;
	}			truth[N_SLOTS];
}			world;

/* The shadow image: versions[0] is certain to be on the media. */
typedef struct Line
{
	char	   *cpu;
	int			n;
	int			flushed[N_ACTORS];	/* version that waits for a drain */
	char		versions[MAX_VERSIONS][LINE] __attribute__((aligned(8)));
} Line;

static Line lines[N_LINES];

#include "unit_protocol.h"

/* What the server defines elsewhere. */
char	   *BufferBlocks = blocks;
BufferDescPadded *BufferDescriptors;
PersistentCacheControl *PCacheCtl = &control;
PCachePool	PCacheThePool;
PCacheDescriptor *PersistentCacheDescriptors;
int			persistent_cache_mode = PERSISTENT_CACHE_ALWAYS;

static BufferDescPadded buffer_descriptors[N_SLOTS];

/* Take down what the last step has stored. */
static void
NoteStores(void)
{
	for (int i = 0; i < N_LINES; i++)
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

/* What an actor may wait for, of a slot */
enum
{
	WAIT_HEADER = 1,
	WAIT_SHARE,
	WAIT_EXCLUSIVE,
};

static bool
IsThere(int wait, int slot)
{
	switch (wait)
	{
		case WAIT_HEADER:
			return (world.buf[slot].state & BM_LOCKED) == 0;
		case WAIT_SHARE:
			return world.buf[slot].exclusive == NOBODY;
		case WAIT_EXCLUSIVE:
			return world.buf[slot].exclusive == NOBODY && world.buf[slot].shared == 0;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * The server's facilities, and the shadow image
 * ------------------------------------------------------------------------
 */

static int
SlotOfSeq(volatile void *ptr)
{
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		if (ptr == (volatile void *) &descriptors.desc[slot].seq)
			return slot;
	}
	return -1;
}

/* The count, or the bits, of pages that were read with errors. */
static bool
IsUntrusted(volatile void *ptr)
{
	return (volatile char *) ptr >= untrusted.space &&
		(volatile char *) ptr < untrusted.space + sizeof(untrusted);
}

/* Counters and the like concern nobody else. */
static bool
IsShared(volatile void *ptr)
{
	return SlotOfSeq(ptr) >= 0 ||
		ptr == (volatile void *) &control.epoch ||
		(reads_with_errors && IsUntrusted(ptr)) ||
		((volatile char *) ptr >= (volatile char *) queue.words &&
		 (volatile char *) ptr < (volatile char *) (queue.words + QUEUE_WORDS));
}

static bool
IsQueue(volatile void *ptr)
{
	return IsShared(ptr) && SlotOfSeq(ptr) < 0 && !IsUntrusted(ptr) &&
		ptr != (volatile void *) &control.epoch;
}

static bool sealer_cas_failed;	/* just before it queues a slot again */
static PCacheDescriptor *late_payload;	/* for M_SEALER_SEQ_FIRST */
static PCacheDescriptor late_copy;
static uint64 early_epoch;		/* for M_SEALER_EPOCH_EARLY */

static uint64
HookRead(volatile pg_atomic_uint64 *ptr)
{
	if (!IsShared(ptr))
		return ptr->value;
	if (me == SEALER && IsUntrusted(ptr))
	{
		if (mutant == M_SEALER_NO_ERRORS_CHECK)
			return 0;
		if (mutant == M_SEALER_ERRORS_CHECK_FIRST)
			return early_errors ? ~UINT64CONST(0) : 0;
	}
	Step();
	if (me == SEALER && mutant == M_SEALER_ERRORS_CHECK_FIRST && SlotOfSeq(ptr) >= 0)
	{
		early_errors = (UntrustedWord(SlotOfSeq(ptr))->value & UntrustedBit(SlotOfSeq(ptr))) != 0;
		Saw(early_errors);
	}
	if (me == SEALER && mutant == M_SEALER_EPOCH_EARLY)
	{
		if (SlotOfSeq(ptr) >= 0)
		{
			early_epoch = control.epoch.value;
			Saw(early_epoch);
		}
		else if (ptr == &control.epoch)
			return early_epoch;
	}
	Saw(ptr->value);
	return ptr->value;
}

static void
HookWrite(volatile pg_atomic_uint64 *ptr, uint64 value)
{
	if (IsShared(ptr))
		Step();
	ptr->value = value;
}

static bool
HookCas(volatile pg_atomic_uint64 *ptr, uint64 *expected, uint64 value)
{
	bool		plain = (me == SEALER && mutant == M_SEALER_PLAIN_STORE) ||
		(me != SEALER && mutant == M_MARK_PLAIN_STORE);
	bool		same;

	Step();
	Saw(ptr->value);
	same = ptr->value == *expected;
	if (me != SEALER && same && (*expected & 1) != 0 &&
		mutant == M_MARK_ODD_STAYS)
		return true;
	if (same || plain)
		ptr->value = value;
	else
		*expected = ptr->value;
	if (me == SEALER)
		sealer_cas_failed = !same && !plain;
	if (late_payload != NULL && (me == SEALER))
	{
		Step();
		memcpy((char *) late_payload + sizeof(uint64),
			   (char *) &late_copy + sizeof(uint64), LINE - sizeof(uint64));
		late_payload = NULL;
	}
	return same || plain;
}

static uint64
HookExchange(volatile pg_atomic_uint64 *ptr, uint64 value)
{
	uint64		old;

	Step();
	old = ptr->value;
	Saw(old);
	if (mutant == M_QUEUE_SUMMARY_LATE && ptr == QueueSummary)
		return old;
	ptr->value = value;
	if (mutant == M_QUEUE_SUMMARY_LATE)
	{
		Step();
		QueueSummary->value = 0;
	}
	return old;
}

static uint64
HookFetchOr(volatile pg_atomic_uint64 *ptr, uint64 bits)
{
	uint64		old;

	Step();
	old = ptr->value;
	if (mutant == M_MARK_NO_QUEUE && me != SEALER && IsQueue(ptr))
		return old;
	ptr->value |= bits;
	Saw(old);
	return old;
}

static uint64
HookFetchAnd(volatile pg_atomic_uint64 *ptr, uint64 bits)
{
	uint64		old;

	Step();
	old = ptr->value;
	if (mutant == M_RETAG_NOT_TRUSTED && IsUntrusted(ptr))
		return old;
	ptr->value &= bits;
	Saw(old);
	return old;
}

static uint64
HookFetchAdd(volatile pg_atomic_uint64 *ptr, int64 add)
{
	uint64		old;

	Step();
	old = ptr->value;
	if (mutant == M_RETAG_NOT_TRUSTED && add < 0)
		return old;
	/* who has this mutant counts when the bit is set */
	if (mutant == M_ERRORS_COUNT_LAST && add > 0 && !counts_last)
		return old;
	ptr->value += add;
	Saw(old);
	return old;
}

/* The sealer's copy into a descriptor, in two steps. */
static void
HookMemcpy(void *dest, const void *src, size_t len)
{
	size_t		half = len / 2;

	if (mutant == M_SEALER_SEQ_FIRST)
	{
		late_payload = (PCacheDescriptor *) ((char *) dest - sizeof(uint64));
		memcpy((char *) &late_copy + sizeof(uint64), src, len);
		return;
	}
	Step();
	memcpy(dest, src, half);
	Step();
	memcpy((char *) dest + half, (const char *) src + half, len - half);
}

static XLogRecPtr
HookPageGetLSN(const PageData *page)
{
	const PageHeaderData *header = (const PageHeaderData *) page;
	uint32		high,
				low;

	Step();
	high = header->pd_lsn.xlogid;
	Saw(high);
	Step();
	low = header->pd_lsn.xrecoff;
	Saw(low);
	/* PCacheDescribe() reads the tag next, in the same step */
	Saw(GetBufferDescriptor(((const char *) page - blocks) / BLCKSZ)->tag.relNumber);
	return ((uint64) high << 32) | low;
}

static void
SealerEnqueue(int buf_id)
{
	if (me == SEALER && sealer_cas_failed && mutant == M_SEALER_NO_REQUEUE_FAILED)
		return;
	if (me == SEALER && !sealer_cas_failed && mutant == M_SEALER_NO_REQUEUE_LOCKED)
		return;
	PCacheEnqueue(buf_id);
}

uint32
LockBufHdr(BufferDesc *buf)
{
	int			slot = buf->buf_id;
	uint32		state;

	if (me == SEALER && mutant == M_SEALER_NO_HEADER_LOCK)
		Step();
	else
	{
		StepAndWait(WAIT_HEADER, slot);
		world.buf[slot].state |= BM_LOCKED;
	}
	state = world.buf[slot].state | BM_LOCKED;
	Saw(state);
	if (me == SEALER && mutant == M_SEALER_NO_VALID_CHECK && (state & BM_TAG_VALID))
		state = (state | BM_VALID) & ~BM_IO_IN_PROGRESS;
	return state;
}

static void
HookUnlockBufHdr(BufferDesc *buf, uint32 state)
{
	Step();
	if (me == SEALER)
	{
		/* it changes nothing, and a mutant may have told it nonsense */
		if (mutant != M_SEALER_NO_HEADER_LOCK)
			world.buf[buf->buf_id].state &= ~BM_LOCKED;
		return;
	}
	world.buf[buf->buf_id].state = state & ~BM_LOCKED;
}

bool
LWLockIsHeldExclusive(LWLock *lock)
{
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		if (lock != BufferDescriptorGetContentLock(GetBufferDescriptor(slot)))
			continue;
		Step();
		if (mutant == M_SEALER_NO_LOCK_CHECK)
			return false;
		Saw(world.buf[slot].exclusive);
		sealer_cas_failed = false;
		return world.buf[slot].exclusive != NOBODY;
	}
	abort();
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	*found = false;
	if (strcmp(name, "Persistent Cache Untrusted Pages") == 0)
	{
		if (size > sizeof(untrusted))
			abort();
		return &untrusted;
	}
	if (strcmp(name, "Persistent Cache Queue") == 0)
		return queue.words;
	if (strcmp(name, "Persistent Cache Kept Pages") == 0)
		return queue.words + QUEUE_WORDS - 1;
	if (size > sizeof(queue) - LINE)
		abort();
	return queue.space + LINE;
}

/* elog(ERROR): none of it may happen */
bool
errstart(int elevel, const char *domain)
{
	abort();
}

bool
errstart_cold(int elevel, const char *domain)
{
	abort();
}

int
errmsg_internal(const char *fmt,...)
{
	abort();
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	abort();
}

void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	bool		page = len == BLCKSZ;
	const char *start = addr;

	if (me == SEALER && page && mutant == M_SEALER_NO_PAGE_FLUSH)
		return;
	if (me == SEALER && !page && mutant == M_SEALER_NO_DESC_FLUSH)
		return;
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];

		if (line->cpu + LINE <= start || line->cpu >= start + len)
			continue;
		Step();					/* line by line, in any state of the others */
		line->flushed[me] = line->n - 1;
	}
}

static int	sealer_drains;

bool
PCacheDrain(const PCacheMapping *mapping)
{
	Step();
	if (me == SEALER)
	{
		/* the first drain of a batch is for pages, the second for descriptors */
		sealer_drains++;
		if (mutant == M_SEALER_NO_PAGE_DRAIN && sealer_drains % 2 == 1)
			return true;
		if (mutant == M_SEALER_NO_DESC_DRAIN && sealer_drains % 2 == 0)
			return true;
	}
	for (int i = 0; i < N_LINES; i++)
	{
		Line	   *line = &lines[i];
		int			gone = line->flushed[me];

		if (gone <= 0)
			continue;
		memmove(line->versions[0], line->versions[gone], (line->n - gone) * LINE);
		line->n -= gone;
		for (int a = 0; a < N_ACTORS; a++)
			line->flushed[a] = Max(line->flushed[a] - gone, 0);
	}
	return true;
}

bool
PCachePersist(const PCacheMapping *mapping, const void *addr, size_t len)
{
	if (mutant == M_MARK_NO_FLUSH)
		return PCacheDrain(mapping);
	PCacheFlush(mapping, addr, len);
	if (mutant == M_MARK_NO_DRAIN)
		return true;
	return PCacheDrain(mapping);
}

/* the watermark is no part of the model */
void
PCacheFlushWatermark(void)
{
}

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

static Contents
ContentsNumber(int k)
{
	Contents	c;

	c.lsn = ((uint64) k << 32) | (k + 0x100);
	c.words = UINT64CONST(0x0101010101010101) * k;
	return c;
}

static PageHeaderData *
HeaderOf(int slot)
{
	return (PageHeaderData *) (blocks + slot * BLCKSZ);
}

static uint64 *
WordsOf(int slot)
{
	return (uint64 *) (blocks + slot * BLCKSZ + CONTENTS_AT);
}

static void
LockContents(int slot)
{
	StepAndWait(WAIT_EXCLUSIVE, slot);
	world.buf[slot].exclusive = me;
}

static void
UnlockContents(int slot)
{
	Step();
	world.buf[slot].exclusive = NOBODY;
}

static void
LockContentsShared(int slot)
{
	StepAndWait(WAIT_SHARE, slot);
	world.buf[slot].shared++;
}

static void
UnlockContentsShared(int slot)
{
	Step();
	world.buf[slot].shared--;
}

/* Change bits of the header's state. */
static void
SetState(int slot, uint32 clear, uint32 set)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);

	HookUnlockBufHdr(buf, (state & ~clear) | set);
}

static void
StoreWords(int slot, uint64 words)
{
	Step();
	world.truth[slot].complete = false;
	*WordsOf(slot) = words;
}

/* PageSetLSN(), and then the page is what it is to be */
static void
StoreLSN(int slot, int tag, Contents c)
{
	Step();
	world.truth[slot].complete = false;
	HeaderOf(slot)->pd_lsn.xlogid = c.lsn >> 32;
	Step();
	HeaderOf(slot)->pd_lsn.xrecoff = (uint32) c.lsn;
	world.truth[slot].tag = tag;
	world.truth[slot].contents = c;
	world.truth[slot].complete = true;
}

/* What is done to a page under the exclusive lock */
static void
ChangeLocked(int slot, int k)
{
	Contents	c = ContentsNumber(k);

	Forget(k, 0);
	StoreWords(slot, c.words);
	SetState(slot, 0, BM_DIRTY | BM_JUST_DIRTIED);	/* MarkBufferDirty() */
	Forget(k, 0);
	StoreLSN(slot, GetBufferDescriptor(slot)->tag.relNumber - FIRST_REL, c);
}

/* LockBuffer(), a change, UnlockBuffer() */
static void
Change(int slot, int k)
{
	Forget(k, 0);
	LockContents(slot);
	if (mutant != M_MARK_AFTER_CHANGE)
		PersistentCacheMark(slot);
	ChangeLocked(slot, k);
	if (mutant == M_MARK_AFTER_CHANGE)
		PersistentCacheMark(slot);
	Forget(k, 0);
	UnlockContents(slot);
}

/* MarkBufferDirtyHint(), with a full-page image */
static void
Hint(int slot, int k)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	Contents	c = ContentsNumber(k);
	uint32		state;

	LockContentsShared(slot);
	state = LockBufHdr(buf);
	if (mutant == M_HINT_NO_HEADER_LOCK)
		HookUnlockBufHdr(buf, state);
	if ((state & BM_DIRTY) == 0)
	{
		c.words = world.truth[slot].contents.words;
		if (mutant != M_HINT_NO_MARK)
			PersistentCacheMark(slot);
		Forget(k, state);
		StoreLSN(slot, world.truth[slot].tag, c);
	}
	if (mutant == M_HINT_NO_HEADER_LOCK)
		state = LockBufHdr(buf);
	HookUnlockBufHdr(buf, state | BM_DIRTY | BM_JUST_DIRTIED);
	Forget(k, 0);
	UnlockContentsShared(slot);
}

/* GetVictimBuffer() of a clean buffer, with InvalidateVictimBuffer() */
static void
Evict(int slot)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state = LockBufHdr(buf);
	int			tag = buf->tag.relNumber - FIRST_REL;

	HookUnlockBufHdr(buf, state + BUF_REFCOUNT_ONE);
	Forget(slot, tag);
	state = LockBufHdr(buf);
	if (mutant != M_EVICT_NO_MARK && mutant != M_EVICT_MARK_AFTER_TAG &&
		mutant != M_EVICT_MARK_AFTER_MAPPING)
		PersistentCacheMark(slot);
	Forget(slot, Mix(tag, state));
	Step();
	ClearBufferTag(&buf->tag);
	world.truth[slot].to_be_sealed = false;
	world.truth[slot].with_errors = false;
	HookUnlockBufHdr(buf, state & ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK));
	Forget(slot, tag);
	if (mutant == M_EVICT_MARK_AFTER_TAG)
		PersistentCacheMark(slot);
	Step();
	world.mapping[tag] = -1;	/* BufTableDelete() */
	if (mutant == M_EVICT_MARK_AFTER_MAPPING)
		PersistentCacheMark(slot);
}

/* BufferAlloc(), with the victim from Evict() */
static void
Alloc(int slot, int tag, bool ring)
{
	BufferDesc *buf = GetBufferDescriptor(slot);
	uint32		state;

	Forget(slot, 0);
	Step();
	world.mapping[tag] = slot;	/* BufTableInsert() */
	state = LockBufHdr(buf);
	if (mutant != M_RETAG_NO_MARK)
		PersistentCacheRetag(slot, ring);
	Forget(slot, state);
	Step();
	SetTag(&buf->tag, tag);
	world.truth[slot].to_be_sealed = !ring;
	HookUnlockBufHdr(buf, state | BM_TAG_VALID | BM_PERMANENT | BUF_USAGECOUNT_ONE);
	Forget(slot, 0);
	SetState(slot, 0, BM_IO_IN_PROGRESS);	/* StartBufferIO() */
	Forget(slot, 0);
}

static void
Unpin(int slot)
{
	StepAndWait(WAIT_HEADER, slot);
	world.buf[slot].state -= BUF_REFCOUNT_ONE;
}

/* ReadBuffer(), into the victim */
static void
Read(int slot, int tag, bool ring)
{
	Alloc(slot, tag, ring);
	StoreWords(slot, world.files[tag].words);
	StoreLSN(slot, tag, world.files[tag]);
	SetState(slot, BM_IO_IN_PROGRESS, BM_VALID);	/* TerminateBufferIO() */
	Forget(slot, 0);
	Unpin(slot);
}

static void
NoteErrors(int slot)
{
	if (mutant == M_ERRORS_NO_BIT)
		return;
	PersistentCacheReadWithErrors(slot + 1);
	if (mutant == M_ERRORS_COUNT_LAST)
	{
		counts_last = true;
		HookFetchAdd((pg_atomic_uint64 *) &untrusted, 1);
		counts_last = false;
	}
}

/* ReadBuffer() of a page that can't be verified, with zero_damaged_pages */
static void
ReadWithErrors(int slot, int tag)
{
	Alloc(slot, tag, false);
	world.truth[slot].to_be_sealed = false;
	StoreWords(slot, 0);
	StoreLSN(slot, tag, ContentsNumber(0));
	world.truth[slot].with_errors = true;
	if (mutant != M_ERRORS_AFTER_VALID)
		NoteErrors(slot);
	Forget(slot, 0);
	SetState(slot, BM_IO_IN_PROGRESS, BM_VALID);
	if (mutant == M_ERRORS_AFTER_VALID)
		NoteErrors(slot);
	Forget(slot, 0);
	Unpin(slot);
}

/* ReadBufferExtended(RBM_ZERO_AND_LOCK), into the victim, and a first change */
static void
ZeroAndLock(int slot, int tag, int k)
{
	Alloc(slot, tag, false);
	StoreWords(slot, 0);
	StoreLSN(slot, tag, ContentsNumber(0));
	LockContents(slot);
	PersistentCacheMark(slot);
	Forget(slot, 0);
	SetState(slot, BM_IO_IN_PROGRESS, BM_VALID);
	ChangeLocked(slot, k);
	UnlockContents(slot);
	Unpin(slot);
}

/* The checkpointer: epoch, BufferSync(), and done. */
static void
Checkpoint(void)
{
	uint64		epoch;
	bool		needed[N_SLOTS];

	Step();
	epoch = ++control.epoch.value;
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state = LockBufHdr(buf);

		needed[slot] = (state & BM_DIRTY) != 0;
		HookUnlockBufHdr(buf, state);
	}
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		if (!needed[slot])
			continue;
		LockContentsShared(slot);
		SetState(slot, BM_JUST_DIRTIED, BM_IO_IN_PROGRESS);
		Step();
		world.files[world.truth[slot].tag] = world.truth[slot].contents;
		SetState(slot, BM_IO_IN_PROGRESS, 0);
		UnlockContentsShared(slot);
	}
	Forget(0, epoch);
	Step();
	world.completed_epoch = epoch;
}

/* More rounds than that only add to the time; each begins from nothing. */
static void
Seal(void)
{
	int			n_rounds = n_actors == 2 ? 3 : 2;

	for (int round = 0; round < n_rounds; round++)
	{
		Forget(round, 0);
		SealQueued();
	}
}

/* ------------------------------------------------------------------------
 * Scenarios
 * ------------------------------------------------------------------------
 */

static void
ChangeTwice(void)
{
	Change(0, 50);
	Change(0, 51);
}

static void
ChangeOnce(void)
{
	Change(0, 52);
}

static void
ChangeOther(void)
{
	Change(1, 53);
}

static void
HintOnce(void)
{
	Hint(0, 54);
}

static void
HintAndChange(void)
{
	Hint(0, 55);
	Change(0, 56);
}

static void
EvictAndRead(void)
{
	Evict(0);
	Read(0, 2, false);
}

static void
EvictAndReadRing(void)
{
	Evict(0);
	Read(0, 2, true);
}

static void
EvictAndZero(void)
{
	Evict(0);
	ZeroAndLock(0, 2, 57);
}

static void
EvictReadChange(void)
{
	Evict(0);
	Read(0, 2, false);
	Change(0, 58);
}

static void
EvictAndReadWithErrors(void)
{
	Evict(0);
	ReadWithErrors(0, 2);
}

static void
ReadWithErrorsAndChange(void)
{
	Evict(0);
	ReadWithErrors(0, 2);
	Change(0, 60);
	/* a change does not make it right */
}

/* it goes, and another page is read properly */
static void
ReadWithErrorsAndEvict(void)
{
	Evict(0);
	ReadWithErrors(0, 2);
	Evict(0);
	Read(0, 0, false);
}

/* a page that goes, and comes back in another slot, to be changed there */
static void
Move(void)
{
	Evict(0);
	Evict(1);
	Read(1, 0, false);
	Change(1, 59);
}

typedef enum FirstState
{
	SEALED,						/* all slots are sealed */
	QUEUED,						/* slot 0 is marked, and queued */
} FirstState;

static const struct
{
	const char *name;
	FirstState	start;
	void		(*second) (void);
	void		(*third) (void);
	bool		large;			/* not for mutants */
	bool		errors;			/* pages are read with errors */
}			scenarios[] = {
	{"two changes", SEALED, ChangeTwice},
	{"two changes of a marked page", QUEUED, ChangeTwice},
	{"LSN of a hint", SEALED, HintOnce},
	{"LSN of a hint, marked page", QUEUED, HintOnce},
	{"LSN of a hint, then a change", QUEUED, HintAndChange},
	{"eviction, another page", SEALED, EvictAndRead},
	{"eviction of a marked page, another page", QUEUED, EvictAndRead},
	{"eviction, another page into a ring", SEALED, EvictAndReadRing},
	{"eviction, another page, changed", QUEUED, EvictReadChange},
	{"eviction, a new page", QUEUED, EvictAndZero},
	{"a page moves to another slot", SEALED, Move},
	{"eviction, a page read with errors", SEALED, EvictAndReadWithErrors,.errors = true},
	{"eviction of a marked page, a page read with errors", QUEUED, EvictAndReadWithErrors,.errors = true},
	{"a page read with errors, changed", QUEUED, ReadWithErrorsAndChange,.errors = true},
	{"a page read with errors, then another page", QUEUED, ReadWithErrorsAndEvict,.errors = true},
	{"change, and LSN of a hint by another", QUEUED, ChangeOnce, HintOnce},
	{"changes by two", SEALED, ChangeOnce, ChangeTwice,.large = true},
	{"changes of two slots", QUEUED, ChangeOnce, ChangeOther,.large = true},
	{"eviction, and change of another slot", QUEUED, EvictAndRead, ChangeOther,.large = true},
	{"change, and a checkpoint", SEALED, ChangeOnce, Checkpoint},
	{"change of a marked page, and a checkpoint", QUEUED, ChangeOnce, Checkpoint},
	{"LSN of a hint, and a checkpoint", QUEUED, HintOnce, Checkpoint},
};

/* The world as it is when a scenario begins. */
static void
Reset(int scenario)
{
	Mutant		save_mutant = mutant;

	mutant = M_NONE;
	me = SEALER;
	memset(&world, 0, sizeof(world));
	memset(&descriptors, 0, sizeof(descriptors));
	memset(&control, 0, sizeof(control));
	memset(blocks, 0, sizeof(blocks));
	control.epoch.value = 1;
	PersistentCacheDescriptors = descriptors.desc;
	BufferDescriptors = buffer_descriptors;
	PCacheKeptShmemInit();
	PCacheMarkShmemInit();
	PCacheQueueShmemInit();
	PCacheUntrustedShmemInit();
	reads_with_errors = scenarios[scenario].errors;
	early_errors = false;
	for (int tag = 0; tag < N_TAGS; tag++)
	{
		world.files[tag] = ContentsNumber(10 + tag);
		world.mapping[tag] = tag < N_SLOTS ? tag : -1;
	}
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		char	   *page = blocks + slot * BLCKSZ;

		buf->buf_id = slot;
		SetTag(&buf->tag, slot);
		world.buf[slot].state = BM_VALID | BM_TAG_VALID | BM_PERMANENT | BUF_USAGECOUNT_ONE;
		world.buf[slot].exclusive = NOBODY;
		descriptors.desc[slot].seq = PCACHE_DESC_FREE_SEQ;

		lines[slot * LINES_PER_SLOT].cpu = (char *) &descriptors.desc[slot];
		lines[slot * LINES_PER_SLOT + 1].cpu = page;
		lines[slot * LINES_PER_SLOT + 2].cpu = page + CONTENTS_AT;
	}
	for (int i = 0; i < N_LINES; i++)
	{
		lines[i].n = 1;
		memset(lines[i].flushed, 0, sizeof(lines[i].flushed));
		memcpy(lines[i].versions[0], lines[i].cpu, LINE);
	}
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		StoreWords(slot, world.files[slot].words);
		StoreLSN(slot, slot, world.files[slot]);
		world.truth[slot].to_be_sealed = true;
		PCacheEnqueue(slot);
	}
	SealQueued();
	if (scenarios[scenario].start == QUEUED)
		PersistentCacheMark(0);
	NoteStores();

	mutant = save_mutant;
	sealer_drains = 0;
	sealer_cas_failed = false;
	late_payload = NULL;
	n_actors = scenarios[scenario].third != NULL ? 3 : 2;
	actors[SEALER].program = Seal;
	actors[1].program = scenarios[scenario].second;
	actors[2].program = scenarios[scenario].third;
}

/* ------------------------------------------------------------------------
 * Power cuts
 * ------------------------------------------------------------------------
 */

static const PCacheMediaReport no_bad_blocks = {0};

/* The power fails now: is there an image from which a wrong page is kept? */
static void
CheckState(void)
{
	PCachePageFacts facts = {
		.file_size = PG_UINT64_MAX,
		.lsn_limit = PG_UINT64_MAX,
		.drop_unlogged = true,
		.completed_epoch = world.completed_epoch,
		.redo = PG_UINT64_MAX,	/* so that the epoch alone has to tell */
		.media = &no_bad_blocks,
	};

	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		Line	   *line = &lines[slot * LINES_PER_SLOT];
		const Line *header = line + 1;
		const Line *words = line + 2;

		for (int v = 0; v < line->n; v++)
		{
			const PCacheDescriptor *desc = (const PCacheDescriptor *) line->versions[v];
			const Contents *truth = &world.truth[slot].contents;
			int			tag;

			n_images += header->n * words->n;
			if (PCachePageGate(desc, slot, &facts) != PCACHE_PAGE_KEPT)
				continue;
			n_kept += header->n * words->n;
			tag = desc->rel_number - FIRST_REL;
			if (tag < 0 || tag >= N_TAGS || world.mapping[tag] != slot)
				Violation(WRONG_PAGE, "tag %d is kept in slot %d, and has left it", tag, slot);
			else if (world.truth[slot].with_errors)
				Violation(WRONG_PAGE, "a page that was read with errors is kept");
			else if (!world.truth[slot].complete)
				Violation(WRONG_PAGE, "a page in change is kept");
			else if (tag != world.truth[slot].tag || desc->page_lsn != truth->lsn)
				Violation(WRONG_PAGE, "the descriptor of another page is kept");
			for (int h = 0; h < header->n; h++)
			{
				if (PageXLogRecPtrGet(((const PageHeaderData *) header->versions[h])->pd_lsn) != truth->lsn)
					Violation(WRONG_PAGE, "a page with another LSN is kept");
			}
			for (int w = 0; w < words->n; w++)
			{
				if (memcmp(words->versions[w], &truth->words, sizeof(uint64)) != 0)
					Violation(WRONG_PAGE, "a page with other contents is kept");
			}
			if (!PCachePageIsDirty(desc, &facts) &&
				tag >= 0 && tag < N_TAGS &&
				(world.files[tag].lsn != truth->lsn || world.files[tag].words != truth->words))
				Violation(WRONG_PAGE, "a page is kept as clean, and is not in its file");
		}
	}
}

/* All are through: what is queued must get sealed now, for certain. */
static void
CheckEnd(void)
{
	PCachePageFacts facts = {
		.file_size = PG_UINT64_MAX,
		.lsn_limit = PG_UINT64_MAX,
		.drop_unlogged = true,
		.completed_epoch = world.completed_epoch,
		.redo = PG_UINT64_MAX,	/* so that the epoch alone has to tell */
		.media = &no_bad_blocks,
	};

	me = SEALER;
	for (int round = 0; round < 3; round++)
		SealQueued();
	NoteStores();
	CheckState();
	for (int slot = 0; slot < N_SLOTS; slot++)
	{
		Line	   *line = &lines[slot * LINES_PER_SLOT];

		if (!world.truth[slot].to_be_sealed)
			continue;
		for (int v = 0; v < line->n; v++)
		{
			if (PCachePageGate((const PCacheDescriptor *) line->versions[v], slot, &facts) != PCACHE_PAGE_KEPT)
				Violation(LOST, "slot %d is not sealed in the end", slot);
		}
	}
}

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

static uint64
HashWorld(void)
{
	uint64		hash = HashBytes(control.epoch.value, &world, sizeof(world));

	hash = HashBytes(hash, queue.words, sizeof(queue.words));
	if (reads_with_errors)
		hash = Mix(Mix(hash, untrusted.words[0].value), UntrustedWord(0)->value);
	for (int slot = 0; slot < N_SLOTS; slot++)
		hash = HashBytes(hash, &GetBufferDescriptor(slot)->tag, sizeof(BufferTag));
	for (int i = 0; i < N_LINES; i++)
	{
		hash = Mix(hash, lines[i].n);
		for (int a = 0; a < n_actors; a++)
			hash = Mix(hash, lines[i].flushed[a]);
		hash = HashBytes(hash, lines[i].versions, lines[i].n * LINE);
	}
	return hash;
}

static void
TestProtocol(void **state)
{
	mutant = M_NONE;
	for (int i = 0; i < lengthof(scenarios); i++)
	{
		uint64		states = n_states;
		uint64		images = n_images;
		uint64		kept = n_kept;

		Search(i);
		print_message("%-44s %8llu states, %9llu images, page kept in %9llu\n",
					  scenarios[i].name,
					  (unsigned long long) (n_states - states),
					  (unsigned long long) (n_images - images),
					  (unsigned long long) (n_kept - kept));
		if (violation[0] != '\0')
			fail_msg("%s: %s", scenarios[i].name, violation);
		assert_true(n_kept > kept);
	}
}

static void
TestMutants(void **state)
{
	static const char *const names[] = {"none", "wrong page", "lost"};
	int			wrong = 0;

	for (mutant = M_NONE + 1; mutant < N_MUTANTS; mutant++)
	{
		int			where = -1;

		for (int i = 0; i < lengthof(scenarios); i++)
		{
			if (scenarios[i].large)
				continue;
			Search(i);
			if (violation[0] == '\0')
				continue;
			where = i;
			break;
		}
		wrong += JudgeMutant(names, where >= 0 ? scenarios[where].name : NULL);
	}
	mutant = M_NONE;
	assert_int_equal(wrong, 0);
}

/* When may the sealer begin? */
static void
TestMaySeal(void **state)
{
	/* nobody has decided about the pool */
	control.attached.value = 0;
	control.superblock.state = PCACHE_STATE_ATTACHING;
	assert_false(MaySeal());

	/* redo is still on its way */
	control.attached.value = 1;
	assert_false(MaySeal());

	control.superblock.state = PCACHE_STATE_DIRTY;
	assert_true(MaySeal());
	memset(&control, 0, sizeof(control));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestMaySeal),
		cmocka_unit_test(TestProtocol),
		cmocka_unit_test(TestMutants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
