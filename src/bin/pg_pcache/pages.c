/*-------------------------------------------------------------------------
 *
 * pages.c
 *	  pg_pcache verify --pages: pages of the pool against those of the data files.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pages.c
 *
 *-------------------------------------------------------------------------
 */
/* not postgres_fe.h, for htup_details.h */
#ifndef FRONTEND
#define FRONTEND 1
#endif
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "common/logging.h"
#include "pg_pcache.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"
#include "storage/checksum_impl.h"

/* Pages that are named one by one; the others are only counted. */
#define MAX_PAGES_TOLD	20

/* Hint bits of a heap tuple, within the second byte of t_infomask. */
#define HINT_BITS \
	((HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID | \
	  HEAP_XMAX_COMMITTED | HEAP_XMAX_INVALID) >> 8)
#ifdef WORDS_BIGENDIAN
#define HINT_BYTE	offsetof(HeapTupleHeaderData, t_infomask)
#else
#define HINT_BYTE	(offsetof(HeapTupleHeaderData, t_infomask) + 1)
#endif

/* An open segment of a relation fork; fd is -1 if there is none. */
typedef struct SegmentFile
{
	int			fd;
	RelPathStr	path;			/* of the fork */
	uint32		segment;
} SegmentFile;

static bool
IsAllZeros(const PGIOAlignedBlock *page)
{
	for (int i = 0; i < BLCKSZ; i++)
	{
		if (page->data[i] != 0)
			return false;
	}
	return true;
}

static bool
HeaderIsSane(const PageHeaderData *header)
{
	return (header->pd_flags & ~PD_VALID_FLAG_BITS) == 0 &&
		header->pd_lower <= header->pd_upper &&
		header->pd_upper <= header->pd_special &&
		header->pd_special <= BLCKSZ &&
		header->pd_special == MAXALIGN(header->pd_special);
}

/*
 * Would the server refuse this page of a data file for its checksum?  block_number is
 * that within the relation fork.
 */
static bool
ChecksumIsWrong(PGIOAlignedBlock *page, uint32 block_number, bool checksums)
{
	const PageHeaderData *header = (const PageHeaderData *) page->data;

	return checksums && !PageIsNew((Page) page->data) && HeaderIsSane(header) &&
		pg_checksum_page(page->data, block_number) != header->pd_checksum;
}

static uint64
PageLsn(const PGIOAlignedBlock *page)
{
	return PageGetLSN((Page) page->data);
}

/*
 * Do two pages that are not the same differ only in what PostgreSQL may change
 * without WAL and without marking the page dirty?
 *
 * Nobody tells what kind of page this is, so this is generous: all of the
 * header but the LSN and where the parts of the page lie; flags of line
 * pointers; the byte with a heap tuple's hint bits of each item; the special
 * space, where indexes have their flags.
 */
static bool
DifferInHintsOnly(const PGIOAlignedBlock *a, const PGIOAlignedBlock *b)
{
	const PageHeaderData *header = (const PageHeaderData *) a->data;
	const PageHeaderData *other = (const PageHeaderData *) b->data;
	PGIOAlignedBlock masked[2];
	int			n_items;

	if (!HeaderIsSane(header) ||
		header->pd_lower < SizeOfPageHeaderData ||
		header->pd_lower != other->pd_lower ||
		header->pd_upper != other->pd_upper ||
		header->pd_special != other->pd_special ||
		header->pd_pagesize_version != other->pd_pagesize_version)
		return false;

	masked[0] = *a;
	masked[1] = *b;
	n_items = (header->pd_lower - SizeOfPageHeaderData) / sizeof(ItemIdData);
	for (int side = 0; side < 2; side++)
	{
		PageHeader	p = (PageHeader) masked[side].data;

		p->pd_checksum = 0;
		p->pd_flags = 0;
		p->pd_prune_xid = InvalidTransactionId;
		for (int i = 0; i < n_items; i++)
		{
			ItemId		item = &p->pd_linp[i];

			if (item->lp_len > 0 && item->lp_off >= header->pd_upper &&
				item->lp_off + HINT_BYTE < header->pd_special)
				masked[side].data[item->lp_off + HINT_BYTE] &= ~HINT_BITS;
			item->lp_flags = 0;
		}
		memset(masked[side].data + header->pd_special, 0,
			   BLCKSZ - header->pd_special);
	}
	return memcmp(masked[0].data, masked[1].data, BLCKSZ) == 0;
}

