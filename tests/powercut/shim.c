/*-------------------------------------------------------------------------
 *
 * shim.c
 *	  A preloaded library that keeps apart what has reached the media.
 *
 * The pool lies on tmpfs, where a store is there at once and flushes mean
 * nothing.  This library takes the place of libpmem's functions and keeps a
 * second file, the image: what persistent memory would hold if the power went
 * now and the CPU caches were lost.  A line gets there if a process flushed it
 * and then drained; README says which contents it may have.
 *
 * pmem_interpose.c tells of maps, flushes and drains, and fsdax.c makes tmpfs and
 * the host look like those that have persistent memory.  files.c does for files
 * what this does for the pool.  From the environment:
 *
 *	POWERCUT_IMAGE		the image; made as a copy of the pool if it is missing
 *	POWERCUT_SEED		of what is chosen at random, together with process ids
 *	IMAGE.ctl			see powercut.h
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/shim.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmem_interpose.h"
#include "powercut.h"

#define N_LOCKS			8192
#define MAX_PENDING		(1 << 20)

/* One of so many flushed lines arrives before the drain. */
#define EARLY			16

/* In a mapping of its own, inherited by fork(). */
typedef struct Shared
{
	_Atomic uint64_t ticket;
	_Atomic pid_t locks[N_LOCKS];
	uint64_t	applied[];		/* by line: ticket of what the image has */
} Shared;

/* A line that this process flushed. */
typedef struct Pending
{
	uint64_t	line;
	uint64_t	ticket;
	uint64_t	contents[LINE_SIZE / 8];
} Pending;

static char *base;				/* the pool, as the program sees it */
static size_t length;
static char *image;
static Shared *shared;
static size_t shared_size;
static Control *control;
static pid_t postmaster;

static Pending *pending;
static size_t n_pending;
static size_t max_pending;
static uint32_t pending_kinds;
static uint64_t random_state;

const char *const shim_name = "powercut";

