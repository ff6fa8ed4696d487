/*-------------------------------------------------------------------------
 *
 * pcache_setting.h
 *	  What the settings of the cache are called.
 *
 * The library has settings as extensions have them.  Those of the patched server
 * have the names of a server's.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_setting.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SETTING_H
#define PCACHE_SETTING_H

#include "storage/pcache_layout.h"

#if PCACHE_SERVER_FORMAT == PCACHE_LIBRARY_FORMAT
#define PCACHE_SETTING_PREFIX	"pcache."
#else
#define PCACHE_SETTING_PREFIX	"persistent_cache_"
#endif

/* the library's pcache.mode, unless the configuration has it; for pg_pcache */
#define PCACHE_DEFAULT_MODE		"off"

/* PCacheSetting("mode"); the name has to be a string literal */
#define PCacheSetting(name)	PCACHE_SETTING_PREFIX name

#endif							/* PCACHE_SETTING_H */
