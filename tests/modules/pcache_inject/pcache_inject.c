/*-------------------------------------------------------------------------
 *
 * pcache_inject.c
 *	  What tests want to happen at injection points.
 *
 * For injection points that are passed before anybody can connect, as those
 * of the startup process: attaches while shared memory is created.  To be
 * loaded by shared_preload_libraries.
 *
 * pcache_inject.crash_at names an injection point at which to die.
 * pcache_inject.hold_at names one at which the startup process waits until it is
 * sent a SIGTERM, when it comes there for the pcache_inject.hold_pass'th time.
 * pcache_inject.helpers says what becomes of the helpers of the startup process,
 * which waits for that after its first chunk of slots.  With "gone" they do
 * all the rest, and leave.  With "fail" they fail in the midst of their first
 * chunk, with "told" they are told to end there, and with "kill" they kill
 * themselves.  With "busy" each has begun a chunk, for which it takes its
 * time; with "stuck" it ends that when the start was given up.
 * pcache_inject.save_after has the checkpointer, when it saves with helpers, wait
 * until they have claimed so many slots.  pcache_inject.save says what becomes of
 * each helper when it has saved its first ones: "fail", "kill", "fault", "break",
 * with which it meets a memory error, "unrecorded", with which there is no room to
 * record that, or "hold", with which it waits until it is killed.
 * pcache_inject.break_in_save has the checkpointer meet memory errors in so many
 * passes of its save; -1 breaks all pages that a save in memory does not read.
 * pcache_inject.media, pcache_inject.bad_blocks and pcache_inject.dimms say
 * what a query for the state of the pool's media answers, at
 * "persistent-cache-media".
 *
 * And functions to be created in SQL, which break the memory of the pool:
 *		pcache_inject_break(buffer int4) returns void
 *		pcache_inject_break_descriptor(buffer int4) returns void
 *		pcache_inject_poison(buffer int4) returns text
 * or end the process:
 *		pcache_inject_panic() returns void
 *		pcache_inject_abort() returns void
 *		pcache_inject_wild_store() returns void
 * and one which reads a byte of each page of shared buffers, from one buffer to
 * another one, as pg_buffercache_numa does:
 *		pcache_inject_touch(first int4, last int4) returns int8
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/modules/pcache_inject/pcache_inject.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "pcache_media_internal.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/pcache.h"
#include "storage/pcache_start.h"
#include "storage/pcache_stop.h"
#include "storage/pmsignal.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/injection_point.h"

PG_MODULE_MAGIC_EXT(
					.name = "pcache_inject",
					.version = PG_VERSION
);

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void pcache_inject_worker(Datum arg);
extern PGDLLEXPORT void pcache_inject_crash(const char *name,
											const void *private_data,
											void *arg);
extern PGDLLEXPORT void pcache_inject_hold(const char *name,
										   const void *private_data,
										   void *arg);
extern PGDLLEXPORT void pcache_inject_media(const char *name,
											const void *private_data,
											void *arg);

extern PGDLLEXPORT void pcache_inject_wait_for_helpers(const char *name,
													   const void *private_data,
													   void *arg);
extern PGDLLEXPORT void pcache_inject_help(const char *name,
										   const void *private_data,
										   void *arg);

extern PGDLLEXPORT void pcache_inject_wait_for_save(const char *name,
													const void *private_data,
													void *arg);
extern PGDLLEXPORT void pcache_inject_save(const char *name,
										   const void *private_data,
										   void *arg);
extern PGDLLEXPORT void pcache_inject_break_in_save(const char *name,
													const void *private_data,
													void *arg);

static char *crash_at = NULL;
static char *save_fault = NULL;
static int	break_in_save = 0;
static int	save_after = 0;
static char *helpers = NULL;
static char *hold_at = NULL;
static int	hold_pass = 1;
static bool worker = false;
static char *media = NULL;
static char *bad_blocks = NULL;
static char *dimms = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void
pcache_inject_crash(const char *name, const void *private_data, void *arg)
{
	write_stderr("pcache_inject: PID %d dies at injection point \"%s\"\n",
				 MyProcPid, name);
	kill(getpid(), SIGKILL);
	pause();
}

/*
 * The signal is blocked meanwhile, so that it is seen whenever it comes; its
 * handler runs when we return.
 */
