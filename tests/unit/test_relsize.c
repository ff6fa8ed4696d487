/*-------------------------------------------------------------------------
 *
 * test_relsize.c
 *	  Lengths of relation forks, in a data directory made up for it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_relsize.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "catalog/catversion.h"
#include "catalog/pg_tablespace_d.h"

#define SEGMENT		((int64) RELSEG_SIZE * BLCKSZ)

static char *pgdata;
static struct PCacheRelSizes *sizes;

/* Make a directory, with its parents, below PGDATA. */
static void
MakeDirectory(const char *path)
{
	char		copy[MAXPGPATH];

	strlcpy(copy, path, sizeof(copy));
	assert_int_equal(pg_mkdir_p(copy, 0700), 0);
}

static int
SetUp(void **state)
{
	pgdata = MakeTempDirectory("/tmp");
	assert_int_equal(chdir(pgdata), 0);
	MakeDirectory("base/5");
	MakeDirectory("global");
	sizes = PCacheRelSizesCreate(0, false);
	return 0;
}

static int
TearDown(void **state)
{
	PCacheRelSizesFree(sizes);
	assert_int_equal(chdir("/"), 0);
	RemoveTree(pgdata);
	free(pgdata);
	return 0;
}

/* A sparse file of that many bytes */
static void
MakeFile(const char *path, int64 bytes)
{
	int			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(fd);
}

static int64
SizeOf(Oid spc, Oid db, RelFileNumber rel, ForkNumber fork)
{
	RelFileLocator rlocator = {spc, db, rel};

	return PCacheRelSize(sizes, rlocator, fork);
}

static int64
SizeOfTable(RelFileNumber rel)
{
	return SizeOf(DEFAULTTABLESPACE_OID, 5, rel, MAIN_FORKNUM);
}

static void
TestSmall(void **state)
{
	assert_int_equal(SizeOfTable(16384), -1);

	MakeFile("base/5/16385", 0);
	assert_int_equal(SizeOfTable(16385), 0);
	MakeFile("base/5/16386", BLCKSZ);
	assert_int_equal(SizeOfTable(16386), 1);
	MakeFile("base/5/16387", 7 * BLCKSZ);
	assert_int_equal(SizeOfTable(16387), 7);

	/* half a block is none */
	MakeFile("base/5/16388", BLCKSZ - 1);
	assert_int_equal(SizeOfTable(16388), 0);
	MakeFile("base/5/16389", 3 * BLCKSZ + BLCKSZ / 2);
	assert_int_equal(SizeOfTable(16389), 3);
}

static void
TestSegments(void **state)
{
	/* exactly full, nothing behind */
	MakeFile("base/5/1", SEGMENT);
	assert_int_equal(SizeOfTable(1), RELSEG_SIZE);

	/* nearly full: what lies behind it is not reached */
	MakeFile("base/5/2", SEGMENT - BLCKSZ);
	MakeFile("base/5/2.1", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(2), RELSEG_SIZE - 1);

	MakeFile("base/5/3", SEGMENT);
	MakeFile("base/5/3.1", 0);
	assert_int_equal(SizeOfTable(3), RELSEG_SIZE);

	MakeFile("base/5/4", SEGMENT);
	MakeFile("base/5/4.1", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(4), RELSEG_SIZE + 5);

	MakeFile("base/5/5", SEGMENT);
	MakeFile("base/5/5.1", SEGMENT);
	MakeFile("base/5/5.2", 1 * BLCKSZ);
	assert_int_equal(SizeOfTable(5), 2 * (int64) RELSEG_SIZE + 1);

	/* a gap ends it */
	MakeFile("base/5/6", SEGMENT);
	MakeFile("base/5/6.2", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(6), RELSEG_SIZE);

	/* and so does a segment that is not full */
	MakeFile("base/5/7", SEGMENT);
	MakeFile("base/5/7.1", SEGMENT - 1);
	MakeFile("base/5/7.2", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(7), 2 * (int64) RELSEG_SIZE - 1);

	/* no first segment, no relation */
	MakeFile("base/5/8.1", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(8), -1);

	/* more than ten, so that the number has two digits */
	for (int i = 0; i < 12; i++)
	{
		char		path[64];

		snprintf(path, sizeof(path), i == 0 ? "base/5/9" : "base/5/9.%d", i);
		MakeFile(path, i < 11 ? SEGMENT : 77 * BLCKSZ);
	}
	assert_int_equal(SizeOfTable(9), 11 * (int64) RELSEG_SIZE + 77);
}

