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

#include "storage/pcache_suspect.h"

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
	PCacheRecord record;
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

	strlcpy(w->record.directory, "/dev/shm/cache", sizeof(w->record.directory));
	w->record.capacity = CAPACITY;
	memcpy(w->record.pool_uuid, w->sb.pool_uuid, PCACHE_UUID_LEN);
	w->record.fs_kind = PCACHE_FS_TMPFS;
	w->record.incarnation = w->sb.incarnation;

	w->media.blocks = PCACHE_MEDIA_CLEAN;
	w->facts.control = &w->control;
	w->facts.record = &w->record;
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
		SB(pool_uuid, PCACHE_COLD_INCARNATION),
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
		SB(incarnation, PCACHE_COLD_INCARNATION),
		SB(generation, PCACHE_WARM),
		SB(first_epoch, PCACHE_WARM),
		SB(saved.location, PCACHE_COLD_CHECKPOINT),
		SB(saved.redo, PCACHE_COLD_CHECKPOINT),
		SB(saved.timeline, PCACHE_COLD_TIMELINE),
		SB(saved.control_crc, PCACHE_COLD_CONTROL_CHANGED),
		SB(min_recovery_point, PCACHE_COLD_CONTROL_STATE),
		SB(min_recovery_point_timeline, PCACHE_COLD_CONTROL_STATE),
		SB(control_state, PCACHE_COLD_CONTROL_STATE),
		SB(saved_pages, PCACHE_WARM),
		SB(saved_at, PCACHE_WARM),
		SB(replayed_from, PCACHE_WARM),
		SB(starts_from, PCACHE_WARM),
		SB(data_checksum_version, PCACHE_COLD_CHECKSUMS),
		SB(boot_id, PCACHE_WARM),
		SB(n_dimms, PCACHE_WARM),
		SB(dimms_state, PCACHE_WARM),
		SB(dimms, PCACHE_WARM),
		SB(headers, PCACHE_WARM),
		SB(power_rule, PCACHE_WARM),	/* the library's, see test_ledger.c */
		SB(ledger_id, PCACHE_WARM),
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
			   value == 2 ? PCACHE_COLD_ATTACHING :
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

		/* even if the pool claims to have seen it so */
		w.sb.control_state = s;
		w.sb.saved.control_crc = w.control.crc;
		Expect(&w,
			   s == DB_SHUTDOWNED || s == DB_SHUTDOWNED_IN_RECOVERY ?
			   PCACHE_WARM : PCACHE_COLD_CONTROL_STATE, "state, also in the pool");
	}
}

