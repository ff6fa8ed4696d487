/*-------------------------------------------------------------------------
 *
 * test_library.c
 *	  Unit tests of what the library asks of a pool, beside what test_gate.c has.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/test_library.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

/* Ledger, headers and blocks follow each other, each at a huge page's boundary. */
static void
TestGeometry(void **state)
{
	static const uint64 capacities[] = {1, 16, 32767, 32768, 32769, 1048576, PCACHE_MAX_CAPACITY};

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

/* The directory is absolute, and outside of the data directory. */
/* A clock of the test's own, and how often the process has to wait after asking for the time. */
static int64 fake_clock = 0;
static int	waits = 0;

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int64		ns = fake_clock + (clock == CLOCK_REALTIME ? 5 * PCACHE_NSEC : 0);

	if (fake_clock == 0)
		return syscall(SYS_clock_gettime, clock, now);
	now->tv_sec = ns / PCACHE_NSEC;
	now->tv_nsec = ns % PCACHE_NSEC;
	if (clock == CLOCK_REALTIME && waits-- > 0)
		fake_clock += PCACHE_NSEC;
	return 0;
}

/* Who has to wait between two clocks does not take that for a clock that was set back. */
static void
TestClockOffset(void **state)
{
	fake_clock = 1000 * PCACHE_NSEC;
	for (int i = 0; i < 5; i++)
	{
		waits = i;
		assert_true(PCacheClockOffset() == 5 * PCACHE_NSEC);
	}
	fake_clock = 0;
}

static void
TestDirectory(void **state)
{
	char		name[MAXPGPATH];
	char	   *directory = MakeTempDirectory("/tmp");
	char		path[MAXPGPATH];
	PCacheError err;

	assert_false(PCacheDirectoryIsAllowed("/pgdata", "", &err));
	assert_string_equal(err.message, "\"pcache.directory\" is not set");
	assert_false(PCacheDirectoryIsAllowed("/pgdata", "relative", &err));
	assert_false(PCacheDirectoryIsAllowed("/pgdata", "/pgdata/pg_pcache", &err));
	assert_true(PCacheDirectoryIsAllowed("/pgdata", "/dev/shm/x", &err));

	/*
	 * what is still to be made would be below /usr/bin, or below the root
	 * directory
	 */
	assert_false(PCacheDirectoryIsAllowed("/usr/bin", "/proc/self/root/usr/bin/missing/x", &err));
	assert_true(PCacheDirectoryIsAllowed("/usr/bin", "/missing/x", &err));

	/* a link to what is still to be made, and one to itself */
	snprintf(path, sizeof(path), "%s/link", directory);
	assert_int_equal(symlink("/usr/bin/missing", path), 0);
	assert_false(PCacheDirectoryIsAllowed("/usr/bin", path, &err));
	assert_true(PCacheDirectoryIsAllowed("/usr/sbin", path, &err));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("link", path), 0);
	assert_true(PCacheDirectoryIsAllowed("/usr/bin", path, &err));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(directory), 0);
	free(directory);

	strcpy(name, "/dev//shm/./x/");
	assert_true(PCacheCanonicalDirectory(name, &err));
	assert_string_equal(name, "/dev/shm/x");
	strcpy(name, "pg_pcache");
	assert_false(PCacheCanonicalDirectory(name, &err));
	strcpy(name, "/dev/shm/../x");
	assert_false(PCacheCanonicalDirectory(name, &err));
}

/* Of a pool for 16 blocks that nobody has used. */
static PCacheSuperblock
MakeSuperblock(void)
{
	PCacheGeometry g = PCacheComputeGeometry(16, MIB(2));

	return (PCacheSuperblock)
	{
		.format_version = PCACHE_FORMAT_VERSION,.superblock_size = PCACHE_SUPERBLOCK_SIZE,
			.block_size = BLCKSZ,.blocks_per_segment = RELSEG_SIZE,
			.descriptor_size = sizeof(PCacheDescriptor),.capacity = 16,
			.descriptors_offset = PCACHE_DESCRIPTORS_OFFSET,
			.blocks_offset = g.blocks_offset,.pool_size = g.pool_size
	};
}

