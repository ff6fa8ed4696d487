/*-------------------------------------------------------------------------
 *
 * pcache_huge.c
 *	  How many huge pages are there: in all, for a mount, and of a server?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_huge.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "storage/pcache_pool.h"

static bool
ReadCount(uint64 size_kb, const char *name, uint64 *count)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
			 (unsigned long long) size_kb, name);
	return PCacheReadNumber(path, "", count);
}

/*
 * What the kernel says of huge pages of that size, in kB, or of the size that it takes if
 * nobody says one (0).  Returns false if it does not tell.
 */
bool
PCacheReadHugePages(uint64 size_kb, PCacheHugePages *pages)
{
	uint64		idle;
	uint64		promised;
	uint64		overcommit;
	uint64		surplus;

	if ((size_kb == 0 && !PCacheReadNumber("/proc/meminfo", "Hugepagesize:", &size_kb)) ||
		!ReadCount(size_kb, "free_hugepages", &idle) ||
		!ReadCount(size_kb, "resv_hugepages", &promised) ||
		!ReadCount(size_kb, "nr_overcommit_hugepages", &overcommit) ||
		!ReadCount(size_kb, "surplus_hugepages", &surplus))
		return false;
	pages->size_kb = size_kb;
	pages->unused = idle - Min(idle, promised);
	pages->more = overcommit - Min(overcommit, surplus);
	return true;
}

/*
 * How many bytes of the segment of a server that runs are in huge pages?  They are taken to
 * be of the size that is asked about, because there is hardly a machine that uses two.
 */
uint64
PCacheHugeSegment(int pid)
{
	char		line[MAXPGPATH + 128];
	FILE	   *maps;
	unsigned long low;
	unsigned long high;
	uint64		bytes = 0;

	snprintf(line, sizeof(line), "/proc/%d/maps", pid);
	maps = fopen(line, "r");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
	{
		if (strstr(line, " /anon_hugepage") != NULL && sscanf(line, "%lx-%lx", &low, &high) == 2)
			bytes += high - low;
	}
	if (maps != NULL)
		fclose(maps);
	return bytes;
}

/*
 * How many huge pages does the kernel keep for a mount of hugetlbfs (min_size=), on which fd
 * is?  Those that files there have are some of them.  Without a limit of the mount it does
 * not tell how many that are, and then only those of fd count.
 */
static uint64
PagesKept(int fd, const struct statfs *fs)
{
	uint64		used = fs->f_blocks - fs->f_bfree;
	uint64		kept = 0;
	char		line[2 * MAXPGPATH + 256];
	struct stat st;
	FILE	   *mounts;

	if (fstat(fd, &st) < 0)
		return 0;
	if (used == 0)
		used = (uint64) st.st_blocks * 512 / fs->f_bsize;
	mounts = fopen("/proc/self/mountinfo", "r");
	while (mounts != NULL && fgets(line, sizeof(line), mounts) != NULL)
	{
		unsigned int major_id;
		unsigned int minor_id;
		const char *option;

		if (sscanf(line, "%*d %*d %u:%u", &major_id, &minor_id) == 2 &&
			makedev(major_id, minor_id) == st.st_dev &&
			(option = strstr(line, ",min_size=")) != NULL)
			kept = strtoull(option + strlen(",min_size="), NULL, 10) / fs->f_bsize;
	}
	if (mounts != NULL)
		fclose(mounts);
	return kept - Min(kept, used);
}

/*
 * How many bytes of huge pages could a file get now on a hugetlbfs, of which fd is a file or
 * directory?  The limit of the mount is another question.  hint is what gives more.
 *
 * The server takes none for the rest of shared memory before it has its pool.  One that will
 * have stopped by then has returned those of its segment.
 */
uint64
PCacheHugeRoom(int fd, const struct statfs *fs, const char **hint)
{
	uint64		returned = PCacheServerToStop != 0 ? PCacheHugeSegment(PCacheServerToStop) : 0;
	uint64		in_groups = PCacheHugeRoomInCgroup(PCacheCgroupFile(), PCACHE_CGROUP_ROOT,
												   fs->f_bsize / 1024);
	uint64		room = PG_UINT64_MAX - returned;
	PCacheHugePages pages;

	*hint = _("Reserve more huge pages with vm.nr_hugepages, or choose a smaller size.");
	if (PCacheReadHugePages(fs->f_bsize / 1024, &pages))
		room = (pages.unused + pages.more + PagesKept(fd, fs)) * fs->f_bsize;
	if (in_groups < room)
	{
		*hint = _("Raise the limit of huge pages of the unit or container, or choose a smaller size.");
		room = in_groups;
	}
	return room + returned;
}
