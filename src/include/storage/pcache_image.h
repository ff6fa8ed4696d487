/*-------------------------------------------------------------------------
 *
 * pcache_image.h
 *	  On-disk format of an image of the pool.
 *
 * "pg_pcache save" writes one of a cleanly stopped pool, and "pg_pcache load"
 * makes a pool of it again, when the memory below the pool has not survived
 * what came in between.  All types have a fixed width, in native byte order.
 *
 *		offset			contents
 *		0				header
 *		4 KiB			the pool's superblock, as it was
 *		8 KiB			chunks, each at a multiple of 4 KiB, in any order
 *		index_offset	index: an entry for each chunk, by first slot
 *
 * A chunk is about one range of slots.  It has the descriptors of all pages in
 * that range, and from the next multiple of 4 KiB on the pages in the same order;
 * if the image is compressed, all of that as one block.  Slots without a page are
 * not stored.
 *
 * The index tells the SHA-256 of each chunk as it is stored, and the header ends
 * with that of itself, of the superblock and of the index.  So this digest stands
 * for all of the image.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_image.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_IMAGE_H
#define PCACHE_IMAGE_H

#include "storage/pcache_layout.h"

#define PCACHE_IMAGE_SUFFIX		".pcache-image" /* appended to PGDATA's name */
#define PCACHE_IMAGE_TMP_SUFFIX ".tmp"	/* while it is written */
#define PCACHE_IMAGE_VERSION	2

#define PCACHE_IMAGE_MAGIC_HEAD "PGPCIMAG"
#define PCACHE_IMAGE_MAGIC_TAIL "GAMICPGP"

/* All pieces begin, and the file ends, at a multiple of that. */
#define PCACHE_IMAGE_ALIGNMENT	4096
#define PCACHE_IMAGE_HEADER_SIZE	4096
#define PCACHE_IMAGE_SUPERBLOCK_OFFSET	4096
#define PCACHE_IMAGE_CHUNKS_OFFSET	8192

/* How many slots a chunk is about: 4 MiB of pages. */
#define PCACHE_IMAGE_SLOTS_PER_CHUNK	512

typedef enum PCacheImageCompression
{
	PCACHE_IMAGE_PLAIN = 1,
	PCACHE_IMAGE_LZ4,
	PCACHE_IMAGE_ZSTD,
} PCacheImageCompression;

typedef struct PCacheImageHeader
{
	/* The first 64 bytes are frozen: every format version has them so. */
	char		magic[PCACHE_MAGIC_LEN];
	uint32		format_version;
	uint32		header_size;
	uint8		image_uuid[PCACHE_UUID_LEN];
	uint64		system_identifier;
	uint64		image_size;		/* of the file, in bytes */
	uint64		created_at;		/* seconds since 1970 */
	uint32		pg_major;
	uint32		byte_order;

	uint32		compression;	/* PCacheImageCompression */
	uint32		block_size;
	uint32		descriptor_size;
	uint32		slots_per_chunk;
	uint32		n_chunks;		/* entries in the index */
	uint32		unused;
	uint64		n_pages;		/* in all chunks */
	uint64		raw_size;		/* of all chunks, uncompressed */
	uint64		index_offset;

	char		reserved[3944];
	uint8		digest[PCACHE_DIGEST_LEN];	/* of all that precedes it, the
											 * superblock and the index */
	char		tail[PCACHE_MAGIC_LEN];
} PCacheImageHeader;

StaticAssertDecl(sizeof(PCacheImageHeader) == PCACHE_IMAGE_HEADER_SIZE,
				 "PCacheImageHeader");
StaticAssertDecl(offsetof(PCacheImageHeader, format_version) == 8, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, header_size) == 12, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, image_uuid) == 16, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, system_identifier) == 32, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, image_size) == 40, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, created_at) == 48, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, pg_major) == 56, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, byte_order) == 60, "frozen");
StaticAssertDecl(offsetof(PCacheImageHeader, compression) == 64, "PCacheImageHeader");
StaticAssertDecl(offsetof(PCacheImageHeader, n_pages) == 88, "PCacheImageHeader");
StaticAssertDecl(offsetof(PCacheImageHeader, index_offset) == 104, "PCacheImageHeader");
StaticAssertDecl(offsetof(PCacheImageHeader, reserved) == 112, "PCacheImageHeader");
StaticAssertDecl(offsetof(PCacheImageHeader, digest) == 4056, "tail");

/* Where a chunk is, and what it is about. */
typedef struct PCacheImageEntry
{
	uint64		offset;			/* in the image, in bytes */
	uint64		first_slot;		/* of its range */
	uint32		n_pages;		/* never 0 */
	uint32		stored_size;	/* in bytes, without what follows up to the
								 * next multiple of PCACHE_IMAGE_ALIGNMENT */
	uint8		digest[PCACHE_DIGEST_LEN];	/* SHA-256 of these bytes */
} PCacheImageEntry;

StaticAssertDecl(sizeof(PCacheImageEntry) == 56, "PCacheImageEntry");
StaticAssertDecl(offsetof(PCacheImageEntry, n_pages) == 16, "PCacheImageEntry");
StaticAssertDecl(offsetof(PCacheImageEntry, digest) == 24, "PCacheImageEntry");

#endif							/* PCACHE_IMAGE_H */
