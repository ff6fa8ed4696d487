/*-------------------------------------------------------------------------
 *
 * warm.c
 *	  pg_pcache rebuild --warm-from-files: fill the pool from the data files.
 *
 * After a clean shutdown the data files are all that there is to know, so a
 * page of a file may be in the pool exactly as if the server had read it and
 * then saved it.  What the pool has already, if it is to be kept, stays.
 *
 * The pool is durably "attaching", and of another incarnation, from before
 * its first change until after the last one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/warm.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "common/logging.h"
#include "portability/instr_time.h"
#include "rebuild.h"
#include "workers.h"

/* What a worker takes at once: 1 MB, that is a part of its CPU's cache. */
#define BLOCKS_PER_TASK		128

/* Usage count of a page that was read once. */
#define USAGE_COUNT			1

/* Consecutive blocks of one segment. */
typedef struct Task
{
	int			file;			/* in RelationFiles */
	uint32		first_block;
	uint32		n_blocks;
	uint64		first_slot;		/* in free_slots */
} Task;

/* What all workers look at. */
typedef struct Warming
{
	Rebuild    *r;
	bool		checksums;
	uint64		lsn_limit;
	uint32	   *free_slots;
	Task	   *tasks;
	uint64		n_tasks;
	WarmResult	result;			/* counted when a worker ends */
} Warming;

/* What one of them has. */
typedef struct WarmWorker
{
	SegmentFile segment;
	PGIOAlignedBlock *pages;	/* of a task */
	bool	   *readable;		/* likewise */
	WarmResult	result;
} WarmWorker;

/*
 * Can the pool be filled at all?  All that is known before anything is
 * changed is asked for here.
 */
void
PlanWarming(Rebuild *r, uint64 capacity)
{
	const ControlFileData *control = r->control;
	PCacheSuperblock sb = r->superblocks.chosen;
	PCacheRecord record = r->record;
	PCacheGateFacts facts = r->judge.facts;
	PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);
	PCacheVerdict verdict;

	if (control->state != DB_SHUTDOWNED &&
		control->state != DB_SHUTDOWNED_IN_RECOVERY)
	{
		pg_log_error("cluster was not shut down cleanly");
		pg_log_error_detail("Its data files are not complete without recovery.");
		pg_log_error_hint("Start the server, and shut it down with mode \"fast\" or \"smart\".");
		exit(EXIT_ERROR);
	}
	if (r->conf.nbuffers < 0)
	{
		pg_log_error("could not determine \"shared_buffers\"");
		pg_log_error_detail("That many pages are to be in the pool.");
		pg_log_error_hint("Use option %s if the configuration file is not in the data directory.",
						  "--config-file");
		exit(EXIT_ERROR);
	}
	RefuseSmallPool(&r->pool, capacity, &r->conf);

	/* would the gates keep what we are about to make? */
	sb.format_version = PCACHE_FORMAT_VERSION;
	sb.superblock_size = PCACHE_SUPERBLOCK_SIZE;
	sb.block_size = BLCKSZ;
	sb.descriptor_size = sizeof(PCacheDescriptor);
	sb.blocks_per_segment = RELSEG_SIZE;
	sb.descriptors_offset = PCACHE_DESCRIPTORS_OFFSET;
	sb.capacity = capacity;
	sb.blocks_offset = g.blocks_offset;
	sb.pool_size = facts.file_size = g.pool_size;
	if (!PCacheSuperblockAdopt(&sb, control, r->pool.fs_kind,
							   PERSISTENT_CACHE_PLANNED_RESTART,
							   r->conf.nbuffers))
		pg_fatal("could not generate random numbers");
	PCacheMediaRememberDimms(&r->judge.media, &sb);
	PCacheSuperblockSetClean(&sb, control, 0);
	memcpy(record.pool_uuid, sb.pool_uuid, PCACHE_UUID_LEN);
	record.incarnation = sb.incarnation;
	facts.record = &record;
	/* no page stays that the note of a fault is about; see WarmFromFiles() */
	facts.suspect.died = 0;
	verdict = PCachePoolGate(&sb, &facts);
	if (verdict.refusal != PCACHE_WARM &&
		!(verdict.refusal == PCACHE_COLD_MEDIA && r->options->reset))
	{
		pg_log_error("the next start would be cold, whatever is in the pool: %s",
					 verdict.detail);
		exit(EXIT_ERROR);
	}
	ListRelationFiles(r->choices, &r->files);
}

