/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *	  What the verbs share that change a pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/rebuild.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef REBUILD_H
#define REBUILD_H

#include "pg_pcache.h"

/* poolio.c */
extern void RebuildStep(const char *name);
extern PCacheSuperblock *RebuildSuperblock(Rebuild *r);
extern bool SuperblockIsUsable(const Rebuild *r);
extern PCacheDescriptor *MappedDescriptor(const Rebuild *r, uint64 slot);
pg_noreturn extern void FailToWrite(const Rebuild *r);
extern void DrainPool(const Rebuild *r);
extern void StoreSuperblock(Rebuild *r);
extern void MapPool(Rebuild *r);
extern bool SlotIsBad(const Rebuild *r, const PCacheSuperblock *sb, uint64 slot);
extern void FreeSlot(const Rebuild *r, uint64 slot);
extern void ForgetHeader(const Rebuild *r, uint64 slot);
extern PCacheGeometry GeometryFor(const PCachePool *pool, uint64 capacity);
extern void EmptyPool(PCachePool *pool, PCacheSuperblocks *superblocks,
					  const ControlFileData *control, uint64 capacity);

/* rebuild.c */
extern void ConcludeRebuild(Rebuild *r);

/* clear.c */
extern void ClearBadBlocks(Rebuild *r);

/* repair.c */
extern bool IsDamaged(PCachePageVerdict verdict);
extern void Repair(Rebuild *r);


#endif							/* REBUILD_H */
