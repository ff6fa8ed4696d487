/*-------------------------------------------------------------------------
 *
 * pcache_room.c
 *	  How much memory, and how many huge pages, may be had: of the machine, of a
 *	  control group, and of a mount?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_room.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "storage/pcache_pool.h"

int			PCacheServerToStop = 0;

/* What a version of control groups calls its files. */
typedef struct Names
{
	const char *directory;		/* of its controller, in version 1 */
	const char *limit;
	const char *used;
	const char *cached[2];		/* in memory.stat; tmpfs does not belong to it */
} Names;

static const Names memory_v1 = {
	"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	{"total_inactive_file ", "total_active_file "}
};
static const Names memory_v2 = {
	"", "memory.max", "memory.current",
	{"inactive_file ", "active_file "}
};

/* A number in a file, which may follow a name.  Returns false if there is none. */
bool
PCacheReadNumber(const char *path, const char *name, uint64 *number)
{
	FILE	   *file = fopen(path, "r");
	char		line[256];
	bool		found = false;

	if (file == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), file) != NULL)
	{
		unsigned long long value;

		if (strncmp(line, name, strlen(name)) == 0 &&
			sscanf(line + strlen(name), " %llu", &value) == 1)
		{
			*number = value;
			found = true;
		}
	}
	fclose(file);
	return found;
}

static bool
ReadOf(const char *root, const Names *names, const char *group, const char *file,
	   const char *name, uint64 *number)
{
	char		path[3 * MAXPGPATH];

	snprintf(path, sizeof(path), "%s%s%s/%s", root, names->directory, group, file);
	return PCacheReadNumber(path, name, number);
}

/* Look at a group, and at those above it. */
static void
Climb(const char *root, const Names *names, char *group, PCacheCgroup *result)
{
	char	   *end = group + strlen(group);

	do
	{
		uint64		limit;
		uint64		used;
		uint64		cached[2] = {0, 0};

		*end = '\0';
		/* without a limit, v1 has the largest number of bytes in whole pages */
		if (ReadOf(root, names, group, names->limit, "", &limit) && limit < PG_INT64_MAX / 2)
		{
			result->limit = Min(result->limit, limit);
			for (int i = 0; i < 2 && names->cached[i] != NULL; i++)
				(void) ReadOf(root, names, group, "memory.stat", names->cached[i], &cached[i]);
			if (ReadOf(root, names, group, names->used, "", &used))
			{
				used -= Min(used, cached[0] + cached[1]);
				result->room = Min(result->room, limit - Min(limit, used));
			}
		}
	} while ((end = strrchr(group, '/')) != NULL);
}

/*
 * groups is the file in /proc that has the control groups of a process, and root is
 * where these are mounted.  Both versions are looked at: what a process has is
 * controlled by one of them.
 */
static PCacheCgroup
ReadGroups(const char *groups, const char *root, const Names *v1, const Names *v2)
{
	PCacheCgroup result = {PG_UINT64_MAX, PG_UINT64_MAX};
	FILE	   *file = fopen(groups, "r");
	char		line[MAXPGPATH];

	/* each line is number:controllers:group */
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
	{
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers != NULL ? strchr(++controllers, ':') : NULL;

		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[0] == '\0')
			Climb(root, v2, group, &result);
		else if (strcmp(controllers, v1->directory + 1) == 0)
			Climb(root, v1, group, &result);
	}
	if (file != NULL)
		fclose(file);
	return result;
}

/* The limits of memory; for the arguments see ReadGroups(). */
PCacheCgroup
PCacheReadCgroup(const char *groups, const char *root)
{
	return ReadGroups(groups, root, &memory_v1, &memory_v2);
}

/*
 * How many bytes of huge pages of a size may still be had?  A page counts twice: when it is
 * reserved, which a file need not do before, and when it is used.
 */
