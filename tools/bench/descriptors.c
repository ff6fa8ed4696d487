/*-------------------------------------------------------------------------
 *
 * descriptors.c
 *	  Make a pool of any size that has descriptors, and no blocks.
 *
 * Usage: descriptors POOL CAPACITY PAGES SPCOID DBOID RELNUMBER
 *
 * POOL is the file of a pool that was saved by a clean stop, on an ordinary
 * file system.  Afterwards it has room for CAPACITY blocks, which are all one
 * hole, and its descriptors say that the first PAGES slots hold the first PAGES
 * blocks of a relation.  So a start can be measured that keeps more pages than
 * fit into memory, as long as nobody looks at one.
 *
 * For benchmarks only: the pages are not those of the relation.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tools/bench/descriptors.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "common/logging.h"
#include "storage/pcache_descriptor.h"
#include "storage/pcache_pool.h"
#include "storage/pcache_superblock.h"

/* 4 MB of them */
#define DESCRIPTORS_PER_WRITE	65536

/* An LSN that is durable in each cluster, and not one of those that are none. */
#define ANY_LSN		UINT64CONST(0x100000)

/* Writes all, or ends the program. */
static void
WriteExact(int fd, const void *bytes, size_t length, off_t offset)
{
	if (pg_pwrite(fd, bytes, length, offset) != (ssize_t) length)
		pg_fatal("could not write %zu bytes at %lld: %m", length, (long long) offset);
}

static void
WriteDescriptors(int fd, uint64 capacity, uint64 pages, RelFileLocator rlocator)
{
	PCacheDescriptor *descs = pg_malloc_array(PCacheDescriptor, DESCRIPTORS_PER_WRITE);

	for (uint64 first = 0; first < capacity; first += DESCRIPTORS_PER_WRITE)
	{
		uint64		n = Min(DESCRIPTORS_PER_WRITE, capacity - first);

		for (uint64 i = 0; i < n; i++)
		{
			if (first + i >= pages)
			{
				PCacheDescriptorSetFree(&descs[i]);
				continue;
			}
			PCacheDescriptorDescribe(&descs[i], first + i, rlocator, MAIN_FORKNUM,
									 first + i, ANY_LSN, true, 1);
			PCacheDescriptorSetSealed(&descs[i]);
		}
		WriteExact(fd, descs, n * sizeof(PCacheDescriptor),
				   PCACHE_DESCRIPTORS_OFFSET + first * sizeof(PCacheDescriptor));
	}
	pg_free(descs);
}

/* Both superblocks, with the geometry of the new size. */
static void
WriteSuperblocks(int fd, PCacheSuperblock *sb, uint64 capacity, uint64 pages)
{
	PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);

	if (ftruncate(fd, PCACHE_DESCRIPTORS_OFFSET) < 0 ||
		ftruncate(fd, g.pool_size) < 0)
		pg_fatal("could not truncate the file to %llu bytes: %m",
				 (unsigned long long) g.pool_size);
	sb->capacity = capacity;
	sb->pool_size = g.pool_size;
	sb->blocks_offset = g.blocks_offset;
	sb->slots_used = capacity;
	sb->saved_pages = pages;
	PCacheSuperblockSetCrc(sb);
	WriteExact(fd, sb, sizeof(*sb), PCACHE_SUPERBLOCK_OFFSET);
	WriteExact(fd, sb, sizeof(*sb), PCACHE_COPY_OFFSET);
}

int
main(int argc, char **argv)
{
	PCacheSuperblocks superblocks;
	RelFileLocator rlocator;
	uint64		capacity;
	uint64		pages;
	int			fd;

	pg_logging_init(argv[0]);
	if (argc != 7)
	{
		fprintf(stderr, "usage: descriptors POOL CAPACITY PAGES SPCOID DBOID RELNUMBER\n");
		return 1;
	}
	capacity = strtou64(argv[2], NULL, 10);
	pages = strtou64(argv[3], NULL, 10);
	rlocator.spcOid = strtoul(argv[4], NULL, 10);
	rlocator.dbOid = strtoul(argv[5], NULL, 10);
	rlocator.relNumber = strtoul(argv[6], NULL, 10);
	if (capacity == 0 || capacity > PCACHE_MAX_CAPACITY || pages > capacity)
		pg_fatal("there cannot be %s pages in %s slots", argv[3], argv[2]);

	fd = open(argv[1], O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		pg_fatal("could not open file \"%s\": %m", argv[1]);
	PCacheReadSuperblocks(fd, &superblocks);
	if (superblocks.source == PCACHE_SB_NONE)
		pg_fatal("\"%s\" is no pool: %s", argv[1], superblocks.first_error.message);
	if (superblocks.chosen.state != PCACHE_STATE_CLEAN)
		pg_fatal("pool \"%s\" was not saved by a clean stop", argv[1]);

	WriteSuperblocks(fd, &superblocks.chosen, capacity, pages);
	WriteDescriptors(fd, capacity, pages, rlocator);
	if (close(fd) < 0)
		pg_fatal("could not close file \"%s\": %m", argv[1]);
	return 0;
}
