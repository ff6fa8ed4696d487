/*-------------------------------------------------------------------------
 *
 * pcache_media_extents.c
 *	  The way up: from bad blocks of a disk to offsets in the pool file.
 *
 * The file system tells which extents it gave to the file.  Nobody but the
 * device-mapper knows how a stack of devices lays out its blocks, so there is
 * no way up from below one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_extents.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#ifdef __linux__

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "pcache_media_internal.h"

#define EXTENTS_PER_CALL		128

/*
 * Extents whose bytes are not (yet) at fe_physical, or not only this file's:
 * nothing can be said of bad blocks there.
 */
#define EXTENT_NOT_MAPPED \
	(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | \
	 FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_ENCRYPTED | \
	 FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL)

/*
 * Add to the report which bytes of the file are on bad blocks.
 *
 * bad is merged, in bytes from the start of the disk; the file system begins
 * fs_start bytes behind that.  What the file has preallocated behind its end
 * is nothing to the pool.
 */
void
PCacheMediaMapToFile(const PCacheMediaEnv *env, const char *pool_path, int fd,
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
			PCacheMediaBlocksUnknown(report, _("could not get extents of file \"%s\": %m"),
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
				PCacheMediaBlocksUnknown(report, _("extent at offset %llu of file \"%s\" has no fixed place on the device"),
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
				PCacheMediaBlocksUnknown(report, _("extents of file \"%s\" make no sense"),
										 pool_path);
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
 * Get extents from the kernel.  Returns -1 with errno set.
 */
int
PCacheMediaGetExtents(int fd, struct fiemap *map)
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

#endif							/* __linux__ */