static void
TestStateFile(void **state)
{
	World		w;

	InitWorld(&w);
	w.facts.record = NULL;
	Expect(&w, PCACHE_COLD_INCARNATION, "no record");

	InitWorld(&w);
	for (int bit = 0; bit < PCACHE_UUID_LEN * 8; bit++)
	{
		w.record.pool_uuid[bit / 8] ^= 1 << bit % 8;
		Expect(&w, PCACHE_COLD_INCARNATION, "UUID");
		w.record.pool_uuid[bit / 8] ^= 1 << bit % 8;
	}
	for (int bit = 0; bit < 64; bit++)
	{
		w.record.incarnation ^= UINT64CONST(1) << bit;
		Expect(&w, PCACHE_COLD_INCARNATION, "incarnation");
		w.record.incarnation ^= UINT64CONST(1) << bit;
	}

	/* a run without the pool, as far as that can be told from a cut-off start */
	w.record.incarnation = 0;
	Expect(&w, PCACHE_COLD_INCARNATION, "run without the pool");
	assert_string_equal(PCachePoolGate(&w.sb, &w.facts).why.message,
						"the cluster was run without the pool");
	w.sb.state = PCACHE_STATE_DIRTY;
	assert_string_equal(PCachePoolGate(&w.sb, &w.facts).why.message,
						"the cluster was run without the pool");
	w.sb.state = PCACHE_STATE_ATTACHING;
	Expect(&w, PCACHE_COLD_INCARNATION, "cut-off start");
	assert_null(strstr(PCachePoolGate(&w.sb, &w.facts).why.message, "without the pool"));
	w.sb.state = PCACHE_STATE_EMPTY;
	Expect(&w, PCACHE_COLD_NEW, "empty");
	/* a pool without an incarnation does not agree with it either */
	w.sb.state = PCACHE_STATE_CLEAN;
	w.sb.incarnation = 0;
	Expect(&w, PCACHE_COLD_INCARNATION, "run without the pool");

	/* place and kind are for finding the pool; the UUID tells which it is */
	InitWorld(&w);
	strlcpy(w.record.directory, "/elsewhere", sizeof(w.record.directory));
	w.record.capacity++;
	w.record.fs_kind = PCACHE_FS_FSDAX;
	Expect(&w, PCACHE_WARM, "directory, capacity, kind");
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
FAULT(Major, w->sb.pg_major = 17)
FAULT(Catalog, w->control.catalog_version_no++)
FAULT(BlockSize, w->sb.block_size = 16384)
FAULT(Capacity, w->sb.capacity = PG_UINT64_MAX)
FAULT(FileSize, w->facts.file_size += MIB(2))
FAULT(Hole, w->facts.head_is_lost = true)
FAULT(System, w->control.system_identifier++)
FAULT(NoStateFile, w->facts.record = NULL)
FAULT(Uuid, w->sb.pool_uuid[15]++)
FAULT(Empty, w->sb.state = PCACHE_STATE_EMPTY)
FAULT(Incarnation, w->record.incarnation++)
FAULT(Attaching, w->sb.state = PCACHE_STATE_ATTACHING)
FAULT(Running, w->control.state = DB_IN_PRODUCTION)
FAULT(Timeline, w->sb.saved.timeline++)
FAULT(Location, w->sb.saved.location++)
FAULT(MinRecovery, w->sb.min_recovery_point = 1)
FAULT(Checksums, w->sb.data_checksum_version = 0)
FAULT(ControlCrc, w->control.crc++)
FAULT(Suspect, w->facts.suspect.died = PCacheSuspectDeath(11, 1))
FAULT(BackupLabel, w->facts.backup_label = true)
FAULT(Target, w->facts.recovery_target = true)
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
	{FaultNoStateFile, PCACHE_COLD_INCARNATION, "no record"},
	{FaultUuid, PCACHE_COLD_INCARNATION, "UUID"},
	{FaultEmpty, PCACHE_COLD_NEW, "empty"},
	{FaultIncarnation, PCACHE_COLD_INCARNATION, "incarnation"},
	{FaultSuspect, PCACHE_COLD_SUSPECT, "suspect memory"},
	{FaultAttaching, PCACHE_COLD_ATTACHING, "attaching"},
	{FaultRunning, PCACHE_COLD_CONTROL_STATE, "cluster not shut down"},
	{FaultTimeline, PCACHE_COLD_TIMELINE, "timeline"},
	{FaultLocation, PCACHE_COLD_CHECKPOINT, "checkpoint location"},
	{FaultMinRecovery, PCACHE_COLD_CONTROL_STATE, "minimum recovery point"},
	{FaultChecksums, PCACHE_COLD_CHECKSUMS, "checksums"},
	{FaultControlCrc, PCACHE_COLD_CONTROL_CHANGED, "CRC of pg_control"},
	{FaultBackupLabel, PCACHE_COLD_BACKUP_LABEL, "backup_label"},
	{FaultTarget, PCACHE_COLD_RECOVERY_TARGET, "recovery target"},
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
 * are there.  No file is larger than off_t can tell.
 */
static void
CheckHostile(const World *w)
{
	if (JudgeWorld(w) == PCACHE_WARM)
	{
		unsigned __int128 blocks_end = (unsigned __int128) w->sb.blocks_offset +
			(unsigned __int128) w->sb.capacity * BLCKSZ;
		unsigned __int128 descriptors_end = (unsigned __int128) MIB(2) +
			(unsigned __int128) w->sb.capacity * 64;

		assert_true(w->sb.capacity > 0);
		assert_true(descriptors_end <= w->sb.blocks_offset);
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
		0, 1, 4096, 8192, MIB(2), MIB(4), MIB(12), MIB(12) + 1, GIB(1),
		UINT64CONST(1) << 62, PG_INT64_MAX - MIB(2) + 1, PG_INT64_MAX
	};
	World		w;

	InitWorld(&w);
	assert_int_equal(w.sb.pool_size, MIB(12));
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
#define FLUSHED				UINT64CONST(0x5008000)

/* pg_control is as it is, and the pool's server has made it so, in this epoch. */
static void
SeeControl(World *w)
{
	w->control.crc = BitwiseCrc32c(&w->control, offsetof(ControlFileData, crc));
	w->facts.control_seen[PCACHE_CONTROL_PENDING] =
		PCacheControlPending(&w->control, 5, 7, w->control.time);
	w->facts.control_seen[PCACHE_CONTROL_CONFIRMED] =
		PCacheControlConfirmed(&w->control, 5, 7);
}

/*
 * A pool that was in use in mode always when the server stopped, with a
 * pg_wal in the working directory.  The witness ends in the middle of a page.
 */
static void
InitCrash(World *w)
{
	char		wal[XLOG_BLCKSZ];
	PCacheWatermark *watermark = &w->facts.watermark;

	InitWorld(w);
	w->control.state = DB_IN_PRODUCTION;
	w->control.xlog_seg_size = WAL_SEGMENT_SIZE;
	SeeControl(w);
	w->sb.state = PCACHE_STATE_DIRTY;
	w->sb.mode = PERSISTENT_CACHE_ALWAYS;
	memset(&w->sb.saved, 0, sizeof(w->sb.saved));
	memset(w->sb.boot_id, 0x11, PCACHE_UUID_LEN);
	memset(w->facts.boot_id, 0x11, PCACHE_UUID_LEN);
	w->facts.recovery_timeline = 3;

	for (int i = 0; i < sizeof(wal); i++)
		wal[i] = i * 7 + 1;
	WriteFile("pg_wal/000000030000000000000050", wal, sizeof(wal));
	watermark->flushed = FLUSHED;
	assert_true(PCacheWitnessFind(watermark, wal, 0x200, UINT64CONST(0x5000200), 3,
								  WAL_SEGMENT_SIZE));
}

/* Change one byte of the segment; 0 if that worked. */
static int
PatchWal(long offset)
{
	FILE	   *file = fopen("pg_wal/000000030000000000000050", "r+");

	if (file == NULL || fseek(file, offset, SEEK_SET) != 0 || fputc(0, file) != 0)
		return -1;
	return fclose(file);
}

static void
TestAfterCrash(void **state)
{
	World		w;
	World		next;
	PCachePageFacts facts;
	char	   *dir = MakeTempDirectory("/tmp");

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("pg_wal", 0700), 0);

	InitCrash(&w);
	Expect(&w, PCACHE_WARM, "crash");
	w.sb.mode = PERSISTENT_CACHE_PLANNED_RESTART;
	Expect(&w, PCACHE_COLD_DIRTY, "crash in planned_restart");
	InitCrash(&w);
	w.sb.state = PCACHE_STATE_ATTACHING;
	Expect(&w, PCACHE_COLD_ATTACHING, "crash while attaching");

	/*
	 * pg_control one checkpoint behind the pool, in step, and ahead of it:
	 * each half has the epoch that goes with its checkpoint
	 */
	InitCrash(&w);
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, 7);
	assert_int_equal(facts.redo, w.control.checkPointCopy.redo);
	next = w;
	next.control.checkPoint += 0x100;
	next.control.checkPointCopy.redo += 0x180;
	next.control.crc = BitwiseCrc32c(&next.control, offsetof(ControlFileData, crc));
	w.facts.control_seen[PCACHE_CONTROL_PENDING] =
		PCacheControlPending(&next.control, 6, 8, next.control.time);
	Expect(&w, PCACHE_WARM, "pending not in pg_control");
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, 7);
	w.control = next.control;
	Expect(&w, PCACHE_WARM, "pending in pg_control");
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, 8);
	assert_int_equal(facts.redo, next.control.checkPointCopy.redo);
	w.facts.control_seen[PCACHE_CONTROL_CONFIRMED] =
		PCacheControlConfirmed(&next.control, 6, 8);
	Expect(&w, PCACHE_WARM, "confirmed");
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, 8);
	w.control.checkPoint += 0x100;
	w.control.crc = BitwiseCrc32c(&w.control, offsetof(ControlFileData, crc));
	Expect(&w, PCACHE_COLD_CHECKPOINT, "a checkpoint without the pool");
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, 0);
	w.sb.state = PCACHE_STATE_CLEAN;
	PCacheSetCompleted(&facts, &w.sb, &w.facts);
	assert_int_equal(facts.completed_epoch, PG_UINT64_MAX);
	assert_int_equal(facts.redo, w.control.checkPointCopy.redo);
	InitCrash(&w);
	w.control.checkPointCopy.redo -= 0x10;
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "redo point");
	InitCrash(&w);
	w.control.checkPointCopy.ThisTimeLineID = 4;
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "timeline of the checkpoint");
	InitCrash(&w);
	w.control.data_checksum_version = 0;
	Expect(&w, PCACHE_COLD_CHECKSUMS, "checksums");

	/* another boot */
	InitCrash(&w);
	w.facts.boot_id[15] ^= 1;
	w.sb.fs_kind = PCACHE_FS_TMPFS;
	Expect(&w, PCACHE_COLD_POWER, "reboot, tmpfs");
	w.sb.fs_kind = PCACHE_FS_HUGETLBFS;
	Expect(&w, PCACHE_COLD_POWER, "reboot, hugetlbfs");
	w.sb.fs_kind = PCACHE_FS_FSDAX;
	Expect(&w, PCACHE_WARM, "reboot, fsdax, domain unknown, to be used");
	w.facts.cold_on_media_unknown = true;
	Expect(&w, PCACHE_COLD_MEDIA_UNKNOWN, "reboot, fsdax, domain unknown");
	w.facts.cold_on_media_unknown = false;
	w.media.domain = PCACHE_DOMAIN_NONE;
	Expect(&w, PCACHE_COLD_POWER, "reboot, fsdax, no persistence domain");
	w.media.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
	Expect(&w, PCACHE_WARM, "reboot, fsdax, DIMMs unknown, to be used");
	w.facts.cold_on_media_unknown = true;
	Expect(&w, PCACHE_COLD_MEDIA_UNKNOWN, "reboot, fsdax, DIMMs unknown");
	w.sb.dimms_state = w.media.dimms_state = PCACHE_MEDIA_CLEAN;
	w.sb.n_dimms = w.media.n_dimms = 1;
	strcpy(w.sb.dimms[0].id, "8089-a2-1837-00000bb3");
	strcpy(w.media.dimms[0].id, "8089-a2-1837-00000bb3");
	w.sb.dimms[0].unsafe_shutdowns = w.media.dimms[0].unsafe_shutdowns = 5;
	Expect(&w, PCACHE_WARM, "reboot, fsdax, safe shutdown");
	w.media.dimms[0].unsafe_shutdowns = 6;
	Expect(&w, PCACHE_COLD_POWER, "reboot, fsdax, unsafe shutdown");
	w.media.dimms[0].unsafe_shutdowns = 5;
	w.media.dimms[0].id[20] = '4';
	Expect(&w, PCACHE_COLD_POWER, "reboot, fsdax, another DIMM");

	/* the watermark */
	InitCrash(&w);
	w.facts.watermark.flushed = 0;
	Expect(&w, PCACHE_COLD_WATERMARK, "no watermark");
	InitCrash(&w);
	w.facts.watermark.flushed = w.control.checkPointCopy.redo - 1;
	Expect(&w, PCACHE_COLD_WATERMARK, "watermark before the redo point");
	InitCrash(&w);
	w.facts.recovery_timeline = 4;
	Expect(&w, PCACHE_COLD_TIMELINE, "recovery on another timeline");
	InitCrash(&w);
	w.facts.watermark.witness_hash ^= 1;
	Expect(&w, PCACHE_COLD_WATERMARK, "witness hash");
	InitCrash(&w);
	w.facts.watermark.witness += 8;
	Expect(&w, PCACHE_COLD_WATERMARK, "witness position");
	w.facts.watermark.witness = 0;
	Expect(&w, PCACHE_COLD_WATERMARK, "witness before any WAL");
	InitCrash(&w);
	assert_int_equal(PatchWal(0x1ff), 0);
	Expect(&w, PCACHE_COLD_WATERMARK, "other WAL");
	assert_int_equal(unlink("pg_wal/000000030000000000000050"), 0);
	Expect(&w, PCACHE_COLD_WATERMARK, "no WAL");

	assert_int_equal(chdir("/"), 0);
	RemoveTree(dir);
	free(dir);
}

