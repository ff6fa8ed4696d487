/*-------------------------------------------------------------------------
 *
 * test_resize.c
 *	  A pool that gets another capacity keeps its pages, and no others.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_resize.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/pcache_create.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_resize.h"
#include "unit.h"

#include <sys/resource.h>

#define ROUNDS	60

/* Descriptors of 64 bytes: each 32768 of them move the blocks by 2 MiB. */
static const uint64 capacities[] = {
	16, 1000, 32767, 32768, 32769, 40000, 65535, 65536, 65537, 100000, 140000
};

typedef enum SlotKind
{
	SLOT_FREE,
	SLOT_UNSEALED,
	SLOT_SEALED,
	SLOT_DAMAGED,				/* its CRC is wrong */
	SLOT_MISPLACED,				/* it is that of another slot */
	NUM_SLOT_KINDS
} SlotKind;

static char *dir;
static uint8 *kinds;			/* SlotKind of each slot before */

static int
SetUp(void **state)
{
	dir = MakeTempDirectory(MemoryParent());
	kinds = malloc(capacities[lengthof(capacities) - 1]);
	return 0;
}

static int
TearDown(void **state)
{
	RemoveTree(dir);
	free(dir);
	free(kinds);
	return 0;
}

static PCacheDescriptor *
Mapped(const PCachePool *pool, uint64 slot)
{
	return (PCacheDescriptor *) (pool->map.base + PCACHE_DESCRIPTORS_OFFSET) + slot;
}

static char *
Page(const PCachePool *pool, const PCacheSuperblock *sb, uint64 slot)
{
	return pool->map.base + sb->blocks_offset + slot * BLCKSZ;
}

/* Slots in use, each with a page that says which block it is. */
static void
Fill(PCachePool *pool, PCacheSuperblock *sb)
{
	for (uint64 slot = 0; slot < sb->slots_used; slot++)
	{
		PCacheDescriptor *desc = Mapped(pool, slot);
		SlotKind	kind = Random() % 3 == 0 ? Random() % NUM_SLOT_KINDS : SLOT_SEALED;
		RelFileLocator rlocator = {1663, 5, 16384};

		kinds[slot] = kind;
		memcpy(Page (pool, sb, slot), &slot, sizeof(slot));
		memcpy(Page (pool, sb, slot) + BLCKSZ - sizeof(slot), &slot, sizeof(slot));
		PCacheDescriptorSetFree(desc);
		if (kind == SLOT_FREE)
			continue;
		PCacheDescriptorDescribe(desc, slot, rlocator, MAIN_FORKNUM, slot, 1, true, 3);
		if (kind == SLOT_MISPLACED)
			desc->slot = Random() % sb->slots_used;
		PCacheDescriptorSetSealed(desc);
		if (kind == SLOT_DAMAGED)
			desc->crc ^= 1U << Random() % 32;
		if (kind == SLOT_UNSEALED)
			desc->seq++;
		if (kind == SLOT_MISPLACED && desc->slot == slot)
			kinds[slot] = SLOT_SEALED;
	}
}

/* Every descriptor that is trusted speaks of the page that is there. */
static void
CheckAll(const PCachePool *pool, const PCacheSuperblock *sb, uint64 used)
{
	uint64		expected = 0;
	uint64		kept = 0;
	uint64		damaged = 0;
	uint64		expected_damaged = 0;

	for (uint64 slot = 0; slot < used; slot++)
	{
		expected += (kinds[slot] == SLOT_SEALED);
		expected_damaged += (kinds[slot] == SLOT_DAMAGED || kinds[slot] == SLOT_MISPLACED);
	}
	for (uint64 slot = 0; slot < sb->capacity; slot++)
	{
		const PCacheDescriptor *desc = Mapped(pool, slot);
		uint64		number = desc->block_number;

		if (!PCacheSeqIsSealed(desc->seq))
			continue;
		if (!PCacheDescriptorIsIntact(desc, slot))
		{
			damaged++;
			continue;
		}
		kept++;
		assert_true(number < used);
		assert_int_equal(kinds[number], SLOT_SEALED);
		assert_memory_equal(Page (pool, sb, slot), &number, sizeof(number));
		assert_memory_equal(Page (pool, sb, slot) + BLCKSZ - sizeof(number), &number, sizeof(number));
		kinds[number] = SLOT_FREE;	/* not twice */
	}
	assert_int_equal(kept, expected);
	assert_int_equal(damaged, expected_damaged);
}

static void
TestResize(void **state)
{
	SeedRandom();
	for (int round = 0; round < ROUNDS; round++)
	{
		uint64		from = capacities[Random() % lengthof(capacities)];
		uint64		to = capacities[Random() % lengthof(capacities)];
		PCacheMediaReport media = {0};
		PCacheResize resize = {.capacity = to,.media = &media};
		PCachePool	pool;
		PCacheSuperblock sb;
		PCacheSuperblocks found;
		PCacheError err;
		PCacheGeometry g = PCacheComputeGeometry(to, PCACHE_ALIGNMENT);
		uint64		used;

		if (!PCachePoolCreate(dir, true, from, 1, 2, &pool, &sb, &err))
			fail_msg("%s", err.message);
		sb.slots_used = used = Random() % 4 == 0 ? Random() % (from + 1) : Min(from, 600);
		Fill(&pool, &sb);
		if (!PCachePoolResize(&pool, &sb, &resize, &err))
			fail_msg("%s", err.message);

		assert_int_equal(pool.file_size, g.pool_size);
		assert_int_equal(pool.map.length, g.pool_size);
		PCacheReadSuperblocks(pool.fd, &found);
		assert_true(found.first_intact && found.copy_intact);
		assert_int_equal(found.chosen.capacity, to);
		assert_int_equal(found.chosen.blocks_offset, g.blocks_offset);
		assert_int_equal(found.chosen.pool_size, g.pool_size);
		assert_int_equal(found.chosen.slots_used, Min(used, to));
		/* the caller puts back another state, not we */
		assert_int_equal(found.chosen.state, PCACHE_STATE_ATTACHING);
		CheckAll(&pool, &found.chosen, Min(used, to));
		PCachePoolClose(&pool);

		/* there may be no room to create the next one beside it */
		unlink(Join(dir, "pool"));
	}
}