/* Read one by one what could not be read as a whole. */
static void
ReadBlocks(const SegmentFile *segment, off_t offset, uint32 n,
		   PGIOAlignedBlock *pages, bool *readable)
{
	bool		all = PCacheReadExact(segment->fd, pages, (size_t) n * BLCKSZ, offset);

	for (uint32 i = 0; i < n; i++)
		readable[i] = all || PCacheReadExact(segment->fd, &pages[i], BLCKSZ,
											 offset + (off_t) i * BLCKSZ);
}

/* Read the blocks of a task, and put those that are sound into their slots. */
static void
DoTask(Work *work, uint64 number, void *state)
{
	Warming    *w = work->arg;
	WarmWorker *worker = state;
	const Task *task = &w->tasks[number];
	SegmentFile *segment = &worker->segment;
	bool	   *readable = worker->readable;
	WarmResult *result = &worker->result;
	const Rebuild *r = w->r;
	const PCacheMapping *map = &r->pool.map;
	const RelationFile *file = &r->files.files[task->file];
	const uint32 *slots = &w->free_slots[task->first_slot];
	char	   *blocks = map->base + r->superblocks.chosen.blocks_offset;
	bool		consecutive = slots[task->n_blocks - 1] - slots[0] == task->n_blocks - 1;
	PGIOAlignedBlock *pages = worker->pages;

	if (!OpenSegment(segment, file->rlocator, file->fork,
					 task->first_block / RELSEG_SIZE, true))
	{
		FailWork(work, _("could not open file \"%s\": %m"), segment->path);
		return;
	}
#ifdef MADV_POPULATE_WRITE
	/* fault them in at once; only a hint */
	if (consecutive)
		(void) madvise(blocks + (uint64) slots[0] * BLCKSZ,
					   (size_t) task->n_blocks * BLCKSZ, MADV_POPULATE_WRITE);
#endif

	/*
	 * Into the pool itself, if that is memory like any other.  To persistent
	 * memory it is faster to copy past the CPU's caches than to flush them.
	 */
	if (consecutive && map->kind != PCACHE_PERSIST_PMEM)
		pages = (PGIOAlignedBlock *) (blocks + (uint64) slots[0] * BLCKSZ);
	ReadBlocks(segment, (off_t) (task->first_block % RELSEG_SIZE) * BLCKSZ,
			   task->n_blocks, pages, readable);
	if (pages != worker->pages)
		PCacheFlush(map, pages, (size_t) task->n_blocks * BLCKSZ);

	for (uint32 i = 0; i < task->n_blocks; i++)
	{
		PCacheDescriptor desc;
		uint32		block = task->first_block + i;

		if (!readable[i])
		{
			result->unreadable++;
			continue;
		}
		switch (CheckPage(&pages[i], block, w->checksums))
		{
			case PAGE_SOUND:
				break;
			case PAGE_BAD_HEADER:
				result->bad_header++;
				continue;
			case PAGE_BAD_CHECKSUM:
				result->bad_checksum++;
				continue;
		}
		if (!file->unlogged && PageLsn(&pages[i]) > w->lsn_limit)
		{
			result->bad_lsn++;
			continue;
		}
		if (pages == worker->pages)
			PCacheMemcpyNodrain(map, blocks + (uint64) slots[i] * BLCKSZ,
								pages[i].data, BLCKSZ);
		PCacheDescriptorDescribe(&desc, slots[i], file->rlocator, file->fork,
								 block, PageLsn(&pages[i]), !file->unlogged,
								 USAGE_COUNT);
		PCacheDescriptorSetSealed(&desc);
		PCacheDescriptorStore(map, MappedDescriptor(r, slots[i]), &desc);
		result->read++;
	}
	NoteProgress(work, (uint64) task->n_blocks * BLCKSZ);
	RebuildStep("warm-task");
}

static void
BeginWorker(Work *work, void *state)
{
	WarmWorker *worker = state;

	worker->segment.fd = -1;
	worker->readable = pg_malloc_array(bool, BLOCKS_PER_TASK);
	errno = posix_memalign((void **) &worker->pages, PG_IO_ALIGN_SIZE,
						   BLOCKS_PER_TASK * sizeof(PGIOAlignedBlock));
	if (errno != 0)
		pg_fatal("could not allocate memory: %m");
}

