/*-------------------------------------------------------------------------
 *
 * restartoptions.c
 *	  What the options of "pg_pcache restart" and prepare say.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartoptions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>

#include "common/logging.h"
#include "restart.h"

#define DEFAULT_DRAIN_MS	5000.0
#define DEFAULT_DIRTY_LIMIT	(UINT64CONST(64) * 1024 * 1024 / BLCKSZ)

/* As pg_ctl does. */
#define DEFAULT_TIMEOUT_MS	60000.0

/* A time with a unit, or in seconds, in milliseconds. */
static double
ParseTime(const char *value, const char *option)
{
	static const struct
	{
		const char *name;
		double		factor;
	}			units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}};
	char	   *end;
	double		number = strtod(value, &end);

	while (*end == ' ')
		end++;
	for (int i = 0; i < lengthof(units); i++)
	{
		/* strtod() takes a sign, "inf" and "nan" as well */
		if (value[0] >= '0' && value[0] <= '9' && strcmp(end, units[i].name) == 0 &&
			number > 0 && number * units[i].factor <= INT_MAX)
			return number * units[i].factor;
	}
	pg_log_error("invalid value \"%s\" for option %s", value, option);
	pg_log_error_hint("Valid units for this parameter are \"ms\", \"s\", and \"min\".");
	exit(EXIT_ERROR);
}

/* What the options say. */
void
ReadRestartOptions(Restart *restart)
{
	const PCacheOptions *options = restart->options;
	const char *timeout = getenv("PGCTLTIMEOUT");

	restart->dirty_limit = options->dirty_limit == NULL ? DEFAULT_DIRTY_LIMIT :
		ParseSize(options->dirty_limit, "--dirty-limit");
	restart->drain_timeout = options->drain_timeout == NULL ? DEFAULT_DRAIN_MS :
		ParseTime(options->drain_timeout, "--drain-timeout");
	if (options->max_pause != NULL)
		restart->max_pause = ParseTime(options->max_pause, "--max-pause");
	if (options->on_failure != NULL && strcmp(options->on_failure, "pause") == 0)
		restart->stay_paused = true;
	else if (options->on_failure != NULL && strcmp(options->on_failure, "resume") != 0)
	{
		pg_log_error("invalid value \"%s\" for option %s", options->on_failure, "--on-failure");
		pg_log_error_hint("Valid values are \"resume\" and \"pause\".");
		exit(EXIT_ERROR);
	}
	if (options->command != NULL && options->command[0] == '\0')
		pg_fatal("option %s needs a command", "--command");
	restart->server.timeout = timeout == NULL ? DEFAULT_TIMEOUT_MS : ParseTime(timeout, "PGCTLTIMEOUT");
	for (SimpleStringListCell *cell = options->pgbouncers.head; cell != NULL; cell = cell->next)
		restart->n_poolers++;
	restart->poolers = pg_malloc0_array(Pooler, restart->n_poolers + 1);
	restart->n_poolers = 0;
	for (SimpleStringListCell *cell = options->pgbouncers.head; cell != NULL; cell = cell->next)
		restart->poolers[restart->n_poolers++].conninfo = cell->val;
}
