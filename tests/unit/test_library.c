/*-------------------------------------------------------------------------
 *
 * test_library.c
 *	  Unit tests of what is another thing in pools of the library.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/test_library.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "storage/pcache_find.h"
#include "storage/pcache_foretell.h"
#include "storage/pcache_format.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

/* Ledger, headers and blocks follow each other, each at a huge page's boundary. */
static void
TestGeometry(void **state)
{
	static const uint64 capacities[] = {1, 16, 32767, 32768, 32769, 1048576, PCACHE_MAX_CAPACITY};

	assert_true(PCacheIsLibrary());
	assert_int_equal(PCACHE_FORMAT_VERSION, 3);
	for (int i = 0; i < lengthof(capacities); i++)
	{
		uint64		n = capacities[i];
		PCacheGeometry g = PCacheComputeGeometry(n, MIB(2));

		assert_int_equal(g.headers_offset % MIB(2), 0);
		assert_int_equal(g.blocks_offset % MIB(2), 0);
		assert_true(g.headers_offset >= MIB(2) + n * 64);
		assert_true(g.headers_offset - (MIB(2) + n * 64) < MIB(2));
		assert_true(g.blocks_offset >= g.headers_offset + n * 64);
		assert_true(g.blocks_offset - (g.headers_offset + n * 64) < MIB(2));
		assert_true(g.pool_size >= g.blocks_offset + n * BLCKSZ);

		/* the largest capacity of such a file has no less, and fits */
		assert_true(PCacheCapacityFor(g.pool_size) >= n);
		assert_true(PCacheComputeGeometry(PCacheCapacityFor(g.pool_size), MIB(2)).pool_size <= g.pool_size ||
					n == PCACHE_MAX_CAPACITY);
	}
}

/* The library has no record in the data directory. */
static void
TestNoRecord(void **state)
{
	char	   *directory = MakeTempDirectory("/tmp");
	PCacheRecord record = {.capacity = 16};
	PCacheError err;

	strcpy(record.directory, "/dev/shm/pool");
	assert_true(PCacheRecordMayBeWritten(directory, record.directory, &err));
	assert_false(PCacheRecordMayBeWritten(directory, "/dev/shm/a\nb", &err));
	assert_true(PCacheRecordWrite(directory, 0600, &record, &err));
	assert_int_equal(PCacheRecordRead(directory, &record, &err), PCACHE_RECORD_MISSING);
	/* nothing was written */
	assert_int_equal(rmdir(directory), 0);
	free(directory);
}

/* Nor a default directory. */
static void
TestDirectory(void **state)
{
	char		directory[MAXPGPATH];
	char		name[MAXPGPATH];
	PCacheError err;

	assert_false(PCacheIsDefaultDirectory(NULL));
	assert_false(PCacheIsDefaultDirectory("pg_pcache"));
	PCacheFindDirectory("/pgdata", NULL, NULL, directory);
	assert_string_equal(directory, "");
	assert_false(PCacheDirectoryIsAllowed("/pgdata", NULL, directory, &err));
	assert_string_equal(err.message, "\"pcache.directory\" is not set");
	PCacheFindDirectory("/pgdata", "relative", NULL, directory);
	assert_false(PCacheDirectoryIsAllowed("/pgdata", "relative", directory, &err));
	PCacheFindDirectory("/pgdata", "/pgdata/pg_pcache", NULL, directory);
	assert_false(PCacheDirectoryIsAllowed("/pgdata", "/pgdata/pg_pcache", directory, &err));
	PCacheFindDirectory("/pgdata", "/dev/shm/x", NULL, directory);
	assert_true(PCacheDirectoryIsAllowed("/pgdata", "/dev/shm/x", directory, &err));

	strcpy(name, "/dev//shm/./x/");
	assert_true(PCacheCanonicalDirectory(name, &err));
	assert_string_equal(name, "/dev/shm/x");
	strcpy(name, "pg_pcache");
	assert_false(PCacheCanonicalDirectory(name, &err));
	strcpy(name, "/dev/shm/../x");
	assert_false(PCacheCanonicalDirectory(name, &err));
}

