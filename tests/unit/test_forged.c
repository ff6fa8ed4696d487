/*-------------------------------------------------------------------------
 *
 * test_forged.c
 *	  How much work is a forged pool for the start?
 *
 * Whoever can write to the pool can give each slot a descriptor that passes all
 * gates.  The start must not take longer than in proportion to the number of
 * slots.  So its work is counted, for a number of slots and for twice as many:
 * the compiler has a function called in each basic block of the code under
 * test, which is included below as it is.  The mapping table and the gates
 * themselves are played by functions here.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_forged.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "catalog/pg_tablespace_d.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pcache_internal.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"
#include "storage/lwlock.h"
#include "utils/injection_point.h"

#include "unit.h"

#define NOT_COUNTED		__attribute__((no_sanitize_coverage))

/* volatile, since the compiler does not know who changes it */
static volatile uint64 steps;

extern void __sanitizer_cov_trace_pc(void);

/* Called in each basic block of this program. */
NOT_COUNTED void
__sanitizer_cov_trace_pc(void)
{
	steps++;
}

/* ------------------------------------------------------------------------
 * The code under test
 * ------------------------------------------------------------------------
 */

static int	CountingStat(const char *path, struct stat *st);

#define stat(path, st) CountingStat(path, st)
#include "pcache_relsize.c"
#undef stat
#include "pcache_chunk.c"
#include "pcache_mapping.c"

/* ------------------------------------------------------------------------
 * The rest of the server
 * ------------------------------------------------------------------------
 */

#define MAX_SLOTS	8192
#define REL			16384

static uint64 stats;
static PCacheDescriptor descs[MAX_SLOTS];
static BufferDescPadded buffers[MAX_SLOTS];
static int	mapping[MAX_SLOTS]; /* by block */
static PersistentCacheControl control;
static char lwlocks[1024 * sizeof(LWLockPadded)] __attribute__((aligned(128)));

int			NBuffers = MAX_SLOTS;
LWLockPadded *MainLWLockArray = (LWLockPadded *) lwlocks;
BufferDescPadded *BufferDescriptors = buffers;
PersistentCacheControl *PCacheCtl = &control;
PCachePool	PCacheThePool;
PCacheDescriptor *PersistentCacheDescriptors = NULL;
MemoryContext CurrentMemoryContext = NULL;

/* Only REL in database 5 is there. */
static int
CountingStat(const char *path, struct stat *st)
{
	stats++;
	if (strcmp(path, "base/5/16384") != 0)
	{
		errno = ENOENT;
		return -1;
	}
	memset(st, 0, sizeof(*st));
	st->st_size = (off_t) MAX_SLOTS * BLCKSZ;
	return 0;
}

bool
PCacheReadDescriptors(int fd, uint32 first, uint32 n, PCacheDescriptor *to)
{
	memcpy(to, &descs[first], n * sizeof(PCacheDescriptor));
	return true;
}

PCachePageVerdict
PCachePageGate(const PCacheDescriptor *desc, uint32 slot, const PCachePageFacts *facts)
{
	RelFileLocator rlocator = {desc->spc_oid, desc->db_oid, desc->rel_number};

	return PCacheRelSize(facts->sizes, rlocator, desc->fork_number) < 0 ?
		PCACHE_PAGE_NO_FILE : PCACHE_PAGE_KEPT;
}

bool
PCachePageIsDirty(const PCacheDescriptor *desc, const PCachePageFacts *facts)
{
	return false;
}

/* The partitions that the process has locked, in the order of their numbers. */
static bool locked[NUM_BUFFER_PARTITIONS];

static int
PartitionOf(LWLock *lock)
{
	return (LWLockPadded *) lock - MainLWLockArray - BUFFER_MAPPING_LWLOCK_OFFSET;
}

static void
Lock(LWLock *lock)
{
	for (int p = PartitionOf(lock); p < NUM_BUFFER_PARTITIONS; p++)
		assert_false(locked[p]);
	locked[PartitionOf(lock)] = true;
}

