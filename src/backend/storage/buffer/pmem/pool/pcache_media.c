/*-------------------------------------------------------------------------
 *
 * pcache_media.c
 *	  Which blocks of the pool are bad, and what lies below it?
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
 *	  src/backend/storage/buffer/pmem/pool/pcache_media.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "pcache_media_internal.h"
#include "storage/pcache_pool.h"

/* The kernel counts bad blocks and device sizes in sectors of this size. */
#define SECTOR_SIZE				512

/* No sum of two numbers of sectors overflows, not even in bytes. */
#define MAX_SECTORS				(PG_UINT64_MAX / SECTOR_SIZE / 2)

/* The kernel's largest page on any platform. */
#define MAX_PAGE_SIZE			(64 * 1024)

/* Guards against loops, which sysfs does not have. */
#define MAX_STACK_DEPTH			8

#define EXTENTS_PER_CALL		128

/*
 * Extents whose bytes are not (yet) at fe_physical, or not only this file's:
 * nothing can be said of bad blocks there.
 */
#define EXTENT_NOT_MAPPED \
	(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | \
	 FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_ENCRYPTED | \
	 FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL)

/* The question, while the devices below the pool are walked. */
typedef struct MediaQuery
{
	const PCacheMediaEnv *env;
	const char *pool_path;		/* only used in messages */
	int			fd;
	uint64		file_size;
	PCacheMediaReport *report;
	int			n_devices;		/* namespaces' disks that were found */
	char		foreign[PCACHE_MEDIA_NAME_LEN]; /* a disk that is not
												 * persistent memory, or "" */
} MediaQuery;

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
static bool
ReadAttribute(const PCacheMediaEnv *env, const char *directory,
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

	if (!ReadAttribute(env, directory, name, value, sizeof(value)))
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
ReadBadBlocks(const PCacheMediaEnv *env, const char *disk_path, PCacheRangeList *bad)
{
	char		path[MAXPGPATH];
	char		buf[MAX_PAGE_SIZE + 1];
	const size_t page_size = Min(sysconf(_SC_PAGESIZE), MAX_PAGE_SIZE);
	const char *next = buf;
	ssize_t		n;
	uint32		n_lines = 0;
	bool		ok = true;

	snprintf(path, sizeof(path), "%s/badblocks", disk_path);
	n = ReadFile(env, path, buf, page_size + 1);
	if (n < 0)
		return false;
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
			PCacheRangeAdd(bad, sector * SECTOR_SIZE, count * SECTOR_SIZE);
		n_lines++;
	}
	if (n_lines >= page_size / sizeof(uint64))
		bad->truncated = true;
	if (!ok)
		errno = EINVAL;
	return ok;
}

/*
 * Add to the report which bytes of the file are on bad blocks.
 *
 * bad is merged, in bytes from the start of the disk; the file system begins
 * fs_start bytes behind that.  What the file has preallocated behind its end
 * is nothing to the pool.
 */
static void
MapToFile(const MediaQuery *query, const PCacheRangeList *bad, uint64 fs_start)
{
	PCacheMediaReport *report = query->report;
	uint64		file_size = query->file_size;
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
		if (query->env->get_extents(query->fd, map) < 0)
		{
			PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("could not get extents of file \"%s\": %m"),
							   query->pool_path);
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
				PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("extent at offset %llu of file \"%s\" has no fixed place on the device"),
								   (unsigned long long) extent->fe_logical, query->pool_path);
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
				PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("extents of file \"%s\" make no sense"),
								   query->pool_path);
				return;
			}
			next = extent->fe_logical + length;
			length = Min(length, file_size - extent->fe_logical);

			for (uint32 j = PCacheRangeFirstBehind(bad, physical);
				 j < bad->n_ranges && bad->ranges[j].offset < physical + length;
				 j++)
			{
				uint64		start = Max(bad->ranges[j].offset, physical);
				uint64		end = Min(bad->ranges[j].offset + bad->ranges[j].length,
									  physical + length);

				PCacheRangeAdd(&report->bad,
							   extent->fe_logical + (start - physical),
							   end - start);
			}
			if (extent->fe_flags & FIEMAP_EXTENT_LAST)
				last = true;
		}
	}
	PCacheRangeMerge(&report->bad);
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
	}
	if (strcmp(names[1], "block") != 0 ||
		strncmp(names[3], "region", strlen("region")) != 0 ||
		strncmp(names[4], "ndbus", strlen("ndbus")) != 0)
		return false;
	strlcpy(device->disk_path, disk_path, MAXPGPATH);
	strlcpy(device->disk, names[0], PCACHE_MEDIA_NAME_LEN);
	strlcpy(device->claim, names[2], PCACHE_MEDIA_NAME_LEN);
	strlcpy(device->region, names[3], PCACHE_MEDIA_NAME_LEN);
	return true;
}

