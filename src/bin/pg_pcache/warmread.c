/*-------------------------------------------------------------------------
 *
 * warmread.c
 *	  Read planned pages from the data files, and store them in the pool.
 *
 * Many threads take tasks in turn, so that a disk has as many requests to work
 * on.  A page that the server would not take either leaves its slot free.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/warmread.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/logging.h"
#include "port/pg_iovec.h"
#include "warm.h"
#include "workers.h"

StaticAssertDecl(BLOCKS_PER_TASK <= IOV_MAX, "a task is one read");

/* What all threads look at. */
typedef struct Reading
{
	const Rebuild *r;
	WarmPlan   *plan;
	bool		checksums;
	uint64		lsn_limit;
} Reading;

/* What one of them has. */
typedef struct WarmWorker
{
	SegmentFile segment;
	PGIOAlignedBlock *blocks;	/* what is not read into the pool itself */
	PGIOAlignedBlock **pages;	/* of a task, where they were read to */
	bool	   *readable;		/* likewise */
	WarmResult	result;
} WarmWorker;

/* Where in the pool a page goes. */
static PGIOAlignedBlock *
PoolBlock(const Reading *reading, uint32 slot)
{
	const Rebuild *r = reading->r;

	return (PGIOAlignedBlock *) (r->pool.map.base + r->superblocks.chosen.blocks_offset) + slot;
}

/*
 * Into the pool itself, if that is memory like any other.  To persistent
 * memory it is faster to copy past the CPU's caches than to flush them.
 */
static bool
ReadsIntoPool(const Reading *reading)
{
	return reading->r->pool.map.kind != PCACHE_PERSIST_PMEM;
}

/* Say where the blocks of a task are read to.  Returns the number of pieces. */
static int
BuildIovec(const Reading *reading, const WarmTask *task, WarmWorker *worker,
		   struct iovec *iov)
{
	const uint32 *slots = &reading->plan->slots[task->first_page];
	const uint32 *wanted = &reading->plan->blocks[task->first_page];
	uint32		page = 0;
	int			n = 0;

	for (uint32 i = 0; i < task->n_blocks; i++)
	{
		PGIOAlignedBlock *to = &worker->blocks[i];

		if (wanted[page] == task->first_block + i)
		{
			if (ReadsIntoPool(reading))
				to = PoolBlock(reading, slots[page]);
			worker->pages[page++] = to;
		}
		if (n > 0 &&
			(char *) iov[n - 1].iov_base + iov[n - 1].iov_len == (char *) to)
			iov[n - 1].iov_len += BLCKSZ;
		else
		{
			iov[n].iov_base = to;
			iov[n++].iov_len = BLCKSZ;
		}
	}
	return n;
}

/* Read the blocks of a task; if not at once, then one page after the other. */
static void
ReadBlocks(const Reading *reading, const WarmTask *task, WarmWorker *worker)
{
	const uint32 *slots = &reading->plan->slots[task->first_page];
	const uint32 *wanted = &reading->plan->blocks[task->first_page];
	struct iovec iov[BLOCKS_PER_TASK];
	int			n_iov = BuildIovec(reading, task, worker, iov);
	bool		all;

#ifdef MADV_POPULATE_WRITE
	/* fault them in at once; only a hint */
	if (ReadsIntoPool(reading) &&
		slots[task->n_pages - 1] - slots[0] == task->n_pages - 1)
		(void) madvise(PoolBlock(reading, slots[0]), (size_t) task->n_pages * BLCKSZ,
					   MADV_POPULATE_WRITE);
#endif
	all = pg_preadv(worker->segment.fd, iov, n_iov,
					(off_t) (task->first_block % RELSEG_SIZE) * BLCKSZ) ==
		(ssize_t) task->n_blocks * BLCKSZ;
	for (uint32 i = 0; i < task->n_pages; i++)
		worker->readable[i] = all ||
			PCacheReadExact(worker->segment.fd, worker->pages[i], BLCKSZ,
							(off_t) (wanted[i] % RELSEG_SIZE) * BLCKSZ);
}

/* Would the server take this page?  If not, count why. */
static bool
PageIsUsable(const Reading *reading, const RelationFile *file, uint32 block,
			 PGIOAlignedBlock *page, WarmResult *result)
{
	switch (CheckPage(page, block, reading->checksums))
	{
		case PAGE_SOUND:
			break;
		case PAGE_BAD_HEADER:
			result->bad_header++;
			return false;
		case PAGE_BAD_CHECKSUM:
			result->bad_checksum++;
			return false;
	}
	if (!file->unlogged && PageLsn(page) > reading->lsn_limit)
	{
		result->bad_lsn++;
		return false;
	}
	return true;
}