/* No two blocks have the same bucket. */
int
BufTableInsert(BufferTag *tag, uint32 hash, int slot)
{
	assert_true(locked[BufTableHashPartition(hash)]);
	if (mapping[tag->blockNum] >= 0)
		return mapping[tag->blockNum];
	mapping[tag->blockNum] = slot;
	return -1;
}

int
BufTableLookup(BufferTag *tag, uint32 hash)
{
	assert_true(locked[BufTableHashPartition(hash)]);
	return mapping[tag->blockNum];
}

void
BufTableDelete(BufferTag *tag, uint32 hash)
{
	assert_true(locked[BufTableHashPartition(hash)]);
	assert_true(mapping[tag->blockNum] >= 0);
	mapping[tag->blockNum] = -1;
}

uint32
BufTableHashCode(BufferTag *tag)
{
	return murmurhash32(tag->blockNum);
}

void
BufTablePrefetch(uint32 hash, bool element)
{
}

uint32
LockBufHdr(BufferDesc *buf)
{
	return pg_atomic_read_u32(&buf->state) | BM_LOCKED;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	Lock(lock);
	return true;
}

/* Somebody else has it, each second time. */
bool
LWLockConditionalAcquire(LWLock *lock, LWLockMode mode)
{
	static bool had = false;

	had = !had;
	if (had)
		Lock(lock);
	return had;
}

void
LWLockRelease(LWLock *lock)
{
	assert_true(locked[PartitionOf(lock)]);
	locked[PartitionOf(lock)] = false;
}

void
PCacheSetKept(int buf_id)
{
}

void
PCacheClearKept(int buf_id)
{
}

void
PCacheStartInterrupts(void)
{
}

/* Is the server to be stopped?  How often that was asked. */
static int	asked;

void
PCacheRebuildInterrupts(void)
{
	asked++;
}

void
InjectionPointRun(const char *name, void *arg)
{
}

void *
palloc(Size size)
{
	return malloc(size);
}

void *
palloc0(Size size)
{
	return calloc(1, size);
}

void *
palloc_mul(Size size, Size count)
{
	return calloc(count, size);
}

void *
palloc0_mul(Size size, Size count)
{
	return calloc(count, size);
}

