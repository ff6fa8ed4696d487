/*-------------------------------------------------------------------------
 *
 * pcache_harvest.c
 *	  Read the ledger, or make entries of it from a server's buffer headers.
 *
 * The postmaster makes entries at a clean stop, and the next one after its server was
 * killed.  pg_pcache does so in its own memory, to tell what a start would find.
 * Nobody uses the headers meanwhile, or the result is a statistic only.
 *
 * If power was lost the entries are those that the worker made while the server ran, and
 * the sum in each of them tells whether its page is still there.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_harvest.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_pool.h"

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
 * Likewise of a page that may have to be written, for PCacheYoungGate().  The entry is not
 * one that is to be trusted.
 */
bool
PCacheHarvestYoung(const PCacheHeaderLayout *layout, const char *header,
				   uint32 slot, PCacheDescriptor *entry)
{
	char		copy[PCACHE_HEADER_SIZE];
	uint32		state = WordAt(header, layout->state);
	uint32		clean = state & ~layout->dirty;

	memcpy(copy, header, sizeof(copy));
	memcpy(copy + layout->state, &clean, sizeof(clean));
	if (!PCacheHarvestHeader(layout, copy, slot, entry))
		return false;
	if (state != clean)
		entry->flags |= PCACHE_DESC_DIRTY;
	return true;
}

/*
 * Is this the first page of an index or of a sequence?
 *
 * These are changed without a WAL record, and so keep their LSN: the metapage of an SP-GiST
 * index names the pages that were used last, and a sequence logs one call in 32.  Such a
 * change is in the file once it was written, and in no other way.  If power is lost before a
 * checkpoint has synced it, the file may have an older state, and may lack the blocks
 * that the page names.  Other access methods have their metapages there, too.
 */
bool
PCacheIsFirstOfIndex(const PCacheDescriptor *entry, const PageHeaderData *page)
{
	return entry->fork_number == MAIN_FORKNUM && entry->block_number == 0 &&
		page->pd_special != BLCKSZ;
}

/* Free an entry, and note why: PCACHE_DESC_WAS_* */
void
PCacheSetFreeBecause(PCacheDescriptor *entry, uint8 why)
{
	PCacheDescriptorSetFree(entry);
	entry->why_free = why;
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

/*
 * Where does a start find what is in a pool?  host_restarted says whether its server ran
 * in another boot of the host.
 */
PCacheSource
PCacheSourceOf(const PCacheSuperblock *sb, bool host_restarted)
{
	if (sb->state != PCACHE_STATE_DIRTY || sb->mode != PERSISTENT_CACHE_ALWAYS)
		return PCACHE_SOURCE_SAVED;
	if (host_restarted && sb->power_rule != PCACHE_POWER_HEADERS)
		return PCACHE_SOURCE_SUMS;
	return PCacheHeaderLayoutIsSane(&sb->headers) ? PCACHE_SOURCE_HEADERS : PCACHE_SOURCE_SAVED;
}

/*
 * Power was lost.  Free the entry of a slot if its page is not in the pool as it was when
 * the entry was made: it was changed since, or the change has got to the media in part, or
 * what was flushed has not.  An entry without a sum is about a state that the pool is not
 * in any more.
 */
static void
CheckSum(int fd, uint64 blocks_offset, uint32 slot, PCacheDescriptor *entry)
{
	PGIOAlignedBlock page;
	bool		has_sum = entry->seq != PCACHE_DESC_SAVED_SEQ && entry->sum != 0;

	if (!PCacheSeqIsSealed(entry->seq))
	{
		/* by a start that has looked at headers */
		entry->why_free = 0;
		return;
	}
	if (!PCacheDescriptorIsIntact(entry, slot))
		return;
	/* by read(), so that a bad block is an error and not a SIGBUS */
	if (has_sum &&
		PCacheReadExact(fd, page.data, BLCKSZ, blocks_offset + (uint64) slot * BLCKSZ) &&
		PCacheSumOf(page.data) == entry->sum)
		return;
	PCacheSetFreeBecause(entry, has_sum ? PCACHE_DESC_WAS_LOST : 0);
}

/*
 * Likewise for n entries, beginning with a slot, that are about a generation, or about any
 * if that is 0.  Others are not going to be believed, so their pages are not read.
 */
void
PCacheCheckSums(int fd, const PCacheSuperblock *sb, uint64 generation, uint32 first, uint32 n,
				PCacheDescriptor *entries)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint64		seq = entries[i].seq;

		if (generation == 0 || seq == generation || seq == PCACHE_DESC_SAVED_SEQ ||
			!PCacheSeqIsSealed(seq))
			CheckSum(fd, sb->blocks_offset, first + i, &entries[i]);
	}
}

/*
 * Make n entries, beginning with a slot, of the headers that a killed server left.
 * Returns false if something could not be read.
 */
static bool
ReadHeaders(int fd, const PCacheSuperblock *sb, bool power_lost, uint32 first, uint32 n,
			PCacheDescriptor *entries)
{
	PCacheGeometry g = PCacheComputeGeometry(sb->capacity, PCACHE_ALIGNMENT);
	char		header[64];
	PageHeaderData page;
	bool		complete = true;

	memset(entries, 0, sizeof(PCacheDescriptor) * n);
	for (uint32 i = 0; i < n; i++)
	{
		uint64		slot = first + i;

		if (!PCacheReadExact(fd, header, sizeof(header), g.headers_offset + slot * sizeof(header)))
			complete = false;
		else if (!PCacheHarvestHeader(&sb->headers, header, slot, &entries[i]))
			continue;
		else if (!PCacheReadExact(fd, &page, SizeOfPageHeaderData, g.blocks_offset + slot * BLCKSZ))
			complete = false;
		else if (power_lost && PCacheIsFirstOfIndex(&entries[i], &page))
			PCacheSetFreeBecause(&entries[i], PCACHE_DESC_WAS_FIRST);
		else
			PCacheHarvestLsn(&entries[i], &page);
	}
	return complete;
}

/*
 * Read n entries of an open pool, beginning with a slot, as PCacheReadDescriptors() does:
 * from the ledger, or as the next start would make them.  The geometry gate must have
 * passed.  Without a superblock, it is the ledger.  generation is for PCacheCheckSums().
 */
bool
PCacheReadLedger(int fd, const PCacheSuperblock *sb, uint64 generation, uint32 first, uint32 n,
				 PCacheDescriptor *entries)
{
	bool		complete;
	bool		power_lost = sb != NULL && PCacheWasOtherBoot(sb);

	switch (sb == NULL ? PCACHE_SOURCE_SAVED : PCacheSourceOf(sb, power_lost))
	{
		case PCACHE_SOURCE_HEADERS:
			return ReadHeaders(fd, sb, power_lost, first, n, entries);
		case PCACHE_SOURCE_SUMS:
			complete = PCacheReadDescriptors(fd, first, n, entries);
			PCacheCheckSums(fd, sb, generation, first, n, entries);
			return complete;
		case PCACHE_SOURCE_SAVED:
			break;
	}
	return PCacheReadDescriptors(fd, first, n, entries);
}
