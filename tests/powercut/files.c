/*-------------------------------------------------------------------------
 *
 * files.c
 *	  Which part of the files would a power cut leave?
 *
 * This keeps the shadow, a second directory that holds what the disk would hold
 * after a power cut now.  README, "What reaches the disk", says which calls make
 * what durable.  tests/torture/FileCut.pm merges the files and the shadow.
 *
 * Files and directories are known by their inode number, so the shadow knows a
 * file again that was renamed.  The shadow has
 *
 *	INODE			the contents of a file
 *	INODE.d/NAME	what a directory has: a symbolic link to fINODE, to dINODE, or
 *					to l and the target of a symbolic link
 *
 * From the environment; without the first one, nothing is kept:
 *
 *	POWERCUT_FILES		the shadow
 *	POWERCUT_ROOTS		the directories whose files can be lost, canonical, and
 *						with colons between them, all on one file system
 *	POWERCUT_SEED		see shim.c
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/files.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pmem_interpose.h"
#include "powercut.h"

#define CHUNK			65536
#define MAX_MAPPINGS	128
#define MAX_FLUSHED		1024

/* One of so many writes reaches the disk at once. */
#define EARLY_WRITE		16

/* A file that the program has mapped as persistent memory. */
typedef struct Mapping
{
	const char *base;			/* NULL: unused */
	size_t		length;
	ino_t		inode;
} Mapping;

/* A range of one that was flushed and not drained. */
typedef struct Flushed
{
	const Mapping *mapping;
	size_t		offset;
	size_t		length;
} Flushed;

static Mapping mappings[MAX_MAPPINGS];
static Flushed flushed[MAX_FLUSHED];
static size_t n_flushed;
static pid_t flushed_by;

static const char *
shadow(void)
{
	return getenv("POWERCUT_FILES");
}

/* How long is the root that a canonical path is below?  0 if there is none. */
static size_t
root_of(const char *path)
{
	const char *roots = getenv("POWERCUT_ROOTS");

	if (roots == NULL)
		die("POWERCUT_ROOTS is not set");
	while (*roots != '\0')
	{
		size_t		len = strcspn(roots, ":");

		if (strncmp(path, roots, len) == 0 && (path[len] == '/' || path[len] == '\0'))
			return len;
		roots += len + (roots[len] == ':');
	}
	return 0;
}

/* The path of an open file or directory; false if it can't be lost. */
static bool
path_of(int fd, char path[PATH_MAX], struct stat *st)
{
	char		link[64];
	ssize_t		len;

	if (shadow() == NULL || fstat(fd, st) < 0 || st->st_nlink == 0 ||
		!(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)))
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, PATH_MAX - 1);
	if (len < 0)
		die("could not read %s: %s", link, strerror(errno));
	path[len] = '\0';
	return root_of(path) > 0;
}

static int
open_shadow(ino_t inode)
{
	char		path[PATH_MAX];
	int			fd;

	snprintf(path, sizeof(path), "%s/%lu", shadow(), (unsigned long) inode);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		die("could not open %s: %s", path, strerror(errno));
	return fd;
}

static void
store(int to, const char *bytes, size_t len, off_t offset)
{
	static __typeof__(pwrite) * real;

	if (real == NULL)
		real = (__typeof__(pwrite) *) dlsym(RTLD_NEXT, "pwrite");
	if (real(to, bytes, len, offset) != (ssize_t) len)
		die("could not write to the shadow of a file: %s", strerror(errno));
}

/*
 * What a range of a file holds arrives.  It is read under the lock of the shadow's
 * file, so that nothing older replaces what somebody else has synced.
 */
