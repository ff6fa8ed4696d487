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
 * Read the share that the worker has left, if this worker still runs.  A server
 * that was killed leaves its file behind.  So does a worker that ended in a crash,
 * until it is started again.  Such files do not count.
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
