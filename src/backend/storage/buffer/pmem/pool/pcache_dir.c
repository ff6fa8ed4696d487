/*-------------------------------------------------------------------------
 *
 * pcache_dir.c
 *	  The directory of the pool, as one that no other user can change.
 *
 * Shared buffers are mapped from a file in this directory, so whoever could
 * exchange the file, the directory, or a directory above it could read and
 * write them, or could have the server overwrite another file.  Rule "nobody else
 * can change a name of the pool" in README says what is trusted and why.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_dir.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "storage/pcache_pool.h"

/* From statfs(2); <linux/magic.h> is not everywhere. */
#define FUSE_SUPER_MAGIC	0x65735546

#define OPEN_DIRECTORY	(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool
IsTrustedUser(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* May others make names in this directory? */
static bool
IsShared(const struct stat *st)
{
	return (st->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* Is path the directory itself, or below it?  Both must be canonical. */
bool
PCacheIsInside(const char *path, const char *directory)
{
	size_t		len = strlen(directory);

	if (strcmp(directory, "/") == 0)
		return path[0] == '/';
	return strncmp(path, directory, len) == 0 &&
		(path[len] == '\0' || path[len] == '/');
}

/*
 * Can no other user change what is in this directory?
 *
 * is_pools tells whether it is the pool's own directory, which must be ours
 * alone; others are directories above it.  path, and whether it is a mount point,
 * are only used in messages.
 */
bool
PCacheDirIsTrusted(const struct stat *st, bool is_pools, bool is_mount_point,
				   const char *path, PCacheError *err)
{
	if (is_pools)
	{
		if (st->st_uid != geteuid())
		{
			PCacheSetWrongOwner(is_mount_point ? PCACHE_OWNED_MOUNT_POINT : PCACHE_OWNED_DIRECTORY,
								path, st->st_uid, err);
			return false;
		}
		/* who opens the pool takes from the group what it can do */
		if ((st->st_mode & PG_MODE_MASK_GROUP) != 0)
		{
			PCacheSetError(err, _("persistent cache directory \"%s\" has invalid permissions"),
						   path);
			return PCacheSetHint(err, _("Permissions should be u=rwx (0700)."));
		}
		return true;
	}

	/* in a sticky directory only the owner of an entry can replace it */
	if (IsTrustedUser(st->st_uid) &&
		(!IsShared(st) || (st->st_mode & S_ISVTX) != 0))
		return true;
	PCacheSetError(err, _("other users can replace the persistent cache, because they can change directory \"%s\""),
				   path);
	return PCacheSetHint(err, _("Each directory above that of the pool, and the one of an image, must belong to root or to the user that owns the server process, and must not be writable for others unless it is sticky."));
}

/* Get the first name of a path, and where the rest begins.  False if none. */
static bool
FirstName(const char *path, char *name, const char **rest)
{
	size_t		len;

	for (;; path += len)
	{
		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len != 1 || path[0] != '.')
			break;
	}
	memcpy(name, path, len);
	name[len] = '\0';
	*rest = path + len;
	return len > 0;
}

static PCacheDirResult
Fail(PCacheDir *dir, PCacheDirResult result)
{
	int			save_errno = errno;

	PCacheDirClose(dir);
	errno = save_errno;
	return result;
}

/*
 * Have dir be the directory by that name in it, without following a link.
 * Whether that one can be trusted is still to be asked.
 *
 * In a directory that is shared, anybody can mount a FUSE file system on a
 * directory of its own, and FUSE says of owners and modes what it is told to.
 */
static PCacheDirResult
Enter(PCacheDir *dir, const char *name, PCacheError *err)
{
	size_t		len = strlen(dir->path);
	struct stat st;
	struct statfs fs;
	int			fd = openat(dir->fd, name, OPEN_DIRECTORY);

	if (fd < 0)
		return PCACHE_DIR_FAILED;
	if (fstat(dir->fd, &st) < 0 || fstatfs(fd, &fs) < 0)
	{
		close(fd);
		return PCACHE_DIR_FAILED;
	}
	if (IsShared(&st) && fs.f_type == FUSE_SUPER_MAGIC)
	{
		PCacheSetError(err, _("\"%s\" in directory \"%s\" may be a file system of another user"),
					   name, dir->path);
		PCacheSetHint(err, _("Choose another directory for the persistent cache."));
		close(fd);
		return PCACHE_DIR_UNTRUSTED;
	}

	close(dir->fd);
	dir->fd = fd;
	if (strcmp(name, "..") == 0)
		get_parent_directory(dir->path);
	else if (snprintf(dir->path + len, sizeof(dir->path) - len, "%s%s",
					  dir->path[len - 1] == '/' ? "" : "/", name) >=
			 sizeof(dir->path) - len)
	{
		errno = ENAMETOOLONG;
		return PCACHE_DIR_FAILED;
	}
	return PCACHE_DIR_OK;
}

/*
 * Put a symbolic link's target in front of what is left of the path.  st is of
 * the directory that the link is in.
 */
static PCacheDirResult
FollowLink(PCacheDir *dir, const struct stat *st, const char *name,
		   const char *rest, PCacheError *err)
{
	struct stat link;
	char		path[MAXPGPATH];
	ssize_t		len = -1;
	int			fd = openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return PCACHE_DIR_FAILED;
	if (fstat(fd, &link) == 0)
		len = readlinkat(fd, "", path, sizeof(path));
	close(fd);
	if (len < 0)
	{
		errno = ENOTDIR;
		return PCACHE_DIR_FAILED;
	}
	/* where others may make links, only its owner can have exchanged this one */
	if (!IsTrustedUser(link.st_uid) && IsShared(st))
	{
		PCacheSetError(err, _("symbolic link \"%s\" in directory \"%s\" on the way to the persistent cache belongs to another user"),
					   name, dir->path);
		PCacheSetHint(err, _("Remove it, or choose another directory for the persistent cache."));
		return PCACHE_DIR_UNTRUSTED;
	}
	if (len + 1 + strlen(rest) >= sizeof(path))
	{
		errno = ENAMETOOLONG;
		return PCACHE_DIR_FAILED;
	}
	snprintf(path + len, sizeof(path) - len, "/%s", rest);
	strcpy(dir->missing, path);

	if (is_absolute_path(path))
	{
		fd = open("/", OPEN_DIRECTORY);
		if (fd < 0)
			return PCACHE_DIR_FAILED;
		close(dir->fd);
		dir->fd = fd;
		strcpy(dir->path, "/");
	}
	return PCACHE_DIR_OK;
}

/*
 * Walk an absolute path name by name.  Each directory is judged before a name
 * is looked up in it, so nobody else can exchange what was found, neither
 * during the walk nor later.  is_pools tells what the last one has to be.
 */
static PCacheDirResult
Walk(const char *path, bool is_pools, PCacheDir *dir, PCacheError *err)
{
	char		name[MAXPGPATH];
	const char *rest;
	dev_t		device = 0;		/* of the last directory */
	int			links = 0;

	dir->fd = -1;
	if (strlcpy(dir->missing, path, sizeof(dir->missing)) >= sizeof(dir->missing))
	{
		errno = ENAMETOOLONG;
		return PCACHE_DIR_FAILED;
	}
	strcpy(dir->path, "/");
	dir->fd = open("/", OPEN_DIRECTORY);
	if (dir->fd < 0)
		return PCACHE_DIR_FAILED;
	for (;;)
	{
		bool		is_last = !FirstName(dir->missing, name, &rest);
		PCacheDirResult result;
		struct stat st;

		if (fstat(dir->fd, &st) < 0)
			return Fail(dir, PCACHE_DIR_FAILED);
		if (!PCacheDirIsTrusted(&st, is_last && is_pools, device != 0 && device != st.st_dev,
								dir->path, err))
			return Fail(dir, PCACHE_DIR_UNTRUSTED);
		device = st.st_dev;
		if (is_last)
		{
			dir->missing[0] = '\0';
			return PCACHE_DIR_OK;
		}
		result = Enter(dir, name, err);
		if (result == PCACHE_DIR_OK)
		{
			memmove(dir->missing, rest, strlen(rest) + 1);
			continue;
		}
		if (result == PCACHE_DIR_UNTRUSTED)
			return Fail(dir, result);
		if (errno == ENOENT)
		{
			const char *first = dir->missing + strspn(dir->missing, "/");

			memmove(dir->missing, first, strlen(first) + 1);
			return PCACHE_DIR_OK;
		}
		if (errno != ENOTDIR && errno != ELOOP)
			return Fail(dir, PCACHE_DIR_FAILED);
		if (++links > PCACHE_MAX_SYMLINKS)
		{
			errno = ELOOP;
			return Fail(dir, PCACHE_DIR_FAILED);
		}
		result = FollowLink(dir, &st, name, rest, err);
		if (result != PCACHE_DIR_OK)
			return Fail(dir, result);
	}
}

/*
 * Open a directory for a pool, or the deepest part of its path that exists:
 * dir->missing then has the rest, and otherwise is "".
 *
 * The path must be absolute.  Returns PCACHE_DIR_FAILED with errno set, or
 * PCACHE_DIR_UNTRUSTED with err filled in.  dir->fd is -1 then.  It can be used
 * for *at() calls only.
 */
PCacheDirResult
PCacheDirOpenExisting(const char *path, PCacheDir *dir, PCacheError *err)
{
	return Walk(path, true, dir, err);
}

/*
 * The same, of a directory that must exist: otherwise it fails with ENOENT.  If it is not the
 * pool's, but one for an image, it need not be ours alone, but nobody else can exchange a
 * file of ours in it.
 */
PCacheDirResult
PCacheDirOpen(const char *path, bool is_pools, PCacheDir *dir, PCacheError *err)
{
	PCacheDirResult result = Walk(path, is_pools, dir, err);

	if (result == PCACHE_DIR_OK && dir->missing[0] != '\0')
	{
		errno = ENOENT;
		return Fail(dir, PCACHE_DIR_FAILED);
	}
	return result;
}

/*
 * Make what is missing of a path, and have dir be that.  Names are made durable.
 * Nothing is removed again after an error, which err tells.
 */
bool
PCacheDirMakeMissing(PCacheDir *dir, PCacheError *err)
{
	char		name[MAXPGPATH];
	const char *rest;

	while (FirstName(dir->missing, name, &rest))
	{
		PCacheDirResult result = PCACHE_DIR_FAILED;
		struct stat st;

		if ((mkdirat(dir->fd, name, PG_DIR_MODE_OWNER) == 0 || errno == EEXIST) &&
			PCacheDirSync(dir))
			result = Enter(dir, name, err);
		if (result == PCACHE_DIR_UNTRUSTED)
			return false;
		if (result == PCACHE_DIR_FAILED || fstat(dir->fd, &st) < 0)
			return PCacheSetError(err, _("could not create directory \"%s\" in \"%s\": %m"),
								  name, dir->path);
		/* somebody else may have been first */
		if (!PCacheDirIsTrusted(&st, true, false, dir->path, err))
			return false;
		memmove(dir->missing, rest, strlen(rest) + 1);
	}
	dir->missing[0] = '\0';
	return true;
}

/* Make the names in a directory durable, with the exceptions of fsync_fname(). */
bool
PCacheDirSync(const PCacheDir *dir)
{
	int			fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool		ok;
	int			save_errno;

	if (fd < 0)
		return errno == EACCES;
	ok = fsync(fd) == 0 || errno == EINVAL || errno == EBADF;
	save_errno = errno;
	close(fd);
	errno = save_errno;
	return ok;
}

void
PCacheDirClose(PCacheDir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	dir->fd = -1;
}
