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

/* PCacheSetting("mode"); the name has to be a string literal */
#define PCacheSetting(name)	PCACHE_SETTING_PREFIX name

/*
 * What the library's settings are if the configuration is silent, and how
 * postgresql.conf would say that: "postgres -C" loads no library, so pg_pcache has to
 * know.  pcache.directory has no default.
 */
#define PCACHE_DEFAULTS(SETTING) \
	SETTING(mode, PERSISTENT_CACHE_OFF, "off") \
	SETTING(size, 0, "0") \
	SETTING(required, false, "off") \
	SETTING(on_media_unknown, PERSISTENT_CACHE_MEDIA_USE, "use") \
	SETTING(scrub, PERSISTENT_CACHE_SCRUB_AUTO, "auto") \
	SETTING(workers, -1, "-1") \
	SETTING(worker_delay, 200, "200ms") \
	SETTING(allow_unknown_minor, false, "off")

#endif							/* PCACHE_SETTING_H */
