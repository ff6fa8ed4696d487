/*-------------------------------------------------------------------------
 *
 * without_libraries.h
 *	  Included before each file, for a build without the optional libraries,
 *	  whatever pg_config.h says.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/warnings/without_libraries.h
 *
 *-------------------------------------------------------------------------
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#undef USE_LIBPMEM
#undef USE_LIBNDCTL
#undef USE_LIBNUMA
#undef USE_XXHASH
