/*-------------------------------------------------------------------------
 *
 * imagehead.c
 *	  What an image says of itself: the header, the superblock and the index.
 *
 * Nothing of that is believed before the digest in the header fits, and then only what
 * makes sense.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imagehead.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "image.h"

/* One digest stands for the three, so it is not known which of them. */
static void
SetDamaged(const Image *image, PCacheError *err)
{
	PCacheSetError(err, _("the header, the superblock or the index of image \"%s\" is damaged"),
				   image->path);
}

/* Is the header one that we know, and does it say where the index is? */
static bool
HeaderIsKnown(const Image *image, uint64 file_size, PCacheError *err)
{
	const PCacheImageHeader *header = &image->header;

	/* first what tells other versions, and files that were cut off */
	if (memcmp(header->magic, PCACHE_IMAGE_MAGIC_HEAD, PCACHE_MAGIC_LEN) != 0)
		PCacheSetError(err, _("file \"%s\" is not an image of a persistent cache"), image->path);
	else if (header->byte_order != PCACHE_BYTE_ORDER)
		PCacheSetError(err, _("image \"%s\" has another byte order"), image->path);
	else if (header->format_version != PCACHE_IMAGE_VERSION)
		PCacheSetError(err, _("image \"%s\" has format version %u, this program has %u"),
					   image->path, header->format_version, PCACHE_IMAGE_VERSION);
	else if (header->image_size != file_size)
		PCacheSetError(err, _("image \"%s\" has %llu bytes, its header says %llu"),
					   image->path, (unsigned long long) file_size,
					   (unsigned long long) header->image_size);
	else if (memcmp(header->tail, PCACHE_IMAGE_MAGIC_TAIL, PCACHE_MAGIC_LEN) != 0 ||
			 header->header_size != PCACHE_IMAGE_HEADER_SIZE ||
			 header->index_offset % PCACHE_IMAGE_ALIGNMENT != 0 ||
			 header->index_offset < PCACHE_IMAGE_CHUNKS_OFFSET ||
			 header->index_offset > file_size ||
			 file_size - header->index_offset !=
			 ImageAlign(header->n_chunks * sizeof(PCacheImageEntry)))
		SetDamaged(image, err);
	else
		return true;
	return false;
}

/* Is the header one that we understand? */
static bool
HeaderIsSound(const Image *image, PCacheError *err)
{
	const PCacheImageHeader *header = &image->header;

	if (header->block_size != BLCKSZ ||
		header->descriptor_size != sizeof(PCacheDescriptor) ||
		header->slots_per_chunk != PCACHE_IMAGE_SLOTS_PER_CHUNK ||
		header->n_chunks > PCACHE_MAX_CAPACITY / header->slots_per_chunk + 1)
	{
		PCacheSetError(err, _("the header of image \"%s\" makes no sense"), image->path);
		return false;
	}
	if (CompressionIsKnown(header->compression))
		return true;
	PCacheSetError(err, _("image \"%s\" has a compression that this build does not support"),
				   image->path);
	return false;
}

/* Are header, superblock and index as they were written? */
static bool
DigestIsRight(const Image *image, const PCacheSuperblock *sb, PCacheError *err)
{
	uint8		digest[PCACHE_DIGEST_LEN];

	ImageDigest(&image->header, sb, image->entries, digest);
	if (memcmp(digest, image->header.digest, PCACHE_DIGEST_LEN) == 0)
		return true;
	SetDamaged(image, err);
	return false;
}

