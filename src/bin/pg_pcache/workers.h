/*-------------------------------------------------------------------------
 *
 * workers.h
 *	  Threads that share the tasks of a verb.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/workers.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef WORKERS_H
#define WORKERS_H

#include <pthread.h>

/*
 * Tasks are numbered from 0, and handed out in that order.  Each thread has a
 * state of its own, of state_size bytes, zeroed when begin() gets it.  A
 * callback that fails calls FailWork(), and no task is begun after that.
 */
typedef struct Work
{
	int			n_workers;		/* threads; at least one is used */
	uint64		n_tasks;
	uint64		total_bytes;	/* for the progress report */
	bool		progress;
	size_t		state_size;
	void		(*begin) (struct Work *work, void *state);
	void		(*task) (struct Work *work, uint64 task, void *state);
	void		(*end) (struct Work *work, void *state);	/* only one thread at a
															 * time calls it */
	void	   *arg;			/* for the callbacks */

	/* Only workers.c looks at these, under the lock, until DoWork() returns. */
	pthread_mutex_t lock;
	pthread_mutex_t end_lock;	/* held around end() */
	uint64		next_task;
	uint64		done_bytes;
	int			running;
	bool		failed;
	char		failure[1024];	/* translated; the first one */
} Work;

extern bool DoWork(Work *work);
extern void NoteProgress(Work *work, uint64 bytes);
extern void WarnWork(Work *work, const char *fmt,...) pg_attribute_printf(2, 3);
extern void FailWork(Work *work, const char *fmt,...) pg_attribute_printf(2, 3);

#endif							/* WORKERS_H */