/*
 * pg_control as another server makes it: each byte of it, each bit of what the
 * pool says of it, and which of the two halves is to be believed.
 */
static void
TestControlSeen(void **state)
{
	World		w;
	World		other;
	PCacheControlSeen *pending = &w.facts.control_seen[PCACHE_CONTROL_PENDING];
	PCacheControlSeen *confirmed = &w.facts.control_seen[PCACHE_CONTROL_CONFIRMED];
	const size_t crc_offset = offsetof(ControlFileData, crc);
	char	   *dir = MakeTempDirectory("/tmp");

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("pg_wal", 0700), 0);
	InitCrash(&w);
	for (int half = 0; half < 2; half++)
		assert_int_equal(w.facts.control_seen[half].crc,
						 BitwiseCrc32c(&w.facts.control_seen[half],
									   offsetof(PCacheControlSeen, crc)));
	assert_int_equal(confirmed->control_crc, w.control.crc);
	assert_int_equal(confirmed->time, w.control.time);
	assert_int_equal(pending->control_crc, 0);

	/* nothing of pg_control may be another, with the CRC that it has then */
	for (size_t i = 0; i < crc_offset; i++)
	{
		for (int bit = 0; bit < 8; bit++)
		{
			((uint8 *) &w.control)[i] ^= 1 << bit;
			assert_null(PCacheControlAsSeen(w.facts.control_seen, &w.control));
			w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
			assert_null(PCacheControlAsSeen(w.facts.control_seen, &w.control));
			assert_int_not_equal(JudgeWorld(&w), PCACHE_WARM);
			((uint8 *) &w.control)[i] ^= 1 << bit;
			w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
		}
	}
	Expect(&w, PCACHE_WARM, "pg_control as it was");
	w.control.state = DB_IN_CRASH_RECOVERY;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "another server began to recover");
	InitCrash(&w);
	w.control.time++;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "pg_control written again");
	InitCrash(&w);
	w.control.crc ^= 1;
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "another CRC");

	/* each field of the confirmed half alone, with a right CRC of its own */
	InitCrash(&w);
	confirmed->contents ^= 1;
	confirmed->crc = PCacheControlSeenCrc(confirmed);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "confirmed contents");
	InitCrash(&w);
	confirmed->time++;
	confirmed->crc = PCacheControlSeenCrc(confirmed);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "confirmed time");
	InitCrash(&w);
	confirmed->control_crc ^= 1;
	confirmed->crc = PCacheControlSeenCrc(confirmed);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "confirmed CRC");

	/* a damaged one does not count; the pending one knows as much */
	InitCrash(&w);
	for (int bit = 0; bit < 8 * (int) sizeof(PCacheControlSeen); bit++)
	{
		((uint8 *) confirmed)[bit / 8] ^= 1 << bit % 8;
		Expect(&w, PCACHE_WARM, "confirmed half damaged");
		((uint8 *) confirmed)[bit / 8] ^= 1 << bit % 8;
		((uint8 *) pending)[bit / 8] ^= 1 << bit % 8;
		Expect(&w, PCACHE_WARM, "pending half damaged");
		memset(confirmed, 0, sizeof(*confirmed));
		Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "both halves damaged");
		InitCrash(&w);
	}

	/*
	 * a line of zeros, as of a pool that an older server has used; and no
	 * number
	 */
	memset(w.facts.control_seen, 0, sizeof(w.facts.control_seen));
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "no line");
	for (int half = 0; half < 2; half++)
	{
		InitCrash(&w);
		memset(w.facts.control_seen, 0, sizeof(w.facts.control_seen));
		w.facts.control_seen[half] = half == PCACHE_CONTROL_PENDING ?
			PCacheControlPending(&w.control, 0, 7, w.control.time) :
			PCacheControlConfirmed(&w.control, 0, 7);
		Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "a half without a number");
	}

	/*
	 * The server dies between the pending half and pg_control, and between
	 * pg_control and the confirmed half.
	 */
	InitCrash(&w);
	other = w;
	other.control.minRecoveryPoint += 0x1000;
	other.control.time += 60;
	other.control.crc = BitwiseCrc32c(&other.control, crc_offset);
	*pending = PCacheControlPending(&other.control, 6, 7, other.control.time);
	Expect(&w, PCACHE_WARM, "pending, not in pg_control");
	w.control = other.control;
	Expect(&w, PCACHE_WARM, "pending, in pg_control");
	w.control.time++;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_WARM, "pending, in pg_control a second later");
	w.control.time++;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "pending, in pg_control two seconds later");
	w.control.time -= 3;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "pending, in pg_control before it");
	w.control.time = PG_INT64_MIN;
	assert_null(PCacheControlAsSeen(w.facts.control_seen, &w.control));
	w.control = other.control;
	w.control.minRecoveryPoint++;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "something else in pg_control");

	/* what was confirmed since is not to be seen again */
	w.control = other.control;
	*confirmed = PCacheControlConfirmed(&w.control, 6, 7);
	Expect(&w, PCACHE_WARM, "confirmed");
	w.control.time++;
	w.control.crc = BitwiseCrc32c(&w.control, crc_offset);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "written again after it was confirmed");
	*confirmed = PCacheControlConfirmed(&other.control, 7, 7);
	Expect(&w, PCACHE_COLD_CONTROL_CHANGED, "an older pending half");

	assert_int_equal(chdir("/"), 0);
	RemoveTree(dir);
	free(dir);
}

