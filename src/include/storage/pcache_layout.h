/*-------------------------------------------------------------------------
 *
 * pcache_layout.h
 *	  On-media format of the persistent cache's pool file.
 *
 * Shared by the server and by pg_pcache.  Everything that is ever stored in
 * a pool file is declared here, with fixed-width types in native byte order.
 * tests/unit/test_layout.c has each field's size and offset: who changes one
 * has changed the format, and raises PCACHE_FORMAT_VERSION.  A new field may
 * take reserved bytes if 0, which older pools have there, says nothing.
 *
 *		offset			contents
 *		0				superblock
 *		4 KiB			copy of the superblock
 *		8 KiB			notes, of which the first three cache lines are not used:
 *		8 KiB + 192		how a process died that may have overwritten pages
 *		8 KiB + 256		what was last seen of the cluster (two slots)
 *		8 KiB + 512		whether read errors were ignored
 *		8 KiB + 520		where transactions were aborted on one timeline only
 *		8 KiB + 528		whether files were not synced
 *		12 KiB			memory errors that processes died of
 *		2 MiB			descriptor array, one cache line per slot: the ledger
 *		(2 MiB bound)	the server's buffer headers
 *		(2 MiB bound)	blocks, BLCKSZ per slot
 *
 * See src/backend/storage/buffer/pmem/README for who may write which field,
 * and in which order the pieces reach the media.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_layout.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_LAYOUT_H
#define PCACHE_LAYOUT_H

#include "port/pg_crc32c.h"
#include "storage/pcache_persist.h"

static inline uint32
PCacheCrc(const void *bytes, size_t len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, len);
	FIN_CRC32C(crc);
	return crc;
}

/* CRC-32C over all that precedes the member crc of a struct that p points to. */
#define PCacheCrcOf(p)			PCacheCrc((p), (const char *) &(p)->crc - (const char *) (p))

/* Times in the pool that are not in seconds are in nanoseconds. */
#define PCACHE_NSEC				INT64CONST(1000000000)

#define PCACHE_POOL_FILE		"pool"
#define PCACHE_POOL_FILE_TMP	"pool.tmp"	/* one that is being created */

/* Up to 2, which 1.0.0 had, there were no buffer headers in a pool. */
#define PCACHE_FORMAT_VERSION	3
#define PCACHE_HEADER_SIZE		64	/* in all majors */

#define PCACHE_MAGIC_HEAD		"PGPCACHE"
#define PCACHE_MAGIC_TAIL		"EHCACPGP"
#define PCACHE_MAGIC_LEN		8
#define PCACHE_BYTE_ORDER		0x01020304

#define PCACHE_ALIGNMENT		((uint64) 2 * 1024 * 1024)

#define PCACHE_SUPERBLOCK_SIZE	4096
#define PCACHE_SUPERBLOCK_OFFSET	0
#define PCACHE_COPY_OFFSET		4096
#define PCACHE_NOTES_OFFSET		8192
#define PCACHE_SUSPECT_OFFSET	(PCACHE_NOTES_OFFSET + 3 * PCACHE_CACHE_LINE)
#define PCACHE_SIGHTING_OFFSET	(PCACHE_NOTES_OFFSET + 4 * PCACHE_CACHE_LINE)
#define PCACHE_READ_ERRORS_OFFSET	(PCACHE_NOTES_OFFSET + 8 * PCACHE_CACHE_LINE)
#define PCACHE_ROLLED_BACK_OFFSET	(PCACHE_READ_ERRORS_OFFSET + 8)
#define PCACHE_NOT_SYNCED_OFFSET	(PCACHE_ROLLED_BACK_OFFSET + 8)
#define PCACHE_NOTES_END	(PCACHE_NOT_SYNCED_OFFSET + 8)
#define PCACHE_MEMORY_ERRORS_OFFSET 12288
#define PCACHE_DESCRIPTORS_OFFSET	PCACHE_ALIGNMENT

#define PCACHE_UUID_LEN			16
#define PCACHE_DIGEST_LEN	32	/* of a SHA-256, in bytes */
#define PCACHE_MAX_CAPACITY		PG_INT32_MAX	/* blocks, as NBuffers */
/* The largest huge page of any platform; the file's size is a multiple of one. */
#define PCACHE_MAX_PAGE_SIZE	((uint64) 16 * 1024 * 1024 * 1024)
#define PCACHE_MAX_DIMMS		32
#define PCACHE_DIMM_ID_LEN		40

