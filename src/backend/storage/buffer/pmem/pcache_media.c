/*-------------------------------------------------------------------------
 *
 * pcache_media.c
 *	  Bad blocks and DIMMs below the persistent cache's pool.
 *
 * The way down: st_dev of the pool file names a block device, and its place
 * in sysfs tells whether libnvdimm made it of a namespace, and of which one.
 * A partition adds an offset; a stack of devices (device-mapper, md) is
 * walked down to the disks below it.
 *
 * The way up: the disk's list of bad blocks is intersected with the extents
 * that the file system gave to the pool file, which turns addresses on the
 * device into offsets in the file.  Nobody but the device-mapper knows how a
 * stack lays out its blocks, so there the only answers are "there are no bad
 * blocks below" and "unknown".
 *
 * Used by the server and by pg_pcache; reports nothing itself, and allocates
 * with malloc().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_media.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#endif

#include "storage/pcache_media.h"
#include "storage/pcache_pool.h"

/* The kernel counts bad blocks and device sizes in sectors of this size. */
#define SECTOR_SIZE				512

/* No sum of two numbers of sectors overflows, not even in bytes. */
#define MAX_SECTORS				(PG_UINT64_MAX / SECTOR_SIZE / 2)

/* Guards against loops, which sysfs does not have. */
#define MAX_STACK_DEPTH			8
#define MAX_DEVICES				64

#define EXTENTS_PER_CALL		128

/*
 * Extents whose bytes are not (yet) at fe_physical, or not only this file's:
 * nothing can be said of bad blocks there.
 */
#define EXTENT_NOT_MAPPED \
	(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | \
	 FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_ENCRYPTED | \
	 FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL)

/* The namespaces' disks below a file system. */
typedef struct DeviceTree
{
	PCacheMediaDevice *devices; /* malloc'd */
	int			n_devices;
	int			n_foreign;		/* disks that are not persistent memory */
	char		foreign[PCACHE_MEDIA_NAME_LEN]; /* one of them */
	bool		stacked;		/* offsets can't be mapped through */
} DeviceTree;

static void BlocksUnknown(PCacheMediaReport *report,
						  const char *fmt,...) pg_attribute_printf(2, 3);

/*
 * Names for answers, as seen by SQL and JSON; not translated.
 */
const char *
PCacheMediaAnswerName(PCacheMediaAnswer answer)
{
	switch (answer)
	{
		case PCACHE_MEDIA_UNKNOWN:
			return "unknown";
		case PCACHE_MEDIA_CLEAN:
			return "clean";
		case PCACHE_MEDIA_BAD:
			return "bad";
	}
	return "unknown";
}

const char *
PCachePersistenceDomainName(PCachePersistenceDomain domain)
{
	switch (domain)
	{
		case PCACHE_DOMAIN_UNKNOWN:
			return "unknown";
		case PCACHE_DOMAIN_NONE:
			return "none";
		case PCACHE_DOMAIN_MEMORY_CONTROLLER:
			return "memory_controller";
		case PCACHE_DOMAIN_CPU_CACHE:
			return "cpu_cache";
	}
	return "unknown";
}

/*
 * Write the names of health flags into buf, separated by spaces, and return
 * buf.  "ok" stands for no flag at all.
 */
const char *
PCacheMediaHealthText(uint32 health, char *buf, size_t len)
{
	static const struct
	{
		uint32		flag;
		const char *name;
	}			names[] =
	{
		{PCACHE_DIMM_NOT_ARMED, "not_armed"},
		{PCACHE_DIMM_MAP_FAIL, "map_fail"},
		{PCACHE_DIMM_FLUSH_FAIL, "flush_fail"},
		{PCACHE_DIMM_SAVE_FAIL, "save_fail"},
		{PCACHE_DIMM_RESTORE_FAIL, "restore_fail"},
		{PCACHE_DIMM_SMART_EVENT, "smart_event"},
		{PCACHE_DIMM_SMART_CRITICAL, "smart_critical"},
		{PCACHE_DIMM_FLAGS_UNKNOWN, "flags_unknown"},
		{PCACHE_DIMM_SMART_UNKNOWN, "smart_unknown"},
	};

	buf[0] = '\0';
	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if ((health & names[i].flag) == 0)
			continue;
		if (buf[0] != '\0')
			strlcat(buf, " ", len);
		strlcat(buf, names[i].name, len);
	}
	if (buf[0] == '\0')
		strlcpy(buf, "ok", len);
	return buf;
}

