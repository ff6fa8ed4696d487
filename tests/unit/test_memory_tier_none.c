/*-------------------------------------------------------------------------
 *
 * test_memory_tier_none.c
 *	  test_memory_tier.c for builds without libdaxctl, whatever pg_config.h says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_memory_tier_none.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#undef USE_LIBNDCTL

#include "pcache_media_dax_none.c"

#include "test_memory_tier.c"
