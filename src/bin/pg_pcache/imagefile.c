/*-------------------------------------------------------------------------
 *
 * imagefile.c
 *	  Find an image, open it, and believe what it says of itself.
 *
 * A file is only opened below directories in which no other user can exchange
 * names, and only if it is ours.  It is read past the page cache where its file
 * system allows that, since nobody will ask for it again.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imagefile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/logging.h"
#include "image.h"

/*
 * Find out where the image is, or will be: beside the data directory, so that
 * no base backup contains it, unless the user says otherwise.
 */
void
LocateImage(const PCacheOptions *options, Image *image)
{
	char		directory[MAXPGPATH];
	const char *given = options->to != NULL ? options->to : options->from;
	char	   *slash;
	PCacheError err;

	memset(image, 0, sizeof(*image));
	image->fd = -1;
	if (given != NULL)
		strlcpy(image->path, given, sizeof(image->path));
	else
		snprintf(image->path, sizeof(image->path), "%s%s",
				 options->pgdata, PCACHE_IMAGE_SUFFIX);
	if (strlen(image->path) >= MAXPGPATH - 64)
		pg_fatal("file name \"%s\" is too long", image->path);
	slash = strrchr(image->path, '/');
	image->name = slash + 1;
	if (image->name[0] == '\0')
		pg_fatal("\"%s\" is not the name of a file", image->path);
	snprintf(directory, sizeof(directory), "%.*s/",
			 (int) (slash - image->path), image->path);

	switch (PCacheDirOpenForFile(directory, &image->dir, &err))
	{
		case PCACHE_DIR_OK:
			break;
		case PCACHE_DIR_FAILED:
			pg_fatal("could not open directory \"%s\": %m", directory);
		case PCACHE_DIR_UNTRUSTED:
			FailWith(&err);
	}
}

/* Open the file, if it is one of ours. */
static ImageOpened
OpenFile(Image *image, PCacheError *err)
{
	int			flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	struct stat st;

	image->fd = openat(image->dir.fd, image->name, flags | IMAGE_O_DIRECT, 0);
	if (image->fd < 0 && errno == EINVAL)
		image->fd = openat(image->dir.fd, image->name, flags, 0);
	if (image->fd < 0)
	{
		if (errno == ENOENT)
			return IMAGE_MISSING;
		if (errno == ELOOP)
			PCacheSetError(err, _("image \"%s\" is a symbolic link"), image->path);
		else
			PCacheSetError(err, _("could not open image \"%s\": %m"), image->path);
	}
	else if (fstat(image->fd, &st) < 0)
		PCacheSetError(err, _("could not stat image \"%s\": %m"), image->path);
	else if (!S_ISREG(st.st_mode))
		PCacheSetError(err, _("image \"%s\" is not a regular file"), image->path);
	else if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
	{
		PCacheSetError(err, _("image \"%s\" may have been changed by another user"), image->path);
		PCacheSetHint(err, _("It must belong to the user that owns the server process, and be writable for that user only."));
	}
	else
	{
		image->header.image_size = st.st_size;
		return IMAGE_OPENED;
	}
	return IMAGE_UNUSABLE;
}

/*
 * After an error: is it that the file system wants another alignment than ours
 * for I/O past the page cache?  Then go through it, and try once more.  Another
 * thread may just have found the same.
 */
static bool
LeaveDirect(const Image *image, bool *tried)
{
	int			flags;

	if (errno != EINVAL || *tried)
		return false;
	*tried = true;
	flags = fcntl(image->fd, F_GETFL);
	return flags >= 0 && fcntl(image->fd, F_SETFL, flags & ~IMAGE_O_DIRECT) == 0;
}

/*
 * Read or write a piece; size, offset and address are aligned.  Sets errno if it
 * fails, to at_end if nothing more can be transferred there.
 */
static bool
Transfer(const Image *image, char *data, size_t size, uint64 offset,
		 bool to_image, int at_end)
{
	bool		tried = false;

	while (size > 0)
	{
		ssize_t		n = to_image ? pwrite(image->fd, data, size, offset) :
			pread(image->fd, data, size, offset);

		if (n < 0 && (errno == EINTR || LeaveDirect(image, &tried)))
			continue;
		if (n == 0)
			errno = at_end;
		if (n <= 0)
			return false;
		/* an unaligned rest is the end of the file, or else comes again */
		data += n;
		offset += n;
		size -= n;
	}
	return true;
}

bool
ReadImage(const Image *image, char *data, size_t size, uint64 offset)
{
	return Transfer(image, data, size, offset, false, ENODATA);
}

bool
WriteImage(const Image *image, const char *data, size_t size, uint64 offset)
{
	return Transfer(image, unconstify(char *, data), size, offset, true, ENOSPC);
}

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
		PCacheSetError(err, _("the header of image \"%s\" makes no sense"), image->path);
	else
	{
		switch (header->compression)
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
		PCacheSetError(err, _("image \"%s\" has a compression that this build does not support"),
					   image->path);
	}
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
	ImageOpened opened = OpenFile(image, err);
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

void
CloseImage(Image *image)
{
	if (image->fd >= 0)
		close(image->fd);
	image->fd = -1;
	free(image->entries);
	image->entries = NULL;
}

/*
 * Remove an open image, unless another file has its name by now.  Returns false
 * with errno set.
 */
bool
RemoveImage(Image *image)
{
	struct stat st;

	if (fstat(image->fd, &st) < 0)
		return false;
	if (!PCacheDirHas(&image->dir, image->name, &st))
		return true;
	return unlinkat(image->dir.fd, image->name, 0) == 0 && PCacheDirSync(&image->dir);
}