/* xorshift64; each process has its own sequence */
uint64_t
random_number(void)
{
	if (random_state == 0)
	{
		const char *seed = getenv("POWERCUT_SEED");

		random_state = ((seed != NULL ? strtoull(seed, NULL, 0) : 0) * 0x9E3779B97F4A7C15) ^
			((uint64_t) getpid() << 32) ^ 1;
	}
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* What the parent flushed is not for the child to drain. */
static void
after_fork(void)
{
	n_pending = 0;
	pending_kinds = 0;
	random_state = 0;
}

static uint64_t
next_ticket(void)
{
	return atomic_fetch_add(&shared->ticket, 1) + 1;
}

/*
 * A state that the line had at one moment: all stores of a line reach the
 * media in program order.
 */
static void
snapshot(uint64_t line, uint64_t contents[LINE_SIZE / 8])
{
	const volatile uint64_t *from = (const volatile uint64_t *) (base + line * LINE_SIZE);

	for (int tries = 0;; tries++)
	{
		bool		same = true;

		for (int i = 0; i < LINE_SIZE / 8; i++)
			contents[i] = from[i];
		atomic_thread_fence(memory_order_acquire);
		for (int i = 0; i < LINE_SIZE / 8; i++)
			same = same && contents[i] == from[i];
		if (same)
			return;
		if (tries > 1000)
			sched_yield();
	}
}

static void
lock_line(uint64_t line)
{
	_Atomic pid_t *lock = &shared->locks[line % N_LOCKS];
	pid_t		me = getpid();

	for (unsigned spins = 1;; spins++)
	{
		pid_t		owner = 0;

		if (atomic_compare_exchange_strong(lock, &owner, me))
			return;
		if (spins % 1000 != 0)
			continue;

		/* killed, perhaps, with what it stored half done: so be it */
		if (kill(owner, 0) < 0 && errno == ESRCH)
			(void) atomic_compare_exchange_strong(lock, &owner, 0);
		sched_yield();
	}
}

static void
unlock_line(uint64_t line)
{
	atomic_store(&shared->locks[line % N_LOCKS], 0);
}

/*
 * Contents of a line arrive, unless newer ones are there.  The ticket was
 * drawn before the contents were read, so those with the larger ticket have
 * all stores that were made before the other one's flush.
 *
 * We may be killed in the middle.  The first word goes last: of an entry, that is
 * seq.
 */
static void
arrive(uint64_t line, uint64_t ticket, const uint64_t contents[LINE_SIZE / 8])
{
	volatile uint64_t *to = (volatile uint64_t *) (image + line * LINE_SIZE);

	/* nothing may happen that waits for a drain: somebody is about to kill us */
	while (atomic_load(&control->off))
		pause();
	lock_line(line);
	if (shared->applied[line] < ticket)
	{
		shared->applied[line] = ticket;
		for (int i = LINE_SIZE / 8 - 1; i >= 0; i--)
		{
			if (to[i] != contents[i])
				to[i] = contents[i];
		}
	}
	unlock_line(line);
}

static uint32_t
kind_of(size_t offset)
{
	if (offset < NOTES_OFFSET)
		return KIND_SUPERBLOCK;
	if (offset < LEDGER_OFFSET)
		return KIND_NOTE;
	if (offset < *(uint64_t *) (base + BLOCKS_OFFSET_FIELD))
		return KIND_ENTRY;
	return KIND_PAGE;
}

/* Stop a process, and wait until it is: a signal does not get there at once. */
static void
stop_process(pid_t pid)
{
	char		path[64];
	char		stat[512];

	kill(pid, SIGSTOP);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (;;)
	{
		int			fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t		n = fd < 0 ? 0 : read(fd, stat, sizeof(stat) - 1);
		char	   *name_end;

		if (fd >= 0)
			close(fd);
		if (n <= 0)
			return;				/* gone */
		stat[n] = '\0';
		name_end = strrchr(stat, ')');
		if (name_end == NULL || strchr("TtZX", name_end[2]) != NULL)
			return;
		sched_yield();
	}
}

/* Kill the whole server, us included. */
static void
cut(void)
{
	char		path[64];
	char		list[16384];
	int			fd;
	ssize_t		n;

	atomic_store(&control->off, 1);

	/* Nobody reaps its children then, so their process ids stay theirs. */
	if (postmaster != getpid())
		stop_process(postmaster);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", postmaster, postmaster);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, list, sizeof(list) - 1);
	if (n < 0)
		die("could not read %s", path);
	close(fd);
	list[n] = '\0';
	for (char *next = list, *end;; next = end)
	{
		pid_t		pid = strtol(next, &end, 10);

		if (end == next)
			break;
		if (pid != getpid())
			kill(pid, SIGKILL);
	}
	if (postmaster != getpid())
		kill(postmaster, SIGKILL);
	kill(getpid(), SIGKILL);
	pause();
}

static void
event(uint32_t which, uint32_t kinds)
{
	if (atomic_load_explicit(&control->armed, memory_order_acquire) != 0 &&
		control->event == which && (control->kinds & kinds) != 0 &&
		atomic_fetch_sub(&control->countdown, 1) == 1)
		cut();
}

void
media_drain(void)
{
	uint32_t	kinds = pending_kinds;

	file_drain();
	if (n_pending == 0)
		return;
	event(EVENT_DRAIN, kinds);
	for (size_t n = n_pending; n > 0; n--)
	{
		/* in no order */
		size_t		k = random_number() % n;
		Pending    *p = &pending[k];

		if (random_number() % 2 != 0)
		{
			/* the line was written back later than at the flush */
			p->ticket = next_ticket();
			snapshot(p->line, p->contents);
		}
		arrive(p->line, p->ticket, p->contents);
		if (n == n_pending / 2 + 1)
			event(EVENT_HALF, kinds);
		*p = pending[n - 1];
	}
	atomic_fetch_add(&control->arrived, n_pending);
	atomic_fetch_add(&control->drains, 1);
	n_pending = 0;
	pending_kinds = 0;
	event(EVENT_DONE, kinds);
}

/* Returns false if that is not memory of the pool. */
bool
media_flush(const void *addr, size_t len)
{
	size_t		offset = (const char *) addr - base;
	uint64_t	ticket;
	uint64_t	first;
	uint64_t	last;
	uint32_t	kind;

	if (base == NULL || (const char *) addr < base ||
		(const char *) addr >= base + length)
		return file_flush(addr, len);
	if (len == 0)
		return true;
	kind = kind_of(offset);
	first = offset / LINE_SIZE;
	last = (offset + len - 1) / LINE_SIZE;
	ticket = next_ticket();
	for (uint64_t line = first; line <= last; line++)
	{
		Pending    *p;

		if (n_pending == max_pending)
		{
			max_pending = max_pending == 0 ? 1024 : 2 * max_pending;
			pending = realloc(pending, max_pending * sizeof(Pending));
			if (pending == NULL)
				die("out of memory");
		}
		p = &pending[n_pending++];
		p->line = line;
		p->ticket = ticket;
		snapshot(line, p->contents);
		if (random_number() % EARLY == 0)
			arrive(line, ticket, p->contents);
	}
	pending_kinds |= kind;
	atomic_fetch_add(&control->flushed, last - first + 1);
	event(EVENT_FLUSH, kind);

	/* flushed lines may arrive at any time */
	if (n_pending >= MAX_PENDING)
		media_drain();
	return true;
}

/* The pool is mapped by the name that /proc has for its file descriptor. */
bool
is_pool(const char *path)
{
	char		target[PATH_MAX];
	ssize_t		len = readlink(path, target, sizeof(target) - 1);
	const char *name;

	if (len >= 0)
	{
		target[len] = '\0';
		path = target;
	}
	name = strrchr(path, '/');
	name = name == NULL ? path : name + 1;
	return strcmp(name, "pool") == 0 || strcmp(name, "pool.tmp") == 0;
}

static void
begin(char *pool, size_t pool_length)
{
	const char *path = getenv("POWERCUT_IMAGE");
	char		ctl[PATH_MAX];
	bool		fresh;
	static bool registered = false;

	if (path == NULL && getenv("POWERCUT_FILES") != NULL)
		return;					/* a pool that a power cut empties */
	if (path == NULL)
		die("POWERCUT_IMAGE is not set");
	fresh = access(path, F_OK) < 0;
	image = map_shared_file(path, pool_length);
	if (fresh)
		memcpy(image, pool, pool_length);
	if (control == NULL)
	{
		snprintf(ctl, sizeof(ctl), "%s.ctl", path);
		control = map_shared_file(ctl, sizeof(Control));
		atomic_store(&control->off, 0);
	}
	shared_size = sizeof(Shared) + pool_length / LINE_SIZE * sizeof(uint64_t);
	shared = mmap(NULL, shared_size, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("out of memory");
	base = pool;
	length = pool_length;
	postmaster = getpid();
	if (!registered)
		pthread_atfork(NULL, NULL, after_fork);
	registered = true;
}

void
media_mapped(const char *path, char *addr, size_t len)
{
	if (!is_pool(path))
	{
		file_mapped(path, addr, len);
		return;
	}
	if (base != NULL)
		die("a second pool");
	begin(addr, len);
}

void
media_unmapping(const void *addr)
{
	if (addr != base || base == NULL)
	{
		file_unmapping(addr);
		return;
	}
	munmap(image, length);
	munmap(shared, shared_size);
	base = NULL;
	n_pending = 0;
	pending_kinds = 0;
}
