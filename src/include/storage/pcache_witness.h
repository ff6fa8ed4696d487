/*-------------------------------------------------------------------------
 *
 * pcache_witness.h
 *	  What the pool remembers of the cluster: how much WAL there was, and
 *	  what pg_control said.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_witness.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_WITNESS_H
#define PCACHE_WITNESS_H

#include "catalog/pg_control.h"
#include "storage/pcache_error.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"

/*
 * pcache_witness.c
 *
 * The witness of a watermark is a hash of the last bytes of WAL, up to the
 * last one that is not zero, before the watermark's LSN.  So WAL that ends
 * anywhere before that does not match: each record begins with a header that
 * is not zero, and only padding may follow the witness.
 */
#define PCACHE_WITNESS_LEN		64

extern bool PCacheWatermarkIsBehind(const PCacheWatermark *watermark,
									uint32 timeline, uint64 written);
extern bool PCacheWatermarkFromDisk(PCacheWatermark *watermark,
									uint32 timeline, uint64 written,
									uint32 wal_segment_size);
extern bool PCacheWitnessMatches(const PCacheWatermark *watermark,
								 uint32 wal_segment_size, PCacheError *err);

/* pcache_control.c */
extern bool PCacheControlIsShutDown(const ControlFileData *control);

/*
 * pcache_sighting.c
 *
 * The worker says five times a second that the server lives.  A file that was changed
 * longer than the tolerance after the last time was changed by somebody else.
 */
#define PCACHE_SIGHTING_INTERVAL	200 /* milliseconds */
#define PCACHE_SIGHTING_TOLERANCE	(PCACHE_NSEC / 2)

extern int64 PCacheClockOffset(void);
extern uint64 PCacheGenerationOf(const ControlFileData *control);
extern uint64 PCacheLedgerGeneration(const PCacheSuperblock *sb,
									 const ControlFileData *control);
extern void PCacheSightingMake(PCacheSighting *sighting, const ControlFileData *control,
							   int64 seen_at);
extern void PCacheSightingStore(const PCacheMapping *map, PCacheSighting *sighting);
extern bool PCacheReadSighting(int fd, PCacheSighting *sighting);

#endif							/* PCACHE_WITNESS_H */
