/*-------------------------------------------------------------------------
 *
 * workers.c
 *	  Threads that share the chunks of an image.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/workers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "workers.h"

/* How often progress is reported. */
#define REPORT_INTERVAL_USEC	50000L

/*
 * Have all threads stop.  The first failure is the one to report; errno is
 * still that of the caller when the message is put together.
 */
void
FailWork(Work *work, const char *fmt,...)
{
	int			save_errno = errno;
	va_list		ap;

	pthread_mutex_lock(&work->lock);
	if (!work->failed)
	{
		va_start(ap, fmt);
		errno = save_errno;		/* for %m */
		vsnprintf(work->failure, sizeof(work->failure), fmt, ap);
		va_end(ap);
		work->failed = true;
	}
	pthread_mutex_unlock(&work->lock);
}

/* A warning that is not mixed up with that of another thread. */
void
WarnWork(Work *work, const char *fmt,...)
{
	char		message[1024];
	va_list		ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&work->lock);
	pg_log_warning("%s", message);
	pthread_mutex_unlock(&work->lock);
}

/* Count something that several threads count. */
void
AddToCount(uint64 *count, uint64 n)
{
	__atomic_fetch_add(count, n, __ATOMIC_RELAXED);
}

/* Hand out the next task; false if there is none, or somebody has failed. */
static bool
TakeTask(Work *work, uint64 *task)
{
	bool		taken;

	pthread_mutex_lock(&work->lock);
	taken = !work->failed && work->next_task < work->n_tasks;
	if (taken)
		*task = work->next_task++;
	pthread_mutex_unlock(&work->lock);
	return taken;
}

static void *
Worker(void *arg)
{
	Work	   *work = arg;
	ImageBuffer raw;
	ImageBuffer stored;
	uint64		task;

	AllocateChunkBuffers(work->image, &raw, &stored);
	while (TakeTask(work, &task))
		work->task(work, task, &raw, &stored);
	if (work->end != NULL)
		work->end(work);
	free(raw.data);
	free(stored.data);

	pthread_mutex_lock(&work->lock);
	work->running--;
	pthread_mutex_unlock(&work->lock);
	return NULL;
}

/* Tell how far they are, until all threads have ended. */
static void
ReportWork(Work *work)
{
	for (;;)
	{
		uint64		done;
		int			running;

		pthread_mutex_lock(&work->lock);
		done = __atomic_load_n(&work->done_bytes, __ATOMIC_RELAXED);
		running = work->running;
		pthread_mutex_unlock(&work->lock);
		if (running == 0)
			return;
		ReportProgress(done, work->total_bytes, false);
		pg_usleep(REPORT_INTERVAL_USEC);
	}
}

/*
 * Run the threads, and wait for them.  Returns false if a callback has failed;
 * failure says why.
 */
bool
DoWork(Work *work)
{
	int			n = Max(1, work->n_workers);
	pthread_t  *threads = pg_malloc_array(pthread_t, n);

	pthread_mutex_init(&work->lock, NULL);
	work->next_task = 0;
	work->done_bytes = 0;
	work->failed = false;
	work->running = n;
	for (int i = 0; i < n; i++)
	{
		errno = pthread_create(&threads[i], NULL, Worker, work);
		if (errno != 0)
			pg_fatal("could not create thread: %m");
	}
	if (work->progress)
		ReportWork(work);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (work->progress && !work->failed)
		ReportProgress(work->done_bytes, work->total_bytes, true);
	pg_free(threads);
	return !work->failed;
}
