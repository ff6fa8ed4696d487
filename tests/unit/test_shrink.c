/*-------------------------------------------------------------------------
 *
 * test_shrink.c
 *	  Which pages stay when shared buffers get smaller.
 *
 * Random pools, and what must hold of any choice: nothing that is kept is
 * colder than what is not, no slot is left empty while a page has to go, and
 * each page that moves gets a slot of its own.  The judges below know nothing
 * of how the choice is made.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_shrink.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "storage/pcache_shrink.h"

#define MAX_SLOTS	300
#define N_POOLS		20000

typedef struct Slot
{
	bool		is_bad;
	PCachePageVerdict verdict;
	uint8		usage;
} Slot;

static uint64 n_slots;
static uint64 n_staying;
static Slot slots[MAX_SLOTS];

/* What came of it. */
static bool kept[MAX_SLOTS];
static int	moved_to[MAX_SLOTS];	/* -1: it does not move */
static int	moved_from[MAX_SLOTS];	/* -1: nothing moves here */
static uint64 n_moves;
static uint64 n_kept;
static uint64 not_fitting;

static void
Choose(void)
{
	PCacheShrink *shrink = PCacheShrinkCreate(n_slots, n_staying);
	uint32		from;
	uint32		to;
	int64		last_from = -1;
	int64		last_to = -1;

	for (uint64 slot = 0; slot < n_slots; slot++)
		PCacheShrinkAdd(shrink, slot, slots[slot].is_bad, slots[slot].verdict,
						slots[slot].usage);
	PCacheShrinkChoose(shrink);
	not_fitting = shrink->not_fitting;

	n_kept = 0;
	for (uint64 slot = 0; slot < n_slots; slot++)
	{
		kept[slot] = PCacheShrinkKeeps(shrink, slot);
		n_kept += kept[slot];
		moved_to[slot] = moved_from[slot] = -1;
	}
	n_moves = 0;
	while (PCacheShrinkNextMove(shrink, &from, &to))
	{
		assert_true(from < n_slots && to < n_slots);
		assert_true((int64) from > last_from && (int64) to > last_to);
		last_from = from;
		last_to = to;
		moved_to[from] = to;
		moved_from[to] = from;
		n_moves++;
	}
	assert_false(PCacheShrinkNextMove(shrink, &from, &to));
	PCacheShrinkFree(shrink);
}

static bool
CanKeep(uint64 slot)
{
	return slots[slot].verdict == PCACHE_PAGE_KEPT && !slots[slot].is_bad;
}

static void
Judge		(void)
{
	uint64		usable = 0;
	uint64		pages = 0;

	for (uint64 slot = 0; slot < n_slots; slot++)
	{
		usable += slot < n_staying && !slots[slot].is_bad;
		pages += CanKeep(slot);

		/* only what passed its gates, and moves are from above to below */
		if (kept[slot] && !CanKeep(slot))
			fail_msg("slot %d: a page is kept that must not be", (int) slot);
		if ((moved_to[slot] >= 0) != (kept[slot] && slot >= n_staying))
			fail_msg("slot %d: moved, or not, without a reason", (int) slot);
		if (moved_from[slot] >= 0)
		{
			if (slot >= n_staying || slots[slot].is_bad || kept[slot])
				fail_msg("slot %d: a page is moved there", (int) slot);
			if (CanKeep(slot) && slots[slot].usage > slots[moved_from[slot]].usage)
				fail_msg("slot %d: a hotter page makes room", (int) slot);
			/* a page never moves for one that could as well stay */
			if (CanKeep(slot) && slots[slot].usage == slots[moved_from[slot]].usage)
				fail_msg("slot %d: a page as hot makes room", (int) slot);
		}
	}

	/* as many as fit, and they are counted */
	assert_int_equal(n_kept, Min(pages, usable));
	assert_int_equal(not_fitting, pages - n_kept);

	/* none of them is colder than one that is not kept */
	for (uint64 a = 0; a < n_slots; a++)
	{
		for (uint64 b = 0; kept[a] && b < n_slots; b++)
		{
			if (!CanKeep(b) || kept[b])
				continue;
			if (slots[b].usage > slots[a].usage)
				fail_msg("slot %d is kept, and slot %d, which is hotter, is not",
						 (int) a, (int) b);
			if (slots[b].usage == slots[a].usage && b < n_staying && a >= n_staying)
				fail_msg("slot %d is kept, and slot %d, which stays and is as hot, is not",
						 (int) a, (int) b);
		}
	}
}

static void
RandomPool(void)
{
	int			bad = Random() % 3 == 0 ? 1 + Random() % 50 : 0;
	int			pages = Random() % 101;
	int			levels = (int[]) {1, 2, 6, 256}[Random() % 4];

	n_slots = 1 + Random() % MAX_SLOTS;
	n_staying = Random() % n_slots;
	for (uint64 slot = 0; slot < n_slots; slot++)
	{
		slots[slot].is_bad = Random() % 100 < bad;
		slots[slot].usage = Random() % levels;
		if (Random() % 100 < pages)
			slots[slot].verdict = PCACHE_PAGE_KEPT;
		else
			slots[slot].verdict = PCACHE_PAGE_FREE + Random() %
				(PCACHE_PAGE_DUPLICATE - PCACHE_PAGE_FREE);
		/* the page gate does not keep what is on a bad block */
		if (slots[slot].is_bad && Random() % 4 != 0)
			slots[slot].verdict = PCACHE_PAGE_BAD_BLOCK;
	}
}

