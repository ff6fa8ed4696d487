/*-------------------------------------------------------------------------
 *
 * test_buf_table_link.c
 *	  The mapping table: all interleavings of processes that fill it without
 *	  locks.
 *
 * buf_table.c is included as it is.  The macros before that put functions of this
 * file in the place of the atomic operations, of memcpy() and of
 * GetBufferDescriptor().  So an actor can be stopped before it reads a bucket,
 * before it stores the link behind it, before the exchange, and before it
 * compares each tag (interleave.h).
 *
 * After each step, each buffer that was inserted must be in its chain, once, and
 * what is behind it must be what it was.  In the end, of all buffers with one tag
 * one is the first, and each other one knows of another.  A walker must find each
 * tag that was inserted before it began.
 *
 * Last, some steps are done wrong, which must show: see mutants[].
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_buf_table_link.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/buf_internals.h"
#include "storage/shmem.h"

#define N_ACTORS		3

#include "unit.h"
#include "unit_server.h"
#include "unit_assert.h"
#include "interleave.h"

/* ------------------------------------------------------------------------
 * The code under test
 * ------------------------------------------------------------------------
 */

static uint64 HookRead(volatile pg_atomic_uint64 *bucket);
static bool HookCas(volatile pg_atomic_uint64 *bucket, uint64 *expected, uint64 value);
static void HookMemcpy(void *dest, const void *src, size_t len);
static BufferDesc *HookDescriptor(uint32 buf_id);

#undef memcpy
#define memcpy HookMemcpy
#define pg_atomic_read_u64 HookRead
#define pg_atomic_compare_exchange_u64 HookCas
#define GetBufferDescriptor HookDescriptor
#include "buf_table.c"
#undef memcpy
#undef pg_atomic_read_u64
#undef pg_atomic_compare_exchange_u64
#undef GetBufferDescriptor
#include "unit_buf_table.h"

/* ------------------------------------------------------------------------
 * Scenarios
 * ------------------------------------------------------------------------
 */

#define N_BUFFERS		16
#define MAX_INSERTED	3		/* by one actor */
#define NONE			(-1)
#define UNKNOWN			(-2)

typedef enum Mutant
{
	M_NONE,
	M_STORE,
	M_LINK_LATE,
	M_LINK_ONCE,
	M_SEARCH_LATE,
	M_SEARCH_EARLY,
	N_MUTANTS
} Mutant;

static const char *const mutants[N_MUTANTS] = {
	[M_STORE] = "a plain store, not compare-and-exchange",
	[M_LINK_LATE] = "the link is stored after the exchange",
	[M_LINK_ONCE] = "the link is not stored again after an exchange that failed",
	[M_SEARCH_LATE] = "the search for the tag leaves out the first buffer",
	[M_SEARCH_EARLY] = "the search for the tag is done before the exchange",
};

static Mutant mutant;

/*
 * The tags that each actor inserts, as letters, or '?' and those that a walker
 * looks for.  All letters share a bucket, and those of the same case a hash code.
 * The first string is there already.
 */
static const struct
{
	const char *there;
	const char *actors[N_ACTORS];
}			scenarios[] = {
	{"", {"A", "A"}},
	{"", {"A", "B"}},
	{"", {"A", "b"}},
	{"A", {"A", "A"}},
	{"AB", {"B", "A"}},
	{"bAB", {"AC", "aB"}},
	{"", {"AB", "BA"}},
	{"", {"ABC", "CBA"}},
	{"", {"AA", "AA"}},
	{"", {"AbA", "bAb"}},
	{"", {"A", "A", "A"}},
	{"", {"A", "A", "B"}},
	{"", {"A", "B", "C"}},
	{"", {"A", "A", "b"}},
	{"A", {"B", "B", "A"}},
	{"", {"AB", "BA", "A"}},
	{"", {"A", "A", "?A"}},
	{"", {"A", "B", "?B"}},
	{"", {"A", "b", "?Ab"}},
	{"B", {"AB", "BA", "?BA"}},
};

/* All that the actors share, beside the table. */
static struct
{
	int			n_buffers;		/* in use */
	int			first[N_ACTORS];	/* of the buffers of each */
	bool		inserted[N_BUFFERS];
	int			answers[N_BUFFERS];
	bool		in_chain[N_BUFFERS];	/* after the last step */
	bool		linked[N_BUFFERS];	/* after any step */
	BufTableLink behind[N_BUFFERS]; /* of those that are linked */
}			world;

static int	current_scenario;

/* Of each actor: what it is inserting, and how far it is. */
static int	own[N_ACTORS];
static bool searches[N_ACTORS];
static int	stores[N_ACTORS];