static bool
KeepEven(uint64 slot, void *arg)
{
	return slot % 2 == 0;
}

/* Who resizes may leave pages out. */
static void
TestFilter(void **state)
{
	PCacheMediaReport media = {0};
	PCacheResize resize = {.capacity = 65281,.media = &media,.keep = KeepEven};
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	assert_true(PCachePoolCreate(dir, true, 1000, 1, 2, &pool, &sb, &err));
	sb.slots_used = 1000;
	Fill(&pool, &sb);
	for (uint64 slot = 1; slot < sb.slots_used; slot += 2)
		kinds[slot] = SLOT_FREE;
	assert_true(PCachePoolResize(&pool, &sb, &resize, &err));
	assert_int_not_equal(resize.moved, 0);
	CheckAll(&pool, &sb, 1000);
	PCachePoolClose(&pool);
}

/* Nothing is written to a bad block, and nothing is lost but what is there. */
static void
TestBadTarget(void **state)
{
	struct rlimit limit;
	struct rlimit none;
	PCacheMediaReport media = {0};
	PCacheResize resize = {.capacity = 65281,.media = &media};
	PCacheGeometry g = PCacheComputeGeometry(65281, PCACHE_ALIGNMENT);
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	char		before[BLCKSZ] = {0};
	const uint64 bad_slot = 800;
	uint64		capacity;

	assert_true(PCachePoolCreate(dir, true, 1000, 1, 2, &pool, &sb, &err));
	sb.slots_used = 1000;
	Fill(&pool, &sb);
	for (uint64 slot = 0; slot < sb.slots_used; slot++)
	{
		PCacheDescriptor *desc = Mapped(&pool, slot);
		RelFileLocator rlocator = {1663, 5, 16384};

		PCacheDescriptorDescribe(desc, slot, rlocator, MAIN_FORKNUM, slot, 1, true, 3);
		PCacheDescriptorSetSealed(desc);
		kinds[slot] = SLOT_SEALED;
	}
	PCacheRangeAdd(&media.bad, g.blocks_offset + bad_slot * BLCKSZ, BLCKSZ);
	PCacheRangeMerge(&media.bad);
	media.blocks = PCACHE_MEDIA_BAD;
	assert_true(PCachePoolResize(&pool, &sb, &resize, &err));
	assert_false(PCacheSeqIsSealed(Mapped(&pool, bad_slot)->seq));
	assert_memory_equal(Page (&pool, &sb, bad_slot), before, BLCKSZ);
	/* whichever page was to go there */
	for (uint64 number = 0; number < 1000; number++)
	{
		bool		found = false;

		for (uint64 slot = 0; slot < 1000 && !found; slot++)
			found = PCacheSeqIsSealed(Mapped(&pool, slot)->seq) &&
				Mapped(&pool, slot)->block_number == number;
		if (!found)
			kinds[number] = SLOT_FREE;
	}
	CheckAll(&pool, &sb, 1000);

	/* the server does not even begin */
	assert_false(PCachePoolMayGrow(&pool, 100000, 0, &media, &capacity, &err));
	assert_contains(err.message, "bad blocks");
	PCacheMediaReportFree(&media);
	assert_true(PCachePoolMayGrow(&pool, 100000, 0, &media, &capacity, &err));
	assert_false(PCachePoolMayGrow(&pool, PCACHE_MAX_CAPACITY, 0, &media, &capacity, &err));
	assert_contains(err.message, "no room");
	assert_false(PCachePoolMayGrow(&pool, PCACHE_MAX_CAPACITY + UINT64CONST(1), 0, &media, &capacity, &err));
	assert_contains(err.message, "cannot have more than");

	/*
	 * as much as is configured, if there is room, but not at the cost of a
	 * start
	 */
	assert_true(PCachePoolMayGrow(&pool, 100000, 120000, &media, &capacity, &err));
	assert_int_equal(capacity, 120000);
	assert_true(PCachePoolMayGrow(&pool, 100000, PCACHE_MAX_CAPACITY, &media, &capacity, &err));
	assert_int_equal(capacity, 100000);

	/* nor if this process may not make a file that large */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	none.rlim_cur = pool.file_size + MIB(1);
	none.rlim_max = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_false(PCachePoolMayGrow(&pool, 100000, 0, &media, &capacity, &err));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_contains(err.message, "limit on the size of files");
	assert_contains(err.hint, "ulimit -f");

	pool.fs_kind = PCACHE_FS_FILE;
	assert_false(PCachePoolMayGrow(&pool, 100000, 0, &media, &capacity, &err));
	assert_contains(err.message, "ordinary file system");
	PCachePoolClose(&pool);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(TestResize, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestFilter, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestBadTarget, SetUp, TearDown),
	};

	return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
