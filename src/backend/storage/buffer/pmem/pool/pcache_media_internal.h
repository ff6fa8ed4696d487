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
	char		disk_path[MAXPGPATH];	/* in sysfs */
	char		claim_path[MAXPGPATH];
	char		region_path[MAXPGPATH];
	uint64		start;			/* what lies below the pool's file system: in
								 * bytes, from the disk's start */
	uint64		length;
} PCacheMediaDevice;

/* The namespaces' disks below a file system. */
#define PCACHE_MEDIA_MAX_DEVICES	64

typedef struct PCacheMediaTree
{
	PCacheMediaDevice *devices; /* malloc'd, PCACHE_MEDIA_MAX_DEVICES */
	int			n_devices;
	int			n_foreign;		/* disks that are not persistent memory */
	char		foreign[PCACHE_MEDIA_NAME_LEN]; /* one of them */
	bool		stacked;		/* offsets can't be mapped through */
} PCacheMediaTree;

extern void PCacheMediaQueryEnv(const PCacheMediaEnv *env,
								const char *pool_path, int fd,
								PCacheFsKind kind, PCacheMediaReport *report);
extern bool PCacheMediaReadAttribute(const PCacheMediaEnv *env,
									 const char *directory, const char *name,
									 char *value, size_t len);
extern void PCacheMediaAddDimm(PCacheMediaReport *report, const char *name,
							   const char *id, int64 unsafe_shutdowns,
							   uint32 health);
extern void PCacheMediaDimmsUnknown(PCacheMediaReport *report,
									const char *fmt,...) pg_attribute_printf(2, 3);
extern void PCacheMediaAddMemoryErrors(PCacheMediaReport *report, int fd);
extern void PCacheMediaAddNamespace(PCacheMediaReport *report,
									const char *namespace_name,
									const char *region_name,
									PCachePersistenceDomain domain);

extern void PCacheMediaBlocksUnknown(PCacheMediaReport *report,
									 const char *fmt,...) pg_attribute_printf(2, 3);

/* pcache_media_sysfs.c */
extern const char *PCacheMediaBaseName(const char *path);
extern bool PCacheMediaReadBadBlocks(const PCacheMediaEnv *env,
									 const char *disk_path,
									 PCacheRangeList *bad);
extern bool PCacheMediaCollectDevices(const PCacheMediaEnv *env,
									  const char *path, int depth,
									  PCacheMediaTree *tree,
									  char *why, size_t why_len);

/* pcache_media_extents.c */
extern void PCacheMediaMapToFile(const PCacheMediaEnv *env,
								 const char *pool_path, int fd,
								 uint64 file_size, const PCacheRangeList *bad,
								 uint64 fs_start, PCacheMediaReport *report);
extern int	PCacheMediaGetExtents(int fd, struct fiemap *map);

/*
 * pcache_media_ndctl.c
 *
 * Add to the report all that is known of the region and of the DIMMs below a
 * device, and to bad the bad blocks, in bytes from the start of the disk,
 * that the disk's own list in sysfs may lack.
 */
extern void PCacheMediaQueryNamespace(const PCacheMediaEnv *env,
									  const PCacheMediaDevice *device,
									  PCacheMediaReport *report,
									  PCacheRangeList *bad);

#endif							/* PCACHE_MEDIA_INTERNAL_H */
