/*-------------------------------------------------------------------------
 *
 * report.c
 *	  How pg_pcache words things: errors, aligned text, progress.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/report.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

#include "pg_pcache.h"

/* Give up.  Both texts are translated already; hint may be NULL. */
void
Refuse(const char *hint, const char *fmt,...)
{
	va_list		ap;

	va_start(ap, fmt);
	pg_log_generic_v(PG_LOG_ERROR, PG_LOG_PRIMARY, fmt, ap);
	va_end(ap);
	if (hint != NULL)
		pg_log_error_hint("%s", hint);
	exit(EXIT_ERROR);
}

void
FailWith(const PCacheError *err)
{
	Refuse(err->hint[0] != '\0' ? err->hint : NULL, "%s", err->message);
}

/* A number of bytes for people, in the units of postgresql.conf. */
const char *
FormatBytes(uint64 bytes)
{
	static const char *const units[] = {"kB", "MB", "GB", "TB"};
	int			unit = 0;
	double		value = bytes / 1024.0;

	if (bytes < 1024)
		return psprintf("%llu bytes", (unsigned long long) bytes);

	while (unit < lengthof(units) - 1 && value >= 1024.0)
	{
		value /= 1024.0;
		unit++;
	}
	return psprintf("%.2f %s", value, units[unit]);
}

/*
 * A number of bytes as postgresql.conf takes it, without loss.  Odd bytes
 * are rounded up to the next kB.
 */
const char *
FormatSetting(uint64 bytes)
{
	static const char *const units[] = {"kB", "MB", "GB", "TB"};
	uint64		value = bytes / 1024 + (bytes % 1024 != 0 ? 1 : 0);
	int			unit = 0;

	while (unit < lengthof(units) - 1 && value != 0 && value % 1024 == 0)
	{
		value /= 1024;
		unit++;
	}
	return psprintf("%llu%s", (unsigned long long) value, units[unit]);
}

const char *
FormatUuid(const uint8 uuid[PCACHE_UUID_LEN])
{
	char		buf[2 * PCACHE_UUID_LEN + 5];
	char	   *p = buf;

	for (int i = 0; i < PCACHE_UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		p += sprintf(p, "%02x", uuid[i]);
	}
	return pstrdup(buf);
}

const char *
PageComparisonName(PageComparison comparison)
{
	static const char *const names[NUM_PAGE_COMPARISONS] = {
		[PAGE_EQUAL] = "equal",
		[PAGE_HINTS] = "hint bits",
		[PAGE_OLDER] = "older",
		[PAGE_IMPOSSIBLE] = "impossible",
		[PAGE_UNREADABLE] = "unreadable",
		[PAGE_STORED_CHECKSUM] = "checksum in file",
	};

	return names[comparison];
}

/* How many of the saved pages are kept. */
const char *
FormatKept(uint64 kept, uint64 saved)
{
	return psprintf(ngettext("%llu of %llu page", "%llu of %llu pages", saved),
					(unsigned long long) kept, (unsigned long long) saved);
}

/* The time in milliseconds, on a clock that nobody sets. */
double
NowMs(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000.0 + now.tv_nsec / 1000000.0;
}

/*
 * Report progress, in bytes, at most once a second.  Modelled on
 * pg_checksums.
 */
void
ReportProgress(uint64 done, uint64 total, bool finished)
{
	static time_t last_report = 0;
	time_t		now = time(NULL);
	int			percent;
	char		line[128];

	if (now == last_report && !finished)
		return;
	last_report = now;

	/* more may be allocated than the file is long */
	done = Min(done, total);
	percent = total > 0 ? (int) (done * 100.0 / total) : 100;
	snprintf(line, sizeof(line), _("%llu/%llu MB (%d%%) done"),
			 (unsigned long long) (done / (1024 * 1024)),
			 (unsigned long long) (total / (1024 * 1024)),
			 percent);
	/* in one piece, because the last line may come from another thread */
	fprintf(stderr, "%s%c", line,
			(!finished && isatty(fileno(stderr))) ? '\r' : '\n');
}