void
pcache_inject_hold(const char *name, const void *private_data, void *arg)
{
	static int	pass = 0;
	sigset_t	pending;
	sigset_t	sigterm;
	sigset_t	save;

	if (!AmStartupProcess() || ++pass != hold_pass)
		return;
	sigemptyset(&sigterm);
	sigaddset(&sigterm, SIGTERM);
	sigprocmask(SIG_BLOCK, &sigterm, &save);
	write_stderr("pcache_inject: PID %d waits at injection point \"%s\"\n",
				 MyProcPid, name);
	for (;;)
	{
		if (!PostmasterIsAlive())
			exit(1);
		sigpending(&pending);
		if (sigismember(&pending, SIGTERM))
			break;
		pg_usleep(10000);
	}
	sigprocmask(SIG_SETMASK, &save, NULL);
}

/* In the startup process: have the helpers do what they are to do. */
void
pcache_inject_wait_for_helpers(const char *name, const void *private_data,
							   void *arg)
{
	PCacheRebuildControl *rebuild = PCacheRebuildCtl;
	bool		leave = strcmp(helpers, "busy") != 0 && strcmp(helpers, "stuck") != 0;

	/* they have left, or have a chunk each, as we do */
	for (int i = 0; i < 6000 && !rebuild->alone; i++)
	{
		int			left;

		SpinLockAcquire(&rebuild->mutex);
		left = rebuild->left;
		SpinLockRelease(&rebuild->mutex);
		if (leave ? left == persistent_cache_workers :
			pg_atomic_read_u64(&rebuild->next_slot) >=
			(1 + persistent_cache_workers) * PCACHE_SLOTS_PER_CHUNK)
			return;
		pg_usleep(10000);
	}
	if (!rebuild->alone)
		elog(FATAL, "pcache_inject: the helpers do not come");
}

/* In a helper, in the midst of a chunk. */
void
pcache_inject_help(const char *name, const void *private_data, void *arg)
{
	if (AmStartupProcess())
		return;
	if (strcmp(helpers, "fail") == 0)
		elog(ERROR, "pcache_inject: PID %d fails", MyProcPid);
	if (strcmp(helpers, "told") == 0)
		kill(MyProcPid, SIGTERM);
	if (strcmp(helpers, "kill") == 0)
		pcache_inject_crash(name, private_data, arg);
	if (strcmp(helpers, "busy") == 0)
		pg_usleep(300000);
	if (strcmp(helpers, "stuck") == 0)
	{
		/* the startup process is at work as long as it can claim chunks */
		for (int i = 0; i < 6000 &&
			 pg_atomic_read_u64(&PCacheRebuildCtl->next_slot) < NBuffers; i++)
			pg_usleep(10000);
		write_stderr("pcache_inject: PID %d is stuck in a chunk\n", MyProcPid);
		/* until the pool is given back, but less than pg_ctl waits for a stop */
		for (int i = 0; i < 2000 && PCacheCtl->superblock.state == PCACHE_STATE_ATTACHING; i++)
			pg_usleep(10000);
	}
}

/* In the checkpointer, which has forked its helpers. */
void
pcache_inject_wait_for_save(const char *name, const void *private_data, void *arg)
{
	for (int i = 0; i < 6000; i++)
	{
		if (pg_atomic_read_u64(&PCacheSaveCtl->next_slot) >= save_after)
			return;
		pg_usleep(10000);
	}
	elog(FATAL, "pcache_inject: the helpers do not save");
}

/*
 * Replace memory, for this process only, by that of an empty file: whoever
 * touches it gets a SIGBUS.
 */
static void
Break(char *address, size_t length)
{
	char		name[64];
	int			fd;

	snprintf(name, sizeof(name), "pcache_inject.tmp.%d", MyProcPid);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || unlink(name) < 0)
		elog(ERROR, "could not create file \"%s\": %m", name);
	if (mmap(address, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 fd, 0) == MAP_FAILED)
		elog(ERROR, "could not map file \"%s\": %m", name);
	close(fd);
}

