/*-------------------------------------------------------------------------
 *
 * pcache_file.c
 *	  Which file in the pool's directory may be the pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_file.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_pool.h"

/* Is that file the one that the directory has by this name? */
bool
PCacheDirHas(const PCacheDir *dir, const char *name, const struct stat *st)
{
	struct stat named;

	return fstatat(dir->fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		named.st_dev == st->st_dev && named.st_ino == st->st_ino;
}

/* Tell that a pool could not be opened; errno says why, and is left as it is. */
static void
SetOpenError(const char *path, PCacheError *err)
{
	PCacheSetError(err, _("could not open persistent cache pool \"%s\": %m"), path);
	if (errno == EACCES || errno == EPERM)
		PCacheSetHint(err, _("The pool and its directory must belong to the user that owns the server process, and be writable for it."));
	else if (errno == EROFS)
		PCacheSetHint(err, _("The file system of the pool is mounted read-only."));
}

/*
 * Could an open file be opened for writing as well, as the server does it?  Sets
 * the server's error if not.  path is only used in messages.
 */
bool
PCacheFileIsWritable(int fd, const char *path, PCacheError *err)
{
	char		name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (faccessat(AT_FDCWD, name, R_OK | W_OK, AT_EACCESS) == 0)
		return true;
	SetOpenError(path, err);
	return false;
}

/*
 * Open a file of ours.  It is not followed if it is a link, not waited for if
 * it is a pipe, and not created.
 *
 * flags are O_RDONLY or O_RDWR; path is only used in messages.  Returns -1
 * with err filled in, and errno set; errno is 0 if the file is not one that
 * could be ours.
 */
int
PCacheDirOpenFile(const PCacheDir *dir, const char *name, int flags,
				  const char *path, struct stat *st, PCacheError *err)
{
	int			fd = openat(dir->fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	bool		is_link = fd < 0 && errno == ELOOP;

	if ((fd < 0 && !is_link) || (fd >= 0 && fstat(fd, st) < 0))
	{
		int			save_errno = errno;

		SetOpenError(path, err);
		if (fd >= 0)
			close(fd);
		errno = save_errno;
		return -1;
	}
	if (is_link || !S_ISREG(st->st_mode))
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" is not a regular file"), path);
		PCacheSetHint(err, _("Remove it, or choose another directory for the persistent cache."));
	}
	else if (st->st_uid != geteuid())
		PCacheSetWrongOwner(PCACHE_OWNED_POOL, path, st->st_uid, err);
	else if ((st->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) != 0)
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" has invalid permissions"), path);
		PCacheSetHint(err, _("Permissions should be u=rw (0600)."));
	}
	else
		return fd;
	if (fd >= 0)
		close(fd);
	errno = 0;
	return -1;
}

/*
 * Take from the group what it can do with a file of ours that is open, or with the
 * directory of the pool.  Who can open the pool can lock it, and keep its memory
 * in use.
 *
 * fd may be that of a PCacheDir; path is only used in messages.  Fails with err
 * filled in.
 */
bool
PCacheFileKeepFromGroup(int fd, const char *path, PCacheError *err)
{
	char		name[64];
	struct stat st;

	/* fchmod() takes no O_PATH */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) == 0 &&
		((st.st_mode & S_IRWXG) == 0 ||
		 chmod(name, st.st_mode & (S_ISVTX | S_ISGID | S_IRWXU)) == 0))
		return true;
	PCacheSetError(err, _("could not set permissions of \"%s\": %m"), path);
	return PCacheSetHint(err, _("Take all permissions of its group away."));
}

/*
 * Has an open file no other name, anywhere?  Sets err if it has.
 */
bool
PCacheFileHasOneName(int fd, const char *path, PCacheError *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return PCacheSetError(err, _("could not stat file \"%s\": %m"), path);
	if (st.st_nlink <= 1)
		return true;
	PCacheSetError(err, _("persistent cache pool \"%s\" is the same file as another one: it has %llu links"),
				   path, (unsigned long long) st.st_nlink);
	return PCacheSetHint(err, _("Remove it, which leaves the other one as it is, or choose another directory for the persistent cache."));
}
