/*-------------------------------------------------------------------------
 *
 * pcache_without.c
 *	  The pool cannot be used: may the server start without it?
 *
 * The buffers of a server without its pool are ordinary shared memory.  The
 * pool that it cannot use may still hold as much memory as these buffers, and
 * the host need not have memory for both.  So the server asks here first, and
 * pg_pcache asks the same to tell beforehand.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_without.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_cgroup.h"
#include "storage/pcache_file.h"
#include "storage/pcache_format.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_without.h"

/*
 * How much memory does this file hold, in bytes?  0 if it is on media, or not
 * ours.  Sets *huge if that is in huge pages.  Nothing of the file is believed, so
 * its directory need not be trusted.
 */
static uint64
HeldBy(const char *directory, const char *name, bool *huge)
{
	const PCacheDir no_dir = {.fd = -1};
	char		path[MAXPGPATH];
	PCacheFsKind kind;
	uint64		page_size;
	uint64		held = 0;
	struct stat st;
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		PCacheFsKindOf(&no_dir, fd, &kind, &page_size) && PCacheFsIsMemory(kind))
	{
		held = (uint64) st.st_blocks * 512;
		if (huge != NULL && kind == PCACHE_FS_HUGETLBFS)
			*huge = true;
	}
	close(fd);
	return held;
}

/*
 * How much memory do the pool in this directory, and one that is being created
 * there, hold?  In bytes.  Sets *huge, unless that is NULL, if it is in huge pages.
 */
uint64
PCachePoolHeldMemory(const char *directory, bool *huge)
{
	return HeldBy(directory, PCACHE_POOL_FILE, huge) +
		HeldBy(directory, PCACHE_POOL_FILE_TMP, huge);
}

/*
 * Is the pool in this directory that of PGDATA's record, or NULL, by its UUID, and
 * can we write to it?  If another process has it locked, that is somebody of this
 * cluster then.  The same
 * is said of a pool that is being created, since nobody else creates one in this
 * cluster's directory.
 */
bool
PCachePoolIsOurs(const char *directory, const PCacheRecord *record)
{
	PCacheSuperblocks superblocks;
	PCachePool	pool;
	PCacheError ignored;
	bool		ours;

	switch (PCachePoolOpen(directory, PCACHE_OPEN_PEEK, &pool, &ignored))
	{
		case PCACHE_OPEN_OK:
			break;
		case PCACHE_OPEN_MISSING:
			return true;
		case PCACHE_OPEN_LOCKED:
		case PCACHE_OPEN_ERROR:
			return false;
	}
	PCacheReadSuperblocks(pool.fd, &superblocks);
	ours = record != NULL && superblocks.source != PCACHE_SB_NONE &&
		memcmp(superblocks.chosen.pool_uuid, record->pool_uuid, PCACHE_UUID_LEN) == 0 &&
		PCacheFileIsWritable(pool.fd, pool.path, &ignored);
	PCachePoolClose(&pool);
	return ours;
}

/*
 * An open pool, which is ours and which the caller has locked, is of no use to
 * this start.  If it is in memory, its blocks are given back: a start without it
 * makes its contents worthless.  The pool stays there, empty, and the next start
 * allocates it again.
 *
 * The pool is not mapped afterwards.  Returns false, with err filled in, if that
 * fails.
 */
bool
PCachePoolGiveBack(PCachePool *pool, PCacheError *err)
{
	PCacheSuperblocks superblocks;
	uint64		size = TYPEALIGN64(pool->page_size, PCACHE_DESCRIPTORS_OFFSET);

	if (pool->map.base != NULL)
		PCacheUnmap(&pool->map);
	if (!PCacheFsIsMemory(pool->fs_kind) || pool->file_size <= size)
		return true;
	PCacheReadSuperblocks(pool->fd, &superblocks);
	if (!PCachePoolMarkEmpty(pool, &superblocks.chosen, err))
		return false;
	if (ftruncate(pool->fd, size) < 0)
	{
		PCacheSetError(err, _("could not truncate file \"%s\" to %llu MB: %m"),
					   pool->path, (unsigned long long) (size >> 20));
		return false;
	}
	return true;
}

