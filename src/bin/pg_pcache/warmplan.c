/*-------------------------------------------------------------------------
 *
 * warmplan.c
 *	  Which pages are read from the data files, and where they go.
 *
 * Pages are planned in the order in which they are to be read, and go into
 * the free slots in ascending order, so that what is read at once mostly lies
 * together in the pool as well.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/warmplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "warm.h"

/*
 * Begin with a plan without pages.  The slots given, in ascending order, are
 * freed with the plan.
 */
void
BeginWarmPlan(WarmPlan *plan, const RelationFiles *files,
			  uint32 *slots, uint64 n_slots)
{
	memset(plan, 0, sizeof(*plan));
	plan->files = files;
	plan->slots = slots;
	plan->n_slots = n_slots;
	plan->blocks = pg_malloc_array(uint32, Max(n_slots, 1));
	plan->usage_counts = pg_malloc_array(uint8, Max(n_slots, 1));
}

void
FreeWarmPlan(WarmPlan *plan)
{
	pg_free(plan->slots);
	pg_free(plan->blocks);
	pg_free(plan->usage_counts);
	pg_free(plan->tasks);
}

/* Is a block close enough behind those of a task to be read with them? */
static bool
TaskCanTake(const WarmTask *task, int file, uint32 block)
{
	uint32		end = task->first_block + task->n_blocks;

	return task->file == file && block >= end && block - end <= MAX_GAP &&
		block - task->first_block < BLOCKS_PER_TASK &&
		block / RELSEG_SIZE == task->first_block / RELSEG_SIZE;
}

/* Plan a page for the next slot, of which there must be one. */
static void
AddPage(WarmPlan *plan, int file, uint32 block, uint8 usage_count)
{
	WarmTask   *task = plan->n_tasks > 0 ? &plan->tasks[plan->n_tasks - 1] : NULL;

	Assert(plan->n_pages < plan->n_slots);
	if (task == NULL || !TaskCanTake(task, file, block))
	{
		if (plan->n_tasks == plan->allocated_tasks)
		{
			plan->allocated_tasks = Max(1024, plan->allocated_tasks * 2);
			plan->tasks = pg_realloc_array(plan->tasks, WarmTask,
										   plan->allocated_tasks);
		}
		task = &plan->tasks[plan->n_tasks++];
		task->file = file;
		task->first_block = block;
		task->n_pages = 0;
		task->first_page = plan->n_pages;
	}
	task->n_blocks = block - task->first_block + 1;
	task->n_pages++;
	plan->blocks[plan->n_pages] = block;
	plan->usage_counts[plan->n_pages] = usage_count;
	plan->n_pages++;
}

/*
 * Plan all pages of the files, in the order of these, until no slot is left.
 * Those that the pool has already, according to scan if that is not NULL, stay
 * where they are.
 */
void
PlanAllPages(WarmPlan *plan, bool drop_unlogged, const PageScan *scan)
{
	const RelationFiles *files = plan->files;
	WarmResult *result = &plan->result;

	result->relations = files->n_relations;
	result->file_pages = files->n_blocks;
	for (int i = 0; i < files->n; i++)
	{
		const RelationFile *file = &files->files[i];

		/* these are reset by the next start */
		if (file->unlogged && drop_unlogged)
			continue;
		for (uint64 block = 0; block < file->nblocks; block++)
		{
			if (scan != NULL && ScanHasPage(scan, PageKey(&file->rlocator, file->fork, block)))
				result->already++;
			else if (plan->n_pages == plan->n_slots)
				result->no_room++;
			else
				AddPage(plan, i, block, USAGE_COUNT);
		}
	}
	result->read = plan->n_pages;
}

/*
 * Which of the pages go into so many slots, by usage count?  All that are
 * hotter than the result, and as many of those that are as hot as *of_coldest
 * says.  The result is -1 if all pages fit.
 */
static int
ChooseColdest(const struct PageList *list, uint64 n_slots, uint64 *of_coldest)
{
	uint64		pages[PG_UINT8_MAX + 1] = {0};

	for (uint64 i = 0; i < list->n; i++)
		pages[list->pages[i].usage_count]++;
	*of_coldest = 0;
	for (int usage = PG_UINT8_MAX; usage >= 0; usage--)
	{
		if (pages[usage] > n_slots)
		{
			*of_coldest = n_slots;
			return usage;
		}
		n_slots -= pages[usage];
	}
	return -1;
}

/*
 * Plan the pages of a list, which LocateListedPages() has put in file order.
 * Those that the pool has already, according to scan if that is not NULL, stay
 * where they are, and are taken off the list.
 *
 * If there are not enough slots for the rest, the hottest are taken, and of
 * those that are equally hot the first ones in file order.
 */
void
PlanListedPages(WarmPlan *plan, struct PageList *list, const PageScan *scan)
{
	const RelationFile *files = plan->files->files;
	WarmResult *result = &plan->result;
	uint64		missing = 0;
	uint64		of_coldest;
	int			coldest;
	int			file = 0;

	*result = list->result;
	for (uint64 i = 0; i < list->n; i++)
	{
		if (scan != NULL && ScanHasPage(scan, list->pages[i].key))
			result->already++;
		else
			list->pages[missing++] = list->pages[i];
	}
	list->n = missing;

	coldest = ChooseColdest(list, plan->n_slots, &of_coldest);
	for (uint64 i = 0; i < list->n; i++)
	{
		const ListedPage *page = &list->pages[i];

		if (page->usage_count < coldest ||
			(page->usage_count == coldest && of_coldest == 0))
		{
			result->no_room++;
			continue;
		}
		if (page->usage_count == coldest)
			of_coldest--;
		/* forks are in the same order, but some have no page on the list */
		while (files[file].rlocator.spcOid != page->key.spc_oid ||
			   files[file].rlocator.dbOid != page->key.db_oid ||
			   files[file].rlocator.relNumber != page->key.rel_number ||
			   files[file].fork != page->key.fork_number)
			file++;
		AddPage(plan, file, page->key.block_number, page->usage_count);
	}
	result->read = plan->n_pages;
}
