/*-------------------------------------------------------------------------
 *
 * hotset_job.c
 *	  Starts a worker for each database that has pages to be read.
 *
 * Relations can be locked only by who is connected to their database.  The
 * workers run one after the other, since they share one disk and one rate.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_job.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "catalog/pg_database_d.h"
#include "common/relpath.h"
#include "hotset.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

/* ms between two looks whether to stop */
#define LOOK_INTERVAL	1000

static dsm_segment *
MakeSegment(const HotsetPlan *plan)
{
	StringInfoData list;
	dsm_segment *segment;
	HotsetJob  *job;
	Size		bits_offset = MAXALIGN(sizeof(HotsetJob)) + sizeof(int) * (Size) plan->nvictims;
	Size		list_offset = MAXALIGN(bits_offset + plan->missing->npages / 8 + 1);

	initStringInfo(&list);
	HotsetEncode(plan->missing, 0, &list);
	segment = dsm_create(list_offset + list.len, 0);
	job = dsm_segment_address(segment);
	memset(job, 0, list_offset);
	job->nvictims = plan->nvictims;
	job->victim_heat = plan->victim_heat;
	job->bits_offset = bits_offset;
	job->list_offset = list_offset;
	job->list_length = list.len;
	memcpy(HotsetJobVictims(job), plan->victims, sizeof(int) * (Size) plan->nvictims);
	memcpy((char *) job + list_offset, list.data, list.len);
	pfree(list.data);
	return segment;
}

/*
 * Is there such a database, as far as its relation's tablespace tells?  One that
 * was dropped since would only make a worker fail.
 */
static bool
DatabaseExists(const RelFileLocator *locator)
{
	struct stat status;

	return locator->dbOid == InvalidOid || stat(GetDatabasePath(locator->dbOid, locator->spcOid), &status) == 0;
}

/* Run one worker, and wait for its end.  False if there was no slot for it. */
static bool
RunWorker(const HotsetWorkerArgs *args, HotsetStopCheck stop)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;
	BgwHandleStatus status;
	pid_t		pid;

	strlcpy(worker.bgw_library_name, "pg_hotset", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "hotset_warm_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, BGW_MAXLEN, "pg_hotset worker for database %u", args->database);
	strlcpy(worker.bgw_type, "pg_hotset worker", BGW_MAXLEN);
	StaticAssertStmt(sizeof(HotsetWorkerArgs) <= BGW_EXTRALEN, "arguments do not fit");
	memcpy(worker.bgw_extra, args, sizeof(HotsetWorkerArgs));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		return false;

	PG_TRY();
	{
		while ((status = GetBackgroundWorkerPid(handle, &pid)) != BGWH_STOPPED)
		{
			if (status == BGWH_POSTMASTER_DIED)
				proc_exit(1);
			if (stop())
				TerminateBackgroundWorker(handle);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 LOOK_INTERVAL, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_CATCH();
	{
		TerminateBackgroundWorker(handle);
		PG_RE_THROW();
	}
	PG_END_TRY();
	pfree(handle);
	return true;
}

/*
 * Read the pages of a plan, as far as possible.  Adds to the counts, and sets
 * the bits of plan->was_read.  Ends early once stop() says so.
 */
void
HotsetRunJob(HotsetPlan *plan, HotsetCounts *counts, HotsetStopCheck stop)
{
	const HotsetSet *missing = plan->missing;
	HotsetWorkerArgs args = {0};
	dsm_segment *segment;
	HotsetJob  *job;
	Oid			any_database = Template1DbOid;
	bool		done = false;

	if (missing->npages == 0)
		return;
	segment = MakeSegment(plan);
	job = dsm_segment_address(segment);
	args.segment = dsm_segment_handle(segment);
	for (uint32 r = missing->nrelations; r-- > 0;)
	{
		const RelFileLocator *locator = &missing->relations[r].fork.locator;

		if (OidIsValid(locator->dbOid) && DatabaseExists(locator))
		{
			any_database = locator->dbOid;
			break;
		}
	}

	for (uint32 r = 0; r < missing->nrelations && !stop(); r++)
	{
		const RelFileLocator *locator = &missing->relations[r].fork.locator;

		/*
		 * Relations are sorted by database, and shared ones are first.
		 * DatabaseExists() looks only into the relation's tablespace, so it
		 * is asked for each relation until it has found the database.
		 */
		if (r == 0 || locator->dbOid != missing->relations[r - 1].fork.locator.dbOid)
			done = false;
		if (done || !DatabaseExists(locator))
			continue;
		done = true;
		args.database = locator->dbOid;
		args.connection = OidIsValid(locator->dbOid) ? locator->dbOid : any_database;
		if (!RunWorker(&args, stop))
		{
			ereport(LOG,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("pg_hotset has no background worker slot to read pages"),
					 errhint("Consider increasing the configuration parameter \"%s\".", "max_worker_processes")));
			break;
		}
	}
	counts->read += job->counts.read;
	counts->skipped += missing->npages - job->counts.read;
	counts->evicted += job->counts.evicted;
	memcpy(plan->was_read, (char *) job + job->bits_offset, missing->npages / 8 + 1);
	dsm_detach(segment);
}
