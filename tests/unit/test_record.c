/*-------------------------------------------------------------------------
 *
 * test_record.c
 *	  What PGDATA remembers of its pool, damaged in every way.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_record.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <sys/resource.h>

#include "storage/pcache_find.h"

#include "unit.h"

static char *datadir;

static int
SetUp(void **state)
{
	/* many small writes: better not on a disk */
	datadir = MakeTempDirectory(IsTmpfs("/dev/shm") && access("/dev/shm", W_OK) == 0 ?
								"/dev/shm" : "/tmp");
	return 0;
}

static int
TearDown(void **state)
{
	RemoveTree(datadir);
	free(datadir);
	return 0;
}

static const char *
StatePath(void)
{
	return Join(datadir, "pg_pcache.state");
}

static PCacheRecord
MakeState(void)
{
	PCacheRecord s;

	memset(&s, 0, sizeof(s));
	strlcpy(s.directory, "/dev/shm/my cache = 1/crc = 2", sizeof(s.directory));
	s.capacity = UINT64CONST(16777216);
	for (int i = 0; i < PCACHE_UUID_LEN; i++)
		s.pool_uuid[i] = i * 17;
	s.fs_kind = PCACHE_FS_HUGETLBFS;
	s.incarnation = UINT64CONST(0x0123456789abcdef);
	return s;
}

static void
ExpectEqual(const PCacheRecord *a, const PCacheRecord *b)
{
	assert_string_equal(a->directory, b->directory);
	assert_int_equal(a->capacity, b->capacity);
	assert_memory_equal(a->pool_uuid, b->pool_uuid, PCACHE_UUID_LEN);
	assert_int_equal(a->fs_kind, b->fs_kind);
	assert_int_equal(a->incarnation, b->incarnation);
	assert_memory_equal(a->image, b->image, PCACHE_DIGEST_LEN);
}

static void
ExpectDamaged(const char *what)
{
	PCacheRecord got;
	PCacheError err;

	err.message[0] = err.hint[0] = '\0';
	if (PCacheRecordRead(datadir, &got, &err) != PCACHE_RECORD_ERROR)
		fail_msg("%s: not noticed", what);
	assert_contains(err.message, "is damaged");
	assert_contains(err.hint, "pg_pcache init --force");
}

static void
RoundTrip(const PCacheRecord *s)
{
	PCacheRecord got;
	PCacheError err;

	if (!PCacheRecordWrite(datadir, 0600, s, &err))
		fail_msg("%s", err.message);
	memset(&got, 0x55, sizeof(got));
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	ExpectEqual(&got, s);
	assert_false(Exists(Join(datadir, "pg_pcache.state.tmp")));
}

static void
TestRoundTrip(void **state)
{
	PCacheRecord s = MakeState();

	RoundTrip(&s);
	for (s.fs_kind = PCACHE_FS_FILE; s.fs_kind <= PCACHE_FS_FSDAX; s.fs_kind++)
		RoundTrip(&s);
	s = MakeState();
	s.capacity = 1;
	RoundTrip(&s);
	s.capacity = PCACHE_MAX_CAPACITY;
	RoundTrip(&s);
	s.incarnation = 0;
	RoundTrip(&s);
	s.incarnation = PG_UINT64_MAX;
	RoundTrip(&s);
	memset(s.pool_uuid, 0, PCACHE_UUID_LEN);
	RoundTrip(&s);
	memset(s.pool_uuid, 0xFF, PCACHE_UUID_LEN);
	RoundTrip(&s);
	s.image[PCACHE_DIGEST_LEN - 1] = 1;
	RoundTrip(&s);
	memset(s.image, 0xFF, PCACHE_DIGEST_LEN);
	RoundTrip(&s);

	/* the longest name; one with every other byte; lines within a line */
	memset(s.directory, 'd', MAXPGPATH - 1);
	s.directory[0] = '/';
	s.directory[MAXPGPATH - 1] = '\0';
	RoundTrip(&s);
	for (int i = 1; i < 256; i++)
		s.directory[i] = i == '\n' ? 'n' : i;
	s.directory[256] = '\0';
	RoundTrip(&s);
	strlcpy(s.directory, "/a\rcrc = 00000000\r# version = 2 ", MAXPGPATH);
	RoundTrip(&s);

	SeedRandom();
	for (int i = 0; i < 20; i++)
	{
		RandomBytes(s.pool_uuid, sizeof(s.pool_uuid));
		RandomBytes(s.image, sizeof(s.image));
		s.capacity = (Random() | 1) % PCACHE_MAX_CAPACITY + 1;
		s.incarnation = Random();
		RoundTrip(&s);
	}
}

