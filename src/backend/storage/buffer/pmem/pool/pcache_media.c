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
 *	  src/backend/storage/buffer/pmem/pool/pcache_media.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/sysmacros.h>
#endif

#include "pcache_media_internal.h"
#include "storage/pcache_pool.h"

#ifdef __linux__

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
	if (!PCacheMediaReadBadBlocks(env, device->disk_path, bad))
	{
		PCacheMediaBlocksUnknown(report, _("could not read \"%s/%s\": %m"),
								 device->disk_path, "badblocks");
		ok = false;
	}
	if (strncmp(device->claim, "btt", strlen("btt")) == 0)
	{
		PCacheMediaBlocksUnknown(report, _("device %s is in sector mode, where blocks have no fixed place"),
								 device->disk);
		ok = false;
	}
	PCacheRangeMerge(bad);
	PCacheRangeClip(bad, device->start, device->length);
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
	PCacheMediaTree tree;
	char		why[PCACHE_MEDIA_WHY_LEN];
	bool		known = true;

	memset(&tree, 0, sizeof(tree));
	tree.devices = malloc(PCACHE_MEDIA_MAX_DEVICES * sizeof(PCacheMediaDevice));
	if (tree.devices == NULL)
	{
		PCacheMediaBlocksUnknown(report, _("out of memory"));
		PCacheMediaDimmsUnknown(report, _("out of memory"));
		return;
	}
	if (!PCacheMediaCollectDevices(env, path, 0, &tree, why, sizeof(why)))
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
		PCacheMediaBlocksUnknown(report, "%s", why);
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
			PCacheMediaBlocksUnknown(report, _("device %s has bad blocks, whose place in %s is not known"),
									 device->disk, report->block_device);
			known = false;
		}
		else if (bad.truncated)
			report->bad.truncated = true;
		else if (known && bad.n_ranges > 0)
		{
			PCacheMediaMapToFile(env, pool_path, fd, (uint64) st->st_size,
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
		.get_extents = PCacheMediaGetExtents,
		.open_attribute = OpenAttribute,
	};

	PCacheMediaQueryEnv(&real_env, pool_path, fd, kind, report);
#else
	PCacheMediaQueryEnv(NULL, pool_path, fd, kind, report);
#endif
	PCacheMediaAddMemoryErrors(report, fd);
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

	if (PCacheFsIsMemory(kind))
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
		PCacheMediaBlocksUnknown(report, _("could not stat file \"%s\": %m"), pool_path);
		PCacheMediaDimmsUnknown(report, _("could not stat file \"%s\": %m"), pool_path);
		return;
	}
	if (S_ISCHR(st.st_mode))
	{
		PCacheMediaBlocksUnknown(report, _("device-dax is not supported"));
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

		PCacheMediaBlocksUnknown(report, _("could not resolve \"%s\": %m"), link_path);
		errno = save_errno;
		PCacheMediaDimmsUnknown(report, _("could not resolve \"%s\": %m"), link_path);
		return;
	}
	strlcpy(report->block_device, PCacheMediaBaseName(path), PCACHE_MEDIA_NAME_LEN);
	QueryDevices(env, pool_path, fd, &st, path, report);
#else
	PCacheMediaBlocksUnknown(report, _("not supported on this platform"));
	PCacheMediaDimmsUnknown(report, _("not supported on this platform"));
#endif
}