/* Last component of a path */
static const char *
BaseName(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

/*
 * Find the bad blocks and the DIMMs of one disk, on which the pool lies alone unless it is
 * one of a stack.  Once something is not known of the blocks, they are not mapped to the
 * file any more.
 */
static void
QueryDevice(MediaQuery *query, const PCacheMediaDevice *device, bool is_stacked)
{
	PCacheMediaReport *report = query->report;
	PCacheRangeList bad = {0};

	query->n_devices++;
	PCacheMediaQueryNamespace(device, report);
	if (!ReadBadBlocks(query->env, device->disk_path, &bad))
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("could not read \"%s/%s\": %m"),
						   device->disk_path, "badblocks");
	if (strncmp(device->claim, "btt", strlen("btt")) == 0)
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("device %s is in sector mode, where blocks have no fixed place"),
						   device->disk);
	PCacheRangeMerge(&bad);
	PCacheRangeClip(&bad, device->start, device->length);
	if (is_stacked && (bad.n_ranges > 0 || bad.truncated))
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_BLOCKS, _("device %s has bad blocks, whose place in %s is not known"),
						   device->disk, report->block_device);
	else if (report->blocks_why[0] == '\0' && bad.truncated)
		report->bad.truncated = true;
	else if (report->blocks_why[0] == '\0' && bad.n_ranges > 0)
		MapToFile(query, &bad, device->start);
	free(bad.ranges);
}

/*
 * Query the disks of a block device, whose directory in sysfs is path.  depth says how many
 * devices are stacked above it.  Returns false if that is not possible, as the report says.
 */
static bool
QueryBelow(MediaQuery *query, const char *path, int depth)
{
	PCacheMediaDevice device = {0};
	char		disk_path[MAXPGPATH];
	char		slaves_path[MAXPGPATH];
	char		value[64];
	const char *unread = NULL;
	DIR		   *dir;
	struct dirent *entry;
	int			n_slaves = 0;
	bool		ok = true;

	strlcpy(disk_path, path, sizeof(disk_path));
	if (ReadAttribute(query->env, path, "partition", value, sizeof(value)))
	{
		if (!ReadSectors(query->env, path, "start", &device.start))
			unread = "start";
		*strrchr(disk_path, '/') = '\0';
	}
	else if (errno != ENOENT)
		unread = "partition";
	if (unread == NULL && ParseNvdimmPath(disk_path, &device))
	{
		if (ReadSectors(query->env, path, "size", &device.length))
		{
			QueryDevice(query, &device, depth > 0);
			return true;
		}
		unread = "size";
	}
	if (unread != NULL)
		return PCacheMediaUnknown(query->report, PCACHE_MEDIA_OF_ALL,
								  _("could not read \"%s/%s\": %m"), path, unread);

	/* A disk without slaves is what it seems to be. */
	snprintf(slaves_path, sizeof(slaves_path), "%s/slaves", disk_path);
	dir = opendir(slaves_path);
	if (dir == NULL && errno != ENOENT)
		return PCacheMediaUnknown(query->report, PCACHE_MEDIA_OF_ALL,
								  _("could not open directory \"%s\": %m"), slaves_path);
	while (ok && dir != NULL && (entry = readdir(dir)) != NULL)
	{
		char		slave_path[MAXPGPATH];
		char		target[PATH_MAX];

		if (entry->d_name[0] == '.')
			continue;
		n_slaves++;
		snprintf(slave_path, sizeof(slave_path), "%s/%s", slaves_path, entry->d_name);
		if (depth == MAX_STACK_DEPTH)
			ok = PCacheMediaUnknown(query->report, PCACHE_MEDIA_OF_ALL,
									_("devices are stacked too deep below the file system"));
		else if (realpath(slave_path, target) == NULL)
			ok = PCacheMediaUnknown(query->report, PCACHE_MEDIA_OF_ALL,
									_("could not resolve \"%s\": %m"), slave_path);
		else
			ok = QueryBelow(query, target, depth + 1);
	}
	if (dir != NULL)
		closedir(dir);
	if (n_slaves == 0)
		strlcpy(query->foreign, BaseName(disk_path), PCACHE_MEDIA_NAME_LEN);
	return ok;
}