static BufferTag
LetterTag(char letter)
{
	return BlockTag(letter);
}

static uint32
LetterHash(char letter)
{
	return letter >= 'a' ? NUM_BUFFER_PARTITIONS : 0;
}

static BufTableLink *
Bucket(void)
{
	return &Buckets[0];
}

static uint64
LinkBits(BufTableLink link)
{
	return (uint64) link.hashcode << 32 | link.next;
}

/* ------------------------------------------------------------------------
 * What the code under test calls
 * ------------------------------------------------------------------------
 */

static uint64
HookRead(volatile pg_atomic_uint64 *bucket)
{
	Step();
	Saw(bucket->value);
	return bucket->value;
}

static bool
HookCas(volatile pg_atomic_uint64 *bucket, uint64 *expected, uint64 value)
{
	bool		same;

	Step();
	Saw(bucket->value);
	same = bucket->value == *expected;
	if (!same && mutant != M_STORE)
	{
		*expected = bucket->value;
		return false;
	}
	bucket->value = value;
	if (mutant == M_LINK_LATE)
	{
		Step();
		memcpy(&Links[own[me]], expected, sizeof(*expected));
	}
	return true;
}

static void
HookMemcpy(void *dest, const void *src, size_t len)
{
	if (dest >= (void *) Links && dest < (void *) (Links + NBuffers))
	{
		stores[me]++;
		if (mutant == M_LINK_LATE || (mutant == M_LINK_ONCE && stores[me] > 1))
			return;
		Step();
	}
	memcpy(dest, src, len);
}

/* Called for the buffer that was inserted, and then for each with its hash code. */
static BufferDesc *
HookDescriptor(uint32 buf_id)
{
	static BufferDesc nobody;

	/* it has been read already who this is */
	Saw(buf_id);
	Step();
	if (mutant == M_SEARCH_LATE && searches[me])
	{
		searches[me] = false;
		return &nobody;
	}
	searches[me] = (int) buf_id == own[me];
	return GetBufferDescriptor(buf_id);
}

/* ------------------------------------------------------------------------
 * Actors
 * ------------------------------------------------------------------------
 */

static void
Insert(int buf_id, uint32 hashcode)
{
	const BufferTag *tag = &GetBufferDescriptor(buf_id)->tag;

	own[me] = buf_id;
	searches[me] = false;
	stores[me] = 0;
	if (mutant == M_SEARCH_EARLY)
	{
		BufTableLink own_link = {(uint32) buf_id + 1, hashcode};
		BufTableLink link = *Bucket();
		int			twin;

		Saw(LinkBits(link));
		twin = SearchChain(link, tag, hashcode);
		Saw(twin);
		(void) PushLink(own_link, Bucket ());
		world.answers[buf_id] = twin;
	}
	else
		world.answers[buf_id] = BufTableLinkBuffer(buf_id, hashcode);
	world.inserted[buf_id] = true;
}

static bool
IsInserted(const BufferTag *tag)
{
	for (int i = 0; i < world.n_buffers; i++)
	{
		if (world.inserted[i] && BufferTagsEqual(&GetBufferDescriptor(i)->tag, tag))
			return true;
	}
	return false;
}

static void
Walk(char letter)
{
	BufferTag	tag = LetterTag(letter);
	BufTableLink link;
	bool		expected;
	int			found;

	Step();
	expected = IsInserted(&tag);
	link = *Bucket();
	Saw(Mix(LinkBits(link), expected));
	found = SearchChain(link, &tag, LetterHash(letter));
	if (found < 0 && expected)
		Violation(1, "a walker does not find %c", letter);
	if (found >= 0 && !BufferTagsEqual(&GetBufferDescriptor(found)->tag, &tag))
		Violation(1, "a walker finds another buffer for %c", letter);
}

static void
Act(void)
{
	const char *letters = scenarios[current_scenario].actors[me];

	if (letters[0] == '?')
	{
		for (int i = 1; letters[i] != '\0'; i++)
		{
			Forget(i, 0);
			Walk(letters[i]);
		}
		return;
	}
	for (int i = 0; letters[i] != '\0'; i++)
	{
		Forget(i, 0);
		Insert(world.first[me] + i, LetterHash(letters[i]));
	}
}

/* Give buffers their tags; returns the first one. */
static int
TakeBuffers(const char *letters)
{
	int			first = world.n_buffers;

	if (letters[0] == '?')
		return NONE;
	for (int i = 0; letters[i] != '\0'; i++)
	{
		BufferTag	tag = LetterTag(letters[i]);

		world.answers[world.n_buffers] = UNKNOWN;
		SetTag(world.n_buffers++, &tag);
	}
	return first;
}

