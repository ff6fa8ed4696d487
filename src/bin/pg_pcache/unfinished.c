/*-------------------------------------------------------------------------
 *
 * unfinished.c
 *	  A file under a temporary name, which must not outlive its making.
 *
 * It is removed on exit, and when a signal ends the process.  After a crash the
 * next one who makes such a file finds it and removes it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/unfinished.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <unistd.h>

#include "pg_pcache.h"

/* For the signal handler. */
static struct
{
	volatile sig_atomic_t made;
	int			dir_fd;
	char		name[MAXPGPATH];
}			unfinished;

static void
RemoveUnfinished(void)
{
	if (unfinished.made)
		(void) unlinkat(unfinished.dir_fd, unfinished.name, 0);
	unfinished.made = 0;
}

static void
RemoveAndDie(SIGNAL_ARGS)
{
	RemoveUnfinished();
	/* die of the signal, as whoever sent it expects */
	pqsignal(postgres_signal_arg, SIG_DFL);
	raise(postgres_signal_arg);
}

/*
 * From now on remove that file in an open directory, as soon as
 * NoteUnfinished() says that it is there.  There can be one such file.
 */
void
WatchUnfinished(int dir_fd, const char *name)
{
	unfinished.dir_fd = dir_fd;
	strlcpy(unfinished.name, name, sizeof(unfinished.name));
	atexit(RemoveUnfinished);
	OnEndSignals(RemoveAndDie);
}

/* The file of a new pool was made just now: from now on a signal removes it. */
void
WatchPoolFile(int dir_fd)
{
	WatchUnfinished(dir_fd, PCACHE_POOL_FILE_TMP);
	NoteUnfinished(true);
}

/* Is the file there, and not finished? */
void
NoteUnfinished(bool made)
{
	unfinished.made = made;
}
