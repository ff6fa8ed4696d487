/*-------------------------------------------------------------------------
 *
 * pcache_harvest.c
 *	  Make entries of the ledger from a server's buffer headers.
 *
 * The postmaster does so at a clean stop, and the next one after its server was
 * killed.  pg_pcache does so in its own memory, to tell what a start would find.
 * Nobody uses the headers meanwhile, or the result is a statistic only.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_harvest.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_descriptor.h"
#include "storage/pcache_error.h"
#include "storage/pcache_harvest.h"

/* Does everything that a pool says of its headers lie in a header? */
bool
PCacheHeaderLayoutIsSane(const PCacheHeaderLayout *layout)
{
	return layout->present != 0 && layout->usage_count_one != 0 && layout->lock_held != 0 &&
		layout->tag + sizeof(PCachePageKey) <= PCACHE_HEADER_SIZE &&
		layout->state + sizeof(uint32) <= PCACHE_HEADER_SIZE &&
		layout->content_lock + sizeof(uint32) <= PCACHE_HEADER_SIZE;
}

static inline uint32
WordAt(const char *header, uint16 offset)
{
	uint32		word;

	memcpy(&word, header + offset, sizeof(word));
	return word;
}

/*
 * Fill in the entry of a slot, all but the page's LSN and the CRC, if the page may
 * be what its file has as far as the header tells.  Otherwise returns false, and the
 * entry is free and says why.
 *
 * A page that has to be written is not, nor is one with an I/O that was not finished,
 * or that has failed.  Whoever held the lock of its content, even a shared one, may
 * have been changing it: a hint is set before the page is dirty.  Pins alone change
 * nothing.
 */
bool
PCacheHarvestHeader(const PCacheHeaderLayout *layout, const char *header,
					uint32 slot, PCacheDescriptor *entry)
{
	uint32		state = WordAt(header, layout->state);
	int			why_free;

	if ((state & layout->present) != layout->present)
		why_free = 0;
	else if ((state & layout->dirty) != 0)
		why_free = PCACHE_DESC_WAS_DIRTY;
	else if ((state & layout->in_change) != 0 ||
			 (WordAt(header, layout->content_lock) & layout->lock_held) != 0)
		why_free = PCACHE_DESC_WAS_IN_CHANGE;
	else
	{
		memset(entry, 0, sizeof(*entry));
		memcpy(&entry->spc_oid, header + layout->tag, sizeof(PCachePageKey));
		entry->slot = slot;
		entry->version = PCACHE_DESC_VERSION;
		entry->flags = (state & layout->permanent) != 0 ? PCACHE_DESC_PERMANENT : 0;
		entry->usage_count = (state & layout->usage_count_mask) / layout->usage_count_one;
		return true;
	}
	if (entry->seq != PCACHE_DESC_FREE_SEQ)
		PCacheDescriptorSetFree(entry);
	if (entry->why_free != why_free)
		entry->why_free = why_free;
	return false;
}

/*
 * Have an entry that was filled in by PCacheHarvestHeader() be trusted, with the LSN
 * of its page.
 */
void
PCacheHarvestLsn(PCacheDescriptor *entry, const PageHeaderData *page)
{
	entry->page_lsn = PageXLogRecPtrGet(page->pd_lsn);
	PCacheDescriptorSetSealed(entry);
}

/* Is what the pool has in its headers, because the server that used it was killed? */
static bool
IsInHeaders(const PCacheSuperblock *sb)
{
	return PCacheIsLibrary() && sb != NULL && sb->state == PCACHE_STATE_DIRTY &&
		sb->mode == PERSISTENT_CACHE_ALWAYS && PCacheHeaderLayoutIsSane(&sb->headers);
}

/*
 * Read n entries of an open pool, beginning with a slot, as PCacheReadDescriptors() does:
 * from the ledger, or as the next start would make them of the headers.  The geometry
 * gate must have passed.  Without a superblock, it is the ledger.
 */
bool
PCacheReadLedger(int fd, const PCacheSuperblock *sb, uint32 first, uint32 n,
				 PCacheDescriptor *entries)
{
	PCacheGeometry g;
	char		header[64];
	PageHeaderData page;
	bool		complete = true;

	if (!IsInHeaders(sb))
		return PCacheReadDescriptors(fd, first, n, entries);
	g = PCacheComputeGeometry(sb->capacity, PCACHE_ALIGNMENT);
	memset(entries, 0, sizeof(PCacheDescriptor) * n);
	for (uint32 i = 0; i < n; i++)
	{
		uint64		slot = first + i;

		if (!PCacheReadExact(fd, header, sizeof(header), g.headers_offset + slot * sizeof(header)))
			complete = false;
		else if (!PCacheHarvestHeader(&sb->headers, header, slot, &entries[i]))
			continue;
		else if (PCacheReadExact(fd, &page, SizeOfPageHeaderData, g.blocks_offset + slot * BLCKSZ))
			PCacheHarvestLsn(&entries[i], &page);
		else
			complete = false;
	}
	return complete;
}
