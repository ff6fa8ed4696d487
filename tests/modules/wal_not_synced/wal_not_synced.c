/*-------------------------------------------------------------------------
 *
 * wal_not_synced.c
 *	  For LD_PRELOAD: files that were opened for reading cannot be synced.
 *
 * So the server works, and only the start that wants to make WAL durable, which it has
 * just read, cannot.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>

extern __attribute__((visibility("default")))
int			fdatasync(int fd);

int
fdatasync(int fd)
{
	static int	(*next) (int fd);

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
	{
		errno = EIO;
		return -1;
	}
	if (next == 0)
		next = (int (*) (int)) dlsym(RTLD_NEXT, "fdatasync");
	return next(fd);
}