/* The two slots of the watermark, and what can be a witness. */
static void
TestWatermark(void **state)
{
	PCacheWatermark slots[2];
	PCacheWatermark chosen;

	memset(slots, 0, sizeof(slots));
	assert_false(PCacheWatermarkChoose(slots, &chosen));
	for (int i = 0; i < 2; i++)
	{
		slots[i].flushed = 100 + i;
		slots[i].crc = BitwiseCrc32c(&slots[i], 28);
		assert_int_equal(PCacheWatermarkCrc(&slots[i]), slots[i].crc);
	}
	assert_true(PCacheWatermarkChoose(slots, &chosen));
	assert_int_equal(chosen.flushed, 101);
	for (int i = 0; i < sizeof(PCacheWatermark); i++)
	{
		((char *) &slots[1])[i] ^= 4;
		assert_true(PCacheWatermarkChoose(slots, &chosen));
		assert_int_equal(chosen.flushed, 100);
		((char *) &slots[1])[i] ^= 4;
	}
	slots[0].flushed = 102;
	slots[0].crc = BitwiseCrc32c(&slots[0], 28);
	assert_true(PCacheWatermarkChoose(slots, &chosen));
	assert_int_equal(chosen.flushed, 102);

	/* a later timeline is further on */
	slots[1].flushed = 90;
	slots[1].timeline = 1;
	slots[1].crc = BitwiseCrc32c(&slots[1], 28);
	assert_true(PCacheWatermarkChoose(slots, &chosen));
	assert_int_equal(chosen.flushed, 90);
	assert_false(PCacheWatermarkIsBehind(&slots[1], 1, 90));
	assert_true(PCacheWatermarkIsBehind(&slots[1], 1, 91));
	assert_false(PCacheWatermarkIsBehind(&slots[1], 0, 102));
}

