/*-------------------------------------------------------------------------
 *
 * test_gate.c
 *	  The gates for pools and for pages: a baseline that is kept, and each
 *	  fault that must not be.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_gate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/bufpage.h"
#include "storage/pcache_pool.h"

#include "unit.h"

#include "catalog/pg_tablespace_d.h"
#include "storage/block.h"

/* Blocks and descriptors fill the file, so that no other number fits. */
#define CAPACITY		1024

/* All that a pool gate sees. */
typedef struct World
{
	PCacheSuperblock sb;
	ControlFileData control;
	PCacheMediaReport media;
	PCacheGateFacts facts;
} World;

static uint64 refusals_seen;	/* bitmap of PCacheRefusal */
static uint64 page_verdicts_seen;

StaticAssertDecl(PCACHE_NUM_REFUSALS <= 64, "bitmap");

static void
InitWorld(World *w)
{
	memset(w, 0, sizeof(*w));
	FillSuperblock(&w->sb, CAPACITY);

	w->control.system_identifier = w->sb.system_identifier;
	w->control.pg_control_version = PG_CONTROL_VERSION;
	w->control.catalog_version_no = w->sb.catalog_version;
	w->control.state = DB_SHUTDOWNED;
	w->control.time = 1700000500;
	w->control.checkPoint = UINT64CONST(0x5000028);
	w->control.checkPointCopy.redo = UINT64CONST(0x5000028);
	w->control.checkPointCopy.ThisTimeLineID = 3;
	w->control.checkPointCopy.PrevTimeLineID = 3;
	w->control.minRecoveryPoint = 0;
	w->control.minRecoveryPointTLI = 0;
	w->control.data_checksum_version = 1;
	w->control.crc = BitwiseCrc32c(&w->control, offsetof(ControlFileData, crc));

	w->sb.control_state = DB_SHUTDOWNED;
	w->sb.saved.location = w->control.checkPoint;
	w->sb.saved.redo = w->control.checkPointCopy.redo;
	w->sb.saved.timeline = 3;
	w->sb.saved.control_crc = w->control.crc;
	w->sb.data_checksum_version = 1;
	PCacheSuperblockSetCrc(&w->sb);

	w->media.blocks = PCACHE_MEDIA_CLEAN;
	w->facts.control = &w->control;
	w->facts.file_size = w->sb.pool_size;
	w->facts.media = &w->media;
}

/* The verdict, which must be well-formed. */
static PCacheRefusal
JudgeWorld(const World *w)
{
	PCacheVerdict verdict;

	memset(&verdict, 0x55, sizeof(verdict));
	verdict = PCachePoolGate(&w->sb, &w->facts);
	assert_true(verdict.refusal >= 0 && verdict.refusal < PCACHE_NUM_REFUSALS);
	assert_non_null(memchr(verdict.why.message, '\0', sizeof(verdict.why.message)));
	assert_true((verdict.refusal == PCACHE_WARM) == (verdict.why.message[0] == '\0'));
	refusals_seen |= UINT64CONST(1) << verdict.refusal;
	return verdict.refusal;
}

static void
Expect(const World *w, PCacheRefusal expected, const char *what)
{
	PCacheRefusal got = JudgeWorld(w);

	if (got != expected)
		fail_msg("%s: \"%s\" instead of \"%s\"", what,
				 PCacheRefusalName(got), PCacheRefusalName(expected));
}

static void
TestWarm(void **state)
{
	World		w;

	InitWorld(&w);
	Expect(&w, PCACHE_WARM, "primary");

	/* a standby, stopped cleanly */
	w.control.state = DB_SHUTDOWNED_IN_RECOVERY;
	w.control.minRecoveryPoint = UINT64CONST(0x6000000);
	w.control.minRecoveryPointTLI = 3;
	w.sb.control_state = DB_SHUTDOWNED_IN_RECOVERY;
	w.sb.min_recovery_point = UINT64CONST(0x6000000);
	w.sb.min_recovery_point_timeline = 3;
	Expect(&w, PCACHE_WARM, "standby");

	/* a pool of which only a part was used; a file larger than it must be */
	InitWorld(&w);
	for (uint64 slots_used = 0; slots_used <= CAPACITY; slots_used++)
	{
		w.sb.slots_used = slots_used;
		Expect(&w, PCACHE_WARM, "slots_used");
	}
	w.sb.pool_size = GIB(1);
	w.facts.file_size = GIB(1);
	Expect(&w, PCACHE_WARM, "larger file");

	/* bad blocks are the page gate's, and unknown ones may be put up with */
	InitWorld(&w);
	w.media.blocks = PCACHE_MEDIA_BAD;
	Expect(&w, PCACHE_WARM, "bad blocks");
	w.facts.cold_on_media_unknown = true;
	Expect(&w, PCACHE_WARM, "bad blocks");
	w.media.blocks = PCACHE_MEDIA_CLEAN;
	Expect(&w, PCACHE_WARM, "clean media");
	w.media.blocks = PCACHE_MEDIA_UNKNOWN;
	w.facts.cold_on_media_unknown = false;
	Expect(&w, PCACHE_WARM, "unknown media");
}

typedef struct FieldCase
{
	const char *name;
	size_t		offset;
	size_t		size;
	PCacheRefusal expected;
} FieldCase;

#define SB(member, expected) \
	{#member, offsetof(PCacheSuperblock, member), \
		sizeof(((PCacheSuperblock *) NULL)->member), expected}
#define CONTROL(member, expected) \
	{#member, offsetof(ControlFileData, member), \
		sizeof(((ControlFileData *) NULL)->member), expected}

/* For these another value is not always a fault; they have tests below. */
#define ELSEWHERE	PCACHE_NUM_REFUSALS

/*
 * Each field of the superblock changed, one bit at a time and all at once.
 * What is not asked for (PCACHE_WARM) is listed too, so that a new field can't
 * be forgotten.
 */
