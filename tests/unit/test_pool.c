/*-------------------------------------------------------------------------
 *
 * test_pool.c
 *	  The pool file: created, opened, locked, mapped, read; and the file
 *	  system below it.
 *
 * With PMEM_IS_PMEM_FORCE=1 libpmem is made to take everything for persistent
 * memory.  test_pool_none.c compiles this for builds without libpmem.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_pool.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

#include "unit.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CAPACITY			300
#define BLOCKS_OFFSET		MIB(6)
#define POOL_SIZE			MIB(10) /* of that many blocks: 6 MiB + 2.3 MiB */
#define SYSTEM_IDENTIFIER	UINT64CONST(0x1122334455667788)
#define CATALOG_VERSION		202506291

static char *dir;
static PCacheFsKind dir_kind;

static int
SetUpMemory(void **state)
{
	dir = MakeTempDirectory(MemoryParent());
	dir_kind = PCACHE_FS_TMPFS;
	return 0;
}

static int
SetUpDisk(void **state)
{
	dir = MakeTempDirectory(DiskParent());
	dir_kind = PCACHE_FS_FILE;
	return 0;
}

static int
TearDown(void **state)
{
	if (dir != NULL)
		RemoveTree(dir);
	free(dir);
	dir = NULL;
	return 0;
}

static void
Create(PCachePool *pool, PCacheSuperblock *sb)
{
	PCacheError err;

	if (!PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER, CATALOG_VERSION,
						  pool, sb, &err))
		fail_msg("%s", err.message);
}

static PCacheOpenResult
Open(PCacheOpenMode mode, PCachePool *pool, PCacheError *err)
{
	PCacheOpenResult result;

	memset(pool, 0x55, sizeof(*pool));
	memset(err, 0, sizeof(*err));
	result = PCachePoolOpen(dir, mode, pool, err);
	assert_null(pool->map.base);
	if (result == PCACHE_OPEN_OK)
	{
		assert_true(pool->fd >= 0);
		assert_int_not_equal(fcntl(pool->fd, F_GETFD) & FD_CLOEXEC, 0);
	}
	else
	{
		assert_int_equal(pool->fd, -1);
		assert_contains(err->message, Join(dir, "pool"));
	}
	return result;
}

/* Open, expect an error that says so, in every mode. */
static void
ExpectOpenError(PCacheOpenResult expected, const char *message)
{
	static const PCacheOpenMode modes[] = {PCACHE_OPEN_READ, PCACHE_OPEN_PEEK, PCACHE_OPEN_WRITE};
	PCachePool	pool;
	PCacheError err;

	for (int i = 0; i < lengthof(modes); i++)
	{
		assert_int_equal(Open(modes[i], &pool, &err), expected);
		assert_contains(err.message, message);
	}
}

/* What another process gets when it opens the pool. */
static PCacheOpenResult
OpenElsewhere(PCacheOpenMode mode)
{
	int			status;
	pid_t		pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
	{
		PCachePool	pool;
		PCacheError err;

		_exit(PCachePoolOpen(dir, mode, &pool, &err));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A pool as it is just after its creation. */
static void
ExpectNewPool(int fd, const PCacheSuperblock *sb)
{
	PCacheSuperblock both[2];
	PCacheSuperblock chosen;
	PCacheError err;
	PCacheDescriptor descs[CAPACITY];
	PCacheDescriptor free_desc = {.seq = 1};
	char		rest[8192];
	const char	zeros[sizeof(rest)] = {0};
	uint8		boot_id[PCACHE_UUID_LEN];
	static const uint8 no_uuid[PCACHE_UUID_LEN];

	assert_int_equal(pread(fd, both, sizeof(both), 0), sizeof(both));
	assert_memory_equal(&both[0], sb, sizeof(*sb));
	assert_memory_equal(&both[1], sb, sizeof(*sb));
	assert_int_equal(PCacheSuperblockChoose(&both[0], &both[1], &chosen, &err), PCACHE_SB_FIRST);

	assert_memory_equal(sb->magic, "PGPCACHE", 8);
	assert_memory_equal(sb->tail, "EHCACPGP", 8);
	assert_int_equal(sb->format_version, PCACHE_FORMAT_VERSION);
	assert_int_equal(sb->superblock_size, 4096);
	assert_memory_not_equal(sb->pool_uuid, no_uuid, PCACHE_UUID_LEN);
	assert_int_equal(sb->system_identifier, SYSTEM_IDENTIFIER);
	assert_int_equal(sb->pool_size, POOL_SIZE);
	assert_true(llabs((int64) sb->created_at - (int64) time(NULL)) < 600);
	assert_int_equal(sb->pg_major, PG_VERSION_NUM / 10000);
	assert_int_equal(sb->byte_order, 0x01020304);
	assert_int_equal(sb->block_size, 8192);
	assert_int_equal(sb->descriptor_size, 64);
	assert_int_equal(sb->blocks_per_segment, 131072);
	assert_int_equal(sb->pg_control_version, PG_CONTROL_VERSION);
	assert_int_equal(sb->catalog_version, CATALOG_VERSION);
	assert_int_equal(sb->fs_kind, dir_kind);
	assert_int_equal(sb->capacity, CAPACITY);
	assert_int_equal(sb->descriptors_offset, MIB(2));
	assert_int_equal(sb->blocks_offset, BLOCKS_OFFSET);
	assert_int_equal(sb->slots_used, 0);
	assert_int_equal(sb->state, PCACHE_STATE_EMPTY);
	assert_int_equal(sb->incarnation, 0);
	PCacheReadBootId(boot_id);
	assert_memory_equal(sb->boot_id, boot_id, PCACHE_UUID_LEN);
	assert_memory_equal(sb->reserved, zeros, sizeof(sb->reserved));

	/* no notes, and all slots free */
	for (uint64 offset = 8192; offset < MIB(2); offset += sizeof(rest))
	{
		assert_int_equal(pread(fd, rest, sizeof(rest), offset), sizeof(rest));
		assert_memory_equal(rest, zeros, sizeof(rest));
	}
	memset(descs, 0x55, sizeof(descs));
	assert_true(PCacheReadDescriptors(fd, 0, CAPACITY, descs));
	for (int i = 0; i < CAPACITY; i++)
		assert_memory_equal(&descs[i], &free_desc, sizeof(free_desc));
}

static void
TestCreate(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat st;
	mode_t		old_umask = umask(0);

	if (!PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER,
						  CATALOG_VERSION, &pool, &sb, &err))
		fail_msg("%s", err.message);
	assert_string_equal(pool.path, Join(dir, "pool"));
	assert_int_equal(pool.fs_kind, dir_kind);
	assert_int_equal(pool.file_size, POOL_SIZE);

	/* all of it is there: not sparse */
	assert_int_equal(stat(pool.path, &st), 0);
	assert_int_equal(st.st_size, POOL_SIZE);
	assert_true(st.st_blocks * 512 >= POOL_SIZE);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_false(Exists(Join(dir, "pool.tmp")));

	/* mapped as a whole */
	assert_non_null(pool.map.base);
	assert_int_equal(pool.map.length, POOL_SIZE);
	assert_int_equal((uintptr_t) pool.map.base % MIB(2), 0);
	assert_memory_equal(pool.map.base, &sb, sizeof(sb));
	ExpectNewPool(pool.fd, &sb);

	/* and locked */
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_WRITE), PCACHE_OPEN_LOCKED);
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_READ), PCACHE_OPEN_LOCKED);
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_PEEK), PCACHE_OPEN_OK);
	PCachePoolClose(&pool);
	assert_null(pool.map.base);
	assert_int_equal(pool.fd, -1);
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_WRITE), PCACHE_OPEN_OK);
	PCachePoolClose(&pool);
	umask(old_umask);
}

/* What was stored through the mapping is there when the pool is opened again. */
static void
TestReopen(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheSuperblock again;
	PCacheError err;

	Create(&pool, &sb);
	sb.state = PCACHE_STATE_DIRTY;
	assert_true(PCacheSuperblockStore(&pool.map, &sb));
	PCacheMemcpyNodrain(&pool.map, pool.map.base + BLOCKS_OFFSET + 8192, "a page", 7);
	assert_true(PCacheDrain(&pool.map));
	PCachePoolClose(&pool);

	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
	assert_int_equal(pool.fs_kind, dir_kind);
	assert_int_equal(pool.file_size, POOL_SIZE);
	assert_string_equal(pool.path, Join(dir, "pool"));
	assert_true(PCacheReadExact(pool.fd, &again, sizeof(again), 0));
	assert_memory_equal(&again, &sb, sizeof(sb));
	assert_true(PCachePoolMap(&pool, &err));
	assert_int_equal(pool.map.length, POOL_SIZE);
	assert_int_equal((uintptr_t) pool.map.base % MIB(2), 0);
	assert_string_equal(pool.map.base + BLOCKS_OFFSET + 8192, "a page");

	/* formatted once more it is a new, empty one */
	memset(pool.map.base + MIB(2), 0x77, CAPACITY * 64);
	memset(pool.map.base + 8192, 0x77, 64);
	assert_true(PCachePoolFormat(&pool, CAPACITY, SYSTEM_IDENTIFIER, CATALOG_VERSION,
								 &again, &err));
	assert_memory_not_equal(again.pool_uuid, sb.pool_uuid, PCACHE_UUID_LEN);
	ExpectNewPool(pool.fd, &again);
	PCachePoolClose(&pool);

	for (int mode = PCACHE_OPEN_READ; mode <= PCACHE_OPEN_WRITE; mode++)
	{
		assert_int_equal(Open(mode, &pool, &err), PCACHE_OPEN_OK);
		PCachePoolClose(&pool);
	}
}