/* In one of these helpers, which has saved some slots. */
void
pcache_inject_save(const char *name, const void *private_data, void *arg)
{
	if (strcmp(save_fault, "fail") == 0)
		elog(ERROR, "pcache_inject: PID %d fails", MyProcPid);
	if (strcmp(save_fault, "fault") == 0)
	{
		/* as if the server's handler could not run any more */
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *) 16 = 1;
	}
	if (strcmp(save_fault, "hold") == 0)
	{
		write_stderr("pcache_inject: PID %d waits\n", MyProcPid);
		for (;;)
			pause();
	}
	if (strcmp(save_fault, "unrecorded") == 0)
	{
		/* of the last buffers, which nobody has used */
		for (int i = 0; i < PCACHE_MAX_MEMORY_ERRORS; i++)
			(void) PCacheNoteMemoryError(&PCacheThePool.map,
										 PCacheCtl->superblock.blocks_offset +
										 (uint64) (NBuffers - 1 - i) * BLCKSZ, BLCKSZ);
	}
	if (strcmp(save_fault, "break") == 0 || strcmp(save_fault, "unrecorded") == 0)
	{
		/* all that is left */
		Break(BufferGetBlock(1), (size_t) NBuffers * BLCKSZ);
		return;
	}
	pcache_inject_crash(name, private_data, arg);
}

/*
 * In the checkpointer, which is about to save: a memory error in one buffer more
 * each time, and in the descriptor of another one.
 */
void
pcache_inject_break_in_save(const char *name, const void *private_data, void *arg)
{
	static int	pass = 0;
	char	   *descs = PCacheThePool.map.base + PCACHE_DESCRIPTORS_OFFSET;

	if (break_in_save < 0)
	{
		for (int i = 0; i < NBuffers; i++)
		{
			if (GetBufferDescriptor(i)->tag.blockNum != 0)
				Break(BufferGetBlock(i + 1), BLCKSZ);
		}
		return;
	}
	if (++pass > break_in_save)
		return;
	Break(BufferGetBlock(1 + 10 * pass), BLCKSZ);
	if (pass == 1)
		Break(descs + (NBuffers - 64) * sizeof(PCacheDescriptor), 4096);
}

/* Add the ranges in a list of "offset:length" to those of the report. */
static void
AddBadBlocks(PCacheMediaReport *report, const char *list)
{
	const char *next = list;

	while (*next != '\0')
	{
		unsigned long long offset;
		unsigned long long length;
		int			n = 0;

		if (sscanf(next, "%llu:%llu%n", &offset, &length, &n) != 2 ||
			length == 0 || (next[n] != ',' && next[n] != '\0'))
			elog(FATAL, "invalid pcache_inject.bad_blocks: \"%s\"", list);
		PCacheRangeAdd(&report->bad, offset, length);
		next += next[n] == ',' ? n + 1 : n;
	}
	PCacheRangeMerge(&report->bad);
}

/* Put the DIMMs in a list of "id:unsafe shutdowns" into the report. */
static void
SetDimms(PCacheMediaReport *report, const char *list)
{
	const char *next = list;

	report->n_dimms = 0;
	report->dimms_state = PCACHE_MEDIA_CLEAN;
	report->domain = PCACHE_DOMAIN_MEMORY_CONTROLLER;
	while (*next != '\0')
	{
		char		id[PCACHE_DIMM_ID_LEN];
		long long	count;
		int			n = 0;

		if (sscanf(next, "%39[^:]:%lld%n", id, &count, &n) != 2 ||
			(next[n] != ',' && next[n] != '\0'))
			elog(FATAL, "invalid pcache_inject.dimms: \"%s\"", list);
		PCacheMediaAddDimm(report, id, id, count, 0);
		next += next[n] == ',' ? n + 1 : n;
	}
}