static void
arrive_range(int fd, const struct stat *st, off_t offset, size_t len)
{
	static _Thread_local char live[CHUNK];
	static _Thread_local char durable[CHUNK];
	char		link[64];
	int			from;
	int			to = open_shadow(st->st_ino);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	from = open(link, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		die("could not open a file again to read it: %s", strerror(errno));
	while (len > 0)
	{
		ssize_t		n = pread(from, live, len < CHUNK ? len : CHUNK, offset);

		if (n < 0)
			die("could not read a file: %s", strerror(errno));
		if (n == 0)
			break;				/* it has become shorter meanwhile */
		if (pread(to, durable, n, offset) != n || memcmp(live, durable, n) != 0)
			store(to, live, n, offset);
		offset += n;
		len -= n;
	}
	close(from);
	close(to);
}

/* All that a file holds arrives, and its length. */
static void
arrive_file(int fd, const char *path)
{
	struct stat st;
	int			to;

	if (fstat(fd, &st) < 0)
		die("could not stat a file: %s", strerror(errno));
	to = open_shadow(st.st_ino);
	if (fstat(fd, &st) < 0 || ftruncate(to, st.st_size) < 0)
		die("could not set the length of a shadow: %s", strerror(errno));
	close(to);
	/* shim.c keeps the contents of the pool */
	if (!is_pool(path))
		arrive_range(fd, &st, 0, st.st_size);
}

/* A name in a directory is durable, and leads to what its target says. */
static bool
name_arrives(ino_t directory, const char *name, const char *target)
{
	static unsigned count;
	char		path[PATH_MAX];
	char		tmp[PATH_MAX];
	char		old[PATH_MAX];
	ssize_t		len;

	snprintf(path, sizeof(path), "%s/%lu.d", shadow(), (unsigned long) directory);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		die("could not create %s: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/%lu.d/%s", shadow(), (unsigned long) directory, name);
	len = readlink(path, old, sizeof(old) - 1);
	if (len >= 0)
	{
		old[len] = '\0';
		if (strcmp(old, target) == 0)
			return false;
	}
	snprintf(tmp, sizeof(tmp), "%s/tmp.%d.%u", shadow(), (int) getpid(), count++);
	if (symlink(target, tmp) < 0 || rename(tmp, path) < 0)
		die("could not create %s: %s", path, strerror(errno));
	return true;
}

/* Calls "what" for each name that a directory has. */
static void
each_name(const char *path, void (*what) (const char *name, void *arg), void *arg)
{
	DIR		   *dir = opendir(path);

	if (dir == NULL && errno == ENOENT)
		return;
	if (dir == NULL)
		die("could not open %s: %s", path, strerror(errno));
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
	{
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			what(e->d_name, arg);
	}
	closedir(dir);
}

typedef struct Names
{
	const char *path;			/* of the directory */
	ino_t		inode;			/* of it */
	const char *except;			/* for forget_other_name() */
	const char *target;
} Names;

/* A file that was renamed has its old name no longer. */
static void
forget_other_name(const char *name, void *arg)
{
	Names	   *n = arg;
	char		path[PATH_MAX];
	char		target[PATH_MAX];
	ssize_t		len;

	snprintf(path, sizeof(path), "%s/%lu.d/%s", shadow(), (unsigned long) n->inode, name);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0 || strcmp(name, n->except) == 0)
		return;
	target[len] = '\0';
	if (strcmp(target, n->target) == 0)
		unlink(path);
}

/* The name of a file or directory, and of the directories above it. */
static void
names_arrive(const char *file, const struct stat *file_st)
{
	char		path[PATH_MAX];
	char		shadow_dir[PATH_MAX];
	char		target[64];
	struct stat st = *file_st;
	size_t		root = root_of(file);

	snprintf(path, sizeof(path), "%s", file);
	while (path[root] == '/')
	{
		char	   *slash = strrchr(path, '/');
		struct stat dir;

		snprintf(target, sizeof(target), "%c%lu", S_ISDIR(st.st_mode) ? 'd' : 'f',
				 (unsigned long) st.st_ino);
		*slash = '\0';
		if (stat(path, &dir) < 0)
			return;				/* renamed or removed meanwhile */
		if (name_arrives(dir.st_ino, slash + 1, target))
		{
			Names		n = {.inode = dir.st_ino,.except = slash + 1,.target = target};

			snprintf(shadow_dir, sizeof(shadow_dir), "%s/%lu.d", shadow(), (unsigned long) dir.st_ino);
			each_name(shadow_dir, forget_other_name, &n);
		}
		st = dir;
	}
}

