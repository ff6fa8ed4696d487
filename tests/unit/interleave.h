/*-------------------------------------------------------------------------
 *
 * interleave.h
 *	  All interleavings of some actors.
 *
 * Each actor runs its program as a coroutine, which Step() stops.  Then any other
 * actor may go on, so the functions that a test puts in the place of atomic
 * operations and the like begin with Step().  (All actors see stores in one order:
 * the CPU's own reordering is not part of this.)
 *
 * The search is depth first.  A state that was seen before is not entered
 * again; it is known by HashWorld(), and for each actor by how far it is and what
 * it has read so far, on which alone it depends.  To go back to a state, the
 * steps that lead to it are done again.
 *
 * The test defines the functions below.  To be included after unit.h, once, with
 * N_ACTORS defined.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/interleave.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef INTERLEAVE_H
#define INTERLEAVE_H

#include <ucontext.h>

#include "port/pg_bitutils.h"

typedef struct Actor
{
	void		(*program) (void);
	jmp_buf		context;
	bool		started;
	bool		finished;
	int			wait;			/* for what, or 0; the test knows what it
								 * means */
	int			waits_for;
	uint64		history;		/* of how far it is, and of what it has read */
} Actor;

#define STACK_SIZE		(64 * 1024)
#define MAX_DEPTH		2000

typedef struct Choice
{
	int8		actor;
	uint8		others;			/* bitmap: not tried yet */
} Choice;

static Actor actors[N_ACTORS];
static char stacks[N_ACTORS][STACK_SIZE] __attribute__((aligned(64)));
static int	n_actors;			/* of this scenario */
static int	me;
static bool alone;				/* nobody else is running */
static jmp_buf scheduler;
static Choice path[MAX_DEPTH];
static int	depth;				/* of path */
static int	position;			/* in path */

static uint64 n_states;

/* What a check has found first. */
static char violation[512];		/* empty: nothing is wrong */
static int	violation_kind;		/* as the test numbers them */

static void Violation(int kind, const char *fmt,...) pg_attribute_printf(2, 3);

static void
Violation(int kind, const char *fmt,...)
{
	va_list		args;

	if (violation[0] != '\0')
		return;
	violation_kind = kind;
	va_start(args, fmt);
	vsnprintf(violation, sizeof(violation), fmt, args);
	va_end(args);
}

/* The world as it is when a scenario begins, with n_actors and their programs. */
static void Reset(int scenario);

/* All that the actors share. */
static uint64 HashWorld(void);

/* Called whenever an actor has stopped. */
static void NoteStores(void);

/* Is what this actor waits for there? */
static bool IsThere(int wait, int waits_for);

/* Is this state right?  Is it, when all actors have finished? */
static void CheckState(void);
static void CheckEnd(void);

static inline uint64
Mix(uint64 hash, uint64 value)
{
	hash = (hash ^ value) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ (hash >> 29);
}

static uint64
HashBytes(uint64 hash, const void *data, size_t len)
{
	const char *p = data;

	Assert(len % 4 == 0);
	for (; len >= 8; len -= 8, p += 8)
	{
		uint64		v;

		memcpy(&v, p, 8);
		hash = Mix(hash, v);
	}
	if (len > 0)
	{
		uint32		v;

		memcpy(&v, p, 4);
		hash = Mix(hash, v);
	}
	return hash;
}

/* The end of a step: let the others go on. */
static void
Step(void)
{
	NoteStores();
	if (alone)
		return;
	actors[me].history = Mix(actors[me].history, 1);
	/* on the way back to a state, switch only where the path does */
	if (position < depth && path[position].actor == me &&
		actors[me].wait == 0)
	{
		position++;
		return;
	}
	if (_setjmp(actors[me].context) == 0)
		_longjmp(scheduler, 1);
}

static inline void
StepAndWait(int wait, int waits_for)
{
	actors[me].wait = wait;
	actors[me].waits_for = waits_for;
	Step();
	actors[me].wait = 0;
}

/* Remember what was read. */
static inline void
Saw(uint64 value)
{
	actors[me].history = Mix(actors[me].history, value + 2);
}

