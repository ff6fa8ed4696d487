/*-------------------------------------------------------------------------
 *
 * test_media_none.c
 *	  test_media.c for builds without libndctl, whatever pg_config.h says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_media_none.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#undef USE_LIBNDCTL

#include "pcache_media_none.c"

#include "test_media.c"
