/*-------------------------------------------------------------------------
 *
 * pmem_interpose.h
 *	  What a preloaded shim of libpmem provides, and what it gets for that.
 *
 * pmem_interpose.c takes the place of libpmem's functions.  It is compiled into
 * each shim, and calls it where memory is mapped, flushed or drained.  The shim
 * decides which memory it keeps an image of, and what of it is on media when.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/powercut/pmem_interpose.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMEM_INTERPOSE_H
#define PMEM_INTERPOSE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

/* What a processor flushes at a time. */
#define LINE_SIZE	64

/*
 * Makes "real" the function that a function of this name takes the place of.
 * To be called with RTLD_NEXT defined, that is, with _GNU_SOURCE.
 */
#define REAL(name) \
	static __typeof__(name) *real; \
	if (real == NULL && (real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)) == NULL) \
		die("there is no " #name "()")

/* A shim is preloaded: its own names must not be seen by the program. */
#pragma GCC visibility push(hidden)

/* What the shim is called in messages. */
extern const char *const shim_name;

/* A file has been mapped; path is as the program gave it. */
extern void media_mapped(const char *path, char *base, size_t length);

/* This address is about to be unmapped. */
extern void media_unmapping(const void *base);

/*
 * A range has been flushed.  Returns false if the shim keeps no image of it; then
 * it is flushed for real.
 */
extern bool media_flush(const void *addr, size_t len);

/* This process waits for all that it has flushed. */
extern void media_drain(void);

/* Print a message and abort: a test that goes on would mean nothing. */
extern void die(const char *fmt,...) __attribute__((noreturn, format(printf, 1, 2)));

/* Map a file of that many bytes, shared; it is made if it is missing. */
extern void *map_shared_file(const char *path, size_t size);

#pragma GCC visibility pop

#endif							/* PMEM_INTERPOSE_H */
