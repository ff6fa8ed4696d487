/*-------------------------------------------------------------------------
 *
 * warm.c
 *	  Fill the pool from the data files.
 *
 * "pg_pcache rebuild --warm-from-files" does that with all relations, or with
 * those given, and "pg_pcache load" with the pages of a list.
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

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "common/logging.h"
#include "portability/instr_time.h"
#include "warm.h"

/*
 * Would the next start keep what we are about to make?  Nothing is reported,
 * so that the caller can choose what a refusal means.
 */
PCacheVerdict
JudgeWarming(const Rebuild *r, uint64 capacity)
{
	const ControlFileData *control = r->control;
	PCacheSuperblock sb = r->superblocks.chosen;
	PCacheGateFacts facts = r->judge.facts;
	PCacheGeometry g = PCacheComputeGeometry(capacity, PCACHE_ALIGNMENT);

	if (control->state != DB_SHUTDOWNED &&
		control->state != DB_SHUTDOWNED_IN_RECOVERY)
		return PCacheRefuse(PCACHE_COLD_CONTROL_STATE,
							_("the cluster was not shut down cleanly"));

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
	/* no page stays that a note is about; see WarmFromFiles() */
	facts.suspect.died = 0;
	return PCachePoolGate(&sb, &facts);
}

/*
 * Can the pool be filled at all, and with what?  All that is known before
 * anything is changed is asked for here.  Gives up if the pool cannot be
 * filled.
 */
