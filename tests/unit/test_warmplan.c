/*-------------------------------------------------------------------------
 *
 * test_warmplan.c
 *	  Which pages are read from the data files, in which order and how.
 *
 * Random lists of pages, for data files that are really there.  The judge
 * below ranks each page against all others, and knows the files from a table,
 * so it has nothing in common with how the plan is made.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_warmplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "warm.h"

#define N_LISTS		3000
#define MAX_LISTED	400
#define MAX_POOL	450

/* The forks of a cluster, and some that it does not have; in file order. */
typedef struct Fork
{
	PCachePageKey key;			/* of its first block */
	const char *path;			/* NULL if there is none */
	uint32		nblocks;
	bool		unlogged;
	uint32		busy;			/* where blocks of interest begin */
} Fork;

#define TS	"pg_tblspc/99999/" TABLESPACE_VERSION_DIRECTORY "/5/"

static const Fork forks[] = {
	{{1663, 5, 1000, MAIN_FORKNUM}, "base/5/1000", 40},
	{{1663, 5, 1000, FSM_FORKNUM}, "base/5/1000_fsm", 3},
	{{1663, 5, 1000, VISIBILITYMAP_FORKNUM}, NULL},
	{{1663, 5, 1001, MAIN_FORKNUM}, "base/5/1001", 0},
	{{1663, 5, 1002, MAIN_FORKNUM}, "base/5/1002", 400},
	{{1663, 5, 2000, MAIN_FORKNUM}, "base/5/2000", RELSEG_SIZE + 20, false, RELSEG_SIZE - 30},
	{{1663, 5, 3000, MAIN_FORKNUM}, "base/5/3000", 30, true},
	{{1663, 5, 3000, INIT_FORKNUM}, "base/5/3000_init", 1},
	{{1663, 5, 4000, MAIN_FORKNUM}, NULL},
	{{1663, 6, 1000, MAIN_FORKNUM}, "base/6/1000", 7},
	{{1663, 7, 1000, MAIN_FORKNUM}, NULL},
	{{1664, 0, 1260, MAIN_FORKNUM}, "global/1260", 10},
	{{88888, 5, 1000, MAIN_FORKNUM}, NULL},
	{{99999, 5, 1000, MAIN_FORKNUM}, TS "1000", 50},
};

/* A page that was listed, perhaps more than once. */
typedef struct Listed
{
	int			fork;
	uint32		block;
	uint8		usage;			/* the highest one */
	bool		in_pool;
} Listed;

static PCacheDescriptor descs[MAX_LISTED];
static int	n_descs;
static Listed pages[MAX_LISTED];
static int	n_pages;
static PCachePageKey pool[MAX_POOL];
static int	n_pool;
static bool drop_unlogged;

/* In place of scan.c's. */
bool
ScanHasPage(const PageScan *scan, PCachePageKey key)
{
	assert_non_null(scan);
	for (int i = 0; i < n_pool; i++)
	{
		if (memcmp(&pool[i], &key, sizeof(key)) == 0)
			return true;
	}
	return false;
}

/* The cluster */

static char *pgdata;

