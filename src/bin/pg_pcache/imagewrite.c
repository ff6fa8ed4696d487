/*-------------------------------------------------------------------------
 *
 * imagewrite.c
 *	  Write an image.
 *
 * It has a temporary name until all of it is durable.  Who is interrupted
 * removes it; what was left by one that was killed makes room for the next one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/imagewrite.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "image.h"

/* What there is under one of the two names of an image. */
typedef struct Existing
{
	bool		is_there;
	struct stat st;
	PCacheImageHeader header;	/* zeros where the file is shorter */
	PCacheSuperblock superblock;	/* likewise */
} Existing;

static bool
IsZero(const char *data, size_t size)
{
	return data[0] == '\0' && memcmp(data, data + 1, size - 1) == 0;
}

/* Read the beginning of an open file; false if it cannot be an image of ours. */
static bool
ReadBeginning(int fd, Existing *existing)
{
	uint64		offset = PCACHE_IMAGE_SUPERBLOCK_OFFSET;
	uint64		size;

	if (fstat(fd, &existing->st) < 0 || !S_ISREG(existing->st.st_mode) ||
		existing->st.st_uid != geteuid())
		return false;
	size = existing->st.st_size;
	return PCacheReadExact(fd, &existing->header, Min(sizeof(existing->header), size), 0) &&
		PCacheReadExact(fd, &existing->superblock,
						Min(sizeof(existing->superblock), size - Min(size, offset)), offset);
}

/*
 * Look at what has that name in the image's directory.  A file that is not an
 * image of this cluster is somebody else's.  One that is will be replaced, be it
 * complete or not: what tells is in its first bytes.  If unwritten is true these
 * may be zero, as whoever was killed, or lost power, leaves them.
 *
 * The name is looked up once, and what it leads to is not waited for: where other
 * users may make files, it can be a pipe of theirs at any time.  Other names of a
 * file of ours do not matter, since it is replaced, and never written to.
 */
static void
LookAtFile(const Image *image, const char *name, const char *suffix,
		   bool unwritten, uint64 system_identifier, Existing *existing)
{
	const PCacheImageHeader *header = &existing->header;
	int			fd = openat(image->dir.fd, name,
							O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);

	memset(existing, 0, sizeof(*existing));
	if (fd < 0 && errno == ENOENT)
		return;
	existing->is_there = true;
	if (fd >= 0 && ReadBeginning(fd, existing) &&
		(existing->st.st_size == 0 ||
		 (memcmp(header->magic, PCACHE_IMAGE_MAGIC_HEAD, PCACHE_MAGIC_LEN) == 0 &&
		  header->system_identifier == system_identifier) ||
		 (unwritten && IsZero((const char *) header, sizeof(*header)))))
	{
		close(fd);
		return;
	}
	Refuse(psprintf(_("Remove it, or choose another name with option %s."), "--to"),
		   _("file \"%s%s\" exists and is not an image of this cluster"), image->path, suffix);
}

/* Remove what was looked at, unless another file has its name by now. */
static void
RemoveFile(const Image *image, const char *name, const char *suffix,
		   const Existing *existing)
{
	if (existing->is_there && PCacheDirHas(&image->dir, name, &existing->st) &&
		unlinkat(image->dir.fd, name, 0) < 0)
		pg_fatal("could not remove file \"%s%s\": %m", image->path, suffix);
}

/*
 * The image that is there takes room that the new one may need.  If it is of an
 * earlier stop, or of an earlier pool, no load accepts it any more, so it is
 * removed before the new one is there.
 */
static bool
IsStale(const Existing *existing, const PCacheSuperblock *sb)
{
	const PCacheSuperblock *saved = &existing->superblock;

	return existing->st.st_size >= PCACHE_IMAGE_CHUNKS_OFFSET &&
		(memcmp(saved->pool_uuid, sb->pool_uuid, PCACHE_UUID_LEN) != 0 ||
		 saved->incarnation != sb->incarnation);
}

/* The name of the image while it is written; name has MAXPGPATH bytes. */
static void
GetTemporaryName(const Image *image, char *name)
{
	snprintf(name, MAXPGPATH, "%s%s", image->name, PCACHE_IMAGE_TMP_SUFFIX);
}

/* Create the temporary file, for us alone. */
static void
OpenTemporary(Image *image, const char *name)
{
	int			flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	NoteUnfinished(true);
	image->fd = openat(image->dir.fd, name, flags | O_DIRECT, S_IRUSR | S_IWUSR);
	if (image->fd < 0 && errno == EINVAL)
	{
		/* it may have been created before the file system refused the flag */
		(void) unlinkat(image->dir.fd, name, 0);
		image->fd = openat(image->dir.fd, name, flags, S_IRUSR | S_IWUSR);
	}
	if (image->fd < 0)
	{
		NoteUnfinished(errno != EEXIST);
		pg_fatal("could not create file \"%s%s\": %m", image->path, PCACHE_IMAGE_TMP_SUFFIX);
	}
}

/*
 * Let the group of the data directory read the image if it may read that.  It is
 * not the group that the file was made with where the directory is setgid.
 */