/* A shutdown checkpoint has written everything, and no restartpoint has. */
static void
TestPageFacts(void **state)
{
	ControlFileData control = {.state = DB_SHUTDOWNED};
	PCacheMediaReport media = {.blocks = PCACHE_MEDIA_CLEAN};
	PCacheGateFacts facts = {.control = &control,.media = &media};
	PCachePageFacts page_facts = {0};
	PCacheSuperblock sb = {.state = PCACHE_STATE_CLEAN};

	control.checkPointCopy.redo = 0x1000;
	PCacheSetPageFacts(&page_facts, &sb, &facts);
	assert_true(page_facts.all_written);
	control.state = DB_SHUTDOWNED_IN_RECOVERY;
	PCacheSetPageFacts(&page_facts, &sb, &facts);
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

/* One start that was cut off is enough, or two in mode always; and no other cluster's. */
static void
TestCutOff(void **state)
{
	PCachePool	pool = {.path = "/pool"};
	PCacheSuperblock sb = {.system_identifier = 42};
	PCacheError err;

	for (PCacheState s = PCACHE_STATE_EMPTY; s <= PCACHE_STATE_CLEAN; s++)
	{
		for (int starts = 0; starts <= 3; starts++)
		{
			sb.state = s;
			sb.starts_from = starts;
			sb.mode = PERSISTENT_CACHE_PLANNED_RESTART;
			assert_int_equal(PCacheWasCutOff(&pool, &sb, 42, &err),
							 s != PCACHE_STATE_EMPTY && starts >= 1);
			sb.mode = PERSISTENT_CACHE_ALWAYS;
			assert_int_equal(PCacheWasCutOff(&pool, &sb, 42, &err),
							 s != PCACHE_STATE_EMPTY && starts >= 2);
			assert_false(PCacheWasCutOff(&pool, &sb, 43, &err));
		}
	}
}

/* A header with a page, as a server of ours might have it. */
static const PCacheHeaderLayout layout = {
	.tag = 0,.state = 24,.content_lock = 40,
	.present = 0x3000000,.dirty = 0x800000,.in_change = 0xC400000,
	.permanent = 0x80000000,.usage_count_mask = 0x3C0000,.usage_count_one = 0x40000,
	.lock_held = 0x1FFFFFF
};

static void
MakeHeader(char *header, uint32 header_state, uint32 lock)
{
	PCachePageKey key = {1663, 5, 16384, 0, 77};

	memset(header, 0x5A, 64);
	memcpy(header + layout.tag, &key, sizeof(key));
	memcpy(header + layout.state, &header_state, sizeof(header_state));
	memcpy(header + layout.content_lock, &lock, sizeof(lock));
}

/* An entry is made of a header that nobody was working on, and of no other. */
static void
TestHarvest(void **state)
{
	static const struct
	{
		uint32		state;
		uint32		lock;
		int			why_free;	/* -1: it has an entry */
	}			cases[] = {
		{0x83000000, 0, -1},
		{0x83000000, 0x40000000, -1},	/* waiters, and nobody who holds it */
		{0x83000007, 0, -1},	/* pins */
		{0x82000000, 0, 0},
		{0x81000000, 0, 0},
		{0, 0, 0},
		{0x83800000, 0, PCACHE_DESC_WAS_DIRTY},
		{0x83800000, 1, PCACHE_DESC_WAS_DIRTY},
		{0x83000000, 1, PCACHE_DESC_WAS_IN_CHANGE},
		{0x83000000, 0x1000000, PCACHE_DESC_WAS_IN_CHANGE},
		{0x83400000, 0, PCACHE_DESC_WAS_IN_CHANGE},
		{0x87000000, 0, PCACHE_DESC_WAS_IN_CHANGE},
		{0x8B000000, 0, PCACHE_DESC_WAS_IN_CHANGE},
	};
	PageHeaderData page = {.pd_lsn = {0x1, 0x2345}};
	PCacheHeaderLayout other = layout;
	PCacheDescriptor entry;
	char		header[64];

	assert_true(PCacheHeaderLayoutIsSane(&layout));
	other.tag = 48;
	assert_false(PCacheHeaderLayoutIsSane(&other));
	other = layout;
	other.lock_held = 0;
	assert_false(PCacheHeaderLayoutIsSane(&other));
	for (int i = 0; i < lengthof(cases); i++)
	{
		memset(&entry, 0, sizeof(entry));
		MakeHeader(header, cases[i].state, cases[i].lock);
		/* a young page may be dirty, and all else is asked of it as well */
		assert_int_equal(PCacheHarvestYoung(&layout, header, 9, &entry),
						 cases[i].why_free < 0 ||
						 (cases[i].why_free == PCACHE_DESC_WAS_DIRTY && cases[i].lock == 0));
		if (cases[i].why_free == PCACHE_DESC_WAS_DIRTY && cases[i].lock == 0)
		{
			assert_int_equal(entry.flags, PCACHE_DESC_PERMANENT | PCACHE_DESC_DIRTY);
			assert_int_equal(entry.rel_number, 16384);
			assert_false(PCacheSeqIsSealed(entry.seq) && PCacheDescriptorIsIntact(&entry, 9));
		}
		else if (cases[i].why_free < 0)
			assert_int_equal(entry.flags, PCACHE_DESC_PERMANENT);

		memset(&entry, 0, sizeof(entry));
		assert_int_equal(PCacheHarvestHeader(&layout, header, 9, &entry), cases[i].why_free < 0);
		if (cases[i].why_free >= 0)
		{
			assert_false(PCacheSeqIsSealed(entry.seq));
			assert_int_equal(entry.why_free, cases[i].why_free);
			continue;
		}
		PCacheHarvestLsn(&entry, &page);
		assert_true(PCacheSeqIsSealed(entry.seq));
		assert_true(PCacheDescriptorIsIntact(&entry, 9));
		assert_true(entry.page_lsn == UINT64CONST(0x100002345));
		assert_int_equal(entry.block_number, 77);
		assert_int_equal(entry.rel_number, 16384);
		assert_true(entry.flags & PCACHE_DESC_PERMANENT);
	}
	MakeHeader(header, 0x03140000, 0);
	assert_true(PCacheHarvestHeader(&layout, header, 9, &entry));
	assert_int_equal(entry.flags, 0);
	assert_int_equal(entry.usage_count, 5);
}

/* Of two sightings the later one counts, if it was stored as a whole. */
static void
TestSightings(void **state)
{
	char	   *directory = MakeTempDirectory("/tmp");
	char		path[MAXPGPATH];
	int			fd;
	PCacheMapping map = {.kind = PCACHE_PERSIST_MEMORY,.length = MIB(2)};
	ControlFileData control = {.checkPoint = 0x1000};
	PCacheSighting sighting = {0};
	PCacheSighting found;

	snprintf(path, sizeof(path), "%s/pool", directory);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, MIB(2)), 0);
	map.base = mmap(NULL, MIB(2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_false(PCacheReadSighting(fd, &found));
	assert_int_equal(found.number, 0);
	for (int i = 1; i <= 5; i++)
	{
		PCacheSightingMake(&sighting, &control, i * PCACHE_NSEC);
		PCacheSightingStore(&map, &sighting);
		assert_true(PCacheReadSighting(fd, &found));
		assert_int_equal(found.number, i);
		assert_int_equal(found.seen_at, i * PCACHE_NSEC);
		assert_memory_equal(&found, &sighting, sizeof(found));
	}
	/* who stored the last one was killed */
	map.base[PCACHE_SIGHTING_OFFSET + sizeof(PCacheSighting) + 8] ^= 1;
	assert_true(PCacheReadSighting(fd, &found));
	assert_int_equal(found.number, 4);
	map.base[PCACHE_SIGHTING_OFFSET + 8] ^= 1;
	assert_false(PCacheReadSighting(fd, &found));

	munmap(map.base, MIB(2));
	close(fd);
	unlink(path);
	rmdir(directory);
	free(directory);
}

/* All of pg_control counts, but for how far replay has come in archive recovery. */
static void
TestGeneration(void **state)
{
	ControlFileData control = {.state = DB_IN_PRODUCTION,.checkPoint = 0x1000,.crc = 5};
	uint64		generation = PCacheGenerationOf(&control);

	control.crc++;
	assert_true(PCacheGenerationOf(&control) == generation);
	for (size_t i = 0; i < offsetof(ControlFileData, crc); i++)
	{
		((char *) &control)[i] ^= 1;
		assert_true(PCacheGenerationOf(&control) != generation);
		((char *) &control)[i] ^= 1;
	}
	control.state = DB_IN_ARCHIVE_RECOVERY;
	generation = PCacheGenerationOf(&control);
	control.time++;
	control.minRecoveryPoint++;
	control.minRecoveryPointTLI++;
	assert_true(PCacheGenerationOf(&control) == generation);
	control.checkPointCopy.redo++;
	assert_true(PCacheGenerationOf(&control) != generation);
}

/* A pool whose server was killed, and a cluster that is as it has last seen it. */
static void
TestKilled(void **state)
{
	const uint32 segment_size = 1024 * 1024;
	const uint64 end = 3 * segment_size + 5000;
	char	   *directory = MakeTempDirectory("/tmp");
	ControlFileData control = {.system_identifier = 42,.state = DB_IN_PRODUCTION,
		.pg_control_version = PG_CONTROL_VERSION,.catalog_version_no = 7,
	.checkPoint = 0x1000,.xlog_seg_size = segment_size};
	PCacheMediaReport media = {.blocks = PCACHE_MEDIA_CLEAN};
	PCacheGateFacts facts = {.control = &control,.media = &media};
	PCachePageFacts page_facts = {0};
	PCacheSuperblock sb = MakeSuperblock();
	PCacheSighting *seen = &facts.sighting;
	char		old[MAXPGPATH];
	char		wal[8192];
	int			fd;

	control.checkPointCopy.redo = 0x1000;
	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("pg_wal", 0700), 0);
	fd = open("pg_wal/000000010000000000000003", O_RDWR | O_CREAT, 0600);
	memset(wal, 'w', sizeof(wal));
	assert_int_equal(write(fd, wal, 5000), 5000);
	assert_int_equal(ftruncate(fd, segment_size), 0);

	facts.file_size = sb.pool_size;
	sb.headers = layout;
	assert_true(PCacheSuperblockAdopt(&sb, &control, PCACHE_FS_TMPFS, PERSISTENT_CACHE_ALWAYS, 16));
	sb.state = PCACHE_STATE_DIRTY;
	memcpy(facts.boot_id, sb.boot_id, sizeof(facts.boot_id));
	seen->number = 1;
	PCacheSightingMake(seen, &control, (int64) time(NULL) * PCACHE_NSEC);
	assert_true(PCacheWatermarkFromDisk(&seen->wal, 1, end, segment_size));
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_WARM);

	sb.mode = PERSISTENT_CACHE_PLANNED_RESTART;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_DIRTY);
	sb.mode = PERSISTENT_CACHE_ALWAYS;
	control.checkPoint++;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_CHECKPOINT);
	control.checkPoint--;
	control.time++;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_CONTROL_CHANGED);
	control.time--;
	facts.boot_id[0] ^= 1;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_POWER);
	facts.boot_id[0] ^= 1;
	sb.headers.lock_held = 0;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_VERSION);
	sb.headers = layout;
	facts.suspect.died = PCacheSuspectDeath(11, 77);
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_SUSPECT);
	facts.suspect.died = 0;
	facts.read_errors_ignored = true;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_SUSPECT);
	facts.read_errors_ignored = false;
	facts.backup_label = true;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_BACKUP_LABEL);
	facts.backup_label = false;
	assert_int_equal(pwrite(fd, "x", 1, 4990), 1);
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_WATERMARK);
	assert_int_equal(pwrite(fd, "w", 1, 4990), 1);
	seen->wal.witness = 0;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_WATERMARK);
	assert_true(PCacheWatermarkFromDisk(&seen->wal, 1, end, segment_size));
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_WARM);

	/* files must be as they were, if the clock was not set back */
	PCacheSetPageFacts(&page_facts, &sb, &facts);
	assert_false(page_facts.all_written);
	assert_true(page_facts.unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	seen->clock_offset += PCACHE_NSEC;
	PCacheSetPageFacts(&page_facts, &sb, &facts);
	assert_int_equal(page_facts.unchanged_since, 1);
	seen->clock_offset -= 2 * PCACHE_NSEC;
	PCacheSetPageFacts(&page_facts, &sb, &facts);
	assert_true(page_facts.unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);

	/* once it is saved, it is that of this pg_control */
	PCacheSuperblockSetClean(&sb, &control, 3);
	seen->generation = 0;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_WARM);
	control.crc++;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_CONTROL_CHANGED);
	control.crc--;
	control.state = DB_IN_CRASH_RECOVERY;
	assert_int_equal(PCachePoolGate(&sb, &facts).refusal, PCACHE_COLD_CONTROL_STATE);
	control.state = DB_SHUTDOWNED;
	PCacheSuperblockSetClean(&sb, &control, 3);
	sb.saved_at = time(NULL);
	PCacheSetPageFacts(&page_facts, &sb, &facts);
	assert_true(page_facts.unchanged_since == (sb.saved_at + 1) * PCACHE_NSEC);

	close(fd);
	unlink("pg_wal/000000010000000000000003");
	rmdir("pg_wal");
	assert_int_equal(chdir(old), 0);
	rmdir(directory);
	free(directory);
}

