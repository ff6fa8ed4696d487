/*-------------------------------------------------------------------------
 *
 * workers.h
 *	  Threads that share the chunks of an image.
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

#include "image.h"

/*
 * Tasks are numbered from 0, and handed out in that order.  Each thread has buffers of its own
 * for a chunk of the image, as it is in memory and as it is stored.  A callback that fails calls
 * FailWork(), and no task is begun after that.
 */
typedef struct Work
{
	int			n_workers;		/* threads; at least one is used */
	uint64		n_tasks;
	uint64		total_bytes;	/* for the progress report */
	bool		progress;
	const Image *image;
	void		(*task) (struct Work *work, uint64 task, ImageBuffer *raw, ImageBuffer *stored);
	void		(*end) (struct Work *work); /* of a thread; or NULL */
	void	   *arg;			/* for the callbacks */
	uint64		done_bytes;		/* for the progress report, too; they count it */

	/* Only workers.c looks at these, under the lock, until DoWork() returns. */
	pthread_mutex_t lock;
	uint64		next_task;
	int			running;
	bool		failed;
	char		failure[1024];	/* translated; the first one */
} Work;

extern bool DoWork(Work *work);
extern void AddToCount(uint64 *count, uint64 n);
extern void WarnWork(Work *work, const char *fmt,...) pg_attribute_printf(2, 3);
extern void FailWork(Work *work, const char *fmt,...) pg_attribute_printf(2, 3);

#endif							/* WORKERS_H */