/*
 * From here on what the actor does depends on nothing that it has read, but
 * for what is given.
 */
#define Forget(k, remembered) \
	(actors[me].history = Mix(Mix(__LINE__, k), remembered))

static bool
CanGoOn(const Actor *actor)
{
	return !actor->finished &&
		(actor->wait == 0 || IsThere(actor->wait, actor->waits_for));
}

static void
Run(void)
{
	actors[me].program();
	actors[me].finished = true;
	_longjmp(scheduler, 1);
}

static uint64 *seen;
static uint64 seen_size;
static uint64 seen_used;

static bool
SeenInsert(uint64 hash)
{
	if (hash == 0)
		hash = 1;
	if (seen_used * 2 >= seen_size)
	{
		uint64	   *old = seen;
		uint64		old_size = seen_size;

		seen_size = Max(seen_size * 2, 1 << 16);
		seen = calloc(seen_size, sizeof(uint64));
		seen_used = 0;
		for (uint64 i = 0; i < old_size; i++)
		{
			if (old[i] != 0)
				SeenInsert(old[i]);
		}
		free(old);
	}
	for (uint64 i = hash & (seen_size - 1);; i = (i + 1) & (seen_size - 1))
	{
		if (seen[i] == hash)
			return false;
		if (seen[i] == 0)
		{
			seen[i] = hash;
			seen_used++;
			return true;
		}
	}
}

static uint64
HashState(void)
{
	uint64		hash = HashWorld();

	for (int a = 0; a < n_actors; a++)
		hash = Mix(Mix(hash, actors[a].history), actors[a].finished);
	return hash;
}

static void
Resume(int actor)
{
	static ucontext_t first;

	me = actor;
	if (_setjmp(scheduler) == 0)
	{
		/* only the first switch has to set up a stack; the others are cheaper */
		if (actors[actor].started)
			_longjmp(actors[actor].context, 1);
		actors[actor].started = true;
		getcontext(&first);
		first.uc_stack.ss_sp = stacks[actor];
		first.uc_stack.ss_size = STACK_SIZE;
		first.uc_link = NULL;
		makecontext(&first, Run, 0);
		setcontext(&first);
	}
	NoteStores();
}

/* All interleavings of a scenario, until the first violation. */
static void
Search(int scenario)
{
	violation[0] = '\0';
	if (seen != NULL)
		memset(seen, 0, seen_size * sizeof(uint64));
	seen_used = 0;
	depth = 0;

	for (;;)
	{
		memset(actors, 0, sizeof(actors));
		alone = true;
		Reset(scenario);
		alone = false;
		for (int a = 0; a < n_actors; a++)
			actors[a].history = 1;
		position = 0;
		while (position < depth)
		{
			int			actor = path[position].actor;

			if (!CanGoOn(&actors[actor]))
				fail_msg("the actors do not do the same again");
			position++;
			Resume(actor);
		}

		/* somewhere new: go on as long as it is */
		while (violation[0] == '\0')
		{
			uint8		able = 0;

			if (!SeenInsert(HashState()))
				break;
			n_states++;
			CheckState();
			for (int a = 0; a < n_actors; a++)
			{
				if (CanGoOn(&actors[a]))
					able |= 1 << a;
			}
			if (able == 0)
			{
				for (int a = 0; a < n_actors; a++)
				{
					if (!actors[a].finished)
						fail_msg("deadlock in scenario %d", scenario);
				}
				alone = true;
				CheckEnd();
				alone = false;
				break;
			}
			if (depth == MAX_DEPTH)
				fail_msg("MAX_DEPTH is too small");
			path[depth].actor = pg_rightmost_one_pos32(able);
			path[depth].others = able & (able - 1);
			position = ++depth;
			Resume(path[depth - 1].actor);
		}
		if (violation[0] != '\0')
			return;

		/* back to where another one could have gone on */
		while (depth > 0 && path[depth - 1].others == 0)
			depth--;
		if (depth == 0)
			return;
		path[depth - 1].actor = pg_rightmost_one_pos32(path[depth - 1].others);
		path[depth - 1].others &= path[depth - 1].others - 1;
	}
}

#endif							/* INTERLEAVE_H */