/* Replace what is known of bad blocks and of DIMMs. */
void
pcache_inject_media(const char *name, const void *private_data, void *arg)
{
	PCacheMediaReport *report = arg;

	if (strcmp(hold_at, name) == 0)
		pcache_inject_hold(name, private_data, NULL);
	if (bad_blocks[0] != '\0')
	{
		report->blocks = PCACHE_MEDIA_BAD;
		AddBadBlocks(report, bad_blocks);
	}

	if (dimms[0] != '\0')
		SetDimms(report, dimms);

	if (strcmp(media, "unknown") == 0)
	{
		report->blocks = PCACHE_MEDIA_UNKNOWN;
		snprintf(report->blocks_why, sizeof(report->blocks_why),
				 "a test says so");
	}
	else if (strcmp(media, "clean") == 0)
		report->blocks = PCACHE_MEDIA_CLEAN;
	else if (strcmp(media, "forgotten") == 0)
	{
		report->blocks = PCACHE_MEDIA_CLEAN;
		report->bad.n_ranges = 0;
	}
	else if (strcmp(media, "truncated") == 0)
	{
		report->blocks = PCACHE_MEDIA_BAD;
		report->bad.truncated = true;
	}
	else if (media[0] != '\0')
		elog(FATAL, "invalid pcache_inject.media: \"%s\"", media);
}

static int
CheckedBuffer(int buffer)
{
	if (buffer < 1 || buffer > NBuffers)
		elog(ERROR, "there is no buffer %d", buffer);
	return buffer;
}

/* The memory of a buffer's page. */
PG_FUNCTION_INFO_V1(pcache_inject_break);

Datum
pcache_inject_break(PG_FUNCTION_ARGS)
{
	Break(BufferGetBlock(CheckedBuffer(PG_GETARG_INT32(0))), BLCKSZ);
	PG_RETURN_VOID();
}

/* The memory of its descriptor, and of those beside it.  Mode always only. */
PG_FUNCTION_INFO_V1(pcache_inject_break_descriptor);

Datum
pcache_inject_break_descriptor(PG_FUNCTION_ARGS)
{
	int			buffer = CheckedBuffer(PG_GETARG_INT32(0));

	if (PersistentCacheDescriptors == NULL)
		elog(ERROR, "descriptors are not in use");
	Break((char *) TYPEALIGN_DOWN(4096, (uintptr_t) &PersistentCacheDescriptors[buffer - 1]),
		  4096);
	PG_RETURN_VOID();
}

/*
 * Have the kernel treat the second half of a buffer's memory as damaged, which
 * takes CAP_SYS_ADMIN and CONFIG_MEMORY_FAILURE.  Returns why it did not.
 */
PG_FUNCTION_INFO_V1(pcache_inject_poison);

Datum
pcache_inject_poison(PG_FUNCTION_ARGS)
{
	char	   *block = BufferGetBlock(CheckedBuffer(PG_GETARG_INT32(0)));

#ifdef MADV_HWPOISON
	/* it has to be mapped */
	(void) *(volatile char *) (block + 4096);
	if (madvise(block + 4096, 4096, MADV_HWPOISON) == 0)
		PG_RETURN_TEXT_P(cstring_to_text(""));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("madvise: %m")));
#else
	PG_RETURN_TEXT_P(cstring_to_text("MADV_HWPOISON is not supported"));
#endif
}

/* The server's own decision to restart. */
PG_FUNCTION_INFO_V1(pcache_inject_panic);

Datum
pcache_inject_panic(PG_FUNCTION_ARGS)
{
	elog(PANIC, "pcache_inject: PID %d panics", MyProcPid);
}

/* Store to an address that there is not. */
PG_FUNCTION_INFO_V1(pcache_inject_wild_store);

Datum
pcache_inject_wild_store(PG_FUNCTION_ARGS)
{
	*(volatile int *) 16 = 1;
	PG_RETURN_VOID();
}

/* What the C library does when it finds its heap destroyed. */
PG_FUNCTION_INFO_V1(pcache_inject_abort);

Datum
pcache_inject_abort(PG_FUNCTION_ARGS)
{
	abort();
}

/* Returns the number of pages of memory. */
PG_FUNCTION_INFO_V1(pcache_inject_touch);

Datum
pcache_inject_touch(PG_FUNCTION_ARGS)
{
	const char *first = BufferGetBlock(CheckedBuffer(PG_GETARG_INT32(0)));
	const char *last = BufferGetBlock(CheckedBuffer(PG_GETARG_INT32(1)));
	int64		pages = 0;

	for (const char *p = first; p < last + BLCKSZ; p += sysconf(_SC_PAGESIZE))
	{
		(void) *(const volatile char *) p;
		pages++;
	}
	PG_RETURN_INT64(pages);
}

