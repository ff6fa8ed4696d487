/*-------------------------------------------------------------------------
 *
 * test_layout.c
 *	  The on-media format, against numbers written down independently.
 *
 * Who changes a number here has changed the format: raise
 * PCACHE_FORMAT_VERSION.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_layout.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

typedef struct Field
{
	const char *name;
	size_t		offset;			/* as compiled */
	size_t		size;
	size_t		expected_offset;
	size_t		expected_size;
} Field;

#define FIELD(type, member, offset, size) \
	{#member, offsetof(type, member), sizeof(((type *) NULL)->member), offset, size}

/* The fields are where they should be, and there is no padding. */
static void
CheckFields(const Field *fields, int n, size_t size, size_t expected_size)
{
	size_t		end = 0;

	for (int i = 0; i < n; i++)
	{
		if (fields[i].offset != fields[i].expected_offset ||
			fields[i].size != fields[i].expected_size)
			fail_msg("%s: %zu bytes at %zu, expected %zu at %zu", fields[i].name,
					 fields[i].size, fields[i].offset,
					 fields[i].expected_size, fields[i].expected_offset);
		if (fields[i].offset != end)
			fail_msg("%s: padding before it, or not in this table", fields[i].name);
		end += fields[i].size;
	}
	assert_int_equal(end, expected_size);
	assert_int_equal(size, expected_size);
}

static void
TestConstants(void **state)
{
	assert_int_equal(PCACHE_FORMAT_VERSION, 3);
	assert_int_equal(PCACHE_BYTE_ORDER, 0x01020304);
	assert_int_equal(PCACHE_CACHE_LINE, 64);
	assert_int_equal(PCACHE_ALIGNMENT, 2097152);
	assert_int_equal(PCACHE_SUPERBLOCK_SIZE, 4096);
	assert_int_equal(PCACHE_SUPERBLOCK_OFFSET, 0);
	assert_int_equal(PCACHE_COPY_OFFSET, 4096);
	assert_int_equal(PCACHE_HEADER_SIZE, 64);
	assert_int_equal(PCACHE_NOTES_OFFSET, 8192);
	assert_int_equal(PCACHE_SUSPECT_OFFSET, 8384);
	assert_int_equal(PCACHE_SIGHTING_OFFSET, 8448);
	assert_int_equal(PCACHE_READ_ERRORS_OFFSET, 8704);
	assert_int_equal(PCACHE_ROLLED_BACK_OFFSET, 8712);
	assert_int_equal(PCACHE_NOT_SYNCED_OFFSET, 8720);
	assert_int_equal(PCACHE_DESCRIPTORS_OFFSET, 2097152);
	assert_int_equal(PCACHE_UUID_LEN, 16);
	assert_int_equal(PCACHE_MAX_DIMMS, 32);
	assert_int_equal(PCACHE_DIMM_ID_LEN, 40);
	assert_int_equal(PCACHE_DESC_VERSION, 1);
	assert_int_equal(PCACHE_DESC_PERMANENT, 1);
	assert_int_equal(PCACHE_DESC_FREE_SEQ, 1);
	assert_int_equal(PCACHE_DESC_SAVED_SEQ, 2);
	assert_int_equal(PCACHE_DESC_WAS_DIRTY, 1);
	assert_int_equal(PCACHE_DESC_WAS_IN_CHANGE, 2);
	assert_int_equal(PCACHE_DESC_WAS_LOST, 3);
	assert_int_equal(PCACHE_DESC_WAS_FIRST, 4);
	assert_string_equal(PCACHE_MAGIC_HEAD, "PGPCACHE");
	assert_string_equal(PCACHE_MAGIC_TAIL, "EHCACPGP");
	assert_string_equal(PCACHE_POOL_FILE, "pool");

	assert_int_equal(PCACHE_STATE_EMPTY, 1);
	assert_int_equal(PCACHE_STATE_DIRTY, 3);
	assert_int_equal(PCACHE_STATE_CLEAN, 4);
	assert_int_equal(PCACHE_FS_FILE, 1);
	assert_int_equal(PCACHE_FS_TMPFS, 2);
	assert_int_equal(PCACHE_FS_HUGETLBFS, 3);
	assert_int_equal(PCACHE_FS_FSDAX, 4);
	assert_int_equal(PCACHE_POWER_COLD, 0);
	assert_int_equal(PCACHE_POWER_LEDGER, 1);
	assert_int_equal(PCACHE_POWER_HEADERS, 2);
}

static void
TestSuperblock(void **state)
{
	static const Field fields[] = {
		FIELD(PCacheSuperblock, magic, 0, 8),
		FIELD(PCacheSuperblock, format_version, 8, 4),
		FIELD(PCacheSuperblock, superblock_size, 12, 4),
		FIELD(PCacheSuperblock, pool_uuid, 16, 16),
		FIELD(PCacheSuperblock, system_identifier, 32, 8),
		FIELD(PCacheSuperblock, pool_size, 40, 8),
		FIELD(PCacheSuperblock, created_at, 48, 8),
		FIELD(PCacheSuperblock, pg_major, 56, 4),
		FIELD(PCacheSuperblock, byte_order, 60, 4),
		FIELD(PCacheSuperblock, block_size, 64, 4),
		FIELD(PCacheSuperblock, descriptor_size, 68, 4),
		FIELD(PCacheSuperblock, blocks_per_segment, 72, 4),
		FIELD(PCacheSuperblock, pg_control_version, 76, 4),
		FIELD(PCacheSuperblock, catalog_version, 80, 4),
		FIELD(PCacheSuperblock, fs_kind, 84, 4),
		FIELD(PCacheSuperblock, capacity, 88, 8),
		FIELD(PCacheSuperblock, descriptors_offset, 96, 8),
		FIELD(PCacheSuperblock, blocks_offset, 104, 8),
		FIELD(PCacheSuperblock, slots_used, 112, 8),
		FIELD(PCacheSuperblock, state, 120, 4),
		FIELD(PCacheSuperblock, mode, 124, 4),
		FIELD(PCacheSuperblock, incarnation, 128, 8),
		FIELD(PCacheSuperblock, generation, 136, 8),
		FIELD(PCacheSuperblock, reserved1, 144, 8),
		FIELD(PCacheSuperblock, saved, 152, 24),
		FIELD(PCacheSuperblock, min_recovery_point, 176, 8),
		FIELD(PCacheSuperblock, min_recovery_point_timeline, 184, 4),
		FIELD(PCacheSuperblock, control_state, 188, 4),
		FIELD(PCacheSuperblock, saved_pages, 192, 8),
		FIELD(PCacheSuperblock, saved_at, 200, 8),
		FIELD(PCacheSuperblock, reserved2, 208, 8),
		FIELD(PCacheSuperblock, starts_from, 216, 4),
		FIELD(PCacheSuperblock, data_checksum_version, 220, 4),
		FIELD(PCacheSuperblock, boot_id, 224, 16),
		FIELD(PCacheSuperblock, n_dimms, 240, 4),
		FIELD(PCacheSuperblock, dimms_state, 244, 4),
		FIELD(PCacheSuperblock, dimms, 248, 1536),
		FIELD(PCacheSuperblock, headers, 1784, 36),
		FIELD(PCacheSuperblock, power_rule, 1820, 4),
		FIELD(PCacheSuperblock, ledger_id, 1824, 8),
		FIELD(PCacheSuperblock, clock_offset, 1832, 8),
		FIELD(PCacheSuperblock, reserved, 1840, 2244),
		FIELD(PCacheSuperblock, crc, 4084, 4),
		FIELD(PCacheSuperblock, tail, 4088, 8),
	};

	CheckFields(fields, lengthof(fields), sizeof(PCacheSuperblock), 4096);
}

static void
TestParts(void **state)
{
	static const Field checkpoint[] = {
		FIELD(PCacheCheckpoint, location, 0, 8),
		FIELD(PCacheCheckpoint, redo, 8, 8),
		FIELD(PCacheCheckpoint, timeline, 16, 4),
		FIELD(PCacheCheckpoint, control_crc, 20, 4),
	};
	static const Field dimm[] = {
		FIELD(PCacheDimm, id, 0, 40),
		FIELD(PCacheDimm, unsafe_shutdowns, 40, 8),
	};
	static const Field watermark[] = {
		FIELD(PCacheWatermark, written, 0, 8),
		FIELD(PCacheWatermark, witness, 8, 8),
		FIELD(PCacheWatermark, witness_hash, 16, 8),
		FIELD(PCacheWatermark, timeline, 24, 4),
		FIELD(PCacheWatermark, reserved, 28, 4),
	};
	static const Field sighting[] = {
		FIELD(PCacheSighting, number, 0, 8),
		FIELD(PCacheSighting, generation, 8, 8),
		FIELD(PCacheSighting, checkpoint, 16, 8),
		FIELD(PCacheSighting, seen_at, 24, 8),
		FIELD(PCacheSighting, wal, 32, 32),
		FIELD(PCacheSighting, min_recovery_point, 64, 8),
		FIELD(PCacheSighting, clock_offset, 72, 8),
		FIELD(PCacheSighting, pool_device, 80, 8),
		FIELD(PCacheSighting, pool_inode, 88, 8),
		FIELD(PCacheSighting, synced_generation, 96, 8),
		FIELD(PCacheSighting, synced_recovery_point, 104, 8),
		FIELD(PCacheSighting, reserved, 112, 12),
		FIELD(PCacheSighting, crc, 124, 4),
	};
	static const Field suspect[] = {
		FIELD(PCacheSuspect, died, 0, 8),
		FIELD(PCacheSuspect, died_at, 8, 8),
		FIELD(PCacheSuspect, reserved, 16, 44),
		FIELD(PCacheSuspect, crc, 60, 4),
	};
	static const Field memory_error[] = {
		FIELD(PCacheMemoryError, offset, 0, 8),
		FIELD(PCacheMemoryError, length, 8, 4),
		FIELD(PCacheMemoryError, crc, 12, 4),
	};
	static const Field headers[] = {
		FIELD(PCacheHeaderLayout, tag, 0, 2),
		FIELD(PCacheHeaderLayout, state, 2, 2),
		FIELD(PCacheHeaderLayout, content_lock, 4, 2),
		FIELD(PCacheHeaderLayout, reserved, 6, 2),
		FIELD(PCacheHeaderLayout, present, 8, 4),
		FIELD(PCacheHeaderLayout, dirty, 12, 4),
		FIELD(PCacheHeaderLayout, in_change, 16, 4),
		FIELD(PCacheHeaderLayout, permanent, 20, 4),
		FIELD(PCacheHeaderLayout, usage_count_mask, 24, 4),
		FIELD(PCacheHeaderLayout, usage_count_one, 28, 4),
		FIELD(PCacheHeaderLayout, lock_held, 32, 4),
	};

	CheckFields(checkpoint, lengthof(checkpoint), sizeof(PCacheCheckpoint), 24);
	CheckFields(dimm, lengthof(dimm), sizeof(PCacheDimm), 48);
	CheckFields(watermark, lengthof(watermark), sizeof(PCacheWatermark), 32);
	CheckFields(sighting, lengthof(sighting), sizeof(PCacheSighting), 128);
	CheckFields(suspect, lengthof(suspect), sizeof(PCacheSuspect), 64);
	CheckFields(memory_error, lengthof(memory_error), sizeof(PCacheMemoryError), 16);
	CheckFields(headers, lengthof(headers), sizeof(PCacheHeaderLayout), 36);
}

static void
TestDescriptor(void **state)
{
	static const Field fields[] = {
		FIELD(PCacheDescriptor, seq, 0, 8),
		FIELD(PCacheDescriptor, page_lsn, 8, 8),
		FIELD(PCacheDescriptor, sum, 16, 8),
		FIELD(PCacheDescriptor, spc_oid, 24, 4),
		FIELD(PCacheDescriptor, db_oid, 28, 4),
		FIELD(PCacheDescriptor, rel_number, 32, 4),
		FIELD(PCacheDescriptor, fork_number, 36, 4),
		FIELD(PCacheDescriptor, block_number, 40, 4),
		FIELD(PCacheDescriptor, slot, 44, 4),
		FIELD(PCacheDescriptor, version, 48, 2),
		FIELD(PCacheDescriptor, flags, 50, 2),
		FIELD(PCacheDescriptor, usage_count, 52, 1),
		FIELD(PCacheDescriptor, why_free, 53, 1),
		FIELD(PCacheDescriptor, reserved, 54, 2),
		FIELD(PCacheDescriptor, reserved2, 56, 4),
		FIELD(PCacheDescriptor, crc, 60, 4),
	};

	CheckFields(fields, lengthof(fields), sizeof(PCacheDescriptor), 64);
	assert_int_equal(sizeof(((PCacheDescriptor *) NULL)->sum), 8);
}

static void
TestBitwiseCrc(void **state)
{
	/* the check value of CRC-32C, and one from RFC 3720 B.4 */
	static const uint8 zeros[32];

	assert_int_equal(BitwiseCrc32c("123456789", 9), 0xE3069283);
	assert_int_equal(BitwiseCrc32c(zeros, 32), 0x8A9136AA);
}

static void
TestDescriptorCrc(void **state)
{
	PCacheDescriptor desc;
	uint8	   *bytes = (uint8 *) &desc;
	uint32		crc;

	for (int i = 0; i < sizeof(desc); i++)
		bytes[i] = i;
	assert_int_equal(PCacheDescriptorCrc(&desc), 0x595755CB);
	assert_int_equal(PCacheDescriptorCrc(&desc), BitwiseCrc32c(bytes + 8, 52));

	/* it depends on every byte but those of seq and of itself */
	crc = PCacheDescriptorCrc(&desc);
	for (int i = 0; i < sizeof(desc); i++)
	{
		bytes[i] ^= 0x10;
		if (i < 8 || i >= 60)
			assert_int_equal(PCacheDescriptorCrc(&desc), crc);
		else
			assert_int_not_equal(PCacheDescriptorCrc(&desc), crc);
		bytes[i] ^= 0x10;
	}

	SeedRandom();
	for (int i = 0; i < 1000; i++)
	{
		RandomBytes(&desc, sizeof(desc));
		assert_int_equal(PCacheDescriptorCrc(&desc), BitwiseCrc32c(bytes + 8, 52));
	}
}

static void
TestSuperblockCrc(void **state)
{
	PCacheSuperblock sb;
	PCacheSuperblock before;
	uint8	   *bytes = (uint8 *) &sb;
	uint32		crc;

	for (int i = 0; i < sizeof(sb); i++)
		bytes[i] = (uint8) (i * 7 + 3);
	before = sb;
	PCacheSuperblockSetCrc(&sb);
	assert_int_equal(sb.crc, 0x7ECACA51);
	assert_int_equal(sb.crc, BitwiseCrc32c(bytes, 4084));
	before.crc = sb.crc;
	assert_memory_equal(&sb, &before, sizeof(sb));

	crc = sb.crc;
	for (int i = 0; i < sizeof(sb); i++)
	{
		if (i >= 4084 && i < 4088)
			continue;
		bytes[i] ^= 0x80;
		PCacheSuperblockSetCrc(&sb);
		if (i >= 4088)
			assert_int_equal(sb.crc, crc);
		else
			assert_int_not_equal(sb.crc, crc);
		bytes[i] ^= 0x80;
	}
}

static void
CheckGeometry(uint64 capacity, uint64 page_size)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, page_size);
	PCacheGeometry small = PCacheComputeGeometry(capacity, MIB(2));
	uint64		descriptors_end = MIB(2) + capacity * 64;
	uint64		headers_end = g.headers_offset + capacity * 64;
	uint64		blocks_end = g.blocks_offset + capacity * 8192;

	assert_int_equal(g.capacity, capacity);

	/* aligned, behind what is before, and no further than it must be */
	assert_int_equal(g.headers_offset % MIB(2), 0);
	assert_true(g.headers_offset >= descriptors_end);
	assert_true(g.headers_offset - descriptors_end < MIB(2));
	assert_int_equal(g.blocks_offset % MIB(2), 0);
	assert_true(g.blocks_offset >= headers_end);
	assert_true(g.blocks_offset - headers_end < MIB(2));

	assert_int_equal(g.pool_size % page_size, 0);
	assert_true(g.pool_size >= blocks_end);
	assert_true(g.pool_size - blocks_end < page_size);

	/* the unit of allocation changes the size of the file only */
	assert_int_equal(g.blocks_offset, small.blocks_offset);
	assert_true(g.pool_size >= small.pool_size);
}

