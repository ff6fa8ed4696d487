/*-------------------------------------------------------------------------
 *
 * abi_probe.c
 *	  What an extension that was compiled for the unpatched server sees of the
 *	  server that it is loaded into.
 *
 * The numbers of wait events, LWLocks, tranches and resource managers are
 * constants in an extension.  This one holds those of the headers that it was
 * compiled with, and asks the server what it calls them.  abi_names.h has all
 * of their names; tests/abi/run makes it from the headers.
 *
 * Functions to be created in SQL:
 *		abi_probe_names() returns setof text
 *		abi_probe_wait(wait_event text, milliseconds int4) returns void
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/abi_probe/abi_probe.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/predicate_internals.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

static const struct
{
	const char *name;
	uint32		info;
}			wait_events[] =

{
#define WAIT_EVENT(id)	{#id, id},
#define TRANCHE(id)
#define LOCK(lock)
#define RMGR(id)
#include "abi_names.h"
#undef WAIT_EVENT
#undef TRANCHE
#undef LOCK
#undef RMGR
};

static void
PutLine(ReturnSetInfo *rsinfo, char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

static const char *
TrancheName(uint16 tranche)
{
	const char *name = pgstat_get_wait_event(PG_WAIT_LWLOCK | tranche);

	return name != NULL ? name : "(none)";
}

/* A line for each number: what it is here, and what it is in the server. */
PG_FUNCTION_INFO_V1(abi_probe_names);

Datum
abi_probe_names(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < lengthof(wait_events); i++)
		PutLine(rsinfo, psprintf("%s: %s %s", wait_events[i].name,
								 pgstat_get_wait_event_type(wait_events[i].info),
								 pgstat_get_wait_event(wait_events[i].info)));

#define WAIT_EVENT(id)
#define TRANCHE(id)	PutLine(rsinfo, psprintf("%s: %s", #id, TrancheName(id)));
#define LOCK(lock)	PutLine(rsinfo, psprintf("%s: %s", #lock, TrancheName((lock)->tranche)));
#define RMGR(id)	PutLine(rsinfo, psprintf("%s: %s", #id, GetRmgr(id).rm_name));
#include "abi_names.h"

	for (int i = 0; i < NUM_BUFFER_PARTITIONS; i++)
		PutLine(rsinfo, psprintf("buffer mapping partition %d: %s", i,
								 TrancheName(BufMappingPartitionLockByIndex(i)->tranche)));
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
		PutLine(rsinfo, psprintf("lock manager partition %d: %s", i,
								 TrancheName(LockHashPartitionLockByIndex(i)->tranche)));
	for (int i = 0; i < NUM_PREDICATELOCK_PARTITIONS; i++)
		PutLine(rsinfo, psprintf("predicate lock manager partition %d: %s", i,
								 TrancheName(MainLWLockArray[PREDICATELOCK_MANAGER_LWLOCK_OFFSET + i].lock.tranche)));
	return (Datum) 0;
}

/*
 * Wait, and say that it is for this wait event.  From when application_name is
 * "abi_probe", this session waits for nothing else.
 */
PG_FUNCTION_INFO_V1(abi_probe_wait);

Datum
abi_probe_wait(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	for (int i = 0; i < lengthof(wait_events); i++)
	{
		if (strcmp(wait_events[i].name, name) == 0)
		{
			pgstat_report_appname("abi_probe");
			/* the latch may be set already, for something that is over */
			while ((WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							  PG_GETARG_INT32(1), wait_events[i].info) & WL_TIMEOUT) == 0)
			{
				ResetLatch(MyLatch);
				CHECK_FOR_INTERRUPTS();
			}
			PG_RETURN_VOID();
		}
	}
	elog(ERROR, "there is no wait event \"%s\"", name);
}