static void
EndWorker(Work *work, void *state)
{
	Warming    *w = work->arg;
	WarmWorker *worker = state;

	CloseSegment(&worker->segment);
	/* what this thread has flushed nobody else can wait for */
	if (!PCacheDrain(&w->r->pool.map))
		FailWork(work, _("could not write persistent cache pool \"%s\": %m"), w->r->pool.path);

	w->result.read += worker->result.read;
	w->result.bad_header += worker->result.bad_header;
	w->result.bad_checksum += worker->result.bad_checksum;
	w->result.bad_lsn += worker->result.bad_lsn;
	w->result.unreadable += worker->result.unreadable;
	free(worker->pages);
	pg_free(worker->readable);
}

/*
 * List the slots that may be filled: all of the first n but those whose page
 * is kept, and those on bad blocks.
 */
static uint64
ListFreeSlots(const Rebuild *r, const PageScan *scan, uint64 capacity, uint64 n,
			  uint32 *slots)
{
	PCacheSuperblock sb = r->superblocks.chosen;
	uint64		found = 0;

	sb.blocks_offset = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT).blocks_offset;
	for (uint64 slot = 0; slot < n; slot++)
	{
		if (scan != NULL && slot < scan->slots &&
			scan->verdicts[slot] == PCACHE_PAGE_KEPT)
			continue;
		if (!SlotIsBad(r, &sb, slot))
			slots[found++] = slot;
	}
	return found;
}

static void
AddTask(Warming *w, uint64 *allocated, int file, uint32 block, uint64 slot)
{
	Task	   *last = w->n_tasks > 0 ? &w->tasks[w->n_tasks - 1] : NULL;
	Task	   *task;

	if (last != NULL && last->file == file && last->n_blocks < BLOCKS_PER_TASK &&
		last->first_block + last->n_blocks == block && block % RELSEG_SIZE != 0)
	{
		last->n_blocks++;
		return;
	}
	if (w->n_tasks == *allocated)
	{
		*allocated = Max(1024, *allocated * 2);
		w->tasks = pg_realloc_array(w->tasks, Task, *allocated);
	}
	task = &w->tasks[w->n_tasks++];
	task->file = file;
	task->first_block = block;
	task->n_blocks = 1;
	task->first_slot = slot;
}

/* Decide which block goes into which slot. */
static void
ListTasks(Warming *w, const PageScan *scan, uint64 n_free)
{
	const RelationFiles *files = &w->r->files;
	uint64		next_slot = 0;
	uint64		allocated = 0;

	w->result.relations = files->n_relations;
	w->result.file_pages = files->n_blocks;
	for (int i = 0; i < files->n; i++)
	{
		const RelationFile *file = &files->files[i];

		/* these are reset by the next start */
		if (file->unlogged && w->r->judge.drop_unlogged)
			continue;
		for (uint64 block = 0; block < file->nblocks; block++)
		{
			PCachePageKey key = {
				.spc_oid = file->rlocator.spcOid,
				.db_oid = file->rlocator.dbOid,
				.rel_number = file->rlocator.relNumber,
				.fork_number = file->fork,
				.block_number = block,
			};

			if (scan != NULL && ScanHasPage(scan, key))
				w->result.already++;
			else if (next_slot == n_free)
				w->result.no_room++;
			else
				AddTask(w, &allocated, i, block, next_slot++);
		}
	}
	w->result.read = next_slot;
}

/* Run the workers, and wait for them. */
static void
RunWorkers(Warming *w)
{
	const PCacheOptions *options = w->r->options;
	Work		work = {
		.n_workers = options->jobs,
		.n_tasks = w->n_tasks,
		.progress = options->progress,
		.state_size = sizeof(WarmWorker),
		.begin = BeginWorker,
		.task = DoTask,
		.end = EndWorker,
		.arg = w,
	};

	for (uint64 i = 0; i < w->n_tasks; i++)
		work.total_bytes += (uint64) w->tasks[i].n_blocks * BLCKSZ;
	w->result.read = 0;
	if (!DoWork(&work))
		pg_fatal("%s", work.failure);
}