static void
TestSuperblockFields(void **state)
{
	static const FieldCase cases[] = {
		SB(magic, PCACHE_WARM), /* PCacheSuperblockChoose() asks for it */
		SB(format_version, PCACHE_COLD_VERSION),
		SB(superblock_size, PCACHE_COLD_GEOMETRY),
		SB(pool_uuid, PCACHE_WARM),
		SB(system_identifier, PCACHE_COLD_SYSTEM_IDENTIFIER),
		SB(pool_size, ELSEWHERE),	/* TestOtherFacts() */
		SB(created_at, PCACHE_WARM),
		SB(pg_major, PCACHE_COLD_VERSION),
		SB(byte_order, PCACHE_WARM),	/* likewise */
		SB(block_size, PCACHE_COLD_GEOMETRY),
		SB(descriptor_size, PCACHE_COLD_GEOMETRY),
		SB(blocks_per_segment, PCACHE_COLD_GEOMETRY),
		SB(pg_control_version, PCACHE_COLD_VERSION),
		SB(catalog_version, PCACHE_COLD_VERSION),
		SB(fs_kind, PCACHE_WARM),
		SB(capacity, PCACHE_COLD_GEOMETRY),
		SB(descriptors_offset, PCACHE_COLD_GEOMETRY),
		SB(blocks_offset, PCACHE_COLD_GEOMETRY),
		SB(slots_used, ELSEWHERE),
		SB(state, ELSEWHERE),
		SB(mode, PCACHE_WARM),
		SB(incarnation, PCACHE_WARM),
		SB(generation, PCACHE_WARM),
		SB(reserved1, PCACHE_WARM),
		SB(saved.location, PCACHE_COLD_CHECKPOINT),
		SB(saved.redo, PCACHE_COLD_CHECKPOINT),
		SB(saved.timeline, PCACHE_COLD_TIMELINE),
		SB(saved.control_crc, PCACHE_COLD_CONTROL_CHANGED),
		SB(min_recovery_point, PCACHE_COLD_CONTROL_STATE),
		SB(min_recovery_point_timeline, PCACHE_COLD_CONTROL_STATE),
		SB(control_state, PCACHE_COLD_CONTROL_STATE),
		SB(saved_pages, PCACHE_WARM),
		SB(saved_at, PCACHE_WARM),
		SB(reserved2, PCACHE_WARM),
		SB(starts_from, PCACHE_WARM),
		SB(data_checksum_version, PCACHE_COLD_CHECKSUMS),
		SB(boot_id, PCACHE_WARM),
		SB(n_dimms, PCACHE_WARM),
		SB(dimms_state, PCACHE_WARM),
		SB(dimms, PCACHE_WARM),
		SB(headers, PCACHE_WARM),
		SB(power_rule, PCACHE_WARM),	/* see test_ledger.c */
		SB(ledger_id, PCACHE_WARM),
		SB(clock_offset, PCACHE_WARM),	/* likewise */
		SB(reserved, PCACHE_WARM),
		SB(crc, PCACHE_WARM),	/* likewise */
		SB(tail, PCACHE_WARM),
	};
	size_t		covered = 0;
	World		w;

	InitWorld(&w);
	for (int i = 0; i < lengthof(cases); i++)
	{
		uint8	   *field = (uint8 *) &w.sb + cases[i].offset;

		assert_int_equal(cases[i].offset, covered);
		covered += cases[i].size;
		if (cases[i].expected == ELSEWHERE)
			continue;
		for (size_t bit = 0; bit < cases[i].size * 8; bit++)
		{
			field[bit / 8] ^= 1 << bit % 8;
			Expect(&w, cases[i].expected, cases[i].name);
			field[bit / 8] ^= 1 << bit % 8;
		}
		for (size_t byte = 0; byte < cases[i].size; byte++)
			field[byte] ^= 0xFF;
		Expect(&w, cases[i].expected, cases[i].name);
		for (size_t byte = 0; byte < cases[i].size; byte++)
			field[byte] ^= 0xFF;
	}
	assert_int_equal(covered, sizeof(PCacheSuperblock));

	for (uint64 bit = 0; bit < 64; bit++)
	{
		w.sb.slots_used = UINT64CONST(1) << bit;
		Expect(&w, w.sb.slots_used > CAPACITY ? PCACHE_COLD_GEOMETRY : PCACHE_WARM,
			   "slots_used");
	}
	w.sb.slots_used = CAPACITY + 1;
	Expect(&w, PCACHE_COLD_GEOMETRY, "slots_used");
}

static void
TestStates(void **state)
{
	World		w;

	InitWorld(&w);
	for (int64 value = -300; value <= 300; value++)
	{
		w.sb.state = (uint32) value;
		Expect(&w,
			   value == 1 ? PCACHE_COLD_NEW :
			   value == 3 ? PCACHE_COLD_DIRTY :
			   value == 4 ? PCACHE_WARM : PCACHE_COLD_SUPERBLOCK, "state");
	}
	w.sb.state = UINT32_C(1) << 31 | PCACHE_STATE_CLEAN;
	Expect(&w, PCACHE_COLD_SUPERBLOCK, "state");
}

/*
 * Each named field of pg_control changed, with the CRC that it would have
 * then; and each other byte of it.
 */
static void
TestControlFields(void **state)
{
	static const FieldCase cases[] = {
		CONTROL(system_identifier, PCACHE_COLD_SYSTEM_IDENTIFIER),
		CONTROL(catalog_version_no, PCACHE_COLD_VERSION),
		CONTROL(state, PCACHE_COLD_CONTROL_STATE),
		CONTROL(checkPoint, PCACHE_COLD_CHECKPOINT),
		CONTROL(checkPointCopy.redo, PCACHE_COLD_CHECKPOINT),
		CONTROL(checkPointCopy.ThisTimeLineID, PCACHE_COLD_TIMELINE),
		CONTROL(minRecoveryPoint, PCACHE_COLD_CONTROL_STATE),
		CONTROL(minRecoveryPointTLI, PCACHE_COLD_CONTROL_STATE),
		CONTROL(data_checksum_version, PCACHE_COLD_CHECKSUMS),
	};
	World		w;
	const uint32 crc_offset = offsetof(ControlFileData, crc);

	InitWorld(&w);
	for (size_t i = 0; i < sizeof(ControlFileData); i++)
	{
		PCacheRefusal expected = PCACHE_COLD_CONTROL_CHANGED;
		const char *name = "other byte of pg_control";

		if (i >= crc_offset + sizeof(pg_crc32c))
			break;				/* padding */
		for (int c = 0; c < lengthof(cases); c++)
		{
			if (i >= cases[c].offset && i < cases[c].offset + cases[c].size)
			{
				expected = cases[c].expected;
				name = cases[c].name;
			}
		}
		for (int bit = 0; bit < 8; bit++)
		{
			((uint8 *) &w.control)[i] ^= 1 << bit;
			if (i < crc_offset)
				w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
			Expect(&w, expected, name);
			((uint8 *) &w.control)[i] ^= 1 << bit;
		}
	}

	for (int s = -1; s <= 10; s++)
	{
		InitWorld(&w);
		w.control.state = s;
		w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
		Expect(&w, s == DB_SHUTDOWNED ? PCACHE_WARM : PCACHE_COLD_CONTROL_STATE, "state");

		/* a start may have saved what a killed server left, in the same boot */
		w.sb.control_state = s;
		w.sb.saved.control_crc = w.control.crc;
		Expect(&w, PCACHE_WARM, "state, also in the pool");
		memset(w.sb.boot_id, 0x11, PCACHE_UUID_LEN);
		memset(w.facts.boot_id, 0x12, PCACHE_UUID_LEN);
		Expect(&w,
			   s == DB_SHUTDOWNED || s == DB_SHUTDOWNED_IN_RECOVERY ?
			   PCACHE_WARM : PCACHE_COLD_POWER, "state, also in the pool, of another boot");
	}
}

static void
TestOtherFacts(void **state)
{
	World		w;

	/* a file that was cut off will do if all descriptors are there */
	InitWorld(&w);
	for (int bit = 0; bit < 64; bit++)
	{
		w.facts.file_size ^= UINT64CONST(1) << bit;
		Expect(&w, w.facts.file_size < w.sb.pool_size &&
			   w.facts.file_size >= w.sb.blocks_offset ? PCACHE_WARM :
			   PCACHE_COLD_GEOMETRY, "file size");
		w.facts.file_size ^= UINT64CONST(1) << bit;
	}
	w.facts.file_size = w.sb.blocks_offset;
	Expect(&w, PCACHE_WARM, "descriptors only");
	w.facts.file_size--;
	Expect(&w, PCACHE_COLD_GEOMETRY, "not all descriptors");
	w.facts.file_size = 0;
	Expect(&w, PCACHE_COLD_GEOMETRY, "empty file");
	w.facts.file_size = w.sb.pool_size;
	for (int bit = 0; bit < 64; bit++)
	{
		w.sb.pool_size ^= UINT64CONST(1) << bit;
		Expect(&w, w.facts.file_size < w.sb.pool_size &&
			   w.sb.pool_size < GIB(16) ? PCACHE_WARM :
			   PCACHE_COLD_GEOMETRY, "pool size");
		w.sb.pool_size ^= UINT64CONST(1) << bit;
	}
	/* it is rounded up to a huge page */
	w.sb.pool_size = w.facts.file_size + GIB(16) - 1;
	Expect(&w, PCACHE_WARM, "pool size, rounded up");
	w.sb.pool_size++;
	Expect(&w, PCACHE_COLD_GEOMETRY, "pool size, rounded up too far");
	w.sb.pool_size = w.facts.file_size;
	w.facts.file_size = w.sb.pool_size = w.sb.pool_size - 1;
	Expect(&w, PCACHE_COLD_GEOMETRY, "file that is too small, and says so");

	InitWorld(&w);
	w.facts.backup_label = true;
	Expect(&w, PCACHE_COLD_BACKUP_LABEL, "backup_label");
	w.facts.backup_label = false;
	w.facts.recovery_target = true;
	Expect(&w, PCACHE_COLD_RECOVERY_TARGET, "recovery target");
	w.facts.recovery_target = false;

	w.media.blocks = PCACHE_MEDIA_UNKNOWN;
	w.facts.cold_on_media_unknown = true;
	memset(w.media.blocks_why, 'x', sizeof(w.media.blocks_why) - 1);
	Expect(&w, PCACHE_COLD_MEDIA_UNKNOWN, "media unknown");
	for (int policy = 0; policy < 2; policy++)
	{
		w.media.blocks = PCACHE_MEDIA_BAD;
		w.media.bad.truncated = true;
		w.facts.cold_on_media_unknown = policy;
		Expect(&w, PCACHE_COLD_MEDIA, "too many bad blocks");
	}
}

