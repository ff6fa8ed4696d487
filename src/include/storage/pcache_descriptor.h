/*-------------------------------------------------------------------------
 *
 * pcache_descriptor.h
 *	  Descriptors of the pages in the pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_descriptor.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_DESCRIPTOR_H
#define PCACHE_DESCRIPTOR_H

#include "common/relpath.h"
#include "storage/pcache_layout.h"
#include "storage/pcache_persist.h"
#include "storage/relfilelocator.h"

/* Which page a descriptor speaks of; without padding, to be hashed as it is. */
typedef struct PCachePageKey
{
	uint32		spc_oid;
	uint32		db_oid;
	uint32		rel_number;
	int32		fork_number;
	uint32		block_number;
} PCachePageKey;

extern PCachePageKey PCacheDescriptorKey(const PCacheDescriptor *desc);
extern uint32 PCacheDescriptorCrc(const PCacheDescriptor *desc);
extern bool PCacheDescriptorIsIntact(const PCacheDescriptor *desc, uint32 slot);
extern bool PCacheDescriptorHasSaneTag(const PCacheDescriptor *desc);
extern void PCacheDescriptorSetFree(PCacheDescriptor *desc);
extern void PCacheDescriptorDescribe(PCacheDescriptor *desc, uint32 slot,
									 RelFileLocator rlocator, ForkNumber fork,
									 uint32 block_number, uint64 page_lsn,
									 bool permanent, uint8 usage_count);
extern void PCacheDescriptorSetSealed(PCacheDescriptor *desc);
extern void PCacheDescriptorStore(const PCacheMapping *map,
								  PCacheDescriptor *dest,
								  const PCacheDescriptor *desc);
extern bool PCacheReadDescriptors(int fd, uint32 first, uint32 count,
								  PCacheDescriptor *descs);

#endif							/* PCACHE_DESCRIPTOR_H */