/* Have the i-th page of the plan in its slot; where it was read to is given. */
static void
StorePage(const Reading *reading, const RelationFile *file, uint64 i,
		  PGIOAlignedBlock *page)
{
	const WarmPlan *plan = reading->plan;
	const PCacheMapping *map = &reading->r->pool.map;
	uint32		slot = plan->slots[i];
	PCacheDescriptor desc;

	if (ReadsIntoPool(reading))
		PCacheFlush(map, page, BLCKSZ);
	else
		PCacheMemcpyNodrain(map, PoolBlock(reading, slot), page->data, BLCKSZ);
	PCacheDescriptorDescribe(&desc, slot, file->rlocator, file->fork,
							 plan->blocks[i], PageLsn(page), !file->unlogged,
							 plan->usage_counts[i]);
	PCacheDescriptorSetSealed(&desc);
	PCacheDescriptorStore(map, MappedDescriptor(reading->r, slot), &desc);
}

/* Read the blocks of a task, and put the sound pages into their slots. */
static void
DoTask(Work *work, uint64 number, void *state)
{
	const Reading *reading = work->arg;
	WarmWorker *worker = state;
	const WarmPlan *plan = reading->plan;
	const WarmTask *task = &plan->tasks[number];
	const RelationFile *file = &plan->files->files[task->file];

	if (!OpenSegment(&worker->segment, file->rlocator, file->fork,
					 task->first_block / RELSEG_SIZE, true))
	{
		FailWork(work, _("could not open file \"%s\": %m"), worker->segment.path);
		return;
	}
	ReadBlocks(reading, task, worker);
	for (uint32 i = 0; i < task->n_pages; i++)
	{
		PGIOAlignedBlock *page = worker->pages[i];
		uint64		planned = task->first_page + i;

		if (!worker->readable[i])
			worker->result.unreadable++;
		else if (PageIsUsable(reading, file, plan->blocks[planned], page,
							  &worker->result))
		{
			StorePage(reading, file, planned, page);
			worker->result.read++;
		}
	}
	NoteProgress(work, (uint64) task->n_blocks * BLCKSZ);
	RebuildStep("warm-task");
}

static void
BeginWorker(Work *work, void *state)
{
	WarmWorker *worker = state;

	worker->segment.fd = -1;
	worker->pages = pg_malloc_array(PGIOAlignedBlock *, BLOCKS_PER_TASK);
	worker->readable = pg_malloc_array(bool, BLOCKS_PER_TASK);
	errno = posix_memalign((void **) &worker->blocks, PG_IO_ALIGN_SIZE,
						   BLOCKS_PER_TASK * sizeof(PGIOAlignedBlock));
	if (errno != 0)
		pg_fatal("could not allocate memory: %m");
}

static void
EndWorker(Work *work, void *state)
{
	const Reading *reading = work->arg;
	WarmWorker *worker = state;
	WarmResult *result = &reading->plan->result;

	CloseSegment(&worker->segment);
	/* what this thread has flushed nobody else can wait for */
	if (!PCacheDrain(&reading->r->pool.map))
		FailWork(work, _("could not write persistent cache pool \"%s\": %m"),
				 reading->r->pool.path);

	result->read += worker->result.read;
	result->bad_header += worker->result.bad_header;
	result->bad_checksum += worker->result.bad_checksum;
	result->bad_lsn += worker->result.bad_lsn;
	result->unreadable += worker->result.unreadable;
	free(worker->blocks);
	pg_free(worker->pages);
	pg_free(worker->readable);
}

/*
 * Read the pages of a plan, and store them.  The pool must be durably marked
 * as attaching, and the planned slots must be free.  A page with an LSN beyond
 * the limit is not taken.
 *
 * Counts what became of the pages in plan->result.
 */
void
ReadPlannedPages(const Rebuild *r, WarmPlan *plan, uint64 lsn_limit)
{
	Reading		reading = {
		.r = r,
		.plan = plan,
		.checksums = r->control->data_checksum_version != 0,
		.lsn_limit = lsn_limit,
	};
	Work		work = {
		.n_workers = r->options->jobs,
		.n_tasks = plan->n_tasks,
		.progress = r->options->progress,
		.state_size = sizeof(WarmWorker),
		.begin = BeginWorker,
		.task = DoTask,
		.end = EndWorker,
		.arg = &reading,
	};

	for (uint64 i = 0; i < plan->n_tasks; i++)
		work.total_bytes += (uint64) plan->tasks[i].n_blocks * BLCKSZ;
	plan->result.read = 0;
	if (!DoWork(&work))
		pg_fatal("%s", work.failure);
}