/* The last two bytes of a page of SP-GiST, see access/spgist_private.h. */
#define SPGIST_ID	0xFF82

/* Is it an SP-GiST page that became empty? */
static bool
IsEmptySpGist(const PGIOAlignedBlock *page)
{
	const PageHeaderData *header = (const PageHeaderData *) page->data;
	uint16		id;

	memcpy(&id, page->data + BLCKSZ - sizeof(id), sizeof(id));
	return id == SPGIST_ID && header->pd_lower == SizeOfPageHeaderData;
}

/*
 * Has a page nothing but its header, without an LSN, and its special space?
 * Indexes prepare pages for later and leave them clean, so their file may still
 * have zeros.  With SP-GiST it may also have the page as it was when it became
 * empty.
 */
static bool
IsOnlyPrepared(const PGIOAlignedBlock *page)
{
	const PageHeaderData *header = (const PageHeaderData *) page->data;

	if (PageLsn(page) != 0 || header->pd_lower != SizeOfPageHeaderData)
		return false;
	for (int i = SizeOfPageHeaderData; i < header->pd_special; i++)
	{
		if (page->data[i] != 0)
			return false;
	}
	return true;
}

/*
 * Has a page the LSN that its descriptor tells, or, if that is a bound, none
 * after it?  LSNs of unlogged relations count something else than WAL.
 */
static bool
LsnFits(const PGIOAlignedBlock *page, const PCacheDescriptor *desc)
{
	if ((desc->flags & PCACHE_DESC_LSN_BOUND) == 0)
		return PageLsn(page) == desc->page_lsn;
	return (desc->flags & PCACHE_DESC_PERMANENT) == 0 ||
		PageLsn(page) <= desc->page_lsn;
}

/*
 * Compare a page of the pool, which passed its gate, with what its file has.  A
 * checksum is valid only in the file: it is set in a copy of the page, when that is
 * written.
 */
static PageComparison
ComparePages(const PGIOAlignedBlock *cached, PGIOAlignedBlock *stored,
			 const PCacheDescriptor *desc, bool checksums)
{
	const PageHeaderData *header = (const PageHeaderData *) cached->data;
	PGIOAlignedBlock same_checksum = *stored;

	if (!LsnFits(cached, desc))
		return PAGE_IMPOSSIBLE;
	if (PageIsNew((Page) cached->data) ? !IsAllZeros(cached) : !HeaderIsSane(header))
		return PAGE_IMPOSSIBLE;

	((PageHeader) same_checksum.data)->pd_checksum = header->pd_checksum;
	if (memcmp(cached->data, same_checksum.data, BLCKSZ) == 0)
		return ChecksumIsWrong(stored, desc->block_number, checksums) ?
			PAGE_STORED_CHECKSUM : PAGE_EQUAL;

	if (IsOnlyPrepared(cached) &&
		(IsAllZeros(stored) || (IsEmptySpGist(cached) && IsEmptySpGist(stored))))
		return PAGE_HINTS;
	if (PageLsn(cached) < PageLsn(stored))
	{
		/*
		 * After a loss of power a start may have kept a page from before a
		 * hint that was logged without an image, as with full_page_writes =
		 * off.  That has only moved the LSN, and redo does not repeat it.
		 */
		((PageHeader) same_checksum.data)->pd_lsn = header->pd_lsn;
		return DifferInHintsOnly(cached, &same_checksum) ?
			PAGE_HINTS : PAGE_IMPOSSIBLE;
	}
	if (PageLsn(cached) == PageLsn(stored))
	{
		/* all of a free space map is a hint */
		if (desc->fork_number == FSM_FORKNUM ||
			DifferInHintsOnly(cached, stored))
			return PAGE_HINTS;
	}
	return PAGE_IMPOSSIBLE;
}