/* The text itself is an interface: to people, and to later versions. */
static void
TestText(void **state)
{
	static const char expected[] =
		"# Where the persistent cache of this cluster is.  Do not edit.\n"
		"version = 1\n"
		"directory = /dev/shm/my cache = 1/crc = 2\n"
		"capacity = 16777216\n"
		"pool_uuid = 00112233445566778899aabbccddeeff\n"
		"file_system = hugetlbfs\n"
		"incarnation = 0123456789abcdef\n";
	static const char with_image[] =
		"image = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
	PCacheRecord s = MakeState();
	PCacheError err;
	char		all[4096];
	char		text[4096];
	size_t		len;

	/* what has saved no image is what earlier versions have written */
	for (int i = 0; i < 2; i++)
	{
		for (int j = 0; j < PCACHE_DIGEST_LEN; j++)
			s.image[j] = i * j;
		snprintf(all, sizeof(all), "%s%s", expected, i == 0 ? "" : with_image);
		len = strlen(all);
		snprintf(all + len, sizeof(all) - len, "crc = %08x\n", BitwiseCrc32c(all, len));
		assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));
		len = ReadFile(StatePath(), text, sizeof(text) - 1);
		text[len] = '\0';
		assert_string_equal(text, all);
	}
}

static void
TestModes(void **state)
{
	static const int modes[] = {0600, 0640};
	PCacheRecord s = MakeState();
	PCacheError err;
	struct stat st;
	mode_t		old_umask = umask(0);

	for (int i = 0; i < lengthof(modes); i++)
	{
		assert_true(PCacheRecordWrite(datadir, modes[i], &s, &err));
		assert_int_equal(stat(StatePath(), &st), 0);
		assert_int_equal(st.st_mode & 07777, modes[i]);
	}
	umask(old_umask);
}

static void
TestMissing(void **state)
{
	PCacheRecord got;
	PCacheError err;

	unlink(StatePath());
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_MISSING);
	assert_contains(err.message, "could not open file");
	assert_contains(err.message, StatePath());
	assert_int_equal(PCacheRecordRead(Join(datadir, "nowhere"), &got, &err),
					 PCACHE_RECORD_MISSING);

	/* there, but not to be read */
	assert_int_equal(mkdir(StatePath(), 0700), 0);
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_ERROR);
	assert_contains(err.message, "Is a directory");
	assert_int_equal(rmdir(StatePath()), 0);
	assert_int_equal(symlink("pg_pcache.state", StatePath()), 0);
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_ERROR);
	unlink(StatePath());
}

/* Each byte changed, in many ways. */
static void
TestFlips(void **state)
{
	static const uint8 patterns[] = {
		0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF, 0x0A, 0x55
	};
	PCacheRecord s = MakeState();
	PCacheRecord got;
	PCacheError err;
	char		text[4096];
	size_t		len;
	size_t		crc_digits;
	int			same = 0;

	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));
	len = ReadFile(StatePath(), text, sizeof(text));
	crc_digits = len - 9;
	for (size_t i = 0; i < len; i++)
	{
		for (int p = 0; p <= lengthof(patterns); p++)
		{
			/* and for the end of a string */
			uint8		pattern = p < lengthof(patterns) ? patterns[p] : (uint8) text[i];

			text[i] ^= pattern;
			WriteFile(StatePath(), text, len);
			text[i] ^= pattern;
			switch (PCacheRecordRead(datadir, &got, &err))
			{
				case PCACHE_RECORD_ERROR:
					break;
				case PCACHE_RECORD_OK:
					/* another way to write the same CRC, at most */
					if (i < crc_digits || i >= len - 1)
						fail_msg("byte %zu changed by 0x%02x: not noticed", i, pattern);
					ExpectEqual(&got, &s);
					same++;
					break;
				default:
					fail();
			}
		}
	}
	/* 'a' for 'A' */
	assert_true(same <= 8);
}

static void
TestTruncated(void **state)
{
	PCacheRecord s = MakeState();
	PCacheError err;
	char		text[4096];
	size_t		len;

	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));
	len = ReadFile(StatePath(), text, sizeof(text));
	for (size_t i = 0; i < len; i++)
	{
		WriteFile(StatePath(), text, i);
		ExpectDamaged("truncated");
	}
	/* a block that was never written */
	memset(text, 0, sizeof(text));
	WriteFile(StatePath(), text, sizeof(text));
	ExpectDamaged("zeros");
}

/* Write text, with its CRC, as the state file. */
static void
WriteText(const char *text)
{
	char		all[16384];

	snprintf(all, sizeof(all), "%scrc = %08x\n", text, BitwiseCrc32c(text, strlen(text)));
	WriteFile(StatePath(), all, strlen(all));
}

