/*-------------------------------------------------------------------------
 *
 * xlogdrain.h
 *	  WAL that becomes durable when stores to persistent memory are drained.
 *
 * Who writes WAL through a mapping of persistent memory drains where others
 * call fsync().  Who keeps something on persistent memory that says how far WAL
 * is durable can have it made durable by that drain, and needs none of its own.
 * Neither has to know of the other: they meet here.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/access/xlogdrain.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef XLOGDRAIN_H
#define XLOGDRAIN_H

/* Set by who writes WAL: does it become durable by a drain now? */
extern PGDLLIMPORT bool (*WalIsDrained) (void);

/* Set by who has something to flush before such a drain. */
extern PGDLLIMPORT void (*WalDrainHook) (void);

#endif							/* XLOGDRAIN_H */
