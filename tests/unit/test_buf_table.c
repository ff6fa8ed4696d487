/*-------------------------------------------------------------------------
 *
 * test_buf_table.c
 *	  The mapping table: chains of buffer numbers.
 *
 * buf_table.c is included as it is, with its assertions, and is compared with a
 * model.  Its hash function is compared with random numbers.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_buf_table.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "catalog/pg_tablespace_d.h"
#include "port/atomics.h"
#include "storage/buf_internals.h"
#include "storage/shmem.h"

#include "unit.h"

/*
 * The build has no assertions, and the pg_config.h that meson makes undefines what the
 * command line defines, so they are defined once pg_config.h has been read.
 */
#undef USE_ASSERT_CHECKING
#define USE_ASSERT_CHECKING 1

#undef Assert
#define Assert(condition) \
	((condition) ? (void) 0 : ExceptionalCondition(#condition, __FILE__, __LINE__))

#include "buf_table.c"

/* ------------------------------------------------------------------------
 * What buf_table.c asks of the server, and buffers without pages
 * ------------------------------------------------------------------------
 */

int			NBuffers;
BufferDescPadded *BufferDescriptors;

static void *shmem = NULL;
static bool attach = false;
static sigjmp_buf error_escape;

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	assert_string_equal(name, "Shared Buffer Lookup Table");
	*found = attach;
	if (!attach)
	{
		free(shmem);
		shmem = aligned_alloc(PG_CACHE_LINE_SIZE, CACHELINEALIGN(size));
		memset(shmem, 0, size);
	}
	return shmem;
}

bool
errstart(int elevel, const char *domain)
{
	assert_int_equal(elevel, ERROR);
	siglongjmp(error_escape, 1);
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errmsg_internal(const char *fmt,...)
{
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
}

void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}

Size
add_size(Size a, Size b)
{
	assert_true(a + b >= a);
	return a + b;
}

Size
mul_size(Size a, Size b)
{
	assert_true(a == 0 || a * b / a == b);
	return a * b;
}

/* Make a table for n buffers without tags. */
static void
Begin(int n)
{
	NBuffers = n;
	free(BufferDescriptors);
	BufferDescriptors = aligned_alloc(PG_CACHE_LINE_SIZE,
									  CACHELINEALIGN(n * sizeof(BufferDescPadded)));
	memset(BufferDescriptors, 0, n * sizeof(BufferDescPadded));
	for (int i = 0; i < n; i++)
	{
		GetBufferDescriptor(i)->buf_id = i;
		ClearBufferTag(&GetBufferDescriptor(i)->tag);
	}
	InitBufTable(n);
}

static void
SetTag(int buf_id, const BufferTag *tag)
{
	BufferDesc *buf = GetBufferDescriptor(buf_id);

	buf->tag = *tag;
	pg_atomic_write_u32(&buf->state, BM_TAG_VALID);
}

static BufferTag
BlockTag(BlockNumber blkno)
{
	RelFileLocator rlocator = {DEFAULTTABLESPACE_OID, 5, 16384};
	BufferTag	tag;

	InitBufferTag(&tag, &rlocator, MAIN_FORKNUM, blkno);
	return tag;
}

static void
ClearTag(int buf_id)
{
	BufferDesc *buf = GetBufferDescriptor(buf_id);

	ClearBufferTag(&buf->tag);
	pg_atomic_write_u32(&buf->state, 0);
}

/* How many buffers are there in all chains?  Each of them must be there once. */
static int
CountBuffers(void)
{
	bool	   *seen = calloc(NBuffers, sizeof(bool));
	int			n = 0;

	for (uint32 b = 0; b <= BucketMask; b++)
	{
		for (BufTableLink link = Buckets[b]; link.next != 0; link = Links[link.next - 1])
		{
			assert_true(link.next <= (uint32) NBuffers);
			assert_false(seen[link.next - 1]);
			assert_int_equal(link.hashcode & BucketMask, b);
			seen[link.next - 1] = true;
			n++;
		}
	}
	free(seen);
	return n;
}

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

/* Buckets are a power of two, at least as many as buffers and as partitions. */
static void
TestSizes(void **state)
{
	const struct
	{
		int			buffers;
		Size		buckets;
	}			expected[] = {
		{16, 128}, {127, 128}, {128, 128}, {129, 256}, {16384, 16384},
		{16385, 32768}, {1048576, 1048576}, {INT_MAX / 2, 1 << 30},
	};

	for (int i = 0; i < lengthof(expected); i++)
	{
		Size		links = expected[i].buckets + expected[i].buffers;

		assert_int_equal(NumberOfBuckets(expected[i].buffers), expected[i].buckets);
		assert_int_equal(BufTableShmemSize(expected[i].buffers),
						 BUCKETS_OFFSET + 8 * links);
	}
	/* buffer numbers, plus one, fit into a link */
	assert_true((uint64) INT_MAX / 2 + 1 <= PG_UINT32_MAX);
}

/* The keys are other ones at each start, and the same ones in all processes. */
static void
TestKeys(void **state)
{
	BufferTag	tag = BlockTag(7);
	uint32		code;
	uint64		keys[NUM_HASH_KEYS];

	Begin(16);
	code = BufTableHashCode(&tag);
	memcpy(keys, HashKeys, sizeof(keys));
	for (int i = 0; i < NUM_HASH_KEYS; i++)
		assert_int_equal(keys[i] & 1, 1);

	attach = true;
	memset(HashKeys, 0, sizeof(HashKeys));
	Buckets = Links = NULL;
	InitBufTable(16);
	attach = false;
	assert_int_equal(BufTableHashCode(&tag), code);
	assert_ptr_equal(Links, &Buckets[128]);
	assert_true((char *) &Links[16] == (char *) shmem + BufTableShmemSize(16));

	Begin(16);
	for (int i = 0; i < NUM_HASH_KEYS; i++)
		assert_true(HashKeys[i] != keys[i]);
}

/* Each field of a tag counts, with the keys of the process. */
static void
TestFields(void **state)
{
	Begin(16);
	for (int round = 0; round < 1000; round++)
	{
		union
		{
			BufferTag	tag;
			uint32		words[5];
		}			u;
		uint32		code;

		for (int i = 0; i < 5; i++)
			u.words[i] = (uint32) Random();
		code = BufTableHashCode(&u.tag);
		for (int bit = 0; bit < 160; bit++)
		{
			u.words[bit / 32] ^= 1U << bit % 32;
			/* 1 in 2^32 times by chance, and never twice in a row */
			if (BufTableHashCode(&u.tag) == code)
			{
				HashKeys[0] += 2;
				assert_int_not_equal(BufTableHashCode(&u.tag), code);
			}
			u.words[bit / 32] ^= 1U << bit % 32;
		}
	}
}

static uint32 *chain_lengths;

/* Count one tag more; *longest is the longest chain so far. */
static void
CountOne(uint32 hashcode, uint32 n, uint32 *longest)
{
	uint32		length = ++chain_lengths[hashcode & (n - 1)];

	*longest = Max(*longest, length);
}

/* The longest chain that random numbers gave in some rounds. */
static uint32
LongestByChance(uint32 n)
{
	uint32		longest = 0;

	for (int round = 0; round < 4; round++)
	{
		memset(chain_lengths, 0, n * sizeof(uint32));
		for (uint32 i = 0; i < n; i++)
			CountOne((uint32) Random(), n, &longest);
	}
	return longest;
}

/* The i'th tag of a pattern. */
static BufferTag
PatternTag(int pattern, uint32 i)
{
	BufferTag	tag = BlockTag(0);

	if (pattern <= 17)
		tag.blockNum = i << pattern;	/* a stride of 2^pattern blocks */
	else if (pattern == 18)
		tag.relNumber += i;		/* consecutive relations of one block */
	else if (pattern == 19)
	{
		tag.relNumber += i / 4;
		tag.forkNum = i % 4;
	}
	else if (pattern == 20)
	{
		tag.relNumber += i / 16;
		tag.blockNum = i % 16;
	}
	else
	{
		tag.dbOid += i / 256;
		tag.relNumber += i % 256;
	}
	return tag;
}

/*
 * As many tags as there are buckets, in all patterns that are usual: partitions
 * are used alike, and no chain is twice as long as by chance.
 */
static void
TestHash(void **state)
{
	chain_lengths = malloc((1 << 18) * sizeof(uint32));
	for (uint32 n = 1 << 12; n <= 1 << 18; n *= 8)
	{
		uint32		by_chance = LongestByChance(n);
		double		expected = (double) n / NUM_BUFFER_PARTITIONS;
		double		worst = 0;
		uint32		longest = 0;

		for (int round = 0; round < 8; round++)
		{
			Begin(16);			/* other keys */
			for (int pattern = 0; pattern <= 21; pattern++)
			{
				uint32		in_partition[NUM_BUFFER_PARTITIONS] = {0};

				/* that many blocks are there? */
				if (pattern <= 17 && (uint64) n << pattern > PG_UINT32_MAX)
					continue;
				memset(chain_lengths, 0, n * sizeof(uint32));
				for (uint32 i = 0; i < n; i++)
				{
					BufferTag	tag = PatternTag(pattern, i);
					uint32		hashcode = BufTableHashCode(&tag);

					in_partition[BufTableHashPartition(hashcode)]++;
					CountOne(hashcode, n, &longest);
				}
				for (int p = 0; p < NUM_BUFFER_PARTITIONS; p++)
					worst = Max(worst, fabs(in_partition[p] - expected) / sqrt(expected));
			}
		}
		print_message("%u tags: longest chain %u, by chance %u; partitions within %.1f sigma\n",
					  n, longest, by_chance, worst);
		assert_true(longest <= 2 * by_chance);
		assert_true(worst < 8);
	}
	free(chain_lengths);
}

/*
 * Random insertions, deletions and lookups, as bufmgr.c does them.  Without keys
 * all tags have the same hash code, since each is the first one of a group.
 */
static void
RunModel(int n, bool with_keys)
{
	int			step = with_keys ? 1 : BLOCKS_PER_GROUP;
	int			ntags = 2 * n;
	int		   *where = malloc(ntags * sizeof(int));	/* buffer of each tag */
	int			used = 0;

	Begin(n);
	if (!with_keys)
		memset(HashKeys, 0, sizeof(HashKeys));
	for (int i = 0; i < ntags; i++)
		where[i] = -1;

	for (int op = 0; op < 40 * n; op++)
	{
		int			t = Random() % ntags;
		BufferTag	tag = BlockTag(t * step);
		uint32		hashcode = BufTableHashCode(&tag);
		int			buf_id = Random() % n;
		bool		is_free = !(pg_atomic_read_u32(&GetBufferDescriptor(buf_id)->state) & BM_TAG_VALID);

		assert_int_equal(BufTableLookup(&tag, hashcode), where[t]);
		if (is_free)
		{
			assert_int_equal(BufTableInsert(&tag, hashcode, buf_id), where[t]);
			if (where[t] < 0)
			{
				SetTag(buf_id, &tag);
				where[t] = buf_id;
				used++;
			}
		}
		else
		{
			BufferTag	old = GetBufferDescriptor(buf_id)->tag;
			uint32		old_code = BufTableHashCode(&old);

			assert_int_equal(where[old.blockNum / step], buf_id);
			switch (Random() % 4)
			{
				case 0:
					ClearTag(buf_id);
					BufTableDelete(&old, old_code);
					break;
				case 1:
					BufTableDelete(&old, old_code);
					ClearTag(buf_id);
					break;
				default:
					ClearTag(buf_id);
					BufTableDeleteBuffer(buf_id, old_code);
			}
			where[old.blockNum / step] = -1;
			used--;
		}
		if (op % n == 0)
			assert_int_equal(CountBuffers(), used);
	}
	assert_int_equal(CountBuffers(), used);
	free(where);
}

static void
TestModel(void **state)
{
	const int	sizes[] = {16, 127, 128, 129, 1000, 4096};

	for (int i = 0; i < lengthof(sizes); i++)
	{
		RunModel(sizes[i], true);
		RunModel(Min(sizes[i], 200), false);
	}
}

/* Every buffer is in use, and then none. */
static void
TestFull(void **state)
{
	Begin(129);
	for (int pass = 0; pass < 3; pass++)
	{
		for (int i = 0; i < NBuffers; i++)
		{
			BufferTag	tag = BlockTag(i);

			assert_int_equal(BufTableInsert(&tag, BufTableHashCode(&tag), i), -1);
			SetTag(i, &tag);
		}
		assert_int_equal(CountBuffers(), NBuffers);
		for (int i = 0; i < NBuffers; i++)
		{
			BufferTag	tag = BlockTag(i);

			ClearTag(i);
			BufTableDeleteBuffer(i, BufTableHashCode(&tag));
		}
		assert_int_equal(CountBuffers(), 0);
	}
}

/* To delete what is not there is an error. */
static void
TestCorrupted(void **state)
{
	for (int how = 0; how < 2; how++)
	{
		BufferTag	tag = BlockTag(0);
		BufferTag	other = BlockTag(BLOCKS_PER_GROUP);
		volatile bool failed = false;

		Begin(16);
		memset(HashKeys, 0, sizeof(HashKeys));
		assert_int_equal(BufTableInsert(&other, 0, 3), -1);
		SetTag(3, &other);
		if (sigsetjmp(error_escape, 0) == 0)
		{
			if (how == 0)
				BufTableDeleteBuffer(4, 0);
			else
				BufTableDelete(&tag, 0);
		}
		else
			failed = true;
		assert_true(failed);
		assert_int_equal(BufTableLookup(&other, 0), 3);
	}
}

/* What assertion-enabled builds notice at each search. */
typedef enum Wrong
{
	NOTHING,
	NO_TAG,						/* a buffer of the chain has no tag */
	OTHER_TAG,					/* or has another one */
	OTHER_BUCKET,				/* or is in another bucket's chain */
	N_WRONG
} Wrong;

/* The first tag behind this block that belongs into the first bucket. */
static BufferTag
TagOfFirstBucket(BlockNumber blkno)
{
	BufferTag	tag;

	do
		tag = BlockTag(++blkno);
	while ((BufTableHashCode(&tag) & BucketMask) != 0);
	return tag;
}

/* Buffers 0 and 1 are in a chain, and something is wrong with the former. */
static void
SearchWrongChain(Wrong wrong, int how)
{
	BufferTag	tags[3];
	BufferTag  *tag;
	uint32		hashcode;

	Begin(16);
	for (int i = 0; i < 3; i++)
	{
		tags[i] = TagOfFirstBucket(i > 0 ? tags[i - 1].blockNum : 0);
		hashcode = BufTableHashCode(&tags[i]);
		if (i < 2)
		{
			assert_int_equal(BufTableInsert(&tags[i], hashcode, i), -1);
			SetTag(i, &tags[i]);
		}
	}
	tag = &GetBufferDescriptor(0)->tag;
	if (wrong == NO_TAG)
		pg_atomic_write_u32(&GetBufferDescriptor(0)->state, 0);
	else if (wrong == OTHER_TAG)
		tag->blockNum++;
	else if (wrong == OTHER_BUCKET)
	{
		do
			tag->blockNum++;
		while ((BufTableHashCode(tag) & BucketMask) == 0);
		Links[1].hashcode = BufTableHashCode(tag);
	}

	if (how == 0)
		(void) BufTableLookup(&tags[1], BufTableHashCode(&tags[1]));
	else if (how == 1)
		(void) BufTableInsert(&tags[2], hashcode, 2);
	else
		BufTableDeleteBuffer(1, BufTableHashCode(&tags[1]));
}

static void
TestAssertions(void **state)
{
	for (int i = 0; i < N_WRONG * 3; i++)
	{
		Wrong		wrong = i / 3;
		int			status;
		pid_t		pid = fork();

		if (pid == 0)
		{
			close(STDERR_FILENO);
			SearchWrongChain(wrong, i % 3);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (wrong == NOTHING)
			assert_int_equal(status, 0);
		else
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestSizes),
		cmocka_unit_test(TestKeys),
		cmocka_unit_test(TestFields),
		cmocka_unit_test(TestHash),
		cmocka_unit_test(TestModel),
		cmocka_unit_test(TestFull),
		cmocka_unit_test(TestCorrupted),
		cmocka_unit_test(TestAssertions),
	};

	SeedRandom();
	return cmocka_run_group_tests_name("mapping table", tests, NULL, NULL);
}