/* Is the superblock one that we understand? */
static bool
SuperblockIsSound(Image *image, const PCacheSuperblock *sb, PCacheError *err)
{
	PCacheError why;

	if (PCacheSuperblockChoose(sb, sb, &image->superblock, &why) == PCACHE_SB_NONE ||
		sb->system_identifier != image->header.system_identifier)
	{
		PCacheSetError(err, _("the superblock in image \"%s\" is damaged"), image->path);
		return false;
	}
	if (sb->format_version != PCACHE_FORMAT_VERSION)
	{
		PCacheSetError(err, _("image \"%s\" is one of a pool with format version %u, this program has %u"),
					   image->path, sb->format_version, PCACHE_FORMAT_VERSION);
		return false;
	}
	if (PCacheGeometryGate(sb, sb->pool_size).refusal == PCACHE_WARM)
		return true;
	PCacheSetError(err, _("the superblock in image \"%s\" makes no sense: %s"),
				   image->path, PCacheGeometryGate(sb, sb->pool_size).why.message);
	return false;
}

/* Is each chunk inside the image, and about slots of its own? */
static bool
IndexIsSound(const Image *image, PCacheError *err)
{
	const PCacheImageHeader *header = &image->header;
	uint64		next = 0;
	uint64		n_pages = 0;
	bool		sound = true;

	for (uint32 i = 0; i < header->n_chunks && sound; i++)
	{
		const PCacheImageEntry *entry = &image->entries[i];

		sound = entry->first_slot % header->slots_per_chunk == 0 &&
			entry->first_slot >= next &&
			entry->first_slot < image->superblock.slots_used &&
			entry->n_pages > 0 && entry->n_pages <= header->slots_per_chunk &&
			entry->offset % PCACHE_IMAGE_ALIGNMENT == 0 &&
			entry->offset >= PCACHE_IMAGE_CHUNKS_OFFSET &&
			entry->offset <= header->index_offset &&
			entry->stored_size > 0 &&
			ImageAlign(entry->stored_size) <= header->index_offset - entry->offset &&
			entry->stored_size <= ChunkMaxSize(header->compression, entry->n_pages) &&
			(header->compression != PCACHE_IMAGE_PLAIN ||
			 entry->stored_size == ChunkRawSize(entry->n_pages));
		next = entry->first_slot + header->slots_per_chunk;
		n_pages += entry->n_pages;
	}
	if (sound && n_pages == header->n_pages)
		return true;
	PCacheSetError(err, _("the index of image \"%s\" is damaged"), image->path);
	return false;
}

/*
 * Open the image that LocateImage() has found, and read all but its chunks.
 *
 * What is in the header after a failure is not to be believed.
 */
ImageOpened
OpenImage(Image *image, PCacheError *err)
{
	ImageOpened opened = OpenImageFile(image, err);
	uint64		file_size = image->header.image_size;
	ImageBuffer head;
	bool		sound = false;

	if (opened != IMAGE_OPENED)
	{
		CloseImage(image);
		return opened;
	}
	head = AllocateImageBuffer(PCACHE_IMAGE_CHUNKS_OFFSET);
	if (file_size < PCACHE_IMAGE_CHUNKS_OFFSET)
		PCacheSetError(err, _("file \"%s\" is not an image of a persistent cache"), image->path);
	else if (!ReadImage(image, head.data, head.size, 0))
		PCacheSetError(err, _("could not read image \"%s\": %m"), image->path);
	else
	{
		memcpy(&image->header, head.data, sizeof(image->header));
		sound = HeaderIsKnown(image, file_size, err);
	}
	if (sound)
	{
		const PCacheSuperblock *sb = (PCacheSuperblock *) (head.data + PCACHE_IMAGE_SUPERBLOCK_OFFSET);
		size_t		size = ImageAlign(image->header.n_chunks * sizeof(PCacheImageEntry));

		image->entries = (PCacheImageEntry *) AllocateImageBuffer(Max(size, 1)).data;
		sound = ReadImage(image, (char *) image->entries, size, image->header.index_offset);
		if (!sound)
			PCacheSetError(err, _("could not read image \"%s\": %m"), image->path);
		else
			sound = DigestIsRight(image, sb, err) && HeaderIsSound(image, err) &&
				SuperblockIsSound(image, sb, err) && IndexIsSound(image, err);
	}
	free(head.data);
	if (!sound)
		CloseImage(image);
	return sound ? IMAGE_OPENED : IMAGE_UNUSABLE;
}