static void
name_is_there(const char *name, void *arg)
{
	Names	   *n = arg;
	char		path[PATH_MAX];
	char		target[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", n->path, name);
	if (lstat(path, &st) < 0)
		return;
	if (S_ISLNK(st.st_mode))
	{
		ssize_t		len = readlink(path, target + 1, sizeof(target) - 2);

		if (len < 0)
			return;
		target[0] = 'l';
		target[len + 1] = '\0';
	}
	else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		snprintf(target, sizeof(target), "%c%lu", S_ISDIR(st.st_mode) ? 'd' : 'f',
				 (unsigned long) st.st_ino);
	else
		return;
	name_arrives(n->inode, name, target);
}

static void
name_is_gone(const char *name, void *arg)
{
	Names	   *n = arg;
	char		path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", n->path, name);
	if (lstat(path, &st) < 0 && errno == ENOENT)
	{
		snprintf(path, sizeof(path), "%s/%lu.d/%s", shadow(), (unsigned long) n->inode, name);
		unlink(path);
	}
}

/* The names in a directory arrive, and that others are gone. */
static void
directory_arrives(const char *path, ino_t inode)
{
	Names		n = {.path = path,.inode = inode};
	char		shadow_dir[PATH_MAX];

	snprintf(shadow_dir, sizeof(shadow_dir), "%s/%lu.d", shadow(), (unsigned long) inode);
	each_name(path, name_is_there, &n);
	each_name(shadow_dir, name_is_gone, &n);
}

typedef struct Tree
{
	const char *path;
	bool		contents;
} Tree;

static void tree_arrives(const char *path, bool contents);

static void
branch_arrives(const char *name, void *arg)
{
	Tree	   *t = arg;
	char		path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	if (lstat(path, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode))
		tree_arrives(path, t->contents);
	else if (S_ISREG(st.st_mode) && t->contents)
	{
		int			fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd < 0 && errno != ENOENT)
			die("could not open %s: %s", path, strerror(errno));
		if (fd >= 0)
		{
			arrive_file(fd, path);
			close(fd);
		}
	}
}

/* The names below a directory, and perhaps the contents. */
static void
tree_arrives(const char *path, bool contents)
{
	Tree		t = {.path = path,.contents = contents};
	struct stat st;

	if (stat(path, &st) < 0)
		return;
	directory_arrives(path, st.st_ino);
	each_name(path, branch_arrives, &t);
}

/* The names of all files of relations become durable; README says why. */
static void
relations_arrive(const char *control)
{
	static const char *const trees[] = {"global", "base", "pg_tblspc"};
	char		path[PATH_MAX];
	size_t		data = strlen(control) - strlen("/global/pg_control");

	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++)
	{
		snprintf(path, sizeof(path), "%.*s/%s", (int) data, control, trees[i]);
		tree_arrives(path, false);
	}
}

static bool
ends_with(const char *path, const char *end)
{
	size_t		len = strlen(path);

	return len >= strlen(end) && strcmp(path + len - strlen(end), end) == 0;
}

static void
synced(int fd)
{
	int			save_errno = errno;
	char		path[PATH_MAX];
	struct stat st;

	if (path_of(fd, path, &st))
	{
		if (S_ISREG(st.st_mode))
			arrive_file(fd, path);
		else
			directory_arrives(path, st.st_ino);
		names_arrive(path, &st);
		if (ends_with(path, "/global/pg_control"))
			relations_arrive(path);
	}
	errno = save_errno;
}

