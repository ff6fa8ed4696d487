/*-------------------------------------------------------------------------
 *
 * fuzz_pack.c
 *	  Make a fuzzer's input of a real cluster and its pool.
 *
 *		fuzz_pack PGDATA POOL COMMAND FILE [power]
 *
 * The cluster must be down.  POOL is the pool's file.  With "power", it is taken to be
 * on persistent memory, and power was lost.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_pack.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_input.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/controldata_utils.h"
#include "common/logging.h"

static int
Open(const char *path)
{
	int			fd = open(path, O_RDONLY, 0);

	if (fd < 0)
		pg_fatal("could not open file \"%s\": %m", path);
	return fd;
}

static void
PackPage(int fd, off_t offset, FuzzPage *packed)
{
	char		page[BLCKSZ] = {0};

	(void) PCacheReadExact(fd, page, BLCKSZ, offset);
	memcpy(packed->head, page, FUZZ_PAGE_PART);
	memcpy(packed->end, page + BLCKSZ - FUZZ_PAGE_PART, FUZZ_PAGE_PART);
}

int
main(int argc, char *argv[])
{
	FuzzInput	input = {0};
	ControlFileData *control;
	bool		crc_ok;
	PCacheSuperblock sb;
	PCacheSighting seen;
	char		path[MAXPGPATH + 64];
	int			fd;

	pg_logging_init(argv[0]);
	if (argc != 5 && argc != 6)
		pg_fatal("usage: fuzz_pack PGDATA POOL COMMAND FILE [power]");
	if (chdir(argv[1]) < 0)
		pg_fatal("could not change directory to \"%s\": %m", argv[1]);
	control = get_controlfile(".", &crc_ok);
	input.control = *control;
	pg_free(control);
	input.command = atoi(argv[3]);

	strlcpy(path, argv[2], sizeof(path));
	fd = Open(path);
	input.file_size = lseek(fd, 0, SEEK_END);
	if (!PCacheReadExact(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET))
		pg_fatal("could not read file \"%s\": %m", path);
	input.nbuffers = sb.capacity;
	FuzzPackSuperblock(&sb, &input.first);
	if (!PCacheReadExact(fd, &sb, sizeof(sb), PCACHE_COPY_OFFSET) ||
		!PCacheReadExact(fd, input.sightings, sizeof(input.sightings), PCACHE_SIGHTING_OFFSET) ||
		!PCacheReadExact(fd, input.errors, sizeof(input.errors), PCACHE_MEMORY_ERRORS_OFFSET) ||
		!PCacheReadDescriptors(fd, 0, FUZZ_DESCRIPTORS, input.descs) ||
		!PCacheReadExact(fd, input.headers, sizeof(input.headers),
						 PCacheComputeGeometry(sb.capacity, PCACHE_ALIGNMENT).headers_offset))
		pg_fatal("could not read file \"%s\": %m", path);
	FuzzPackSuperblock(&sb, &input.copy);
	for (int i = 0; i < FUZZ_PAGES; i++)
	{
		const PCacheDescriptor *desc = &input.descs[i];
		RelFileLocator rlocator = {desc->spc_oid, desc->db_oid, desc->rel_number};

		PackPage(fd, sb.blocks_offset + i * BLCKSZ, &input.pages[i]);
		if (PCacheSeqIsSealed(desc->seq))
		{
			RelPathStr	relation = relpathperm(rlocator, desc->fork_number);
			int			rel_fd = Open(relation.str);

			PackPage(rel_fd, (off_t) desc->block_number * BLCKSZ, &input.files[i]);
			close(rel_fd);
		}
	}
	close(fd);

	if (FuzzChooseSighting(&input, &seen) && seen.wal.witness != 0)
	{
		char		name[MAXFNAMELEN];
		XLogSegNo	segno;
		uint32		size = input.control.xlog_seg_size;

		XLByteToPrevSeg(seen.wal.witness, segno, size);
		XLogFileName(name, seen.wal.timeline, segno, size);
		snprintf(path, sizeof(path), XLOGDIR "/%s", name);
		fd = Open(path);
		if (!PCacheReadExact(fd, input.wal, sizeof(input.wal),
							 XLogSegmentOffset(seen.wal.witness - 1, size) + 1 - sizeof(input.wal)))
			pg_fatal("could not read file \"%s\": %m", path);
		close(fd);
	}
	if (argc == 6)
	{
		sb.fs_kind = PCACHE_FS_FSDAX;
		sb.power_rule = PCACHE_POWER_LEDGER;
		PCacheSuperblockSetCrc(&sb);
		FuzzPackSuperblock(&sb, &input.first);
		FuzzPackSuperblock(&sb, &input.copy);
		input.facts |= FUZZ_OTHER_BOOT;
	}

	fd = open(argv[4], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		pg_fatal("could not create file \"%s\": %m", argv[4]);
	FuzzWriteFile(fd, &input, sizeof(input), 0);
	close(fd);
	return 0;
}
