/*-------------------------------------------------------------------------
 *
 * pagelist.c
 *	  A list of pages that are to be in the pool.
 *
 * The list only proposes.  It may be of another time, so a relation may be
 * gone by now, or another one may have its file; what a page contains comes
 * from the data files alone.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/pagelist.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "warm.h"

/* In file order, and of the same page the hottest entry first. */
static inline int
CompareInFileOrder(const ListedPage *a, const ListedPage *b)
{
	const PCachePageKey *left = &a->key;
	const PCachePageKey *right = &b->key;

	if (left->spc_oid != right->spc_oid)
		return left->spc_oid < right->spc_oid ? -1 : 1;
	if (left->db_oid != right->db_oid)
		return left->db_oid < right->db_oid ? -1 : 1;
	if (left->rel_number != right->rel_number)
		return left->rel_number < right->rel_number ? -1 : 1;
	if (left->fork_number != right->fork_number)
		return left->fork_number < right->fork_number ? -1 : 1;
	if (left->block_number != right->block_number)
		return left->block_number < right->block_number ? -1 : 1;
	return (int) b->usage_count - (int) a->usage_count;
}

#define ST_SORT			SortListedPages
#define ST_ELEMENT_TYPE	ListedPage
#define ST_COMPARE(a, b)	CompareInFileOrder(a, b)
#define ST_SCOPE		static
#define ST_DEFINE
#include "lib/sort_template.h"

struct PageList *
CreatePageList(void)
{
	return pg_malloc0_object(struct PageList);
}

void
FreePageList(struct PageList *list)
{
	pg_free(list->pages);
	pg_free(list);
}

/*
 * Add a page, whose key a file can have.  The same page may be added again.
 */
void
AddToPageList(struct PageList *list, const PCachePageKey *key, uint8 usage_count)
{
	if (list->n == list->allocated)
	{
		list->allocated = Max(1024, list->allocated * 2);
		list->pages = pg_realloc_array(list->pages, ListedPage, list->allocated);
	}
	list->pages[list->n].key = *key;
	list->pages[list->n].usage_count = usage_count;
	list->n++;
}

static RelFileLocator
LocatorOf(const PCachePageKey *key)
{
	RelFileLocator rlocator = {
		.spcOid = key->spc_oid,
		.dbOid = key->db_oid,
		.relNumber = key->rel_number,
	};

	return rlocator;
}

/* Add the fork that a page is of, which has not come up before. */
static RelationFile *
AddFile(RelationFiles *files, struct PCacheRelSizes *sizes,
		const PCachePageKey *key)
{
	RelationFile *file;

	if (files->n == files->allocated)
	{
		files->allocated = Max(1024, files->allocated * 2);
		files->files = pg_realloc_array(files->files, RelationFile, files->allocated);
	}
	file = &files->files[files->n];
	memset(file, 0, sizeof(*file));
	file->rlocator = LocatorOf(key);
	file->fork = key->fork_number;
	file->nblocks = Max(0, PCacheRelSize(sizes, file->rlocator, file->fork));
	/* an init fork is there for recovery, which resets the other ones */
	file->unlogged = file->fork != INIT_FORKNUM &&
		PCacheRelSize(sizes, file->rlocator, INIT_FORKNUM) >= 0;
	if (files->n == 0 ||
		!RelFileLocatorEquals(file[-1].rlocator, file->rlocator))
		files->n_relations++;
	files->n_blocks += file->nblocks;
	files->n++;
	return file;
}

/*
 * Put the list in file order, and take pages off that are listed twice, or
 * that no file has.  Those of unlogged relations go as well, if the next start
 * resets these.  None of that is an error; list->result counts it.
 *
 * Fills in files, which has the forks that are left, in the same order.  The
 * working directory must be PGDATA.
 */
void
LocateListedPages(struct PageList *list, bool drop_unlogged,
				  RelationFiles *files)
{
	struct PCacheRelSizes *sizes = PCacheRelSizesCreate(0);
	WarmResult *result = &list->result;
	uint64		kept = 0;
	PCachePageKey last = {0};	/* no page has relation 0 */
	RelationFile *file = NULL;
	bool		exists = false;

	memset(files, 0, sizeof(*files));
	/* who has read the list may have left some out */
	result->listed = list->n + result->catalogs + result->gone;
	if (list->n > 0)
		SortListedPages(list->pages, list->n);
	for (uint64 i = 0; i < list->n; i++)
	{
		ListedPage	page = list->pages[i];
		PCachePageKey key = page.key;
		bool		same_fork = key.spc_oid == last.spc_oid &&
			key.db_oid == last.db_oid && key.rel_number == last.rel_number &&
			key.fork_number == last.fork_number;

		if (same_fork && key.block_number == last.block_number)
		{
			result->duplicates++;
			continue;
		}
		last = key;
		if (!same_fork)
		{
			exists = PCacheRelSize(sizes, LocatorOf(&key), key.fork_number) >= 0;
			if (exists)
				file = AddFile(files, sizes, &key);
		}
		if (!exists)
			result->gone++;
		else if (key.block_number >= file->nblocks)
			result->beyond_end++;
		else if (file->unlogged && drop_unlogged)
			result->unlogged++;
		else
			list->pages[kept++] = page;
	}
	list->n = kept;
	result->relations = files->n_relations;
	result->file_pages = files->n_blocks;
	PCacheRelSizesFree(sizes);
}