/* The witness that is found for WAL of len bytes which ends at end. */
static PCacheWatermark
Find(const char *bytes, size_t len, uint64 end)
{
	PCacheWatermark watermark = {0};

	assert_true(PCacheWitnessFind(&watermark, bytes, len, end, 3, WAL_SEGMENT_SIZE));
	return watermark;
}

/*
 * Where the witness is, from memory and from disk, and that any WAL which ends
 * before the watermark fails it.
 */
static void
TestWitness(void **state)
{
	static char wal[2 * WAL_SEGMENT_SIZE];
	const uint64 begin = UINT64CONST(0x5000000);
	char	   *dir = MakeTempDirectory("/tmp");
	PCacheWatermark watermark;
	PCacheWatermark disk;
	PCacheError err;

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("pg_wal", 0700), 0);
	for (int i = 0; i < 3 * XLOG_BLCKSZ; i++)
		wal[i] = i * 7 % 251 + 1;
	for (int i = 0; i < 3 * XLOG_BLCKSZ; i++)
		wal[WAL_SEGMENT_SIZE + i] = i * 11 % 241 + 1;
	WriteFile("pg_wal/000000030000000000000050", wal, WAL_SEGMENT_SIZE);
	WriteFile("pg_wal/000000030000000000000051", wal + WAL_SEGMENT_SIZE, WAL_SEGMENT_SIZE);

	/* nothing but zeros is no witness */
	memset(&watermark, 0, sizeof(watermark));
	assert_false(PCacheWitnessFind(&watermark, wal + 4 * XLOG_BLCKSZ, XLOG_BLCKSZ,
								   begin + 5 * XLOG_BLCKSZ, 3, WAL_SEGMENT_SIZE));

	/* any place, also near the beginning of a page or a segment */
	for (int segment = 0; segment < 2; segment++)
	{
		for (int end = 8; end <= 3 * XLOG_BLCKSZ; end += 8)
		{
			const char *start = wal + segment * WAL_SEGMENT_SIZE;
			uint64		lsn = begin + segment * WAL_SEGMENT_SIZE + end;
			int			in_page = (end - 1) % XLOG_BLCKSZ + 1;

			/* all of it, or its last page only */
			watermark = Find(start, end, lsn);
			disk = Find(start + end - in_page, in_page, lsn);
			assert_memory_equal(&disk, &watermark, sizeof(disk));
			assert_int_equal(watermark.witness, lsn);
			assert_true(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
			if (end == 3 * XLOG_BLCKSZ)
				continue;
			assert_true(PCacheWatermarkFromDisk(&disk, 3, lsn, WAL_SEGMENT_SIZE));
			assert_int_equal(disk.flushed, lsn);
			assert_int_equal(disk.crc, PCacheWatermarkCrc(&disk));
			assert_int_equal(disk.witness, lsn);
			assert_int_equal(disk.witness_hash, watermark.witness_hash);
		}
	}

	/* padding up to the end of the segment */
	watermark = Find(wal, WAL_SEGMENT_SIZE, begin + WAL_SEGMENT_SIZE);
	assert_int_equal(watermark.witness, begin + 3 * XLOG_BLCKSZ);
	assert_true(PCacheWatermarkFromDisk(&disk, 3, begin + WAL_SEGMENT_SIZE, WAL_SEGMENT_SIZE));
	assert_int_equal(disk.flushed, begin + WAL_SEGMENT_SIZE);
	assert_int_equal(disk.witness, begin + 3 * XLOG_BLCKSZ);

	/* the same bytes elsewhere are another history, or another place in it */
	assert_int_not_equal(Find(wal, 1000, begin + 1000).witness_hash,
						 Find(wal, 1000, begin + 1008).witness_hash);

	/* WAL that ends before the witness */
	watermark = Find(wal, 2 * XLOG_BLCKSZ + 24, begin + 2 * XLOG_BLCKSZ + 24);
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

	/* no WAL: neither found nor matched */
	assert_int_equal(unlink("pg_wal/000000030000000000000050"), 0);
	assert_false(PCacheWitnessMatches(&watermark, WAL_SEGMENT_SIZE, &err));
	assert_false(PCacheWatermarkFromDisk(&disk, 3, watermark.witness, WAL_SEGMENT_SIZE));
	watermark = Find(wal + XLOG_BLCKSZ, 8, begin + XLOG_BLCKSZ + 8);
	assert_int_equal(watermark.witness, 0);

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
	static const PCacheState states[] = {PCACHE_STATE_ATTACHING, PCACHE_STATE_DIRTY, PCACHE_STATE_CLEAN};
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

/* Databases that redo copies: which ones must be known. */
static void
TestCopies(void **state)
{
	PCacheMapping map = {.kind = PCACHE_PERSIST_MEMORY};
	char	   *image = calloc(1, PCACHE_COPY_NOTES_OFFSET + sizeof(((PCacheGateFacts *) NULL)->copies));
	PCachePageFacts facts = {0};
	uint64		redo;
	World		w;

	InitWorld(&w);
	redo = w.facts.control->checkPointCopy.redo;
	map.base = image;
	PCacheCopyNoteStore(&map, 16384, redo);
	PCacheCopyNoteStore(&map, 16385, redo - 1);
	memcpy(w.facts.copies, image + PCACHE_COPY_NOTES_OFFSET, sizeof(w.facts.copies));
	Expect(&w, PCACHE_WARM, "a database that is copied");
	PCacheSetCopied(&facts, &w.facts);
	assert_int_equal(facts.n_copied, 1);
	assert_int_equal(facts.copied[0], 16384);

	for (int i = 0; i < PCACHE_MAX_COPY_NOTES; i++)
		PCacheCopyNoteStore(&map, 20000 + i, redo - 1);
	memcpy(w.facts.copies, image + PCACHE_COPY_NOTES_OFFSET, sizeof(w.facts.copies));
	Expect(&w, PCACHE_WARM, "no room, before the redo point");
	PCacheCopyNoteStore(&map, 30000, redo);
	memcpy(w.facts.copies, image + PCACHE_COPY_NOTES_OFFSET, sizeof(w.facts.copies));
	Expect(&w, PCACHE_COLD_COPIES, "no room");

	InitWorld(&w);
	w.facts.copies[3].lsn = 1;
	Expect(&w, PCACHE_COLD_COPIES, "a damaged note");
	InitWorld(&w);
	w.media.blocks = PCACHE_MEDIA_BAD;
	PCacheRangeAdd(&w.media.bad, PCACHE_COPY_NOTES_OFFSET + sizeof(w.facts.copies) - 1, 1);
	Expect(&w, PCACHE_COLD_COPIES, "a bad block below the last note");
	w.media.bad.ranges[0].offset++;
	Expect(&w, PCACHE_WARM, "a bad block behind the notes");
	PCacheMediaReportFree(&w.media);
	free(image);
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
		if ((refusals_seen >> i & 1) == 0)
			fail_msg("\"%s\" was never reached", PCacheRefusalName(i));
	}
}

