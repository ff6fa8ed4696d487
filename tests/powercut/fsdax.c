/*-------------------------------------------------------------------------
 *
 * fsdax.c
 *	  A pool on tmpfs looks as if it were on fsdax, and the host as if it had
 *	  been booted.
 *
 * The pool's directory answers as a file system with DAX does, and a boot id
 * is given in place of the kernel's.  From the environment:
 *
 *	POWERCUT_DIR		directory of the pool
 *	POWERCUT_IMAGE		see shim.c
 *	IMAGE.boot			the boot id, if that file exists
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/fsdax.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pmem_interpose.h"

#define BOOT_ID			"/proc/sys/kernel/random/boot_id"
#define TMPFS_MAGIC		0x01021994
#define EXT4_MAGIC		0xEF53

/* The pool's directory is on a file system that knows MAP_SYNC ... */
static bool
is_inside(const char *path)
{
	const char *dir = getenv("POWERCUT_DIR");
	char		real[PATH_MAX];
	size_t		len;

	if (dir == NULL || realpath(path, real) == NULL)
		return false;
	len = strlen(dir);
	return strncmp(real, dir, len) == 0 && (real[len] == '\0' || real[len] == '/');
}

int
fstatfs(int fd, struct statfs *buf)
{
	char		path[64];
	int			rc;

	REAL(fstatfs);
	rc = real(fd, buf);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (rc == 0 && buf->f_type == TMPFS_MAGIC && is_inside(path))
		buf->f_type = EXT4_MAGIC;
	return rc;
}

/* ... which it pretends. */
void *
mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	REAL(mmap);
	if (flags & MAP_SYNC)
		flags = (flags & ~(MAP_SYNC | MAP_TYPE)) | MAP_SHARED;
	return real(addr, len, prot, flags, fd, offset);
}

void *
mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return mmap(addr, len, prot, flags, fd, offset);
}

/*
 * What a power cut leaves of files is written after it, and that is no change that
 * somebody has made: IMAGE.cut has when that was, from and to, and what to tell instead,
 * in nanoseconds since 1970.
 */
static void
tell_when_changed(struct timespec *time)
{
	static long long cut[3] = {-1};
	long long	changed = time->tv_sec * 1000000000LL + time->tv_nsec;

	if (cut[0] == -1)
	{
		const char *image_path = getenv("POWERCUT_IMAGE");
		char		path[PATH_MAX];
		FILE	   *file;

		snprintf(path, sizeof(path), "%s.cut", image_path == NULL ? "" : image_path);
		file = fopen(path, "r");
		if (file == NULL || fscanf(file, "%lld %lld %lld", &cut[0], &cut[1], &cut[2]) != 3)
			cut[0] = 0;
		if (file != NULL)
			fclose(file);
	}
	if (cut[0] == 0 || changed < cut[0] || changed > cut[1])
		return;
	time->tv_sec = cut[2] / 1000000000;
	time->tv_nsec = cut[2] % 1000000000;
}

#define DISGUISE(function, type) \
int \
function(const char *path, type *st) \
{ \
	int			rc; \
\
	REAL(function); \
	rc = real(path, st); \
	if (rc == 0) \
	{ \
		tell_when_changed(&st->st_ctim); \
		tell_when_changed(&st->st_mtim); \
	} \
	return rc; \
}

DISGUISE(stat, struct stat)
DISGUISE(lstat, struct stat)
DISGUISE(stat64, struct stat64)
DISGUISE(lstat64, struct stat64)

FILE *
fopen(const char *path, const char *mode)
{
	const char *image_path = getenv("POWERCUT_IMAGE");
	char		boot[PATH_MAX];

	REAL(fopen);
	if (image_path != NULL && strcmp(path, BOOT_ID) == 0)
	{
		snprintf(boot, sizeof(boot), "%s.boot", image_path);
		if (access(boot, R_OK) == 0)
			path = boot;
	}
	return real(path, mode);
}
