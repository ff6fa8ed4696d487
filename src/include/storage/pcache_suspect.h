/*-------------------------------------------------------------------------
 *
 * pcache_suspect.h
 *	  The note that a process died of a fault.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_suspect.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SUSPECT_H
#define PCACHE_SUSPECT_H

#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"

extern void PCacheSuspectRead(int fd, PCacheSuspect *suspect);
extern bool PCacheSuspectIsIntact(const PCacheSuspect *suspect);
extern void PCacheSuspectDescribe(const PCacheSuspect *suspect,
								  char *text, size_t len);
extern void PCacheSuspectStore(const PCacheMapping *map, int signal, int pid);
extern bool PCacheSuspectForget(const PCacheMapping *map, uint64 died);

#endif							/* PCACHE_SUSPECT_H */
