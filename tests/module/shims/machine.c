/*-------------------------------------------------------------------------
 *
 * machine.c
 *	  Another machine than this one, for a server and for pg_pcache.
 *
 * Preloaded with LD_PRELOAD by on_machine() of PCacheModule.pm.  It reads its
 * environment:
 *		MACHINE_FILES
 *			a directory: what is opened by fopen() is looked for there first.
 *		MACHINE_HUGE_PAGES
 *			there are huge pages for whoever asks for them, which are small ones in
 *			fact, and mremap() treats all memory as it treats huge pages before Linux
 *			5.16: it unmaps the target, and fails.  How much memory such a file has
 *			is said when it is closed.
 *		MACHINE_SWAPS
 *			all memory is swapped out when mincore() is asked, and /proc/self/smaps says
 *			so from then on.
 *		MACHINE_HUGETLBFS
 *			each tmpfs is a hugetlbfs with pages of 2 MB, of which this says how many its
 *			mount may have, and how many of these are left: "0 0" without a limit.
 *		MACHINE_ALLOCATE_MS
 *			so many milliseconds pass before a part of a file is allocated.
 *		MACHINE_NO_COLLAPSE
 *			madvise() does not put memory into huge pages.
 *		MACHINE_READ_ONLY_EIO
 *			files that were opened for reading cannot be synced.
 *		MACHINE_BAD_PAGE
 *			"inode page": this page of that file is bad.  Reading it is an error, and whoever
 *			touches it in memory dies.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/module/shims/machine.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int	is_swapped = 0;

int
mincore(void *start, size_t length, unsigned char *resident)
{
	int			rc = syscall(SYS_mincore, start, length, resident);

	if (getenv("MACHINE_SWAPS") != NULL && rc == 0)
	{
		memset(resident, 0, length / sysconf(_SC_PAGESIZE));
		is_swapped = 1;
	}
	return rc;
}

/* smaps of a process that is swapped out. */
static FILE *
SwappedOut(FILE *smaps)
{
	FILE	   *file = tmpfile();
	char		line[4096];

	while (fgets(line, sizeof(line), smaps) != NULL)
		fputs(strncmp(line, "Swap: ", 6) == 0 ? "Swap: 8 kB\n" : line, file);
	fclose(smaps);
	rewind(file);
	return file;
}

FILE *
fopen(const char *path, const char *mode)
{
	FILE	   *(*next) (const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
	const char *files = getenv("MACHINE_FILES");
	char		there[4096];

	if (is_swapped && strcmp(path, "/proc/self/smaps") == 0)
		return SwappedOut(next(path, mode));

	if (files != NULL && path[0] == '/')
	{
		snprintf(there, sizeof(there), "%s%s", files, path);
		if (access(there, R_OK) == 0)
			path = there;
	}
	return next(path, mode);
}

FILE *
fopen64(const char *path, const char *mode)
{
	return fopen(path, mode);
}

static int	huge_fd = -1;

int
memfd_create(const char *name, unsigned int flags)
{
	if (getenv("MACHINE_HUGE_PAGES") == NULL)
		return syscall(SYS_memfd_create, name, flags);
	huge_fd = syscall(SYS_memfd_create, name, flags & MFD_CLOEXEC);
	return huge_fd;
}

int
close(int fd)
{
	struct stat st;

	if (fd >= 0 && fd == huge_fd && fstat(fd, &st) == 0)
	{
		fprintf(stderr, "machine: %lld MB in huge pages\n", (long long) st.st_blocks >> 11);
		huge_fd = -1;
	}
	return syscall(SYS_close, fd);
}

void *
mremap(void *old, size_t old_size, size_t new_size, int flags,...)
{
	va_list		args;
	void	   *target;

	va_start(args, flags);
	target = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
	va_end(args);
	if (target != NULL && getenv("MACHINE_HUGE_PAGES") != NULL)
	{
		munmap(target, new_size);
		errno = EINVAL;
		return MAP_FAILED;
	}
	return (void *) syscall(SYS_mremap, old, old_size, new_size, flags, target);
}

int
fstatfs(int fd, struct statfs *fs)
{
	const char *pages = getenv("MACHINE_HUGETLBFS");
	char	   *free_pages;

	if (syscall(SYS_fstatfs, fd, fs) != 0)
		return -1;
	if (pages == NULL || fs->f_type != 0x01021994)
		return 0;
	fs->f_type = 0x958458f6;
	fs->f_bsize = fs->f_frsize = 2 << 20;
	fs->f_blocks = strtoll(pages, &free_pages, 10);
	fs->f_bfree = fs->f_bavail = strtoll(free_pages, NULL, 10);
	return 0;
}

int
madvise(void *start, size_t length, int advice)
{
	/* MADV_COLLAPSE, which glibc has since 2.37 */
	if (advice == 25 && getenv("MACHINE_NO_COLLAPSE") != NULL)
	{
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_madvise, start, length, advice);
}

int
posix_fallocate(int fd, off_t offset, off_t length)
{
	const char *ms = getenv("MACHINE_ALLOCATE_MS");
	int			(*next) (int, off_t, off_t) = dlsym(RTLD_NEXT, "posix_fallocate");

	if (ms != NULL)
		usleep(atoi(ms) * 1000);
	return next(fd, offset, length);
}

int
posix_fallocate64(int fd, off_t offset, off_t length)
{
	return posix_fallocate(fd, offset, length);
}

int
fdatasync(int fd)
{
	int			(*next) (int) = dlsym(RTLD_NEXT, "fdatasync");

	if (getenv("MACHINE_READ_ONLY_EIO") != NULL && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
	{
		errno = EIO;
		return -1;
	}
	return next(fd);
}

/* Where the bad page of this file begins; -1 if it has none. */
static off_t
bad_page(int fd)
{
	const char *what = getenv("MACHINE_BAD_PAGE");
	unsigned long long inode;
	long long	page;
	struct stat st;

	if (what == NULL || sscanf(what, "%llu %lld", &inode, &page) != 2 ||
		fstat(fd, &st) != 0 || st.st_ino != inode)
		return -1;
	return page * 4096;
}

ssize_t
pread(int fd, void *buf, size_t length, off_t offset)
{
	off_t		bad = bad_page(fd);

	if (bad >= 0 && bad < offset + (off_t) length && offset < bad + 4096)
	{
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pread64, fd, buf, length, offset);
}

ssize_t
pread64(int fd, void *buf, size_t length, off_t offset)
{
	return pread(fd, buf, length, offset);
}

void *
mmap(void *start, size_t length, int protection, int flags, int fd, off_t offset)
{
	char	   *at = (char *) syscall(SYS_mmap, start, length, protection, flags, fd, offset);
	off_t		bad = at == MAP_FAILED || fd < 0 ? -1 : bad_page(fd);

	if (bad >= offset && bad < offset + (off_t) length)
		mprotect(at + (bad - offset), 4096, PROT_NONE);
	return at;
}

void *
mmap64(void *start, size_t length, int protection, int flags, int fd, off_t offset)
{
	return mmap(start, length, protection, flags, fd, offset);
}