/* One fault for each check, in the order in which the gates ask. */

#define FAULT(name, ...) \
	static void Fault##name(World *w) { __VA_ARGS__; }

FAULT(Format, w->sb.format_version = 1)
FAULT(Major, w->sb.pg_major += 1)
FAULT(Catalog, w->control.catalog_version_no++)
FAULT(BlockSize, w->sb.block_size = 16384)
FAULT(Capacity, w->sb.capacity = PG_UINT64_MAX)
FAULT(FileSize, w->facts.file_size += MIB(2))
FAULT(Hole, w->facts.head_is_lost = true)
FAULT(System, w->control.system_identifier++)
FAULT(Empty, w->sb.state = PCACHE_STATE_EMPTY)
FAULT(State, w->sb.state = 99)
FAULT(Running, w->control.state = DB_IN_PRODUCTION)
FAULT(Timeline, w->sb.saved.timeline++)
FAULT(Location, w->sb.saved.location++)
FAULT(MinRecovery, w->sb.min_recovery_point = 1)
FAULT(Checksums, w->sb.data_checksum_version = 0)
FAULT(ControlCrc, w->control.crc++)
FAULT(ReadErrors, w->facts.read_errors_ignored = true)
FAULT(Suspect, w->facts.suspect.died = PCacheSuspectDeath(11, 1))
FAULT(BackupLabel, w->facts.backup_label = true)
FAULT(Target, w->facts.recovery_target = true)
FAULT(Prepared, w->facts.rolled_back_at = w->control.checkPointCopy.redo)
FAULT(Truncated, w->media.blocks = PCACHE_MEDIA_BAD, w->media.bad.truncated = true)
FAULT(Unknown, w->media.blocks = PCACHE_MEDIA_UNKNOWN, w->facts.cold_on_media_unknown = true)

static const struct
{
	void		(*apply) (World *w);
	PCacheRefusal expected;
	const char *name;
}			faults[] = {
	{FaultFormat, PCACHE_COLD_VERSION, "format version"},
	{FaultMajor, PCACHE_COLD_VERSION, "major version"},
	{FaultCatalog, PCACHE_COLD_VERSION, "catalog version"},
	{FaultBlockSize, PCACHE_COLD_GEOMETRY, "block size"},
	{FaultCapacity, PCACHE_COLD_GEOMETRY, "capacity"},
	{FaultFileSize, PCACHE_COLD_GEOMETRY, "file size"},
	{FaultHole, PCACHE_COLD_HOLE, "hole"},
	{FaultSystem, PCACHE_COLD_SYSTEM_IDENTIFIER, "system identifier"},
	{FaultEmpty, PCACHE_COLD_NEW, "empty"},
	{FaultReadErrors, PCACHE_COLD_SUSPECT, "read errors ignored"},
	{FaultSuspect, PCACHE_COLD_SUSPECT, "suspect memory"},
	{FaultState, PCACHE_COLD_SUPERBLOCK, "unknown state"},
	{FaultRunning, PCACHE_COLD_CONTROL_STATE, "cluster not shut down"},
	{FaultTimeline, PCACHE_COLD_TIMELINE, "timeline"},
	{FaultLocation, PCACHE_COLD_CHECKPOINT, "checkpoint location"},
	{FaultMinRecovery, PCACHE_COLD_CONTROL_STATE, "minimum recovery point"},
	{FaultChecksums, PCACHE_COLD_CHECKSUMS, "checksums"},
	{FaultControlCrc, PCACHE_COLD_CONTROL_CHANGED, "CRC of pg_control"},
	{FaultBackupLabel, PCACHE_COLD_BACKUP_LABEL, "backup_label"},
	{FaultTarget, PCACHE_COLD_RECOVERY_TARGET, "recovery target"},
	{FaultPrepared, PCACHE_COLD_TIMELINE, "prepared transaction rolled back"},
	{FaultTruncated, PCACHE_COLD_MEDIA, "too many bad blocks"},
	{FaultUnknown, PCACHE_COLD_MEDIA_UNKNOWN, "bad blocks unknown"},
};

/* Of two faults the one that is asked for first decides. */
static void
TestOrder(void **state)
{
	World		w;
	char		what[128];

	for (int i = 0; i < lengthof(faults); i++)
	{
		for (int j = i; j < lengthof(faults); j++)
		{
			InitWorld(&w);
			/* some faults exclude each other; then the earlier one holds */
			faults[j].apply(&w);
			faults[i].apply(&w);
			snprintf(what, sizeof(what), "%s and %s", faults[i].name, faults[j].name);
			Expect(&w, faults[i].expected, what);
		}
	}

	/* all at once */
	InitWorld(&w);
	for (int i = lengthof(faults) - 1; i >= 0; i--)
		faults[i].apply(&w);
	Expect(&w, PCACHE_COLD_VERSION, "all");
}

/*
 * A pool that is kept lies within its file, or what the file will be when what
 * was cut off is allocated again, computed without overflow.  The descriptors
 * and headers are there.  No file is larger than off_t can tell.
 */
static void
CheckHostile(const World *w)
{
	if (JudgeWorld(w) == PCACHE_WARM)
	{
		unsigned __int128 blocks_end = (unsigned __int128) w->sb.blocks_offset +
			(unsigned __int128) w->sb.capacity * BLCKSZ;
		unsigned __int128 headers_end = (unsigned __int128) MIB(2) +
			(unsigned __int128) w->sb.capacity * (64 + 64);

		assert_true(w->sb.capacity > 0);
		assert_true(headers_end <= w->sb.blocks_offset);
		assert_true(w->sb.blocks_offset <= w->facts.file_size);
		assert_true(w->facts.file_size <= w->sb.pool_size);
		assert_true(blocks_end <= w->sb.pool_size);
		assert_true(w->sb.pool_size < blocks_end + MIB(2) + GIB(16));
		assert_true(w->sb.slots_used <= w->sb.capacity);
	}
}

