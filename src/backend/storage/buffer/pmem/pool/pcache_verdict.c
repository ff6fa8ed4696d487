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
	switch (refusal)
	{
		case PCACHE_WARM:
			return "warm";
		case PCACHE_COLD_NEW:
			return "new";
		case PCACHE_COLD_SUPERBLOCK:
			return "superblock";
		case PCACHE_COLD_VERSION:
			return "version";
		case PCACHE_COLD_GEOMETRY:
			return "geometry";
		case PCACHE_COLD_SYSTEM_IDENTIFIER:
			return "system identifier";
		case PCACHE_COLD_CUT_OFF:
			return "cut off";
		case PCACHE_COLD_DIRTY:
			return "dirty";
		case PCACHE_COLD_CONTROL_STATE:
			return "control state";
		case PCACHE_COLD_TIMELINE:
			return "timeline";
		case PCACHE_COLD_CHECKPOINT:
			return "checkpoint";
		case PCACHE_COLD_CONTROL_CHANGED:
			return "control file";
		case PCACHE_COLD_CHECKSUMS:
			return "data checksums";
		case PCACHE_COLD_BACKUP_LABEL:
			return "backup";
		case PCACHE_COLD_RECOVERY_TARGET:
			return "recovery target";
		case PCACHE_COLD_POWER:
			return "power";
		case PCACHE_COLD_MEDIA:
			return "media";
		case PCACHE_COLD_MEDIA_UNKNOWN:
			return "media unknown";
		case PCACHE_COLD_WATERMARK:
			return "watermark";
		case PCACHE_COLD_SUSPECT:
			return "suspect memory";
		case PCACHE_COLD_NO_PAGES:
			return "no pages";
		case PCACHE_COLD_HOLE:
			return "hole";
		case PCACHE_COLD_PAGES:
			return "pages";
		case PCACHE_COLD_IMAGE:
			return "image";
		case PCACHE_UNAVAILABLE:
			return "unavailable";
		case PCACHE_OFF:
			return "off";
		case PCACHE_REFUSED:
			return "refused";
		case PCACHE_UNKNOWN_CONFIGURATION:
			return "configuration";
		case PCACHE_NUM_REFUSALS:
			break;
	}
	return "unknown";
}

/* The name of a page verdict, for counters and JSON. */
const char *
PCachePageVerdictName(PCachePageVerdict verdict)
{
	switch (verdict)
	{
		case PCACHE_PAGE_KEPT:
			return "kept";
		case PCACHE_PAGE_FREE:
			return "free";
		case PCACHE_PAGE_CRC:
			return "damaged descriptor";
		case PCACHE_PAGE_TAG:
			return "invalid tag";
		case PCACHE_PAGE_NO_FILE:
			return "no such relation";
		case PCACHE_PAGE_BEYOND_EOF:
			return "beyond end of file";
		case PCACHE_PAGE_UNLOGGED:
			return "unlogged";
		case PCACHE_PAGE_NO_LSN:
			return "no LSN";
		case PCACHE_PAGE_FORK:
			return "not a main fork";
		case PCACHE_PAGE_YOUNGER:
			return "younger than redo";
		case PCACHE_PAGE_DIRTY:
			return "dirty";
		case PCACHE_PAGE_IN_CHANGE:
			return "in change";
		case PCACHE_PAGE_FILE_CHANGED:
			return "file changed";
		case PCACHE_PAGE_GENERATION:
			return "another checkpoint";
		case PCACHE_PAGE_LOST:
			return "changed or lost";
		case PCACHE_PAGE_FIRST:
			return "first of an index";
		case PCACHE_PAGE_BAD_BLOCK:
			return "bad block";
		case PCACHE_PAGE_DUPLICATE:
			return "duplicate";
		case PCACHE_PAGE_NOT_FITTING:
			return "not fitting";
		case PCACHE_NUM_PAGE_VERDICTS:
			break;
	}
	return "unknown";
}