static void
Reset(int scenario)
{
	const char *there = scenarios[scenario].there;
	Mutant		save_mutant = mutant;

	current_scenario = scenario;
	memset(&world, 0, sizeof(world));
	Begin(N_BUFFERS);

	mutant = M_NONE;
	me = 0;
	(void) TakeBuffers(there);
	for (int i = 0; there[i] != '\0'; i++)
		Insert(i, LetterHash(there[i]));
	mutant = save_mutant;

	for (n_actors = 0; n_actors < N_ACTORS && scenarios[scenario].actors[n_actors] != NULL; n_actors++)
	{
		world.first[n_actors] = TakeBuffers(scenarios[scenario].actors[n_actors]);
		actors[n_actors].program = Act;
		own[n_actors] = NONE;
	}
}

static bool
IsThere(int wait, int waits_for)
{
	return true;				/* nobody waits */
}

/* After each step: is the chain one, and has nothing in it changed? */
static void
NoteStores(void)
{
	memset(world.in_chain, 0, sizeof(world.in_chain));
	for (BufTableLink link = *Bucket(); link.next != 0; link = Links[link.next - 1])
	{
		int			i = link.next - 1;

		if (i >= world.n_buffers || world.in_chain[i])
		{
			Violation(1, "the chain comes to buffer %d %s", i, i < world.n_buffers ? "again" : "");
			return;
		}
		world.in_chain[i] = true;
		if (world.linked[i] && LinkBits(world.behind[i]) != LinkBits(Links[i]))
			Violation(1, "what is behind buffer %d has changed", i);
		world.linked[i] = true;
		world.behind[i] = Links[i];
	}
}

static uint64
HashWorld(void)
{
	uint64		hash = LinkBits(*Bucket());

	hash = HashBytes(hash, Links, world.n_buffers * sizeof(BufTableLink));
	for (int i = 0; i < world.n_buffers; i++)
		hash = Mix(hash, Mix(world.answers[i], world.inserted[i]));
	return hash;
}

/* ------------------------------------------------------------------------
 * What must be true
 * ------------------------------------------------------------------------
 */

static void
CheckState(void)
{
	for (int i = 0; i < world.n_buffers; i++)
	{
		if ((world.inserted[i] || world.linked[i]) && !world.in_chain[i])
			Violation(1, "buffer %d is not in its chain", i);
	}
}

static void
CheckEnd(void)
{
	for (int i = 0; i < world.n_buffers; i++)
	{
		const BufferTag *tag = &GetBufferDescriptor(i)->tag;
		int			twin = world.answers[i];
		int			firsts = 0;

		for (int k = 0; k < world.n_buffers; k++)
		{
			if (BufferTagsEqual(&GetBufferDescriptor(k)->tag, tag))
				firsts += world.answers[k] == NONE;
		}
		if (firsts != 1)
			Violation(1, "%d buffers are the first with tag %c", firsts, tag->blockNum);
		if (twin != NONE && (twin < 0 || twin == i ||
							 !BufferTagsEqual(&GetBufferDescriptor(twin)->tag, tag)))
			Violation(1, "buffer %d is taken for a twin of buffer %d", twin, i);
	}
}

static const char *
ScenarioName(int i)
{
	static char name[64];

	snprintf(name, sizeof(name), "\"%s\", then %s, %s%s%s", scenarios[i].there,
			 scenarios[i].actors[0], scenarios[i].actors[1],
			 scenarios[i].actors[2] != NULL ? ", " : "",
			 scenarios[i].actors[2] != NULL ? scenarios[i].actors[2] : "");
	return name;
}

static void
TestInterleavings(void **state)
{
	mutant = M_NONE;
	for (int i = 0; i < lengthof(scenarios); i++)
	{
		uint64		states = n_states;

		Search(i);
		print_message("%-24s %8llu states\n", ScenarioName(i),
					  (unsigned long long) (n_states - states));
		if (violation[0] != '\0')
			fail_msg("%s: %s", ScenarioName(i), violation);
	}
}

static void
TestMutants(void **state)
{
	int			missed = 0;

	for (mutant = M_NONE + 1; mutant < N_MUTANTS; mutant++)
	{
		int			i = 0;

		do
			Search(i);
		while (violation[0] == '\0' && ++i < lengthof(scenarios));
		print_message("%-60s %s%s%s\n", mutants[mutant],
					  violation[0] != '\0' ? ScenarioName(i) : "not found",
					  violation[0] != '\0' ? ": " : "", violation);
		missed += violation[0] == '\0';
	}
	mutant = M_NONE;
	assert_int_equal(missed, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestInterleavings),
		cmocka_unit_test(TestMutants),
	};

	return cmocka_run_group_tests_name("filling the mapping table", tests, NULL, NULL);
}