/*
 * Append a range, in bytes.  A list that is full, or for which there is no
 * memory, is marked as truncated: it then stands for everything.
 */
void
PCacheMediaAddRange(PCacheRangeList *list, uint64 offset, uint64 length)
{
	if (length > PG_UINT64_MAX - offset)
		length = PG_UINT64_MAX - offset;
	if (length == 0)
		return;

	if (list->n_ranges == list->max_ranges)
	{
		uint32		max_ranges = Max(16, list->max_ranges * 2);
		PCacheByteRange *ranges = NULL;

		if (max_ranges > PCACHE_MEDIA_MAX_RANGES)
			max_ranges = PCACHE_MEDIA_MAX_RANGES;
		if (max_ranges > list->max_ranges)
			ranges = realloc(list->ranges, max_ranges * sizeof(*ranges));
		if (ranges == NULL)
		{
			list->truncated = true;
			return;
		}
		list->ranges = ranges;
		list->max_ranges = max_ranges;
	}
	list->ranges[list->n_ranges].offset = offset;
	list->ranges[list->n_ranges].length = length;
	list->n_ranges++;
}

static int
CompareRanges(const void *a, const void *b)
{
	const PCacheByteRange *left = a;
	const PCacheByteRange *right = b;

	if (left->offset != right->offset)
		return left->offset < right->offset ? -1 : 1;
	return 0;
}

/*
 * Sort a list, and join ranges that overlap or touch.
 */
void
PCacheMediaMergeRanges(PCacheRangeList *list)
{
	uint32		last = 0;

	if (list->n_ranges == 0)
		return;
	qsort(list->ranges, list->n_ranges, sizeof(PCacheByteRange), CompareRanges);
	for (uint32 i = 1; i < list->n_ranges; i++)
	{
		PCacheByteRange *kept = &list->ranges[last];
		uint64		kept_end = kept->offset + kept->length;
		uint64		end = list->ranges[i].offset + list->ranges[i].length;

		if (list->ranges[i].offset <= kept_end)
			kept->length = Max(kept_end, end) - kept->offset;
		else
			list->ranges[++last] = list->ranges[i];
	}
	list->n_ranges = last + 1;
}

/*
 * First range of a merged list that ends behind offset; n_ranges if none.
 */
