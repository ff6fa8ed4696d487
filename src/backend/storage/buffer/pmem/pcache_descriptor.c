/*-------------------------------------------------------------------------
 *
 * pcache_descriptor.c
 *	  The descriptor of one slot of the pool.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_descriptor.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "port/pg_crc32c.h"
#include "storage/pcache_pool.h"

/* CRC-32C over all but seq, which changes without the rest. */
uint32
PCacheDescriptorCrc(const PCacheDescriptor *desc)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, (const char *) desc + sizeof(desc->seq),
				offsetof(PCacheDescriptor, crc) - sizeof(desc->seq));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Read count descriptors, beginning with slot first.
 *
 * By read(), not through the mapping, so that a bad block is an error and
 * not a SIGBUS.  Descriptors that cannot be read come back damaged, which
 * drops their pages and no others.  Returns false if there was any.
 */
bool
PCacheReadDescriptors(int fd, uint32 first, uint32 count,
					  PCacheDescriptor *descs)
{
	off_t		offset = PCACHE_DESCRIPTORS_OFFSET +
		(off_t) first * sizeof(PCacheDescriptor);
	bool		complete = true;

	if (PCacheReadExact(fd, descs, count * sizeof(PCacheDescriptor), offset))
		return true;

	for (uint32 i = 0; i < count; i++)
	{
		if (!PCacheReadExact(fd, &descs[i], sizeof(PCacheDescriptor),
							 offset + i * sizeof(PCacheDescriptor)))
		{
			memset(&descs[i], 0, sizeof(PCacheDescriptor));
			complete = false;
		}
	}
	return complete;
}
