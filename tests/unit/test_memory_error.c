/*-------------------------------------------------------------------------
 *
 * test_memory_error.c
 *	  Memory errors that a pool remembers: which of them are believed, and
 *	  what they make of a report about the media.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_memory_error.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "pcache_media_internal.h"
#include "unit.h"

static PCacheMemoryError entries[PCACHE_MAX_MEMORY_ERRORS];

static void
SetEntry(int i, uint64 offset, uint32 length)
{
	entries[i].offset = offset;
	entries[i].length = length;
	entries[i].crc = BitwiseCrc32c(&entries[i], offsetof(PCacheMemoryError, crc));
}

/* A file with the entries where a pool has them, cut off after some bytes. */
static int
MakePool(size_t entry_bytes)
{
	char		path[] = "/tmp/test_memory_error.XXXXXX";
	int			fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(pwrite(fd, entries, entry_bytes, PCACHE_MEMORY_ERRORS_OFFSET),
					 entry_bytes);
	return fd;
}

static void
Query(size_t entry_bytes, PCacheMediaAnswer before, PCacheMediaReport *report)
{
	int			fd = MakePool(entry_bytes);

	memset(report, 0, sizeof(*report));
	report->blocks = before;
	PCacheMediaAddMemoryErrors(report, fd);
	close(fd);
}

static int
Clear(void **state)
{
	memset(entries, 0, sizeof(entries));
	return 0;
}

static void
TestNone(void **state)
{
	PCacheMediaReport report;

	Query(sizeof(entries), PCACHE_MEDIA_CLEAN, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.bad.n_ranges, 0);
	assert_string_equal(report.blocks_why, "");
}

static void
TestSome(void **state)
{
	PCacheMediaReport report;

	/* unordered; the first two are neighbours, the last one is in them */
	SetEntry(0, MIB(6) + 8192, 8192);
	SetEntry(1, MIB(6), 8192);
	SetEntry(7, MIB(2) + 4096, 4096);
	SetEntry(PCACHE_MAX_MEMORY_ERRORS - 1, MIB(6) + 4096, 4096);
	Query(sizeof(entries), PCACHE_MEDIA_CLEAN, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_string_not_equal(report.blocks_why, "");
	assert_int_equal(report.bad.n_ranges, 2);
	assert_true(PCacheMediaRangeIsBad(&report, MIB(2) + 4096, 64));
	assert_false(PCacheMediaRangeIsBad(&report, MIB(2) + 8192, 64));
	assert_true(PCacheMediaRangeIsBad(&report, MIB(6), 8192));
	assert_true(PCacheMediaRangeIsBad(&report, MIB(6) + 8192, 8192));
	assert_false(PCacheMediaRangeIsBad(&report, MIB(6) + 16384, 8192));
	PCacheMediaReportFree(&report);
}

/* An entry that is damaged in any byte is not believed; the next one is. */
static void
TestDamaged(void **state)
{
	PCacheMediaReport report;

	for (size_t byte = 0; byte < sizeof(PCacheMemoryError); byte++)
	{
		Clear(NULL);
		SetEntry(3, MIB(6), 8192);
		SetEntry(4, MIB(8), 8192);
		((char *) &entries[3])[byte] ^= 0x10;
		Query(sizeof(entries), PCACHE_MEDIA_CLEAN, &report);
		assert_int_equal(report.bad.n_ranges, 1);
		assert_int_equal(report.bad.ranges[0].offset, MIB(8));
		PCacheMediaReportFree(&report);
	}

	/* claimed by a process that got no further */
	Clear(NULL);
	entries[0].offset = MIB(6);
	Query(sizeof(entries), PCACHE_MEDIA_CLEAN, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.bad.n_ranges, 0);
	Clear(NULL);
	SetEntry(0, MIB(6), 0);
	Query(sizeof(entries), PCACHE_MEDIA_CLEAN, &report);
	assert_int_equal(report.bad.n_ranges, 0);
}

/* What was not known is still not known, and what was bad stays bad. */
static void
TestOtherAnswers(void **state)
{
	PCacheMediaReport report;

	SetEntry(0, MIB(6), 8192);
	Query(sizeof(entries), PCACHE_MEDIA_UNKNOWN, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_UNKNOWN);
	assert_true(PCacheMediaRangeIsBad(&report, MIB(6), 1));
	PCacheMediaReportFree(&report);

	Query(sizeof(entries), PCACHE_MEDIA_BAD, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_true(PCacheMediaRangeIsBad(&report, MIB(6), 1));
	PCacheMediaReportFree(&report);
}

static void
TestUnreadable(void **state)
{
	PCacheMediaReport report = {.blocks = PCACHE_MEDIA_CLEAN};

	SetEntry(0, MIB(6), 8192);
	Query(sizeof(entries) - 1, PCACHE_MEDIA_CLEAN, &report);
	assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.bad.n_ranges, 0);

	PCacheMediaAddMemoryErrors(&report, -1);
	assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(TestNone, Clear),
		cmocka_unit_test_setup(TestSome, Clear),
		cmocka_unit_test_setup(TestDamaged, Clear),
		cmocka_unit_test_setup(TestOtherAnswers, Clear),
		cmocka_unit_test_setup(TestUnreadable, Clear),
	};

	return cmocka_run_group_tests_name("memory errors", tests, NULL, NULL);
}
