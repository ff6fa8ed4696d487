/*-------------------------------------------------------------------------
 *
 * pcache_owner.c
 *	  Whom does what has the wrong owner belong to, and what is to be done?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_owner.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "storage/pcache_owner.h"

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