uint64
PCacheHugeRoomInCgroup(const char *groups, const char *root, uint64 size_kb)
{
	static const char *const counts[] = {"", "rsvd."};
	uint64		room = PG_UINT64_MAX;
	char		size[32];

	if (size_kb >= 1024 * 1024)
		snprintf(size, sizeof(size), "%lluGB", (unsigned long long) (size_kb >> 20));
	else if (size_kb >= 1024)
		snprintf(size, sizeof(size), "%lluMB", (unsigned long long) (size_kb >> 10));
	else
		snprintf(size, sizeof(size), "%lluKB", (unsigned long long) size_kb);
	for (int i = 0; i < lengthof(counts); i++)
	{
		char		files[4][64];
		Names		v1 = {"/hugetlb", files[0], files[1]};
		Names		v2 = {"", files[2], files[3]};

		snprintf(files[0], sizeof(files[0]), "hugetlb.%s.%slimit_in_bytes", size, counts[i]);
		snprintf(files[1], sizeof(files[1]), "hugetlb.%s.%susage_in_bytes", size, counts[i]);
		snprintf(files[2], sizeof(files[2]), "hugetlb.%s.%smax", size, counts[i]);
		snprintf(files[3], sizeof(files[3]), "hugetlb.%s.%scurrent", size, counts[i]);
		room = Min(room, ReadGroups(groups, root, &v1, &v2).room);
	}
	return room;
}

/* The file in /proc that names the control groups of the start that is asked about. */
const char *
PCacheCgroupFile(void)
{
	static char path[64];

	if (PCacheServerToStop == 0)
		return "/proc/self/cgroup";
	snprintf(path, sizeof(path), "/proc/%d/cgroup", PCacheServerToStop);
	return path;
}

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

/*
 * Is there memory for so many bytes that a pool of this size lacks, beside what the server
 * takes for other things?  Both its control groups and the machine have to have it, and
 * the page cache counts as free.  What the pool has already is not asked for: it may be
 * charged to any group.
 *
 * If not, err says which of them lacks it.
 */
bool
PCacheMemoryWillDo(uint64 lacking, uint64 size, PCacheError *err)
{
	uint64		needed = lacking + PCACHE_MEMORY_BESIDE(size);
	uint64		room;
	uint64		available_kb;

	if (lacking == 0)
		return true;
	room = PCacheReadCgroup(PCacheCgroupFile(), PCACHE_CGROUP_ROOT).room;
	if (room < needed)
	{
		PCacheSetError(err, _("the pool lacks %llu MB, and the control group may use %llu MB more, which is too little for that and for sessions"),
					   (unsigned long long) (lacking >> 20),
					   (unsigned long long) (room >> 20));
		return PCacheSetHint(err, _("Raise the limit of the unit or container by %llu MB at least, or decrease \"shared_buffers\"."),
							 (unsigned long long) ((needed - room) >> 20) + 1);
	}
	if (PCacheReadNumber("/proc/meminfo", "MemAvailable:", &available_kb) &&
		available_kb < needed >> 10)
	{
		PCacheSetError(err, _("the pool lacks %llu MB, and the machine has %llu MB left, which is too little for that and for sessions"),
					   (unsigned long long) (lacking >> 20),
					   (unsigned long long) (available_kb >> 10));
		return PCacheSetHint(err, _("Decrease \"shared_buffers\", or have other programs use less memory."));
	}
	return true;
}

/* Does memory count as used when it is reserved (vm.overcommit_memory = 2)? */
bool
PCacheReservationCounts(void)
{
	uint64		mode;

	return PCacheReadNumber("/proc/sys/vm/overcommit_memory", "", &mode) && mode == 2;
}

/*
 * May the server reserve so many bytes of shared memory, although it will not use all of
 * them, and may a pool on tmpfs get what it lacks?  Both count with
 * vm.overcommit_memory = 2, where the server would not start otherwise.
 */
bool
PCacheMayReserve(uint64 reserved, uint64 lacking, PCacheError *err)
{
	uint64		limit;
	uint64		committed;
	uint64		free_kb;

	if (!PCacheReservationCounts() ||
		!PCacheReadNumber("/proc/meminfo", "CommitLimit:", &limit) ||
		!PCacheReadNumber("/proc/meminfo", "Committed_AS:", &committed))
		return true;
	free_kb = limit - Min(limit, committed);
	if ((reserved + lacking) / 1024 <= free_kb)
		return true;
	PCacheSetError(err, _("\"vm.overcommit_memory\" is 2, and %llu MB can be reserved: too little for %llu MB of shared memory, which the server reserves beside its pool, and %llu MB that the pool lacks"),
				   (unsigned long long) (free_kb >> 10),
				   (unsigned long long) (reserved >> 20),
				   (unsigned long long) (lacking >> 20));
	return PCacheSetHint(err, _("Increase \"vm.overcommit_ratio\", decrease \"shared_buffers\", or use a pool on hugetlbfs."));
}