/* Contents that were never ours, under a valid CRC. */
static void
TestInvalid(void **state)
{
#define V		"version = 1\n"
#define D		"directory = /d\n"
#define C		"capacity = 10\n"
#define U		"pool_uuid = 00112233445566778899aabbccddeeff\n"
#define F		"file_system = file\n"
#define I		"incarnation = 0000000000000001\n"
	static const char *const invalid[] = {
		"", "\n",
		D C U F I, V C U F I, V D U F I, V D C F I, V D C U I, V D C U F,
		"version = 2\n" D C U F I,
		"version = \n" D C U F I,
		"version = 0\n" D C U F I,
		V D "capacity = 0\n" U F I,
		V D "capacity = -1\n" U F I,
		V D "capacity = 2147483648\n" U F I,
		V D "capacity = 18446744073709551615\n" U F I,
		V D "capacity = \n" U F I,
		V D "capacity = many\n" U F I,
		V D C "pool_uuid = 00112233445566778899aabbccddeef\n" F I,
		V D C "pool_uuid = 00112233445566778899aabbccddeeff0\n" F I,
		V D C "pool_uuid = 0011223344556677889xaabbccddeexx\n" F I,
		V D C "pool_uuid = \n" F I,
		V D C U "file_system = ext4\n" I,
		V D C U "file_system = \n" I,
		V D C U "file_system = unknown\n" I,
		V D C U F "incarnation = \n",
		V D C U F "incarnation = ghij\n",
		" " V D C U F I,
		"version=1\n" D C U F I,
		V "#" D C U F I,
		V "directory = \n" C U F I,
		V "directory = pg_pcache\n" C U F I,
		V "directory =  /d\n" C U F I,
		V D C U F I "image = \n",
		V D C U F I "image = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e\n",
		V D C U F I "image = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0\n",
		V D C U F I "image = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1exx\n",
	};
	PCacheRecord got;
	PCacheError err;
	char		text[8192];

	WriteText(V D C U F I);
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	assert_string_equal(got.directory, "/d");
	for (int i = 0; i < lengthof(invalid); i++)
	{
		WriteText(invalid[i]);
		ExpectDamaged(invalid[i]);
	}

	/* values that are too long for us */
	for (int len = MAXPGPATH - 1; len <= MAXPGPATH + 2000; len += 499)
	{
		snprintf(text, sizeof(text), V "directory = /%0*d\n" C U F I, len - 1, 0);
		WriteText(text);
		if (len < MAXPGPATH)
			assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
		else
			ExpectDamaged("long directory");
	}

	/* no CRC at all, and something in its place */
	WriteFile(StatePath(), V D C U F I, strlen(V D C U F I));
	ExpectDamaged("no CRC");
	WriteFile(StatePath(), V D C U F I "crc = \n", strlen(V D C U F I) + 7);
	ExpectDamaged("empty CRC");
	snprintf(text, sizeof(text), V D C U F I "crc = %064d\n", 0);
	WriteFile(StatePath(), text, strlen(text));
	ExpectDamaged("long CRC");
}

/* A name that would break the format is refused, and nothing is written. */
static void
TestNewline(void **state)
{
	PCacheRecord s = MakeState();
	PCacheRecord bad = s;
	PCacheRecord got;
	PCacheError err;

	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));
	strlcpy(bad.directory, "/a\ncapacity = 1", sizeof(bad.directory));
	assert_false(PCacheRecordWrite(datadir, 0600, &bad, &err));
	assert_contains(err.message, "contains a newline");
	strlcpy(bad.directory, "/a\n", sizeof(bad.directory));
	assert_false(PCacheRecordWrite(datadir, 0600, &bad, &err));

	assert_contains(err.hint, "another directory");

	/* nor if there is a directory in its place, which is told beforehand */
	assert_true(PCacheRecordMayBeWritten(datadir, "/a", &err));
	assert_true(PCacheRecordMayBeWritten(NULL, "/a", &err));
	assert_false(PCacheRecordMayBeWritten(NULL, "/a\n", &err));
	assert_int_equal(mkdir(Join(datadir, "pg_pcache.state.tmp"), 0700), 0);
	assert_false(PCacheRecordMayBeWritten(datadir, "/a", &err));
	assert_contains(err.message, "pg_pcache.state.tmp\": it is a directory");
	assert_false(PCacheRecordWrite(datadir, 0600, &s, &err));
	assert_contains(err.message, "pg_pcache.state.tmp\": it is a directory");
	assert_int_equal(rmdir(Join(datadir, "pg_pcache.state.tmp")), 0);

	/* nor what could not be read again */
	bad = s;
	bad.capacity = 0;
	assert_false(PCacheRecordWrite(datadir, 0600, &bad, &err));
	assert_contains(err.message, "capacity of 0 blocks");
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	ExpectEqual(&got, &s);
	assert_false(Exists(Join(datadir, "pg_pcache.state.tmp")));
}

