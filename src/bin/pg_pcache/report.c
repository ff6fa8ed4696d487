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

#include "common/logging.h"
#include "pg_pcache.h"

void
FailWith(const PCacheError *err)
{
	pg_log_error("%s", err->message);
	if (err->hint[0] != '\0')
		pg_log_error_hint("%s", err->hint);
	exit(EXIT_ERROR);
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

static const char *
FormatTm(const struct tm *tm, const char *format)
{
	char		buf[64];

	/* the time comes from the pool, which may hold anything */
	if (tm == NULL || strftime(buf, sizeof(buf), format, tm) == 0)
		return pstrdup("invalid");
	return pstrdup(buf);
}

const char *
FormatTime(int64 seconds)
{
	time_t		t = seconds;

	return FormatTm(localtime(&t), "%Y-%m-%d %H:%M:%S %Z");
}

/* In ISO 8601, for JSON. */
const char *
FormatTimeUtc(int64 seconds)
{
	time_t		t = seconds;

	return FormatTm(gmtime(&t), "%Y-%m-%dT%H:%M:%SZ");
}

const char *
StateName(uint32 state)
{
	switch ((PCacheState) state)
	{
		case PCACHE_STATE_EMPTY:
			return "empty";
		case PCACHE_STATE_ATTACHING:
			return "attaching";
		case PCACHE_STATE_DIRTY:
			return "dirty";
		case PCACHE_STATE_CLEAN:
			return "clean";
	}
	return "unknown";
}

/* The numbers are those of PersistentCacheMode; a new pool has none. */
const char *
ModeName(uint32 mode)
{
	static const char *const names[] = {
		[PERSISTENT_CACHE_OFF] = "none",
		[PERSISTENT_CACHE_PLANNED_RESTART] = "planned_restart",
		[PERSISTENT_CACHE_ALWAYS] = "always",
	};

	return mode < lengthof(names) ? names[mode] : "unknown";
}

const char *
PageComparisonName(PageComparison comparison)
{
	switch (comparison)
	{
		case PAGE_EQUAL:
			return "equal";
		case PAGE_HINTS:
			return "hint bits";
		case PAGE_NEWER:
			return "newer";
		case PAGE_IMPOSSIBLE:
			return "impossible";
		case PAGE_UNREADABLE:
			return "unreadable";
		case PAGE_STORED_CHECKSUM:
			return "checksum in file";
		case NUM_PAGE_COMPARISONS:
			break;
	}
	return "unknown";
}

/* In JSON, what the next start will be, and why if it is not warm. */
void
NextStartFields(NextStart next_start, const char *detail)
{
	static const char *const names[] = {
		[NEXT_START_WARM] = "warm",
		[NEXT_START_COLD] = "cold",
		[NEXT_START_UNKNOWN] = "unknown",
	};

	PrintField(NULL, "next_start", AsString(names[next_start]));
	PrintField(NULL, "detail", AsString(next_start == NEXT_START_WARM ? NULL : detail));
}

/* The same, and as text; none if detail is NULL. */
void
PrintNextStart(NextStart next_start, const char *detail, uint64 kept,
			   uint64 saved)
{
	static const char *const titles[] = {
		[NEXT_START_WARM] = "WARM",
		[NEXT_START_COLD] = "COLD",
		[NEXT_START_UNKNOWN] = "UNKNOWN",
	};

	NextStartFields(next_start, detail);
	if (detail == NULL)
		return;
	Text("next start: %s", titles[next_start]);
	if (next_start == NEXT_START_WARM)
		Text(ngettext(", %llu of %llu page\n", ", %llu of %llu pages\n", saved),
			 (unsigned long long) kept, (unsigned long long) saved);
	else
		Text(": %s\n", detail);
}

/* What to do about a start that is not warm, or "". */
void
PrintHint(const char *hint)
{
	if (hint[0] != '\0')
		Text(_("hint: %s\n"), hint);
	PrintField(NULL, "hint", AsString(hint[0] != '\0' ? hint : NULL));
}

/* What a verb exits with that tells of the next start. */
int
ExitStatus(NextStart next_start)
{
	switch (next_start)
	{
		case NEXT_START_WARM:
			return EXIT_WARM;
		case NEXT_START_COLD:
			return EXIT_COLD;
		case NEXT_START_UNKNOWN:
			return EXIT_UNKNOWN;
	}
	return EXIT_ERROR;			/* keep compiler quiet */
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
