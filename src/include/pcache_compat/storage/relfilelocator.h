/*-------------------------------------------------------------------------
 *
 * relfilelocator.h
 *	  For servers that have no such header: version 15 has the same structure
 *	  under an older name.
 *
 * The compiler looks here only for what it finds nowhere else (-idirafter).
 * pcache_compat.h gives the structure and its fields their newer names.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/pcache_compat/storage/relfilelocator.h
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"