/* A failure leaves the old file as it was. */
static void
TestAtomic(void **state)
{
	PCacheRecord s = MakeState();
	PCacheRecord other = s;
	PCacheRecord got;
	PCacheError err;
	const char *tmp_path = Join(datadir, "pg_pcache.state.tmp");
	struct rlimit limit;
	struct rlimit none = {0};

	other.capacity = 1;
	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));

	/* no temporary file */
	assert_int_equal(mkdir(tmp_path, 0700), 0);
	assert_false(PCacheRecordWrite(datadir, 0600, &other, &err));
	assert_contains(err.message, "it is a directory");
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	ExpectEqual(&got, &s);
	assert_int_equal(rmdir(tmp_path), 0);

	/* what a crash has left is in nobody's way, and no link is followed */
	assert_int_equal(symlink("/dev/full", tmp_path), 0);
	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));

	/* nothing can be written */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, SIG_IGN);
	none.rlim_max = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_false(PCacheRecordWrite(datadir, 0600, &other, &err));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_contains(err.message, "could not write file");
	assert_false(Exists(tmp_path));
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	ExpectEqual(&got, &s);

	/* a directory in its place */
	unlink(StatePath());
	assert_int_equal(mkdir(StatePath(), 0700), 0);
	assert_false(PCacheRecordWrite(datadir, 0600, &other, &err));
	assert_contains(err.message, "it is a directory");
	assert_false(Exists(tmp_path));
	assert_int_equal(rmdir(StatePath()), 0);

	/* what an interrupted write left does not matter */
	WriteFile(tmp_path, "garbage that is longer than nothing", 30);
	RoundTrip(&other);
	assert_false(PCacheRecordWrite(Join(datadir, "nowhere"), 0600, &other, &err));
}

static void
TestReadOnlyDirectory(void **state)
{
	PCacheRecord s = MakeState();
	PCacheRecord other = s;
	PCacheRecord got;
	PCacheError err;
	bool		written;

	if (geteuid() == 0)
		skip();
	other.capacity = 1;
	assert_true(PCacheRecordWrite(datadir, 0600, &s, &err));
	assert_int_equal(chmod(datadir, 0500), 0);
	written = PCacheRecordWrite(datadir, 0600, &other, &err);
	assert_int_equal(chmod(datadir, 0700), 0);
	assert_false(written);
	assert_contains(err.message, "Permission denied");
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_OK);
	ExpectEqual(&got, &s);

	assert_int_equal(chmod(StatePath(), 0), 0);
	assert_int_equal(PCacheRecordRead(datadir, &got, &err), PCACHE_RECORD_ERROR);
	assert_contains(err.message, "Permission denied");
}

/* Which directory server and pg_pcache look in. */
static void
TestPlace(void **state)
{
	PCacheRecord s = MakeState();
	char		directory[MAXPGPATH];
	char		in_pgdata[MAXPGPATH];

	strlcpy(in_pgdata, Join(datadir, "pg_pcache"), sizeof(in_pgdata));
	/* as configured, whatever is recorded */
	PCacheFindDirectory(datadir, "/srv/pool", NULL, directory);
	assert_string_equal(directory, "/srv/pool");
	PCacheFindDirectory(datadir, "/srv/pool", &s, directory);
	assert_string_equal(directory, "/srv/pool");

	/* by default: as recorded, unless there is a pool in PGDATA */
	for (int i = 0; i < 2; i++)
	{
		const char *configured = i == 0 ? NULL : PCACHE_DEFAULT_DIRECTORY;

		PCacheFindDirectory(datadir, configured, NULL, directory);
		assert_string_equal(directory, in_pgdata);
		PCacheFindDirectory(datadir, configured, &s, directory);
		assert_string_equal(directory, s.directory);
		/* what a base backup leaves */
		assert_int_equal(mkdir(in_pgdata, 0700), 0);
		PCacheFindDirectory(datadir, configured, &s, directory);
		assert_string_equal(directory, s.directory);
		WriteFile(Join(in_pgdata, "pool"), "x", 1);
		PCacheFindDirectory(datadir, configured, &s, directory);
		assert_string_equal(directory, in_pgdata);
		unlink(Join(in_pgdata, "pool"));
		assert_int_equal(rmdir(in_pgdata), 0);
		/* a file in place of the directory is an error, not overlooked */
		WriteFile(in_pgdata, "x", 1);
		PCacheFindDirectory(datadir, configured, &s, directory);
		assert_string_equal(directory, in_pgdata);
		unlink(in_pgdata);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(TestRoundTrip, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestText, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestModes, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestMissing, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestFlips, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestTruncated, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestInvalid, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestNewline, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestAtomic, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestReadOnlyDirectory, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestPlace, SetUp, TearDown),
	};

	return cmocka_run_group_tests_name("state file", tests, NULL, NULL);
}