char *
pstrdup(const char *text)
{
	return strdup(text);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return calloc(1, size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	return calloc(1, size);
}

void
pfree(void *p)
{
	free(p);
}

/* What the rebuild did once: a list in which each number is looked for. */
List *
list_append_unique_int(List *list, int datum)
{
	if (list == NIL)
	{
		list = calloc(1, sizeof(List));
		list->elements = calloc(MAX_SLOTS, sizeof(ListCell));
	}
	for (int i = 0; i < list->length; i++)
	{
		if (list->elements[i].int_value == datum)
			return list;
	}
	list->elements[list->length++].int_value = datum;
	return list;
}

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
errmsg(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

int
errcode(int sqlerrcode)
{
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
}

void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

typedef void (*Forger) (PCacheDescriptor *desc, uint32 slot, uint32 n);

/* What the startup process does if there are no helpers. */
static void
RebuildMapping(const PCachePageFacts *facts, uint32 n)
{
	uint32		per_chunk = PCacheSlotsPerChunk(n);
	PCacheJudgedChunk *chunk = PCacheChunkCreate(per_chunk);
	PCacheRebuildTotals totals = {0};

	for (uint32 first = 0; first < n; first += per_chunk)
		PCacheMapChunk(facts, first, Min(per_chunk, n - first),
					   chunk, &totals);
	PCacheForgetDuplicates(n, &totals);
	memcpy(control.pages, totals.pages, sizeof(control.pages));
	PCacheChunkFree(chunk);
}

/* Have nothing mapped, and n slots forged. */
static void
Forge(Forger forge, uint32 n)
{
	memset(&control, 0, sizeof(control));
	memset(buffers, 0, sizeof(buffers));
	memset(descs, 0, sizeof(descs));
	stats = 0;
	for (uint32 slot = 0; slot < n; slot++)
	{
		mapping[slot] = -1;
		buffers[slot].bufferdesc.buf_id = slot;
		descs[slot].spc_oid = DEFAULTTABLESPACE_OID;
		descs[slot].db_oid = 5;
		descs[slot].rel_number = REL;
		forge(&descs[slot], slot, n);
	}
}

/* Returns how many steps it takes to rebuild the mapping of n slots. */
static uint64
StepsFor(Forger forge, uint32 n)
{
	PCachePageFacts facts = {0};
	uint64		taken;
	uint64		mapped = 0;

	Forge(forge, n);
	facts.sizes = PCacheRelSizesCreate();
	steps = 0;
	RebuildMapping(&facts, n);
	taken = steps;
	PCacheRelSizesFree(facts.sizes);

	/* what is kept is in the table, and nothing else is */
	for (uint32 slot = 0; slot < n; slot++)
		mapped += mapping[slot] >= 0;
	assert_int_equal(mapped, control.pages[PCACHE_PAGE_KEPT]);
	return taken;
}

/* Twice as many slots are about twice as much work. */
static void
IsLinear(const char *what, Forger forge, PCachePageVerdict verdict)
{
	uint64		once = StepsFor(forge, MAX_SLOTS / 2);
	uint64		twice;

	assert_int_equal(control.pages[verdict], MAX_SLOTS / 2);
	twice = StepsFor(forge, MAX_SLOTS);
	assert_int_equal(control.pages[verdict], MAX_SLOTS);
	print_message("%-40s %10llu steps for %d slots, %10llu for %d\n", what,
				  (unsigned long long) once, MAX_SLOTS / 2,
				  (unsigned long long) twice, MAX_SLOTS);
	assert_true(once > MAX_SLOTS / 2);
	assert_true(twice < once * 5 / 2);
}

static void
ForgeNothing(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->block_number = slot;
}

static void
ForgeSame(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->block_number = 7;
}

/* First n / 2 pages, and then all of them once more. */
static void
ForgePairs(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->block_number = slot % (n / 2);
}

/* ... in the reverse order. */
static void
ForgePairsReversed(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->block_number = slot < n / 2 ? slot : n - 1 - slot;
}

static void
ForgeMissing(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->rel_number = REL + 1 + slot;
}

/* Relations that are not there, of which all have the same hash value. */
static void
ForgeCollisions(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	uint32		hash;
	RelSizeKey	key = {{0}};

	desc->rel_number = REL + 1;
	desc->db_oid = 0x40000000 + slot;
	/* hash_combine(a, b) is a ^= b + a constant + (a << 6) + (a >> 2) */
	hash = murmurhash32(desc->db_oid);
	desc->spc_oid = (0x12345678 ^ hash) - 0x9e3779b9 - (hash << 6) - (hash >> 2);

	key.rlocator.spcOid = desc->spc_oid;
	key.rlocator.dbOid = desc->db_oid;
	key.rlocator.relNumber = desc->rel_number;
	assert_int_equal(HashRelSizeKey(&key),
					 hash_combine(murmurhash32(desc->rel_number), 0x12345678));
}

static void
TestSteps(void **state)
{
	IsLinear("a pool as it is saved", ForgeNothing, PCACHE_PAGE_KEPT);
	IsLinear("the same page in all slots", ForgeSame, PCACHE_PAGE_DUPLICATE);
	IsLinear("each page in two slots", ForgePairs, PCACHE_PAGE_DUPLICATE);
	IsLinear("each page in two slots, reversed", ForgePairsReversed, PCACHE_PAGE_DUPLICATE);
	IsLinear("relations that are not there", ForgeMissing, PCACHE_PAGE_NO_FILE);
	IsLinear("... all with the same hash value", ForgeCollisions, PCACHE_PAGE_NO_FILE);
	/* one system call for each, no more */
	assert_int_equal(stats, MAX_SLOTS);
}

/* How large a chunk is: a power of two, many of them, within limits. */
static void
TestSizeOfChunks(void **state)
{
	const struct
	{
		uint32		nslots;
		uint32		per_chunk;
	}			expected[] = {
		{0, 1024}, {2048, 1024}, {65535, 1024}, {65536, 2048}, {131072, 4096},
		{1048576, 32768}, {1048575, 16384}, {8388608, 262144},
		{52428800, 262144}, {PG_UINT32_MAX, 262144},
	};

	for (int i = 0; i < lengthof(expected); i++)
		assert_int_equal(PCacheSlotsPerChunk(expected[i].nslots), expected[i].per_chunk);
}

/* Each page comes once, in the order of families and ranges of buckets. */
static void
TestOrder(void **state)
{
	for (uint32 per_chunk = 1024; per_chunk <= MAX_SLOTS; per_chunk *= 2)
	{
		PCacheJudgedChunk *chunk = PCacheChunkCreate(per_chunk);
		uint32		nbuckets = pg_nextpower2_32(NBuffers + NUM_BUFFER_PARTITIONS);
		uint32		per_range = nbuckets / (per_chunk / 32);

		/* a whole chunk, one with fewer slots, and one without any page */
		for (int part = 0; part < 3; part++)
		{
			uint32		n = part == 1 ? per_chunk / 3 : per_chunk;
			PCachePageFacts facts = {0};
			PCacheRebuildTotals totals = {0};
			bool		seen[MAX_SLOTS] = {0};
			uint32		family = 0;

			Forge(part == 2 ? ForgeMissing : ForgeNothing, MAX_SLOTS);
			facts.sizes = PCacheRelSizesCreate();
			asked = 0;
			PCacheJudgeChunk(&facts, 0, n, chunk, &totals);
			assert_int_equal(asked, (n + PCACHE_SLOTS_PER_CHECK - 1) / PCACHE_SLOTS_PER_CHECK);
			PCacheRelSizesFree(facts.sizes);

			assert_int_equal(chunk->npages, part == 2 ? 0 : n);
			assert_int_equal(totals.pages[PCACHE_PAGE_KEPT], chunk->npages);
			assert_int_equal(PCacheFamilyBegin(chunk, 0), 0);
			assert_int_equal(PCacheFamilyBegin(chunk, PCACHE_NUM_FAMILIES), chunk->npages);
			for (uint32 i = 0; i < chunk->npages; i++)
			{
				const PCacheJudgedPage *page = &chunk->sorted[i];

				assert_false(seen[page->slot]);
				seen[page->slot] = true;
				assert_int_equal(page->tag.blockNum, page->slot);
				assert_int_equal(page->hash, murmurhash32(page->slot));
				while (i >= PCacheFamilyBegin(chunk, family + 1))
					family++;
				assert_int_equal(PCacheHashFamily(page->hash), family);
				if (i > PCacheFamilyBegin(chunk, family))
					assert_true(page->hash % nbuckets / per_range >=
								page[-1].hash % nbuckets / per_range);
			}
		}
		PCacheChunkFree(chunk);
	}
}

/* Does counting tell? */
static void
TestCounter(void **state)
{
	uint64		counts[2];

	for (int i = 0; i < 2; i++)
	{
		List	   *list = NIL;

		steps = 0;
		for (int k = 0; k < MAX_SLOTS / 2 << i; k++)
			list = list_append_unique_int(list, k);
		counts[i] = steps;
		free(list->elements);
		free(list);
	}
	assert_true(counts[1] > counts[0] * 7 / 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestCounter),
		cmocka_unit_test(TestSteps),
		cmocka_unit_test(TestSizeOfChunks),
		cmocka_unit_test(TestOrder),
	};

	return cmocka_run_group_tests_name("forged pools", tests, NULL, NULL);
}