static void
TestHostile(void **state)
{
	static const uint64 numbers[] = {
		0, 1, 63, 64, 65, 8191, 8192, CAPACITY - 1, CAPACITY, CAPACITY + 1,
		PG_INT32_MAX, UINT64CONST(0x80000000), PG_UINT32_MAX, UINT64CONST(0x100000000),
		UINT64CONST(1) << 50, (UINT64CONST(1) << 51) - 1, UINT64CONST(1) << 51,
		UINT64CONST(1) << 57, UINT64CONST(1) << 58, (UINT64CONST(1) << 58) + 1,
		PG_INT64_MAX - MIB(2), PG_INT64_MAX, UINT64CONST(1) << 63,
		PG_UINT64_MAX - MIB(2), PG_UINT64_MAX - 8191, PG_UINT64_MAX - 1, PG_UINT64_MAX,
	};
	static const uint64 sizes[] = {
		0, 1, 4096, 8192, MIB(2), MIB(4), MIB(14), MIB(14) + 1, GIB(1),
		UINT64CONST(1) << 62, PG_INT64_MAX - MIB(2) + 1, PG_INT64_MAX
	};
	World		w;

	InitWorld(&w);
	assert_int_equal(w.sb.pool_size, MIB(14));
	for (int c = 0; c < lengthof(numbers); c++)
	{
		for (int s = 0; s < lengthof(sizes); s++)
		{
			w.sb.capacity = numbers[c];
			w.facts.file_size = w.sb.pool_size = sizes[s];
			for (int o = 0; o < lengthof(numbers); o++)
			{
				w.sb.blocks_offset = numbers[o];
				w.sb.slots_used = numbers[(c + o) % lengthof(numbers)];
				CheckHostile(&w);
			}
			/* what an attacker would compute, with and without overflow */
			w.sb.blocks_offset = PCacheComputeGeometry(numbers[c], MIB(2)).blocks_offset;
			w.sb.slots_used = 0;
			CheckHostile(&w);
			w.facts.file_size = w.sb.pool_size =
				PCacheComputeGeometry(numbers[c], MIB(2)).pool_size & PG_INT64_MAX;
			CheckHostile(&w);
		}
	}

	/* noise in any 8 bytes of anything */
	SeedRandom();
	for (int n = 0; n < 30000; n++)
	{
		InitWorld(&w);
		for (uint64 m = Random() % 4; m < 4; m++)
			RandomBytes((char *) &w.sb + Random() % (sizeof(w.sb) / 8) * 8, 8);
		RandomBytes((char *) &w.control + Random() % (sizeof(w.control) / 8) * 8,
					8 * (Random() % 4 == 0));
		w.facts.file_size = Random() % 4 == 0 ? Random() & PG_INT64_MAX : w.sb.pool_size;
		CheckHostile(&w);
	}
	RandomBytes(&w.sb, sizeof(w.sb));
	CheckHostile(&w);
}

static void
TestEmpty(void **state)
{
	assert_int_equal(PCacheEmptyGate(true, 1, 1).refusal, PCACHE_WARM);
	assert_int_equal(PCacheEmptyGate(false, 1, 1).refusal, PCACHE_WARM);
	assert_int_equal(PCacheEmptyGate(true, 1, 0).refusal, PCACHE_COLD_PAGES);
	assert_int_equal(PCacheEmptyGate(true, 0, 0).refusal, PCACHE_COLD_NO_PAGES);
	assert_int_equal(PCacheEmptyGate(false, 0, 0).refusal, PCACHE_COLD_NO_PAGES);
	refusals_seen |= UINT64CONST(1) << PCACHE_COLD_NO_PAGES;
	assert_string_not_equal(PCacheEmptyGate(true, 0, 0).why.message,
							PCacheEmptyGate(false, 0, 0).why.message);
}

static void
TestNames(void **state)
{
	for (int i = 0; i < PCACHE_NUM_REFUSALS; i++)
	{
		assert_string_not_equal(PCacheRefusalName(i), "unknown");
		for (int j = 0; j < i; j++)
			assert_string_not_equal(PCacheRefusalName(i), PCacheRefusalName(j));
	}
	assert_string_equal(PCacheRefusalName(PCACHE_NUM_REFUSALS), "unknown");

	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		assert_string_not_equal(PCachePageVerdictName(i), "unknown");
		for (int j = 0; j < i; j++)
			assert_string_not_equal(PCachePageVerdictName(i), PCachePageVerdictName(j));
	}
	assert_string_equal(PCachePageVerdictName(PCACHE_NUM_PAGE_VERDICTS), "unknown");
}

#define WAL_SEGMENT_SIZE	MIB(1)

/* A watermark for WAL that ends there. */
static PCacheWatermark
FromDisk(uint64 end)
{
	PCacheWatermark watermark;

	memset(&watermark, 0x55, sizeof(watermark));
	assert_true(PCacheWatermarkFromDisk(&watermark, 3, end, WAL_SEGMENT_SIZE));
	assert_int_equal(watermark.written, end);
	assert_int_equal(watermark.timeline, 3);
	return watermark;
}

/*
 * Where the witness is, and that any WAL which ends before the watermark fails it.
 */