/* What the pool as a whole is good for; stored in PCacheSuperblock.state. */
typedef enum PCacheState
{
	PCACHE_STATE_EMPTY = 1,		/* nothing in it is kept */
	PCACHE_STATE_DIRTY = 3,		/* in use */
	PCACHE_STATE_CLEAN,			/* saved by a clean shutdown */
} PCacheState;

/* What the pool survives; stored in PCacheSuperblock.fs_kind. */
typedef enum PCacheFsKind
{
	PCACHE_FS_FILE = 1,			/* page cache of a file system on disk */
	PCACHE_FS_TMPFS,			/* DRAM: survives the process, not the host */
	PCACHE_FS_HUGETLBFS,		/* likewise, in huge pages */
	PCACHE_FS_FSDAX,			/* persistent memory with MAP_SYNC */
} PCacheFsKind;

/* The setting under which the pool was used; PCacheSuperblock.mode. */
typedef enum PersistentCacheMode
{
	PERSISTENT_CACHE_OFF = 0,
	PERSISTENT_CACHE_PLANNED_RESTART = 1,
	PERSISTENT_CACHE_ALWAYS = 2,
} PersistentCacheMode;

/*
 * Where a checkpoint was.  control_crc is the CRC that pg_control carried
 * once this shutdown was recorded in it.
 */
typedef struct PCacheCheckpoint
{
	uint64		location;		/* of the checkpoint record */
	uint64		redo;			/* its redo point */
	uint32		timeline;
	uint32		control_crc;
} PCacheCheckpoint;

/*
 * What a start goes by if power was lost while the server ran in mode always;
 * PCacheSuperblock.power_rule.
 */
typedef enum PCachePowerRule
{
	PCACHE_POWER_COLD = 0,		/* nothing: it is cold */
	PCACHE_POWER_LEDGER,		/* entries with sums, which were made durable */
	PCACHE_POWER_HEADERS,		/* all that was stored is durable */
} PCachePowerRule;

/* What is known of media; stored in PCacheSuperblock.dimms_state. */
typedef enum PCacheMediaAnswer
{
	PCACHE_MEDIA_UNKNOWN = 0,
	PCACHE_MEDIA_CLEAN = 1,
	PCACHE_MEDIA_BAD = 2,
} PCacheMediaAnswer;

/* A DIMM below the pool, and how often it lost power before it was flushed. */
typedef struct PCacheDimm
{
	char		id[PCACHE_DIMM_ID_LEN]; /* unique id, zero-padded */
	uint64		unsafe_shutdowns;
} PCacheDimm;

/*
 * Where a server has in a buffer header what we need, and what the bits mean
 * there.  It differs between major versions, and so the pool tells.
 */
typedef struct PCacheHeaderLayout
{
	uint16		tag;			/* offsets in the header, in bytes */
	uint16		state;
	uint16		content_lock;	/* of the lock's state */
	uint16		reserved;
	uint32		present;		/* bits of state: all are set if there is a
								 * page */
	uint32		dirty;			/* set if the page has to be written */
	uint32		in_change;		/* any set: an I/O, or the header is locked */
	uint32		permanent;
	uint32		usage_count_mask;
	uint32		usage_count_one;
	uint32		lock_held;		/* bits of content_lock: any set if it is held */
} PCacheHeaderLayout;

StaticAssertDecl(sizeof(PCacheHeaderLayout) == 36, "PCacheHeaderLayout");