/* More usage counts than buffers have, as only a forged pool can have. */
static void
CapUsage(void)
{
	for (uint64 slot = 0; slot < n_slots; slot++)
		slots[slot].usage = Min(slots[slot].usage, 253);
}

static void
TestRandomPools(void **state)
{
	uint64		moves = 0;
	uint64		full = 0;

	SeedRandom();
	for (int i = 0; i < N_POOLS; i++)
	{
		RandomPool();
		Choose();
		CapUsage();
		Judge		();

		moves += n_moves;
		full += not_fitting > 0;
	}
	print_message("%llu moves; not all fitted in %llu of %d pools\n",
				  (unsigned long long) moves, (unsigned long long) full, N_POOLS);
	assert_true(moves > N_POOLS && full > N_POOLS / 10 && full < N_POOLS);
}

/* The same pool gives the same choice, whoever asks. */
static void
TestRepeatable(void **state)
{
	static bool first_kept[MAX_SLOTS];
	static int	first_moved[MAX_SLOTS];

	SeedRandom();
	for (int i = 0; i < 1000; i++)
	{
		RandomPool();
		Choose();
		memcpy(first_kept, kept, sizeof(kept));
		memcpy(first_moved, moved_to, sizeof(moved_to));
		Choose();
		assert_memory_equal(first_kept, kept, n_slots * sizeof(kept[0]));
		assert_memory_equal(first_moved, moved_to, n_slots * sizeof(moved_to[0]));
	}
}

/*
 * A start that is given up has moved some of the pages.  The next one keeps
 * the same pages.
 */
static void
TestGivenUp(void **state)
{
	SeedRandom();
	for (int i = 0; i < 2000; i++)
	{
		uint64		usages[256] = {0};
		uint64		usages_again[256] = {0};
		uint64		done;

		RandomPool();
		CapUsage();
		Choose();
		for (uint64 slot = 0; slot < n_slots; slot++)
			usages[slots[slot].usage] += kept[slot];

		done = n_moves > 0 ? Random() % (n_moves + 1) : 0;
		for (uint64 slot = n_staying; slot < n_slots && done > 0; slot++)
		{
			if (moved_to[slot] < 0)
				continue;
			slots[moved_to[slot]] = slots[slot];
			slots[slot].verdict = PCACHE_PAGE_FREE;
			done--;
		}
		Choose();
		Judge		();

		for (uint64 slot = 0; slot < n_slots; slot++)
			usages_again[slots[slot].usage] += kept[slot];
		assert_memory_equal(usages, usages_again, sizeof(usages));
	}
}

static void
Fill(uint64 n, uint64 staying, const char *pool)
{
	n_slots = n;
	n_staying = staying;
	assert_int_equal(strlen(pool), n);
	for (uint64 slot = 0; slot < n; slot++)
	{
		slots[slot].is_bad = pool[slot] == '!';
		slots[slot].verdict = isdigit((unsigned char) pool[slot]) ?
			PCACHE_PAGE_KEPT : PCACHE_PAGE_FREE;
		slots[slot].usage = isdigit((unsigned char) pool[slot]) ? pool[slot] - '0' : 0;
	}
	Choose();
	Judge		();
}

static void
TestByHand(void **state)
{
	/* into free slots, and then of the coldest the last one goes */
	Fill(8, 4, "1-2155-1");
	assert_int_equal(moved_to[4], 1);
	assert_int_equal(moved_to[5], 3);
	assert_int_equal(not_fitting, 2);
	assert_true(kept[0] && kept[2] && !kept[3] && !kept[7]);

	/* all fits */
	Fill(6, 4, "--3-05");
	assert_int_equal(n_moves, 2);
	assert_int_equal(moved_to[4], 0);
	assert_int_equal(moved_to[5], 1);
	assert_int_equal(not_fitting, 0);

	/* nothing is hotter above */
	Fill(8, 4, "22222211");
	assert_int_equal(n_moves, 0);
	assert_int_equal(not_fitting, 4);

	/* all is */
	Fill(8, 4, "00001111");
	assert_int_equal(n_moves, 4);
	assert_int_equal(not_fitting, 4);

	/* no room but bad slots */
	Fill(6, 2, "!!5555");
	assert_int_equal(n_moves, 0);
	assert_int_equal(n_kept, 0);
	assert_int_equal(not_fitting, 4);

	/* no slot stays at all */
	Fill(3, 0, "555");
	assert_int_equal(n_kept, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestByHand),
		cmocka_unit_test(TestRandomPools),
		cmocka_unit_test(TestRepeatable),
		cmocka_unit_test(TestGivenUp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