static void
TestWitness(void **state)
{
	static char wal[2 * WAL_SEGMENT_SIZE];
	const uint64 begin = UINT64CONST(0x5000000);
	char	   *dir = MakeTempDirectory("/tmp");
	PCacheWatermark watermark;
	PCacheWatermark later;
	PCacheError err;

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("pg_wal", 0700), 0);
	for (int i = 0; i < 3 * XLOG_BLCKSZ; i++)
		wal[i] = i * 7 % 251 + 1;
	for (int i = 0; i < 3 * XLOG_BLCKSZ; i++)
		wal[WAL_SEGMENT_SIZE + i] = i * 11 % 241 + 1;
	WriteFile("pg_wal/000000030000000000000050", wal, WAL_SEGMENT_SIZE);
	WriteFile("pg_wal/000000030000000000000051", wal + WAL_SEGMENT_SIZE, WAL_SEGMENT_SIZE);

	/* any place, also near the beginning of a page or a segment */
	for (int segment = 0; segment < 2; segment++)
	{
		for (int end = 8; end <= 3 * XLOG_BLCKSZ; end += 8)
		{
			uint64		lsn = begin + segment * WAL_SEGMENT_SIZE + end;

			watermark = FromDisk(lsn);
			assert_int_equal(watermark.witness, lsn);
			assert_true(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
		}
	}

	/* padding up to the end of the segment */
	watermark = FromDisk(begin + WAL_SEGMENT_SIZE);
	assert_int_equal(watermark.witness, begin + 3 * XLOG_BLCKSZ);

	/* the same bytes elsewhere are another history, or another place in it */
	watermark = FromDisk(begin + 1000);
	WriteFile("pg_wal/000000030000000000000052", wal, WAL_SEGMENT_SIZE);
	later = FromDisk(begin + 2 * WAL_SEGMENT_SIZE + 1000);
	assert_int_not_equal(watermark.witness_hash, later.witness_hash);
	watermark.timeline = 4;
	WriteFile("pg_wal/000000040000000000000050", wal, WAL_SEGMENT_SIZE);
	assert_false(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));

	/* a later timeline is further on */
	assert_false(PCacheWatermarkIsBehind(&watermark, 4, watermark.written));
	assert_true(PCacheWatermarkIsBehind(&watermark, 4, watermark.written + 1));
	assert_true(PCacheWatermarkIsBehind(&watermark, 5, 1));
	assert_false(PCacheWatermarkIsBehind(&watermark, 3, PG_UINT64_MAX));

	/* WAL that ends before the witness */
	watermark = FromDisk(begin + 2 * XLOG_BLCKSZ + 24);
	assert_true(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
	/* no pg_control of a server has such sizes */
	assert_false(PCacheWitnessMatches(&watermark, 0, &err));
	assert_string_equal(err.message, "a WAL segment cannot have 0 bytes");
	assert_false(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE + 1, &err));
	for (int end = 2 * XLOG_BLCKSZ + 16; end > XLOG_BLCKSZ; end -= 8)
	{
		memset(wal + end, 0, 8);
		WriteFile("pg_wal/000000030000000000000050", wal, WAL_SEGMENT_SIZE);
		assert_false(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
		if (end < 2 * XLOG_BLCKSZ - 64)
			break;
	}

	/*
	 * no bytes before the witness but zeros, or no WAL: neither found nor
	 * matched
	 */
	memset(wal, 0, WAL_SEGMENT_SIZE);
	WriteFile("pg_wal/000000030000000000000050", wal, WAL_SEGMENT_SIZE);
	assert_false(PCacheWatermarkFromDisk(&later, 3, watermark.witness, WAL_SEGMENT_SIZE));
	assert_int_equal(unlink("pg_wal/000000030000000000000050"), 0);
	assert_false(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
	assert_false(PCacheWatermarkFromDisk(&later, 3, watermark.witness, WAL_SEGMENT_SIZE));

	assert_int_equal(chdir("/"), 0);
	RemoveTree(dir);
	free(dir);
}

/*
 * A process died of a fault: cold in each state and mode, before it is asked
 * how the server stopped, but not for a pool of somebody else.
 */
static void
TestSuspect(void **state)
{
	static const PCacheState states[] = {PCACHE_STATE_DIRTY, PCACHE_STATE_CLEAN};
	PCacheSuspect suspect = {0};
	PCacheVerdict verdict;
	World		w;

	suspect.died = PCacheSuspectDeath(11, 4711);
	suspect.died_at = 1700000000;
	suspect.crc = BitwiseCrc32c(&suspect, offsetof(PCacheSuspect, crc));
	assert_true(PCacheSuspectIsIntact(&suspect));
	for (int i = 0; i < lengthof(states); i++)
	{
		for (int mode = PERSISTENT_CACHE_PLANNED_RESTART; mode <= PERSISTENT_CACHE_ALWAYS; mode++)
		{
			InitWorld(&w);
			w.sb.state = states[i];
			w.sb.mode = mode;
			w.facts.suspect = suspect;
			Expect(&w, PCACHE_COLD_SUSPECT, "a fault");
		}
	}
	verdict = PCachePoolGate(&w.sb, &w.facts);
	assert_string_equal(verdict.why.message,
						"server process (PID 4711) was terminated by signal 11: Segmentation fault, and may have overwritten cached pages before");

	/* any bit of the signal or PID makes a note, whatever the rest is */
	InitWorld(&w);
	for (int bit = 0; bit < 64; bit++)
	{
		w.facts.suspect.died = UINT64CONST(1) << bit;
		Expect(&w, PCACHE_COLD_SUSPECT, "a damaged note");
	}
	memset(&w.facts.suspect, 0xFF, sizeof(w.facts.suspect));
	Expect(&w, PCACHE_COLD_SUSPECT, "a note that cannot be read");
	verdict = PCachePoolGate(&w.sb, &w.facts);
	assert_string_equal(verdict.why.message,
						"a server process may have died of a fault (the pool's note of that is damaged), and may have overwritten cached pages before");

	/* what is left of one that was removed */
	w.facts.suspect = suspect;
	w.facts.suspect.died = 0;
	Expect(&w, PCACHE_WARM, "a note that was removed");

	/* a pool of somebody else, or a new one, has more to say */
	w.facts.suspect = suspect;
	w.sb.system_identifier++;
	Expect(&w, PCACHE_COLD_SYSTEM_IDENTIFIER, "another cluster");
	InitWorld(&w);
	w.facts.suspect = suspect;
	w.sb.state = PCACHE_STATE_EMPTY;
	Expect(&w, PCACHE_COLD_NEW, "an empty pool");

	/* a bad block below the note: it may have told of one */
	InitWorld(&w);
	w.media.blocks = PCACHE_MEDIA_BAD;
	PCacheRangeAdd(&w.media.bad, PCACHE_SUSPECT_OFFSET + sizeof(PCacheSuspect), 64);
	Expect(&w, PCACHE_WARM, "a bad block behind the note");
	w.media.bad.ranges[0].offset--;
	Expect(&w, PCACHE_COLD_MEDIA, "a bad block below the end of the note");
	w.media.bad.ranges[0].offset = PCACHE_SUSPECT_OFFSET - 64;
	Expect(&w, PCACHE_WARM, "a bad block before the note");
	w.media.bad.ranges[0].length++;
	Expect(&w, PCACHE_COLD_MEDIA, "a bad block below the beginning of the note");
	PCacheMediaReportFree(&w.media);
}

/* The note on media: stored whole, and removed only if it is the same one. */
static void
TestSuspectNote(void **state)
{
	char	   *dir = MakeTempDirectory("/tmp");
	char		path[MAXPGPATH];
	char		bytes[PCACHE_SUSPECT_OFFSET + sizeof(PCacheSuspect)] = {0};
	PCacheMapping map = {.base = bytes,.length = sizeof(bytes),.kind = PCACHE_PERSIST_MEMORY};
	PCacheSuspect *note = (PCacheSuspect *) (bytes + PCACHE_SUSPECT_OFFSET);
	PCacheSuspect read;
	int			fd;

	snprintf(path, sizeof(path), "%s/pool", dir);
	note->died = PCacheSuspectDeath(6, 99);
	note->crc = BitwiseCrc32c(note, offsetof(PCacheSuspect, crc));
	WriteFile(path, bytes, sizeof(bytes));
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	PCacheSuspectRead(fd, &read);
	assert_memory_equal(&read, note, sizeof(read));
	assert_int_equal(PCacheSuspectSignal(&read), 6);
	assert_int_equal(PCacheSuspectPid(&read), 99);
	assert_true(PCacheSuspectIsIntact(&read));

	/* each bit counts */
	for (int bit = 0; bit < 8 * (int) sizeof(read); bit++)
	{
		((char *) &read)[bit / 8] ^= 1 << bit % 8;
		assert_false(PCacheSuspectIsIntact(&read));
		((char *) &read)[bit / 8] ^= 1 << bit % 8;
	}

	/* what cannot be read is a note */
	assert_int_equal(truncate(path, sizeof(bytes) - 1), 0);
	PCacheSuspectRead(fd, &read);
	assert_true(read.died != 0);
	assert_false(PCacheSuspectIsIntact(&read));
	close(fd);

	assert_true(PCacheSuspectForget(&map, PCacheSuspectDeath(6, 98)));
	assert_true(note->died == PCacheSuspectDeath(6, 99));
	assert_true(PCacheSuspectForget(&map, 0));
	assert_true(note->died == PCacheSuspectDeath(6, 99));
	assert_true(PCacheSuspectForget(&map, PCacheSuspectDeath(6, 99)));
	assert_true(note->died == 0);
	RemoveTree(dir);
	free(dir);
}

/* The tests above have reached each refusal. */
static void
TestAllRefusalsSeen(void **state)
{
	for (int i = 0; i < PCACHE_NUM_REFUSALS; i++)
	{
		/* of which no gate knows */
		if (i >= PCACHE_COLD_PAGES)
			break;
		/* see test_library.c */
		if (i == PCACHE_COLD_WATERMARK || i == PCACHE_COLD_CUT_OFF)
			continue;
		if ((refusals_seen >> i & 1) == 0)
			fail_msg("\"%s\" was never reached", PCacheRefusalName(i));
	}
}

/*
 * Pages
 */

#define SLOT			5
#define REDO			UINT64CONST(0x5000028)
#define GENERATION		1234
#define BLOCKS_OFFSET	MIB(4)
#define SLOT_OFFSET		(BLOCKS_OFFSET + SLOT * BLCKSZ)

static char *pgdata;
static PCacheMediaReport page_media;

/* A directory with base/5/16384 of 10 blocks, its FSM of 3, and global/1262. */
static int
SetUpPages(void **state)
{
	static char zeros[10 * BLCKSZ];

	pgdata = MakeTempDirectory("/tmp");
	assert_int_equal(chdir(pgdata), 0);
	assert_int_equal(mkdir("base", 0700), 0);
	assert_int_equal(mkdir("base/5", 0700), 0);
	assert_int_equal(mkdir("global", 0700), 0);
	WriteFile("base/5/16384", zeros, 10 * BLCKSZ);
	WriteFile("base/5/16384_fsm", zeros, 3 * BLCKSZ);
	WriteFile("base/5/16385", zeros, 0);
	WriteFile("base/5/16384_init", zeros, BLCKSZ);
	WriteFile("global/1262", zeros, BLCKSZ);
	memset(&page_media, 0, sizeof(page_media));
	page_media.blocks = PCACHE_MEDIA_CLEAN;
	return 0;
}

static int
TearDownPages(void **state)
{
	assert_int_equal(chdir("/"), 0);
	RemoveTree(pgdata);
	free(pgdata);
	return 0;
}

static void
InitPage(PCacheDescriptor *desc)
{
	memset(desc, 0, sizeof(*desc));
	desc->seq = GENERATION;
	desc->page_lsn = REDO - 1;
	desc->sum = 3;
	desc->spc_oid = DEFAULTTABLESPACE_OID;
	desc->db_oid = 5;
	desc->rel_number = 16384;
	desc->fork_number = MAIN_FORKNUM;
	desc->block_number = 9;
	desc->slot = SLOT;
	desc->version = PCACHE_DESC_VERSION;
	desc->flags = PCACHE_DESC_PERMANENT;
	desc->usage_count = 4;
	desc->crc = BitwiseCrc32c((char *) desc + 8, 52);
}

static PCachePageVerdict
JudgePage(const PCacheDescriptor *desc, PCachePageFacts *facts)
{
	PCacheDescriptor before = *desc;
	PCachePageVerdict verdict;

	facts->sizes = PCacheRelSizesCreate(facts->unchanged_since, facts->only_written);
	verdict = PCachePageGate(desc, SLOT, facts);
	PCacheRelSizesFree(facts->sizes);
	assert_true(verdict >= 0 && verdict < PCACHE_NUM_PAGE_VERDICTS);
	assert_memory_equal(desc, &before, sizeof(before));
	page_verdicts_seen |= UINT64CONST(1) << verdict;
	return verdict;
}

static PCachePageFacts
MakePageFacts(void)
{
	PCachePageFacts facts = {.all_written = true,.media = &page_media,
		.blocks_offset = BLOCKS_OFFSET,.file_size = SLOT_OFFSET + BLCKSZ,
	.generation = GENERATION,.redo = REDO};

	return facts;
}

/* Change a field, with the CRC that belongs to it, and expect a verdict. */
#define EXPECT_PAGE(expected, ...) \
	do { \
		InitPage(&desc); \
		facts = MakePageFacts(); \
		__VA_ARGS__; \
		desc.crc = BitwiseCrc32c((char *) &desc + 8, 52); \
		assert_int_equal(JudgePage(&desc, &facts), expected); \
	} while (0)

static void
TestPages(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts;

	EXPECT_PAGE(PCACHE_PAGE_KEPT, (void) 0);
	EXPECT_PAGE(PCACHE_PAGE_GENERATION, desc.seq = 0);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.usage_count = 255);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.sum = PG_UINT64_MAX);

	EXPECT_PAGE(PCACHE_PAGE_FREE, desc.seq = 1);
	EXPECT_PAGE(PCACHE_PAGE_FREE, desc.seq = PG_UINT64_MAX);
	EXPECT_PAGE(PCACHE_PAGE_FREE, memset(&desc, 0, sizeof(desc)), desc.seq = PCACHE_DESC_FREE_SEQ);

	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.version = 2);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.version = 0);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.slot = SLOT + 1);
	EXPECT_PAGE(PCACHE_PAGE_GENERATION, memset(&desc, 0, sizeof(desc)));
	EXPECT_PAGE(PCACHE_PAGE_CRC, memset(&desc, 0, sizeof(desc)), desc.seq = GENERATION, desc.slot = SLOT);

	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.fork_number = -1);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.fork_number = MAX_FORKNUM + 1);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.fork_number = PG_INT32_MAX);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.fork_number = PG_INT32_MIN);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.rel_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.spc_oid = 0);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.db_oid = 0);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.spc_oid = GLOBALTABLESPACE_OID);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.spc_oid = 0, desc.db_oid = 0);
	EXPECT_PAGE(PCACHE_PAGE_TAG, desc.block_number = InvalidBlockNumber);

	EXPECT_PAGE(PCACHE_PAGE_NO_FILE, desc.rel_number = 16390);
	EXPECT_PAGE(PCACHE_PAGE_NO_FILE, desc.db_oid = 6);
	EXPECT_PAGE(PCACHE_PAGE_NO_FILE, desc.spc_oid = 16999);
	EXPECT_PAGE(PCACHE_PAGE_NO_FILE, desc.fork_number = VISIBILITYMAP_FORKNUM);
	EXPECT_PAGE(PCACHE_PAGE_NO_FILE, desc.rel_number = PG_UINT32_MAX);

	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.block_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_BEYOND_EOF, desc.block_number = 10);
	EXPECT_PAGE(PCACHE_PAGE_BEYOND_EOF, desc.block_number = MaxBlockNumber);
	EXPECT_PAGE(PCACHE_PAGE_BEYOND_EOF, desc.rel_number = 16385, desc.block_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.fork_number = FSM_FORKNUM, desc.block_number = 2);
	EXPECT_PAGE(PCACHE_PAGE_BEYOND_EOF, desc.fork_number = FSM_FORKNUM, desc.block_number = 3);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.fork_number = INIT_FORKNUM, desc.block_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_KEPT,
				desc.spc_oid = GLOBALTABLESPACE_OID, desc.db_oid = 0,
				desc.rel_number = 1262, desc.block_number = 0);

	/* an unlogged page's LSN is not one of the WAL's */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.flags = 0, desc.page_lsn = PG_UINT64_MAX);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED, desc.flags = 0, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED,
				desc.flags = (uint16) ~PCACHE_DESC_PERMANENT, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.drop_unlogged = true);
}

