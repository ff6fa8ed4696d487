/*-------------------------------------------------------------------------
 *
 * test_dir.c
 *	  Which directory may hold a pool, and which file in it may be one.
 *
 * Other users are played by what the checks are told of them: the real ones
 * are in tests/pool-attack.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_dir.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/pcache_pool.h"

#include "unit.h"

static char *dir;

/* The inode that fstatfs() takes for one of a FUSE file system. */
static ino_t on_fuse;

/* The inode that fstat() takes for one of another user, who has no name. */
static ino_t of_other;

#define OTHER_USER	4000000001

int
fstat(int fd, struct stat *buf)
{
	if (fstatat(fd, "", buf, AT_EMPTY_PATH) < 0)
		return -1;
	if (buf->st_ino == of_other)
		buf->st_uid = OTHER_USER;
	return 0;
}

/* From here on, this file or link is that of another user. */
static void
GiveAway(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	of_other = st.st_ino;
}

int
fstatfs(int fd, struct statfs *buf)
{
	struct stat st;

	memset(buf, 0, sizeof(*buf));
	if (fstat(fd, &st) < 0)
		return -1;
	if (st.st_ino == on_fuse)
		buf->f_type = 0x65735546;
	return 0;
}

static int
SetUp(void **state)
{
	dir = MakeTempDirectory("/tmp");
	return 0;
}

static int
TearDown(void **state)
{
	RemoveTree(dir);
	free(dir);
	of_other = 0;
	return 0;
}

static void
TestTrust(void **state)
{
	const uid_t us = geteuid();
	const uid_t other = us + 1;
	const struct
	{
		uid_t		owner;
		int			mode;
		bool		above;		/* trusted above the pool's directory */
		bool		pools;		/* trusted as the pool's directory */
	}			cases[] = {
		{us, 0700, true, true},
		{us, 0750, true, true},
		{us, 0500, true, true},
		{us, 0000, true, true},
		{us, 02750, true, true},
		{us, 01700, true, true},
		{us, 0755, true, false},
		{us, 0701, true, false},
		{us, 0704, true, false},
		{us, 0711, true, false},
		{us, 0702, false, false},
		{us, 0720, false, false},
		{us, 0770, false, false},
		{us, 0775, false, false},
		{us, 02775, false, false},
		{us, 0777, false, false},
		{us, 01777, true, false},
		{us, 01770, true, false},
		{us, 01775, true, false},
		{0, 0755, true, false},
		{0, 01777, true, false},
		{0, 0777, false, false},
		{0, 0775, false, false},
		{0, 0700, true, us == 0},
		{other, 0700, false, false},
		{other, 0750, false, false},
		{other, 0755, false, false},
		{other, 01777, false, false},
		{other, 0777, false, false},
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		struct stat st = {.st_uid = cases[i].owner,.st_mode = S_IFDIR | cases[i].mode};
		PCacheError err;

		for (int is_pools = 0; is_pools <= 1; is_pools++)
		{
			bool		expected = is_pools ? cases[i].pools : cases[i].above;

			memset(&err, 0, sizeof(err));
			if (PCacheDirIsTrusted(&st, is_pools, false, "/some/where", &err) != expected)
				fail_msg("owner %d, mode %04o, %d", (int) cases[i].owner, cases[i].mode, is_pools);
			if (expected)
				continue;
			assert_contains(err.message, "/some/where");
			assert_true(err.hint[0] != '\0');
		}
	}
}

/* Open it; expect that it is that directory, resolved. */
static void
ExpectOpens(const char *path, const char *resolved)
{
	PCacheDir	open_dir;
	PCacheError err;
	struct stat st;
	struct stat expected;

	memset(&open_dir, 0x55, sizeof(open_dir));
	if (PCacheDirOpen(path, true, &open_dir, &err) != PCACHE_DIR_OK)
		fail_msg("%s: %s", path, strerror(errno));
	assert_string_equal(open_dir.path, resolved);
	assert_string_equal(open_dir.missing, "");
	assert_int_equal(fstat(open_dir.fd, &st), 0);
	assert_int_equal(stat(resolved, &expected), 0);
	assert_int_equal(st.st_ino, expected.st_ino);
	assert_int_equal(st.st_dev, expected.st_dev);
	assert_int_not_equal(fcntl(open_dir.fd, F_GETFD) & FD_CLOEXEC, 0);
	PCacheDirClose(&open_dir);
	assert_int_equal(open_dir.fd, -1);
}

