/*-------------------------------------------------------------------------
 *
 * pcache_media.h
 *	  Health of the persistent memory below the persistent cache's pool.
 *
 * Shared by the server and by pg_pcache.  A query never fails: what cannot
 * be found out is answered with PCACHE_MEDIA_UNKNOWN and the reason why.
 *
 * pcache_media.c finds the namespaces below a file, reads their bad blocks
 * from sysfs and maps them to offsets in the file.  What is known of region
 * and DIMMs comes from pcache_media_ndctl.c, through libndctl.
 *
 * A pool in memory has neither.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_media.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_MEDIA_H
#define PCACHE_MEDIA_H

#include "datatype/timestamp.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_range.h"

/* Where power loss finds data safe; a greater value is a larger domain. */
typedef enum PCachePersistenceDomain
{
	PCACHE_DOMAIN_UNKNOWN = 0,
	PCACHE_DOMAIN_NONE,			/* nowhere, without a deep flush */
	PCACHE_DOMAIN_MEMORY_CONTROLLER,	/* once flushed out of CPU caches */
	PCACHE_DOMAIN_CPU_CACHE,	/* once stored */
} PCachePersistenceDomain;

/* Health of a DIMM */
#define PCACHE_DIMM_NOT_ARMED		0x0001	/* won't save at power loss */
#define PCACHE_DIMM_MAP_FAIL		0x0002	/* not mapped into memory */
#define PCACHE_DIMM_FLUSH_FAIL		0x0004	/* last flush at power loss failed */
#define PCACHE_DIMM_SAVE_FAIL		0x0008	/* last save failed */
#define PCACHE_DIMM_RESTORE_FAIL	0x0010	/* last restore failed */
#define PCACHE_DIMM_SMART_EVENT		0x0020	/* SMART alarm or health event */
#define PCACHE_DIMM_SMART_CRITICAL	0x0040	/* SMART: critical or fatal */
#define PCACHE_DIMM_TROUBLE			0x007F	/* any of the above */
#define PCACHE_DIMM_SMART_UNKNOWN	0x0200	/* SMART health can't be read */

#define PCACHE_MEDIA_WHY_LEN		256
#define PCACHE_MEDIA_NAME_LEN		64
#define PCACHE_MEDIA_HEALTH_LEN		128 /* holds any PCacheMediaHealthText */

typedef struct PCacheMediaDimmInfo
{
	char		name[PCACHE_MEDIA_NAME_LEN];	/* nmem0 */
	uint32		health;			/* PCACHE_DIMM_ flags */
} PCacheMediaDimmInfo;

typedef struct PCacheMediaReport
{
	/* BAD: some of the pool's bytes can't be read. */
	PCacheMediaAnswer blocks;
	char		blocks_why[PCACHE_MEDIA_WHY_LEN];	/* "" if there is nothing
													 * to say; translated */
	PCacheRangeList bad;		/* sorted, merged, offsets in the pool file */

	/*
	 * CLEAN: each DIMM's count of unsafe shutdowns was read.  Otherwise
	 * UNKNOWN, never BAD, and what dimms[] has may be incomplete.
	 */
	PCacheMediaAnswer dimms_state;
	char		dimms_why[PCACHE_MEDIA_WHY_LEN];
	uint32		n_dimms;
	PCacheDimm	dimms[PCACHE_MAX_DIMMS];	/* sorted by id */
	PCacheMediaDimmInfo dimm_info[PCACHE_MAX_DIMMS];	/* parallel to dimms */
	uint32		health;			/* all DIMMs' flags together */

	PCachePersistenceDomain domain; /* the weakest, if there are several */

	/* For messages; "" if unknown. */
	char		block_device[PCACHE_MEDIA_NAME_LEN];	/* the file system's */
	char		namespace_name[PCACHE_MEDIA_NAME_LEN];	/* of the first leaf */
	char		region_name[PCACHE_MEDIA_NAME_LEN];
} PCacheMediaReport;

/* What was last heard of the media, without the list of bad ranges. */
typedef struct PCacheMediaSummary
{
	TimestampTz checked_at;		/* 0: never asked */
	PCacheMediaAnswer blocks;
	char		blocks_why[PCACHE_MEDIA_WHY_LEN];
	uint32		bad_ranges;
	uint64		bad_bytes;
	bool		bad_truncated;	/* there are more */
	PCacheMediaAnswer dimms_state;
	char		dimms_why[PCACHE_MEDIA_WHY_LEN];
	uint32		n_dimms;
	uint32		health;			/* PCACHE_DIMM_ flags */
	PCachePersistenceDomain domain;
} PCacheMediaSummary;

typedef enum PCacheDimmComparison
{
	PCACHE_DIMMS_UNKNOWN,
	PCACHE_DIMMS_SAME,
	PCACHE_DIMMS_MOVED,			/* a count of unsafe shutdowns changed */
	PCACHE_DIMMS_REPLACED,		/* not the same set of DIMMs */
} PCacheDimmComparison;

extern void PCacheMediaQuery(const char *pool_path, int fd, PCacheFsKind kind,
							 PCacheMediaReport *report);
extern void PCacheMediaReportFree(PCacheMediaReport *report);
extern bool PCacheMediaIsUsable(const PCacheMediaReport *report, bool always);
extern void PCacheMediaRememberDimms(const PCacheMediaReport *report,
									 PCacheSuperblock *sb);
extern PCacheDimmComparison PCacheMediaCompareDimms(const PCacheSuperblock *sb,
													const PCacheMediaReport *now,
													char *why, size_t why_len);
extern const char *PCacheMediaAnswerName(PCacheMediaAnswer answer);
extern const char *PCachePersistenceDomainName(PCachePersistenceDomain domain);
extern const char *PCacheMediaHealthText(uint32 health, char *buf, size_t len);

/*
 * Is any byte of [offset, offset + length) of the pool file on a bad block?
 * If bad blocks are unknown none is: what that is worth is the caller's
 * policy.
 */
static inline bool
PCacheMediaRangeIsBad(const PCacheMediaReport *report,
					  uint64 offset, uint64 length)
{
	return PCacheRangeOverlaps(&report->bad, offset, length);
}

#endif							/* PCACHE_MEDIA_H */