static void
LetGroupRead(const Image *image, const char *pgdata)
{
	struct stat st;

	if ((pg_file_create_mode & S_IRGRP) == 0)
		return;
	if (stat(pgdata, &st) < 0)
		pg_fatal("could not stat directory \"%s\": %m", pgdata);
	if (fchown(image->fd, -1, st.st_gid) < 0)
		pg_log_warning("could not let the group of the data directory read image \"%s\": %m",
					   image->path);
	else if (fchmod(image->fd, pg_file_create_mode) < 0)
		pg_fatal("could not change permissions of file \"%s%s\": %m",
				 image->path, PCACHE_IMAGE_TMP_SUFFIX);
}

pg_noreturn static void
FailToWriteImage(const Image *image)
{
	pg_fatal("could not write image \"%s\": %m", image->path);
}

/* Write the header and the superblock. */
static void
StoreHeader(const Image *image)
{
	ImageBuffer head = AllocateImageBuffer(PCACHE_IMAGE_CHUNKS_OFFSET);

	memcpy(head.data, &image->header, sizeof(image->header));
	memcpy(head.data + PCACHE_IMAGE_SUPERBLOCK_OFFSET, &image->superblock,
		   sizeof(image->superblock));
	if (!WriteImage(image, head.data, head.size, 0))
		FailToWriteImage(image);
	free(head.data);
}

/*
 * Begin an image of a pool with this superblock, in the place that
 * LocateImage() has found; the pool is that of pgdata.  Entries for max_chunks
 * chunks are the caller's to fill in.
 */
void
CreateImage(Image *image, const char *pgdata, uint32 compression,
			const PCacheSuperblock *sb, uint32 max_chunks)
{
	PCacheImageHeader *header = &image->header;
	size_t		index_size = ImageAlign(Max(max_chunks, 1) * sizeof(PCacheImageEntry));
	Existing	old_image;
	Existing	left;
	char		name[MAXPGPATH];

	GetTemporaryName(image, name);
	LookAtFile(image, image->name, "", false, sb->system_identifier, &old_image);
	LookAtFile(image, name, PCACHE_IMAGE_TMP_SUFFIX, true, sb->system_identifier, &left);
	if (IsStale(&old_image, sb))
		RemoveFile(image, image->name, "", &old_image);
	/* of one that was killed; nobody else works on it, as the pool is locked */
	RemoveFile(image, name, PCACHE_IMAGE_TMP_SUFFIX, &left);
	WatchUnfinished(image->dir.fd, name);
	OpenTemporary(image, name);
	LetGroupRead(image, pgdata);
	Step("save-opened");

	memset(header, 0, sizeof(*header));
	memcpy(header->magic, PCACHE_IMAGE_MAGIC_HEAD, PCACHE_MAGIC_LEN);
	memcpy(header->tail, PCACHE_IMAGE_MAGIC_TAIL, PCACHE_MAGIC_LEN);
	header->format_version = PCACHE_IMAGE_VERSION;
	header->header_size = PCACHE_IMAGE_HEADER_SIZE;
	if (!pg_strong_random(header->image_uuid, PCACHE_UUID_LEN))
		pg_fatal("could not generate random numbers");
	header->system_identifier = sb->system_identifier;
	header->created_at = time(NULL);
	header->pg_major = PG_VERSION_NUM / 10000;
	header->byte_order = PCACHE_BYTE_ORDER;
	header->compression = compression;
	header->block_size = BLCKSZ;
	header->descriptor_size = sizeof(PCacheDescriptor);
	header->slots_per_chunk = PCACHE_IMAGE_SLOTS_PER_CHUNK;
	image->superblock = *sb;
	image->entries = (PCacheImageEntry *) AllocateImageBuffer(index_size).data;
	memset(image->entries, 0, index_size);

	/*
	 * the file tells whose it is, and without a digest that it is not
	 * complete
	 */
	StoreHeader(image);
	Step("save-begun");
}

/*
 * All chunks are written, and header.n_chunks, n_pages and raw_size say what
 * they are: complete the image, durably.  header.digest is what it is to be
 * recognized by.
 */
void
CompleteImage(Image *image, uint64 index_offset)
{
	PCacheImageHeader *header = &image->header;
	size_t		index_size = header->n_chunks * sizeof(PCacheImageEntry);

	header->index_offset = index_offset;
	header->image_size = index_offset + ImageAlign(index_size);
	ImageDigest(header, &image->superblock, image->entries, header->digest);
	/* what was allocated ahead and not needed goes */
	if (!WriteImage(image, (const char *) image->entries, ImageAlign(index_size), index_offset) ||
		ftruncate(image->fd, header->image_size) < 0)
		FailToWriteImage(image);
	StoreHeader(image);
	Step("save-written");
	if (fsync(image->fd) < 0)
		pg_fatal("could not fsync image \"%s\": %m", image->path);
	Step("save-synced");
}

/* Give a complete image its name. */
void
PublishImage(const Image *image)
{
	char		name[MAXPGPATH];

	GetTemporaryName(image, name);
	if (renameat(image->dir.fd, name, image->dir.fd, image->name) < 0)
		pg_fatal("could not rename file \"%s%s\" to \"%s\": %m",
				 image->path, PCACHE_IMAGE_TMP_SUFFIX, image->path);
	NoteUnfinished(false);
	if (!PCacheDirSync(&image->dir))
		pg_fatal("could not fsync the directory of image \"%s\": %m", image->path);
	Step("save-renamed");
}