static void
ExpectFails(const char *path, int error)
{
	PCacheDir	open_dir;
	PCacheError err;

	assert_int_equal(PCacheDirOpen(path, true, &open_dir, &err), PCACHE_DIR_FAILED);
	assert_int_equal(errno, error);
	assert_int_equal(open_dir.fd, -1);
}

static void
ExpectUntrusted(const char *path, const char *culprit)
{
	PCacheDir	open_dir;
	PCacheError err;

	assert_int_equal(PCacheDirOpen(path, true, &open_dir, &err), PCACHE_DIR_UNTRUSTED);
	assert_contains(err.message, culprit);
	assert_true(err.hint[0] != '\0');
	assert_int_equal(open_dir.fd, -1);
}

static void
TestWalk(void **state)
{
	PCacheDir	open_dir;
	PCacheError err;

	assert_int_equal(mkdir(Join(dir, "a"), 0755), 0);
	assert_int_equal(mkdir(Join(dir, "a/b"), 0700), 0);
	ExpectOpens(Join(dir, "a/b"), Join(dir, "a/b"));
	ExpectOpens(Join(dir, "a//./b/"), Join(dir, "a/b"));
	ExpectOpens(Join(dir, "a/../a/b/."), Join(dir, "a/b"));
	ExpectFails(Join(dir, "a/c"), ENOENT);
	ExpectFails(Join(dir, "c/b"), ENOENT);
	WriteFile(Join(dir, "file"), "x", 1);
	ExpectFails(Join(dir, "file"), ENOTDIR);
	ExpectFails(Join(dir, "file/b"), ENOTDIR);

	/* what can be exchanged, and by whom */
	ExpectUntrusted(Join(dir, "a"), Join(dir, "a"));
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(chmod(Join(dir, "a"), i == 0 ? 0777 : 0770), 0);
		ExpectUntrusted(Join(dir, "a/b"), Join(dir, "a"));
		ExpectUntrusted(Join(dir, "a/b/c"), Join(dir, "a"));
		ExpectUntrusted(Join(dir, "a/c"), Join(dir, "a"));
	}
	assert_int_equal(chmod(Join(dir, "a"), 01777), 0);
	ExpectOpens(Join(dir, "a/b"), Join(dir, "a/b"));
	assert_int_equal(chmod(Join(dir, "a/b"), 0777), 0);
	ExpectUntrusted(Join(dir, "a/b"), Join(dir, "a/b"));
	assert_int_equal(chmod(Join(dir, "a/b"), 0700), 0);
	if (geteuid() != 0)
	{
		assert_int_equal(chmod(Join(dir, "a"), 0600), 0);
		ExpectFails(Join(dir, "a/b"), EACCES);
		assert_int_equal(chmod(Join(dir, "a"), 0700), 0);
		/* a directory of root's is a good place, but not itself the pool's */
		assert_int_equal(PCacheDirOpen("/etc", true, &open_dir, &err), PCACHE_DIR_UNTRUSTED);
		assert_contains(err.message, "\"/etc\" has wrong ownership: it belongs to user root, and this process to user ");
		assert_contains(err.hint, "Is its file system mounted?");
		assert_int_equal(PCacheDirOpen("/proc", true, &open_dir, &err), PCACHE_DIR_UNTRUSTED);
		assert_contains(err.message, "\"/proc\" has wrong ownership: it belongs to user root, and this process to user ");
		assert_contains(err.hint, "A file system is mounted there.");
	}
	GiveAway(Join(dir, "a/b"));
	assert_int_equal(PCacheDirOpen(Join(dir, "a/b"), true, &open_dir, &err), PCACHE_DIR_UNTRUSTED);
	assert_contains(err.message, "it belongs to user 4000000001, and this process to user ");
	assert_contains(err.hint, "Is it the directory of another cluster?");
}

