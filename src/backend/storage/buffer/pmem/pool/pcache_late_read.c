/*-------------------------------------------------------------------------
 *
 * pcache_late_read.c
 *	  Can a read go on after its process, into the memory of the next server?
 *
 * Server and pg_pcache ask this.  See rule "no read outlives its process".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_late_read.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "storage/pcache_late_read.h"

/*
 * Is "data" among the words of debug_io_direct?  None of the other words
 * contains it.
 */
static bool
IsDirectForData(const char *debug_io_direct)
{
	for (const char *p = debug_io_direct; *p != '\0'; p++)
	{
		if (pg_strncasecmp(p, "data", strlen("data")) == 0)
			return true;
	}
	return false;
}

/*
 * Does no read outlive its process, with these values of the settings
 * io_method and debug_io_direct?  If one may, returns false, with the error.
 * A setting that the server does not know is NULL.
 */
bool
PCacheReadsEndWithProcess(const char *io_method, const char *debug_io_direct,
						  PCacheError *err)
{
	if (io_method == NULL || debug_io_direct == NULL ||
		pg_strcasecmp(io_method, "io_uring") != 0 || !IsDirectForData(debug_io_direct))
		return true;
	PCacheSetError(err, _("a persistent cache cannot be used with \"io_method\" = \"io_uring\" and \"debug_io_direct\" = \"data\", because a read that a killed server has started may still overwrite a page of the next one"));
	PCacheSetHint(err, _("Set \"io_method\" to \"worker\" or \"sync\", or remove \"data\" from \"debug_io_direct\"."));
	return false;
}