/* The server writes what is before the blocks, and leaves out slots on bad ones. */
static void
TestBadBlocks(void **state)
{
	PCacheGeometry g = PCacheComputeGeometry(16, MIB(2));
	PCachePool	pool = {.path = "/pool",.file_size = g.pool_size};
	PCacheSuperblock sb = {.capacity = 16,.blocks_offset = g.blocks_offset};
	PCacheMediaReport media = {0};
	PCacheError err;

	assert_true(PCacheMediaWillDo(&pool, &sb, &media, 16, &err));
	PCacheRangeAdd(&media.bad, g.blocks_offset, 8 * BLCKSZ);
	assert_true(PCacheMediaWillDo(&pool, &sb, &media, 16, &err));
	PCacheRangeAdd(&media.bad, g.blocks_offset + 8 * BLCKSZ, 512);
	assert_false(PCacheMediaWillDo(&pool, &sb, &media, 16, &err));
	PCacheMediaReportFree(&media);
	PCacheRangeAdd(&media.bad, g.headers_offset, 512);
	assert_false(PCacheMediaWillDo(&pool, &sb, &media, 16, &err));
	assert_true(strstr(err.message, "too many of its blocks are bad") != NULL);
	/* formatting it would store there */
	assert_false(PCacheMediaWillDo(&pool, NULL, &media, 16, &err));
	PCacheMediaReportFree(&media);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestGeometry),
		cmocka_unit_test(TestClockOffset),
		cmocka_unit_test(TestDirectory),
		cmocka_unit_test(TestPageFacts),
		cmocka_unit_test(TestMinors),
		cmocka_unit_test(TestCutOff),
		cmocka_unit_test(TestHarvest),
		cmocka_unit_test(TestSightings),
		cmocka_unit_test(TestGeneration),
		cmocka_unit_test(TestKilled),
		cmocka_unit_test(TestBadBlocks),
	};

	return cmocka_run_group_tests_name("library", tests, NULL, NULL);
}
