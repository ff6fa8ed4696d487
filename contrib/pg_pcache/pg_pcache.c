/*-------------------------------------------------------------------------
 *
 * pg_pcache.c
 *	  The module that the patched server shows its cache with.  Its functions are
 *	  in pcache_views.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_pcache/pg_pcache.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC_EXT(
					.name = "pg_pcache",
					.version = PG_VERSION
);