/*
 * What FUSE says of owners and modes is for whoever mounted it to say, and in
 * a directory that is shared that may be anybody.
 */
static void
TestFuse(void **state)
{
	PCacheDir	open_dir;
	PCacheError err;
	struct stat st;

	assert_int_equal(mkdir(Join(dir, "a"), 0700), 0);
	assert_int_equal(mkdir(Join(dir, "a/b"), 0700), 0);
	assert_int_equal(mkdir(Join(dir, "a/b/c"), 0700), 0);
	assert_int_equal(stat(Join(dir, "a/b"), &st), 0);
	on_fuse = st.st_ino;
	ExpectOpens(Join(dir, "a/b"), Join(dir, "a/b"));
	assert_int_equal(chmod(Join(dir, "a"), 01777), 0);
	ExpectUntrusted(Join(dir, "a/b"), Join(dir, "a"));
	ExpectUntrusted(Join(dir, "a/b/c"), Join(dir, "a"));
	on_fuse = 0;
	ExpectOpens(Join(dir, "a/b/c"), Join(dir, "a/b/c"));

	/* somebody has it mounted just before we would make it */
	assert_int_equal(PCacheDirOpenExisting(Join(dir, "a/d"), &open_dir, &err), PCACHE_DIR_OK);
	assert_int_equal(mkdir(Join(dir, "a/d"), 0700), 0);
	assert_int_equal(stat(Join(dir, "a/d"), &st), 0);
	on_fuse = st.st_ino;
	assert_false(PCacheDirMakeMissing(&open_dir, &err));
	assert_contains(err.message, "may be a file system of another user");
	PCacheDirClose(&open_dir);
	on_fuse = 0;
}

/* Links are followed, and what they lead through is judged as well. */
static void
TestLinks(void **state)
{
	char		path[MAXPGPATH] = "";

	assert_int_equal(mkdir(Join(dir, "a"), 0700), 0);
	assert_int_equal(mkdir(Join(dir, "a/b"), 0700), 0);
	assert_int_equal(mkdir(Join(dir, "open"), 0700), 0);
	assert_int_equal(mkdir(Join(dir, "open/b"), 0700), 0);
	assert_int_equal(symlink(Join(dir, "a"), Join(dir, "absolute")), 0);
	assert_int_equal(symlink("a", Join(dir, "relative")), 0);
	assert_int_equal(symlink("../open/../a/b/", Join(dir, "a/up")), 0);
	assert_int_equal(symlink("loop", Join(dir, "loop")), 0);
	assert_int_equal(symlink("nowhere", Join(dir, "dangling")), 0);
	assert_int_equal(symlink("open/b", Join(dir, "through")), 0);
	assert_int_equal(symlink("../a/b", Join(dir, "open/link")), 0);
	WriteFile(Join(dir, "file"), "x", 1);
	assert_int_equal(symlink("file", Join(dir, "to-file")), 0);

	ExpectOpens(Join(dir, "absolute"), Join(dir, "a"));
	ExpectOpens(Join(dir, "absolute/b"), Join(dir, "a/b"));
	ExpectOpens(Join(dir, "relative/b"), Join(dir, "a/b"));
	ExpectOpens(Join(dir, "a/up"), Join(dir, "a/b"));
	ExpectOpens(Join(dir, "through"), Join(dir, "open/b"));
	ExpectOpens(Join(dir, "open/link"), Join(dir, "a/b"));
	ExpectFails(Join(dir, "loop"), ELOOP);
	ExpectFails(Join(dir, "dangling"), ENOENT);
	ExpectFails(Join(dir, "to-file"), ENOTDIR);

	assert_int_equal(chmod(Join(dir, "open"), 0777), 0);
	ExpectUntrusted(Join(dir, "through"), Join(dir, "open"));
	ExpectUntrusted(Join(dir, "open/link"), Join(dir, "open"));
	ExpectUntrusted(Join(dir, "a/up"), Join(dir, "open"));

	/* where others can make links, one of theirs is not followed */
	GiveAway(Join(dir, "relative"));
	ExpectOpens(Join(dir, "relative/b"), Join(dir, "a/b"));
	assert_int_equal(chmod(dir, 01777), 0);
	ExpectUntrusted(Join(dir, "relative/b"), "link \"relative\"");
	ExpectOpens(Join(dir, "absolute/b"), Join(dir, "a/b"));
	assert_int_equal(chmod(dir, 0700), 0);

	/* longer than any path may be */
	for (int i = 0; i < 200; i++)
		strcat(path, "/../a");
	assert_int_equal(symlink(path + 1, Join(dir, "long")), 0);
	ExpectFails(Join(dir, "long/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"), ENAMETOOLONG);
	strlcpy(path, "/", sizeof(path));
	memset(path + 1, 'x', sizeof(path) - 2);
	ExpectFails(path, ENAMETOOLONG);
}

