/*-------------------------------------------------------------------------
 *
 * restartpoint.c
 *	  Make the shutdown checkpoint small.
 *
 * A checkpoint writes what was dirty when it began, and meanwhile clients make other pages
 * dirty.  The next one begins with no more than these, so each is shorter, and at last the
 * shutdown checkpoint is.  What a checkpoint has written is counted by the server.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/restartpoint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"
#include "restart.h"

/* More of them do not make it smaller: the server makes that many pages dirty. */
#define MAX_CHECKPOINTS	3

/* The server counts a checkpoint after it has told us of its end. */
#define COUNT_WAIT_MS	1000
#define COUNT_LOOK_USEC	5000L

typedef struct Counts
{
	uint64		checkpoints;
	uint64		buffers;
} Counts;

/* What the server has counted; false if it does not tell. */
static bool
ReadCounts(PGconn *conn, Counts *counts)
{
	const char *query = PQserverVersion(conn) >= 170000 ?
		"SELECT num_timed + num_requested + restartpoints_timed + restartpoints_req, buffers_written FROM pg_catalog.pg_stat_checkpointer" :
		"SELECT checkpoints_timed + checkpoints_req, buffers_checkpoint FROM pg_catalog.pg_stat_bgwriter";
	PGresult   *res = PQexec(conn, query);
	bool		known = PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1;

	if (known)
	{
		counts->checkpoints = strtoull(PQgetvalue(res, 0, 0), NULL, 10);
		counts->buffers = strtoull(PQgetvalue(res, 0, 1), NULL, 10);
	}
	PQclear(res);
	return known;
}

/* How many buffers has the checkpoint written that has just ended? */
static bool
ReadWritten(PGconn *conn, const Counts *before, uint64 *written)
{
	double		until = NowMs() + COUNT_WAIT_MS;
	Counts		now;

	do
	{
		if (!ReadCounts(conn, &now))
			return false;
		if (now.checkpoints > before->checkpoints || now.buffers > before->buffers)
			break;
		pg_usleep(COUNT_LOOK_USEC);
	} while (NowMs() < until && !WasInterrupted());
	*written = now.buffers - before->buffers;
	return true;
}

/*
 * Write what is dirty, again as long as that is more than the limit.  Returns false if a
 * signal came, and gives up if the server refuses.
 */
bool
Checkpoint(Restart *restart)
{
	uint64		written;
	double		first = NowMs();
	double		took = 0;

	do
	{
		Counts		before = {0};
		bool		known = ReadCounts(restart->conn, &before);
		double		begin = NowMs();
		PGresult   *res = QueryOf(restart->conn, "CHECKPOINT");

		if (res == NULL)
			return false;
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
		{
			pg_log_error("could not make a checkpoint: %s", Complaint(restart->conn));
			pg_log_error_hint("Connect as a superuser, or as a member of pg_checkpoint.");
			exit(EXIT_ERROR);
		}
		PQclear(res);
		restart->checkpoints++;
		/* the next one, with no more to write, will take no longer */
		restart->estimate += NowMs() - begin - took;
		took = NowMs() - begin;
		if (!known || !ReadWritten(restart->conn, &before, &written))
		{
			WarnOf(restart, NULL, _("could not find out how much the checkpoint has written: %s"),
				   Complaint(restart->conn));
			break;
		}
		restart->checkpoint_buffers = written;
		ProgressOf(restart, _("checkpoint %d: %llu buffers in %.0f ms"), restart->checkpoints,
				   (unsigned long long) written, took);
	} while (written > restart->dirty_limit && restart->checkpoints < MAX_CHECKPOINTS);
	restart->phases[PHASE_CHECKPOINT] = NowMs() - first;
	return !WasInterrupted();
}
