/*-------------------------------------------------------------------------
 *
 * imagefile.c
 *	  The file of an image: find it, open it, read and write it.
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

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

	switch (PCacheDirOpen(directory, false, &image->dir, &err))
	{
		case PCACHE_DIR_OK:
			break;
		case PCACHE_DIR_FAILED:
			pg_fatal("could not open directory \"%s\": %m", directory);
		case PCACHE_DIR_UNTRUSTED:
			FailWith(&err);
	}
}

/*
 * Open the file, if it is one of ours.  Of the header only its size is set, to that of
 * the file.
 */
ImageOpened
OpenImageFile(Image *image, PCacheError *err)
{
	int			flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	struct stat st;

	image->fd = openat(image->dir.fd, image->name, flags | O_DIRECT, 0);
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
	return flags >= 0 && fcntl(image->fd, F_SETFL, flags & ~O_DIRECT) == 0;
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

ImageBuffer
AllocateImageBuffer(size_t size)
{
	ImageBuffer buffer = {.size = ImageAlign(size)};

	errno = posix_memalign((void **) &buffer.data, PCACHE_IMAGE_ALIGNMENT, buffer.size);
	if (errno != 0)
		pg_fatal("could not allocate memory: %m");
	return buffer;
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
