/*-------------------------------------------------------------------------
 *
 * pcache_media_sysfs.c
 *	  The way down: from a block device to the namespaces below it, in sysfs.
 *
 * A partition adds an offset; a stack of devices (device-mapper, md) is walked
 * down to the disks below it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_sysfs.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#ifdef __linux__

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include "pcache_media_internal.h"

/* The kernel counts bad blocks and device sizes in sectors of this size. */
#define SECTOR_SIZE				512

/* No sum of two numbers of sectors overflows, not even in bytes. */
#define MAX_SECTORS				(PG_UINT64_MAX / SECTOR_SIZE / 2)

/* Guards against loops, which sysfs does not have. */
#define MAX_STACK_DEPTH			8

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
bool
PCacheMediaReadBadBlocks(const PCacheMediaEnv *env, const char *disk_path,
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
			PCacheRangeAdd(bad, sector * SECTOR_SIZE, count * SECTOR_SIZE);
		n_lines++;
	}
	if (n_lines >= page_size / sizeof(uint64))
		bad->truncated = true;
	free(buf);
	if (!ok)
		errno = EINVAL;
	return ok;
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

/* Last component of a path */
const char *
PCacheMediaBaseName(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

/*
 * Collect the disks of a block device.  path is its directory in sysfs.
 * Returns false, with why filled, if that is not possible.
 */
bool
PCacheMediaCollectDevices(const PCacheMediaEnv *env, const char *path, int depth,
						  PCacheMediaTree *tree, char *why, size_t why_len)
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
		if (tree->n_devices == PCACHE_MEDIA_MAX_DEVICES)
		{
			snprintf(why, why_len, _("there are more than %d devices below the file system"),
					 PCACHE_MEDIA_MAX_DEVICES);
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
			ok = PCacheMediaCollectDevices(env, target, depth + 1, tree, why, why_len);
	}
	if (dir != NULL)
		closedir(dir);
	if (n_slaves > 0)
		tree->stacked = true;
	else
	{
		tree->n_foreign++;
		strlcpy(tree->foreign, PCacheMediaBaseName(disk_path), PCACHE_MEDIA_NAME_LEN);
	}
	return ok;
}

#endif							/* __linux__ */
