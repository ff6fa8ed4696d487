/*-------------------------------------------------------------------------
 *
 * test_pool_none.c
 *	  test_pool.c for builds without libpmem, whatever pg_config.h says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_pool_none.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#undef USE_LIBPMEM

#include "pcache_persist_none.c"

#include "test_pool.c"
