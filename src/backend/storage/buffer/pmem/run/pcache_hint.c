/*-------------------------------------------------------------------------
 *
 * pcache_hint.c
 *	  Changes without WAL of their own that rely on WAL about another page.
 *
 * A kept page has whatever was last in memory.  A change that has no WAL
 * record must therefore not say more than durable WAL does, because nothing
 * takes it back if WAL is lost.  See "Changes without WAL" in README.always.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/run/pcache_hint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/spgist_private.h"
#include "access/xlog.h"
#include "storage/bufmgr.h"
#include "storage/pcache_run.h"

/*
 * Is all WAL durable that made a heap page what it is?
 *
 * The caller has the buffer pinned, and its content lock at least shared.  We
 * take no other lock that anybody waits for, allocate nothing, and raise no
 * error, so this may be called wherever a hint bit may be set.  During recovery
 * "durable" means up to minRecoveryPoint, as XLogNeedsFlush() has it; nobody
 * uses the answer there, since a standby kills no index entries.
 *
 * Pages of unlogged and temporary tables have no LSN, and count as durable.
 */
bool
PersistentCacheHeapPageIsDurable(Buffer buffer)
{
	return !XLogNeedsFlush(BufferGetLSNAtomic(buffer));
}

/*
 * All tuples of the HOT chain that begins at this offset of a heap page are
 * dead.  Is that so after any crash?
 *
 * It is if the page is durable, and also, whatever WAL is lost, if who inserted
 * the first tuple has aborted: nobody else could update it, so all of the chain
 * goes with it.  Otherwise a transaction could not reuse the space that its own
 * subtransactions have left in an index.
 *
 * The caller has the buffer pinned, and its content lock at least shared.
 */
bool
PersistentCacheDeathIsDurable(Buffer buffer, OffsetNumber root)
{
	Page		page = BufferGetPage(buffer);
	ItemId		item;

	if (PersistentCacheHeapPageIsDurable(buffer))
		return true;
	if (root < FirstOffsetNumber || root > PageGetMaxOffsetNumber(page))
		return false;
	item = PageGetItemId(page, root);
	return ItemIdIsNormal(item) &&
		HeapTupleHeaderXminInvalid((HeapTupleHeader) PageGetItem(page, item));
}

/*
 * Does this page name blocks of its own file that were added without this page
 * getting a WAL record?  The metapage of an SP-GiST index does: it remembers the
 * pages that were used last.
 *
 * The caller may have no lock at all, as the sealer: then the answer is worth
 * something only if the page turns out not to have changed meanwhile.
 */
bool
PCacheNamesBlocks(const BufferTag *tag, Page page)
{
	const SpGistPageOpaqueData *opaque;

	if (tag->blockNum != SPGIST_METAPAGE_BLKNO ||
		BufTagGetForkNum(tag) != MAIN_FORKNUM ||
		((PageHeader) page)->pd_special != BLCKSZ - MAXALIGN(sizeof(SpGistPageOpaqueData)))
		return false;
	opaque = (const SpGistPageOpaqueData *)
		((char *) page + BLCKSZ - MAXALIGN(sizeof(SpGistPageOpaqueData)));
	return opaque->spgist_page_id == SPGIST_PAGE_ID &&
		(opaque->flags & SPGIST_META) != 0;
}