static uint32
FirstRangeBehind(const PCacheRangeList *list, uint64 offset)
{
	uint32		low = 0;
	uint32		high = list->n_ranges;

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;
		const PCacheByteRange *range = &list->ranges[middle];

		if (range->offset + range->length > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * Is any byte of [offset, offset + length) of the pool file on a bad block?
 * If bad blocks are unknown none is: what that is worth is the caller's
 * policy.
 */
bool
PCacheMediaRangeIsBad(const PCacheMediaReport *report,
					  uint64 offset, uint64 length)
{
	const PCacheRangeList *bad = &report->bad;
	uint32		i;

	if (bad->truncated)
		return true;
	if (bad->n_ranges == 0 || length == 0)
		return false;
	i = FirstRangeBehind(bad, offset);
	return i < bad->n_ranges &&
		(bad->ranges[i].offset <= offset ||
		 bad->ranges[i].offset - offset < length);
}

/* Answer "unknown" for bad blocks; the first reason given is kept. */
static void
BlocksUnknown(PCacheMediaReport *report, const char *fmt,...)
{
	va_list		args;

	report->blocks = PCACHE_MEDIA_UNKNOWN;
	if (report->blocks_why[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(report->blocks_why, sizeof(report->blocks_why), fmt, args);
	va_end(args);
}

/*
 * Answer "unknown" for the counts of unsafe shutdowns; the first reason given
 * is kept.
 */
void
PCacheMediaDimmsUnknown(PCacheMediaReport *report, const char *fmt,...)
{
	va_list		args;

	report->dimms_state = PCACHE_MEDIA_UNKNOWN;
	if (report->dimms_why[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(report->dimms_why, sizeof(report->dimms_why), fmt, args);
	va_end(args);
}

/*
 * Add one DIMM to the report, in order of ids.
 *
 * name is the kernel's (nmem0), and tells whether we have it already: several
 * namespaces, even several regions, may share a DIMM.  id is the unique id,
 * which outlives a reboot, NULL if it has none.  A negative number of unsafe
 * shutdowns means that it is not known.
 */
void
PCacheMediaAddDimm(PCacheMediaReport *report, const char *name,
				   const char *id, int64 unsafe_shutdowns, uint32 health)
{
	uint32		place;

	for (uint32 i = 0; i < report->n_dimms; i++)
	{
		if (strcmp(report->dimm_info[i].name, name) == 0)
			return;
	}

	report->health |= health;
	if (id == NULL || id[0] == '\0')
	{
		PCacheMediaDimmsUnknown(report, _("DIMM %s has no unique id"), name);
		return;
	}
	if (strlen(id) >= PCACHE_DIMM_ID_LEN)
	{
		PCacheMediaDimmsUnknown(report, _("the unique id of DIMM %s is too long"), name);
		return;
	}
	if (report->n_dimms == PCACHE_MAX_DIMMS)
	{
		PCacheMediaDimmsUnknown(report, _("there are more than %d DIMMs"),
								PCACHE_MAX_DIMMS);
		return;
	}
	if (unsafe_shutdowns < 0)
		PCacheMediaDimmsUnknown(report, _("the unsafe shutdown count of DIMM %s is not available"),
								name);

	place = report->n_dimms++;
	while (place > 0 && strcmp(report->dimms[place - 1].id, id) > 0)
	{
		report->dimms[place] = report->dimms[place - 1];
		report->dimm_info[place] = report->dimm_info[place - 1];
		place--;
	}
	if (place > 0 && strcmp(report->dimms[place - 1].id, id) == 0)
		PCacheMediaDimmsUnknown(report, _("DIMMs %s and %s have the same unique id"),
								report->dimm_info[place - 1].name, name);

	/* The id goes to the media: no stray bytes behind its end. */
	memset(&report->dimms[place], 0, sizeof(PCacheDimm));
	strlcpy(report->dimms[place].id, id, PCACHE_DIMM_ID_LEN);
	report->dimms[place].unsafe_shutdowns = Max(unsafe_shutdowns, 0);
	memset(&report->dimm_info[place], 0, sizeof(PCacheMediaDimmInfo));
	strlcpy(report->dimm_info[place].name, name, PCACHE_MEDIA_NAME_LEN);
	report->dimm_info[place].health = health;
}

/*
 * Add a namespace's names, its persistence domain and its NUMA node (-1 if
 * unknown).  With several namespaces the names are the first one's, the
 * domain is the weakest, and the node is known only if all agree.
 */
void
PCacheMediaSetPlace(PCacheMediaReport *report,
					const char *namespace_name, const char *region_name,
					PCachePersistenceDomain domain, int numa_node)
{
	if (report->namespace_name[0] == '\0')
	{
		strlcpy(report->namespace_name, namespace_name, PCACHE_MEDIA_NAME_LEN);
		strlcpy(report->region_name, region_name, PCACHE_MEDIA_NAME_LEN);
		report->domain = domain;
		report->numa_node = numa_node;
		return;
	}
	report->domain = Min(report->domain, domain);
	if (report->numa_node != numa_node)
		report->numa_node = -1;
}

/*
 * Compare the DIMMs that a superblock remembers with those that are there
 * now.  why gets a translated text unless they are the same.  A DIMM that was
 * replaced outweighs a count that moved: its contents are another's.
 */
PCacheDimmComparison
PCacheMediaCompareDimms(const PCacheSuperblock *sb,
						const PCacheMediaReport *now,
						char *why, size_t why_len)
{
	const PCacheDimm *moved_from = NULL;
	const PCacheDimm *moved_to = NULL;

	why[0] = '\0';
	if (now->dimms_state != PCACHE_MEDIA_CLEAN)
	{
		snprintf(why, why_len, _("unsafe shutdown counts are not known now: %s"),
				 now->dimms_why);
		return PCACHE_DIMMS_UNKNOWN;
	}
	if (sb->dimms_state != PCACHE_MEDIA_CLEAN ||
		sb->n_dimms > PCACHE_MAX_DIMMS)
	{
		snprintf(why, why_len, _("unsafe shutdown counts were not known when the pool was last used"));
		return PCACHE_DIMMS_UNKNOWN;
	}

	if (sb->n_dimms != now->n_dimms)
	{
		snprintf(why, why_len, _("there were %u DIMMs below the pool, now there are %u"),
				 sb->n_dimms, now->n_dimms);
		return PCACHE_DIMMS_REPLACED;
	}
	for (uint32 i = 0; i < now->n_dimms; i++)
	{
		const PCacheDimm *before = NULL;

		for (uint32 j = 0; j < sb->n_dimms; j++)
		{
			if (strncmp(sb->dimms[j].id, now->dimms[i].id, PCACHE_DIMM_ID_LEN) == 0)
				before = &sb->dimms[j];
		}
		if (before == NULL)
		{
			snprintf(why, why_len, _("DIMM %s was not below the pool before"),
					 now->dimms[i].id);
			return PCACHE_DIMMS_REPLACED;
		}
		if (before->unsafe_shutdowns != now->dimms[i].unsafe_shutdowns &&
			moved_to == NULL)
		{
			moved_from = before;
			moved_to = &now->dimms[i];
		}
	}
	if (moved_to != NULL)
	{
		snprintf(why, why_len, _("unsafe shutdown count of DIMM %s went from %llu to %llu"),
				 moved_to->id,
				 (unsigned long long) moved_from->unsafe_shutdowns,
				 (unsigned long long) moved_to->unsafe_shutdowns);
		return PCACHE_DIMMS_MOVED;
	}
	return PCACHE_DIMMS_SAME;
}

/*
 * Release what a query allocated.  The report must not be used any more,
 * except to be freed again.
 */
void
PCacheMediaReportFree(PCacheMediaReport *report)
{
	free(report->bad.ranges);
	memset(&report->bad, 0, sizeof(report->bad));
}

#ifdef __linux__

/*
 * Read at most len - 1 bytes of a file in sysfs, and terminate them.  Returns
 * the number of bytes, or -1 with errno set.
 */
static ssize_t
ReadFile(const PCacheMediaEnv *env, const char *path, char *buf, size_t len)
{
	size_t		done = 0;
	ssize_t		n = 0;
	int			save_errno;
	int			fd = env->open_attribute(path);

	if (fd < 0)
		return -1;
	while (done < len - 1)
	{
		n = read(fd, buf + done, len - 1 - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += n;
	}
	save_errno = errno;
	close(fd);
	errno = save_errno;
	buf[done] = '\0';
	return n < 0 ? -1 : (ssize_t) done;
}

/*
 * Read a one-line attribute, without the newline.  A value that does not fit
 * is an error.  Returns false with errno set.
 */
bool
PCacheMediaReadAttribute(const PCacheMediaEnv *env, const char *directory,
						 const char *name, char *value, size_t len)
{
	char		path[MAXPGPATH];
	ssize_t		n;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	n = ReadFile(env, path, value, len);
	if (n < 0)
		return false;
	while (n > 0 && isspace((unsigned char) value[n - 1]))
		value[--n] = '\0';
	if ((size_t) n == len - 1)
	{
		errno = ERANGE;
		return false;
	}
	return true;
}

/*
 * Parse an unsigned decimal number, and move *next behind it.  Returns false
 * if there is none, or if it exceeds max.
 */
static bool
ParseNumber(const char **next, uint64 max, uint64 *number)
{
	char	   *end;

	if (!isdigit((unsigned char) **next))
		return false;
	errno = 0;
	*number = strtoull(*next, &end, 10);
	if (errno != 0 || *number > max)
		return false;
	*next = end;
	return true;
}

/*
 * Read an attribute that counts sectors, as bytes.  Returns false with errno
 * set.
 */
static bool
ReadSectors(const PCacheMediaEnv *env, const char *directory, const char *name,
			uint64 *bytes)
{
	char		value[64];
	const char *next = value;
	uint64		sectors;

	if (!PCacheMediaReadAttribute(env, directory, name, value, sizeof(value)))
		return false;
	if (!ParseNumber(&next, MAX_SECTORS, &sectors) ||
		*next != '\0')
	{
		errno = EINVAL;
		return false;
	}
	*bytes = sectors * SECTOR_SIZE;
	return true;
}

/*
 * Add the bad blocks of a disk to a list, in bytes from the start of the
 * disk.  Returns false with errno set.
 *
 * The kernel keeps no more bad ranges than fit into one page at 8 bytes each,
 * and shows no more than one page of text.  A list that reaches either limit
 * may be incomplete.
 */
static bool
ReadBadBlocks(const PCacheMediaEnv *env, const char *disk_path,
			  PCacheRangeList *bad)
{
	char		path[MAXPGPATH];
	const size_t page_size = sysconf(_SC_PAGESIZE);
	char	   *buf = malloc(page_size + 1);
	const char *next = buf;
	ssize_t		n;
	uint32		n_lines = 0;
	bool		ok = true;

	if (buf == NULL)
	{
		errno = ENOMEM;
		return false;
	}
	snprintf(path, sizeof(path), "%s/badblocks", disk_path);
	n = ReadFile(env, path, buf, page_size + 1);
	if (n < 0)
	{
		int			save_errno = errno;

		free(buf);
		errno = save_errno;
		return false;
	}
	if (n >= (ssize_t) page_size - 1)
	{
		/* Only whole lines can be trusted. */
		while (n > 0 && buf[n - 1] != '\n')
			buf[--n] = '\0';
		bad->truncated = true;
	}
	while (ok && *next != '\0')
	{
		uint64		sector;
		uint64		count;

		ok = ParseNumber(&next, MAX_SECTORS, &sector) &&
			*next++ == ' ' &&
			ParseNumber(&next, MAX_SECTORS, &count) &&
			*next++ == '\n';
		if (ok)
			PCacheMediaAddRange(bad, sector * SECTOR_SIZE, count * SECTOR_SIZE);
		n_lines++;
	}
	if (n_lines >= page_size / sizeof(uint64))
		bad->truncated = true;
	free(buf);
	if (!ok)
		errno = EINVAL;
	return ok;
}

/* Last component of a path */
static const char *
BaseName(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

/*
 * Does a disk's place in sysfs, .../ndbusB/regionR/CLAIM/block/DISK, tell
 * that it was made of a namespace?  If so fill in all but start and length.
 */
static bool
ParseNvdimmPath(const char *disk_path, PCacheMediaDevice *device)
{
	char		path[MAXPGPATH];
	char	   *names[5];		/* disk, "block", claim, region, bus */

	strlcpy(path, disk_path, sizeof(path));
	for (int i = 0; i < (int) lengthof(names); i++)
	{
		char	   *slash = strrchr(path, '/');

		if (slash == NULL)
			return false;
		*slash = '\0';
		names[i] = slash + 1;
		if (i == 1)
			strlcpy(device->claim_path, path, MAXPGPATH);
		else if (i == 2)
			strlcpy(device->region_path, path, MAXPGPATH);
	}
	if (strcmp(names[1], "block") != 0 ||
		strncmp(names[3], "region", strlen("region")) != 0 ||
		strncmp(names[4], "ndbus", strlen("ndbus")) != 0)
		return false;
	strlcpy(device->disk_path, disk_path, MAXPGPATH);
	strlcpy(device->disk, names[0], PCACHE_MEDIA_NAME_LEN);
	strlcpy(device->claim, names[2], PCACHE_MEDIA_NAME_LEN);
	return true;
}

/*
 * Collect the disks of a block device.  path is its directory in sysfs.
 * Returns false, with why filled, if that is not possible.
 */
static bool
CollectDevices(const PCacheMediaEnv *env, const char *path, int depth,
			   DeviceTree *tree, char *why, size_t why_len)
{
	PCacheMediaDevice device;
	char		disk_path[MAXPGPATH];
	char		slaves_path[MAXPGPATH];
	char		value[64];
	DIR		   *dir;
	struct dirent *entry;
	int			n_slaves = 0;
	bool		is_partition;
	bool		ok = true;

	memset(&device, 0, sizeof(device));
	strlcpy(disk_path, path, sizeof(disk_path));
	is_partition = PCacheMediaReadAttribute(env, path, "partition",
											value, sizeof(value));
	if (!is_partition && errno != ENOENT)
	{
		snprintf(why, why_len, _("could not read \"%s/%s\": %m"), path, "partition");
		return false;
	}
	if (is_partition)
	{
		if (!ReadSectors(env, path, "start", &device.start))
		{
			snprintf(why, why_len, _("could not read \"%s/%s\": %m"), path, "start");
			return false;
		}
		*strrchr(disk_path, '/') = '\0';
	}

	if (ParseNvdimmPath(disk_path, &device))
	{
		if (!ReadSectors(env, path, "size", &device.length))
		{
			snprintf(why, why_len, _("could not read \"%s/%s\": %m"), path, "size");
			return false;
		}
		if (tree->n_devices == MAX_DEVICES)
		{
			snprintf(why, why_len, _("there are more than %d devices below the file system"),
					 MAX_DEVICES);
			return false;
		}
		tree->devices[tree->n_devices++] = device;
		return true;
	}

	/* A disk without slaves is what it seems to be. */
	snprintf(slaves_path, sizeof(slaves_path), "%s/slaves", disk_path);
	dir = opendir(slaves_path);
	if (dir == NULL && errno != ENOENT)
	{
		snprintf(why, why_len, _("could not open directory \"%s\": %m"), slaves_path);
		return false;
	}
	while (ok && dir != NULL && (entry = readdir(dir)) != NULL)
	{
		char		slave_path[MAXPGPATH];
		char		target[PATH_MAX];

		if (entry->d_name[0] == '.')
			continue;
		n_slaves++;
		snprintf(slave_path, sizeof(slave_path), "%s/%s", slaves_path, entry->d_name);
		if (depth == MAX_STACK_DEPTH)
		{
			snprintf(why, why_len, _("devices are stacked too deep below the file system"));
			ok = false;
		}
		else if (realpath(slave_path, target) == NULL)
		{
			snprintf(why, why_len, _("could not resolve \"%s\": %m"), slave_path);
			ok = false;
		}
		else
			ok = CollectDevices(env, target, depth + 1, tree, why, why_len);
	}
	if (dir != NULL)
		closedir(dir);
	if (n_slaves > 0)
		tree->stacked = true;
	else
	{
		tree->n_foreign++;
		strlcpy(tree->foreign, BaseName(disk_path), PCACHE_MEDIA_NAME_LEN);
	}
	return ok;
}

/*
 * Cut a merged list down to [start, start + length).
 */
static void
ClipRanges(PCacheRangeList *list, uint64 start, uint64 length)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < list->n_ranges; i++)
	{
		uint64		from = Max(list->ranges[i].offset, start);
		uint64		to = Min(list->ranges[i].offset + list->ranges[i].length,
							 start + length);

		if (from < to)
		{
			list->ranges[kept].offset = from;
			list->ranges[kept].length = to - from;
			kept++;
		}
	}
	list->n_ranges = kept;
}

/*
 * Add to the report which bytes of the file are on bad blocks.
 *
 * bad is merged, in bytes from the start of the disk; the file system begins
 * fs_start bytes behind that.  What the file has preallocated behind its end
 * is nothing to the pool.
 */
static void
MapToFile(const PCacheMediaEnv *env, const char *pool_path, int fd,
		  uint64 file_size, const PCacheRangeList *bad, uint64 fs_start,
		  PCacheMediaReport *report)
{
	union
	{
		struct fiemap map;
		char		space[sizeof(struct fiemap) +
						  EXTENTS_PER_CALL * sizeof(struct fiemap_extent)];
	}			request;
	struct fiemap *map = &request.map;
	uint64		next = 0;
	bool		last = false;

	while (!last && next < file_size)
	{
		const uint64 from = next;

		memset(&request, 0, sizeof(request));
		map->fm_start = from;
		map->fm_length = FIEMAP_MAX_OFFSET - from;
		/* Once is enough to have all blocks allocated. */
		map->fm_flags = from == 0 ? FIEMAP_FLAG_SYNC : 0;
		map->fm_extent_count = EXTENTS_PER_CALL;
		if (env->get_extents(fd, map) < 0)
		{
			BlocksUnknown(report, _("could not get extents of file \"%s\": %m"),
						  pool_path);
			return;
		}

		/* A hole up to the end of the file has no extent. */
		if (map->fm_mapped_extents == 0)
			break;
		for (uint32 i = 0; i < Min(map->fm_mapped_extents, EXTENTS_PER_CALL); i++)
		{
			const struct fiemap_extent *extent = &map->fm_extents[i];
			uint64		length = extent->fe_length;
			uint64		physical = fs_start + extent->fe_physical;

			if (extent->fe_flags & EXTENT_NOT_MAPPED)
			{
				BlocksUnknown(report, _("extent at offset %llu of file \"%s\" has no fixed place on the device"),
							  (unsigned long long) extent->fe_logical, pool_path);
				return;
			}
			if (extent->fe_logical >= file_size)
			{
				last = true;
				break;
			}
			if (extent->fe_logical + length <= next ||
				physical + length < physical)
			{
				BlocksUnknown(report, _("extents of file \"%s\" make no sense"),
							  pool_path);
				return;
			}
			next = extent->fe_logical + length;
			length = Min(length, file_size - extent->fe_logical);

			for (uint32 j = FirstRangeBehind(bad, physical);
				 j < bad->n_ranges && bad->ranges[j].offset < physical + length;
				 j++)
			{
				uint64		start = Max(bad->ranges[j].offset, physical);
				uint64		end = Min(bad->ranges[j].offset + bad->ranges[j].length,
									  physical + length);

				PCacheMediaAddRange(&report->bad,
									extent->fe_logical + (start - physical),
									end - start);
			}
			if (extent->fe_flags & FIEMAP_EXTENT_LAST)
				last = true;
		}
	}
	PCacheMediaMergeRanges(&report->bad);
}

/*
 * Find the bad blocks and the DIMMs of one device.  Returns false if its bad
 * blocks are not known, with the reason in the report; else *bad has those
 * below the file system, merged, in bytes from the start of the disk.
 */
static bool
QueryDevice(const PCacheMediaEnv *env, const PCacheMediaDevice *device,
			PCacheMediaReport *report, PCacheRangeList *bad)
{
	bool		ok = true;

	PCacheMediaQueryNamespace(env, device, report, bad);
	if (!ReadBadBlocks(env, device->disk_path, bad))
	{
		BlocksUnknown(report, _("could not read \"%s/%s\": %m"),
					  device->disk_path, "badblocks");
		ok = false;
	}
	if (strncmp(device->claim, "btt", strlen("btt")) == 0)
	{
		BlocksUnknown(report, _("device %s is in sector mode, where blocks have no fixed place"),
					  device->disk);
		ok = false;
	}
	PCacheMediaMergeRanges(bad);
	ClipRanges(bad, device->start, device->length);
	return ok;
}

/*
 * Find out all about the devices below a file system, whose block device's
 * directory in sysfs is path.
 */
static void
QueryDevices(const PCacheMediaEnv *env, const char *pool_path, int fd,
			 const struct stat *st, const char *path,
			 PCacheMediaReport *report)
{
	DeviceTree	tree;
	char		why[PCACHE_MEDIA_WHY_LEN];
	bool		known = true;

	memset(&tree, 0, sizeof(tree));
	tree.devices = malloc(MAX_DEVICES * sizeof(PCacheMediaDevice));
	if (tree.devices == NULL)
	{
		BlocksUnknown(report, _("out of memory"));
		PCacheMediaDimmsUnknown(report, _("out of memory"));
		return;
	}
	if (!CollectDevices(env, path, 0, &tree, why, sizeof(why)))
		known = false;
	else if (tree.n_devices == 0)
	{
		snprintf(why, sizeof(why), _("not on persistent memory"));
		known = false;
	}
	else if (tree.n_foreign > 0)
	{
		snprintf(why, sizeof(why), _("device %s is partly on %s, which is not persistent memory"),
				 report->block_device, tree.foreign);
		known = false;
	}
	if (!known)
	{
		BlocksUnknown(report, "%s", why);
		PCacheMediaDimmsUnknown(report, "%s", why);
	}

	for (int i = 0; i < tree.n_devices; i++)
	{
		const PCacheMediaDevice *device = &tree.devices[i];
		PCacheRangeList bad;

		memset(&bad, 0, sizeof(bad));
		if (!QueryDevice(env, device, report, &bad))
			known = false;
		else if (tree.stacked && (bad.n_ranges > 0 || bad.truncated))
		{
			BlocksUnknown(report, _("device %s has bad blocks, whose place in %s is not known"),
						  device->disk, report->block_device);
			known = false;
		}
		else if (bad.truncated)
			report->bad.truncated = true;
		else if (known && bad.n_ranges > 0)
		{
			MapToFile(env, pool_path, fd, (uint64) st->st_size,
					  &bad, device->start, report);
			known = report->blocks_why[0] == '\0';
		}
		free(bad.ranges);
	}

	if (report->bad.truncated)
	{
		report->blocks = PCACHE_MEDIA_BAD;
		snprintf(report->blocks_why, sizeof(report->blocks_why),
				 _("there are too many bad blocks on device %s"),
				 report->block_device);
	}
	else if (known)
		report->blocks = report->bad.n_ranges > 0 ? PCACHE_MEDIA_BAD :
			PCACHE_MEDIA_CLEAN;
	else
	{
		/* Half an answer would look like a whole one. */
		report->bad.n_ranges = 0;
	}

	if (report->dimms_why[0] == '\0')
	{
		if (report->n_dimms > 0)
			report->dimms_state = PCACHE_MEDIA_CLEAN;
		else
			PCacheMediaDimmsUnknown(report, _("%s has no DIMMs"),
									report->region_name[0] != '\0' ?
									report->region_name : report->block_device);
	}
	free(tree.devices);
}

/* The real world */

static int
StatFile(int fd, struct stat *st)
{
	return fstat(fd, st);
}

/*
 * Get extents from the kernel.  Returns -1 with errno set.
 */
static int
GetExtents(int fd, struct fiemap *map)
{
#if defined(FS_IOC_FSGETXATTR) && defined(FS_XFLAG_REALTIME)
	struct fsxattr attr;

	/* Extents on XFS's realtime device are not on the one in st_dev. */
	if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) == 0 &&
		(attr.fsx_xflags & FS_XFLAG_REALTIME) != 0)
	{
		errno = EXDEV;
		return -1;
	}
#endif
	return ioctl(fd, FS_IOC_FIEMAP, map);
}

static int
OpenAttribute(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

#endif							/* __linux__ */

/*
 * Find out about the media below a pool; see PCacheMediaReport.  pool_path is
 * only used in messages, fd is the open pool file, and kind tells what it
 * lies on.  Its bad ranges include the memory errors that the pool remembers.
 * The report is to be released with PCacheMediaReportFree().
 */
void
PCacheMediaQuery(const char *pool_path, int fd, PCacheFsKind kind,
				 PCacheMediaReport *report)
{
#ifdef __linux__
	static const PCacheMediaEnv real_env = {
		.sysfs_root = "/sys",
		.stat_file = StatFile,
		.get_extents = GetExtents,
		.open_attribute = OpenAttribute,
	};

	PCacheMediaQueryEnv(&real_env, pool_path, fd, kind, report);
#else
	PCacheMediaQueryEnv(NULL, pool_path, fd, kind, report);
#endif
	PCacheAddMemoryErrors(fd, report);
}

/*
 * The same, in a given environment.
 */
void
PCacheMediaQueryEnv(const PCacheMediaEnv *env, const char *pool_path, int fd,
					PCacheFsKind kind, PCacheMediaReport *report)
{
#ifdef __linux__
	struct stat st;
	char		link_path[MAXPGPATH];
	char		path[PATH_MAX];
#endif

	memset(report, 0, sizeof(*report));
	report->numa_node = -1;

	if (kind == PCACHE_FS_TMPFS || kind == PCACHE_FS_HUGETLBFS)
	{
		report->blocks = PCACHE_MEDIA_CLEAN;
		report->dimms_state = PCACHE_MEDIA_CLEAN;
		strlcpy(report->blocks_why, _("memory-backed"), PCACHE_MEDIA_WHY_LEN);
		strlcpy(report->dimms_why, _("memory-backed"), PCACHE_MEDIA_WHY_LEN);
		return;
	}

#ifdef __linux__
	if (env->stat_file(fd, &st) < 0)
	{
		BlocksUnknown(report, _("could not stat file \"%s\": %m"), pool_path);
		PCacheMediaDimmsUnknown(report, _("could not stat file \"%s\": %m"), pool_path);
		return;
	}
	if (S_ISCHR(st.st_mode))
	{
		BlocksUnknown(report, _("device-dax is not supported"));
		PCacheMediaDimmsUnknown(report, _("device-dax is not supported"));
		return;
	}

	/*
	 * Btrfs, overlayfs and the like are on no block device in particular, and
	 * have a number of their own that sysfs does not know.
	 */
	snprintf(link_path, sizeof(link_path), "%s/dev/block/%u:%u", env->sysfs_root,
			 major(st.st_dev), minor(st.st_dev));
	if (realpath(link_path, path) == NULL)
	{
		int			save_errno = errno;

		BlocksUnknown(report, _("could not resolve \"%s\": %m"), link_path);
		errno = save_errno;
		PCacheMediaDimmsUnknown(report, _("could not resolve \"%s\": %m"), link_path);
		return;
	}
	strlcpy(report->block_device, BaseName(path), PCACHE_MEDIA_NAME_LEN);
	QueryDevices(env, pool_path, fd, &st, path, report);
#else
	BlocksUnknown(report, _("not supported on this platform"));
	PCacheMediaDimmsUnknown(report, _("not supported on this platform"));
#endif
}
