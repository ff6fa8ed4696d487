/*-------------------------------------------------------------------------
 *
 * imagechunk.c
 *	  The chunks of an image: compress, expand, digest, and judge them.
 *
 * A digest in the header stands for all of the image.  It tells what is damaged, and
 * not who has made it: an image is trusted as a pool is, because nobody else may write
 * to the file, nor exchange it, see OpenImageFile().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imagechunk.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#ifdef USE_LZ4
#include <lz4.h>
#endif
#ifdef USE_ZSTD
#include <zstd.h>
#endif

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "image.h"

/* The fastest one: what is saved is pages, and the host is going down. */
#define ZSTD_LEVEL	1

/* For chunks of this image, uncompressed and as they are stored. */
void
AllocateChunkBuffers(const Image *image, ImageBuffer *raw, ImageBuffer *stored)
{
	const PCacheImageHeader *header = &image->header;

	*raw = AllocateImageBuffer(ChunkRawSize(header->slots_per_chunk));
	stored->data = NULL;
	if (header->compression != PCACHE_IMAGE_PLAIN)
		*stored = AllocateImageBuffer(ChunkMaxSize(header->compression, header->slots_per_chunk));
}

static const char *const compression_names[] = {
	[PCACHE_IMAGE_PLAIN] = "none",
	[PCACHE_IMAGE_LZ4] = "lz4",
	[PCACHE_IMAGE_ZSTD] = "zstd",
};

const char *
CompressionName(uint32 compression)
{
	return PCacheNameOf(compression_names, compression);
}

/* Does this build have that compression? */
bool
CompressionIsKnown(uint32 compression)
{
	switch (compression)
	{
		case PCACHE_IMAGE_PLAIN:
#ifdef USE_LZ4
		case PCACHE_IMAGE_LZ4:
#endif
#ifdef USE_ZSTD
		case PCACHE_IMAGE_ZSTD:
#endif
			return true;
	}
	return false;
}

/* Exits if there is no such compression in this build. */
uint32
ParseCompression(const char *name)
{
	for (uint32 i = PCACHE_IMAGE_PLAIN; i < lengthof(compression_names); i++)
	{
		if (name != NULL && strcmp(name, compression_names[i]) != 0)
			continue;
		if (!CompressionIsKnown(i))
			pg_fatal("this build does not support compression with %s", name);
		return i;
	}
	Refuse(_("It is one of lz4, zstd and none."),
		   _("unrecognized compression method \"%s\""), name);
}

/* Where in a chunk of so many pages the first page is. */
size_t
ChunkPagesOffset(uint32 n_pages)
{
	return ImageAlign(n_pages * sizeof(PCacheDescriptor));
}

/* The size of a chunk that is not compressed, in bytes. */
size_t
ChunkRawSize(uint32 n_pages)
{
	return ChunkPagesOffset(n_pages) + (size_t) n_pages * BLCKSZ;
}

/* The most that it can take as it is stored. */
size_t
ChunkMaxSize(uint32 compression, uint32 n_pages)
{
	size_t		raw_size = ChunkRawSize(n_pages);

	switch (compression)
	{
#ifdef USE_LZ4
		case PCACHE_IMAGE_LZ4:
			return LZ4_compressBound(raw_size);
#endif
#ifdef USE_ZSTD
		case PCACHE_IMAGE_ZSTD:
			return ZSTD_compressBound(raw_size);
#endif
		default:
			return raw_size;
	}
}

/* Compress a chunk into a buffer of ChunkMaxSize(). */
bool
CompressChunk(uint32 compression, const ImageBuffer *raw, size_t raw_size,
			  ImageBuffer *stored, size_t *stored_size)
{
	switch (compression)
	{
#ifdef USE_LZ4
		case PCACHE_IMAGE_LZ4:
			*stored_size = LZ4_compress_default(raw->data, stored->data, raw_size,
												stored->size);
			return *stored_size > 0;
#endif
#ifdef USE_ZSTD
		case PCACHE_IMAGE_ZSTD:
			*stored_size = ZSTD_compress(stored->data, stored->size, raw->data,
										 raw_size, ZSTD_LEVEL);
			return !ZSTD_isError(*stored_size);
#endif
		default:
			return false;
	}
}

