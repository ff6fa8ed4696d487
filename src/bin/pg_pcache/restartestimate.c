/*-------------------------------------------------------------------------
 *
 * restartestimate.c
 *	  How long will clients wait for a restart?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartestimate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <sys/mman.h>

#include "common/logging.h"
#include "fe_utils/query_utils.h"
#include "restart.h"

/* How much memory is touched to see how fast it is. */
#define PROBE_SIZE		(64 * 1024 * 1024)

/*
 * What a start takes beside the memory, and what it touches of it: buffer headers, mapping
 * table and locks are not much more than that share of shared_buffers.
 */
#define LAUNCH_MS		80.0
#define LAUNCH_SHARE	0.03

/* How long does it take to touch memory, and to give it back?  Per byte. */
static void
ProbeMemory(double *touch, double *release)
{
	double		begin = NowMs();
	double		touched;
	char	   *memory = mmap(NULL, PROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*touch = *release = 0;
	if (memory == MAP_FAILED)
		return;
	for (size_t i = 0; i < PROBE_SIZE; i += 4096)
		((volatile char *) memory)[i] = 1;
	touched = NowMs();
	munmap(memory, PROBE_SIZE);
	*touch = (touched - begin) / PROBE_SIZE;
	*release = (NowMs() - touched) / PROBE_SIZE;
}

/*
 * How long will clients wait, in milliseconds, beside the shutdown checkpoint?  This is what
 * the machine takes to give back the memory of the buffers, unless that is kept, and to make
 * that of their headers.
 */
double
EstimateOutage(const Restart *restart)
{
	PGresult   *res = executeQuery(restart->conn,
								   "SELECT setting::pg_catalog.float8 * pg_catalog.current_setting('block_size')::pg_catalog.int8 "
								   "FROM pg_catalog.pg_settings WHERE name = 'shared_buffers'", false);
	double		buffers = strtod(FirstValue(res), NULL);
	double		touch;
	double		release;

	PQclear(res);
	ProbeMemory(&touch, &release);
	return LAUNCH_MS + buffers * LAUNCH_SHARE * touch + (restart->server.ends_whole ? 0 : buffers * release);
}