static void
AttachInjectionPoints(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	if (IsUnderPostmaster)
		return;
#ifndef USE_INJECTION_POINTS
	elog(FATAL, "injection points are not supported by this build");
#else
	InjectionPointAttach("persistent-cache-media", "pcache_inject",
						 "pcache_inject_media", NULL, 0);
	if (crash_at[0] != '\0')
		InjectionPointAttach(crash_at, "pcache_inject", "pcache_inject_crash",
							 NULL, 0);
	if (helpers[0] != '\0')
	{
		InjectionPointAttach("persistent-cache-rebuilding", "pcache_inject",
							 "pcache_inject_wait_for_helpers", NULL, 0);
		InjectionPointAttach("persistent-cache-mapping", "pcache_inject",
							 "pcache_inject_help", NULL, 0);
	}
	if (save_after > 0)
		InjectionPointAttach("persistent-cache-save-forked", "pcache_inject",
							 "pcache_inject_wait_for_save", NULL, 0);
	if (save_fault[0] != '\0')
		InjectionPointAttach("persistent-cache-helper-saved", "pcache_inject",
							 "pcache_inject_save", NULL, 0);
	if (break_in_save != 0)
		InjectionPointAttach("persistent-cache-checkpointer-saves", "pcache_inject",
							 "pcache_inject_break_in_save", NULL, 0);
	if (hold_at[0] != '\0' && strcmp(hold_at, "persistent-cache-media") != 0)
		InjectionPointAttach(hold_at, "pcache_inject", "pcache_inject_hold",
							 NULL, 0);
#endif
}

/* A background worker that shows that it was started. */
void
pcache_inject_worker(Datum arg)
{
	ereport(LOG, errmsg("pcache_inject: a worker that is never restarted runs"));
}

static void
RegisterWorker(void)
{
	BackgroundWorker bgw = {
		.bgw_name = "pcache_inject",
		.bgw_type = "pcache_inject",
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "pcache_inject",
		.bgw_function_name = "pcache_inject_worker",
	};

	RegisterBackgroundWorker(&bgw);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;

	DefineCustomStringVariable("pcache_inject.crash_at",
							   "Injection point at which a process kills itself.",
							   NULL,
							   &crash_at,
							   "",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.save",
							   "What becomes of the helpers of a save: fail, kill, fault, break, unrecorded or hold.",
							   NULL,
							   &save_fault,
							   "",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("pcache_inject.save_after",
							"How many slots they claim before the checkpointer does.",
							NULL,
							&save_after,
							0, 0, INT_MAX,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pcache_inject.break_in_save",
							"In how many passes of its save the checkpointer meets a memory error.",
							NULL,
							&break_in_save,
							0, -1, INT_MAX,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.helpers",
							   "What becomes of the helpers of the startup process: gone, busy, stuck, fail, told or kill.",
							   NULL,
							   &helpers,
							   "",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.hold_at",
							   "Injection point at which a process waits for SIGTERM.",
							   NULL,
							   &hold_at,
							   "",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("pcache_inject.hold_pass",
							"When it comes there for which time.",
							NULL,
							&hold_pass,
							1, 1, INT_MAX,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.media",
							   "What is known of bad blocks: clean, forgotten, unknown or truncated.",
							   "Empty for what the query found.",
							   &media,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.bad_blocks",
							   "Bad ranges of the pool file, as offset:length,offset:length in bytes.",
							   NULL,
							   &bad_blocks,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pcache_inject.dimms",
							   "DIMMs below the pool, as id:count,id:count with their counts of unsafe shutdowns.",
							   "Empty for what the query found.",
							   &dimms,
							   "",
							   PGC_SIGHUP,
							   0,
							   NULL, NULL, NULL);
	DefineCustomBoolVariable("pcache_inject.worker",
							 "Registers a background worker that is never restarted.",
							 NULL,
							 &worker,
							 false,
							 PGC_POSTMASTER,
							 0,
							 NULL, NULL, NULL);
	MarkGUCPrefixReserved("pcache_inject");
	if (worker)
		RegisterWorker();

	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = AttachInjectionPoints;
}
