/*-------------------------------------------------------------------------
 *
 * test_ledger.c
 *	  Unit tests of what a start believes after a loss of power, in pools of the
 *	  library: entries with a sum, and the gates that ask for them.
 *
 * How the entries are made is for test_list.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_ledger.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "catalog/pg_tablespace_d.h"
#include "storage/pcache_pool.h"

#define LINE			PCACHE_CACHE_LINE
#define CAPACITY		16
#define SLOT			5
#define GENERATION		UINT64CONST(0x1234567890ABCDEC)

/* What headers of the pool's server look like. */
static const PCacheHeaderLayout layout = {
	.tag = 0,.state = 24,.content_lock = 40,
	.present = 0x3000000,.dirty = 0x800000,.in_change = 0xC400000,
	.permanent = 0x80000000,.usage_count_mask = 0x3C0000,.usage_count_one = 0x40000,
	.lock_held = 0x1FFFFFF
};

static void
NeedSums(void)
{
	if (PCacheHasSums())
		return;
	print_message("there is no libxxhash\n");
	skip();
}

/* Where is told what is in a pool? */
static void
TestSource(void **state)
{
	static const struct
	{
		PCachePowerRule rule;
		bool		restarted;
		PCacheSource expected;
		PCacheSource without_layout;	/* if it is not known how headers look */
	}			cases[] = {
		{PCACHE_POWER_COLD, false, PCACHE_SOURCE_HEADERS, PCACHE_SOURCE_SAVED},
		{PCACHE_POWER_LEDGER, false, PCACHE_SOURCE_HEADERS, PCACHE_SOURCE_SAVED},
		{PCACHE_POWER_HEADERS, false, PCACHE_SOURCE_HEADERS, PCACHE_SOURCE_SAVED},
		{99, false, PCACHE_SOURCE_HEADERS, PCACHE_SOURCE_SAVED},
		/* which the pool gate refuses */
		{PCACHE_POWER_COLD, true, PCACHE_SOURCE_SUMS, PCACHE_SOURCE_SUMS},
		{PCACHE_POWER_LEDGER, true, PCACHE_SOURCE_SUMS, PCACHE_SOURCE_SUMS},
		{PCACHE_POWER_HEADERS, true, PCACHE_SOURCE_HEADERS, PCACHE_SOURCE_SAVED},
		{99, true, PCACHE_SOURCE_SUMS, PCACHE_SOURCE_SUMS},
	};
	PCacheSuperblock sb;

	memset(&sb, 0, sizeof(sb));
	for (int i = 0; i < lengthof(cases); i++)
	{
		for (int s = 0; s <= PCACHE_STATE_CLEAN + 1; s++)
		{
			for (int mode = PERSISTENT_CACHE_OFF; mode <= PERSISTENT_CACHE_ALWAYS + 1; mode++)
			{
				bool		was_killed = s == PCACHE_STATE_DIRTY && mode == PERSISTENT_CACHE_ALWAYS;

				sb.state = s;
				sb.mode = mode;
				sb.power_rule = cases[i].rule;
				sb.headers = layout;
				assert_int_equal(PCacheSourceOf(&sb, cases[i].restarted),
								 was_killed ? cases[i].expected : PCACHE_SOURCE_SAVED);
				sb.headers.lock_held = 0;
				assert_int_equal(PCacheSourceOf(&sb, cases[i].restarted),
								 was_killed ? cases[i].without_layout : PCACHE_SOURCE_SAVED);
			}
		}
	}
}

static void
ExpectGenerationIsValid(uint64 generation)
{
	assert_true(PCacheSeqIsSealed(generation));
	assert_true(generation != 0);
	assert_true(generation != PCACHE_DESC_SAVED_SEQ);

	/*
	 * what is stored while an entry is replaced is odd, and free is odd as
	 * well
	 */
	assert_false(PCacheSeqIsSealed(generation + 1));
}

/*
 * The number in an entry stands for pg_control and for the ledger, and is none that
 * other entries have.
 */
static void
TestLedgerGeneration(void **state)
{
	ControlFileData control;
	PCacheSuperblock sb;
	uint64		generation;

	memset(&control, 0, sizeof(control));
	memset(&sb, 0, sizeof(sb));
	control.state = DB_IN_PRODUCTION;
	control.checkPoint = 0x1000;
	SeedRandom();
	sb.ledger_id = Random();
	generation = PCacheLedgerGeneration(&sb, &control);
	ExpectGenerationIsValid(generation);

	/* any byte of pg_control, but for its CRC */
	control.crc++;
	assert_true(PCacheLedgerGeneration(&sb, &control) == generation);
	for (size_t i = 0; i < offsetof(ControlFileData, crc); i++)
	{
		((char *) &control)[i] ^= 1;
		assert_true(PCacheLedgerGeneration(&sb, &control) != generation);
		ExpectGenerationIsValid(PCacheLedgerGeneration(&sb, &control));
		((char *) &control)[i] ^= 1;
	}
	assert_true(PCacheLedgerGeneration(&sb, &control) == generation);

	/* in archive recovery, any but how far replay has come, and when */
	control.state = DB_IN_ARCHIVE_RECOVERY;
	generation = PCacheLedgerGeneration(&sb, &control);
	for (size_t i = 0; i < offsetof(ControlFileData, crc); i++)
	{
#define IS_IN(member) \
		(i >= offsetof(ControlFileData, member) && \
		 i < offsetof(ControlFileData, member) + sizeof(control.member))
		bool		is_left_out = IS_IN(time) || IS_IN(minRecoveryPoint) || IS_IN(minRecoveryPointTLI);

		((char *) &control)[i] ^= 1;
		assert_int_equal(PCacheLedgerGeneration(&sb, &control) == generation, is_left_out);
		((char *) &control)[i] ^= 1;
	}

	/* any other ledger, but for the lowest bits, which make it even */
	for (int bit = 3; bit < 64; bit++)
	{
		sb.ledger_id ^= UINT64CONST(1) << bit;
		assert_true(PCacheLedgerGeneration(&sb, &control) != generation);
		ExpectGenerationIsValid(PCacheLedgerGeneration(&sb, &control));
		sb.ledger_id ^= UINT64CONST(1) << bit;
	}

	/* whatever comes out of the hash, above all 0 and the numbers next to it */
	for (uint64 n = 0; n < 1000; n++)
	{
		const uint64 hashes[] = {n, -n, UINT64CONST(1) << 63 ^ n, Random()};

		for (int i = 0; i < lengthof(hashes); i++)
		{
			sb.ledger_id = PCacheGenerationOf(&control) ^ hashes[i];
			ExpectGenerationIsValid(PCacheLedgerGeneration(&sb, &control));
		}
	}
}