static void
TestLsnLimit(void **state)
{
	World		w;

	InitWorld(&w);
	w.control.checkPoint = UINT64CONST(0x100000028);
	w.control.checkPointCopy.redo = UINT64CONST(0x1);
	w.facts.watermark.flushed = UINT64CONST(0x300000000);
	assert_int_equal(PCacheLsnLimit(&w.sb, &w.facts), UINT64CONST(0x100000028));
	w.control.minRecoveryPoint = UINT64CONST(0x100000027);
	assert_int_equal(PCacheLsnLimit(&w.sb, &w.facts), UINT64CONST(0x100000028));
	w.control.minRecoveryPoint = UINT64CONST(0x200000000);
	assert_int_equal(PCacheLsnLimit(&w.sb, &w.facts), UINT64CONST(0x200000000));
	w.sb.state = PCACHE_STATE_DIRTY;
	assert_int_equal(PCacheLsnLimit(&w.sb, &w.facts), UINT64CONST(0x300000000));
}

/*
 * Pages
 */

#define SLOT			5
#define LSN_LIMIT		UINT64CONST(0x5000028)
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
	desc->seq = 1234;
	desc->page_lsn = LSN_LIMIT;
	desc->dirty_epoch = 3;
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

	facts->sizes = PCacheRelSizesCreate(facts->unchanged_since);
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
	PCachePageFacts facts = {.lsn_limit = LSN_LIMIT,.media = &page_media,
		.blocks_offset = BLOCKS_OFFSET,.file_size = SLOT_OFFSET + BLCKSZ,
	.completed_epoch = 10,.redo = LSN_LIMIT};

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
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.seq = 0);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.usage_count = 255);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.dirty_epoch = PG_UINT64_MAX);

	/* without an LSN only what is on disk, but for free space maps */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.page_lsn = 0, desc.dirty_epoch = 9);
	EXPECT_PAGE(PCACHE_PAGE_NO_LSN, desc.page_lsn = 0, desc.dirty_epoch = 10);
	EXPECT_PAGE(PCACHE_PAGE_NO_LSN, desc.page_lsn = 1, desc.dirty_epoch = 10);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.page_lsn = 2, desc.dirty_epoch = 10);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.page_lsn = 0, desc.dirty_epoch = 10,
				desc.fork_number = FSM_FORKNUM, desc.block_number = 2);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.page_lsn = 0, desc.dirty_epoch = 10, desc.flags = 0);

	/* what names blocks of its file, if files may have lost their length */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.flags |= PCACHE_DESC_NAMES_BLOCKS, desc.dirty_epoch = 10);
	EXPECT_PAGE(PCACHE_PAGE_NO_LSN, desc.flags |= PCACHE_DESC_NAMES_BLOCKS, desc.dirty_epoch = 10,
				facts.host_restarted = true);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.flags |= PCACHE_DESC_NAMES_BLOCKS, desc.dirty_epoch = 9,
				facts.host_restarted = true);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.dirty_epoch = 10, facts.host_restarted = true);

	EXPECT_PAGE(PCACHE_PAGE_FREE, desc.seq = 1);
	EXPECT_PAGE(PCACHE_PAGE_FREE, desc.seq = PG_UINT64_MAX);
	EXPECT_PAGE(PCACHE_PAGE_FREE, memset(&desc, 0, sizeof(desc)), desc.seq = PCACHE_DESC_FREE_SEQ);

	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.version = 2);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.version = 0);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.slot = SLOT + 1);
	EXPECT_PAGE(PCACHE_PAGE_CRC, memset(&desc, 0, sizeof(desc)));
	EXPECT_PAGE(PCACHE_PAGE_CRC, memset(&desc, 0, sizeof(desc)), desc.slot = SLOT);

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

	/* databases that redo copies */
	EXPECT_PAGE(PCACHE_PAGE_COPIED, facts.n_copied = 2, facts.copied[1] = desc.db_oid);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.n_copied = 1, facts.copied[0] = desc.db_oid + 1);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.n_copied = 1, facts.copied[1] = desc.db_oid);

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

	EXPECT_PAGE(PCACHE_PAGE_LSN, desc.page_lsn = LSN_LIMIT + 1);
	EXPECT_PAGE(PCACHE_PAGE_LSN, desc.page_lsn = PG_UINT64_MAX);
	EXPECT_PAGE(PCACHE_PAGE_LSN, facts.lsn_limit = 0);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.page_lsn = 0, facts.lsn_limit = 0);
	EXPECT_PAGE(PCACHE_PAGE_LSN, facts.drop_unlogged = true, desc.page_lsn++);

	/* an unlogged page's LSN is not one of the WAL's */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, desc.flags = 0, desc.page_lsn = PG_UINT64_MAX);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED, desc.flags = 0, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED,
				desc.flags = (uint16) ~PCACHE_DESC_PERMANENT, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.drop_unlogged = true);
}

