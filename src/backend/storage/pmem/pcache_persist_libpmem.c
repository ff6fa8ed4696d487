/*-------------------------------------------------------------------------
 *
 * pcache_persist_libpmem.c
 *	  Stores to the pool through libpmem.
 *
 * Used by the server and by pg_pcache when configured --with-libpmem; the
 * twin is pcache_persist_none.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/pmem/pcache_persist_libpmem.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#ifdef USE_LIBPMEM

#include <libpmem.h>

#include "storage/pcache_persist.h"

bool
PCacheMap(const char *path, bool volatile_memory, PCacheMapping *mapping)
{
	int			is_pmem;

	/*
	 * pmem_map_file() asks for MAP_SYNC and aligns the mapping so that huge
	 * pages can be used.  With PMEM_IS_PMEM_FORCE=1 it reports persistent
	 * memory everywhere, and we flush there too.
	 */
	mapping->base = pmem_map_file(path, 0, 0, 0, &mapping->length, &is_pmem);
	if (mapping->base == NULL)
		return false;

	if (is_pmem)
		mapping->kind = PCACHE_PERSIST_PMEM;
	else if (volatile_memory)
		mapping->kind = PCACHE_PERSIST_MEMORY;
	else
		mapping->kind = PCACHE_PERSIST_FILE;
	return true;
}

bool
PCacheUnmap(PCacheMapping *mapping)
{
	int			rc = pmem_unmap(mapping->base, mapping->length);

	mapping->base = NULL;
	return rc == 0;
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	if (mapping->kind == PCACHE_PERSIST_PMEM)
		pmem_flush(addr, len);
}

bool
PCacheDrain(const PCacheMapping *mapping)
{
	switch (mapping->kind)
	{
		case PCACHE_PERSIST_PMEM:
			pmem_drain();
			return true;
		case PCACHE_PERSIST_MEMORY:
			return true;
		case PCACHE_PERSIST_FILE:

			/*
			 * The kernel does not tell apart what was flushed; write back all
			 * that is dirty.
			 */
			return pmem_msync(mapping->base, mapping->length) == 0;
	}
	return false;				/* keep compiler quiet */
}

bool
PCachePersist(const PCacheMapping *mapping, const void *addr, size_t len)
{
	switch (mapping->kind)
	{
		case PCACHE_PERSIST_PMEM:
			pmem_persist(addr, len);
			return true;
		case PCACHE_PERSIST_MEMORY:
			return true;
		case PCACHE_PERSIST_FILE:
			return pmem_msync(addr, len) == 0;
	}
	return false;				/* keep compiler quiet */
}

void
PCacheMemcpyNodrain(const PCacheMapping *mapping,
					void *dest, const void *src, size_t len)
{
	if (mapping->kind == PCACHE_PERSIST_PMEM)
		pmem_memcpy_nodrain(dest, src, len);
	else
		memcpy(dest, src, len);
}

void
PCacheStreamNodrain(const PCacheMapping *mapping,
					void *dest, const void *src, size_t len)
{
	Assert((uintptr_t) dest % PCACHE_CACHE_LINE == 0 && len % PCACHE_CACHE_LINE == 0);
	if (mapping->kind == PCACHE_PERSIST_PMEM)
		pmem_memcpy(dest, src, len, PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL);
	else
		memcpy(dest, src, len);
}

#endif							/* USE_LIBPMEM */