void
PlanWarming(Rebuild *r, uint64 capacity)
{
	PCacheVerdict verdict;

	if (r->conf.nbuffers < 0)
	{
		pg_log_error("could not determine \"shared_buffers\"");
		pg_log_error_detail("That many pages are to be in the pool.");
		pg_log_error_hint("Use option %s if the configuration file is not in the data directory.",
						  "--config-file");
		exit(EXIT_ERROR);
	}
	RefuseSmallPool(&r->pool, capacity, &r->conf);
	verdict = JudgeWarming(r, capacity);
	if (verdict.refusal == PCACHE_COLD_CONTROL_STATE)
	{
		pg_log_error("cluster was not shut down cleanly");
		pg_log_error_detail("Its data files are not complete without recovery.");
		pg_log_error_hint("Start the server, and shut it down with mode \"fast\" or \"smart\".");
		exit(EXIT_ERROR);
	}
	if (verdict.refusal != PCACHE_WARM &&
		!(verdict.refusal == PCACHE_COLD_MEDIA && r->options->reset))
	{
		pg_log_error("the next start would be cold, whatever is in the pool: %s",
					 verdict.why.message);
		exit(EXIT_ERROR);
	}
	if (r->list != NULL)
		LocateListedPages(r->list, r->judge.drop_unlogged, &r->files);
	else
		ListRelationFiles(r->choices, &r->files);
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

/*
 * Has anybody used the cluster meanwhile?  It is not ours to lock.
 */
void
CheckClusterUnchanged(const PCacheOptions *options, const ControlFileData *before)
{
	bool		crc_ok;
	ControlFileData *control;

	RefuseRunningServer(options->pgdata);
	control = get_controlfile(options->pgdata, &crc_ok);
	if (!crc_ok || control->crc != before->crc)
		pg_fatal("the cluster was started while its files were read");
	pfree(control);
}

/* Decide which page goes into which slot. */
static void
MakePlan(const Rebuild *r, const PageScan *scan, WarmPlan *plan)
{
	uint64		n = r->conf.nbuffers;
	uint32	   *slots = pg_malloc_array(uint32, n);
	uint64		n_slots = ListFreeSlots(r, scan, r->result.capacity, n, slots);

	BeginWarmPlan(plan, &r->files, slots, n_slots);
	if (r->list != NULL)
		PlanListedPages(plan, r->list, scan);
	else
		PlanAllPages(plan, r->judge.drop_unlogged, scan);
}

/*
 * Mark the pool as attaching, durably, and empty the slots that are to be
 * filled.  If no page is kept, neither is the note of a fault.
 */
static void
PreparePool(Rebuild *r, const WarmPlan *plan, uint64 old_slots, bool keep)
{
	PCacheSuperblock *sb = &r->superblocks.chosen;

	if (!PCacheSuperblockAdopt(sb, r->control, r->pool.fs_kind,
							   NextConfig(&r->conf).mode, r->conf.nbuffers))
		pg_fatal("could not generate random numbers");
	PCacheMediaRememberDimms(&r->judge.media, sb);
	StoreSuperblock(r);
	RebuildStep("warm-marked");

	/* also those beyond shared_buffers: nothing in them is checked any more */
	for (uint64 i = 0; i < plan->n_slots; i++)
		FreeSlot(r, plan->slots[i]);
	for (uint64 slot = r->conf.nbuffers; slot < old_slots; slot++)
	{
		if (!SlotIsBad(r, sb, slot))
			FreeSlot(r, slot);
	}
	DrainPool(r);
	RebuildStep("warm-freed");
	if (!keep && !PCacheSuspectForget(&r->pool.map, r->judge.facts.suspect.died))
		pg_fatal("could not write persistent cache pool \"%s\": %m", r->pool.path);
	RebuildStep("warm-unsuspected");
}

/*
 * Fill the first shared_buffers slots as PlanWarming() has found possible, and
 * leave a pool that the next start keeps.  In a dry run only count what there
 * is to do.
 */
void
WarmFromFiles(Rebuild *r)
{
	PCacheSuperblock *sb = &r->superblocks.chosen;
	uint64		old_slots = Min(sb->slots_used, r->result.capacity);
	WarmPlan	plan;
	PageScan	scan;
	bool		keep;
	uint64		kept = 0;
	instr_time	start;
	instr_time	elapsed;

	INSTR_TIME_SET_CURRENT(start);

	/*
	 * What would be kept anyway stays, if all of it is in the data files.  Of
	 * a pool that was not saved some may be kept dirty, and the pool that we
	 * are about to make has none of these.
	 */
	keep = !r->options->reset && sb->state == PCACHE_STATE_CLEAN &&
		PCacheSuperblocksGate(&r->superblocks, &r->judge.facts).refusal == PCACHE_WARM;
	if (keep)
	{
		ScanPages(r, r->conf.nbuffers, false, false, &scan);
		kept = scan.counts[PCACHE_PAGE_KEPT];
	}
	MakePlan(r, keep ? &scan : NULL, &plan);

	if (!r->options->dry_run)
	{
		PreparePool(r, &plan, old_slots, keep);
		ReadPlannedPages(r, &plan, Max(r->control->checkPoint, r->control->minRecoveryPoint));
		DrainPool(r);
		RebuildStep("warm-filled");

		CheckClusterUnchanged(r->options, r->control);
		PCacheSuperblockSetClean(sb, r->control, kept + plan.result.read);
		StoreSuperblock(r);
		RebuildStep("warm-done");

		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		plan.result.seconds = INSTR_TIME_GET_DOUBLE(elapsed);
	}
	r->result.warm = plan.result;
	if (keep)
		FreeScan(&scan);
	FreeWarmPlan(&plan);
}

/* Tell what came of it, in JSON as an object. */
void
PrintWarmResult(const char *key, const WarmResult *warm, bool is_list, bool dry_run)
{
	OpenObject(key);
	if (is_list)
	{
		PrintField("listed", "listed", AsNumber(warm->listed));
		PrintField("listed twice", "listed_twice", AsNumber(warm->duplicates));
		PrintField("relation is gone", "relation_gone", AsNumber(warm->gone));
		PrintField("beyond end of file", "beyond_end", AsNumber(warm->beyond_end));
		PrintField("unlogged", "unlogged", AsNumber(warm->unlogged));
		PrintField("of system catalogs", "system_catalogs", AsNumber(warm->catalogs));
	}
	PrintField("relations", "relations", AsNumber(warm->relations));
	PrintField("pages in files", "pages_in_files", AsNumber(warm->file_pages));
	PrintField("in the pool already", "already_in_pool", AsNumber(warm->already));
	PrintField("read from files", "read", AsNumber(warm->read));
	PrintField("no room", "no_room", AsNumber(warm->no_room));
	PrintField("invalid header", "invalid_header", AsNumber(warm->bad_header));
	PrintField("wrong checksum", "wrong_checksum", AsNumber(warm->bad_checksum));
	PrintField("WAL not durable", "wal_not_durable", AsNumber(warm->bad_lsn));
	PrintField("unreadable", "unreadable", AsNumber(warm->unreadable));
	PrintField(dry_run ? NULL : "time", "seconds", AsSeconds(warm->seconds));
	CloseObject();
}