/* The reverse; false if that is not what was compressed. */
bool
ExpandChunk(uint32 compression, const ImageBuffer *stored, size_t stored_size,
			ImageBuffer *raw, size_t raw_size)
{
	switch (compression)
	{
#ifdef USE_LZ4
		case PCACHE_IMAGE_LZ4:
			return LZ4_decompress_safe(stored->data, raw->data, stored_size,
									   raw_size) == (int) raw_size;
#endif
#ifdef USE_ZSTD
		case PCACHE_IMAGE_ZSTD:
			return ZSTD_decompress(raw->data, raw_size, stored->data,
								   stored_size) == raw_size;
#endif
		default:
			return false;
	}
}

StaticAssertDecl(PCACHE_DIGEST_LEN == PG_SHA256_DIGEST_LENGTH, "PCACHE_DIGEST_LEN");

/* What is digested together. */
typedef struct Piece
{
	const void *data;
	size_t		size;
} Piece;

/* Compute the SHA-256 of some pieces.  Exits if that fails; from any thread. */
static void
Digest(const Piece *pieces, int n, uint8 *digest)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	bool		done = ctx != NULL && pg_cryptohash_init(ctx) >= 0;

	for (int i = 0; i < n && done; i++)
		done = pg_cryptohash_update(ctx, pieces[i].data, pieces[i].size) >= 0;
	if (!done || pg_cryptohash_final(ctx, digest, PCACHE_DIGEST_LEN) < 0)
		pg_fatal("could not compute a SHA-256: %s", pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
}

/* The digest of a chunk as it is stored. */
void
ChunkDigest(const char *data, size_t size, uint8 *digest)
{
	const Piece piece = {data, size};

	Digest(&piece, 1, digest);
}

/*
 * The digest that an image with this header, superblock and index has to have in
 * its header.
 */
void
ImageDigest(const PCacheImageHeader *header, const PCacheSuperblock *sb,
			const PCacheImageEntry *entries, uint8 *digest)
{
	const Piece pieces[] = {
		{header, offsetof(PCacheImageHeader, digest)},
		{sb, sizeof(*sb)},
		{entries, header->n_chunks * sizeof(*entries)},
	};

	Digest(pieces, lengthof(pieces), digest);
}

/* Are these descriptors those of different slots of the chunk's range? */
static bool
ChunkIsSound(const Image *image, const PCacheImageEntry *entry,
			 const PCacheDescriptor *descs)
{
	uint64		next = entry->first_slot;
	uint64		end = Min(entry->first_slot + image->header.slots_per_chunk,
						  image->superblock.slots_used);

	for (uint32 i = 0; i < entry->n_pages; i++)
	{
		const PCacheDescriptor *desc = &descs[i];

		if (desc->slot < next || desc->slot >= end ||
			!PCacheSeqIsSealed(desc->seq) ||
			!PCacheDescriptorIsIntact(desc, desc->slot) ||
			!PCacheDescriptorHasSaneTag(desc))
			return false;
		next = (uint64) desc->slot + 1;
	}
	return true;
}

/*
 * Read a chunk into raw, as it was before it was compressed.  stored has room
 * for ChunkMaxSize() of a full chunk, and raw for ChunkRawSize() of one.  If it
 * is damaged, why says how.  Called by many threads.
 */
bool
ReadChunk(const Image *image, const PCacheImageEntry *entry,
		  ImageBuffer *stored, ImageBuffer *raw, char *why, size_t why_size)
{
	uint32		compression = image->header.compression;
	ImageBuffer *dest = compression == PCACHE_IMAGE_PLAIN ? raw : stored;
	uint8		digest[PCACHE_DIGEST_LEN];

	if (!ReadImage(image, dest->data, ImageAlign(entry->stored_size), entry->offset))
	{
		snprintf(why, why_size, _("could not be read: %m"));
		return false;
	}
	/* before anything else looks at these bytes */
	ChunkDigest(dest->data, entry->stored_size, digest);
	if (memcmp(digest, entry->digest, PCACHE_DIGEST_LEN) != 0)
		snprintf(why, why_size, _("has a wrong checksum"));
	else if (compression != PCACHE_IMAGE_PLAIN &&
			 !ExpandChunk(compression, stored, entry->stored_size, raw,
						  ChunkRawSize(entry->n_pages)))
		snprintf(why, why_size, _("could not be decompressed"));
	else if (!ChunkIsSound(image, entry, (PCacheDescriptor *) raw->data))
		snprintf(why, why_size, _("has descriptors that are not of its slots"));
	else
		return true;
	return false;
}