static void
TestMapFails(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	Create(&pool, &sb);
	PCachePoolClose(&pool);
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
	assert_int_equal(ftruncate(pool.fd, 0), 0);
	assert_false(PCachePoolMap(&pool, &err));
	assert_contains(err.message, "could not map persistent cache pool");
	assert_contains(err.message, Join(dir, "pool"));
	PCachePoolClose(&pool);
}

/* What is mapped is the file that was opened, whatever has its name by now. */
static void
TestMapAfterExchange(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	char		buf[8];

	Create(&pool, &sb);
	PCachePoolClose(&pool);
	WriteFile(Join(dir, "other"), "precious", 8);
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
	assert_int_equal(rename(Join(dir, "other"), Join(dir, "pool")), 0);
	assert_true(PCachePoolMap(&pool, &err));
	assert_int_equal(pool.map.length, POOL_SIZE);
	assert_memory_equal(pool.map.base, &sb, sizeof(sb));
	memset(pool.map.base, 'x', 8);
	assert_int_equal(ReadFile(Join(dir, "pool"), buf, sizeof(buf)), 8);
	assert_memory_equal(buf, "precious", 8);
	PCachePoolClose(&pool);
}

static void
TestLocks(void **state)
{
	static const struct
	{
		PCacheOpenMode held;
		PCacheOpenMode wanted;
		PCacheOpenResult expected;
	}			cases[] = {
		{PCACHE_OPEN_WRITE, PCACHE_OPEN_WRITE, PCACHE_OPEN_LOCKED},
		{PCACHE_OPEN_WRITE, PCACHE_OPEN_READ, PCACHE_OPEN_LOCKED},
		{PCACHE_OPEN_WRITE, PCACHE_OPEN_PEEK, PCACHE_OPEN_OK},
		{PCACHE_OPEN_READ, PCACHE_OPEN_WRITE, PCACHE_OPEN_LOCKED},
		{PCACHE_OPEN_READ, PCACHE_OPEN_READ, PCACHE_OPEN_OK},
		{PCACHE_OPEN_READ, PCACHE_OPEN_PEEK, PCACHE_OPEN_OK},
		{PCACHE_OPEN_PEEK, PCACHE_OPEN_WRITE, PCACHE_OPEN_OK},
		{PCACHE_OPEN_PEEK, PCACHE_OPEN_READ, PCACHE_OPEN_OK},
		{PCACHE_OPEN_PEEK, PCACHE_OPEN_PEEK, PCACHE_OPEN_OK},
	};
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	Create(&pool, &sb);
	PCachePoolClose(&pool);
	for (int i = 0; i < lengthof(cases); i++)
	{
		int			to_child[2];
		int			from_child[2];
		int			status;
		char		byte;
		pid_t		pid;

		/* the other process has it open until we say so */
		assert_int_equal(pipe(to_child), 0);
		assert_int_equal(pipe(from_child), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
		{
			close(to_child[1]);
			byte = PCachePoolOpen(dir, cases[i].held, &pool, &err);
			if (write(from_child[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 0)
				_exit(1);
			_exit(0);
		}
		close(to_child[0]);
		assert_int_equal(read(from_child[0], &byte, 1), 1);
		assert_int_equal(byte, PCACHE_OPEN_OK);

		assert_int_equal(Open(cases[i].wanted, &pool, &err), cases[i].expected);
		if (cases[i].expected == PCACHE_OPEN_LOCKED)
		{
			assert_contains(err.message, "is locked by another process");
			assert_contains(err.hint, "another server");
		}
		PCachePoolClose(&pool);

		/* its end, however it comes, releases the lock */
		if (i % 2 == 0)
			kill(pid, SIGKILL);
		close(to_child[1]);
		close(from_child[0]);
		close(from_child[1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
		PCachePoolClose(&pool);
	}
}

static void
TestOpenMissing(void **state)
{
	char	   *real_dir = dir;

	ExpectOpenError(PCACHE_OPEN_MISSING, "No such file or directory");
	/* who put a link there is to say what it is good for */
	assert_int_equal(symlink("nowhere", Join(dir, "pool")), 0);
	ExpectOpenError(PCACHE_OPEN_ERROR, "is not a regular file");
	unlink(Join(real_dir, "pool"));

	WriteFile(Join(real_dir, "file"), "", 0);
	dir = strdup(Join(real_dir, "nowhere"));
	ExpectOpenError(PCACHE_OPEN_MISSING, "No such file or directory");
	free(dir);

	/* this is not what a reboot leaves behind */
	dir = strdup(Join(real_dir, "file"));
	ExpectOpenError(PCACHE_OPEN_ERROR, "Not a directory");
	free(dir);
	dir = real_dir;
}

static void
TestOpenNotRegular(void **state)
{
	const char *path = Join(dir, "pool");
	PCachePool	pool;
	PCacheError err;

	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_ERROR);
	assert_contains(err.message, "Is a directory");
	assert_int_equal(Open(PCACHE_OPEN_READ, &pool, &err), PCACHE_OPEN_ERROR);
	assert_contains(err.message, "is not a regular file");
	assert_int_equal(Open(PCACHE_OPEN_PEEK, &pool, &err), PCACHE_OPEN_ERROR);
	assert_contains(err.message, "is not a regular file");
	assert_int_equal(rmdir(path), 0);

	assert_int_equal(symlink("/dev/null", path), 0);
	ExpectOpenError(PCACHE_OPEN_ERROR, "is not a regular file");
	unlink(path);
	assert_int_equal(symlink("pool", path), 0);
	ExpectOpenError(PCACHE_OPEN_ERROR, "is not a regular file");
	unlink(path);
}

/* A named pipe must not make us wait for its other end. */
static void
TestOpenFifo(void **state)
{
	for (int mode = PCACHE_OPEN_READ; mode <= PCACHE_OPEN_WRITE; mode++)
	{
		int			status;
		pid_t		pid;

		unlink(Join(dir, "pool"));
		assert_int_equal(mkfifo(Join(dir, "pool"), 0600), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
		{
			PCachePool	pool;
			PCacheError err;

			alarm(60);
			_exit(PCachePoolOpen(dir, mode, &pool, &err));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFSIGNALED(status))
			fail_msg("mode %d: PCachePoolOpen() waits for the other end of a named pipe", mode);
		assert_int_equal(WEXITSTATUS(status), PCACHE_OPEN_ERROR);
	}
}

static void
TestOpenPermissions(void **state)
{
	static const int good[] = {0600, 0640, 0700};
	static const int bad[] = {
		0601, 0602, 0604, 0607, 0610, 0620, 0630, 0644, 0660, 0666, 0777
	};
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat st;

	Create(&pool, &sb);
	PCachePoolClose(&pool);
	for (int i = 0; i < lengthof(good); i++)
	{
		/* who only looks leaves it to the group, who writes does not */
		assert_int_equal(chmod(Join(dir, "pool"), good[i]), 0);
		assert_int_equal(chmod(dir, 0750), 0);
		assert_int_equal(Open(PCACHE_OPEN_READ, &pool, &err), PCACHE_OPEN_OK);
		PCachePoolClose(&pool);
		assert_int_equal(stat(dir, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0750);
		assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
		assert_int_equal(fstat(pool.fd, &st), 0);
		assert_int_equal(st.st_mode & 07777, good[i] & ~S_IRWXG);
		PCachePoolClose(&pool);
		assert_int_equal(stat(dir, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
	}
	for (int i = 0; i < lengthof(bad); i++)
	{
		assert_int_equal(chmod(Join(dir, "pool"), bad[i]), 0);
		ExpectOpenError(PCACHE_OPEN_ERROR, "has invalid permissions");
		assert_int_equal(Open(PCACHE_OPEN_READ, &pool, &err), PCACHE_OPEN_ERROR);
		assert_contains(err.hint, "0600");
	}
	if (geteuid() != 0)
	{
		assert_int_equal(chmod(Join(dir, "pool"), 0), 0);
		ExpectOpenError(PCACHE_OPEN_ERROR, "Permission denied");
		assert_int_equal(Open(PCACHE_OPEN_READ, &pool, &err), PCACHE_OPEN_ERROR);
		assert_contains(err.hint, "must belong to the user");
	}
}

static int	interrupt_at;		/* when asked for that time */
static int	times_asked;

static bool
IsInterrupted(void)
{
	return ++times_asked == interrupt_at;
}

/* A creation that is interrupted leaves no file, and what is there alone. */
static void
TestInterrupted(void **state)
{
	PCachePool	pool;
	PCachePool	other;
	PCacheSuperblock sb;
	PCacheError err;
	bool		created = false;

	PCachePoolInterrupted = IsInterrupted;
	for (interrupt_at = 1; !created && interrupt_at < 100; interrupt_at++)
	{
		times_asked = 0;
		created = PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER,
								   CATALOG_VERSION, &pool, &sb, &err);
		assert_false(Exists(Join(dir, "pool.tmp")));
		/* the question about huge pages is not one of life and death */
		assert_true(created || strstr(err.message, "interrupted") != NULL);
		assert_int_equal(created, Exists(Join(dir, "pool")));
	}
	assert_true(created);
	assert_true(interrupt_at > 2);

	/* somebody has locked it: we do not wait for the rest of the time */
	PCachePoolLockWait = PG_INT32_MAX;
	interrupt_at = 3;
	times_asked = 0;
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &other, &err), PCACHE_OPEN_LOCKED);
	assert_int_equal(times_asked, interrupt_at);
	PCachePoolLockWait = 0;
	PCachePoolClose(&pool);

	/* it is as long as it was */
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
	interrupt_at = 1;
	times_asked = 0;
	assert_false(PCachePoolSetSize(&pool, 2 * POOL_SIZE, 2 * POOL_SIZE, &err));
	assert_int_equal(lseek(pool.fd, 0, SEEK_END), POOL_SIZE);
	PCachePoolClose(&pool);
	PCachePoolInterrupted = NULL;
}

/* Who had the pool locked has put another file in its place, and lets go. */
static int	locked_fd;

static bool
Replace(void)
{
	WriteFile(Join(dir, "new"), "x", 1);
	assert_int_equal(rename(Join(dir, "new"), Join(dir, "pool")), 0);
	assert_int_equal(close(locked_fd), 0);
	return false;
}

/* It is not the file that we have waited for that goes by the pool's name. */
static void
TestReplacedMeanwhile(void **state)
{
	static const PCacheOpenMode modes[] = {PCACHE_OPEN_READ, PCACHE_OPEN_WRITE};

	for (int i = 0; i < lengthof(modes); i++)
	{
		PCachePool	pool;
		PCacheSuperblock sb;
		PCacheError err;

		Create(&pool, &sb);
		PCachePoolClose(&pool);
		locked_fd = open(Join(dir, "pool"), O_RDWR);
		assert_int_equal(flock(locked_fd, LOCK_EX | LOCK_NB), 0);
		PCachePoolLockWait = PG_INT32_MAX;
		PCachePoolInterrupted = Replace;
		assert_int_equal(Open(modes[i], &pool, &err), PCACHE_OPEN_ERROR);
		assert_contains(err.message, "was replaced while it was opened");
		PCachePoolInterrupted = NULL;
		PCachePoolLockWait = 0;
		assert_int_equal(unlink(Join(dir, "pool")), 0);
	}
}

/* A pool in memory goes with the host, and is made again if there is room. */
static void
TestForetellLost(void **state)
{
	PCacheNextConfig config = {.nbuffers = CAPACITY};
	PCacheVerdict verdict;
	PCacheGateFacts facts = {0};
	PCacheSuperblocks superblocks;
	PCacheSuperblock sb;
	PCachePool	pool;
	struct statvfs vfs;

	Create(&pool, &sb);
	PCacheReadSuperblocks(pool.fd, &superblocks);
	verdict = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_HOST_CRASH).verdict;
	assert_int_equal(verdict.refusal, PCACHE_COLD_NEW);
	assert_contains(verdict.why.message, "lost with its tmpfs file system");

	/* what is used of it now does not matter then, but its size does */
	assert_int_equal(fstatvfs(pool.fd, &vfs), 0);
	config.size = (uint64) vfs.f_blocks * vfs.f_frsize / BLCKSZ;
	verdict = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_HOST_CRASH).verdict;
	assert_int_equal(verdict.refusal, PCACHE_UNAVAILABLE);
	assert_contains(verdict.why.message, "is too small");
	assert_contains(verdict.why.hint, "Make the file system larger");
	config.required = true;
	verdict = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_HOST_CRASH).verdict;
	assert_int_equal(verdict.refusal, PCACHE_REFUSED);
	PCachePoolClose(&pool);
}

/* A start that was cut off matters to the next one, but not to who stops cleanly or goes on. */
static void
TestForetellCutOff(void **state)
{
	static const PCacheNextEvent others[] = {PCACHE_NEXT_RESTART, PCACHE_NEXT_CRASH_RESTART};
	PCacheNextConfig config = {.nbuffers = CAPACITY};
	ControlFileData control = {0};
	PCacheMediaReport media = {0};
	PCacheGateFacts facts = {.control = &control,.media = &media};
	PCacheSuperblocks superblocks;
	PCacheSuperblock sb;
	PCachePool	pool;
	PCachePlan	plan;

	Create(&pool, &sb);
	PCacheReadSuperblocks(pool.fd, &superblocks);
	facts.file_size = pool.file_size;
	control.system_identifier = superblocks.chosen.system_identifier;
	superblocks.chosen.state = PCACHE_STATE_CLEAN;
	superblocks.chosen.starts_from = 1;
	plan = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_NOTHING);
	assert_int_equal(plan.verdict.refusal, PCACHE_UNAVAILABLE);
	assert_contains(plan.verdict.why.message, "did not become ready");
	for (int i = 0; i < lengthof(others); i++)
	{
		plan = PCacheForetellPool(&pool, &superblocks, &facts, &config, others[i]);
		assert_int_equal(plan.verdict.refusal, PCACHE_COLD_VERSION);
		assert_int_equal(plan.action, PCACHE_PLAN_USE);
		assert_int_equal(plan.capacity, CAPACITY);
	}

	/*
	 * with pcache.required it is a reason to be cold, unless there is another
	 * one
	 */
	config.required = true;
	plan = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_NOTHING);
	assert_int_equal(plan.verdict.refusal, PCACHE_COLD_VERSION);
	control.catalog_version_no = superblocks.chosen.catalog_version;
	control.checkPointCopy.redo = 1;
	PCacheSuperblockSetClean(&superblocks.chosen, &control, 1);
	superblocks.chosen.control_state = control.state = DB_SHUTDOWNED;
	plan = PCacheForetellPool(&pool, &superblocks, &facts, &config, PCACHE_NEXT_NOTHING);
	assert_int_equal(plan.verdict.refusal, PCACHE_COLD_CUT_OFF);
	PCachePoolClose(&pool);
}