/* Which of the pages that are kept are dirty. */
static void
TestDirty(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts = MakePageFacts();

	InitPage(&desc);
	assert_false(PCachePageIsDirty(&desc, &facts));
	desc.dirty_epoch = 9;
	assert_false(PCachePageIsDirty(&desc, &facts));
	desc.dirty_epoch = 10;
	assert_true(PCachePageIsDirty(&desc, &facts));
	desc.dirty_epoch = PG_UINT64_MAX;
	facts.completed_epoch = PG_UINT64_MAX;
	assert_true(PCachePageIsDirty(&desc, &facts));

	/* redo of another server may have put an older image into the file */
	InitPage(&desc);
	facts.redo = desc.page_lsn - 1;
	assert_true(PCachePageIsDirty(&desc, &facts));
	facts.completed_epoch = PG_UINT64_MAX;
	assert_true(PCachePageIsDirty(&desc, &facts));
	facts.redo = desc.page_lsn;
	assert_false(PCachePageIsDirty(&desc, &facts));
	facts.redo = 0;
	desc.page_lsn = 0;
	assert_false(PCachePageIsDirty(&desc, &facts));

	/* but not one that is not in WAL, and whose LSN is none of it */
	InitPage(&desc);
	desc.flags = 0;
	assert_false(PCachePageIsDirty(&desc, &facts));
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
				/* still even: the rest says the same */
				assert_int_equal(verdict, PCACHE_PAGE_KEPT);
				assert_memory_equal((char *) &desc + 8, (char *) &good + 8, 56);
			}
			else
				assert_int_equal(verdict, PCACHE_PAGE_CRC);
		}
	}

	/* a descriptor that got into another one's place */
	assert_int_equal(JudgePage(&good, &facts), PCACHE_PAGE_KEPT);
	facts.sizes = PCacheRelSizesCreate(0);
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
	EXPECT_PAGE(PCACHE_PAGE_LSN, facts.media = &bad, desc.page_lsn++);
	EXPECT_PAGE(PCACHE_PAGE_UNLOGGED,
				facts.media = &bad, desc.page_lsn++,
				desc.flags = 0, facts.drop_unlogged = true);
	EXPECT_PAGE(PCACHE_PAGE_TAG, facts.media = &bad, desc.page_lsn++, desc.rel_number = 0);
	EXPECT_PAGE(PCACHE_PAGE_CRC, desc.rel_number = 0, desc.version++);
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

