/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  What the unit tests of the persistent cache share.
 *
 * To be included after postgres_fe.h.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_H
#define UNIT_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "storage/pcache_gate.h"

#define MIB(n)	((uint64) (n) << 20)
#define GIB(n)	((uint64) (n) << 30)

/* CRC-32C bit by bit, to check the table-driven or hardware one. */
static inline uint32
BitwiseCrc32c(const void *data, size_t len)
{
	uint32		crc = 0xFFFFFFFF;

	for (size_t i = 0; i < len; i++)
	{
		crc ^= ((const uint8 *) data)[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
	}
	return ~crc;
}

/*
 * Random numbers (splitmix64), from PCACHE_UNIT_SEED if that is set, so that
 * a failure can be repeated.
 */
static uint64 unit_random_state;

static inline void
SeedRandom(void)
{
	const char *seed = getenv("PCACHE_UNIT_SEED");

	if (seed != NULL)
		unit_random_state = strtoull(seed, NULL, 0);
	else
		unit_random_state = (uint64) time(NULL) * 1000003 ^ (uint64) getpid() << 40;
	print_message("PCACHE_UNIT_SEED=0x%llx\n", (unsigned long long) unit_random_state);
}

static inline uint64
Random(void)
{
	uint64		z = (unit_random_state += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static inline void
RandomBytes(void *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8 *) data)[i] = (uint8) Random();
}

/* Files */

static inline bool
IsTmpfs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == 0x01021994;
}

/* A place on a file system that is not memory; skips the test without one. */
static inline const char *
DiskParent(void)
{
	const char *candidates[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "."};

	for (int i = 0; i < lengthof(candidates); i++)
	{
		if (candidates[i] != NULL && access(candidates[i], W_OK) == 0 &&
			!IsTmpfs(candidates[i]))
			return candidates[i];
	}
	print_message("no writable directory on a disk\n");
	skip();
	return NULL;
}

/* A place on tmpfs; skips the test without one. */
static inline const char *
MemoryParent(void)
{
	if (access("/dev/shm", W_OK) != 0 || !IsTmpfs("/dev/shm"))
	{
		print_message("/dev/shm is not a writable tmpfs\n");
		skip();
	}
	return "/dev/shm";
}

/* The canonical path of a new directory; free() it. */
static inline char *
MakeTempDirectory(const char *parent)
{
	char		path[MAXPGPATH];
	char	   *real;

	snprintf(path, sizeof(path), "%s/pcache-unit.XXXXXX", parent);
	assert_non_null(mkdtemp(path));
	real = realpath(path, NULL);
	assert_non_null(real);
	return real;
}

static inline int
RemoveEntry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void
RemoveTree(const char *path)
{
	nftw(path, RemoveEntry, 8, FTW_DEPTH | FTW_PHYS);
}

/* dir/name in one of a few static buffers */
static inline const char *
Join(const char *directory, const char *name)
{
	static char buffers[4][MAXPGPATH];
	static int	next = 0;
	char	   *result = buffers[next++ % 4];

	snprintf(result, MAXPGPATH, "%s/%s", directory, name);
	return result;
}

static inline bool
Exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static inline void
WriteFile(const char *path, const void *data, size_t len)
{
	int			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static inline size_t
ReadFile(const char *path, void *data, size_t size)
{
	int			fd = open(path, O_RDONLY);
	ssize_t		len;

	assert_true(fd >= 0);
	len = read(fd, data, size);
	assert_true(len >= 0);
	close(fd);
	return len;
}

static inline void
assert_contains(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

/* A superblock as it lies in a pool of that many blocks, saved cleanly. */
static inline void
FillSuperblock(PCacheSuperblock *sb, uint64 capacity)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);

	memset(sb, 0, sizeof(*sb));
	memcpy(sb->magic, "PGPCACHE", 8);
	sb->format_version = PCACHE_FORMAT_VERSION;
	sb->superblock_size = 4096;
	for (int i = 0; i < PCACHE_UUID_LEN; i++)
		sb->pool_uuid[i] = 0xA0 + i;
	sb->system_identifier = UINT64CONST(0x1122334455667788);
	sb->pool_size = g.pool_size;
	sb->created_at = 1700000000;
	sb->pg_major = PG_VERSION_NUM / 10000;
	sb->byte_order = 0x01020304;
	sb->block_size = BLCKSZ;
	sb->descriptor_size = 64;
	sb->blocks_per_segment = RELSEG_SIZE;
	sb->pg_control_version = PG_CONTROL_VERSION;
	sb->catalog_version = 202506291;
	sb->fs_kind = PCACHE_FS_TMPFS;
	sb->capacity = capacity;
	sb->descriptors_offset = MIB(2);
	sb->blocks_offset = g.blocks_offset;
	sb->slots_used = capacity;
	sb->state = PCACHE_STATE_CLEAN;
	sb->incarnation = UINT64CONST(0xFEDCBA9876543210);
	sb->generation = 7;
	memcpy(sb->tail, "EHCACPGP", 8);
	sb->crc = BitwiseCrc32c(sb, 4084);
}

#endif							/* UNIT_H */
