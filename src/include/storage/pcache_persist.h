/*-------------------------------------------------------------------------
 *
 * pcache_persist.h
 *	  The only way by which the persistent cache stores to its media.
 *
 * Two implementations: pcache_persist_libpmem.c calls the dynamically linked
 * libpmem, so that a preloaded library can observe and fault every call;
 * pcache_persist_none.c does without it, and then persistent memory is
 * treated like any other file.
 *
 * A flush starts to make a range durable, a drain waits until all ranges
 * that this process flushed before are.  Neither orders anything for other
 * processes.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_persist.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_PERSIST_H
#define PCACHE_PERSIST_H

/* what is flushed at once */
#define PCACHE_CACHE_LINE		64

/* How a mapping is made durable. */
typedef enum PCachePersistKind
{
	PCACHE_PERSIST_FILE,		/* by msync() */
	PCACHE_PERSIST_MEMORY,		/* not at all: it lives as long as the host */
	PCACHE_PERSIST_PMEM,		/* by flushing CPU cache lines */
} PCachePersistKind;

typedef struct PCacheMapping
{
	char	   *base;			/* NULL if not mapped; 2 MiB aligned for any
								 * file of at least 4 MiB */
	size_t		length;			/* in bytes */
	PCachePersistKind kind;
} PCacheMapping;

/*
 * Map an existing file, whole, shared and writable.  With volatile_memory
 * the file is known to lie on tmpfs or hugetlbfs.  Returns false with errno
 * set.
 */
extern bool PCacheMap(const char *path, bool volatile_memory,
					  PCacheMapping *mapping);
extern bool PCacheUnmap(PCacheMapping *mapping);

/* Start to make [addr, addr + len) durable. */
extern void PCacheFlush(const PCacheMapping *mapping,
						const void *addr, size_t len);

/* Wait for all that was flushed.  Returns false with errno set. */
extern bool PCacheDrain(const PCacheMapping *mapping);

/* Flush and drain one range.  Returns false with errno set. */
extern bool PCachePersist(const PCacheMapping *mapping,
						  const void *addr, size_t len);

/* Copy and flush, possibly past the CPU caches; needs a drain. */
extern void PCacheMemcpyNodrain(const PCacheMapping *mapping,
								void *dest, const void *src, size_t len);

/*
 * The same for whole cache lines that will not be read soon: always past the
 * CPU caches, so that the lines need not be fetched first.
 */
extern void PCacheStreamNodrain(const PCacheMapping *mapping,
								void *dest, const void *src, size_t len);

#endif							/* PCACHE_PERSIST_H */
