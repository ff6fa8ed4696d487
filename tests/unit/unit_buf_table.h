/*-------------------------------------------------------------------------
 *
 * unit_buf_table.h
 *	  What buf_table.c asks of the server, and buffers without pages.
 *
 * To be included after buf_table.c and unit_server.h.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit_buf_table.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_BUF_TABLE_H
#define UNIT_BUF_TABLE_H

#include "catalog/pg_tablespace_d.h"
#include "unit_shmem.h"

int			NBuffers;
BufferDescPadded *BufferDescriptors;

static void *shmem = NULL;
static bool attach = false;
static sigjmp_buf error_escape;

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	assert_string_equal(name, "Shared Buffer Lookup Table");
	*found = attach;
	if (!attach)
	{
		free(shmem);
		shmem = aligned_alloc(PG_CACHE_LINE_SIZE, CACHELINEALIGN(size));
		memset(shmem, 0, size);
	}
	return shmem;
}

bool
errstart(int elevel, const char *domain)
{
	assert_int_equal(elevel, ERROR);
	siglongjmp(error_escape, 1);
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errmsg_internal(const char *fmt,...)
{
	return 0;
}

/* Make a table for n buffers without tags. */
static void
Begin(int n)
{
	NBuffers = n;
	free(BufferDescriptors);
	BufferDescriptors = aligned_alloc(PG_CACHE_LINE_SIZE,
									  CACHELINEALIGN(n * sizeof(BufferDescPadded)));
	memset(BufferDescriptors, 0, n * sizeof(BufferDescPadded));
	for (int i = 0; i < n; i++)
	{
		GetBufferDescriptor(i)->buf_id = i;
		ClearBufferTag(&GetBufferDescriptor(i)->tag);
	}
	InitBufTable(n);
}

static void
SetTag(int buf_id, const BufferTag *tag)
{
	BufferDesc *buf = GetBufferDescriptor(buf_id);

	buf->tag = *tag;
	pg_atomic_write_u32(&buf->state, BM_TAG_VALID);
}

static BufferTag
BlockTag(BlockNumber blkno)
{
	RelFileLocator rlocator = {DEFAULTTABLESPACE_OID, 5, 16384};
	BufferTag	tag;

	InitBufferTag(&tag, &rlocator, MAIN_FORKNUM, blkno);
	return tag;
}

#endif							/* UNIT_BUF_TABLE_H */