static uint64
AllocatedBytes(const PCachePool *pool)
{
	struct stat st;

	assert_int_equal(fstat(pool->fd, &st), 0);
	return (uint64) st.st_blocks * 512;
}

/*
 * A pool that is created sparse has no blocks until they are allocated, and has
 * its name only when it has all of them.
 */
static void
TestSparse(void **state)
{
	const uint64 capacity = MIB(8) / BLCKSZ;
	PCacheCreation creation;
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	char	   *block;

	for (int finish = 0; finish < 2; finish++)
	{
		assert_true(PCachePoolBeginCreate(&creation, dir, false, capacity,
										  SYSTEM_IDENTIFIER, CATALOG_VERSION,
										  &pool, &sb, &err));
		assert_int_equal(pool.file_size, sb.pool_size);
		if (pool.fs_kind == PCACHE_FS_TMPFS)
			assert_true(AllocatedBytes(&pool) <= sb.blocks_offset);

		block = pool.map.base + sb.blocks_offset + MIB(2);
		assert_true(PCachePoolAllocate(&pool, sb.blocks_offset + MIB(2), MIB(2), &err));
		if (pool.fs_kind == PCACHE_FS_TMPFS)
			assert_int_equal(AllocatedBytes(&pool), sb.blocks_offset + MIB(2));
		memset(block, 0x5a, MIB(2));
		assert_false(Exists(Join(dir, "pool")));
		assert_true(Exists(Join(dir, "pool.tmp")));
		if (finish)
			break;
		PCachePoolAbortCreate(&creation);
		assert_int_equal(pool.fd, -1);
		assert_false(Exists(Join(dir, "pool.tmp")));
	}

	assert_true(PCachePoolFinishCreate(&creation, true, &err));
	assert_false(Exists(Join(dir, "pool.tmp")));
	assert_true(Exists(Join(dir, "pool")));
	assert_true(AllocatedBytes(&pool) >= sb.pool_size);
	/* what was stored meanwhile is there, and the rest is zero */
	for (uint64 i = 0; i < MIB(2); i++)
	{
		assert_int_equal(block[i], 0x5a);
		assert_int_equal(block[i - MIB(2)], 0);
		assert_int_equal(block[i + MIB(2)], 0);
	}
	PCachePoolClose(&pool);
}

/* Who was not told to replace a pool leaves the one that is there alone. */
static void
TestNoReplacement(void **state)
{
	PCachePool	pool;
	PCachePool	other;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat before;
	struct stat after;

	assert_true(PCachePoolCreate(dir, false, CAPACITY, SYSTEM_IDENTIFIER,
								 CATALOG_VERSION, &pool, &sb, &err));
	assert_int_equal(fstat(pool.fd, &before), 0);
	/* in use, and not */
	for (int i = 0; i < 2; i++)
	{
		assert_false(PCachePoolCreate(dir, false, CAPACITY, SYSTEM_IDENTIFIER,
									  CATALOG_VERSION, &other, &sb, &err));
		assert_contains(err.message, "already exists");
		assert_int_equal(stat(Join(dir, "pool"), &after), 0);
		assert_int_equal(after.st_ino, before.st_ino);
		assert_false(Exists(Join(dir, "pool.tmp")));
		PCachePoolClose(&pool);
	}
	/* nor what is no pool */
	unlink(Join(dir, "pool"));
	assert_int_equal(symlink("nowhere", Join(dir, "pool")), 0);
	assert_false(PCachePoolCreate(dir, false, CAPACITY, SYSTEM_IDENTIFIER,
								  CATALOG_VERSION, &other, &sb, &err));
	assert_contains(err.message, "already exists");
}

static void
ExpectNoCreation(uint64 capacity, const char *message)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	memset(&pool, 0x55, sizeof(pool));
	memset(&err, 0, sizeof(err));
	assert_false(PCachePoolCreate(dir, true, capacity, SYSTEM_IDENTIFIER,
								  CATALOG_VERSION, &pool, &sb, &err));
	assert_contains(err.message, message);
	assert_int_equal(pool.fd, -1);
	assert_null(pool.map.base);
}

