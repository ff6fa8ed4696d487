/*-------------------------------------------------------------------------
 *
 * promotion.c
 *	  How warm would a promotion of a running standby be?
 *
 * The worker of pg_hotset leaves that in a file after each round, and removes it
 * when it no longer follows a primary.  So nothing is asked of the server, which
 * might want a password, or not answer.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/promotion.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <signal.h>

#include "hotset_set.h"
#include "pg_pcache.h"
#include "utils/pidfile.h"

/* When did the server on this data directory start?  -1 if that is unknown. */
static long long
ServerStart(const char *pgdata)
{
	char	   *line = LockFileLine(pgdata, LOCK_FILE_LINE_START_TIME);

	return line != NULL ? strtoll(line, NULL, 10) : -1;
}

/*
 * What the worker of the server that runs has left, if it still runs.  A server that
 * was killed has left something, too, and so has a worker that a crash has ended,
 * until the server can be asked again.
 */
Promotion
ReadPromotion(const char *pgdata)
{
	Promotion	promotion = {0};
	char	   *path = psprintf("%s/%s", pgdata, HOTSET_SHARE_FILE);
	int			fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	FILE	   *file = fd >= 0 ? fdopen(fd, "r") : NULL;
	long long	start = ServerStart(pgdata);
	long long	compared;
	long long	taken;
	double		percent;
	int			pid;

	if (file == NULL && errno != ENOENT)
		pg_log_warning("could not open file \"%s\" for reading: %m", path);
	if (file == NULL)
		return promotion;
	if (fscanf(file, HOTSET_SHARE_FORMAT, &compared, &taken, &percent, &pid) == 4 &&
		start >= 0 && compared >= start && percent >= 0 && percent <= 100 &&
		pid > 1 && (kill(pid, 0) == 0 || errno == EPERM))
	{
		promotion.known = true;
		promotion.percent_warm = percent;
		promotion.taken = taken;
	}
	fclose(file);
	pfree(path);
	return promotion;
}