/*
 * Is there so much memory, in huge pages or in ordinary ones?  A mapping has all of
 * one kind, so the two do not add up.  given_back is what a pool gives back first.
 * Sets *available to what the kind with more has.
 */
static bool
MemoryIsAvailable(uint64 needed, bool huge_pages, uint64 given_back,
				  bool given_back_huge, uint64 *available)
{
	uint64		ordinary = 0;
	uint64		huge = 0;
	uint64		free_pages = 0;
	uint64		reserved_pages = 0;
	uint64		page_kb = 0;

	if (!PCacheReadNumber("/proc/meminfo", "MemAvailable:", &ordinary))
		return true;			/* nobody knows */
	ordinary = Min(ordinary * 1024,
				   PCacheReadCgroup("/proc/self/cgroup", PCACHE_CGROUP_ROOT).room);
	if (!given_back_huge)
		ordinary += given_back;

	if (huge_pages &&
		PCacheReadNumber("/proc/meminfo", "HugePages_Free:", &free_pages) &&
		PCacheReadNumber("/proc/meminfo", "HugePages_Rsvd:", &reserved_pages) &&
		PCacheReadNumber("/proc/meminfo", "Hugepagesize:", &page_kb))
	{
		huge = (free_pages - Min(free_pages, reserved_pages)) * page_kb * 1024;
		if (given_back_huge)
			huge += given_back;
	}
	*available = Max(ordinary, huge);
	return *available >= needed;
}

/*
 * Is there memory for the buffers of a server that starts without the pool in
 * this directory?  needed is in bytes.  huge_pages says that huge_pages is not
 * off.  gives_back says that the pool is going to give its memory back.
 *
 * A pool that holds no memory is no reason to ask: then an unpatched server
 * would need the same memory.
 *
 * err must have the reason why the pool cannot be used.  If there is too little
 * memory, returns false, and err gives both reasons.
 */
bool
PCacheMemoryForBuffers(const char *directory, uint64 needed, bool huge_pages,
					   bool gives_back, PCacheError *err)
{
	bool		held_huge = false;
	uint64		held = PCachePoolHeldMemory(directory, &held_huge);
	uint64		available;
	char		reason[sizeof(err->message)];

	if (held == 0 ||
		MemoryIsAvailable(needed, huge_pages, gives_back ? held : 0, held_huge, &available))
		return true;
	strlcpy(reason, err->message, sizeof(reason));
	PCacheSetError(err, _("%.600s; and there is no memory for %llu MB of buffers beside the %llu MB that this pool holds: %llu MB are available"),
				   reason, (unsigned long long) (needed >> 20),
				   (unsigned long long) (held >> 20),
				   (unsigned long long) (available >> 20));
	PCacheSetHint(err, _("Make the pool usable, remove it with \"pg_pcache drop\", or decrease \"shared_buffers\"."));
	return false;
}

/*
 * May the server reserve so many bytes for its own buffers, although the library will not
 * use them, and may a pool on tmpfs get what it lacks?  Both count with
 * vm.overcommit_memory = 2, where the server would not start otherwise.
 */
bool
PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err)
{
	uint64		mode;
	uint64		limit;
	uint64		committed;
	uint64		free_kb;

	if (!PCacheReadNumber("/proc/sys/vm/overcommit_memory", "", &mode) || mode != 2 ||
		!PCacheReadNumber("/proc/meminfo", "CommitLimit:", &limit) ||
		!PCacheReadNumber("/proc/meminfo", "Committed_AS:", &committed))
		return true;
	free_kb = limit - Min(limit, committed);
	if ((reserved + lacking) / 1024 <= free_kb)
		return true;
	PCacheSetError(err, _("\"vm.overcommit_memory\" is 2, and %llu MB can be reserved: too little for %llu MB of buffers, which the server reserves beside its pool, and %llu MB that the pool lacks"),
				   (unsigned long long) (free_kb >> 10),
				   (unsigned long long) (reserved >> 20),
				   (unsigned long long) (lacking >> 20));
	PCacheSetHint(err, _("Increase \"vm.overcommit_ratio\", decrease \"shared_buffers\", or use a pool on hugetlbfs."));
	return false;
}
