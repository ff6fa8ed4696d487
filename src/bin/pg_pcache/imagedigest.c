/*-------------------------------------------------------------------------
 *
 * imagedigest.c
 *	  What an image is recognized by.
 *
 * A digest in the header stands for all of the image.  It tells what is damaged, and
 * not who has made it: an image is trusted as a pool is, because nobody else may write
 * to the file, nor exchange it, see OpenFile().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imagedigest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/cryptohash.h"
#include "common/logging.h"
#include "common/sha2.h"
#include "image.h"

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
