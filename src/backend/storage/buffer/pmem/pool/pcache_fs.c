/*-------------------------------------------------------------------------
 *
 * pcache_fs.c
 *	  What the file system below the pool is, and what it survives.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_fs.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/string.h"
#include "storage/pcache_pool.h"

/* From statfs(2); <linux/magic.h> is not everywhere. */
#define TMPFS_SUPER_MAGIC		0x01021994
#define HUGETLBFS_SUPER_MAGIC	0x958458f6

#define BOOT_ID_PATH			"/proc/sys/kernel/random/boot_id"

/*
 * Can a file in this directory be mapped so that every store that reached
 * the CPU's persistence domain is safe, metadata included?  Only a trial
 * mapping tells: DAX without MAP_SYNC (virtio-pmem) looks the same from
 * outside.
 */
static bool
MapSyncWorks(int dir_fd)
{
	int			fd;
	void	   *p = MAP_FAILED;
	const size_t length = 2 * 1024 * 1024;

	fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return false;
	if (ftruncate(fd, length) == 0)
		p = mmap(NULL, length, PROT_READ | PROT_WRITE,
				 MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	if (p != MAP_FAILED)
		munmap(p, length);
	close(fd);
	return p != MAP_FAILED;
}

/*
 * Find out the kind of the file system that an open directory, or an open file
 * in it, lies on, and the size of the pages in which it allocates.  A file can
 * be a mount point itself.  Returns false with errno set.
 */
bool
PCacheFsKindOf(const PCacheDir *dir, int fd, PCacheFsKind *kind,
			   uint64 *page_size)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;

	*page_size = PCACHE_ALIGNMENT;
	if (fs.f_type == TMPFS_SUPER_MAGIC)
		*kind = PCACHE_FS_TMPFS;
	else if ((uint32) fs.f_type == HUGETLBFS_SUPER_MAGIC)
	{
		*kind = PCACHE_FS_HUGETLBFS;
		*page_size = Max(PCACHE_ALIGNMENT, (uint64) fs.f_bsize);
	}
	else
		*kind = MapSyncWorks(dir->fd) ? PCACHE_FS_FSDAX : PCACHE_FS_FILE;
	return true;
}

const char *
PCacheFsKindName(PCacheFsKind kind)
{
	static const char *const names[] = {
		[PCACHE_FS_FILE] = "file",
		[PCACHE_FS_TMPFS] = "tmpfs",
		[PCACHE_FS_HUGETLBFS] = "hugetlbfs",
		[PCACHE_FS_FSDAX] = "fsdax",
	};

	return PCacheNameOf(names, kind);
}

/*
 * How many bytes could a file get now on the file system of an open file or directory?
 * Whether there is memory for a tmpfs of that size is another question, see
 * PCacheMemoryWillDo().  Returns false with errno set.
 */
bool
PCacheFsRoom(int fd, PCacheRoom *room)
{
	struct statfs fs;
	uint64		huge = PG_UINT64_MAX;
	const char *hint;

	if (fstatfs(fd, &fs) < 0)
		return false;
	/* what has no limit has 0 of 0 */
	room->bytes = fs.f_blocks > 0 ? (uint64) fs.f_bavail * fs.f_frsize : PG_UINT64_MAX;
	room->hint = NULL;
	if ((uint32) fs.f_type == HUGETLBFS_SUPER_MAGIC)
		huge = PCacheHugeRoom(fd, &fs, &hint);
	if (huge < room->bytes)
	{
		room->bytes = huge;
		room->hint = hint;
	}
	return true;
}

/*
 * How large may a file be that this process writes?  An attempt to exceed that
 * fails with EFBIG, and raises SIGXFSZ.
 */
uint64
PCacheFileSizeLimit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return PG_UINT64_MAX;
	return limit.rlim_cur;
}

/*
 * Read the id that the kernel chose at boot.  Returns false, and zeroes the
 * id, if there is none.
 */
bool
PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN])
{
	char		text[64];
	FILE	   *file;
	int			ndigits = 0;

	memset(boot_id, 0, PCACHE_UUID_LEN);
	file = fopen(BOOT_ID_PATH, "r");
	if (file == NULL)
		return false;
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	fclose(file);

	for (const char *c = text; *c != '\0' && ndigits < 2 * PCACHE_UUID_LEN; c++)
	{
		int			digit;

		if (!isxdigit((unsigned char) *c))
			continue;
		digit = isdigit((unsigned char) *c) ? *c - '0' :
			tolower((unsigned char) *c) - 'a' + 10;
		boot_id[ndigits / 2] |= digit << (ndigits % 2 == 0 ? 4 : 0);
		ndigits++;
	}
	return ndigits == 2 * PCACHE_UUID_LEN;
}

/*
 * Is a pool on this kind of file system, used in one boot, found in another one?  Where the
 * kernel does not tell its ids, they are zeros.  Memory does not outlive its boot, but on
 * persistent memory any boot may be another one then.
 */
bool
PCacheBootIsAnother(PCacheFsKind kind, const uint8 used[PCACHE_UUID_LEN],
					const uint8 found[PCACHE_UUID_LEN])
{
	static const uint8 unknown[PCACHE_UUID_LEN];

	return memcmp(used, found, PCACHE_UUID_LEN) != 0 ||
		(memcmp(used, unknown, PCACHE_UUID_LEN) == 0 && !PCacheFsIsMemory(kind));
}

/* Was a pool used in another boot than the one that the host runs in? */
bool
PCacheWasOtherBoot(const PCacheSuperblock *sb)
{
	uint8		now[PCACHE_UUID_LEN];

	(void) PCacheReadBootId(now);
	return PCacheBootIsAnother(sb->fs_kind, sb->boot_id, now);
}

/*
 * Open the deepest part of a path that exists, and find out what it is on.
 * The caller closes it.
 */
bool
PCacheOpenExistingPart(const char *directory, PCacheDir *existing,
					   PCacheFsKind *kind, PCacheError *err)
{
	uint64		page_size;

	switch (PCacheDirOpenExisting(directory, existing, err))
	{
		case PCACHE_DIR_OK:
			break;
		case PCACHE_DIR_FAILED:
			return PCacheSetError(err, _("could not open directory \"%s\": %m"), directory);
		case PCACHE_DIR_UNTRUSTED:
			return false;
	}
	if (!PCacheFsKindOf(existing, existing->fd, kind, &page_size))
	{
		PCacheSetError(err, _("could not stat file system of \"%s\": %m"),
					   existing->path);
		PCacheDirClose(existing);
		return false;
	}
	return true;
}

/*
 * Create a directory and its missing parents on a memory-backed file system
 * that lost them with a reboot of the host.  directory must be absolute and
 * canonical.  What exists of it must be on a file system of the expected kind:
 * otherwise it is not what was there when it was asked whether a pool can be
 * created.
 */
bool
PCacheMakeDirectory(const char *directory, PCacheFsKind expected,
					PCacheError *err)
{
	PCacheDir	dir;
	PCacheFsKind kind;
	bool		ok;

	if (!PCacheOpenExistingPart(directory, &dir, &kind, err))
		return false;
	if (kind == expected)
		ok = PCacheDirMakeMissing(&dir, err);
	else
		ok = PCacheSetError(err, _("persistent cache directory \"%s\" cannot be created: \"%s\" is on %s instead of %s"),
							directory, dir.path,
							PCacheFsKindName(kind), PCacheFsKindName(expected));
	PCacheDirClose(&dir);
	return ok;
}