/* The library's rule for entries of its ledger, see JudgeEntry(). */
static void
TestLedger(void **state)
{
	PCacheDescriptor desc;
	PCachePageFacts facts;

#define EXPECT_ENTRY(expected, written, ...) \
	EXPECT_PAGE(expected, facts.is_ledger = true, facts.all_written = written, \
				facts.generation = 44, desc.seq = PCACHE_DESC_SAVED_SEQ, \
				desc.page_lsn = facts.redo - 1, __VA_ARGS__)

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
	/* descriptors of the patched server have any number */
	EXPECT_PAGE(PCACHE_PAGE_KEPT, facts.generation = 44, facts.sums_only = true);

	/* epochs, and what the patched server knows of WAL, play no role */
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, false, desc.dirty_epoch = PG_UINT64_MAX);
	EXPECT_ENTRY(PCACHE_PAGE_KEPT, false, facts.lsn_limit = 0);
	EXPECT_ENTRY(PCACHE_PAGE_NO_FILE, true, desc.rel_number = 16390);
	EXPECT_ENTRY(PCACHE_PAGE_BEYOND_EOF, false, desc.block_number = 10);
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
		Expect(&w, PCACHE_COLD_INCARNATION, "not recorded in PGDATA");
		w.record.incarnation = w.sb.incarnation;
		Expect(&w, PCACHE_COLD_ATTACHING, "adopted");

		PCacheSuperblockSetClean(&w.sb, &w.control, 17);
		assert_int_equal(w.sb.saved_pages, 17);
		PCacheSuperblockSetCrc(&w.sb);
		Expect(&w, PCACHE_WARM, "clean");
		w.control.state = DB_IN_PRODUCTION;
		Expect(&w, PCACHE_COLD_CONTROL_STATE, "used since");
	}
}

/* Descriptors as the server and pg_pcache make them. */
static void
TestDescribe(void **state)
{
	PCacheDescriptor desc;
	PCacheDescriptor expected;
	PCachePageFacts facts = MakePageFacts();
	RelFileLocator rlocator = {DEFAULTTABLESPACE_OID, 5, 16384};

	InitPage(&expected);
	RandomBytes(&desc, sizeof(desc));
	PCacheDescriptorDescribe(&desc, SLOT, rlocator, MAIN_FORKNUM, 9, LSN_LIMIT, true, 4);
	desc.dirty_epoch = 3;
	desc.seq = PCACHE_DESC_FREE_SEQ;
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_FREE);
	PCacheDescriptorSetSealed(&desc);
	assert_true(PCacheSeqIsSealed(desc.seq));
	expected.seq = desc.seq;
	assert_memory_equal(&desc, &expected, sizeof(desc));
	assert_true(PCacheDescriptorIsIntact(&desc, SLOT));
	assert_false(PCacheDescriptorIsIntact(&desc, SLOT + 1));
	assert_int_equal(JudgePage(&desc, &facts), PCACHE_PAGE_KEPT);

	PCacheDescriptorDescribe(&desc, SLOT, rlocator, MAIN_FORKNUM, 9, PG_UINT64_MAX, false, 0);
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
		cmocka_unit_test(TestStateFile),
		cmocka_unit_test(TestOtherFacts),
		cmocka_unit_test(TestOrder),
		cmocka_unit_test(TestAfterCrash),
		cmocka_unit_test(TestControlSeen),
		cmocka_unit_test(TestWatermark),
		cmocka_unit_test(TestWitness),
		cmocka_unit_test(TestSuspect),
		cmocka_unit_test(TestSuspectNote),
		cmocka_unit_test(TestCopies),
		cmocka_unit_test(TestEmpty),
		cmocka_unit_test(TestAllRefusalsSeen),
		cmocka_unit_test(TestHostile),
		cmocka_unit_test(TestNames),
		cmocka_unit_test(TestLsnLimit),
	};
	const struct CMUnitTest page_tests[] = {
		cmocka_unit_test(TestDescribe),
		cmocka_unit_test(TestPages),
		cmocka_unit_test(TestDirty),
		cmocka_unit_test(TestBadBlocks),
		cmocka_unit_test(TestPageFlips),
		cmocka_unit_test(TestPageOrder),
		cmocka_unit_test(TestLedger),
		cmocka_unit_test(TestAllPageVerdictsSeen),
	};
	int			failed;

	failed = cmocka_run_group_tests_name("pool gate", pool_tests, NULL, NULL);
	failed += cmocka_run_group_tests_name("page gate", page_tests, SetUpPages, TearDownPages);
	return failed;
}