typedef struct PCacheSuperblock
{
	/* The first 64 bytes are frozen: every format version has them so. */
	char		magic[PCACHE_MAGIC_LEN];
	uint32		format_version;
	uint32		superblock_size;
	uint8		pool_uuid[PCACHE_UUID_LEN];
	uint64		system_identifier;
	uint64		pool_size;		/* of the file, in bytes */
	uint64		created_at;		/* seconds since 1970 */
	uint32		pg_major;
	uint32		byte_order;

	/* Geometry; fixed when the pool is formatted. */
	uint32		block_size;
	uint32		descriptor_size;
	uint32		blocks_per_segment; /* RELSEG_SIZE */
	uint32		pg_control_version;
	uint32		catalog_version;
	uint32		fs_kind;		/* PCacheFsKind */
	uint64		capacity;		/* in blocks */
	uint64		descriptors_offset;
	uint64		blocks_offset;

	/* State; rewritten as a whole, copy last, at each transition. */
	uint64		slots_used;		/* only of slots below this one do ledger and
								 * headers tell anything */
	uint32		state;			/* PCacheState */
	uint32		mode;			/* PersistentCacheMode of the last user */
	uint64		incarnation;	/* random, new at each server start */
	uint64		generation;		/* number of superblock writes */
	uint64		reserved1;

	/* By the last clean shutdown, or the start after a kill. */
	PCacheCheckpoint saved;		/* what pg_control had then */
	uint64		min_recovery_point; /* 0 on a primary */
	uint32		min_recovery_point_timeline;
	uint32		control_state;	/* DBState */
	uint64		saved_pages;
	int64		saved_at;		/* seconds since 1970; of the last sighting
								 * after a kill */

	uint64		reserved2;
	uint32		starts_from;	/* how many starts in a row have kept pages
								 * and did not become ready */
	uint32		data_checksum_version;
	uint8		boot_id[PCACHE_UUID_LEN];
	uint32		n_dimms;		/* valid entries in dimms[] */
	uint32		dimms_state;	/* PCacheMediaAnswer of the DIMM query */
	PCacheDimm	dimms[PCACHE_MAX_DIMMS];

	PCacheHeaderLayout headers; /* of the last server */
	uint32		power_rule;		/* PCachePowerRule */
	uint64		ledger_id;		/* entries with a sum and another one are not
								 * believed */

	int64		clock_offset;	/* the least since saved_at, see
								 * PCacheLeastClockOffset() */

	char		reserved[2244];
	uint32		crc;			/* CRC-32C over all that precedes it */
	char		tail[PCACHE_MAGIC_LEN];
} PCacheSuperblock;

StaticAssertDecl(sizeof(PCacheCheckpoint) == 24, "PCacheCheckpoint");
StaticAssertDecl(sizeof(PCacheDimm) == 48, "PCacheDimm");
StaticAssertDecl(sizeof(PCacheSuperblock) == PCACHE_SUPERBLOCK_SIZE,
				 "PCacheSuperblock");

/* How far the WAL was written, and a witness of its history. */
typedef struct PCacheWatermark
{
	uint64		written;		/* up to here */
	uint64		witness;		/* end of the bytes that were hashed */
	uint64		witness_hash;
	uint32		timeline;
	uint32		reserved;
} PCacheWatermark;

StaticAssertDecl(sizeof(PCacheWatermark) == 32, "PCacheWatermark");

/* What the server last saw of its cluster.  Two slots, written alternately. */
typedef struct PCacheSighting
{
	uint64		number;			/* of the sighting; 0 if there was none */
	uint64		generation;		/* what pg_control said, see
								 * PCacheGenerationOf() */
	uint64		checkpoint;		/* location of the one in pg_control */
	int64		seen_at;		/* nanoseconds since 1970 */
	PCacheWatermark wal;		/* be it durable or not */
	uint64		min_recovery_point; /* in pg_control; 0 on a primary */
	int64		clock_offset;	/* see PCacheClockOffset() */
	uint64		pool_device;	/* of the pool's own file */
	uint64		pool_inode;

	/*
	 * What is known to be on disk, because pg_control was written again since
	 */
	uint64		synced_generation;
	uint64		synced_recovery_point;
	char		reserved[12];
	uint32		crc;			/* CRC-32C over all that precedes it */
} PCacheSighting;

StaticAssertDecl(sizeof(PCacheSighting) == 2 * PCACHE_CACHE_LINE, "PCacheSighting");
StaticAssertDecl(PCACHE_SIGHTING_OFFSET + 2 * sizeof(PCacheSighting) <=
				 PCACHE_READ_ERRORS_OFFSET, "PCacheSighting");

