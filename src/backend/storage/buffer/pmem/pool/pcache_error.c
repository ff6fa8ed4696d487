/*-------------------------------------------------------------------------
 *
 * pcache_error.c
 *	  Errors that the caller is to report, and exact reads.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_error.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "storage/pcache_pool.h"

/*
 * Set the message, translated by the caller, and no hint.  Leaves errno, which
 * "%m" is about, as it is.  Returns false, for callers that have failed and say so.
 */
bool
PCacheSetError(PCacheError *err, const char *fmt,...)
{
	int			save_errno = errno;
	va_list		ap;

	va_start(ap, fmt);
	errno = save_errno;			/* for %m */
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	err->hint[0] = '\0';
	errno = save_errno;
	return false;
}

/* Set the hint of an error that has a message.  Returns false, as that does. */
bool
PCacheSetHint(PCacheError *err, const char *fmt,...)
{
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
	return false;
}

/* Read exactly len bytes, or return false with errno set (0 at end of file). */
bool
PCacheReadExact(int fd, void *buf, size_t len, off_t offset)
{
	size_t		done = 0;

	while (done < len)
	{
		ssize_t		n = pg_pread(fd, (char *) buf + done, len - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			if (n == 0)
				errno = 0;
			return false;
		}
		done += n;
	}
	return true;
}

#define MAX_USER	128

/*
 * The name of a user, or the number if the user has none here.
 *
 * Only the file is read.  getpwuid() may ask a directory service, and a start must not
 * wait for one.
 */
static const char *
UserName(uid_t uid, char *name, size_t size)
{
	FILE	   *file = fopen("/etc/passwd", "r");
	struct passwd *entry = NULL;

	while (file != NULL && (entry = fgetpwent(file)) != NULL && entry->pw_uid != uid)
		;
	if (entry != NULL)
		strlcpy(name, entry->pw_name, size);
	else
		snprintf(name, size, "%u", (unsigned int) uid);
	if (file != NULL)
		fclose(file);
	return name;
}

/*
 * Set the error of a directory or a file that does not belong to the user that this process
 * runs as.  There is a hint for each cause: a mount that is missing, one that lacks an
 * option, and a directory or pool of somebody else.
 */
void
PCacheSetWrongOwner(PCacheOwned what, const char *path, uid_t owner, PCacheError *err)
{
	char		owner_name[MAX_USER];
	char		our_name[MAX_USER];

	UserName(owner, owner_name, sizeof(owner_name));
	UserName(geteuid(), our_name, sizeof(our_name));
	if (what == PCACHE_OWNED_POOL)
	{
		PCacheSetError(err, _("persistent cache pool \"%s\" has wrong ownership: it belongs to user %s, and this process to user %s"),
					   path, owner_name, our_name);
		PCacheSetHint(err, _("The server must be started by the user that owns the pool.  If that is the wrong user, remove the file instead of changing its owner, who may have it open."));
		return;
	}
	PCacheSetError(err, _("persistent cache directory \"%s\" has wrong ownership: it belongs to user %s, and this process to user %s"),
				   path, owner_name, our_name);
	/* what is below a missing mount mostly belongs to root */
	if (owner != 0)
		PCacheSetHint(err, _("Is it the directory of another cluster?  Each cluster needs one of its own, which belongs to the user that owns the server process."));
	else if (what == PCACHE_OWNED_MOUNT_POINT)
		PCacheSetHint(err, _("A file system is mounted there.  Mount a tmpfs or hugetlbfs with the option uid=%s, and give the directory of another file system to that user with chown."),
					  our_name);
	else
		PCacheSetHint(err, _("Is its file system mounted?  If it is, or if none is to be mounted there, give the directory to user %s with chown."),
					  our_name);
}
