/*-------------------------------------------------------------------------
 *
 * image.h
 *	  What is done with images of the pool: save.c, load.c and the files below.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/image.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef IMAGE_H
#define IMAGE_H

#include "pg_pcache.h"
#include "storage/pcache_image.h"

/* An image that is read or written, with all that it says of its chunks. */
typedef struct Image
{
	PCacheDir	dir;			/* that it is in */
	char		path[MAXPGPATH];
	const char *name;			/* in dir; points into path */
	int			fd;				/* -1 if it is not open */
	PCacheImageHeader header;
	PCacheSuperblock superblock;
	PCacheImageEntry *entries;	/* header.n_chunks of them */
} Image;

typedef enum ImageOpened
{
	IMAGE_OPENED,
	IMAGE_MISSING,
	IMAGE_UNUSABLE,				/* err tells why */
} ImageOpened;

/* A buffer of a multiple of PCACHE_IMAGE_ALIGNMENT, and aligned to that. */
typedef struct ImageBuffer
{
	char	   *data;
	size_t		size;
} ImageBuffer;

#define ImageAlign(size)	TYPEALIGN64(PCACHE_IMAGE_ALIGNMENT, (size))

/* imagefile.c */
extern void LocateImage(const PCacheOptions *options, Image *image);
extern ImageOpened OpenImageFile(Image *image, PCacheError *err);
extern void CloseImage(Image *image);
extern bool RemoveImage(Image *image);
extern ImageBuffer AllocateImageBuffer(size_t size);
extern bool ReadImage(const Image *image, char *data, size_t size, uint64 offset);
extern bool WriteImage(const Image *image, const char *data, size_t size,
					   uint64 offset);

/* imagehead.c */
extern ImageOpened OpenImage(Image *image, PCacheError *err);

/* imagewrite.c */
extern void CreateImage(Image *image, const char *pgdata,
						uint32 compression,
						const PCacheSuperblock *sb, uint32 max_chunks);
extern void CompleteImage(Image *image, uint64 index_offset);
extern void PublishImage(const Image *image);

/* imagechunk.c */
extern void AllocateChunkBuffers(const Image *image, ImageBuffer *raw,
								 ImageBuffer *stored);
extern uint32 ParseCompression(const char *name);
extern bool CompressionIsKnown(uint32 compression);
extern const char *CompressionName(uint32 compression);
extern size_t ChunkRawSize(uint32 n_pages);
extern size_t ChunkPagesOffset(uint32 n_pages);
extern size_t ChunkMaxSize(uint32 compression, uint32 n_pages);
extern bool CompressChunk(uint32 compression, const ImageBuffer *raw,
						  size_t raw_size, ImageBuffer *stored,
						  size_t *stored_size);
extern bool ExpandChunk(uint32 compression, const ImageBuffer *stored,
						size_t stored_size, ImageBuffer *raw, size_t raw_size);
extern bool ReadChunk(const Image *image, const PCacheImageEntry *entry,
					  ImageBuffer *stored, ImageBuffer *raw, char *why,
					  size_t why_size);
extern void ChunkDigest(const char *data, size_t size, uint8 *digest);
extern void ImageDigest(const PCacheImageHeader *header,
						const PCacheSuperblock *sb,
						const PCacheImageEntry *entries, uint8 *digest);

#endif							/* IMAGE_H */