static void
TestGeometry(void **state)
{
	static const uint64 page_sizes[] = {MIB(2), MIB(16), MIB(32), MIB(512), GIB(1), GIB(16)};
	static const struct
	{
		uint64		capacity;
		uint64		page_size;
		uint64		blocks_offset;
		uint64		pool_size;
	}			known[] = {
		{1, MIB(2), MIB(6), MIB(8)},
		{256, MIB(2), MIB(6), MIB(8)},
		{257, MIB(2), MIB(6), MIB(10)},
		{32768, MIB(2), MIB(6), MIB(262)},	/* descriptors fill 2 MiB, as do
											 * headers */
		{32769, MIB(2), MIB(10), MIB(268)},
		{16384, MIB(2), MIB(6), MIB(134)},
		{131072, MIB(2), MIB(18), MIB(1042)},
		{131072, GIB(1), MIB(18), GIB(2)},
		{1, GIB(1), MIB(6), GIB(1)},
		{52428800, MIB(2), MIB(6402), MIB(6402) + GIB(400)},
	};

	assert_int_equal(BLCKSZ, 8192);
	for (int i = 0; i < lengthof(known); i++)
	{
		PCacheGeometry g = PCacheComputeGeometry(known[i].capacity, known[i].page_size);

		assert_int_equal(g.blocks_offset, known[i].blocks_offset);
		assert_int_equal(g.pool_size, known[i].pool_size);
	}

	SeedRandom();
	for (int i = 0; i < lengthof(page_sizes); i++)
	{
		PCacheGeometry last = {0};

		for (uint64 capacity = 1; capacity <= PG_UINT32_MAX;
			 capacity += capacity < 2000 ? 1 : capacity / 1000 + Random() % 77)
		{
			PCacheGeometry g = PCacheComputeGeometry(capacity, page_sizes[i]);

			CheckGeometry(capacity, page_sizes[i]);
			assert_true(g.blocks_offset >= last.blocks_offset);
			assert_true(g.pool_size >= last.pool_size);
			last = g;
		}
		CheckGeometry(PG_UINT32_MAX, page_sizes[i]);
	}
}

