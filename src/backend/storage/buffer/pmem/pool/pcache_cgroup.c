/*-------------------------------------------------------------------------
 *
 * pcache_cgroup.c
 *	  How much memory a control group may use.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_cgroup.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_pool.h"

/* What a version of control groups calls its files. */
typedef struct Names
{
	const char *root;			/* below that of all */
	const char *limit;
	const char *used;
	const char *cached[2];		/* in memory.stat; tmpfs does not belong to it */
} Names;

static const Names v1 = {
	"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	{"total_inactive_file ", "total_active_file "}
};
static const Names v2 = {
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

	snprintf(path, sizeof(path), "%s%s%s/%s", root, names->root, group, file);
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
			for (int i = 0; i < 2; i++)
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
 * where these are mounted.  Both versions are looked at: the memory of a process is
 * controlled by one of them.
 */
PCacheCgroup
PCacheReadCgroup(const char *groups, const char *root)
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
			Climb(root, &v2, group, &result);
		else if (strcmp(controllers, "memory") == 0)
			Climb(root, &v1, group, &result);
	}
	if (file != NULL)
		fclose(file);
	return result;
}

/*
 * Is there memory for so many bytes that a pool of this size lacks, beside what the server
 * takes for other things?  Both the control groups that the file groups names and the
 * machine have to have it, and the page cache counts as free.  What the pool has already
 * is not asked for: it may be charged to any group.
 *
 * If not, err says which of them lacks it.
 */
bool
PCacheMemoryWillDo(uint64 lacking, uint64 size, const char *groups, PCacheError *err)
{
	uint64		needed = lacking + PCACHE_MEMORY_BESIDE(size);
	uint64		room;
	uint64		available_kb;

	if (lacking == 0)
		return true;
	room = PCacheReadCgroup(groups, PCACHE_CGROUP_ROOT).room;
	if (room < needed)
	{
		PCacheSetError(err, _("the pool lacks %llu MB, and the control group may use %llu MB more, which is too little for that and for sessions"),
					   (unsigned long long) (lacking >> 20),
					   (unsigned long long) (room >> 20));
		PCacheSetHint(err, _("Raise the limit of the unit or container by %llu MB at least, or decrease \"shared_buffers\"."),
					  (unsigned long long) ((needed - room) >> 20) + 1);
		return false;
	}
	if (PCacheReadNumber("/proc/meminfo", "MemAvailable:", &available_kb) &&
		available_kb < needed >> 10)
	{
		PCacheSetError(err, _("the pool lacks %llu MB, and the machine has %llu MB left, which is too little for that and for sessions"),
					   (unsigned long long) (lacking >> 20),
					   (unsigned long long) (available_kb >> 10));
		PCacheSetHint(err, _("Decrease \"shared_buffers\", or have other programs use less memory."));
		return false;
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
	PCacheSetHint(err, _("Increase \"vm.overcommit_ratio\", decrease \"shared_buffers\", or use a pool on hugetlbfs."));
	return false;
}
