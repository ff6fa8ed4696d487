/*-------------------------------------------------------------------------
 *
 * pcache_describe.c
 *	  What a descriptor says of a buffer.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_describe.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/pcache_run.h"

/*
 * Fill in a descriptor for a buffer with the given tag and state, but for
 * seq, epoch and CRC.  The caller makes sure that the three go together.
 *
 * lsn_bound is InvalidXLogRecPtr, or an LSN that no page exceeds: then the
 * page is not looked at, unless it may name blocks (rule "a save in memory
 * bounds LSNs by the checkpoint").
 */
void
PCacheDescribe(PCacheDescriptor *desc, uint32 slot, const BufferTag *tag,
			   uint32 state, XLogRecPtr lsn_bound)
{
	bool		bounded = !XLogRecPtrIsInvalid(lsn_bound);

	PCacheDescriptorDescribe(desc, slot, BufTagGetRelFileLocator(tag),
							 BufTagGetForkNum(tag), tag->blockNum,
							 bounded ? lsn_bound : PageGetLSN(BufferGetPage(slot + 1)),
							 (state & BM_PERMANENT) != 0,
							 BUF_STATE_GET_USAGECOUNT(state));
	if (bounded)
		desc->flags |= PCACHE_DESC_LSN_BOUND;
	if (PCacheNamesBlocks(tag, BufferGetPage(slot + 1)))
		desc->flags |= PCACHE_DESC_NAMES_BLOCKS;
}