static PersistentCacheMode
NextMode(const Configuration *conf)
{
	if (conf->mode != NULL && strcmp(conf->mode, "always") == 0)
		return PERSISTENT_CACHE_ALWAYS;
	return PERSISTENT_CACHE_PLANNED_RESTART;
}

/*
 * Has anybody used the cluster meanwhile?  It is not ours to lock.
 */
void
CheckClusterUnchanged(const Rebuild *r)
{
	bool		crc_ok;
	ControlFileData *control;

	RefuseRunningServer(r->options->pgdata);
	control = get_controlfile(r->options->pgdata, &crc_ok);
	if (!crc_ok || control->crc != r->control->crc)
		pg_fatal("the cluster was started while its files were read");
	pfree(control);
}

/*
 * Fill the first shared_buffers slots, and leave a pool that the next start
 * keeps.  In a dry run only count what there is to do.
 */
void
WarmFromFiles(Rebuild *r)
{
	PCacheSuperblock *sb = &r->superblocks.chosen;
	bool		dry_run = r->options->dry_run;
	uint64		capacity = r->result.capacity;
	uint64		n = r->conf.nbuffers;
	uint64		old_slots = Min(sb->slots_used, capacity);
	Warming		w = {0};
	PCacheSuperblock clean;
	PageScan	scan;
	bool		keep;
	uint64		n_free;
	uint64		kept = 0;
	instr_time	start;
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(start);
	w.r = r;
	w.checksums = r->control->data_checksum_version != 0;

	/*
	 * What would be kept anyway stays, if all of it is in the data files.  Of
	 * a pool that was not saved some may be kept dirty, and the pool that we
	 * are about to make has none of these.
	 */
	keep = !r->options->reset && sb->state == PCACHE_STATE_CLEAN &&
		PCacheSuperblocksGate(&r->superblocks, &r->judge.facts).refusal == PCACHE_WARM;
	if (keep)
	{
		PCacheOptions quiet = *r->options;

		quiet.progress = false;
		ScanPages(&quiet, &r->pool, sb, r->control, n, false, &r->judge, &scan);
		kept = scan.counts[PCACHE_PAGE_KEPT];
	}
	w.free_slots = pg_malloc_array(uint32, n);
	n_free = ListFreeSlots(r, keep ? &scan : NULL, capacity, n, w.free_slots);
	ListTasks(&w, keep ? &scan : NULL, n_free);
	r->result.warm = w.result;
	if (dry_run)
		return;

	if (!PCacheSuperblockAdopt(sb, r->control, r->pool.fs_kind,
							   NextMode(&r->conf), n))
		pg_fatal("could not generate random numbers");
	PCacheMediaRememberDimms(&r->judge.media, sb);
	StoreSuperblock(r);
	RebuildStep("warm-marked");
	StoreRecord(r, sb->incarnation);
	RebuildStep("warm-recorded");

	/* also those beyond shared_buffers: nothing in them is checked any more */
	for (uint64 i = 0; i < n_free; i++)
		FreeSlot(r, w.free_slots[i]);
	for (uint64 slot = n; slot < old_slots; slot++)
	{
		if (!SlotIsBad(r, sb, slot))
			FreeSlot(r, slot);
	}
	DrainPool(r);
	RebuildStep("warm-freed");
	if (!keep && !PCacheSuspectForget(&r->pool.map, r->judge.facts.suspect.died))
		pg_fatal("could not write persistent cache pool \"%s\": %m", r->pool.path);
	RebuildStep("warm-unsuspected");

	clean = *sb;
	PCacheSuperblockSetClean(&clean, r->control, 0);
	w.lsn_limit = PCacheLsnLimit(&clean, &r->judge.facts);
	RunWorkers(&w);
	DrainPool(r);
	RebuildStep("warm-filled");

	CheckClusterUnchanged(r);
	PCacheSuperblockSetClean(sb, r->control, kept + w.result.read);
	StoreSuperblock(r);
	RebuildStep("warm-done");

	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	w.result.seconds = INSTR_TIME_GET_DOUBLE(elapsed);
	r->result.warm = w.result;
	if (keep)
		FreeScan(&scan);
	pg_free(w.free_slots);
	pg_free(w.tasks);
}