static void
TestMissing(void **state)
{
	PCacheDir	open_dir;
	PCacheError err;
	struct stat st;
	mode_t		old_umask = umask(0077);

	assert_int_equal(symlink("a//b/./c/", Join(dir, "link")), 0);
	assert_int_equal(PCacheDirOpenExisting(Join(dir, "link/d"), &open_dir, &err), PCACHE_DIR_OK);
	assert_string_equal(open_dir.path, dir);
	assert_int_equal(strncmp(open_dir.missing, "a/", 2), 0);
	assert_true(PCacheDirMakeMissing(&open_dir, &err));
	assert_string_equal(open_dir.path, Join(dir, "a/b/c/d"));
	assert_string_equal(open_dir.missing, "");
	assert_int_equal(stat(Join(dir, "a/b"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	PCacheDirClose(&open_dir);

	/*
	 * somebody else is faster: a link, a file, a directory that is open to
	 * all
	 */
	for (int i = 0; i < 3; i++)
	{
		const char *path = Join(dir, "fast");

		assert_int_equal(PCacheDirOpenExisting(Join(dir, "fast/x"), &open_dir, &err), PCACHE_DIR_OK);
		assert_string_equal(open_dir.missing, "fast/x");
		if (i == 0)
			assert_int_equal(symlink("a", path), 0);
		else if (i == 1)
			WriteFile(path, "x", 1);
		else
		{
			assert_int_equal(mkdir(path, 0700), 0);
			assert_int_equal(chmod(path, 0777), 0);
		}
		assert_false(PCacheDirMakeMissing(&open_dir, &err));
		assert_contains(err.message, i == 2 ? "invalid permissions" : "could not create directory");
		assert_false(Exists(Join(dir, "a/x")));
		assert_false(Exists(Join(dir, "fast/x")));
		PCacheDirClose(&open_dir);
		remove(path);
	}
	umask(old_umask);
}

/* Open the file "pool", expect that it is refused with that, and untouched. */
static void
ExpectRefused(const char *message, int error)
{
	static const int flags[] = {O_RDONLY, O_RDWR};
	PCacheDir	open_dir;
	PCacheError err;
	struct stat st;

	assert_int_equal(PCacheDirOpen(dir, true, &open_dir, &err), PCACHE_DIR_OK);
	for (int i = 0; i < lengthof(flags); i++)
	{
		memset(&err, 0, sizeof(err));
		assert_int_equal(PCacheDirOpenFile(&open_dir, "pool", flags[i], "/the/pool", &st, &err), -1);
		assert_int_equal(errno, error);
		assert_contains(err.message, message);
		assert_contains(err.message, "/the/pool");
	}
	PCacheDirClose(&open_dir);
}

static void
TestFile(void **state)
{
	char	   *path = strdup(Join(dir, "pool"));
	PCacheDir	open_dir;
	PCacheError err;
	struct stat st;
	int			fd;

	ExpectRefused("No such file", ENOENT);
	assert_int_equal(symlink("nowhere", path), 0);
	ExpectRefused("is not a regular file", 0);
	unlink(path);
	WriteFile(Join(dir, "precious"), "x", 1);
	assert_int_equal(symlink("precious", path), 0);
	ExpectRefused("is not a regular file", 0);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	alarm(60);					/* rather than to wait for its other end */
	ExpectRefused("is not a regular file", 0);
	alarm(0);
	unlink(path);
	WriteFile(path, "x", 1);
	assert_int_equal(chmod(path, 0666), 0);
	ExpectRefused("has invalid permissions", 0);
	assert_int_equal(chmod(path, 0640), 0);
	GiveAway(path);
	ExpectRefused("has wrong ownership: it belongs to user 4000000001, and this process to user ", 0);
	of_other = 0;

	/* its names */
	assert_int_equal(PCacheDirOpen(dir, true, &open_dir, &err), PCACHE_DIR_OK);
	fd = PCacheDirOpenFile(&open_dir, "pool", O_RDWR, path, &st, &err);
	assert_true(fd >= 0);
	assert_int_not_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	assert_true(PCacheDirHas(&open_dir, "pool", &st));
	assert_false(PCacheDirHas(&open_dir, "precious", &st));
	assert_false(PCacheDirHas(&open_dir, "nowhere", &st));
	assert_true(PCacheFileHasOneName(fd, path, &err));
	assert_int_equal(link(path, Join(dir, "pool.tmp")), 0);
	assert_false(PCacheFileHasOneName(fd, path, &err));
	assert_contains(err.message, "it has 2 links");
	assert_int_equal(unlink(Join(dir, "pool.tmp")), 0);
	/* a link to it is not another name of it */
	assert_int_equal(symlink("pool", Join(dir, "pool.tmp")), 0);
	assert_true(PCacheFileHasOneName(fd, path, &err));
	assert_int_equal(unlink(Join(dir, "pool.tmp")), 0);
	assert_int_equal(unlink(path), 0);
	assert_true(PCacheFileHasOneName(fd, path, &err));
	assert_int_equal(symlink("precious", path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_false(PCacheDirHas(&open_dir, "pool", &st));
	close(fd);
	PCacheDirClose(&open_dir);
	free(path);
}

/* Only what is a pool may become one. */
static void
TestMayFormat(void **state)
{
	static char bytes[2 * PCACHE_SUPERBLOCK_SIZE];
	static const int offsets[] = {
		offsetof(PCacheSuperblock, magic), offsetof(PCacheSuperblock, tail)
	};
	PCachePool	pool;
	PCacheError err;

	strcpy(pool.path, Join(dir, "pool"));
	strcpy(pool.directory, dir);
	for (int i = -1; i < 4; i++)
	{
		memset(bytes, 0, sizeof(bytes));
		if (i >= 0)
			memcpy(bytes + (i / 2) * PCACHE_COPY_OFFSET + offsets[i % 2],
				   i % 2 == 0 ? PCACHE_MAGIC_HEAD : PCACHE_MAGIC_TAIL, PCACHE_MAGIC_LEN);
		WriteFile(pool.path, bytes, sizeof(bytes));
		pool.fd = open(pool.path, O_RDONLY);
		assert_true(pool.fd >= 0);
		assert_int_equal(PCachePoolMayFormat(&pool, &err), i >= 0);
		close(pool.fd);
	}
	WriteFile(pool.path, "", 0);
	pool.fd = open(pool.path, O_RDONLY);
	assert_false(PCachePoolMayFormat(&pool, &err));
	assert_contains(err.message, "is not a persistent cache pool");
	assert_contains(err.message, pool.path);
	assert_true(err.hint[0] != '\0');
	close(pool.fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestTrust),
		cmocka_unit_test_setup_teardown(TestWalk, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestFuse, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestLinks, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestMissing, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestFile, SetUp, TearDown),
		cmocka_unit_test_setup_teardown(TestMayFormat, SetUp, TearDown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