/* Bad ranges around the page's block */
static void
TestBadBlocks(void **state)
{
	static const struct
	{
		uint64		offset;
		uint64		length;
		PCachePageVerdict expected;
	}			cases[] = {
		{SLOT_OFFSET, 512, PCACHE_PAGE_BAD_BLOCK},
		{SLOT_OFFSET + 8191, 1, PCACHE_PAGE_BAD_BLOCK},
		{SLOT_OFFSET - 512, 513, PCACHE_PAGE_BAD_BLOCK},
		{0, GIB(1), PCACHE_PAGE_BAD_BLOCK},
		{SLOT_OFFSET - 512, 512, PCACHE_PAGE_KEPT},
		{SLOT_OFFSET + 8192, 512, PCACHE_PAGE_KEPT},
		{SLOT_OFFSET - BLOCKS_OFFSET, 8192, PCACHE_PAGE_KEPT},
		{0, 4096, PCACHE_PAGE_KEPT},
		/* the page is fine, but its slot will not be used */
		{MIB(2) + SLOT * 64, 64, PCACHE_PAGE_BAD_BLOCK},
		{MIB(2) + SLOT * 64 + 63, 1, PCACHE_PAGE_BAD_BLOCK},
		{MIB(2) + SLOT * 64 - 64, 64, PCACHE_PAGE_KEPT},
		{MIB(2) + SLOT * 64 + 64, 64, PCACHE_PAGE_KEPT},
	};
	PCacheDescriptor desc;
	PCachePageFacts facts = MakePageFacts();
	PCacheMediaReport media = page_media;
	PCacheByteRange range;

	InitPage(&desc);
	facts.media = &media;
	media.blocks = PCACHE_MEDIA_BAD;
	media.bad.ranges = &range;
	media.bad.n_ranges = media.bad.max_ranges = 1;
	for (int i = 0; i < lengthof(cases); i++)
	{
		range.offset = cases[i].offset;
		range.length = cases[i].length;
		assert_int_equal(JudgePage(&desc, &facts), cases[i].expected);
	}
}

