/*-------------------------------------------------------------------------
 *
 * pcache_media_report.c
 *	  What does the platform promise, and how are its DIMMs: the answers about
 *	  media, and how two of them compare.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_media_report.c
 *
 *-------------------------------------------------------------------------
 */
#include "storage/pcache_compat.h"

#include "pcache_media_internal.h"
#include "storage/pcache_pool.h"

/*
 * Names for answers, as seen by SQL and JSON; not translated.
 */
const char *
PCacheMediaAnswerName(PCacheMediaAnswer answer)
{
	static const char *const names[] = {
		[PCACHE_MEDIA_UNKNOWN] = "unknown",
		[PCACHE_MEDIA_CLEAN] = "clean",
		[PCACHE_MEDIA_BAD] = "bad",
	};

	return PCacheNameOf(names, answer);
}

const char *
PCachePersistenceDomainName(PCachePersistenceDomain domain)
{
	static const char *const names[] = {
		[PCACHE_DOMAIN_UNKNOWN] = "unknown",
		[PCACHE_DOMAIN_NONE] = "none",
		[PCACHE_DOMAIN_MEMORY_CONTROLLER] = "memory_controller",
		[PCACHE_DOMAIN_CPU_CACHE] = "cpu_cache",
	};

	return PCacheNameOf(names, domain);
}

/*
 * Write the names of health flags into buf, separated by spaces, and return
 * buf.  "ok" stands for no flag at all.
 */
const char *
PCacheMediaHealthText(uint32 health, char *buf, size_t len)
{
	static const char *const names[] = {
		"not_armed", "map_fail", "flush_fail", "save_fail", "restore_fail", "smart_event"
	};

	buf[0] = '\0';
	for (int i = 0; i < lengthof(names); i++)
	{
		if ((health & (1U << i)) == 0)
			continue;
		if (buf[0] != '\0')
			strlcat(buf, " ", len);
		strlcat(buf, names[i], len);
	}
	if (buf[0] == '\0')
		strlcpy(buf, "ok", len);
	return buf;
}

/*
 * Answer "unknown", for the bad blocks, the counts of unsafe shutdowns, or both
 * (PCACHE_MEDIA_OF_*).  The first reason given for each is kept.  Returns false.
 */
bool
PCacheMediaUnknown(PCacheMediaReport *report, int answers, const char *fmt,...)
{
	char		why[PCACHE_MEDIA_WHY_LEN];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	if (answers & PCACHE_MEDIA_OF_BLOCKS)
	{
		report->blocks = PCACHE_MEDIA_UNKNOWN;
		if (report->blocks_why[0] == '\0')
			strlcpy(report->blocks_why, why, sizeof(report->blocks_why));
	}
	if (answers & PCACHE_MEDIA_OF_DIMMS)
	{
		report->dimms_state = PCACHE_MEDIA_UNKNOWN;
		if (report->dimms_why[0] == '\0')
			strlcpy(report->dimms_why, why, sizeof(report->dimms_why));
	}
	return false;
}

/*
 * Add one DIMM to the report, in order of ids.
 *
 * name is the kernel's (nmem0), and tells whether we have it already: several
 * namespaces, even several regions, may share a DIMM.  id is the unique id,
 * which outlives a reboot, NULL if it has none.  A negative number of unsafe
 * shutdowns means that it is not known.
 */
void
PCacheMediaAddDimm(PCacheMediaReport *report, const char *name,
				   const char *id, int64 unsafe_shutdowns, uint32 health)
{
	uint32		place;

	for (uint32 i = 0; i < report->n_dimms; i++)
	{
		if (strcmp(report->dimm_names[i], name) == 0)
			return;
	}

	report->health |= health;
	if (id == NULL || id[0] == '\0')
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("DIMM %s has no unique id"), name);
		return;
	}
	if (strlen(id) >= PCACHE_DIMM_ID_LEN)
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("the unique id of DIMM %s is too long"), name);
		return;
	}
	if (report->n_dimms == PCACHE_MAX_DIMMS)
	{
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("there are more than %d DIMMs"),
						   PCACHE_MAX_DIMMS);
		return;
	}
	if (unsafe_shutdowns < 0)
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("the unsafe shutdown count of DIMM %s is not available"),
						   name);

	place = report->n_dimms++;
	while (place > 0 && strcmp(report->dimms[place - 1].id, id) > 0)
	{
		report->dimms[place] = report->dimms[place - 1];
		strcpy(report->dimm_names[place], report->dimm_names[place - 1]);
		place--;
	}
	if (place > 0 && strcmp(report->dimms[place - 1].id, id) == 0)
		PCacheMediaUnknown(report, PCACHE_MEDIA_OF_DIMMS, _("DIMMs %s and %s have the same unique id"),
						   report->dimm_names[place - 1], name);

	/* The id goes to the media: no stray bytes behind its end. */
	memset(&report->dimms[place], 0, sizeof(PCacheDimm));
	strlcpy(report->dimms[place].id, id, PCACHE_DIMM_ID_LEN);
	report->dimms[place].unsafe_shutdowns = Max(unsafe_shutdowns, 0);
	strlcpy(report->dimm_names[place], name, PCACHE_MEDIA_NAME_LEN);
}