/* Any byte counts, and no page has the sum that stands for none. */
static void
TestSums(void **state)
{
	char		page[BLCKSZ];
	uint64		sum;

	memset(page, 0, sizeof(page));
	if (!PCacheHasSums())
	{
		assert_true(PCacheSumOf(page) == 0);
		return;
	}
	for (int n = 0; n < 2; n++)
	{
		sum = PCacheSumOf(page);
		assert_true(sum != 0);
		assert_true(PCacheSumOf(page) == sum);
		for (int i = 0; i < BLCKSZ; i++)
		{
			page[i] ^= 1;
			assert_true(PCacheSumOf(page) != sum);
			page[i] ^= 1;
		}
		RandomBytes(page, sizeof(page));
	}
}

/* A file with blocks, behind as much as a pool has before them. */
static int
OpenBlocks(char **directory)
{
	int			fd;

	*directory = MakeTempDirectory("/tmp");
	fd = open(Join(*directory, "pool"), O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	return fd;
}

static void
CloseBlocks(int fd, char *directory)
{
	close(fd);
	RemoveTree(directory);
	free(directory);
}

static void
WriteAt(int fd, const void *data, size_t len, uint64 offset)
{
	assert_int_equal(pwrite(fd, data, len, offset), len);
}

/* An entry about a page, as the worker makes it. */
static PCacheDescriptor
MakeEntry(uint32 slot, const char *page)
{
	PCacheDescriptor entry = {.spc_oid = DEFAULTTABLESPACE_OID,.db_oid = 5,.rel_number = 16384,
		.fork_number = MAIN_FORKNUM,.block_number = slot,.slot = slot,.version = PCACHE_DESC_VERSION,
	.flags = PCACHE_DESC_PERMANENT,.usage_count = 3,.page_lsn = 0x1000};

	entry.sum = PCacheSumOf(page);
	entry.crc = BitwiseCrc32c((char *) &entry + 8, 52);
	entry.seq = GENERATION;
	return entry;
}

#define BLOCKS_OFFSET	MIB(2)

/* What PCacheCheckSums() makes of an entry of SLOT, if it is about this generation. */
static PCacheDescriptor
CheckedFor(uint64 generation, int fd, PCacheDescriptor entry)
{
	PCacheSuperblock sb = {.blocks_offset = BLOCKS_OFFSET};

	PCacheCheckSums(fd, &sb, generation, SLOT, 1, &entry);
	return entry;
}

static PCacheDescriptor
Checked(int fd, PCacheDescriptor entry)
{
	PCacheDescriptor checked = CheckedFor(GENERATION, fd, entry);
	PCacheDescriptor any = CheckedFor(0, fd, entry);

	assert_memory_equal(&any, &checked, sizeof(checked));
	return checked;
}

static void
ExpectFree(int fd, const PCacheDescriptor *entry, int why)
{
	PCacheDescriptor expected = {.seq = PCACHE_DESC_FREE_SEQ,.why_free = why};
	PCacheDescriptor checked = Checked(fd, *entry);

	assert_memory_equal(&checked, &expected, sizeof(checked));
}

static void
ExpectAsItWas(int fd, const PCacheDescriptor *entry)
{
	PCacheDescriptor checked = Checked(fd, *entry);

	assert_memory_equal(&checked, entry, sizeof(checked));
}

/* An entry with a sum stays if the page is there to the last byte. */
static void
TestCheckSum(void **state)
{
	const uint64 at = BLOCKS_OFFSET + SLOT * BLCKSZ;
	char	   *directory;
	char		page[BLCKSZ];
	char		older[BLCKSZ];
	PCacheSuperblock sb = {0};
	PCacheDescriptor entries[2];
	PCacheDescriptor entry;
	int			fd;

	NeedSums();
	fd = OpenBlocks(&directory);
	RandomBytes(page, sizeof(page));
	memcpy(older, page, sizeof(page));
	for (int line = 0; line < BLCKSZ / LINE; line++)
		older[line * LINE + Random() % LINE] ^= 1 << Random() % 8;
	WriteAt(fd, page, BLCKSZ, at);
	entry = MakeEntry(SLOT, page);
	ExpectAsItWas(fd, &entry);

	for (int i = 0; i < BLCKSZ; i++)
	{
		char		byte = page[i] ^ 1 << Random() % 8;

		WriteAt(fd, &byte, 1, at + i);
		ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
		WriteAt(fd, page + i, 1, at + i);
	}

	/* a cache line that was not flushed, or only one that was, or none */
	for (int line = 0; line < BLCKSZ / LINE; line++)
	{
		WriteAt(fd, older + line * LINE, LINE, at + line * LINE);
		ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
		WriteAt(fd, older, BLCKSZ, at);
		WriteAt(fd, page + line * LINE, LINE, at + line * LINE);
		ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
		WriteAt(fd, page, BLCKSZ, at);
	}
	WriteAt(fd, older, BLCKSZ, at);
	ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
	WriteAt(fd, page, BLCKSZ, at);
	ExpectAsItWas(fd, &entry);

	/* the page is there, in another slot */
	sb.blocks_offset = BLOCKS_OFFSET;
	for (int i = 0; i < 2; i++)
		entries[i] = MakeEntry(SLOT + i, page);
	PCacheCheckSums(fd, &sb, GENERATION, SLOT, 2, entries);
	assert_true(entries[0].seq == GENERATION);
	assert_int_equal(entries[1].why_free, PCACHE_DESC_WAS_LOST);

	/* of what is about another checkpoint, no page is read */
	WriteAt(fd, older, BLCKSZ, at);
	entry.seq = GENERATION + 8;
	*entries = CheckedFor(GENERATION, fd, entry);
	assert_memory_equal(entries, &entry, sizeof(entry));
	*entries = CheckedFor(0, fd, entry);
	assert_int_equal(entries[0].why_free, PCACHE_DESC_WAS_LOST);
	WriteAt(fd, page, BLCKSZ, at);
	*entries = CheckedFor(0, fd, entry);
	assert_memory_equal(entries, &entry, sizeof(entry));
	entry.seq = GENERATION;

	/* one that cannot be read: cut off by a byte, or not to be read at all */
	assert_int_equal(ftruncate(fd, at + BLCKSZ - 1), 0);
	ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
	assert_int_equal(ftruncate(fd, 0), 0);
	ExpectFree(fd, &entry, PCACHE_DESC_WAS_LOST);
	ExpectFree(-1, &entry, PCACHE_DESC_WAS_LOST);
	CloseBlocks(fd, directory);
}

/* Entries that are about nothing that can be asked of a page. */
static void
TestCheckOtherEntries(void **state)
{
	const uint64 at = BLOCKS_OFFSET + SLOT * BLCKSZ;
	char	   *directory;
	char		page[BLCKSZ];
	PCacheDescriptor good;
	PCacheDescriptor entry;
	int			fd = OpenBlocks(&directory);

	RandomBytes(page, sizeof(page));
	WriteAt(fd, page, BLCKSZ, at);
	good = MakeEntry(SLOT, page);

	/* one that was saved, with a sum and without */
	entry = good;
	entry.seq = PCACHE_DESC_SAVED_SEQ;
	ExpectFree(fd, &entry, 0);
	entry.sum = 0;
	PCacheDescriptorSetSealed(&entry);
	ExpectFree(fd, &entry, 0);
	/* one of the worker's always has a sum */
	entry.seq = GENERATION;
	ExpectFree(fd, &entry, 0);

	/* what is free is of another time, and so is the reason for it */
	for (int why = 0; why < 256; why++)
	{
		PCacheSetFreeBecause(&entry, why);
		assert_int_equal(entry.why_free, why);
		ExpectFree(fd, &entry, 0);
	}
	/* one that was being replaced */
	entry = good;
	entry.seq++;
	ExpectAsItWas(fd, &entry);
	assert_false(PCacheSeqIsSealed(Checked(fd, entry).seq));

	/* a damaged one is for the page gate */
	for (int i = sizeof(entry.seq); i < sizeof(entry); i++)
	{
		for (int bit = 0; bit < 8; bit++)
		{
			entry = good;
			((char *) &entry)[i] ^= 1 << bit;
			ExpectAsItWas(fd, &entry);
		}
	}
	entry = MakeEntry(SLOT + 1, page);
	ExpectAsItWas(fd, &entry);
	memset(&entry, 0, sizeof(entry));
	ExpectAsItWas(fd, &entry);
	CloseBlocks(fd, directory);
}

/* The first page of anything that has special space, and no other. */
static void
TestFirstOfIndex(void **state)
{
	static const uint16 specials[] = {0, SizeOfPageHeaderData, BLCKSZ / 2, BLCKSZ - 16, BLCKSZ - 8};
	PCacheDescriptor entry = {0};
	PageHeaderData page = {.pd_special = BLCKSZ};

	for (int fork = MAIN_FORKNUM; fork <= MAX_FORKNUM; fork++)
	{
		for (uint32 block = 0; block < 3; block++)
		{
			entry.fork_number = fork;
			entry.block_number = block;
			page.pd_special = BLCKSZ;
			assert_false(PCacheIsFirstOfIndex(&entry, &page));
			for (int i = 0; i < lengthof(specials); i++)
			{
				page.pd_special = specials[i];
				assert_int_equal(PCacheIsFirstOfIndex(&entry, &page),
								 fork == MAIN_FORKNUM && block == 0);
			}
		}
	}
}

/* Of a pool that a server of this host is using, in this boot. */
static PCacheSuperblock
MakeSuperblock(const ControlFileData *control)
{
	PCacheSuperblock sb;

	FillSuperblock(&sb, CAPACITY);
	sb.headers = layout;
	assert_true(PCacheSuperblockAdopt(&sb, control, PCACHE_FS_FSDAX, PERSISTENT_CACHE_ALWAYS,
									  CAPACITY));
	sb.state = PCACHE_STATE_DIRTY;
	sb.power_rule = PCACHE_POWER_LEDGER;
	sb.ledger_id = 77;
	return sb;
}

/* If nobody tells in which boot it was, on persistent memory it may be another one. */
static void
TestBoot(void **state)
{
	PCacheSuperblock sb = {0};
	uint8		now[PCACHE_UUID_LEN];
	uint8		other[PCACHE_UUID_LEN];
	uint8		unknown[PCACHE_UUID_LEN] = {0};

	assert_true(PCacheReadBootId(now));
	for (PCacheFsKind kind = PCACHE_FS_FILE; kind <= PCACHE_FS_FSDAX; kind++)
	{
		bool		is_memory = kind == PCACHE_FS_TMPFS || kind == PCACHE_FS_HUGETLBFS;

		sb.fs_kind = kind;
		assert_false(PCacheBootIsAnother(kind, now, now));
		assert_true(PCacheBootIsAnother(kind, now, unknown));
		assert_true(PCacheBootIsAnother(kind, unknown, now));
		assert_int_equal(PCacheBootIsAnother(kind, unknown, unknown), !is_memory);
		memcpy(sb.boot_id, now, PCACHE_UUID_LEN);
		assert_false(PCacheWasOtherBoot(&sb));
		for (int bit = 0; bit < 8 * PCACHE_UUID_LEN; bit++)
		{
			memcpy(other, now, PCACHE_UUID_LEN);
			other[bit / 8] ^= 1 << bit % 8;
			assert_true(PCacheBootIsAnother(kind, now, other));
			memcpy(sb.boot_id, other, PCACHE_UUID_LEN);
			assert_true(PCacheWasOtherBoot(&sb));
		}
	}
}

/* What the ledger says of a pool with a page in each slot. */
static void
TestReadLedger(void **state)
{
	char	   *directory;
	ControlFileData control = {0};
	PCacheSuperblock sb = MakeSuperblock(&control);
	PCacheGeometry g = PCacheComputeGeometry(CAPACITY, PCACHE_ALIGNMENT);
	PCacheDescriptor stored[CAPACITY];
	PCacheDescriptor entries[CAPACITY];
	static PGAlignedBlock pages[CAPACITY];
	char		header[64];
	PCachePageKey key = {DEFAULTTABLESPACE_OID, 5, 16384, MAIN_FORKNUM, 0};
	uint32		header_state = 0x83040000;
	int			fd;

	NeedSums();
	assert_false(PCacheWasOtherBoot(&sb));
	fd = OpenBlocks(&directory);
	for (uint32 slot = 0; slot < CAPACITY; slot++)
	{
		PageHeaderData *page = (PageHeaderData *) pages[slot].data;

		RandomBytes(pages[slot].data, BLCKSZ);
		page->pd_special = slot % 2 == 0 ? BLCKSZ : BLCKSZ - 16;
		stored[slot] = MakeEntry(slot, pages[slot].data);
		memset(header, 0, sizeof(header));
		/* in slots 0 to 3 the first page of something */
		key.rel_number = 16384 + slot;
		key.block_number = slot < 4 ? 0 : slot;
		memcpy(header + layout.tag, &key, sizeof(key));
		memcpy(header + layout.state, &header_state, sizeof(header_state));
		WriteAt(fd, header, sizeof(header), g.headers_offset + slot * sizeof(header));
		WriteAt(fd, &pages[slot], BLCKSZ, g.blocks_offset + slot * BLCKSZ);
	}
	PCacheDescriptorSetSealed(&stored[3]);
	PCacheSetFreeBecause(&stored[4], PCACHE_DESC_WAS_DIRTY);
	stored[5].sum++;
	stored[6].sum++;
	stored[6].crc = BitwiseCrc32c((char *) &stored[6] + 8, 52);
	stored[7] = stored[6];
	stored[7].slot = 7;
	stored[7].crc = BitwiseCrc32c((char *) &stored[7] + 8, 52);
	stored[7].seq += 8;
	WriteAt(fd, stored, sizeof(stored), PCACHE_DESCRIPTORS_OFFSET);

	/* power was lost */
	sb.boot_id[3] ^= 1;
	memset(entries, 0x55, sizeof(entries));
	assert_true(PCacheReadLedger(fd, &sb, GENERATION, 0, CAPACITY, entries));
	for (uint32 slot = 0; slot < CAPACITY; slot++)
	{
		PCacheDescriptor expected = stored[slot];

		if (slot == 3 || slot == 4)
			PCacheDescriptorSetFree(&expected);
		if (slot == 6)
			PCacheSetFreeBecause(&expected, PCACHE_DESC_WAS_LOST);
		assert_memory_equal(&entries[slot], &expected, sizeof(expected));
	}
	assert_true(PCacheReadLedger(fd, &sb, 0, 7, 1, entries));
	assert_int_equal(entries[0].why_free, PCACHE_DESC_WAS_LOST);
	/* each page is that of its slot, wherever reading begins */
	for (uint32 slot = 7; slot < CAPACITY; slot++)
	{
		assert_true(PCacheReadLedger(fd, &sb, GENERATION, slot, 1, entries));
		assert_memory_equal(entries, &stored[slot], sizeof(stored[slot]));
	}

	/* the CPU caches were saved: all but first pages of indexes */
	sb.power_rule = PCACHE_POWER_HEADERS;
	assert_true(PCacheReadLedger(fd, &sb, GENERATION, 0, CAPACITY, entries));
	for (uint32 slot = 0; slot < CAPACITY; slot++)
	{
		bool		is_first = slot < 4 && slot % 2 == 1;

		assert_int_equal(PCacheSeqIsSealed(entries[slot].seq), !is_first);
		assert_int_equal(entries[slot].why_free, is_first ? PCACHE_DESC_WAS_FIRST : 0);
		if (!is_first)
			assert_int_equal(entries[slot].rel_number, 16384 + slot);
	}

	/* processes were killed: headers, and first pages as well */
	sb.boot_id[3] ^= 1;
	for (int rule = PCACHE_POWER_COLD; rule <= PCACHE_POWER_HEADERS; rule++)
	{
		sb.power_rule = rule;
		assert_true(PCacheReadLedger(fd, &sb, GENERATION, 0, CAPACITY, entries));
		for (uint32 slot = 0; slot < CAPACITY; slot++)
		{
			assert_true(entries[slot].seq == PCACHE_DESC_SAVED_SEQ);
			assert_int_equal(entries[slot].rel_number, 16384 + slot);
			assert_true(entries[slot].page_lsn ==
						PageXLogRecPtrGet(((PageHeaderData *) &pages[slot])->pd_lsn));
		}
	}

	/*
	 * once it is saved, or if nobody says how it was, it is what the ledger
	 * has
	 */
	sb.state = PCACHE_STATE_CLEAN;
	sb.boot_id[3] ^= 1;
	assert_true(PCacheReadLedger(fd, &sb, GENERATION, 0, CAPACITY, entries));
	assert_memory_equal(entries, stored, sizeof(stored));
	assert_true(PCacheReadLedger(fd, NULL, GENERATION, 0, CAPACITY, entries));
	assert_memory_equal(entries, stored, sizeof(stored));

	/* what cannot be read is said, and drops the page */
	sb.state = PCACHE_STATE_DIRTY;
	sb.power_rule = PCACHE_POWER_LEDGER;
	assert_int_equal(ftruncate(fd, PCACHE_DESCRIPTORS_OFFSET + 9 * sizeof(PCacheDescriptor)), 0);
	assert_false(PCacheReadLedger(fd, &sb, GENERATION, 0, CAPACITY, entries));
	assert_int_equal(entries[8].why_free, PCACHE_DESC_WAS_LOST);
	assert_false(PCacheDescriptorIsIntact(&entries[9], 9));
	CloseBlocks(fd, directory);
}

/* All that the pool gate asks of a pool whose server lost power. */
typedef struct World
{
	PCacheSuperblock sb;
	ControlFileData control;
	PCacheMediaReport media;
	PCacheGateFacts facts;
} World;

/* There is no WAL, so no witness matches. */
static void
InitWorld(World *w)
{
	memset(w, 0, sizeof(*w));
	w->control.system_identifier = 42;
	w->control.pg_control_version = PG_CONTROL_VERSION;
	w->control.catalog_version_no = 7;
	w->control.state = DB_IN_PRODUCTION;
	w->control.checkPoint = 0x5000028;
	w->control.checkPointCopy.redo = 0x5000000;
	w->control.data_checksum_version = 1;
	w->control.xlog_seg_size = MIB(1);
	w->control.wal_level = 1;
	w->sb = MakeSuperblock(&w->control);
	w->media.blocks = PCACHE_MEDIA_CLEAN;
	w->media.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
	w->media.dimms_state = w->sb.dimms_state = PCACHE_MEDIA_CLEAN;
	w->media.n_dimms = w->sb.n_dimms = 1;
	strcpy(w->sb.dimms[0].id, "8089-a2-1837-00000bb3");
	strcpy(w->media.dimms[0].id, "8089-a2-1837-00000bb3");
	w->sb.dimms[0].unsafe_shutdowns = w->media.dimms[0].unsafe_shutdowns = 5;

	w->facts.control = &w->control;
	w->facts.file_size = w->sb.pool_size;
	w->facts.media = &w->media;
	memcpy(w->facts.boot_id, w->sb.boot_id, PCACHE_UUID_LEN);
	w->facts.boot_id[15] ^= 1;
	w->facts.pool_device = w->facts.sighting.pool_device = 3;
	w->facts.pool_inode = w->facts.sighting.pool_inode = 4;
	w->facts.sighting.number = 1;
	PCacheSightingMake(&w->facts.sighting, &w->control, (int64) time(NULL) * PCACHE_NSEC);
}

/* The same if the platform saves the CPU caches. */
static void
InitHeadersWorld(World *w)
{
	InitWorld(w);
	w->sb.power_rule = PCACHE_POWER_HEADERS;
	w->media.domain = PCACHE_DOMAIN_CPU_CACHE;
}

/* message may be any part of it, or "" */
static void
Expect(const World *w, PCacheRefusal expected, const char *message)
{
	PCacheVerdict verdict = PCachePoolGate(&w->sb, &w->facts);

	if (verdict.refusal != expected)
		fail_msg("\"%s\" (%s) instead of \"%s\"", PCacheRefusalName(verdict.refusal),
				 verdict.why.message, PCacheRefusalName(expected));
	assert_contains(verdict.why.message, message);
	assert_int_equal(expected == PCACHE_WARM, verdict.why.message[0] == '\0');
}

#define EXPECT(expected, message, ...) \
	do { \
		InitWorld(&w); \
		__VA_ARGS__; \
		Expect(&w, expected, message); \
	} while (0)

#define EXPECT_HEADERS(expected, message, ...) \
	do { \
		InitHeadersWorld(&w); \
		__VA_ARGS__; \
		Expect(&w, expected, message); \
	} while (0)

/* What is asked before anything is believed, in turn. */
static void
TestPowerRule(void **state)
{
	World		w;

	EXPECT(PCACHE_WARM, "", (void) 0);
	EXPECT_HEADERS(PCACHE_WARM, "", (void) 0);

	/* what its server has noted */
	EXPECT(PCACHE_COLD_POWER, "the server was not shut down cleanly",
		   w.sb.power_rule = PCACHE_POWER_COLD);
	EXPECT(PCACHE_COLD_POWER, "(hint bits are not logged)", w.sb.power_rule = PCACHE_POWER_COLD,
		   w.control.data_checksum_version = w.sb.data_checksum_version = 0);
	EXPECT(PCACHE_COLD_POWER, "(\"wal_level\" is \"minimal\")", w.sb.power_rule = PCACHE_POWER_COLD,
		   w.control.wal_level = 0);
	EXPECT(PCACHE_COLD_POWER, "(the pool is in memory", w.sb.power_rule = PCACHE_POWER_COLD,
		   w.sb.fs_kind = PCACHE_FS_TMPFS);
	EXPECT(PCACHE_COLD_DIRTY, "", w.sb.mode = PERSISTENT_CACHE_PLANNED_RESTART);
	EXPECT(PCACHE_COLD_POWER, "\"fsync\" was off", w.facts.not_synced = true);
	EXPECT_HEADERS(PCACHE_COLD_POWER, "\"fsync\" was off", w.facts.not_synced = true);

	/* hints are logged if there is one of the two */
	EXPECT(PCACHE_COLD_POWER, "hint bits were not logged",
		   w.control.data_checksum_version = w.sb.data_checksum_version = 0);
	EXPECT_HEADERS(PCACHE_COLD_POWER, "hint bits were not logged",
				   w.control.data_checksum_version = w.sb.data_checksum_version = 0);
	EXPECT(PCACHE_WARM, "", w.control.data_checksum_version = 0, w.control.wal_log_hints = true);
	EXPECT(PCACHE_WARM, "", w.control.wal_log_hints = true);

	/* what the platform says now */
	EXPECT_HEADERS(PCACHE_COLD_POWER, "does not say any more that it saves the CPU caches",
				   w.media.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER);
	EXPECT_HEADERS(PCACHE_COLD_POWER, "does not say any more",
				   w.media.domain = PCACHE_DOMAIN_UNKNOWN);
	EXPECT_HEADERS(PCACHE_COLD_POWER, "does not say any more", w.media.domain = PCACHE_DOMAIN_NONE);
	EXPECT(PCACHE_WARM, "", w.media.domain = PCACHE_DOMAIN_CPU_CACHE);
	EXPECT(PCACHE_WARM, "", w.media.domain = PCACHE_DOMAIN_UNKNOWN);
	EXPECT(PCACHE_COLD_MEDIA_UNKNOWN, "it is not known whether the platform saves",
		   w.media.domain = PCACHE_DOMAIN_UNKNOWN, w.facts.cold_on_media_unknown = true);
	EXPECT(PCACHE_COLD_POWER, "does not save what was flushed", w.media.domain = PCACHE_DOMAIN_NONE);

	/* the memory */
	for (PCacheFsKind kind = PCACHE_FS_FILE; kind < PCACHE_FS_FSDAX; kind++)
	{
		EXPECT(PCACHE_COLD_POWER, "not on persistent memory", w.sb.fs_kind = kind);
		EXPECT_HEADERS(PCACHE_COLD_POWER, "not on persistent memory", w.sb.fs_kind = kind);
	}
	EXPECT(PCACHE_COLD_POWER, "not shut down safely", w.media.dimms[0].unsafe_shutdowns++);
	EXPECT_HEADERS(PCACHE_COLD_POWER, "not shut down safely", w.media.dimms[0].unsafe_shutdowns++);
	EXPECT(PCACHE_COLD_POWER, "", w.media.dimms[0].id[20] = '4');
	EXPECT(PCACHE_WARM, "", w.media.dimms_state = PCACHE_MEDIA_UNKNOWN);
	EXPECT(PCACHE_COLD_MEDIA_UNKNOWN, "whether the DIMMs were shut down safely",
		   w.media.dimms_state = PCACHE_MEDIA_UNKNOWN, w.facts.cold_on_media_unknown = true);

	/* and what is asked of each pool */
	EXPECT(PCACHE_COLD_SUSPECT, "", w.facts.suspect.died = PCacheSuspectDeath(11, 77));
	EXPECT(PCACHE_COLD_SUSPECT, "", w.facts.read_errors_ignored = true);
	EXPECT(PCACHE_COLD_BACKUP_LABEL, "", w.facts.backup_label = true);
	EXPECT(PCACHE_COLD_RECOVERY_TARGET, "", w.facts.recovery_target = true);
	EXPECT(PCACHE_COLD_SYSTEM_IDENTIFIER, "", w.sb.system_identifier++);
	EXPECT(PCACHE_COLD_TIMELINE, "", w.facts.rolled_back_at = w.control.checkPointCopy.redo);
}

/*
 * What was seen of the cluster.  pg_control may be older than that, or newer, and WAL
 * that was not flushed is gone; each entry with a sum says for itself what it is about.
 */
static void
TestSeen(void **state)
{
	World		w;

	EXPECT(PCACHE_WARM, "", w.control.checkPoint++, w.control.checkPointCopy.redo++);
	EXPECT(PCACHE_WARM, "", w.control.time++);
	EXPECT(PCACHE_WARM, "", w.facts.sighting.generation++);
	EXPECT(PCACHE_WARM, "", w.facts.sighting.pool_device++, w.facts.sighting.pool_inode++);
	EXPECT(PCACHE_WARM, "", w.sb.headers.lock_held = 0);
	/* what the page gate makes of it, see TestUnchangedSince() */
	EXPECT(PCACHE_WARM, "", memset(&w.facts.sighting, 0, sizeof(w.facts.sighting)));

	/*
	 * hints of a hot standby may be about what is not replayed again; what
	 * was last seen may not have been synced
	 */
	EXPECT(PCACHE_WARM, "", w.control.state = DB_IN_ARCHIVE_RECOVERY,
		   w.control.minRecoveryPoint = w.facts.sighting.synced_recovery_point = 0x6000000,
		   w.facts.sighting.min_recovery_point = 0x7000000);
	EXPECT(PCACHE_COLD_CONTROL_CHANGED, "recovery has to reach 0/5FFFFFF only",
		   w.control.state = DB_IN_ARCHIVE_RECOVERY,
		   w.facts.sighting.synced_recovery_point = 0x6000000,
		   w.facts.sighting.min_recovery_point = 0x7000000,
		   w.control.minRecoveryPoint = 0x5FFFFFF);

	/*
	 * headers are about what was last seen, or synced; the pool's file is
	 * another one anyway
	 */
	EXPECT_HEADERS(PCACHE_COLD_CHECKPOINT, "the pool knows of checkpoint",
				   w.control.checkPoint++);
	EXPECT_HEADERS(PCACHE_COLD_CONTROL_CHANGED, "not what the pool's server last saw",
				   w.control.time++);
	EXPECT_HEADERS(PCACHE_COLD_CONTROL_CHANGED, "", w.facts.sighting.generation++);
	EXPECT_HEADERS(PCACHE_WARM, "", w.facts.sighting.synced_generation = w.facts.sighting.generation,
				   w.facts.sighting.generation++);
	/* but for one from before anybody changed a page */
	EXPECT_HEADERS(PCACHE_COLD_CONTROL_CHANGED, "", w.control.state = DB_SHUTDOWNED,
				   w.facts.sighting.synced_generation = PCacheGenerationOf(&w.control));
	EXPECT_HEADERS(PCACHE_COLD_CONTROL_CHANGED, "", w.control.state = DB_SHUTDOWNED_IN_RECOVERY,
				   w.facts.sighting.synced_generation = PCacheGenerationOf(&w.control));
	EXPECT_HEADERS(PCACHE_COLD_CHECKPOINT, "",
				   memset(&w.facts.sighting, 0, sizeof(w.facts.sighting)));
	EXPECT_HEADERS(PCACHE_WARM, "", w.facts.sighting.pool_device++, w.facts.sighting.pool_inode++);
	EXPECT_HEADERS(PCACHE_WARM, "", w.facts.sighting.min_recovery_point = 1);
	EXPECT_HEADERS(PCACHE_COLD_CONTROL_CHANGED, "recovery has to reach",
				   w.facts.sighting.synced_recovery_point = 1);
	EXPECT_HEADERS(PCACHE_COLD_VERSION, "how its buffer headers look", w.sb.headers.lock_held = 0);

	/* if processes were killed, all of it counts */
	EXPECT(PCACHE_COLD_WATERMARK, "", w.facts.boot_id[15] ^= 1);
	EXPECT(PCACHE_COLD_SUPERBLOCK, "a copy", w.facts.boot_id[15] ^= 1,
		   w.facts.sighting.pool_inode++);
	EXPECT(PCACHE_COLD_CHECKPOINT, "", w.facts.boot_id[15] ^= 1, w.control.checkPoint++);
	EXPECT(PCACHE_COLD_CONTROL_CHANGED, "", w.facts.boot_id[15] ^= 1,
		   w.facts.sighting.synced_generation = w.facts.sighting.generation,
		   w.facts.sighting.generation++);
	EXPECT(PCACHE_COLD_CONTROL_CHANGED, "recovery has to reach", w.facts.boot_id[15] ^= 1,
		   w.facts.sighting.min_recovery_point = 1);
	/* if the kernel does not tell its boots, power may have been lost */
	EXPECT(PCACHE_WARM, "", memset(w.facts.boot_id, 0, PCACHE_UUID_LEN),
		   memset(w.sb.boot_id, 0, PCACHE_UUID_LEN));
	EXPECT(PCACHE_COLD_POWER, "", w.sb.power_rule = PCACHE_POWER_COLD,
		   memset(w.facts.boot_id, 0, PCACHE_UUID_LEN), memset(w.sb.boot_id, 0, PCACHE_UUID_LEN));
}

/* What was on disk for certain: what pg_control said before it was written again. */
static void
TestSynced(void **state)
{
	ControlFileData control = {.state = DB_IN_ARCHIVE_RECOVERY,.minRecoveryPoint = 100};
	PCacheSighting seen = {0};
	uint64		first;

	PCacheSightingMake(&seen, &control, 1);
	first = seen.generation;
	assert_true(seen.synced_generation == 0);
	assert_true(seen.synced_recovery_point == 0);

	/* seen again, as it is */
	PCacheSightingMake(&seen, &control, 2);
	assert_true(seen.synced_generation == 0);
	assert_true(seen.synced_recovery_point == 0);

	/* replay has gone on, and the rest is as it was */
	control.minRecoveryPoint = 200;
	PCacheSightingMake(&seen, &control, 3);
	assert_true(seen.generation == first);
	assert_true(seen.synced_generation == 0);
	assert_true(seen.min_recovery_point == 200);
	assert_true(seen.synced_recovery_point == 100);

	/* a restartpoint */
	control.checkPoint++;
	PCacheSightingMake(&seen, &control, 4);
	assert_true(seen.synced_generation == first);
	assert_true(seen.synced_recovery_point == 100);

	/* the standby is promoted: nothing has to be reached any more */
	control.state = DB_IN_PRODUCTION;
	control.minRecoveryPoint = 0;
	PCacheSightingMake(&seen, &control, 5);
	assert_true(seen.synced_recovery_point == 0);
}

/* A start has found what is still there: from here on the pool is one that was saved. */
static void
SetSaved(World *w)
{
	memcpy(w->sb.boot_id, w->facts.boot_id, PCACHE_UUID_LEN);
	PCacheSuperblockSetClean(&w->sb, &w->control, 3);
}

static void
TestSaved(void **state)
{
	World		w;

	for (int rule = PCACHE_POWER_COLD; rule <= PCACHE_POWER_HEADERS; rule++)
	{
		EXPECT(PCACHE_WARM, "", w.sb.power_rule = rule, SetSaved(&w));
		EXPECT(PCACHE_COLD_CHECKPOINT, "", w.sb.power_rule = rule, SetSaved(&w),
			   w.control.checkPoint++);
		EXPECT(PCACHE_COLD_CONTROL_CHANGED, "", w.sb.power_rule = rule, SetSaved(&w),
			   w.control.crc++);
		/* power is lost once more, before anybody has used it */
		EXPECT(PCACHE_COLD_POWER, "since the pool of a killed server was judged",
			   w.sb.power_rule = rule, SetSaved(&w), w.facts.boot_id[7] ^= 1);
		/* which does not matter after a clean stop */
		EXPECT(PCACHE_WARM, "", w.sb.power_rule = rule, w.control.state = DB_SHUTDOWNED,
			   SetSaved(&w), w.facts.boot_id[7] ^= 1);
		EXPECT(PCACHE_WARM, "", w.sb.power_rule = rule,
			   w.control.state = DB_SHUTDOWNED_IN_RECOVERY,
			   SetSaved(&w), w.facts.boot_id[7] ^= 1);
	}
}

/* What the page gate goes by. */
static PCachePageFacts
FactsOf(const World *w)
{
	PCachePageFacts facts = {.media = &w->media,.blocks_offset = w->sb.blocks_offset,
	.file_size = w->sb.pool_size};

	PCacheSetPageFacts(&facts, &w->sb, &w->facts);
	return facts;
}

static void
TestPageFacts(void **state)
{
	World		w;
	PCachePageFacts facts;

	InitWorld(&w);
	facts = FactsOf(&w);
	assert_false(facts.all_written);
	assert_true(facts.sums_only);
	assert_true(facts.redo == w.control.checkPointCopy.redo);
	assert_true(facts.generation == PCacheLedgerGeneration(&w.sb, &w.control));
	/* it is that of pg_control as it is, and not as it was seen */
	w.control.checkPoint++;
	facts.generation ^= FactsOf(&w).generation;
	assert_true(facts.generation != 0);

	/* entries that were saved count as soon as they are about this pg_control */
	PCacheSuperblockSetClean(&w.sb, &w.control, 3);
	assert_false(FactsOf(&w).sums_only);
	assert_true(FactsOf(&w).generation == PCacheLedgerGeneration(&w.sb, &w.control));
	InitWorld(&w);
	w.facts.boot_id[15] ^= 1;
	assert_false(FactsOf(&w).sums_only);
	InitHeadersWorld(&w);
	assert_false(FactsOf(&w).sums_only);
}

/* Since when must nobody have changed a file?  In another boot the clock is another one. */
static void
TestUnchangedSince(void **state)
{
	World		w;
	PCacheSuperblock saved;
	PCacheSighting *seen = &w.facts.sighting;
	const int64 now = time(NULL);

	InitWorld(&w);
	seen->seen_at = (now - 100) * PCACHE_NSEC + 5;
	assert_true(FactsOf(&w).unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	/* it began before the server's end, so the clock was set back */
	seen->clock_offset -= 1000 * PCACHE_NSEC;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	seen->clock_offset += 2000 * PCACHE_NSEC;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	seen->seen_at = PCacheClockOffset() - 100 * PCACHE_NSEC;
	assert_true(FactsOf(&w).unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	/* it is behind, so all files count as changed */
	seen->seen_at = (now + 100) * PCACHE_NSEC;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	InitHeadersWorld(&w);
	seen->seen_at = (now + 100) * PCACHE_NSEC;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	/* likewise if nothing was seen */
	memset(seen, 0, sizeof(*seen));
	assert_true(FactsOf(&w).unchanged_since <= PCACHE_SIGHTING_TOLERANCE);
	assert_true(FactsOf(&w).unchanged_since > 0);

	/* in the same boot, it is asked whether the clock was set */
	InitWorld(&w);
	w.facts.boot_id[15] ^= 1;
	assert_true(FactsOf(&w).unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	seen->clock_offset += 2 * PCACHE_SIGHTING_TOLERANCE;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);

	/* also when it is saved, as if in this boot */
	InitWorld(&w);
	w.sb.clock_offset = PCacheLeastClockOffset(&w.sb, &w.facts);
	w.sb.saved_at = seen->seen_at / PCACHE_NSEC;
	SetSaved(&w);
	assert_true(FactsOf(&w).unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	w.sb.clock_offset += 2 * PCACHE_SIGHTING_TOLERANCE;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	assert_false(FactsOf(&w).only_written);

	/*
	 * when that was before this boot, the other one may have had a clock that
	 * was ahead
	 */
	InitWorld(&w);
	seen->seen_at = PCacheClockOffset() - 100 * PCACHE_NSEC;
	seen->clock_offset += 1000 * PCACHE_NSEC;
	w.sb.clock_offset = PCacheLeastClockOffset(&w.sb, &w.facts);
	w.sb.saved_at = seen->seen_at / PCACHE_NSEC;
	SetSaved(&w);
	assert_true(FactsOf(&w).unchanged_since == seen->seen_at + PCACHE_SIGHTING_TOLERANCE);
	w.sb.saved_at = now + 100;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);

	/* after a clean stop, the end of the second in which the pool was saved */
	w.control.state = DB_SHUTDOWNED;
	w.sb.saved_at = 1000;
	assert_true(FactsOf(&w).unchanged_since == 1001 * PCACHE_NSEC);
	assert_true(FactsOf(&w).only_written);
	w.control.state = DB_SHUTDOWNED_IN_RECOVERY;
	assert_true(FactsOf(&w).unchanged_since == 1001 * PCACHE_NSEC);
	assert_true(FactsOf(&w).only_written);

	/*
	 * it has not saved the pool, but was killed after the last checkpoint of
	 * recovery
	 */
	w.sb.state = PCACHE_STATE_DIRTY;
	seen->seen_at = (now - 100) * PCACHE_NSEC + 5;
	seen->clock_offset = PCacheClockOffset();
	assert_true(FactsOf(&w).unchanged_since == (now - 99) * PCACHE_NSEC);
	w.sb.state = PCACHE_STATE_CLEAN;
	/* no time at all */
	w.sb.saved_at = 0;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	w.sb.saved_at = -1;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	w.sb.saved_at = PG_INT64_MAX;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	/* the clock is behind */
	w.sb.saved_at = now + 100;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	/* it was set back */
	w.sb.saved_at = 1000;
	w.sb.clock_offset = PCacheClockOffset();
	assert_true(FactsOf(&w).unchanged_since == 1001 * PCACHE_NSEC);
	w.sb.clock_offset += 2 * PCACHE_SIGHTING_TOLERANCE;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	/* which in another boot shows by when it began */
	w.facts.boot_id[15] ^= 1;
	assert_true(FactsOf(&w).unchanged_since == 1001 * PCACHE_NSEC);
	w.sb.saved_at = now - 100;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);

	/*
	 * likewise for the next start, once a start has taken up the pool, and
	 * ended
	 */
	w.sb.clock_offset = PCacheLeastClockOffset(&w.sb, &w.facts);
	memcpy(w.sb.boot_id, w.facts.boot_id, PCACHE_UUID_LEN);
	assert_int_equal(FactsOf(&w).unchanged_since, 1);

	/* an image of another boot, loaded while the clock is behind, and right */
	saved = w.sb;
	saved.boot_id[0] ^= 1;
	saved.saved_at = now + 100;
	PCacheSuperblockBecome(&w.sb, &saved);
	assert_true(w.sb.clock_offset == (now + 100) * PCACHE_NSEC);
	w.sb.saved_at = now - 100;
	assert_int_equal(FactsOf(&w).unchanged_since, 1);
	saved.saved_at = now - 100;
	saved.boot_id[0] ^= 3;
	PCacheSuperblockBecome(&w.sb, &saved);
	assert_true(FactsOf(&w).unchanged_since == (now - 99) * PCACHE_NSEC);
}

/* The gate's answer about an entry of SLOT, with the CRC that belongs to it. */
static PCachePageVerdict
JudgeSlot(const World *w, PCacheDescriptor entry)
{
	PCachePageFacts facts = FactsOf(w);
	PCachePageVerdict verdict;

	entry.crc = BitwiseCrc32c((char *) &entry + 8, 52);
	facts.drop_unlogged = true;
	facts.sizes = PCacheRelSizesCreate(facts.unchanged_since, facts.only_written);
	verdict = PCachePageGate(&entry, SLOT, &facts);
	PCacheRelSizesFree(facts.sizes);
	return verdict;
}

/* Pages, in a cluster with one relation. */
static void
TestPages(void **state)
{
	static char zeros[10 * BLCKSZ];
	char	   *directory = MakeTempDirectory("/tmp");
	struct timespec now;
	World		w;
	PCacheDescriptor entry = MakeEntry(SLOT, zeros);
	PCacheDescriptor other;

	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("base", 0700), 0);
	assert_int_equal(mkdir("base/5", 0700), 0);
	WriteFile("base/5/16384", zeros, sizeof(zeros));
	InitWorld(&w);
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
	w.facts.sighting.seen_at = now.tv_sec * PCACHE_NSEC + now.tv_nsec;

	entry.seq = PCacheLedgerGeneration(&w.sb, &w.control);
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_KEPT);
	other = entry;
	other.page_lsn = w.control.checkPointCopy.redo;
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_YOUNGER);
	other = entry;
	other.seq = PCACHE_DESC_SAVED_SEQ;
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_GENERATION);
	PCacheSetFreeBecause(&other, PCACHE_DESC_WAS_LOST);
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_LOST);
	PCacheSetFreeBecause(&other, PCACHE_DESC_WAS_FIRST);
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_FIRST);

	/* another checkpoint, another ledger */
	w.control.checkPoint++;
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_GENERATION);
	w.control.checkPoint--;
	w.sb.ledger_id ^= 8;
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_GENERATION);
	w.sb.ledger_id ^= 8;
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_KEPT);

	/* once it is saved, both kinds are about this start */
	w.sb.saved_at = now.tv_sec;
	w.sb.clock_offset = PCacheLeastClockOffset(&w.sb, &w.facts);
	PCacheSuperblockSetClean(&w.sb, &w.control, 3);
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_KEPT);
	other = entry;
	other.seq = PCACHE_DESC_SAVED_SEQ;
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_KEPT);
	other.seq = entry.seq ^ 8;
	assert_int_equal(JudgeSlot(&w, other), PCACHE_PAGE_GENERATION);
	w.sb.state = PCACHE_STATE_DIRTY;

	/*
	 * the file was changed after the server was last seen, or the clock is
	 * behind
	 */
	w.facts.sighting.seen_at -= 10 * PCACHE_NSEC;
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_FILE_CHANGED);
	w.facts.sighting.seen_at += 100 * PCACHE_NSEC;
	assert_int_equal(JudgeSlot(&w, entry), PCACHE_PAGE_FILE_CHANGED);

	assert_int_equal(chdir("/"), 0);
	RemoveTree(directory);
	free(directory);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestSource),
		cmocka_unit_test(TestLedgerGeneration),
		cmocka_unit_test(TestSums),
		cmocka_unit_test(TestCheckSum),
		cmocka_unit_test(TestCheckOtherEntries),
		cmocka_unit_test(TestFirstOfIndex),
		cmocka_unit_test(TestBoot),
		cmocka_unit_test(TestReadLedger),
		cmocka_unit_test(TestPowerRule),
		cmocka_unit_test(TestSeen),
		cmocka_unit_test(TestSynced),
		cmocka_unit_test(TestSaved),
		cmocka_unit_test(TestPageFacts),
		cmocka_unit_test(TestUnchangedSince),
		cmocka_unit_test(TestPages),
	};

	return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
