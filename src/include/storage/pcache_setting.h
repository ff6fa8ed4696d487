/*-------------------------------------------------------------------------
 *
 * pcache_setting.h
 *	  What the settings of the cache are called.
 *
 * The patched server knows each by another name as well, with "persistent_cache_" instead of
 * "pcache.".
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_setting.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SETTING_H
#define PCACHE_SETTING_H

#define PCACHE_SETTING_PREFIX	"pcache."

/* PCacheSetting("mode"); the name has to be a string literal */
#define PCacheSetting(name)	PCACHE_SETTING_PREFIX name

/*
 * What the settings are if the configuration is silent, and how
 * postgresql.conf would say that: "postgres -C" loads no library, so pg_pcache has to
 * know.  pcache.directory has no default.
 */
#define PCACHE_DEFAULTS(SETTING) \
	SETTING(mode, PERSISTENT_CACHE_OFF, "off") \
	SETTING(recovery, PERSISTENT_CACHE_RECOVERY_FULL, "full") \
	SETTING(size, 0, "0") \
	SETTING(required, false, "off") \
	SETTING(on_media_unknown, PERSISTENT_CACHE_MEDIA_USE, "use") \
	SETTING(workers, -1, "-1") \
	SETTING(worker_delay, 200, "200ms") \
	SETTING(allow_unknown_minor, false, "off")

#endif							/* PCACHE_SETTING_H */