/* There are bad ranges.  What else is bad may be unknown, and then that is the answer. */
static void
HasBad(PCacheMediaReport *report, const char *why)
{
	PCacheRangeMerge(&report->bad);
	if (report->blocks == PCACHE_MEDIA_CLEAN)
	{
		report->blocks = PCACHE_MEDIA_BAD;
		strlcpy(report->blocks_why, why, PCACHE_MEDIA_WHY_LEN);
	}
}

/* Add what the open pool remembers of bad memory. */
void
PCacheMediaAddMemoryErrors(PCacheMediaReport *report, int fd)
{
	if (PCacheReadMemoryErrors(fd, &report->bad))
		HasBad(report, _("the pool remembers bad memory"));
}

/*
 * Add what is before the ledger and cannot be read.  The superblocks are there, and what
 * is remembered of bad memory, so that nobody can have noted it; and of memory below tmpfs
 * and hugetlbfs the kernel has no list.  Of a huge page all is lost, although some of it may
 * still be read.
 */
void
PCacheMediaAddUnreadable(PCacheMediaReport *report, int fd, PCacheFsKind kind)
{
	uint64		size = kind == PCACHE_FS_HUGETLBFS ? PCACHE_DESCRIPTORS_OFFSET : PCACHE_SUPERBLOCK_SIZE;
	bool		any = false;
	char		byte;

	for (uint64 at = 0; at < PCACHE_DESCRIPTORS_OFFSET; at += PCACHE_SUPERBLOCK_SIZE)
	{
		if (PCacheReadExact(fd, &byte, 1, at) || errno != EIO)
			continue;
		at -= at % size;
		PCacheRangeAdd(&report->bad, at, size);
		at += size - PCACHE_SUPERBLOCK_SIZE;
		any = true;
	}
	if (any)
		HasBad(report, _("the head of the pool cannot be read"));
}

/*
 * Add a region's name and its persistence domain.  With several regions the name is the
 * first one's, and the domain is the weakest.
 */
void
PCacheMediaAddRegion(PCacheMediaReport *report, const char *name, PCachePersistenceDomain domain)
{
	if (report->region_name[0] == '\0')
	{
		strlcpy(report->region_name, name, PCACHE_MEDIA_NAME_LEN);
		report->domain = domain;
	}
	else
		report->domain = Min(report->domain, domain);
}

/* Have a superblock remember the DIMMs that are there now. */
void
PCacheMediaRememberDimms(const PCacheMediaReport *report, PCacheSuperblock *sb)
{
	sb->dimms_state = report->dimms_state;
	sb->n_dimms = report->n_dimms;
	memcpy(sb->dimms, report->dimms, sizeof(sb->dimms));
}

/* Which of the DIMMs that a superblock remembers has this id?  NULL if none. */
static const PCacheDimm *
RememberedDimm(const PCacheSuperblock *sb, const char *id)
{
	for (uint32 i = 0; i < sb->n_dimms; i++)
	{
		if (strncmp(sb->dimms[i].id, id, PCACHE_DIMM_ID_LEN) == 0)
			return &sb->dimms[i];
	}
	return NULL;
}

/*
 * Are the DIMMs that a superblock remembers there, and were they shut down safely since
 * (PCACHE_MEDIA_CLEAN), or not (PCACHE_MEDIA_BAD)?  why gets a translated text unless
 * they were.
 */
PCacheMediaAnswer
PCacheMediaCompareDimms(const PCacheSuperblock *sb,
						const PCacheMediaReport *now,
						char *why, size_t why_len)
{
	why[0] = '\0';
	if (now->dimms_state != PCACHE_MEDIA_CLEAN)
	{
		snprintf(why, why_len, _("unsafe shutdown counts are not known now: %s"),
				 now->dimms_why);
		return PCACHE_MEDIA_UNKNOWN;
	}
	if (sb->dimms_state != PCACHE_MEDIA_CLEAN ||
		sb->n_dimms > PCACHE_MAX_DIMMS)
	{
		snprintf(why, why_len, _("unsafe shutdown counts were not known when the pool was last used"));
		return PCACHE_MEDIA_UNKNOWN;
	}
	if (sb->n_dimms != now->n_dimms)
		snprintf(why, why_len, _("there were %u DIMMs below the pool, now there are %u"),
				 sb->n_dimms, now->n_dimms);
	for (uint32 i = 0; i < now->n_dimms && why[0] == '\0'; i++)
	{
		const PCacheDimm *dimm = &now->dimms[i];
		const PCacheDimm *before = RememberedDimm(sb, dimm->id);

		if (before == NULL)
			snprintf(why, why_len, _("DIMM %s was not below the pool before"), dimm->id);
		else if (before->unsafe_shutdowns != dimm->unsafe_shutdowns)
			snprintf(why, why_len, _("unsafe shutdown count of DIMM %s went from %llu to %llu"),
					 dimm->id,
					 (unsigned long long) before->unsafe_shutdowns,
					 (unsigned long long) dimm->unsafe_shutdowns);
	}
	return why[0] == '\0' ? PCACHE_MEDIA_CLEAN : PCACHE_MEDIA_BAD;
}

/*
 * Release what a query allocated.  The report must not be used any more,
 * except to be freed again.
 */
void
PCacheMediaReportFree(PCacheMediaReport *report)
{
	free(report->bad.ranges);
	memset(&report->bad, 0, sizeof(report->bad));
}
