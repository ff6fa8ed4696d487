/*-------------------------------------------------------------------------
 *
 * pcache_control.c
 *	  What pg_control says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_control.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_witness.h"

/* Was the last server of the cluster shut down? */
bool
PCacheControlIsShutDown(const ControlFileData *control)
{
	return control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY;
}
