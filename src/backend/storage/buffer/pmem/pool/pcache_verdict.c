/*-------------------------------------------------------------------------
 *
 * pcache_verdict.c
 *	  What a start makes of the pool, and of a page: reasons and their names.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_verdict.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "storage/pcache_gate.h"

/* A verdict that is not warm, for the reason given, which is translated. */
PCacheVerdict
PCacheRefuse(PCacheRefusal refusal, const char *fmt,...)
{
	PCacheVerdict verdict = {refusal};
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(verdict.why.message, sizeof(verdict.why.message), fmt, ap);
	va_end(ap);
	return verdict;
}

/* The name of a refusal, for views, counters and JSON. */
const char *
PCacheRefusalName(PCacheRefusal refusal)
{
	static const char *const names[] = {
		[PCACHE_WARM] = "warm",
		[PCACHE_COLD_NEW] = "new",
		[PCACHE_COLD_SUPERBLOCK] = "superblock",
		[PCACHE_COLD_VERSION] = "version",
		[PCACHE_COLD_GEOMETRY] = "geometry",
		[PCACHE_COLD_SYSTEM_IDENTIFIER] = "system identifier",
		[PCACHE_COLD_CUT_OFF] = "cut off",
		[PCACHE_COLD_DIRTY] = "dirty",
		[PCACHE_COLD_CONTROL_STATE] = "control state",
		[PCACHE_COLD_TIMELINE] = "timeline",
		[PCACHE_COLD_CHECKPOINT] = "checkpoint",
		[PCACHE_COLD_CONTROL_CHANGED] = "control file",
		[PCACHE_COLD_CHECKSUMS] = "data checksums",
		[PCACHE_COLD_BACKUP_LABEL] = "backup",
		[PCACHE_COLD_RECOVERY_TARGET] = "recovery target",
		[PCACHE_COLD_POWER] = "power",
		[PCACHE_COLD_MEDIA] = "media",
		[PCACHE_COLD_MEDIA_UNKNOWN] = "media unknown",
		[PCACHE_COLD_WATERMARK] = "watermark",
		[PCACHE_COLD_SUSPECT] = "suspect memory",
		[PCACHE_COLD_NO_PAGES] = "no pages",
		[PCACHE_COLD_HOLE] = "hole",
		[PCACHE_COLD_PAGES] = "pages",
		[PCACHE_COLD_IMAGE] = "image",
		[PCACHE_UNAVAILABLE] = "unavailable",
		[PCACHE_OFF] = "off",
		[PCACHE_REFUSED] = "refused",
		[PCACHE_UNKNOWN_CONFIGURATION] = "configuration",
	};

	return PCacheNameOf(names, refusal);
}

/* The name of a page verdict, for counters and JSON. */
const char *
PCachePageVerdictName(PCachePageVerdict verdict)
{
	static const char *const names[] = {
		[PCACHE_PAGE_KEPT] = "kept",
		[PCACHE_PAGE_FREE] = "free",
		[PCACHE_PAGE_CRC] = "damaged descriptor",
		[PCACHE_PAGE_TAG] = "invalid tag",
		[PCACHE_PAGE_NO_FILE] = "no such relation",
		[PCACHE_PAGE_BEYOND_EOF] = "beyond end of file",
		[PCACHE_PAGE_UNLOGGED] = "unlogged",
		[PCACHE_PAGE_NO_LSN] = "no LSN",
		[PCACHE_PAGE_FORK] = "not a main fork",
		[PCACHE_PAGE_YOUNGER] = "younger than redo",
		[PCACHE_PAGE_DIRTY] = "dirty",
		[PCACHE_PAGE_IN_CHANGE] = "in change",
		[PCACHE_PAGE_FILE_CHANGED] = "file changed",
		[PCACHE_PAGE_GENERATION] = "another checkpoint",
		[PCACHE_PAGE_LOST] = "changed or lost",
		[PCACHE_PAGE_FIRST] = "first of an index",
		[PCACHE_PAGE_BAD_BLOCK] = "bad block",
		[PCACHE_PAGE_DUPLICATE] = "duplicate",
		[PCACHE_PAGE_NOT_FITTING] = "not fitting",
	};

	return PCacheNameOf(names, verdict);
}