/* Any single flipped bit, and any burst within a byte, in a descriptor. */
static void
TestPageFlips(void **state)
{
	PCacheDescriptor good;
	PCacheDescriptor desc;
	PCachePageFacts facts = MakePageFacts();

	InitPage(&good);
	for (int i = 0; i < sizeof(good); i++)
	{
		for (int pattern = 1; pattern < 256; pattern++)
		{
			PCachePageVerdict verdict;

			desc = good;
			((uint8 *) &desc)[i] ^= pattern;
			verdict = JudgePage(&desc, &facts);
			if (desc.seq % 2 == 1)
				assert_int_equal(verdict, PCACHE_PAGE_FREE);
			else if (i < 8)
			{
				/* still even: about something else */
				assert_int_equal(verdict, PCACHE_PAGE_GENERATION);
				assert_memory_equal((char *) &desc + 8, (char *) &good + 8, 56);
			}
			else
				assert_int_equal(verdict, PCACHE_PAGE_CRC);
		}
	}

	/* a descriptor that got into another one's place */
	assert_int_equal(JudgePage(&good, &facts), PCACHE_PAGE_KEPT);
	facts.sizes = PCacheRelSizesCreate(0, false);
	for (uint32 slot = 0; slot < 100; slot++)
		assert_int_equal(PCachePageGate(&good, slot, &facts),
						 slot == SLOT ? PCACHE_PAGE_KEPT : PCACHE_PAGE_CRC);
	PCacheRelSizesFree(facts.sizes);
}

/* What is wrong with a page is asked for in a fixed order, too. */
static void
TestPageOrder(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts;
	PCacheMediaReport bad = page_media;
	PCacheByteRange range = {SLOT_OFFSET, 512};
	PCacheRangeList hole = {0};

	bad.blocks = PCACHE_MEDIA_BAD;
	bad.bad.ranges = &range;
	bad.bad.n_ranges = bad.bad.max_ranges = 1;

	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.media = &bad, desc.rel_number = 16390);
	EXPECT_PAGE(PCACHE_PAGE_YOUNGER, facts.media = &bad, facts.all_written = false, desc.page_lsn++);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED,
				facts.media = &bad, facts.all_written = false, desc.page_lsn++,
				desc.flags = 0, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_TAG, facts.media = &bad, facts.all_written = false, desc.page_lsn++,
				desc.rel_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.rel_number = 0, desc.version++);
	EXPECT_PAGE(PCACHE_PAGE_GENERATION, desc.seq += 2, desc.rel_number = 0, desc.version++);
	EXPECT_PAGE(PCACHE_PAGE_FREE, desc.seq++, desc.rel_number = 0, desc.version++);

	range.offset = MIB(2) + SLOT * 64;
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.media = &bad, desc.seq++);

	/* cut off, by a byte or by more */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.file_size++);
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.file_size--);
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.file_size -= BLCKSZ, desc.rel_number = 16390);
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.file_size = BLOCKS_OFFSET);
	EXPECT_PAGE(PCACHE_PAGE_FREE, facts.file_size = BLOCKS_OFFSET, desc.seq++);

	/* in a hole, all of it or a part, or beside one */
	hole.ranges = &range;
	hole.n_ranges = hole.max_ranges = 1;
	range.offset = SLOT_OFFSET + BLCKSZ - 4096;
	range.length = 4096;
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.holes = hole);
	EXPECT_PAGE(PCACHE_PAGE_BAD_BLOCK, facts.holes = hole, range.offset = 0, range.length = GIB(1));
	range.offset = SLOT_OFFSET + BLCKSZ;
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.holes = hole);
}

/* Which entries of the ledger are believed, see JudgeEntry(). */
static void
TestLedger(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts;

#define EXPECT_ENTRY(expected, written, ...) \
	EXPECT_PAGE(expected, facts.all_written = written, \
				facts.generation = 44, desc.seq = PCACHE_DESC_SAVED_SEQ, __VA_ARGS__)

	/* a shutdown checkpoint has written everything, whatever the LSN is */
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, (void) 0);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, desc.page_lsn = PG_UINT64_MAX);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, desc.page_lsn = 0);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, desc.flags |= PCACHE_DESC_LSN_BOUND);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, desc.fork_number = FSM_FORKNUM, desc.block_number = 2);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, facts.drop_unlogged = true);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, true, desc.flags = 0);
	EXPECT_ENTRY(PCACHE_PAGE_UNLOGGED, true, desc.flags = 0, facts.drop_unlogged = true);

	/* a restartpoint has written what is older */
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, false, (void) 0);
	EXPECT_ENTRY(PCACHE_PAGE_YOUNGER, false, desc.page_lsn++);
	EXPECT_ENTRY(PCACHE_PAGE_YOUNGER, false, desc.page_lsn = PG_UINT64_MAX);
	EXPECT_ENTRY(PCACHE_PAGE_NO_LSN, false, desc.page_lsn = 0);
	EXPECT_ENTRY(PCACHE_PAGE_NO_LSN, false, desc.page_lsn = 1);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, false, desc.page_lsn = 2);
	EXPECT_ENTRY(PCACHE_PAGE_NO_LSN, false, desc.flags |= PCACHE_DESC_LSN_BOUND);
	EXPECT_ENTRY(PCACHE_PAGE_FORK, false, desc.fork_number = FSM_FORKNUM, desc.block_number = 2);
	EXPECT_ENTRY(PCACHE_PAGE_FORK, false, desc.fork_number = VISIBILITYMAP_FORKNUM);
	EXPECT_ENTRY(PCACHE_PAGE_UNLOGGED, false, desc.flags = 0, facts.drop_unlogged = true);

	/* why a slot has no entry, and a file that somebody else has changed */
	EXPECT_ENTRY(PCACHE_PAGE_FREE, false, desc.seq = PCACHE_DESC_FREE_SEQ);
	EXPECT_ENTRY(PCACHE_PAGE_FREE, false, desc.seq = PCACHE_DESC_FREE_SEQ, desc.why_free = 99);
	EXPECT_ENTRY(PCACHE_PAGE_DIRTY, false, desc.seq = PCACHE_DESC_FREE_SEQ,
				 desc.why_free = PCACHE_DESC_WAS_DIRTY);
	EXPECT_ENTRY(PCACHE_PAGE_IN_CHANGE, false, desc.seq = PCACHE_DESC_FREE_SEQ,
				 desc.why_free = PCACHE_DESC_WAS_IN_CHANGE);
	EXPECT_ENTRY(PCACHE_PAGE_LOST, false, desc.seq = PCACHE_DESC_FREE_SEQ,
				 desc.why_free = PCACHE_DESC_WAS_LOST);
	EXPECT_ENTRY(PCACHE_PAGE_FIRST, false, desc.seq = PCACHE_DESC_FREE_SEQ,
				 desc.why_free = PCACHE_DESC_WAS_FIRST);
	EXPECT_ENTRY(PCACHE_PAGE_FILE_CHANGED, false, facts.unchanged_since = 1);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, false, facts.unchanged_since = PG_INT64_MAX);

	/* which pg_control it is about; after a loss of power its sum alone tells */
	for (int sums_only = 0; sums_only < 2; sums_only++)
	{
		for (int written = 0; written < 2; written++)
		{
			EXPECT_ENTRY(PCACHE_PAGE_KEPT, written, facts.sums_only = sums_only, desc.seq = 44);
			EXPECT_ENTRY(PCACHE_PAGE_GENERATION, written, facts.sums_only = sums_only, desc.seq = 52);
			EXPECT_ENTRY(PCACHE_PAGE_GENERATION, written, facts.sums_only = sums_only, desc.seq = 0);
			EXPECT_ENTRY(sums_only ? PCACHE_PAGE_GENERATION : PCACHE_PAGE_KEPT, written,
						 facts.sums_only = sums_only);
			/* one that was being replaced is free, whatever it is about */
			EXPECT_ENTRY(PCACHE_PAGE_FREE, written, facts.sums_only = sums_only, desc.seq = 45);
		}
	}
	/* that is asked before the rest */
	EXPECT_ENTRY(PCACHE_PAGE_GENERATION, false, desc.seq = 52, desc.version++);
	EXPECT_ENTRY(PCACHE_PAGE_CRC, false, desc.seq = 44, desc.version++);
	EXPECT_ENTRY(PCACHE_PAGE_YOUNGER, false, desc.seq = 44, desc.page_lsn++);
	EXPECT_ENTRY(PCACHE_PAGE_UNLOGGED, false, desc.seq = 44, desc.flags = 0, facts.drop_unlogged = true);
	EXPECT_ENTRY(PCACHE_PAGE_NO_FILE, true, desc.rel_number = 16390);
	EXPECT_ENTRY(PCACHE_PAGE_BEYOND_EOF, false, desc.block_number = 10);
}