/*
 * A note that a process died of a fault: before, it may have overwritten what
 * it could reach, shared buffers included.  died is 0 if there is no such
 * note.  Whoever changes died does so with one store or compare-and-swap, so
 * that it tells by itself; the CRC only tells whether the rest can be shown.
 */
typedef struct PCacheSuspect
{
	uint64		died;			/* signal << 32 | PID */
	int64		died_at;		/* seconds since 1970 */
	char		reserved[44];
	uint32		crc;			/* CRC-32C over all that precedes it */
} PCacheSuspect;

#define PCacheSuspectDeath(signal, pid) \
	((uint64) (uint32) (signal) << 32 | (uint32) (pid))
#define PCacheSuspectSignal(suspect)	((int) ((suspect)->died >> 32))
#define PCacheSuspectPid(suspect)	((int) ((suspect)->died & 0xFFFFFFFF))

StaticAssertDecl(sizeof(PCacheSuspect) == PCACHE_CACHE_LINE, "PCacheSuspect");
StaticAssertDecl(PCACHE_SUSPECT_OFFSET % PCACHE_CACHE_LINE == 0, "PCacheSuspect");

/*
 * A range of the pool file that could not be read.  An array of them fills a
 * page; an entry that is not used has offset 0.
 */
typedef struct PCacheMemoryError
{
	uint64		offset;			/* in the pool file, in bytes */
	uint32		length;			/* in bytes */
	uint32		crc;			/* CRC-32C over all that precedes it */
} PCacheMemoryError;

#define PCACHE_MAX_MEMORY_ERRORS	256

StaticAssertDecl(sizeof(PCacheMemoryError) == 16, "PCacheMemoryError");

/* PCacheDescriptor.flags */
#define PCACHE_DESC_PERMANENT	0x0001	/* BM_PERMANENT */
#define PCACHE_DESC_LSN_BOUND	0x0004	/* page_lsn is not the page's LSN, but
										 * no page of the server had a later
										 * one */
#define PCACHE_DESC_DIRTY		0x0008	/* BM_DIRTY; never of an entry that is
										 * trusted */

#define PCACHE_DESC_VERSION		1

/*
 * One slot's descriptor, which is its entry in the ledger.  It is trusted only if seq is
 * even; odd means in change, or free.  All of it lies in one cache line, so stores to it
 * reach the media in program order.
 *
 * seq is a number that PCacheLedgerGeneration() makes of the pg_control that the entry is
 * about, or PCACHE_DESC_SAVED_SEQ.  Only entries of the former kind have a sum.
 */
typedef struct PCacheDescriptor
{
	uint64		seq;
	uint64		page_lsn;
	uint64		sum;			/* PCacheSumOf() the page */
	uint32		spc_oid;
	uint32		db_oid;
	uint32		rel_number;
	int32		fork_number;
	uint32		block_number;
	uint32		slot;			/* our own place in the array */
	uint16		version;		/* PCACHE_DESC_VERSION */
	uint16		flags;
	uint8		usage_count;
	uint8		why_free;		/* one of the following */
	uint8		reserved[2];
	uint32		reserved2;
	uint32		crc;			/* CRC-32C over all but seq */
} PCacheDescriptor;

/* Why has a page no entry?  0 if there was no page. */
#define PCACHE_DESC_WAS_DIRTY		1
#define PCACHE_DESC_WAS_IN_CHANGE	2
#define PCACHE_DESC_WAS_LOST		3	/* its sum does not fit */
#define PCACHE_DESC_WAS_FIRST		4	/* see PCacheIsFirstOfIndex() */
#define PCACHE_DESC_IS_YOUNG		5	/* of a page that this start has kept,
										 * see PCacheYoungGate(); the tag says
										 * which one */

#define PCACHE_DESC_FREE_SEQ	UINT64CONST(1)
/* It goes with the pool's state, and with no other one. */
#define PCACHE_DESC_SAVED_SEQ	(PCACHE_DESC_FREE_SEQ + 1)
#define PCacheSeqIsSealed(seq)	(((seq) & 1) == 0)

StaticAssertDecl(sizeof(PCacheDescriptor) == PCACHE_CACHE_LINE,
				 "PCacheDescriptor");

#endif							/* PCACHE_LAYOUT_H */
