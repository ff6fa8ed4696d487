/*-------------------------------------------------------------------------
 *
 * pcache_media_internal.h
 *	  What the pcache_media*.c have in common, and their unit test replaces.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/backend/storage/buffer/pmem/pool/pcache_media_internal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_MEDIA_INTERNAL_H
#define PCACHE_MEDIA_INTERNAL_H

#include <sys/stat.h>

#include "storage/pcache_pool.h"

struct fiemap;

/* The outside world, replaced by the unit test. */
typedef struct PCacheMediaEnv
{
	const char *sysfs_root;		/* "/sys" */
	int			(*stat_file) (int fd, struct stat *st);
	int			(*get_extents) (int fd, struct fiemap *map);
	int			(*open_attribute) (const char *path);
} PCacheMediaEnv;

/* A disk that libnvdimm made of a namespace, or a part of one. */
typedef struct PCacheMediaDevice
{
	char		disk[PCACHE_MEDIA_NAME_LEN];	/* pmem0 */
	char		claim[PCACHE_MEDIA_NAME_LEN];	/* pfn0.1, btt0.0 or
												 * namespace0.0 */
	char		region[PCACHE_MEDIA_NAME_LEN];	/* region0 */
	char		disk_path[MAXPGPATH];	/* in sysfs */
	uint64		start;			/* what lies below the pool's file system: in
								 * bytes, from the disk's start */
	uint64		length;
} PCacheMediaDevice;

/* Which answers of a report are unknown. */
#define PCACHE_MEDIA_OF_BLOCKS	0x01
#define PCACHE_MEDIA_OF_DIMMS	0x02
#define PCACHE_MEDIA_OF_ALL		(PCACHE_MEDIA_OF_BLOCKS | PCACHE_MEDIA_OF_DIMMS)

/* pcache_media_report.c */
extern bool PCacheMediaUnknown(PCacheMediaReport *report, int answers,
							   const char *fmt,...) pg_attribute_printf(3, 4);
extern void PCacheMediaAddDimm(PCacheMediaReport *report, const char *name,
							   const char *id, int64 unsafe_shutdowns,
							   uint32 health);
extern void PCacheMediaAddMemoryErrors(PCacheMediaReport *report, int fd);
extern void PCacheMediaAddUnreadable(PCacheMediaReport *report, int fd, PCacheFsKind kind);
extern void PCacheMediaAddRegion(PCacheMediaReport *report, const char *name,
								 PCachePersistenceDomain domain);

/* pcache_media_ndctl.c */
extern void PCacheMediaQueryNamespace(const PCacheMediaDevice *device,
									  PCacheMediaReport *report);

/* pcache_media.c */
extern void PCacheMediaQueryEnv(const PCacheMediaEnv *env,
								const char *pool_path, int fd,
								PCacheFsKind kind, PCacheMediaReport *report);

#endif							/* PCACHE_MEDIA_INTERNAL_H */