/* A pool goes with the cluster and with pg_control, and needs no record. */
static void
TestGates(void **state)
{
	ControlFileData control = {.system_identifier = 42,.state = DB_SHUTDOWNED,
		.pg_control_version = PG_CONTROL_VERSION,.catalog_version_no = 7,
	.checkPoint = 0x1000,.crc = 99};
	PCacheMediaReport media = {.blocks = PCACHE_MEDIA_CLEAN};
	PCacheGateFacts facts = {.control = &control,.media = &media};
	PCachePageFacts page_facts = {0};
	PCacheSuperblock sb = {0};
	PCacheGeometry g = PCacheComputeGeometry(16, MIB(2));

	control.checkPointCopy.redo = 0x1000;
	control.checkPointCopy.ThisTimeLineID = 1;
	sb.format_version = PCACHE_FORMAT_VERSION;
	sb.superblock_size = PCACHE_SUPERBLOCK_SIZE;
	sb.block_size = BLCKSZ;
	sb.blocks_per_segment = RELSEG_SIZE;
	sb.descriptor_size = sizeof(PCacheDescriptor);
	sb.capacity = 16;
	sb.descriptors_offset = PCACHE_DESCRIPTORS_OFFSET;
	sb.blocks_offset = g.blocks_offset;
	sb.pool_size = facts.file_size = g.pool_size;
	assert_true(PCacheSuperblockAdopt(&sb, &control, PCACHE_FS_TMPFS, PERSISTENT_CACHE_PLANNED_RESTART, 16));
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_ATTACHING);
	PCacheSuperblockSetClean(&sb, &control, 3);
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_WARM);

	/* a pool of the patched server is none of ours, and has no headers */
	sb.format_version = PCACHE_PATCHED_FORMAT;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_VERSION);
	sb.format_version = PCACHE_FORMAT_VERSION;
	sb.blocks_offset = g.headers_offset;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_GEOMETRY);
	sb.blocks_offset = g.blocks_offset;

	control.crc++;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_CONTROL_CHANGED);
	control.crc--;
	sb.system_identifier++;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_SYSTEM_IDENTIFIER);
	sb.system_identifier--;
	sb.state = PCACHE_STATE_EMPTY;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_NEW);
	sb.state = PCACHE_STATE_DIRTY;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_DIRTY);
	sb.state = PCACHE_STATE_CLEAN;

	PCacheSetCompleted(&page_facts, &sb, &facts);
	assert_true(page_facts.is_ledger);
	assert_true(page_facts.all_written);
	control.state = DB_SHUTDOWNED_IN_RECOVERY;
	PCacheSetCompleted(&page_facts, &sb, &facts);
	assert_false(page_facts.all_written);
	assert_int_equal(page_facts.redo, 0x1000);
}

/* A minor release that nobody has tried is none to look into the memory of. */
static void
TestMinors(void **state)
{
	PCacheError err;

	assert_true(PCacheMinorWillDo(PG_VERSION_NUM, false, &err));
	assert_true(PCacheMinorWillDo(150018, false, &err));
	assert_true(PCacheMinorWillDo(150020, false, &err));
	assert_false(PCacheMinorWillDo(150019, false, &err));
	assert_string_equal(err.message, "pg_pcache was not tried with PostgreSQL 15.19");
	assert_true(strstr(err.hint, "\"pcache.allow_unknown_minor\"") != NULL);
	assert_true(PCacheMinorWillDo(150019, true, &err));
}

/* Only a pool of this cluster that a start has not left yet makes one go without. */
static void
TestCutOff(void **state)
{
	PCachePool	pool = {.path = "/pool"};
	PCacheSuperblock sb = {.system_identifier = 42};
	PCacheError err;

	for (PCacheState s = PCACHE_STATE_EMPTY; s <= PCACHE_STATE_CLEAN; s++)
	{
		sb.state = s;
		assert_int_equal(PCacheWasCutOff(&pool, &sb, 42, &err), s == PCACHE_STATE_ATTACHING);
		assert_false(PCacheWasCutOff(&pool, &sb, 43, &err));
	}
}

/* The library writes what is before the blocks, and leaves out slots on bad ones. */
static void
TestBadBlocks(void **state)
{
	PCacheGeometry g = PCacheComputeGeometry(16, MIB(2));
	PCachePool	pool = {.path = "/pool",.file_size = g.pool_size};
	PCacheSuperblock sb = {.capacity = 16,.blocks_offset = g.blocks_offset};
	PCacheMediaReport media = {0};
	PCacheError err;

	assert_true(PCacheMediaWillDo(&pool, &sb, &media, 16, false, &err));
	PCacheRangeAdd(&media.bad, g.blocks_offset, 8 * BLCKSZ);
	assert_true(PCacheMediaWillDo(&pool, &sb, &media, 16, false, &err));
	PCacheRangeAdd(&media.bad, g.blocks_offset + 8 * BLCKSZ, 512);
	assert_false(PCacheMediaWillDo(&pool, &sb, &media, 16, false, &err));
	PCacheMediaReportFree(&media);
	PCacheRangeAdd(&media.bad, g.headers_offset, 512);
	assert_false(PCacheMediaWillDo(&pool, &sb, &media, 16, false, &err));
	assert_true(strstr(err.message, "too many of its blocks are bad") != NULL);
	/* it will be formatted, and asked about anew */
	assert_true(PCacheMediaWillDo(&pool, NULL, &media, 16, false, &err));
	PCacheMediaReportFree(&media);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestGeometry),
		cmocka_unit_test(TestNoRecord),
		cmocka_unit_test(TestDirectory),
		cmocka_unit_test(TestGates),
		cmocka_unit_test(TestMinors),
		cmocka_unit_test(TestCutOff),
		cmocka_unit_test(TestBadBlocks),
	};

	return cmocka_run_group_tests_name("library", tests, NULL, NULL);
}
