/*-------------------------------------------------------------------------
 *
 * io_lifetime.h
 *	  Tell the kernel how long what is written to a file will live.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/io_lifetime.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef IO_LIFETIME_H
#define IO_LIFETIME_H

/*
 * Linux' values (RWH_WRITE_LIFE_*).  The kernel reads and writes 64 bits, so an
 * int or an enum must never be handed to it.
 */
#define IO_LIFETIME_NOT_SET		UINT64CONST(0)
#define IO_LIFETIME_SHORT		UINT64CONST(2)
#define IO_LIFETIME_LONG		UINT64CONST(4)
#define IO_LIFETIME_EXTREME		UINT64CONST(5)

/* GUC */
extern PGDLLIMPORT bool io_lifetime_hints;

extern uint64 IOLifetimeOfFile(const char *path);
extern void IOLifetimeApply(int fd, const char *path, int flags);
extern void IOLifetimeReport(void);

/* A file was opened: give it its hint. */
static inline void
IOLifetimeHint(int fd, const char *path, int flags)
{
	if (unlikely(io_lifetime_hints))
		IOLifetimeApply(fd, path, flags);
}

#endif							/* IO_LIFETIME_H */
