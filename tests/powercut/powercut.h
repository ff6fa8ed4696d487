/*-------------------------------------------------------------------------
 *
 * powercut.h
 *	  What the shim and the program "powercut" share.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/powercut/powercut.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef POWERCUT_H
#define POWERCUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pmem_interpose.h"

/* As in storage/pcache_layout.h; pools of another format are not known. */
#define NOTES_OFFSET			8192
#define LEDGER_OFFSET			(2 * 1024 * 1024)
#define BLOCKS_OFFSET_FIELD		104

/* Kinds of stores, by where they go. */
enum
{
	KIND_SUPERBLOCK = 1,
	KIND_NOTE = 2,				/* what the server has seen and noted */
	KIND_ENTRY = 4,				/* an entry of the ledger, or a part of it */
	KIND_PAGE = 8,
};

/* Where to cut the power, see struct Control. */
enum
{
	EVENT_FLUSH = 1,			/* after a flush */
	EVENT_DRAIN = 2,			/* before a drain takes effect */
	EVENT_HALF = 3,				/* in the middle of it */
	EVENT_DONE = 4,				/* after it */
};

/*
 * The file IMAGE.ctl, mapped by all processes of the server.  armed is written
 * last by whoever wants the power cut at the countdown-th such event.
 */
typedef struct Control
{
	_Atomic uint32_t armed;
	uint32_t	kinds;			/* of the stores that count */
	uint32_t	event;
	_Atomic uint32_t off;		/* the power is off: nothing arrives any more */
	_Atomic int64_t countdown;
	uint32_t	reserved[10];

	/* for information: lines flushed, drains, lines that a drain stored */
	_Atomic uint64_t flushed;
	_Atomic uint64_t drains;
	_Atomic uint64_t arrived;
} Control;

/* A preloaded library's own names must not be seen by the program. */
#pragma GCC visibility push(hidden)

/* shim.c */
extern uint64_t random_number(void);
extern bool is_pool(const char *path);

/* files.c: persistent memory that is a file and no pool */
extern void file_mapped(const char *name, const char *base, size_t length);
extern void file_unmapping(const char *base);
extern bool file_flush(const char *addr, size_t len);
extern void file_drain(void);

#pragma GCC visibility pop

#endif							/* POWERCUT_H */