static void
CloseSegment(SegmentFile *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

/* The file of the relation fork that a page belongs to, its first segment. */
static RelPathStr
RelationPath(const PCacheDescriptor *desc)
{
	RelFileLocator rlocator = {
		.spcOid = desc->spc_oid,
		.dbOid = desc->db_oid,
		.relNumber = desc->rel_number,
	};

	return relpathperm(rlocator, (ForkNumber) desc->fork_number);
}

/* Open the segment that has a page, unless it is.  Returns false with errno set. */
static bool
OpenSegment(SegmentFile *file, const PCacheDescriptor *desc)
{
	uint32		segment = desc->block_number / RELSEG_SIZE;
	RelPathStr	path = RelationPath(desc);
	char		name[MAXPGPATH];

	if (file->fd >= 0 && file->segment == segment && strcmp(file->path.str, path.str) == 0)
		return true;

	CloseSegment(file);
	if (segment == 0)
		strlcpy(name, path.str, sizeof(name));
	else
		snprintf(name, sizeof(name), "%s.%u", path.str, segment);
	file->fd = open(name, O_RDONLY | O_CLOEXEC, 0);
	file->path = path;
	file->segment = segment;
	return file->fd >= 0;
}

/*
 * Read one block of a relation fork, from the working directory, which must be
 * PGDATA.  Remembers the last segment that was open, in *file.  Returns false
 * with errno set (0: beyond its end).
 */
static bool
ReadRelationBlock(SegmentFile *file, const PCacheDescriptor *desc,
				  PGIOAlignedBlock *page)
{
	return OpenSegment(file, desc) &&
		PCacheReadExact(file->fd, page->data, BLCKSZ,
						(off_t) (desc->block_number % RELSEG_SIZE) * BLCKSZ);
}

/*
 * Power was lost.  May the file have what came after the redo point, which redo repeats from
 * an image or on top of the page that is kept?  If power was lost in the middle of the write,
 * a part of it; without a checksum, a page with the LSN of the kept one may be such a part.
 */
static bool
MayBeWrittenAfter(PGIOAlignedBlock *stored, const PCacheDescriptor *desc,
				  XLogRecPtr redo, bool checksums)
{
	const PageHeaderData *header = (const PageHeaderData *) stored->data;

	return PageXLogRecPtrGet(header->pd_lsn) >= redo ||
		(!checksums && PageXLogRecPtrGet(header->pd_lsn) == desc->page_lsn) ||
		ChecksumIsWrong(stored, desc->block_number, checksums);
}

/*
 * Compare each page that will be kept with what its data file has.  By read(),
 * so that a bad block is an error, of one page.
 */
void
ComparePool(const Cluster *c, PageComparisons *result)
{
	const PCacheOptions *options = c->options;
	const PageScan *scan = &c->scan;
	const PCacheSuperblock *sb = &c->superblocks.chosen;
	SegmentFile file = {.fd = -1};
	bool		by_sums = PCacheSourceOf(sb, PCacheWasOtherBoot(sb)) == PCACHE_SOURCE_SUMS;
	PGIOAlignedBlock cached;
	PGIOAlignedBlock stored;
	int			n_told = 0;

	for (uint64 slot = 0; slot < scan->slots; slot++)
	{
		PCacheDescriptor desc;
		PageComparison comparison;

		if (options->progress && slot % 1024 == 0)
			ReportProgress(slot * BLCKSZ, scan->slots * BLCKSZ, false);
		if (scan->verdicts[slot] != PCACHE_PAGE_KEPT ||
			!PCacheReadLedger(c->pool.fd, sb, scan->generation, slot, 1, &desc))
			continue;
		if (!PCacheReadExact(c->pool.fd, cached.data, BLCKSZ,
							 sb->blocks_offset + slot * BLCKSZ) ||
			!ReadRelationBlock(&file, &desc, &stored))
			comparison = PAGE_UNREADABLE;
		else
			comparison = ComparePages(&cached, &stored, &desc,
									  c->control->data_checksum_version != 0);
		if (comparison == PAGE_IMPOSSIBLE && by_sums &&
			MayBeWrittenAfter(&stored, &desc, scan->redo, c->control->data_checksum_version != 0))
			comparison = PAGE_OLDER;
		result->counts[comparison]++;

		if (comparison == PAGE_IMPOSSIBLE || comparison == PAGE_UNREADABLE ||
			comparison == PAGE_STORED_CHECKSUM)
		{
			if (n_told++ < MAX_PAGES_TOLD)
				pg_log_error("page in slot %llu: %s: %s, block %u",
							 (unsigned long long) slot,
							 PageComparisonName(comparison),
							 RelationPath(&desc).str,
							 desc.block_number);
		}
	}
	if (n_told > MAX_PAGES_TOLD)
		pg_log_error_detail(ngettext("There is %d more such page.",
									 "There are %d more such pages.",
									 n_told - MAX_PAGES_TOLD),
							n_told - MAX_PAGES_TOLD);
	if (options->progress)
		ReportProgress(scan->slots * BLCKSZ, scan->slots * BLCKSZ, true);
	CloseSegment(&file);
}
