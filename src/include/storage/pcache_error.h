/*-------------------------------------------------------------------------
 *
 * pcache_error.h
 *	  Errors of the code that server and pg_pcache share, and exact reads.
 *
 * Nothing in that code reports errors itself: functions fill a PCacheError, and
 * the caller decides what it is worth.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_error.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_ERROR_H
#define PCACHE_ERROR_H

/* An error for the caller to report, already translated. */
typedef struct PCacheError
{
	char		message[1024];
	char		hint[512];		/* "" if there is none */
} PCacheError;

extern void PCacheSetError(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);
extern void PCacheSetHint(PCacheError *err, const char *fmt,...) pg_attribute_printf(2, 3);

extern bool PCacheReadExact(int fd, void *buf, size_t len, off_t offset);

#endif							/* PCACHE_ERROR_H */
