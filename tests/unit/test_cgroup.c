/*-------------------------------------------------------------------------
 *
 * test_cgroup.c
 *	  What of the limits of control groups is read, in both versions.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_cgroup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/pcache_pool.h"

#include "unit.h"

static char *root;

static void
Write(const char *name, const char *text)
{
	WriteFile(Join(root, name), text, strlen(text));
}

static void
ExpectCgroup(const char *groups, uint64 limit, uint64 room)
{
	PCacheCgroup cgroup;

	Write("groups", groups);
	cgroup = PCacheReadCgroup(Join(root, "groups"), root);
	assert_int_equal(cgroup.limit, limit);
	assert_int_equal(cgroup.room, room);
}

static void
TestCgroups(void **state)
{
	static const char *const directories[] = {"a", "a/b", "memory", "memory/c"};

	root = MakeTempDirectory("/tmp");
	for (int i = 0; i < lengthof(directories); i++)
		assert_int_equal(mkdir(Join(root, directories[i]), 0700), 0);

	/* nobody has a limit */
	assert_int_equal(PCacheReadCgroup(Join(root, "none"), root).limit, PG_UINT64_MAX);
	ExpectCgroup("", PG_UINT64_MAX, PG_UINT64_MAX);
	ExpectCgroup("0::/a/b\n4:memory:/c\n", PG_UINT64_MAX, PG_UINT64_MAX);
	Write("a/b/memory.max", "max\n");
	Write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
	ExpectCgroup("0::/a/b\n4:memory:/c\n", PG_UINT64_MAX, PG_UINT64_MAX);

	/* version 2: the least of all above */
	Write("a/memory.max", "1000\n");
	ExpectCgroup("0::/a/b\n", 1000, PG_UINT64_MAX);
	Write("a/memory.current", "700\n");
	ExpectCgroup("0::/a/b\n", 1000, 300);
	Write("a/memory.stat", "anon 1\ninactive_file 50\nactive_file 7\n");
	ExpectCgroup("1:name=systemd:/x\n0::/a/b\n", 1000, 357);
	ExpectCgroup("0::/a\n", 1000, 357);
	ExpectCgroup("0::/\n", PG_UINT64_MAX, PG_UINT64_MAX);
	Write("a/b/memory.max", "2000\n");
	Write("a/b/memory.current", "1990\n");
	ExpectCgroup("0::/a/b\n", 1000, 10);
	Write("a/memory.current", "1100\n");
	ExpectCgroup("0::/a/b\n", 1000, 0);

	/* as a container sees its own */
	Write("memory.max", "500\n");
	ExpectCgroup("0::/\n", 500, PG_UINT64_MAX);
	ExpectCgroup("0::/not/there\n", 500, PG_UINT64_MAX);

	/* version 1 */
	Write("memory/memory.limit_in_bytes", "400\n");
	Write("memory/memory.usage_in_bytes", "300\n");
	Write("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 3\n");
	ExpectCgroup("5:cpu:/c\n4:memory:/c\n", 400, 123);
	ExpectCgroup("5:cpu:/c\nnonsense\n", PG_UINT64_MAX, PG_UINT64_MAX);
	RemoveTree(root);
	free(root);
}

/* The same of huge pages, of which those of other sizes do not matter. */
static void
TestHugePages(void **state)
{
	static const char *const directories[] = {"a", "hugetlb", "hugetlb/c"};
	static const struct
	{
		const char *limit;
		const char *used;
		const char *texts[2];
		uint64		size_kb;	/* that it is about */
		uint64		room;		/* of these then */
	}			steps[] = {
		{"a/hugetlb.2MB.max", "a/hugetlb.2MB.current", {"1000\n", "400\n"}, 2048, 600},
		{"a/hugetlb.2MB.rsvd.max", "a/hugetlb.2MB.rsvd.current", {"900\n", "350\n"}, 2048, 550},
		{"a/hugetlb.1GB.max", "a/hugetlb.1GB.current", {"800\n", "100\n"}, 1024 * 1024, 700},
		{"a/hugetlb.64KB.max", "a/hugetlb.64KB.current", {"max\n", "10\n"}, 64, PG_UINT64_MAX},
		{"hugetlb/c/hugetlb.2MB.limit_in_bytes", "hugetlb/c/hugetlb.2MB.usage_in_bytes", {"300\n", "100\n"}, 2048, 200},
		{"hugetlb/hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb/hugetlb.2MB.rsvd.usage_in_bytes", {"200\n", "250\n"}, 2048, 0},
	};

	root = MakeTempDirectory("/tmp");
	for (int i = 0; i < lengthof(directories); i++)
		assert_int_equal(mkdir(Join(root, directories[i]), 0700), 0);
	Write("groups", "3:hugetlb:/c\n0::/a\n");
	assert_int_equal(PCacheHugeRoomInCgroup(Join(root, "groups"), root, 2048), PG_UINT64_MAX);
	for (int i = 0; i < lengthof(steps); i++)
	{
		Write(steps[i].limit, steps[i].texts[0]);
		Write(steps[i].used, steps[i].texts[1]);
		assert_int_equal(PCacheHugeRoomInCgroup(Join(root, "groups"), root, steps[i].size_kb), steps[i].room);
	}
	RemoveTree(root);
	free(root);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestCgroups),
		cmocka_unit_test(TestHugePages),
	};

	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