/* Bytes were written: with O_DSYNC they are on disk, and else they may be. */
static void
wrote(int fd, ssize_t len, off_t offset)
{
	int			save_errno = errno;
	char		path[PATH_MAX];
	struct stat st;

	if (len > 0 && shadow() != NULL &&
		((fcntl(fd, F_GETFL) & O_DSYNC) != 0 || random_number() % EARLY_WRITE == 0) &&
		path_of(fd, path, &st))
		arrive_range(fd, &st, offset, len);
	errno = save_errno;
}

/* modules of the server are compiled with hidden symbols */
#pragma GCC visibility push(default)

int
fsync(int fd)
{
	int			rc;

	REAL(fsync);
	rc = real(fd);
	if (rc == 0)
		synced(fd);
	return rc;
}

int
fdatasync(int fd)
{
	int			rc;

	REAL(fdatasync);
	rc = real(fd);
	if (rc == 0)
		synced(fd);
	return rc;
}

/* All files and names below the root that contains fd become durable. */
int
syncfs(int fd)
{
	char		path[PATH_MAX];
	struct stat st;
	int			rc;

	REAL(syncfs);
	rc = real(fd);
	if (rc == 0 && path_of(fd, path, &st))
	{
		path[root_of(path)] = '\0';
		tree_arrives(path, true);
	}
	return rc;
}

ssize_t
pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	ssize_t		rc;

	REAL(pwrite);
	rc = real(fd, buf, len, offset);
	wrote(fd, rc, offset);
	return rc;
}

ssize_t
pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	ssize_t		rc;

	REAL(pwritev);
	rc = real(fd, iov, iovcnt, offset);
	wrote(fd, rc, offset);
	return rc;
}

#pragma GCC visibility pop

/* A file was mapped: a WAL segment, if wal_sync_method is pmem. */
void
file_mapped(const char *name, const char *base, size_t length)
{
	char		path[PATH_MAX];
	struct stat st;
	int			fd = shadow() == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; path_of(fd, path, &st); i++)
	{
		if (i == MAX_MAPPINGS)
			die("too many mappings");
		if (mappings[i].base != NULL)
			continue;
		mappings[i].base = base;
		mappings[i].length = length;
		mappings[i].inode = st.st_ino;
		break;
	}
	close(fd);
}

static Mapping *
find_mapping(const char *addr)
{
	for (int i = 0; i < MAX_MAPPINGS; i++)
	{
		if (mappings[i].base != NULL && addr >= mappings[i].base &&
			addr < mappings[i].base + mappings[i].length)
			return &mappings[i];
	}
	return NULL;
}

/* What is still pending will never be drained. */
void
file_unmapping(const char *base)
{
	Mapping    *mapping = find_mapping(base);

	if (mapping == NULL)
		return;
	mapping->base = NULL;
	n_flushed = 0;
}

bool
file_flush(const char *addr, size_t len)
{
	Mapping    *mapping = find_mapping(addr);

	if (mapping == NULL)
		return false;
	if (flushed_by != getpid())
		n_flushed = 0;			/* the parent's */
	flushed_by = getpid();
	if (n_flushed == MAX_FLUSHED)
		die("too many ranges are flushed and not drained");
	flushed[n_flushed++] = (Flushed)
	{
		.mapping = mapping,.offset = addr - mapping->base,.length = len
	};
	return true;
}

void
file_drain(void)
{
	if (flushed_by != getpid())
		n_flushed = 0;
	for (size_t i = 0; i < n_flushed; i++)
	{
		Flushed    *f = &flushed[i];
		size_t		start = f->offset / LINE_SIZE * LINE_SIZE;
		size_t		end = (f->offset + f->length + LINE_SIZE - 1) / LINE_SIZE * LINE_SIZE;
		int			to = open_shadow(f->mapping->inode);

		/* what the lines hold by now, under the lock, as in arrive_range() */
		store(to, f->mapping->base + start, end - start, start);
		close(to);
	}
	n_flushed = 0;
}
