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
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <unistd.h>

#include "storage/pcache_error.h"

/*
 * Set the message, translated by the caller, and no hint.  Leaves errno, which
 * "%m" is about, as it is.
 */
void
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
}

/* Set the hint of an error that has a message. */
void
PCacheSetHint(PCacheError *err, const char *fmt,...)
{
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
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