static void
TestSpace(void **state)
{
	static const uint64 too_large[] = {
		UINT64CONST(1) << 28, UINT64CONST(1) << 30, PCACHE_MAX_CAPACITY
	};
	PCacheDir	open_dir;
	PCacheGeometry g;
	PCacheError err;

	assert_int_equal(PCacheDirOpen(dir, true, &open_dir, &err), PCACHE_DIR_OK);
	assert_true(PCacheSpaceFor(&open_dir, CAPACITY, &g, &err));
	assert_int_equal(g.capacity, CAPACITY);
	assert_int_equal(g.blocks_offset, BLOCKS_OFFSET);
	assert_int_equal(g.pool_size, POOL_SIZE);
	for (int i = 0; i < lengthof(too_large); i++)
	{
		assert_false(PCacheSpaceFor(&open_dir, too_large[i], &g, &err));
		assert_contains(err.message, "not enough space");
		assert_contains(err.message, "MB needed");
		assert_contains(err.hint, "smaller size");
		ExpectNoCreation(too_large[i], "not enough space");
	}
	assert_false(Exists(Join(dir, "pool")));
	assert_false(Exists(Join(dir, "pool.tmp")));
	PCacheDirClose(&open_dir);
	assert_false(PCacheSpaceFor(&open_dir, 1, &g, &err));
	assert_contains(err.message, "could not stat file system");
}

/* Exchanges the new pool as soon as it has its name. */
static bool exchange_after_rename = false;

/* From then on nothing can be made durable. */
static bool fail_after_rename = false;
static bool fsync_fails = false;

int
fsync(int fd)
{
	if (!fsync_fails)
		return syscall(SYS_fsync, fd);
	errno = EIO;
	return -1;
}

int
renameat(int old_fd, const char *old_name, int new_fd, const char *new_name)
{
	int			rc = syscall(SYS_renameat2, old_fd, old_name, new_fd, new_name, 0);

	if (exchange_after_rename)
		assert_int_equal(syscall(SYS_renameat2, new_fd, "theirs", new_fd, new_name, 0), 0);
	fsync_fails = fail_after_rename;
	return rc;
}

static void
TestExchangedAfterRename(void **state)
{
	char		buf[8];

	WriteFile(Join(dir, "theirs"), "precious", 8);
	exchange_after_rename = true;
	ExpectNoCreation(CAPACITY, "was replaced while it was created");
	exchange_after_rename = false;
	assert_int_equal(ReadFile(Join(dir, "pool"), buf, sizeof(buf)), 8);
	assert_memory_equal(buf, "precious", 8);
}

/* One that has taken the place of another stays, which cannot be put back. */
static void
TestSyncFailsAfterRename(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat old;
	struct stat new;

	fail_after_rename = true;
	assert_false(PCachePoolCreate(dir, false, CAPACITY, SYSTEM_IDENTIFIER, CATALOG_VERSION, &pool, &sb, &err));
	assert_contains(err.message, "could not fsync directory");
	assert_false(Exists(Join(dir, "pool")));

	fail_after_rename = fsync_fails = false;
	assert_true(PCachePoolCreate(dir, false, CAPACITY, SYSTEM_IDENTIFIER, CATALOG_VERSION, &pool, &sb, &err));
	assert_int_equal(fstat(pool.fd, &old), 0);
	PCachePoolClose(&pool);
	fail_after_rename = true;
	assert_false(PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER, CATALOG_VERSION, &pool, &sb, &err));
	assert_contains(err.message, "could not fsync directory");
	fail_after_rename = fsync_fails = false;
	assert_int_equal(stat(Join(dir, "pool"), &new), 0);
	assert_int_not_equal(new.st_ino, old.st_ino);
	assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
	PCachePoolClose(&pool);
}

/*
 * The room that a leftover of ours takes is room for its successor.  "Full" is
 * said of the file system for as long as the leftover is there.
 */
static bool full_of_leftover = false;
static bool is_full = false;

int
fstatfs(int fd, struct statfs *buf)
{
	if (syscall(SYS_fstatfs, fd, buf) < 0)
		return -1;
	if (is_full || (full_of_leftover && faccessat(fd, "pool.tmp", F_OK, 0) == 0))
		buf->f_bavail = 0;
	return 0;
}

static void
TestLeftoverIsRoom(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;

	full_of_leftover = true;
	WriteFile(Join(dir, "pool.tmp"), "half a pool", 11);
	Create(&pool, &sb);
	PCachePoolClose(&pool);
	full_of_leftover = false;
	assert_false(Exists(Join(dir, "pool.tmp")));
}

/* Also for whoever asks before the leftover is removed, as a start does. */
static void
TestLeftoverCounts(void **state)
{
	PCacheCreation creation;
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheGeometry g;
	PCacheDir	where;
	PCacheError err;

	assert_true(PCachePoolBeginCreate(&creation, dir, false, CAPACITY,
									  SYSTEM_IDENTIFIER, CATALOG_VERSION,
									  &pool, &sb, &err));
	assert_true(PCachePoolAllocate(&pool, 0, pool.file_size, &err));
	/* it is none yet */
	assert_int_equal(PCacheDirOpen(dir, true, &where, &err), PCACHE_DIR_OK);
	full_of_leftover = true;
	assert_false(PCacheSpaceFor(&where, CAPACITY, &g, &err));
	assert_contains(err.message, "not enough space");
	/* killed here */
	PCachePoolClose(&pool);
	PCacheDirClose(&creation.dir);
	assert_true(PCacheSpaceFor(&where, CAPACITY, &g, &err));
	assert_false(PCacheSpaceFor(&where, CAPACITY + MIB(4) / BLCKSZ, &g, &err));
	full_of_leftover = false;
	PCacheDirClose(&where);
}

/* Sizes that overflow must not look small. */
static void
TestSpaceOverflow(void **state)
{
	static const uint64 capacities[] = {
		UINT64CONST(1) + PCACHE_MAX_CAPACITY, UINT64CONST(1) << 51,
		UINT64CONST(1) << 58, (UINT64CONST(1) << 58) + 1,
		UINT64CONST(1) << 63, PG_UINT64_MAX - 1, PG_UINT64_MAX
	};
	PCacheDir	open_dir;
	PCacheGeometry g;
	PCacheError err;

	assert_int_equal(PCacheDirOpen(dir, true, &open_dir, &err), PCACHE_DIR_OK);
	for (int i = 0; i < lengthof(capacities); i++)
	{
		if (PCacheSpaceFor(&open_dir, capacities[i], &g, &err))
			fail_msg("%llu blocks are said to need %llu bytes",
					 (unsigned long long) capacities[i],
					 (unsigned long long) g.pool_size);
	}
	PCacheDirClose(&open_dir);
}

/* What an interrupted creation left, or a pool that was there, is replaced. */
static void
TestCreateAgain(void **state)
{
	PCachePool	pool;
	PCachePool	old;
	PCacheSuperblock sb;
	PCacheSuperblock old_sb;
	PCacheSuperblock seen;

	WriteFile(Join(dir, "pool.tmp"), "half a pool", 11);
	Create(&old, &old_sb);
	assert_false(Exists(Join(dir, "pool.tmp")));
	ExpectNewPool(old.fd, &old_sb);

	WriteFile(Join(dir, "pool.tmp"), "", 0);
	Create(&pool, &sb);
	assert_false(Exists(Join(dir, "pool.tmp")));
	ExpectNewPool(pool.fd, &sb);
	assert_memory_not_equal(sb.pool_uuid, old_sb.pool_uuid, PCACHE_UUID_LEN);

	/* who had the old one keeps it, and does not disturb the new one */
	assert_true(PCacheReadExact(old.fd, &seen, sizeof(seen), 0));
	assert_memory_equal(&seen, &old_sb, sizeof(seen));
	PCachePoolClose(&old);
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_WRITE), PCACHE_OPEN_LOCKED);
	PCachePoolClose(&pool);
	assert_int_equal(OpenElsewhere(PCACHE_OPEN_WRITE), PCACHE_OPEN_OK);
}

/*
 * Run a check in a process that can't make a file longer than so many bytes.
 * It returns 0 if all is well.
 */