static void
TestForksAndPlaces(void **state)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];

	MakeFile("base/5/16384", 10 * BLCKSZ);
	MakeFile("base/5/16384_fsm", 3 * BLCKSZ);
	MakeFile("base/5/16384_vm", 1 * BLCKSZ);
	MakeFile("base/5/16384_init", 2 * BLCKSZ);
	MakeFile("base/5/16384_fsm.1", 8 * BLCKSZ);
	MakeDirectory("base/6");
	MakeFile("base/6/16384", 20 * BLCKSZ);
	MakeFile("global/1262", 30 * BLCKSZ);
	MakeFile("global/1262_vm", 31 * BLCKSZ);
	snprintf(directory, sizeof(directory), "pg_tblspc/16999/PG_%s_%d/5",
			 PG_MAJORVERSION, CATALOG_VERSION_NO);
	MakeDirectory(directory);
	snprintf(path, sizeof(path), "%s/16384", directory);
	MakeFile(path, 40 * BLCKSZ);
	/* of another version */
	MakeDirectory("pg_tblspc/17000/PG_14_202107181/5");
	MakeFile("pg_tblspc/17000/PG_14_202107181/5/16384", 50 * BLCKSZ);

	for (int pass = 0; pass < 2; pass++)
	{
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, 16384, MAIN_FORKNUM), 10);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, 16384, FSM_FORKNUM), 3);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, 16384, VISIBILITYMAP_FORKNUM), 1);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, 16384, INIT_FORKNUM), 2);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 6, 16384, MAIN_FORKNUM), 20);
		assert_int_equal(SizeOf(16999, 5, 16384, MAIN_FORKNUM), 40);
		assert_int_equal(SizeOf(16999, 6, 16384, MAIN_FORKNUM), -1);
		assert_int_equal(SizeOf(17000, 5, 16384, MAIN_FORKNUM), -1);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 7, 16384, MAIN_FORKNUM), -1);
		assert_int_equal(SizeOf(GLOBALTABLESPACE_OID, 0, 1262, MAIN_FORKNUM), 30);
		assert_int_equal(SizeOf(GLOBALTABLESPACE_OID, 0, 1262, VISIBILITYMAP_FORKNUM), 31);
		assert_int_equal(SizeOf(GLOBALTABLESPACE_OID, 0, 1262, FSM_FORKNUM), -1);
		assert_int_equal(SizeOf(GLOBALTABLESPACE_OID, 0, 1263, MAIN_FORKNUM), -1);
	}
}

/* Each fork is looked at once, whatever is asked for in between. */
static void
TestFirstAnswerStays(void **state)
{
	MakeFile("base/5/16384", 10 * BLCKSZ);
	MakeFile("base/5/16385", 5 * BLCKSZ);
	assert_int_equal(SizeOfTable(16384), 10);
	assert_int_equal(SizeOfTable(16386), -1);

	MakeFile("base/5/16384", 99 * BLCKSZ);
	MakeFile("base/5/16386", 99 * BLCKSZ);
	assert_int_equal(SizeOfTable(16386), -1);
	assert_int_equal(SizeOfTable(16384), 10);
	assert_int_equal(SizeOfTable(16384), 10);
	unlink("base/5/16384");
	assert_int_equal(SizeOfTable(16385), 5);
	assert_int_equal(SizeOfTable(16384), 10);
	/* what is not there is not remembered, but for the last one */
	assert_int_equal(SizeOfTable(16386), 99);

	/* somebody else looks anew */
	PCacheRelSizesFree(sizes);
	sizes = PCacheRelSizesCreate(0, false);
	assert_int_equal(SizeOfTable(16384), -1);
	assert_int_equal(SizeOfTable(16386), 99);
}

static int64
ChangeTime(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_ctim.tv_sec * INT64CONST(1000000000) + st.st_ctim.tv_nsec;
}