static void
TestSealed(void **state)
{
	static const uint64 odd[] = {1, 3, PCACHE_DESC_FREE_SEQ, PG_UINT64_MAX, UINT64CONST(0x100000001)};
	static const uint64 even[] = {0, 2, PG_UINT64_MAX - 1, UINT64CONST(0x100000000), UINT64CONST(1) << 63};

	for (int i = 0; i < lengthof(odd); i++)
	{
		assert_false(PCacheSeqIsSealed(odd[i]));
		/* a second mark keeps it unsealed, a seal makes it sealed */
		assert_false(PCacheSeqIsSealed(odd[i] + 2));
		assert_true(PCacheSeqIsSealed(odd[i] + 1));
	}
	for (int i = 0; i < lengthof(even); i++)
		assert_true(PCacheSeqIsSealed(even[i]));
	/* the macro must parenthesize */
	assert_false(PCacheSeqIsSealed(0 | 1));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestConstants),
		cmocka_unit_test(TestSuperblock),
		cmocka_unit_test(TestParts),
		cmocka_unit_test(TestDescriptor),
		cmocka_unit_test(TestBitwiseCrc),
		cmocka_unit_test(TestDescriptorCrc),
		cmocka_unit_test(TestSuperblockCrc),
		cmocka_unit_test(TestGeometry),
		cmocka_unit_test(TestSealed),
	};

	return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