static void
RunWithoutRoom(uint64 file_size, int (*check) (void *arg), void *arg)
{
	pid_t		pid = fork();
	int			status;

	assert_true(pid >= 0);
	if (pid == 0)
	{
		struct rlimit limit = {file_size, file_size};

		signal(SIGXFSZ, SIG_IGN);
		_exit(setrlimit(RLIMIT_FSIZE, &limit) != 0 ? 1 : check(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int
CreationFails(void *arg)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	if (PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER,
						 CATALOG_VERSION, &pool, &sb, &err))
		return 2;
	return pool.fd == -1 &&
		strstr(err.message, "needs a file of 10 MB, but the limit on the size of files is 1 MB") != NULL &&
		strstr(err.hint, "ulimit -f") != NULL ? 0 : 3;
}

static void
TestCreateFails(void **state)
{
	char	   *real_dir = dir;

	assert_int_equal(mkdir(Join(dir, "pool.tmp"), 0700), 0);
	ExpectNoCreation(CAPACITY, "is not a regular file");
	assert_int_equal(rmdir(Join(dir, "pool.tmp")), 0);

	/* fails when it gets its name */
	assert_int_equal(mkdir(Join(dir, "pool"), 0700), 0);
	ExpectNoCreation(CAPACITY, "could not rename file");
	assert_false(Exists(Join(dir, "pool.tmp")));
	assert_int_equal(rmdir(Join(dir, "pool")), 0);

	/* fails when it gets its space */
	RunWithoutRoom(MIB(1), CreationFails, NULL);
	assert_false(Exists(Join(dir, "pool.tmp")));
	assert_false(Exists(Join(dir, "pool")));

	dir = strdup(Join(real_dir, "nowhere"));
	ExpectNoCreation(CAPACITY, "No such file or directory");
	free(dir);
	dir = real_dir;

	if (geteuid() != 0)
	{
		assert_int_equal(chmod(dir, 0500), 0);
		ExpectNoCreation(CAPACITY, "could not create file");
		assert_int_equal(chmod(dir, 0700), 0);
	}
}

/* The largest pool in a file: it fits, and no larger one does. */
static void
TestCapacityFor(void **state)
{
	assert_int_equal(PCacheCapacityFor(0), 0);
	assert_int_equal(PCacheCapacityFor(BLOCKS_OFFSET), 0);
	for (uint64 capacity = 16; capacity < 200 * 1000; capacity = capacity * 5 / 3)
	{
		uint64		size = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT).pool_size;
		uint64		found = PCacheCapacityFor(size);

		assert_true(found >= capacity);
		assert_true(PCacheComputeGeometry(found, PCACHE_ALIGNMENT).pool_size <= size);
	}
	assert_int_equal(PCacheCapacityFor(PG_UINT64_MAX / 2), PCACHE_MAX_CAPACITY);
}

/* Descriptors of slots that hold pages, all of them.  Returns the first. */
static PCacheDescriptor *
SealAll(PCachePool *pool)
{
	PCacheDescriptor *stored = (PCacheDescriptor *) (pool->map.base + MIB(2));

	for (uint32 i = 0; i < CAPACITY; i++)
	{
		stored[i].seq = 2 * i;
		stored[i].page_lsn = i * 1000;
		stored[i].slot = i;
		stored[i].version = PCACHE_DESC_VERSION;
		stored[i].crc = PCacheDescriptorCrc(&stored[i]);
	}
	assert_true(PCachePersist(&pool->map, stored, CAPACITY * 64));
	return stored;
}

static uint32
CountSealed(const PCachePool *pool, uint32 end)
{
	PCacheDescriptor descs[CAPACITY];
	uint32		n = 0;

	assert_true(PCacheReadDescriptors(pool->fd, 0, CAPACITY, descs));
	for (uint32 i = 0; i < CAPACITY; i++)
	{
		if (!PCacheSeqIsSealed(descs[i].seq))
			continue;
		assert_true(i < end);
		assert_true(PCacheDescriptorIsIntact(&descs[i], i));
		n++;
	}
	return n;
}

typedef struct RestoreCase
{
	PCachePool *pool;
	PCacheSuperblock *sb;
	uint64		lost;			/* expected */
} RestoreCase;

static int
RestoreFails(void *arg)
{
	const RestoreCase *c = arg;
	PCacheError err;
	uint64		lost;

	if (PCachePoolRestoreSize(c->pool, c->sb, false, &lost, &err))
		return 2;
	return strstr(err.message, "could not allocate") != NULL &&
		lost == c->lost && c->pool->map.base == NULL ? 0 : 3;
}

/* A file that is there can have its holes filled, whatever the limit. */
static int
LimitIsAsked(void *arg)
{
	PCachePool *pool = arg;
	PCacheError err;

	if (!PCachePoolHasRoom(pool, pool->file_size))
		return 2;
	if (PCachePoolHasRoom(pool, pool->file_size + MIB(2)) || errno != EFBIG)
		return 3;
	PCachePoolSetAllocationError(pool, pool->file_size, &err);
	return errno == EFBIG && strstr(err.hint, "ulimit -f") != NULL ? 0 : 4;
}

/* Is it told beforehand what a start does with the file? */
static void
TestAskedBefore(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;

	Create(&pool, &sb);
	assert_true(PCacheUnmap(&pool.map));
	assert_false(PCachePoolIsIncomplete(&pool, POOL_SIZE));
	assert_true(PCachePoolIsIncomplete(&pool, POOL_SIZE + 1));
	assert_false(PCachePoolHeadIsLost(&pool));
	RunWithoutRoom(MIB(1), LimitIsAsked, &pool);

	errno = ENOSPC;
	PCachePoolSetAllocationError(&pool, POOL_SIZE, &err);
	assert_contains(err.message, "could not allocate 10 MB");
	assert_contains(err.hint, pool.fs_kind == PCACHE_FS_TMPFS ? "mount -o remount,size=" : "Enlarge its file system, or");
	PCachePoolClose(&pool);

	assert_int_equal(Open(PCACHE_OPEN_PEEK, &pool, &err), PCACHE_OPEN_OK);
	assert_true(PCacheFileIsWritable(pool.fd, pool.path, &err));
	assert_int_equal(chmod(pool.path, 0400), 0);
	if (geteuid() != 0)
	{
		PCachePool	other;
		PCacheError told;

		assert_false(PCacheFileIsWritable(pool.fd, pool.path, &told));
		assert_int_equal(Open(PCACHE_OPEN_WRITE, &other, &err), PCACHE_OPEN_ERROR);
		assert_string_equal(told.message, err.message);
		assert_string_equal(told.hint, err.hint);
	}
	PCachePoolClose(&pool);
}

/* Slots that were cut off are free before anything is in their place. */
static void
TestRestoreSize(void **state)
{
	static const struct
	{
		uint64		cut_at;
		uint32		left;		/* slots */
	}			cases[] = {
		{BLOCKS_OFFSET, 0},
		{BLOCKS_OFFSET + 1, 0},
		{BLOCKS_OFFSET + BLCKSZ - 1, 0},
		{BLOCKS_OFFSET + BLCKSZ, 1},
		{BLOCKS_OFFSET + 100 * BLCKSZ + 512, 100},
		{BLOCKS_OFFSET + (CAPACITY - 1) * BLCKSZ, CAPACITY - 1},
		{BLOCKS_OFFSET + CAPACITY * BLCKSZ, CAPACITY},
		{POOL_SIZE - 1, CAPACITY},
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		PCachePool	pool;
		PCacheSuperblock sb;
		PCacheError err;
		struct stat st;
		uint64		lost;
		RestoreCase restore = {&pool, &sb};

		Create(&pool, &sb);
		SealAll(&pool);
		assert_true(PCacheUnmap(&pool.map));
		assert_int_equal(ftruncate(pool.fd, cases[i].cut_at), 0);
		pool.file_size = cases[i].cut_at;

		/* no room: the slots are free nevertheless, and the file is short */
		restore.lost = CAPACITY - cases[i].left;
		RunWithoutRoom(cases[i].cut_at, RestoreFails, &restore);
		assert_int_equal(fstat(pool.fd, &st), 0);
		assert_int_equal(st.st_size, cases[i].cut_at);
		assert_int_equal(CountSealed(&pool, cases[i].left), cases[i].left);

		/* there is */
		assert_true(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
		assert_int_equal(lost, 0);
		assert_int_equal(pool.file_size, POOL_SIZE);
		assert_null(pool.map.base);
		assert_int_equal(fstat(pool.fd, &st), 0);
		assert_int_equal(st.st_size, POOL_SIZE);
		assert_true((uint64) st.st_blocks * 512 >= POOL_SIZE);
		assert_int_equal(CountSealed(&pool, cases[i].left), cases[i].left);
		PCachePoolClose(&pool);
	}
}

static void
PunchHole(const PCachePool *pool, uint64 offset, uint64 length)
{
	assert_int_equal(fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
							   offset, length), 0);
	assert_true(PCachePoolHasHoles(pool));
}

/* A pool of sealed pages, none of which is zero, and which is not mapped. */
static void
CreateFull(PCachePool *pool, PCacheSuperblock *sb)
{
	Create(pool, sb);
	SealAll(pool);
	memset(pool->map.base + BLOCKS_OFFSET, 0x5a, CAPACITY * BLCKSZ);
	sb->state = PCACHE_STATE_CLEAN;
	assert_true(PCacheSuperblockStore(&pool->map, sb));
	assert_true(PCacheUnmap(&pool->map));
	assert_false(PCachePoolHasHoles(pool));
}

/* What is in a hole is not taken for pages, nor for anything else. */
static void
TestHoles(void **state)
{
	static const uint64 heads[] = {
		PCACHE_SUPERBLOCK_OFFSET, PCACHE_COPY_OFFSET, PCACHE_NOTES_OFFSET,
		PCACHE_DESCRIPTORS_OFFSET - 4096
	};
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheSuperblocks found;
	PCacheDescriptor descs[CAPACITY];
	PCacheError err;
	uint64		lost;

	Create(&pool, &sb);
	PCachePoolClose(&pool);
	if (pool.fs_kind != PCACHE_FS_TMPFS)
	{
		/* it may be one that compresses */
		assert_int_equal(Open(PCACHE_OPEN_WRITE, &pool, &err), PCACHE_OPEN_OK);
		assert_int_equal(ftruncate(pool.fd, 2 * POOL_SIZE), 0);
		pool.file_size = 2 * POOL_SIZE;
		assert_false(PCachePoolHasHoles(&pool));
		PCachePoolClose(&pool);
		return;
	}

	/*
	 * in pages: the last half of one, the next one, and the first half of a
	 * third
	 */
	CreateFull(&pool, &sb);
	PunchHole(&pool, BLOCKS_OFFSET + 10 * BLCKSZ + BLCKSZ / 2, 2 * BLCKSZ);
	PunchHole(&pool, BLOCKS_OFFSET + 200 * BLCKSZ, BLCKSZ);
	/* no room: their slots are free nevertheless */
	is_full = true;
	assert_false(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
	is_full = false;
	assert_contains(err.message, "could not allocate");
	assert_int_equal(lost, 4);
	assert_null(pool.map.base);
	assert_true(PCachePoolHasHoles(&pool));
	assert_int_equal(CountSealed(&pool, CAPACITY), CAPACITY - 4);
	assert_true(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
	assert_int_equal(lost, 0);
	assert_false(PCachePoolHasHoles(&pool));
	assert_null(pool.map.base);
	assert_true(PCacheReadDescriptors(pool.fd, 0, CAPACITY, descs));
	for (int i = 0; i < CAPACITY; i++)
		assert_int_equal(PCacheSeqIsSealed(descs[i].seq), (i < 10 || i > 12) && i != 200);
	assert_int_equal(sb.state, PCACHE_STATE_CLEAN);

	/* in descriptors, and the file is cut off as well */
	PCachePoolClose(&pool);
	CreateFull(&pool, &sb);
	PunchHole(&pool, MIB(2) + 4096, 4096);
	assert_int_equal(ftruncate(pool.fd, BLOCKS_OFFSET + 250 * BLCKSZ), 0);
	pool.file_size = BLOCKS_OFFSET + 250 * BLCKSZ;
	assert_true(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
	assert_int_equal(lost, CAPACITY - 250);
	assert_int_equal(pool.file_size, POOL_SIZE);
	assert_false(PCachePoolHasHoles(&pool));
	assert_true(PCacheReadDescriptors(pool.fd, 0, CAPACITY, descs));
	for (int i = 0; i < 250; i++)
		assert_int_equal(PCacheDescriptorIsIntact(&descs[i], i), i < 64 || i >= 128);
	assert_int_equal(sb.state, PCACHE_STATE_CLEAN);
	PCachePoolClose(&pool);

	/*
	 * In front of them: one superblock is enough, but behind these there may
	 * have been a reason not to believe the pool.
	 */
	for (int i = 0; i < lengthof(heads); i++)
	{
		bool		is_superblock = heads[i] < PCACHE_NOTES_OFFSET;

		CreateFull(&pool, &sb);
		PunchHole(&pool, heads[i], 4096);
		assert_true(PCachePoolIsIncomplete(&pool, POOL_SIZE));
		assert_int_equal(PCachePoolHeadIsLost(&pool), !is_superblock);
		assert_true(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
		assert_int_equal(lost, 0);
		assert_false(PCachePoolHasHoles(&pool));
		assert_int_equal(sb.state, is_superblock ? PCACHE_STATE_CLEAN : PCACHE_STATE_EMPTY);
		PCacheReadSuperblocks(pool.fd, &found);
		assert_int_equal(found.first_intact, heads[i] != PCACHE_SUPERBLOCK_OFFSET);
		assert_int_equal(found.copy_intact, heads[i] != PCACHE_COPY_OFFSET);
		assert_int_equal(found.chosen.state, sb.state);
		PCachePoolClose(&pool);
	}

	/* in all of them: the superblocks are allocated before they are stored to */
	CreateFull(&pool, &sb);
	PunchHole(&pool, PCACHE_COPY_OFFSET, 3 * 4096);
	assert_true(PCachePoolRestoreSize(&pool, &sb, false, &lost, &err));
	PCacheReadSuperblocks(pool.fd, &found);
	assert_true(found.first_intact && found.copy_intact);
	assert_int_equal(found.chosen.state, PCACHE_STATE_EMPTY);
	PCachePoolClose(&pool);
}

/* Make a pool larger that has two holes.  Its pages stay where they are in the file. */
static void
TestGrow(void **state)
{
	const uint64 before = 1024;
	const uint64 capacity = 33000;	/* its ledger takes two steps of 2 MiB
									 * more */
	const uint64 shift = 512;
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	PCacheDescriptor descs[1024];
	PCacheDescriptor *stored;
	PCacheRangeList holes = {0};
	uint64		given_up = 0;

	assert_true(PCachePoolCreate(dir, true, before, SYSTEM_IDENTIFIER, CATALOG_VERSION, &pool, &sb, &err));
	if (pool.fs_kind != PCACHE_FS_TMPFS)
	{
		/* all of it would be allocated */
		PCachePoolClose(&pool);
		return;
	}
	stored = (PCacheDescriptor *) (pool.map.base + PCACHE_DESCRIPTORS_OFFSET);
	for (uint32 i = 0; i < before; i++)
	{
		stored[i].block_number = i;
		stored[i].slot = i;
		stored[i].version = PCACHE_DESC_VERSION;
		PCacheDescriptorSetSealed(&stored[i]);
		memset(pool.map.base + sb.blocks_offset + i * BLCKSZ, i % 255 + 1, BLCKSZ);
	}
	/* an entry that was given up says the same of another generation */
	stored[0] = stored[shift];
	stored[0].slot = 0;
	stored[0].crc = PCacheDescriptorCrc(&stored[0]);
	stored[0].seq = 100;
	stored[shift].seq = 200;
	PCacheDescriptorSetFree(&stored[1]);
	PCacheDescriptorSetFree(&stored[700]);
	stored[800].crc++;
	sb.state = PCACHE_STATE_CLEAN;
	sb.slots_used = before - 1;
	assert_true(PCacheSuperblockStore(&pool.map, &sb));
	PunchHole(&pool, sb.blocks_offset + 900 * BLCKSZ, 4096);
	PCachePoolListHoles(&pool, &holes);

	assert_int_equal(PCachePoolSlotsGivenUp(&pool, &sb, before), 0);
	assert_int_equal(PCachePoolSlotsGivenUp(&pool, &sb, capacity), shift);
	assert_true(PCachePoolGrow(&pool, &sb, capacity, &holes, &given_up, &err));
	assert_int_equal(PCachePoolSlotsGivenUp(&pool, &sb, capacity), 0);
	assert_int_equal(given_up, shift - 1 + 2);
	assert_int_equal(sb.state, PCACHE_STATE_CLEAN);
	assert_int_equal(sb.capacity, capacity);
	assert_int_equal(sb.slots_used, before - 1 - shift);
	assert_int_equal(sb.blocks_offset, MIB(10));
	assert_int_equal(sb.pool_size, pool.file_size);
	assert_int_equal(PCacheGeometryGate(&sb, pool.file_size).refusal, PCACHE_WARM);
	assert_true(PCacheReadDescriptors(pool.fd, 0, before, descs));
	assert_int_equal(descs[0].seq, 200);
	for (uint32 i = 0; i < before; i++)
	{
		uint32		old = i + shift;
		const char *page = pool.map.base + sb.blocks_offset + i * BLCKSZ;

		assert_int_equal(PCacheSeqIsSealed(descs[i].seq),
						 old < before - 1 && old != 700 && old != 800 && old != 900);
		if (!PCacheSeqIsSealed(descs[i].seq))
			continue;
		assert_true(PCacheDescriptorIsIntact(&descs[i], i));
		assert_int_equal(descs[i].block_number, old);
		assert_int_equal((unsigned char) page[0], old % 255 + 1);
		assert_int_equal((unsigned char) page[BLCKSZ - 1], old % 255 + 1);
	}
	free(holes.ranges);
	PCachePoolClose(&pool);
}

static int
EnlargingFails(void *arg)
{
	PCachePool *pool = arg;
	uint64		size = pool->file_size;
	PCacheError err;

	if (PCachePoolSetSize(pool, size + MIB(62), size + MIB(62), &err))
		return 2;
	return pool->file_size == size &&
		strstr(err.message, "could not allocate") != NULL ? 0 : 3;
}

static int	parts_begun;

/* Asked before each part is allocated; one is enough. */
static bool
CountParts(void)
{
	return ++parts_begun > 1;
}

static void
TestSetSize(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat st;
	uint64		too_large;
	struct statvfs vfs;
	uint64		size;

	Create(&pool, &sb);
	size = pool.file_size;
	assert_true(PCacheUnmap(&pool.map));
	assert_true(PCachePoolSetSize(&pool, size + MIB(2), size + MIB(2), &err));
	assert_int_equal(pool.file_size, size + MIB(2));
	assert_int_equal(fstat(pool.fd, &st), 0);
	assert_int_equal(st.st_size, size + MIB(2));
	assert_true((uint64) st.st_blocks * 512 >= size + MIB(2));

	/* no room: as before */
	RunWithoutRoom(size + MIB(4), EnlargingFails, &pool);
	assert_int_equal(fstat(pool.fd, &st), 0);
	assert_int_equal(st.st_size, size + MIB(2));

	/* more than there is: found out before the memory of the host is full */
	assert_int_equal(fstatvfs(pool.fd, &vfs), 0);
	parts_begun = 0;
	PCachePoolInterrupted = CountParts;
	too_large = (uint64) vfs.f_blocks * vfs.f_frsize + MIB(2);
	assert_false(PCachePoolSetSize(&pool, too_large, too_large, &err));
	PCachePoolInterrupted = NULL;
	assert_contains(err.message, "No space left on device");
	assert_int_equal(parts_begun, 0);
	assert_int_equal(pool.file_size, size + MIB(2));

	assert_true(PCachePoolSetSize(&pool, size, size, &err));
	assert_int_equal(fstat(pool.fd, &st), 0);
	assert_int_equal(st.st_size, size);
	ExpectNewPool(pool.fd, &sb);
	PCachePoolClose(&pool);
}

/* A file that can neither be allocated nor given its former size is told of. */
static void
TestSizeNotRestored(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	struct stat st;

	Create(&pool, &sb);
	assert_true(PCacheUnmap(&pool.map));
	close(pool.fd);
	pool.fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(pool.fd >= 0);
	assert_int_equal(ftruncate(pool.fd, POOL_SIZE), 0);
	assert_int_equal(fcntl(pool.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);

	PCachePoolInterrupted = IsInterrupted;
	times_asked = 0;
	interrupt_at = 1;
	assert_false(PCachePoolSetSize(&pool, 2 * POOL_SIZE, 2 * POOL_SIZE, &err));
	assert_int_equal(errno, EINTR);
	PCachePoolInterrupted = NULL;
	assert_contains(err.message, "interrupted");
	assert_contains(err.hint, "Operation not permitted");
	assert_int_equal(fstat(pool.fd, &st), 0);
	assert_int_equal(st.st_size, 2 * POOL_SIZE);
	PCachePoolClose(&pool);
}

/* What somebody else creates just now is left alone. */
static void
TestCreateConcurrently(void **state)
{
	const char *tmp_path = Join(dir, "pool.tmp");
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheError err;
	char		buf[16];
	int			fd;

	WriteFile(tmp_path, "theirs", 6);
	fd = open(tmp_path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	ExpectNoCreation(CAPACITY, "could not lock file");
	assert_false(PCachePoolCreate(dir, true, CAPACITY, SYSTEM_IDENTIFIER,
								  CATALOG_VERSION, &pool, &sb, &err));
	assert_contains(err.hint, "another pg_pcache");
	assert_int_equal(ReadFile(tmp_path, buf, sizeof(buf)), 6);
	assert_memory_equal(buf, "theirs", 6);
	assert_false(Exists(Join(dir, "pool")));
	close(fd);
	Create(&pool, &sb);
	PCachePoolClose(&pool);
}

/*
 * Who opens a pool while somebody creates it waits for that, and then has it,
 * or is told that there is none.
 */
static void
TestOpenDuringCreation(void **state)
{
	enum
	{
		FINISHED, ABORTED, KILLED, STUCK
	};

	for (int end = FINISHED; end <= STUCK; end++)
	{
		PCachePool	pool;
		PCacheSuperblock sb;
		PCacheError err;
		PCacheCreation creation;
		int			from_child[2];
		int			to_child[2];
		int			status;
		char		byte;
		pid_t		pid;

		assert_int_equal(pipe(from_child), 0);
		assert_int_equal(pipe(to_child), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
		{
			if (!PCachePoolBeginCreate(&creation, dir, false, CAPACITY,
									   SYSTEM_IDENTIFIER, CATALOG_VERSION,
									   &pool, &sb, &err) ||
				write(from_child[1], "x", 1) != 1 ||
				read(to_child[0], &byte, 1) != 1)
				_exit(1);
			if (end == STUCK)
				sleep(60);
			/* whoever is late does not wait, and gets the same result */
			pg_usleep(200000);
			if (end == ABORTED)
				PCachePoolAbortCreate(&creation);
			else if (end == FINISHED && !PCachePoolFinishCreate(&creation, true, &err))
				_exit(1);
			_exit(0);
		}
		close(from_child[1]);
		assert_int_equal(read(from_child[0], &byte, 1), 1);
		close(from_child[0]);

		/* who does not want to wait, or only looks */
		assert_int_equal(Open(PCACHE_OPEN_TRY, &pool, &err), PCACHE_OPEN_LOCKED);
		assert_contains(err.message, "is being created by another process");
		assert_int_equal(Open(PCACHE_OPEN_PEEK, &pool, &err), PCACHE_OPEN_MISSING);

		assert_int_equal(write(to_child[1], "x", 1), 1);
		close(to_child[0]);
		close(to_child[1]);
		PCachePoolLockWait = end == STUCK ? 50 : 60000;
		assert_int_equal(Open(end == KILLED ? PCACHE_OPEN_READ : PCACHE_OPEN_WRITE, &pool, &err),
						 end == FINISHED ? PCACHE_OPEN_OK :
						 end == STUCK ? PCACHE_OPEN_LOCKED : PCACHE_OPEN_MISSING);
		if (end == STUCK)
		{
			assert_contains(err.message, "is being created by another process");
			assert_contains(err.hint, "another server");
			kill(pid, SIGKILL);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, end == STUCK ? SIGKILL : 0);
		PCachePoolClose(&pool);
		assert_int_equal(Exists(Join(dir, "pool.tmp")), end == KILLED || end == STUCK);
		unlink(Join(dir, "pool"));

		/* what is left is in nobody's way */
		Create(&pool, &sb);
		PCachePoolClose(&pool);
		PCachePoolLockWait = 0;
		unlink(Join(dir, "pool"));
	}
}

static void
TestReadExact(void **state)
{
	const char *path = Join(dir, "file");
	char		buf[16];
	int			fd;

	WriteFile(path, "0123456789", 10);
	fd = open(path, O_RDONLY);
	assert_true(PCacheReadExact(fd, buf, 10, 0));
	assert_memory_equal(buf, "0123456789", 10);
	assert_true(PCacheReadExact(fd, buf, 3, 7));
	assert_memory_equal(buf, "789", 3);
	assert_true(PCacheReadExact(fd, buf, 0, 100));
	errno = EIO;
	assert_false(PCacheReadExact(fd, buf, 4, 7));
	assert_int_equal(errno, 0);
	errno = EIO;
	assert_false(PCacheReadExact(fd, buf, 1, 10));
	assert_int_equal(errno, 0);
	close(fd);
	assert_false(PCacheReadExact(fd, buf, 1, 0));
	assert_int_equal(errno, EBADF);
}

/* Descriptors beyond the end of a truncated file come back damaged. */
static void
TestReadDescriptors(void **state)
{
	PCachePool	pool;
	PCacheSuperblock sb;
	PCacheDescriptor *stored;
	PCacheDescriptor descs[CAPACITY];
	PCacheMediaReport media = {.blocks = PCACHE_MEDIA_CLEAN};
	PCachePageFacts facts = {.media = &media,.file_size = POOL_SIZE};

	Create(&pool, &sb);
	stored = SealAll(&pool);

	for (uint32 first = 0; first < CAPACITY; first += 37)
	{
		for (uint32 count = 0; first + count <= CAPACITY; count += 29)
		{
			memset(descs, 0x55, sizeof(descs));
			assert_true(PCacheReadDescriptors(pool.fd, first, count, descs));
			assert_memory_equal(descs, stored + first, count * 64);
			if (count < CAPACITY)
				assert_int_equal(((uint8 *) &descs[count])[0], 0x55);
		}
	}

	/* in the midst of the hundredth one */
	assert_int_equal(ftruncate(pool.fd, MIB(2) + 100 * 64 + 10), 0);
	for (uint32 first = 0; first < 150; first += 10)
	{
		memset(descs, 0x55, sizeof(descs));
		assert_int_equal(PCacheReadDescriptors(pool.fd, first, 50, descs), first + 50 <= 100);
		for (uint32 i = 0; i < 50; i++)
		{
			if (first + i < 100)
			{
				assert_int_equal(descs[i].slot, first + i);
				assert_int_equal(descs[i].crc, PCacheDescriptorCrc(&descs[i]));
			}
			else
				assert_int_equal(PCachePageGate(&descs[i], first + i, &facts), PCACHE_PAGE_CRC);
		}
		assert_int_equal(((uint8 *) &descs[50])[0], 0x55);
	}
	PCachePoolClose(&pool);
}

/* The seam to the media, as this build and this environment have it */
static void
TestPersist(void **state)
{
	const char *path = Join(dir, "file");
	PCacheMapping map = {0};
	PCachePersistKind expected =
		dir_kind == PCACHE_FS_TMPFS ? PCACHE_PERSIST_MEMORY : PCACHE_PERSIST_FILE;
	char		buf[64];
	int			fd;

#ifdef USE_LIBPMEM
	if (getenv("PMEM_IS_PMEM_FORCE") != NULL)
		expected = PCACHE_PERSIST_PMEM;
#endif
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, MIB(4)), 0);
	assert_true(PCacheMap(path, dir_kind == PCACHE_FS_TMPFS, &map));
	assert_int_equal(map.length, MIB(4));
	assert_int_equal((uintptr_t) map.base % MIB(2), 0);
	assert_int_equal(map.kind, expected);

	/* at odd places, of odd lengths, across pages */
	for (size_t offset = 4096 - 33; offset < MIB(4) - 64; offset += 99991)
	{
		memset(map.base + offset, 'p', 61);
		assert_true(PCachePersist(&map, map.base + offset, 61));
		assert_int_equal(pread(fd, buf, 63, offset - 1), 63);
		assert_int_equal(buf[0], 0);
		assert_int_equal(strspn(buf + 1, "p"), 61);
		assert_int_equal(buf[62], 0);

		memset(map.base + offset, 'f', 61);
		PCacheFlush(&map, map.base + offset, 61);
		assert_true(PCacheDrain(&map));
		assert_int_equal(map.base[offset], 'f');

		memset(buf, 'm', 61);
		PCacheMemcpyNodrain(&map, map.base + offset, buf, 61);
		assert_true(PCacheDrain(&map));
		assert_int_equal(strspn(map.base + offset, "m"), 61);
		assert_int_equal(map.base[offset - 1], 0);
		assert_int_equal(map.base[offset + 61], 0);
	}
	/* to the very end */
	assert_true(PCachePersist(&map, map.base + MIB(4) - 1, 1));
	assert_true(PCachePersist(&map, map.base, MIB(4)));
	assert_true(PCacheUnmap(&map));
	assert_null(map.base);

	/* a length that is not a multiple of 2 MiB */
	assert_int_equal(ftruncate(fd, MIB(5) + 4096), 0);
	assert_true(PCacheMap(path, dir_kind == PCACHE_FS_TMPFS, &map));
	assert_int_equal(map.length, MIB(5) + 4096);
	assert_int_equal((uintptr_t) map.base % MIB(2), 0);
	assert_true(PCacheUnmap(&map));

	/* nothing to map */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(PCacheMap(path, true, &map));
	assert_null(map.base);
	assert_true(errno != 0);
	close(fd);
	unlink(path);
	assert_false(PCacheMap(path, true, &map));
	assert_null(map.base);
	assert_int_equal(errno, ENOENT);
}

/* What was persisted can't be lost if it can't be written back, unnoticed. */
static void
TestPersistFails(void **state)
{
	PCacheMapping map = {0};
	const char *path = Join(dir, "file");
	int			fd = open(path, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, MIB(4)), 0);
	close(fd);
	assert_true(PCacheMap(path, dir_kind == PCACHE_FS_TMPFS, &map));
	if (map.kind == PCACHE_PERSIST_FILE)
	{
		char	   *base = map.base;

		/* msync() fails on what is not mapped */
		assert_int_equal(munmap(base + MIB(2), MIB(2)), 0);
		assert_false(PCachePersist(&map, base + MIB(3), 64));
		assert_int_equal(errno, ENOMEM);
		assert_false(PCacheDrain(&map));
		assert_int_equal(errno, ENOMEM);
		assert_true(PCachePersist(&map, base + MIB(1), 64));
	}
	PCacheUnmap(&map);
}

static void
TestFsKind(void **state)
{
	PCacheFsKind kind = 0;
	uint64		page_size = 0;
	PCacheDir	open_dir;
	PCacheError err;

	assert_int_equal(PCacheDirOpen(dir, true, &open_dir, &err), PCACHE_DIR_OK);
	assert_true(PCacheFsKindOf(&open_dir, open_dir.fd, &kind, &page_size));
	assert_int_equal(kind, dir_kind);
	assert_int_equal(page_size, MIB(2));
	PCacheDirClose(&open_dir);
	assert_false(PCacheFsKindOf(&open_dir, open_dir.fd, &kind, &page_size));
	assert_int_equal(errno, EBADF);

	assert_string_equal(PCacheFsKindName(PCACHE_FS_FILE), "file");
	assert_string_equal(PCacheFsKindName(PCACHE_FS_TMPFS), "tmpfs");
	assert_string_equal(PCacheFsKindName(PCACHE_FS_HUGETLBFS), "hugetlbfs");
	assert_string_equal(PCacheFsKindName(PCACHE_FS_FSDAX), "fsdax");
	assert_string_equal(PCacheFsKindName(77), "unknown");
}

static void
TestMakeDirectory(void **state)
{
	const char *deep = Join(dir, "a/b/c");
	PCacheError err;
	struct stat st;
	mode_t		old_umask = umask(022);

	/* a mount is missing */
	for (PCacheFsKind kind = PCACHE_FS_FILE; kind <= PCACHE_FS_FSDAX; kind++)
	{
		if (kind == dir_kind)
			continue;
		assert_false(PCacheMakeDirectory(deep, kind, &err));
		assert_contains(err.message, "cannot be created");
		assert_contains(err.message, deep);
		assert_contains(err.message, PCacheFsKindName(kind));
		assert_contains(err.message, PCacheFsKindName(dir_kind));
		assert_false(Exists(Join(dir, "a")));
		/* even if the directory itself is there */
		assert_false(PCacheMakeDirectory(dir, kind, &err));
	}

	assert_true(PCacheMakeDirectory(deep, dir_kind, &err));
	assert_int_equal(stat(deep, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0700);

	/* again, and with some that exist */
	assert_true(PCacheMakeDirectory(deep, dir_kind, &err));
	assert_true(PCacheMakeDirectory(Join(dir, "a/b/d"), dir_kind, &err));

	/* not through a file, nor in its place */
	WriteFile(Join(dir, "file"), "x", 1);
	assert_false(PCacheMakeDirectory(Join(dir, "file/x"), dir_kind, &err));
	assert_contains(err.message, "Not a directory");
	assert_false(PCacheMakeDirectory(Join(dir, "file"), dir_kind, &err));
	assert_contains(err.message, "Not a directory");
	umask(old_umask);
}

static void
TestIsInside(void **state)
{
	static const struct
	{
		const char *path;
		const char *directory;
		bool		expected;
	}			cases[] = {
		{"/a/b", "/a/b", true},
		{"/a/b/c", "/a/b", true},
		{"/a/b/c/d", "/a", true},
		{"/a/bc", "/a/b", false},
		{"/a/b", "/a/bc", false},
		{"/a", "/a/b", false},
		{"/x/a/b", "/a/b", false},
		{"/A/b", "/a", false},
		{"/a/b.c", "/a/b", false},
		{"/", "/a", false},
		{"/", "/", true},
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		if (PCacheIsInside(cases[i].path, cases[i].directory) != cases[i].expected)
			fail_msg("%s in %s", cases[i].path, cases[i].directory);
	}
}

/* Everything is inside the root directory, which ends in a slash. */
static void
TestIsInsideRoot(void **state)
{
	assert_true(PCacheIsInside("/a", "/"));
	assert_true(PCacheIsInside("/a/b", "/"));
}

static void
TestBootId(void **state)
{
	uint8		boot_id[PCACHE_UUID_LEN];
	uint8		again[PCACHE_UUID_LEN];
	char		text[64] = "";
	char		expected[64] = "";
	int			n = 0;

	if (access("/proc/sys/kernel/random/boot_id", R_OK) != 0)
		skip();
	memset(boot_id, 0x55, sizeof(boot_id));
	memset(again, 0xAA, sizeof(again));
	assert_true(PCacheReadBootId(boot_id));
	assert_true(PCacheReadBootId(again));
	assert_memory_equal(boot_id, again, sizeof(boot_id));

	/* as printed, with its dashes */
	ReadFile("/proc/sys/kernel/random/boot_id", expected, sizeof(expected) - 1);
	for (int i = 0; i < PCACHE_UUID_LEN; i++)
		n += snprintf(text + n, sizeof(text) - n, "%s%02x",
					  i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", boot_id[i]);
	assert_int_equal(strncmp(text, expected, 36), 0);
}

static void
TestErrors(void **state)
{
	PCacheError err;
	char		longer[3000];

	memset(&err, 0x55, sizeof(err));
	errno = ENOSPC;
	PCacheSetError(&err, "%s: %m", "x");
	assert_int_equal(errno, ENOSPC);
	assert_string_equal(err.message, "x: No space left on device");
	assert_string_equal(err.hint, "");
	PCacheSetHint(&err, "do %d", 5);
	assert_string_equal(err.message, "x: No space left on device");
	assert_string_equal(err.hint, "do 5");
	/* another error has no hint from the last one */
	PCacheSetError(&err, "y");
	assert_string_equal(err.hint, "");

	memset(longer, 'l', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	PCacheSetError(&err, "%s", longer);
	PCacheSetHint(&err, "%s", longer);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
	assert_int_equal(strlen(err.hint), sizeof(err.hint) - 1);
}

int
main(void)
{
#define BOTH(test) \
	{#test " on tmpfs", test, SetUpMemory, TearDown, NULL}, \
	{#test " on a disk", test, SetUpDisk, TearDown, NULL}

	const struct CMUnitTest tests[] = {
		BOTH(TestCreate),
		BOTH(TestReopen),
		BOTH(TestMapFails),
		BOTH(TestMapAfterExchange),
		BOTH(TestLocks),
		BOTH(TestOpenMissing),
		BOTH(TestOpenNotRegular),
		BOTH(TestOpenFifo),
		BOTH(TestOpenPermissions),
		BOTH(TestSpace),
		BOTH(TestSpaceOverflow),
		BOTH(TestCreateAgain),
		BOTH(TestLeftoverIsRoom),
		BOTH(TestLeftoverCounts),
		BOTH(TestExchangedAfterRename),
		BOTH(TestSyncFailsAfterRename),
		BOTH(TestCreateFails),
		BOTH(TestSetSize),
		cmocka_unit_test_setup_teardown(TestSizeNotRestored, SetUpMemory, TearDown),
		BOTH(TestAskedBefore),
		BOTH(TestRestoreSize),
		BOTH(TestGrow),
		BOTH(TestHoles),
		cmocka_unit_test(TestCapacityFor),
		BOTH(TestCreateConcurrently),
		BOTH(TestOpenDuringCreation),
		BOTH(TestReadExact),
		BOTH(TestReadDescriptors),
		BOTH(TestPersist),
		BOTH(TestPersistFails),
		BOTH(TestFsKind),
		BOTH(TestMakeDirectory),
		BOTH(TestInterrupted),
		BOTH(TestReplacedMeanwhile),
		cmocka_unit_test_setup_teardown(TestForetellLost, SetUpMemory, TearDown),
		cmocka_unit_test_setup_teardown(TestForetellCutOff, SetUpMemory, TearDown),
		BOTH(TestSparse),
		BOTH(TestNoReplacement),
		cmocka_unit_test(TestIsInside),
		cmocka_unit_test(TestIsInsideRoot),
		cmocka_unit_test(TestBootId),
		cmocka_unit_test(TestErrors),
	};

	/* who holds a lock here does not let go of it */
	PCachePoolLockWait = 0;
	return cmocka_run_group_tests_name(
#ifdef USE_LIBPMEM
									   getenv("PMEM_IS_PMEM_FORCE") != NULL ?
									   "pool, persistent memory forced" : "pool, libpmem",
#else
									   "pool, without libpmem",
#endif
									   tests, NULL, NULL);
}
