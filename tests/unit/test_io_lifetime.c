/*-------------------------------------------------------------------------
 *
 * test_io_lifetime.c
 *	  Unit tests of write lifetime hints.
 *
 * The kernel reads eight bytes at the address that F_SET_RW_HINT gets.  A hint
 * in an enum has four, and the kernel refuses it, or not, depending on what is
 * beside it.  So the fcntl() below takes as many bytes as the kernel does, which
 * the address sanitizer watches, and compares with the size of the variable.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_io_lifetime.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int	FakeFcntl(int fd, int command, const void *hint, size_t size);

#define fcntl(fd, command, hint) \
	FakeFcntl(fd, command, hint, sizeof(*(hint)))

#include "io_lifetime.c"

#undef fcntl

#define THE_FD	7

static int	calls;
static uint64 last_hint;
static int	refusal;			/* an errno */

static int
FakeFcntl(int fd, int command, const void *hint, size_t size)
{
	calls++;
	assert_int_equal(fd, THE_FD);
	assert_int_equal(command, F_SET_RW_HINT);
	assert_int_equal(size, 8);
	memcpy(&last_hint, hint, 8);
	if (refusal == 0)
		return 0;
	errno = refusal;
	return -1;
}

/* The hint that a file gets when it is opened; 0 if it gets none. */
static uint64
HintOf(const char *path, int flags)
{
	int			before = calls;

	last_hint = 0;
	errno = EXDEV;
	IOLifetimeApply(THE_FD, path, flags);
	assert_int_equal(errno, EXDEV);
	assert_true(calls <= before + 1);
	return calls > before ? last_hint : 0;
}

/* The values are the kernel's (linux/rw_hint.h), and fit into a byte of it. */
static void
Values(void **state)
{
	assert_int_equal(sizeof(IOLifetimeOfFile("")), 8);
	assert_int_equal(IO_LIFETIME_NOT_SET, 0);
	assert_int_equal(IO_LIFETIME_SHORT, 2);
	assert_int_equal(IO_LIFETIME_LONG, 4);
	assert_int_equal(IO_LIFETIME_EXTREME, 5);
}

static void
Files(void **state)
{
	static const struct
	{
		const char *path;
		uint64		hint;
	}			files[] = {
		{"pg_wal/000000010000000000000001", IO_LIFETIME_SHORT},
		{"pg_wal/xlogtemp.123", IO_LIFETIME_SHORT},
		{"base/pgsql_tmp/pgsql_tmp123.0", IO_LIFETIME_SHORT},
		{"base/pgsql_tmp/pgsql_tmp123.0.fileset/0.0", IO_LIFETIME_SHORT},
		{"pg_tblspc/16400/PG_18_202506291/pgsql_tmp/pgsql_tmp9.1", IO_LIFETIME_SHORT},
		{"base/5/t3_16384", IO_LIFETIME_SHORT},
		{"base/5/16384", IO_LIFETIME_EXTREME},
		{"base/5/16384.1", IO_LIFETIME_EXTREME},
		{"base/5/16384_vm", IO_LIFETIME_EXTREME},
		{"global/1262", IO_LIFETIME_EXTREME},
		{"pg_tblspc/16400/PG_18_202506291/5/16401", IO_LIFETIME_EXTREME},
		{"global/pg_control", IO_LIFETIME_NOT_SET},
		{"global/pg_filenode.map", IO_LIFETIME_NOT_SET},
		{"base/5/PG_VERSION", IO_LIFETIME_NOT_SET},
		{"base/5/tidy", IO_LIFETIME_NOT_SET},
		{"pg_xact/0000", IO_LIFETIME_NOT_SET},
		{"postgresql.auto.conf", IO_LIFETIME_NOT_SET},
		{"pg_walnut/1", IO_LIFETIME_NOT_SET},
		{"", IO_LIFETIME_NOT_SET},
	};

	for (int i = 0; i < lengthof(files); i++)
	{
		assert_int_equal(IOLifetimeOfFile(files[i].path), files[i].hint);
		assert_int_equal(HintOf(files[i].path, O_RDWR), files[i].hint);
		assert_int_equal(HintOf(files[i].path, O_WRONLY | O_CREAT), files[i].hint);
	}
}

/* All forks of an unlogged relation, wherever it is */
static void
UnloggedRelation(void **state)
{
	char		directory[] = "/tmp/test_io_lifetime.XXXXXX";
	int			fd;

	assert_non_null(mkdtemp(directory));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("base", 0700), 0);
	assert_int_equal(mkdir("base/5", 0700), 0);
	fd = open("base/5/16390_init", O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(HintOf("base/5/16390", O_RDWR), IO_LIFETIME_LONG);
	assert_int_equal(HintOf("base/5/16390.2", O_RDWR), IO_LIFETIME_LONG);
	assert_int_equal(HintOf("base/5/16390_fsm", O_RDWR), IO_LIFETIME_LONG);
	assert_int_equal(HintOf("base/5/1639", O_RDWR), IO_LIFETIME_EXTREME);
	assert_int_equal(HintOf("base/5/163900", O_RDWR), IO_LIFETIME_EXTREME);
	assert_int_equal(unlink("base/5/16390_init"), 0);
	assert_int_equal(rmdir("base/5"), 0);
	assert_int_equal(rmdir("base"), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(directory), 0);
}

static void
ReadOnly(void **state)
{
	assert_int_equal(HintOf("base/5/16384", O_RDONLY), 0);
	assert_int_equal(HintOf("pg_wal/000000010000000000000001", O_RDONLY | O_CLOEXEC), 0);
}

/* A kernel that does not know hints, or forbids them, changes nothing */
static void
Refused(void **state)
{
	static const int errors[] = {EINVAL, EPERM, ENOTTY};

	for (int i = 0; i < lengthof(errors); i++)
	{
		refusal = errors[i];
		assert_int_equal(HintOf("base/5/16384", O_RDWR), IO_LIFETIME_EXTREME);
	}
	refusal = 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(Values),
		cmocka_unit_test(Files),
		cmocka_unit_test(UnloggedRelation),
		cmocka_unit_test(ReadOnly),
		cmocka_unit_test(Refused),
	};

	return cmocka_run_group_tests_name("write lifetime hints", tests, NULL, NULL);
}