/* Which pages are kept beside those, see PCacheYoungGate(). */
static void
TestYoung(void **state)
{
#define EXPECT_YOUNG(expected, ...) \
	do { \
		PCachePageFacts facts = MakePageFacts(); \
		PageHeaderData page = {.pd_lsn = {0x1, 0x2345},.pd_special = BLCKSZ}; \
		PCacheDescriptor desc; \
\
		InitPage(&desc); \
		facts.young_up_to = UINT64CONST(0x100002345); \
		__VA_ARGS__; \
		facts.sizes = PCacheRelSizesCreate(facts.unchanged_since, facts.only_written); \
		assert_int_equal(PCacheYoungGate(&desc, &page, SLOT, &facts), expected); \
		PCacheRelSizesFree(facts.sizes); \
	} while (0)

	EXPECT_YOUNG(true, (void) 0);
	/* the redo point does not matter, nor whether it has to be written */
	EXPECT_YOUNG(true, facts.redo = 2);
	EXPECT_YOUNG(true, facts.redo = PG_UINT64_MAX);
	EXPECT_YOUNG(true, desc.flags |= PCACHE_DESC_DIRTY);

	/* WAL goes up to its LSN, which it must have */
	EXPECT_YOUNG(false, facts.young_up_to--);
	EXPECT_YOUNG(false, facts.young_up_to = 0);
	EXPECT_YOUNG(false, page.pd_lsn.xrecoff++);
	EXPECT_YOUNG(false, page.pd_lsn.xlogid++);
	EXPECT_YOUNG(true, page.pd_lsn.xlogid--);
	EXPECT_YOUNG(false, page.pd_lsn.xlogid = page.pd_lsn.xrecoff = 0);
	EXPECT_YOUNG(false, page.pd_lsn.xlogid = 0, page.pd_lsn.xrecoff = 1);
	EXPECT_YOUNG(true, page.pd_lsn.xlogid = 0, page.pd_lsn.xrecoff = 2);

	/* it is a page of a table */
	EXPECT_YOUNG(false, page.pd_special = BLCKSZ - 16);
	EXPECT_YOUNG(false, page.pd_special = 0);
	EXPECT_YOUNG(false, desc.flags &= ~PCACHE_DESC_PERMANENT);
	EXPECT_YOUNG(false, desc.fork_number = FSM_FORKNUM, desc.block_number = 2);
	EXPECT_YOUNG(false, desc.fork_number = VISIBILITYMAP_FORKNUM, desc.block_number = 0);
	EXPECT_YOUNG(false, desc.fork_number = INIT_FORKNUM, desc.block_number = 0);
	EXPECT_YOUNG(false, desc.fork_number = 9);

	/* the pool and the file can have it */
	EXPECT_YOUNG(false, desc.rel_number = 16390);
	EXPECT_YOUNG(false, desc.block_number = 10);
	EXPECT_YOUNG(false, facts.file_size = SLOT_OFFSET + BLCKSZ - 1);
}

static void
TestAllPageVerdictsSeen(void **state)
{
	for (int i = 0; i < PCACHE_NUM_PAGE_VERDICTS; i++)
	{
		/* these are found by who sees all pages */
		bool		expected = i != PCACHE_PAGE_DUPLICATE && i != PCACHE_PAGE_NOT_FITTING;

		if (((page_verdicts_seen >> i & 1) != 0) != expected)
			fail_msg("\"%s\" was %s", PCachePageVerdictName(i),
					 expected ? "never reached" : "reached");
	}
}

/*
 * What the code says that the server and pg_pcache save with is what the
 * gates ask for, from any pool of this format, and only once it is clean.
 */
static void
TestAdoptedAndClean(void **state)
{
	World		w;
	PCacheMediaReport media = {.dimms_state = PCACHE_MEDIA_CLEAN};
	PCacheSuperblock old;

	for (int i = 0; i < 100; i++)
	{
		InitWorld(&w);
		if (i > 0)
		{
			/* all but what formatting a pool sets for good */
			RandomBytes((char *) &w.sb + offsetof(PCacheSuperblock, slots_used),
						offsetof(PCacheSuperblock, reserved) -
						offsetof(PCacheSuperblock, slots_used));
			w.sb.system_identifier = Random();
		}
		old = w.sb;
		assert_true(PCacheSuperblockAdopt(&w.sb, &w.control, PCACHE_FS_TMPFS,
										  PERSISTENT_CACHE_ALWAYS, CAPACITY));
		PCacheMediaRememberDimms(&media, &w.sb);
		assert_int_not_equal(w.sb.incarnation, old.incarnation);
		assert_memory_equal(w.sb.pool_uuid, old.pool_uuid, PCACHE_UUID_LEN);
		PCacheSuperblockSetCrc(&w.sb);
		Expect(&w, PCACHE_COLD_NEW, "adopted");

		PCacheSuperblockSetClean(&w.sb, &w.control, 17);
		assert_int_equal(w.sb.saved_pages, 17);
		PCacheSuperblockSetCrc(&w.sb);
		Expect(&w, PCACHE_WARM, "clean");
		w.control.state = DB_IN_PRODUCTION;
		Expect(&w, PCACHE_COLD_CONTROL_STATE, "used since");
	}
}

/* A descriptor counts from when it is sealed until it is free. */
static void
TestSealed(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts = MakePageFacts();

	InitPage(&desc);
	desc.seq = PCACHE_DESC_FREE_SEQ;
	desc.crc ^= 1;
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_FREE);
	PCacheDescriptorSetSealed(&desc);
	assert_true(PCacheSeqIsSealed(desc.seq));
	assert_true(PCacheDescriptorIsIntact(&desc, SLOT));
	assert_false(PCacheDescriptorIsIntact(&desc, SLOT + 1));
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_KEPT);

	desc.page_lsn = PG_UINT64_MAX;
	desc.flags &= ~PCACHE_DESC_PERMANENT;
	PCacheDescriptorSetSealed(&desc);
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_KEPT);
	facts.drop_unlogged = true;
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_UNLOGGED);

	PCacheDescriptorSetFree(&desc);
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_FREE);
	assert_false(PCacheDescriptorIsIntact(&desc, SLOT));
}

int
main(void)
{
	const struct CMUnitTest pool_tests[] = {
		cmocka_unit_test(TestAdoptedAndClean),
		cmocka_unit_test(TestWarm),
		cmocka_unit_test(TestSuperblockFields),
		cmocka_unit_test(TestStates),
		cmocka_unit_test(TestControlFields),
		cmocka_unit_test(TestOtherFacts),
		cmocka_unit_test(TestOrder),
		cmocka_unit_test(TestWitness),
		cmocka_unit_test(TestSuspect),
		cmocka_unit_test(TestSuspectNote),
		cmocka_unit_test(TestEmpty),
		cmocka_unit_test(TestAllRefusalsSeen),
		cmocka_unit_test(TestHostile),
		cmocka_unit_test(TestNames),
	};
	const struct CMUnitTest page_tests[] = {
		cmocka_unit_test(TestSealed),
		cmocka_unit_test(TestPages),
		cmocka_unit_test(TestBadBlocks),
		cmocka_unit_test(TestPageFlips),
		cmocka_unit_test(TestPageOrder),
		cmocka_unit_test(TestLedger),
		cmocka_unit_test(TestYoung),
		cmocka_unit_test(TestAllPageVerdictsSeen),
	};
	int			failed;

	failed = cmocka_run_group_tests_name("pool gate", pool_tests, NULL, NULL);
	failed += cmocka_run_group_tests_name("page gate", page_tests, SetUpPages, TearDownPages);
	return failed;
}