static void
MakeFile(const char *path, off_t size)
{
	int			fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static int
MakeCluster(void **state)
{
	const char *directories[] = {
		"global", "base", "base/5", "base/6", "pg_tblspc", "pg_tblspc/99999",
	"pg_tblspc/99999/" TABLESPACE_VERSION_DIRECTORY, TS};

	pgdata = MakeTempDirectory(DiskParent());
	assert_int_equal(chdir(pgdata), 0);
	for (int i = 0; i < lengthof(directories); i++)
		assert_int_equal(mkdir(directories[i], 0700), 0);
	for (int i = 0; i < lengthof(forks); i++)
	{
		const Fork *fork = &forks[i];
		char		segment[MAXPGPATH];

		if (fork->path == NULL)
			continue;
		/* half a block is no block */
		MakeFile(fork->path, (off_t) Min(fork->nblocks, RELSEG_SIZE) * BLCKSZ +
				 (fork->nblocks == 50 ? BLCKSZ / 2 : 0));
		if (fork->nblocks > RELSEG_SIZE)
		{
			snprintf(segment, sizeof(segment), "%s.1", fork->path);
			MakeFile(segment, (off_t) (fork->nblocks - RELSEG_SIZE) * BLCKSZ);
		}
	}
	return 0;
}

static int
RemoveCluster(void **state)
{
	assert_int_equal(chdir("/"), 0);
	RemoveTree(pgdata);
	free(pgdata);
	return 0;
}

/* Random lists */

static PCachePageKey
KeyOfBlock(int fork, uint32 block)
{
	PCachePageKey key = forks[fork].key;

	key.block_number = block;
	return key;
}

static void
AddDescriptor(int fork, uint32 block, uint8 usage)
{
	PCacheDescriptor *desc = &descs[n_descs++];
	PCachePageKey key = KeyOfBlock(fork, block);
	RelFileLocator rlocator = {key.spc_oid, key.db_oid, key.rel_number};
	int			i;

	PCacheDescriptorDescribe(desc, n_descs, rlocator, key.fork_number, block,
							 0, true, usage);
	for (i = 0; i < n_pages; i++)
	{
		if (pages[i].fork == fork && pages[i].block == block)
		{
			pages[i].usage = Max(pages[i].usage, usage);
			return;
		}
	}
	pages[n_pages].fork = fork;
	pages[n_pages].block = block;
	pages[n_pages].usage = usage;
	pages[n_pages++].in_pool = false;
}

static void
Forget(void)
{
	n_descs = n_pages = n_pool = 0;
}

static void
RandomList(void)
{
	int			n = Random() % (MAX_LISTED + 1);
	int			levels = (int[]) {1, 2, 6, 256}[Random() % 4];
	int			n_forks = 1 + Random() % lengthof(forks);
	int			in_pool = Random() % 2 == 0 ? 0 : Random() % 60;
	uint32		stride = 1 + Random() % 7;

	Forget();
	drop_unlogged = Random() % 2 == 0;
	while (n_descs < n)
	{
		int			fork = Random() % n_forks;
		uint32		window = forks[fork].nblocks - forks[fork].busy + 4;

		AddDescriptor(fork,
					  forks[fork].busy + Random() % window / stride * stride,
					  Random() % levels);
	}
	for (int i = 0; i < n_pages; i++)
	{
		if (Random() % 100 < in_pool)
		{
			pages[i].in_pool = true;
			pool[n_pool++] = KeyOfBlock(pages[i].fork, pages[i].block);
		}
	}
	/* and some that nobody has listed */
	while (in_pool > 0 && n_pool < MAX_POOL && Random() % 20 != 0)
	{
		pool[n_pool] = KeyOfBlock(0, 1000 + n_pool);
		n_pool++;
	}
}

static WarmPlan plan;
static RelationFiles files;

static void
MakePlan(uint64 n_slots)
{
	static PageScan scan;
	struct PageList *list = CreatePageList();
	uint32	   *slots = pg_malloc_array(uint32, n_slots + 1);

	for (uint64 i = 0; i < n_slots; i++)
		slots[i] = i * 2;
	for (int i = 0; i < n_descs; i++)
	{
		PCachePageKey key = PCacheDescriptorKey(&descs[i]);

		AddToPageList(list, &key, descs[i].usage_count);
	}
	LocateListedPages(list, drop_unlogged, &files);
	BeginWarmPlan(&plan, &files, slots, n_slots);
	PlanListedPages(&plan, list, n_pool > 0 ? &scan : NULL);
	FreePageList(list);
}

static void
FreePlan(void)
{
	FreeWarmPlan(&plan);
	pg_free(files.files);
}

/* The judge */

static bool
IsMissing(const Listed *page)
{
	const Fork *fork = &forks[page->fork];

	return fork->path != NULL && page->block < fork->nblocks &&
		!(fork->unlogged && drop_unlogged) && !page->in_pool;
}

/* How many pages have to be read before this one gets a slot? */
static uint64
RankOf(const Listed *page)
{
	uint64		rank = 0;

	for (int i = 0; i < n_pages; i++)
	{
		const Listed *other = &pages[i];
		bool		before = other->fork < page->fork ||
			(other->fork == page->fork && other->block < page->block);

		if (IsMissing(other) &&
			(other->usage > page->usage || (other->usage == page->usage && before)))
			rank++;
	}
	return rank;
}

static int
ForkOfFile(const RelationFile *file)
{
	for (int i = 0; i < lengthof(forks); i++)
	{
		if (forks[i].key.spc_oid == file->rlocator.spcOid &&
			forks[i].key.db_oid == file->rlocator.dbOid &&
			forks[i].key.rel_number == file->rlocator.relNumber &&
			forks[i].key.fork_number == file->fork)
			return i;
	}
	fail_msg("no such fork");
	return -1;
}

/* Is each planned page read by a task, and do tasks read no more than they may? */
static void
JudgeTasks(void)
{
	uint64		next = 0;

	for (uint64 i = 0; i < plan.n_tasks; i++)
	{
		const WarmTask *task = &plan.tasks[i];
		const uint32 *blocks = &plan.blocks[task->first_page];
		uint32		last = task->first_block + task->n_blocks - 1;

		assert_int_equal(task->first_page, next);
		assert_true(task->n_pages > 0);
		next += task->n_pages;
		assert_true(next <= plan.n_pages);
		assert_int_equal(blocks[0], task->first_block);
		assert_int_equal(blocks[task->n_pages - 1], last);
		assert_true(task->n_blocks <= 128);
		assert_int_equal(last / RELSEG_SIZE, task->first_block / RELSEG_SIZE);
		for (uint32 page = 1; page < task->n_pages; page++)
		{
			assert_true(blocks[page] > blocks[page - 1]);
			assert_true(blocks[page] - blocks[page - 1] <= 6);
		}
		/* the next one begins where this one could not go on */
		if (i + 1 < plan.n_tasks && task[1].file == task->file &&
			task[1].first_block / RELSEG_SIZE == last / RELSEG_SIZE &&
			task[1].first_block > last && task[1].first_block - last <= 6 &&
			task[1].first_block - task->first_block < 128)
			fail_msg("task %d could have read block %u as well", (int) i,
					 task[1].first_block);
	}
	assert_int_equal(next, plan.n_pages);
}

static void
JudgePlan(void)
{
	WarmResult	expected = {0};
	int			at = 0;
	uint64		task = 0;
	int			last_fork = -1;
	uint32		last_block = 0;

	/* page by page */
	for (uint64 i = 0; i < plan.n_pages; i++)
	{
		int			fork;

		while (i >= plan.tasks[task].first_page + plan.tasks[task].n_pages)
			task++;
		fork = ForkOfFile(&files.files[plan.tasks[task].file]);
		assert_int_equal(files.files[plan.tasks[task].file].unlogged, forks[fork].unlogged);
		if (fork < last_fork || (fork == last_fork && plan.blocks[i] <= last_block))
			fail_msg("page %d is not in file order", (int) i);
		last_fork = fork;
		last_block = plan.blocks[i];
		for (at = 0; at < n_pages; at++)
		{
			if (pages[at].fork == fork && pages[at].block == plan.blocks[i])
				break;
		}
		if (at == n_pages)
			fail_msg("page %d was not listed", (int) i);
		if (!IsMissing(&pages[at]) || RankOf(&pages[at]) >= plan.n_slots)
			fail_msg("page %d must not be read", (int) i);
		assert_int_equal(plan.usage_counts[i], pages[at].usage);
	}

	/* all of them, and the rest is counted */
	expected.listed = n_descs;
	expected.duplicates = n_descs - n_pages;
	for (int i = 0; i < n_pages; i++)
	{
		const Fork *fork = &forks[pages[i].fork];

		if (fork->path == NULL)
			expected.gone++;
		else if (pages[i].block >= fork->nblocks)
			expected.beyond_end++;
		else if (fork->unlogged && drop_unlogged)
			expected.unlogged++;
		else if (pages[i].in_pool)
			expected.already++;
		else if (RankOf(&pages[i]) < plan.n_slots)
			expected.read++;
		else
			expected.no_room++;
	}
	expected.relations = plan.result.relations;
	expected.file_pages = plan.result.file_pages;
	assert_int_equal(plan.n_pages, expected.read);
	assert_memory_equal(&plan.result, &expected, sizeof(expected));
}

static void
TestRandomLists(void **state)
{
	uint64		full = 0;
	uint64		over = 0;
	uint64		duplicates = 0;
	uint64		already = 0;

	SeedRandom();
	for (int i = 0; i < N_LISTS; i++)
	{
		RandomList();
		MakePlan(Random() % 3 == 0 ? MAX_LISTED : Random() % (n_pages / 2 + 2));
		JudgePlan();
		JudgeTasks();
		full += plan.result.no_room > 0;
		duplicates += plan.result.duplicates;
		already += plan.result.already;
		for (uint64 task = 0; task < plan.n_tasks; task++)
			over += plan.tasks[task].n_blocks > plan.tasks[task].n_pages;
		FreePlan();
	}
	print_message("not all fitted in %llu of %d lists; %llu reads over a gap\n",
				  (unsigned long long) full, N_LISTS, (unsigned long long) over);
	assert_true(full > N_LISTS / 10 && full < N_LISTS / 10 * 9);
	assert_true(over > N_LISTS && duplicates > N_LISTS && already > N_LISTS);
}

/* The order in which pages are listed does not matter. */
static void
TestAnyOrder(void **state)
{
	static uint32 blocks[MAX_LISTED];

	SeedRandom();
	for (int i = 0; i < 500; i++)
	{
		uint64		n_slots = Random() % MAX_LISTED;
		uint64		n;

		RandomList();
		MakePlan(n_slots);
		n = plan.n_pages;
		memcpy(blocks, plan.blocks, n * sizeof(uint32));
		FreePlan();

		for (int at = n_descs - 1; at > 0; at--)
		{
			int			other = Random() % (at + 1);
			PCacheDescriptor desc = descs[at];

			descs[at] = descs[other];
			descs[other] = desc;
		}
		MakePlan(n_slots);
		assert_int_equal(plan.n_pages, n);
		assert_memory_equal(plan.blocks, blocks, n * sizeof(uint32));
		FreePlan();
	}
}

static void
TestByHand(void **state)
{
	const WarmTask *task;

	/* gaps of 5 and of 6 blocks, backwards, with one page listed twice */
	Forget();
	drop_unlogged = false;
	AddDescriptor(4, 113, 2);
	AddDescriptor(4, 106, 1);
	AddDescriptor(4, 100, 3);
	AddDescriptor(4, 100, 5);
	MakePlan(3);
	assert_int_equal(plan.n_tasks, 2);
	task = plan.tasks;
	assert_true(task[0].first_block == 100 && task[0].n_blocks == 7 && task[0].n_pages == 2);
	assert_true(task[1].first_block == 113 && task[1].n_blocks == 1 && task[1].n_pages == 1);
	assert_int_equal(plan.usage_counts[0], 5);
	FreePlan();

	/* room for two: the coldest goes */
	MakePlan(2);
	assert_int_equal(plan.result.no_room, 1);
	assert_true(plan.blocks[0] == 100 && plan.blocks[1] == 113);
	FreePlan();

	/* a read does not go beyond 1 MB, nor beyond a segment */
	Forget();
	for (uint32 block = 0; block < 130; block++)
		AddDescriptor(4, block, 1);
	AddDescriptor(5, RELSEG_SIZE - 1, 1);
	AddDescriptor(5, RELSEG_SIZE, 1);
	MakePlan(200);
	assert_int_equal(plan.n_tasks, 4);
	assert_int_equal(plan.tasks[0].n_blocks, 128);
	assert_int_equal(plan.tasks[1].n_blocks, 2);
	assert_int_equal(plan.tasks[2].n_blocks, 1);
	assert_int_equal(plan.tasks[3].first_block, RELSEG_SIZE);
	FreePlan();

	/* an empty list, and no slot at all */
	MakePlan(0);
	assert_int_equal(plan.n_tasks, 0);
	assert_int_equal(plan.result.no_room, 132);
	FreePlan();
	Forget();
	MakePlan(5);
	assert_int_equal(plan.n_pages, 0);
	FreePlan();
}

/* All pages of the files: in the order of these, as far as there are slots. */
static void
TestAllPages(void **state)
{
	static PageScan scan;
	const int	fork_of[] = {4, 6, 0};
	RelationFile three[] = {
		{.rlocator = {1663, 5, 1002},.nblocks = 400},
		{.rlocator = {1663, 5, 3000},.nblocks = 30,.unlogged = true},
		{.rlocator = {1663, 5, 1000},.nblocks = 40},
	};
	RelationFiles all = {.files = three,.n = 3,.n_relations = 3,.n_blocks = 470};

	SeedRandom();
	for (int i = 0; i < 200; i++)
	{
		uint64		n_slots = Random() % 500;
		bool		drop = Random() % 2 == 0;
		uint64		at = 0;
		uint64		already = 0;
		uint64		no_room = 0;

		Forget();
		while (n_pool < 100)
		{
			int			fork = Random() % 2 == 0 ? 4 : 0;

			pool[n_pool++] = KeyOfBlock(fork, Random() % forks[fork].nblocks);
		}
		BeginWarmPlan(&plan, &all, pg_malloc0_array(uint32, n_slots + 1), n_slots);
		PlanAllPages(&plan, drop, &scan);
		JudgeTasks();
		for (int f = 0; f < all.n; f++)
		{
			for (uint32 block = 0; block < three[f].nblocks; block++)
			{
				PCachePageKey key = KeyOfBlock(fork_of[f], block);

				if (three[f].unlogged && drop)
					continue;
				if (ScanHasPage(&scan, key))
					already++;
				else if (at == n_slots)
					no_room++;
				else
				{
					assert_int_equal(plan.usage_counts[at], 1);
					assert_int_equal(plan.blocks[at++], block);
				}
			}
		}
		assert_int_equal(plan.n_pages, at);
		assert_int_equal(plan.result.read, at);
		assert_int_equal(plan.result.already, already);
		assert_int_equal(plan.result.no_room, no_room);
		assert_int_equal(plan.result.file_pages, 470);
		FreeWarmPlan(&plan);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestByHand),
		cmocka_unit_test(TestRandomLists),
		cmocka_unit_test(TestAnyOrder),
		cmocka_unit_test(TestAllPages),
	};

	return cmocka_run_group_tests(tests, MakeCluster, RemoveCluster);
}