/* Have the files of a table been changed since?  Directories above them count as well. */
static void
TestChanged(void **state)
{
	static const char *const paths[] = {"base/5/16384", "base/5/16384.1", "base/5", "base"};
	Oid			spc = 16500;
	char		path[MAXPGPATH];
	int64		last;

	MakeFile("base/5/16384", SEGMENT);
	MakeFile("base/5/16384.1", BLCKSZ);
	for (int i = 0; i < lengthof(paths); i++)
	{
		/* until it is later by the file system's clock */
		last = Max(Max(ChangeTime("base/5/16384"), ChangeTime("base/5/16384.1")),
				   Max(ChangeTime("base/5"), ChangeTime("base")));
		PCacheRelSizesFree(sizes);
		sizes = PCacheRelSizesCreate(last, false);
		assert_int_equal(SizeOfTable(16384), RELSEG_SIZE + 1);
		do
		{
			pg_usleep(1000);
			assert_int_equal(chmod(paths[i], 0700), 0);
		} while (ChangeTime(paths[i]) == last);
		PCacheRelSizesFree(sizes);
		sizes = PCacheRelSizesCreate(last, false);
		assert_int_equal(SizeOfTable(16384), PCACHE_REL_CHANGED);
		assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, 16384, FSM_FORKNUM), PCACHE_REL_MISSING);
	}

	/* in a tablespace, whose link counts; what is behind it may be older */
	snprintf(path, sizeof(path), "elsewhere/%s/5", TABLESPACE_VERSION_DIRECTORY);
	MakeDirectory(path);
	MakeDirectory("pg_tblspc");
	snprintf(path, sizeof(path), "elsewhere/%s/5/16384", TABLESPACE_VERSION_DIRECTORY);
	MakeFile(path, BLCKSZ);
	last = Max(ChangeTime(path), ChangeTime("elsewhere"));
	do
	{
		pg_usleep(1000);
		unlink("pg_tblspc/16500");
		assert_int_equal(symlink("../elsewhere", "pg_tblspc/16500"), 0);
	} while (ChangeTime("pg_tblspc/16500") == last);
	PCacheRelSizesFree(sizes);
	sizes = PCacheRelSizesCreate(last, false);
	assert_int_equal(SizeOf(spc, 5, 16384, MAIN_FORKNUM), PCACHE_REL_CHANGED);
	PCacheRelSizesFree(sizes);
	sizes = PCacheRelSizesCreate(Max(ChangeTime("pg_tblspc/16500"), ChangeTime("pg_tblspc")), false);
	assert_int_equal(SizeOf(spc, 5, 16384, MAIN_FORKNUM), 1);
}

/* Give a file, or directory, the time at which it was written. */
static void
SetWriteTime(const char *path, int64 nsec)
{
	struct timespec times[2] = {{nsec / INT64CONST(1000000000), nsec % INT64CONST(1000000000)}};

	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Has somebody written to them since?  Owners and modes do not matter then. */
static void
TestWritten(void **state)
{
	static const char *const paths[] = {"base/5/16384", "base/5/16384.1", "base/5", "base"};
	const int64 since = INT64CONST(1000000000500000000);

	MakeFile("base/5/16384", SEGMENT);
	MakeFile("base/5/16384.1", BLCKSZ);
	for (int i = 0; i < lengthof(paths); i++)
	{
		static const struct
		{
			int64		written;
			bool		counts;
		}			cases[] = {
			{since, false}, {since + 1, true}, {since - 1, false},
			{since + INT64CONST(1000000000), true}, {since - INT64CONST(1000000000), false},
			/* some file systems tell only the second */
			{INT64CONST(1000000000000000000), true}, {INT64CONST(999999999000000000), false},
			{INT64CONST(9000000000000000001), true}, {1, false}
		};

		for (int j = 0; j < lengthof(paths); j++)
			SetWriteTime(paths[j], since);
		for (int j = 0; j < lengthof(cases); j++)
		{
			SetWriteTime(paths[i], cases[j].written);
			assert_int_equal(chmod(paths[i], 0700), 0);
			PCacheRelSizesFree(sizes);
			sizes = PCacheRelSizesCreate(since, true);
			assert_int_equal(SizeOfTable(16384), cases[j].counts ? PCACHE_REL_CHANGED : RELSEG_SIZE + 1);
		}
	}
}

/* More relations than the table had room for at first */
static void
TestMany(void **state)
{
	char		path[64];

	for (int i = 1; i <= 2000; i++)
	{
		snprintf(path, sizeof(path), "base/5/%d", i);
		MakeFile(path, (int64) i * BLCKSZ);
	}
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 1; i <= 2000; i++)
		{
			assert_int_equal(SizeOfTable(i), i);
			if (i % 10 == 0)
				assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 5, i, FSM_FORKNUM), -1);
		}
		assert_int_equal(chdir(".."), 0);	/* the second pass is all from
											 * memory */
	}
	assert_int_equal(chdir(pgdata), 0);
}

/* A file that can't be looked at counts as missing. */
static void
TestUnreadable(void **state)
{
	MakeFile("base/5/16384", BLCKSZ);
	MakeFile("base/6", BLCKSZ); /* not a directory */
	assert_int_equal(SizeOf(DEFAULTTABLESPACE_OID, 6, 16384, MAIN_FORKNUM), -1);
	assert_int_equal(symlink("16390", "base/5/16390"), 0);
	assert_int_equal(SizeOfTable(16390), -1);
	if (geteuid() != 0)
	{
		assert_int_equal(chmod("base/5", 0), 0);
		assert_int_equal(SizeOfTable(16384), -1);
		assert_int_equal(chmod("base/5", 0700), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(TestSmall, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestSegments, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestForksAndPlaces, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestFirstAnswerStays, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestChanged, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestWritten, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestMany, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestUnreadable, SetUp, TearDown),
	};

	return cmocka_run_group_tests_name("relation sizes", tests, NULL, NULL);
}
