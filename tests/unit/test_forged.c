/*-------------------------------------------------------------------------
 *
 * test_forged.c
 *	  How much work is a forged pool for the start?
 *
 * Whoever can write to the pool can give each slot a descriptor that passes all
 * gates.  The start must not take longer than in proportion to the number of
 * slots.  So its work is counted, for a number of slots and for twice as many:
 * the compiler has a function called in each basic block of the code under
 * test, which is included below as it is.  The gates are played by functions
 * here.
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
#include "storage/buf_internals.h"
#include "storage/pcache_start.h"
#include "storage/shmem.h"
#include "utils/injection_point.h"

#include "unit.h"
#include "unit_server.h"
#include "unit_shmem.h"

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
#include "buf_table.c"
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
static PersistentCacheControl control;

int			NBuffers = MAX_SLOTS;
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

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	static void *table = NULL;

	free(table);
	table = aligned_alloc(PG_CACHE_LINE_SIZE, CACHELINEALIGN(size));
	memset(table, 0, size);
	*found = false;
	return table;
}

uint32
LockBufHdr(BufferDesc *buf)
{
	return pg_atomic_read_u32(&buf->state) | BM_LOCKED;
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

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

typedef void (*Forger) (PCacheDescriptor *desc, uint32 slot, uint32 n);

/* So many times is each pool forged, each time with other keys of the table. */
#define ROUNDS		4

/* What the startup process does if there are no helpers. */
static void
MapSlots(const PCachePageFacts *facts, uint32 n, PCacheRebuildTotals *totals)
{
	for (uint32 first = 0; first < n; first += PCACHE_SLOTS_PER_CHUNK)
		PCacheMapChunk(facts, first, Min(PCACHE_SLOTS_PER_CHUNK, n - first), totals);
}

/* Have nothing mapped, and n slots forged. */
static void
Forge(Forger forge, uint32 n)
{
	memset(&control, 0, sizeof(control));
	memset(buffers, 0, sizeof(buffers));
	memset(descs, 0, sizeof(descs));
	stats = 0;
	InitBufTable(MAX_SLOTS);
	for (uint32 slot = 0; slot < n; slot++)
	{
		buffers[slot].bufferdesc.buf_id = slot;
		descs[slot].spc_oid = DEFAULTTABLESPACE_OID;
		descs[slot].db_oid = 5;
		descs[slot].rel_number = REL;
		forge(&descs[slot], slot, n);
	}
}

/* How many buffers are there in the chains of the mapping table? */
static uint64
CountMapped(void)
{
	uint64		mapped = 0;

	for (uint32 b = 0; b <= BucketMask; b++)
	{
		for (BufTableLink link = Buckets[b]; link.next != 0; link = Links[link.next - 1])
			mapped++;
	}
	return mapped;
}

/* What is kept is in the table, under its tag, and nothing else is. */
static void
CheckTable(uint32 n)
{
	uint64		kept = 0;

	for (uint32 slot = 0; slot < n; slot++)
	{
		BufferDesc *buf = GetBufferDescriptor(slot);
		uint32		state = pg_atomic_read_u32(&buf->state);

		if (state == 0)
			continue;
		assert_int_equal(state & (BM_TAG_VALID | BM_VALID), BM_TAG_VALID | BM_VALID);
		assert_int_equal(buf->tag.blockNum, descs[slot].block_number);
		assert_int_equal(BufTableLookup(&buf->tag, BufTableHashCode(&buf->tag)), slot);
		kept++;
	}
	assert_int_equal(kept, control.start.pages[PCACHE_PAGE_KEPT]);
	assert_int_equal(kept, CountMapped());
}

/* Returns how many steps it takes to rebuild the mapping of n slots. */
static uint64
StepsFor(Forger forge, uint32 n)
{
	uint64		taken = 0;

	for (int round = 0; round < ROUNDS; round++)
	{
		PCachePageFacts facts = {0};
		PCacheRebuildTotals totals = {0};

		Forge(forge, n);
		facts.sizes = PCacheRelSizesCreate(0);
		steps = 0;
		MapSlots(&facts, n, &totals);
		PCacheForgetDuplicates(n, &totals);
		taken += steps;
		PCacheRelSizesFree(facts.sizes);
		memcpy(control.start.pages, totals.pages, sizeof(control.start.pages));
		CheckTable(n);
	}
	return taken;
}

/* Twice as many slots are about twice as much work. */
static void
IsLinear(const char *what, Forger forge, PCachePageVerdict verdict, double share)
{
	uint64		once = StepsFor(forge, MAX_SLOTS / 2);
	uint64		twice;

	assert_int_equal(control.start.pages[verdict], MAX_SLOTS / 2 * share);
	twice = StepsFor(forge, MAX_SLOTS);
	assert_int_equal(control.start.pages[verdict], MAX_SLOTS * share);
	print_message("%-40s %10llu steps for %d slots, %10llu for %d\n", what,
				  (unsigned long long) once, MAX_SLOTS / 2,
				  (unsigned long long) twice, MAX_SLOTS);
	assert_true(once > ROUNDS * MAX_SLOTS / 2);
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

/* One page in the first half of the slots, and then others. */
static void
ForgeSameAndOthers(PCacheDescriptor *desc, uint32 slot, uint32 n)
{
	desc->block_number = Max(slot, n / 2 - 1);
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
	IsLinear("a pool as it is saved", ForgeNothing, PCACHE_PAGE_KEPT, 1);
	IsLinear("the same page in all slots", ForgeSame, PCACHE_PAGE_DUPLICATE, 1);
	IsLinear("each page in two slots", ForgePairs, PCACHE_PAGE_DUPLICATE, 1);
	IsLinear("each page in two slots, reversed", ForgePairsReversed, PCACHE_PAGE_DUPLICATE, 1);
	IsLinear("one page in half of the slots", ForgeSameAndOthers, PCACHE_PAGE_DUPLICATE, 0.5);
	IsLinear("relations that are not there", ForgeMissing, PCACHE_PAGE_NO_FILE, 1);
	IsLinear("... all with the same hash value", ForgeCollisions, PCACHE_PAGE_NO_FILE, 1);
	/* one system call for each, no more */
	assert_int_equal(stats, MAX_SLOTS);
}

/* A helper has failed: nothing of what was mapped is left. */
static void
TestForgetAll(void **state)
{
	const Forger forgers[] = {ForgeNothing, ForgeSame, ForgePairs};

	for (int i = 0; i < lengthof(forgers); i++)
	{
		for (uint32 n = 2; n <= MAX_SLOTS; n = n * 2 + 3)
		{
			PCachePageFacts facts = {0};
			PCacheRebuildTotals totals = {0};

			Forge(forgers[i], n);
			facts.sizes = PCacheRelSizesCreate(0);
			MapSlots(&facts, n, &totals);
			assert_int_equal(totals.pages[PCACHE_PAGE_KEPT], n);
			assert_int_equal(CountMapped(), n);

			PCacheForgetAll(n);
			assert_int_equal(CountMapped(), 0);
			for (uint32 slot = 0; slot < n; slot++)
				assert_int_equal(pg_atomic_read_u32(&buffers[slot].bufferdesc.state), 0);

			memset(&totals, 0, sizeof(totals));
			MapSlots(&facts, n, &totals);
			PCacheForgetDuplicates(n, &totals);
			PCacheRelSizesFree(facts.sizes);
			memcpy(control.start.pages, totals.pages, sizeof(control.start.pages));
			CheckTable(n);
		}
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
		cmocka_unit_test(TestForgetAll),
	};

	return cmocka_run_group_tests_name("forged pools", tests, NULL, NULL);
}