/* Find out all about the devices below a file system. */
static void
QueryDevices(MediaQuery *query, const char *path)
{
	PCacheMediaReport *report = query->report;

	if (QueryBelow(query, path, 0) && query->n_devices == 0)
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_ALL, _("not on persistent memory"));
	else if (query->foreign[0] != '\0')
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_ALL, _("device %s is partly on %s, which is not persistent memory"),
						   report->block_device, query->foreign);

	if (report->bad.truncated)
	{
		report->blocks = PCACHE_MEDIA_BAD;
		snprintf(report->blocks_why, sizeof(report->blocks_why),
				 _("there are too many bad blocks on device %s"),
				 report->block_device);
	}
	else if (report->blocks_why[0] == '\0')
		report->blocks = report->bad.n_ranges > 0 ? PCACHE_MEDIA_BAD :
			PCACHE_MEDIA_CLEAN;
	else
	{
		/* Half an answer would look like a whole one. */
		report->bad.n_ranges = 0;
	}

	if (report->dimms_why[0] != '\0')
		return;
	if (report->n_dimms > 0)
		report->dimms_state = PCACHE_MEDIA_CLEAN;
	else
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("%s has no DIMMs"),
						   report->region_name[0] != '\0' ?
						   report->region_name : report->block_device);
}

/*
 * Find out about the media below a pool, in a given environment.
 */
void
PCacheMediaQueryEnv(const PCacheMediaEnv *env, const char *pool_path, int fd,
					PCacheFsKind kind, PCacheMediaReport *report)
{
	MediaQuery	query = {env, pool_path, fd, 0, report};
	struct stat st;
	char		link_path[MAXPGPATH];
	char		path[PATH_MAX];

	memset(report, 0, sizeof(*report));
	if (PCacheFsIsMemory(kind))
	{
		report->blocks = PCACHE_MEDIA_CLEAN;
		report->dimms_state = PCACHE_MEDIA_CLEAN;
		strlcpy(report->blocks_why, _("memory-backed"), PCACHE_MEDIA_WHY_LEN);
		strlcpy(report->dimms_why, _("memory-backed"), PCACHE_MEDIA_WHY_LEN);
		return;
	}
	if (env->stat_file(fd, &st) < 0)
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_ALL, _("could not stat file \"%s\": %m"), pool_path);
		return;
	}
	if (S_ISCHR(st.st_mode))
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_ALL, _("device-dax is not supported"));
		return;
	}
	query.file_size = st.st_size;

	/*
	 * Btrfs, overlayfs and the like are on no block device in particular, and
	 * have a number of their own that sysfs does not know.
	 */
	snprintf(link_path, sizeof(link_path), "%s/dev/block/%u:%u", env->sysfs_root,
			 major(st.st_dev), minor(st.st_dev));
	if (realpath(link_path, path) == NULL)
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_ALL, _("could not resolve \"%s\": %m"), link_path);
		return;
	}
	strlcpy(report->block_device, BaseName(path), PCACHE_MEDIA_NAME_LEN);
	QueryDevices(&query, path);
}

/* The real world */

static int
StatFile(int fd, struct stat *st)
{
	return fstat(fd, st);
}

static int
OpenAttribute(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int
GetExtents(int fd, struct fiemap *map)
{
	struct fsxattr attr;

	/* Extents on XFS's realtime device are not on the one in st_dev. */
	if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) == 0 &&
		(attr.fsx_xflags & FS_XFLAG_REALTIME) != 0)
	{
		errno = EXDEV;
		return -1;
	}
	return ioctl(fd, FS_IOC_FIEMAP, map);
}

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
	static const PCacheMediaEnv real_env = {"/sys", StatFile, GetExtents, OpenAttribute};

	PCacheMediaQueryEnv(&real_env, pool_path, fd, kind, report);
	PCacheMediaAddUnreadable(report, fd, kind);
	PCacheMediaAddMemoryErrors(report, fd);
}
