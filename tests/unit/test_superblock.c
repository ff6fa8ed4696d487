/*-------------------------------------------------------------------------
 *
 * test_superblock.c
 *	  The superblock and its copy: which one is believed, and what a power
 *	  cut at any step of writing them leaves behind.
 *
 * The functions of pcache_persist.h are replaced by a model of persistent
 * memory: what is stored lies in the CPU's caches, from where each 8-byte
 * word may or may not have reached the media, until its cache line was
 * flushed and a drain has waited for it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_superblock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#define AREA_SIZE		8192	/* superblock and copy */
#define LINE			64
#define N_LINES			(AREA_SIZE / LINE)
#define WORD			8

typedef enum LineState
{
	LINE_CLEAN,					/* on the media */
	LINE_STORED,
	LINE_FLUSHED,				/* on its way, to be waited for */
} LineState;

static struct
{
	char		cpu[AREA_SIZE]; /* as seen by the program */
	char		media[AREA_SIZE];	/* certain to survive */
	LineState	lines[N_LINES];
	bool		memcpy_flushes; /* does memcpy_nodrain flush? */

	int			n_steps;
	int			cut_at;			/* step before which power fails; -1: never */
	jmp_buf		power_cut;

	int			n_persists;
	int			fail_persist;	/* which one fails; -1: none */
}			pmem;

static void
Step(void)
{
	if (pmem.n_steps++ == pmem.cut_at)
		longjmp(pmem.power_cut, 1);
}

static void
Store(size_t offset, const void *src, size_t len)
{
	memcpy(pmem.cpu + offset, src, len);
	for (size_t line = offset / LINE; line <= (offset + len - 1) / LINE; line++)
		pmem.lines[line] = LINE_STORED;
}

static void
Flush(size_t offset, size_t len)
{
	for (size_t line = offset / LINE; line <= (offset + len - 1) / LINE; line++)
	{
		if (pmem.lines[line] == LINE_STORED)
			pmem.lines[line] = LINE_FLUSHED;
	}
}

static void
Drain(void)
{
	for (int line = 0; line < N_LINES; line++)
	{
		if (pmem.lines[line] == LINE_FLUSHED)
		{
			memcpy(pmem.media + line * LINE, pmem.cpu + line * LINE, LINE);
			pmem.lines[line] = LINE_CLEAN;
		}
	}
}

/* Where in the area?  Fails the test if it is not all inside. */
static size_t
OffsetOf(const PCacheMapping *mapping, const void *addr, size_t len)
{
	size_t		offset = (const char *) addr - mapping->base;

	assert_ptr_equal(mapping->base, pmem.cpu);
	assert_true(len > 0 && offset < AREA_SIZE && len <= AREA_SIZE - offset);
	return offset;
}

bool
PCacheMap(const char *path, bool volatile_memory, PCacheMapping *mapping)
{
	fail();
	return false;
}

bool
PCacheUnmap(PCacheMapping *mapping)
{
	fail();
	return false;
}

void
PCacheFlush(const PCacheMapping *mapping, const void *addr, size_t len)
{
	Step();
	Flush(OffsetOf(mapping, addr, len), len);
	Step();
}

bool
PCacheDrain(const PCacheMapping *mapping)
{
	Step();
	Drain();
	Step();
	return true;
}

bool
PCachePersist(const PCacheMapping *mapping, const void *addr, size_t len)
{
	size_t		offset = OffsetOf(mapping, addr, len);

	Step();
	if (pmem.n_persists++ == pmem.fail_persist)
	{
		errno = EIO;
		return false;
	}
	Flush(offset, len);
	Step();
	Drain();
	Step();
	return true;
}

void
PCacheMemcpyNodrain(const PCacheMapping *mapping, void *dest, const void *src,
					size_t len)
{
	size_t		offset = OffsetOf(mapping, dest, len);

	/* in pieces, so that power can fail in the midst of them */
	for (size_t done = 0; done < len; done += 512)
	{
		size_t		piece = Min(512, len - done);

		Step();
		Store(offset + done, (const char *) src + done, piece);
		if (pmem.memcpy_flushes)
			Flush(offset + done, piece);
	}
	Step();
}

/* Power up with a given media image. */
static void
Reset(const char *image)
{
	memcpy(pmem.cpu, image, AREA_SIZE);
	memcpy(pmem.media, image, AREA_SIZE);
	memset(pmem.lines, 0, sizeof(pmem.lines));
	pmem.n_steps = 0;
	pmem.cut_at = -1;
	pmem.n_persists = 0;
	pmem.fail_persist = -1;
}

/*
 * Store a superblock until power fails before step cut_at.  Returns false if
 * it got to its end.
 */
static bool
StoreUntilCut(const PCacheSuperblock *sb, int cut_at)
{
	static PCacheMapping map;
	static PCacheSuperblock work;

	map.base = pmem.cpu;
	map.length = AREA_SIZE;
	map.kind = PCACHE_PERSIST_PMEM;
	work = *sb;
	pmem.cut_at = cut_at;
	if (setjmp(pmem.power_cut) != 0)
		return true;
	assert_true(PCacheSuperblockStore(&map, &work));
	return false;
}

static PCacheSuperblockSource
ChooseFrom(const char *image, PCacheSuperblock *chosen, PCacheError *err)
{
	PCacheSuperblock first;
	PCacheSuperblock copy;

	memcpy(&first, image, sizeof(first));
	memcpy(&copy, image + 4096, sizeof(copy));
	return PCacheSuperblockChoose(&first, &copy, chosen, err);
}

/* Words that differ between cache and media, thus may or may not survive. */
static int
LooseWords(int *words)
{
	int			n = 0;

	for (int i = 0; i < AREA_SIZE / WORD; i++)
	{
		if (pmem.lines[i * WORD / LINE] != LINE_CLEAN &&
			memcmp(pmem.cpu + i * WORD, pmem.media + i * WORD, WORD) != 0)
			words[n++] = i;
	}
	return n;
}

typedef void (*ImageCheck) (const char *image, const char *what, void *arg);

/*
 * Call check with what the media may hold after the cut: no loose word has
 * survived, all have, each prefix, suffix, single one and all but one, every
 * second one, and random subsets, by word and by line.
 */
static void
ForEachSurvivor(int n_random, ImageCheck check, void *arg)
{
	int			words[AREA_SIZE / WORD];
	int			n = LooseWords(words);
	char		image[AREA_SIZE];
	char		what[64];

#define SURVIVE_IF(condition) \
	do { \
		memcpy(image, pmem.media, AREA_SIZE); \
		for (int w = 0; w < n; w++) \
		{ \
			if (condition) \
				memcpy(image + words[w] * WORD, pmem.cpu + words[w] * WORD, WORD); \
		} \
		check(image, what, arg); \
	} while (0)

	for (int i = 0; i <= n; i++)
	{
		snprintf(what, sizeof(what), "first %d of %d words", i, n);
		SURVIVE_IF(w < i);
		snprintf(what, sizeof(what), "last %d of %d words", i, n);
		SURVIVE_IF(w >= n - i);
		snprintf(what, sizeof(what), "word %d of %d only", i, n);
		SURVIVE_IF(w == i);
		snprintf(what, sizeof(what), "all %d words but %d", n, i);
		SURVIVE_IF(w != i);
	}
	for (int parity = 0; parity < 2; parity++)
	{
		snprintf(what, sizeof(what), "words %d modulo 2", parity);
		SURVIVE_IF(w % 2 == parity);
		snprintf(what, sizeof(what), "lines %d modulo 2", parity);
		SURVIVE_IF(words[w] * WORD / LINE % 2 == parity);
	}
	for (int i = 0; i < n_random; i++)
	{
		uint64		bits[2];
		uint64		density = Random() % 64;

		snprintf(what, sizeof(what), "random words %d", i);
		SURVIVE_IF(Random() % 64 < density);
		snprintf(what, sizeof(what), "random lines %d", i);
		bits[0] = Random();
		bits[1] = Random();
		SURVIVE_IF((bits[words[w] * WORD / LINE / 64] >> (words[w] * WORD / LINE % 64) & 1) != 0);
	}
#undef SURVIVE_IF
}

/* Two successive superblocks that differ in many lines. */
static void
MakeOldAndNew(PCacheSuperblock *old, PCacheSuperblock *new)
{
	FillSuperblock(old, 32768);
	RandomBytes(old->boot_id, sizeof(old->boot_id));
	RandomBytes(old->dimms, sizeof(old->dimms));
	RandomBytes(old->reserved, sizeof(old->reserved));
	old->state = PCACHE_STATE_CLEAN;
	PCacheSuperblockSetCrc(old);

	*new = *old;
	new->state = PCACHE_STATE_DIRTY;
	new->incarnation = Random();
	RandomBytes(new->boot_id, sizeof(new->boot_id));
	RandomBytes(new->dimms, sizeof(new->dimms));
	RandomBytes(new->reserved, sizeof(new->reserved));
}

/* An area whose superblock and copy are the same. */
static void
MakeImage(char *image, const PCacheSuperblock *sb)
{
	memcpy(image, sb, 4096);
	memcpy(image + 4096, sb, 4096);
}

/* What PCacheSuperblockStore() makes of new. */
static void
MakeStored(const PCacheSuperblock *new, PCacheSuperblock *stored)
{
	*stored = *new;
	stored->generation++;
	stored->crc = BitwiseCrc32c(stored, 4084);
}

static void
TestChooseIntact(void **state)
{
	PCacheSuperblock first;
	PCacheSuperblock copy;
	PCacheSuperblock chosen;
	PCacheError err;

	FillSuperblock(&first, 1000);
	copy = first;
	assert_int_equal(PCacheSuperblockChoose(&first, &copy, &chosen, &err), PCACHE_SB_FIRST);
	assert_memory_equal(&chosen, &first, sizeof(chosen));

	/* a newer first one wins, an older one was on a bad block and does not */
	for (int delta = -1; delta <= 1; delta += 2)
	{
		first.generation = copy.generation + delta;
		first.state = PCACHE_STATE_DIRTY;
		PCacheSuperblockSetCrc(&first);
		assert_int_equal(PCacheSuperblockChoose(&first, &copy, &chosen, &err),
						 delta > 0 ? PCACHE_SB_FIRST : PCACHE_SB_COPY);
		assert_memory_equal(&chosen, delta > 0 ? &first : &copy, sizeof(chosen));
	}

	/* generations of different pools say nothing */
	first.generation = copy.generation - 1;
	first.pool_uuid[0]++;
	PCacheSuperblockSetCrc(&first);
	assert_int_equal(PCacheSuperblockChoose(&first, &copy, &chosen, &err), PCACHE_SB_FIRST);
}

/* Each byte of the first superblock, of the copy, and of both. */
static void
TestChooseDamaged(void **state)
{
	static const uint8 patterns[] = {0x01, 0x80, 0xFF};
	PCacheSuperblock good;
	PCacheSuperblock bad;
	PCacheSuperblock chosen;
	PCacheError err;

	FillSuperblock(&good, 1000);
	for (int i = 0; i < sizeof(good); i++)
	{
		for (int p = 0; p < lengthof(patterns); p++)
		{
			bool		in_version = i >= 8 && i < 12;

			bad = good;
			((uint8 *) &bad)[i] ^= patterns[p];

			/* a flip in the version looks like another one, and loses, too */
			err.message[0] = '\0';
			memset(&chosen, 0x55, sizeof(chosen));
			assert_int_equal(PCacheSuperblockChoose(&bad, &good, &chosen, &err), PCACHE_SB_COPY);
			assert_memory_equal(&chosen, &good, sizeof(chosen));
			assert_contains(err.message,
							i < 8 ? "magic number is wrong" :
							in_version ? "is unknown" :
							i >= 60 && i < 64 ? "byte order" :
							i >= 4088 ? "trailing magic" : "checksum");

			memset(&chosen, 0x55, sizeof(chosen));
			assert_int_equal(PCacheSuperblockChoose(&good, &bad, &chosen, &err), PCACHE_SB_FIRST);
			assert_memory_equal(&chosen, &good, sizeof(chosen));

			/* never a version that is unknown in the guise of ours */
			err.message[0] = '\0';
			if (in_version)
			{
				assert_int_equal(PCacheSuperblockChoose(&bad, &bad, &chosen, &err), PCACHE_SB_FIRST);
				assert_int_not_equal(chosen.format_version, PCACHE_FORMAT_VERSION);
			}
			else
			{
				assert_int_equal(PCacheSuperblockChoose(&bad, &bad, &chosen, &err), PCACHE_SB_NONE);
				assert_true(err.message[0] != '\0');
			}
		}
	}
}

/* Different damage to each of the two. */
static void
TestChooseBothDamaged(void **state)
{
	PCacheSuperblock good;
	PCacheSuperblock first;
	PCacheSuperblock copy;
	PCacheSuperblock chosen;
	PCacheError err;

	SeedRandom();
	FillSuperblock(&good, 1000);
	for (int n = 0; n < 20000; n++)
	{
		int			i = Random() % sizeof(good);
		int			j = Random() % sizeof(good);
		PCacheSuperblockSource source;

		first = good;
		copy = good;
		((uint8 *) &first)[i] ^= 1 << Random() % 8;
		((uint8 *) &copy)[j] ^= 1 << Random() % 8;
		source = PCacheSuperblockChoose(&first, &copy, &chosen, &err);

		/* what has another version is not for us to judge: gate and user do */
		if (i >= 8 && i < 12)
			assert_int_equal(source, PCACHE_SB_FIRST);
		else if (j >= 8 && j < 12)
			assert_int_equal(source, PCACHE_SB_COPY);
		else
			assert_int_equal(source, PCACHE_SB_NONE);
		if (source != PCACHE_SB_NONE)
			assert_int_not_equal(chosen.format_version, PCACHE_FORMAT_VERSION);
	}

	/* an empty file, and noise */
	memset(&first, 0, sizeof(first));
	assert_int_equal(PCacheSuperblockChoose(&first, &first, &chosen, &err), PCACHE_SB_NONE);
	memset(&first, 0xFF, sizeof(first));
	assert_int_equal(PCacheSuperblockChoose(&first, &first, &chosen, &err), PCACHE_SB_NONE);
	RandomBytes(&first, sizeof(first));
	assert_int_equal(PCacheSuperblockChoose(&first, &first, &chosen, &err), PCACHE_SB_NONE);
}

/* Each pool of another format version is left alone, whichever way it ends. */
static void
TestChooseOtherVersion(void **state)
{
	PCacheSuperblock first;
	PCacheSuperblock chosen;
	PCacheError err;

	FillSuperblock(&first, 1000);
	first.format_version = 1;
	RandomBytes((char *) &first + 64, sizeof(first) - 64);
	assert_int_equal(PCacheSuperblockChoose(&first, &first, &chosen, &err), PCACHE_SB_FIRST);
	assert_memory_equal(&chosen, &first, sizeof(chosen));
}

static void
TestStore(void **state)
{
	PCacheSuperblock old;
	PCacheSuperblock new;
	PCacheSuperblock stored;
	char		image[AREA_SIZE];

	SeedRandom();
	for (int flushes = 0; flushes < 2; flushes++)
	{
		MakeOldAndNew(&old, &new);
		MakeStored(&new, &stored);
		MakeImage(image, &old);
		Reset(image);
		pmem.memcpy_flushes = flushes;
		assert_false(StoreUntilCut(&new, -1));

		/* all of it durable, twice */
		assert_memory_equal(pmem.media, &stored, 4096);
		assert_memory_equal(pmem.media + 4096, &stored, 4096);
		for (int i = 0; i < N_LINES; i++)
			assert_int_equal(pmem.lines[i], LINE_CLEAN);
	}
}

/* The caller's superblock is what was stored, ready for the next time. */
static void
TestStoreUpdates(void **state)
{
	PCacheMapping map = {pmem.cpu, AREA_SIZE, PCACHE_PERSIST_PMEM};
	char		image[AREA_SIZE] = {0};
	PCacheSuperblock sb;
	PCacheSuperblock chosen;
	PCacheError err;

	Reset(image);
	FillSuperblock(&sb, 1000);
	for (int i = 1; i <= 5; i++)
	{
		sb.state = i % 4 + 1;
		assert_true(PCacheSuperblockStore(&map, &sb));
		assert_int_equal(sb.generation, 7 + i);
		assert_memory_equal(pmem.media, &sb, sizeof(sb));
		assert_int_equal(ChooseFrom(pmem.media, &chosen, &err), PCACHE_SB_FIRST);
		assert_memory_equal(&chosen, &sb, sizeof(sb));
	}
}

static void
TestStoreFails(void **state)
{
	PCacheMapping map = {pmem.cpu, AREA_SIZE, PCACHE_PERSIST_PMEM};
	PCacheSuperblock old;
	PCacheSuperblock new;
	PCacheSuperblock chosen;
	PCacheError err;
	char		image[AREA_SIZE];

	SeedRandom();
	/* the copy that is there already, the first one, the new copy */
	for (int which = 0; which < 3; which++)
	{
		MakeOldAndNew(&old, &new);
		MakeImage(image, &old);
		Reset(image);
		pmem.memcpy_flushes = false;
		pmem.fail_persist = which;
		errno = 0;
		assert_false(PCacheSuperblockStore(&map, &new));
		assert_int_equal(errno, EIO);
		assert_int_equal(pmem.n_persists, which + 1);

		/* the copy was not touched before the first one was durable */
		if (which < 2)
			assert_memory_equal(pmem.cpu + 4096, &old, 4096);
		assert_int_equal(ChooseFrom(pmem.media, &chosen, &err), PCACHE_SB_FIRST);
		assert_memory_equal(&chosen, which < 2 ? &old : &new, 4096);
	}
}

/* One of the two is on a bad block: the other one does, also when it is back. */
static void
TestStoreAvoids(void **state)
{
	static const uint64 offsets[] = {0, 4096};
	PCacheMapping map = {pmem.cpu, AREA_SIZE, PCACHE_PERSIST_PMEM};
	PCacheSuperblock old;
	PCacheSuperblock new;
	PCacheSuperblock chosen;
	PCacheError err;
	char		image[AREA_SIZE];

	SeedRandom();
	for (int which = 0; which < 2; which++)
	{
		bool		bad[2] = {which == 0, which == 1};

		MakeOldAndNew(&old, &new);
		MakeImage(image, &old);
		Reset(image);
		assert_true(PCacheSuperblockStoreAvoiding(&map, &new, bad));
		assert_memory_equal(pmem.cpu + offsets[which], &old, 4096);
		assert_memory_equal(pmem.media + offsets[1 - which], &new, 4096);

		/* the kernel has forgotten its list: the old one is readable again */
		assert_int_equal(ChooseFrom(pmem.media, &chosen, &err),
						 which == 0 ? PCACHE_SB_COPY : PCACHE_SB_FIRST);
		assert_memory_equal(&chosen, &new, 4096);
		if (which == 0)
			assert_string_equal(err.message, "it is older than its copy");

		/* and the next store does not bring it back */
		assert_true(PCacheSuperblockStore(&map, &new));
		for (int i = 0; i < 2; i++)
			assert_memory_equal(pmem.media + offsets[i], &new, 4096);

		/* both bad */
		bad[0] = bad[1] = true;
		errno = 0;
		assert_false(PCacheSuperblockStoreAvoiding(&map, &new, bad));
		assert_int_equal(errno, EIO);
	}
}

typedef struct CutCase
{
	PCacheSuperblock old;
	PCacheSuperblock stored;
	int			step;
	bool		first_durable;	/* then the new one must win */
	uint64		n_images;
	uint64		n_new;
} CutCase;

static void
CheckOldOrNew(const char *image, const char *what, void *arg)
{
	CutCase    *cut = arg;
	PCacheSuperblock chosen;
	PCacheError err;
	bool		is_new;

	if (ChooseFrom(image, &chosen, &err) == PCACHE_SB_NONE)
		fail_msg("cut before step %d, survivors: %s: none is intact: %s",
				 cut->step, what, err.message);
	is_new = memcmp(&chosen, &cut->stored, sizeof(chosen)) == 0;
	if (!is_new && memcmp(&chosen, &cut->old, sizeof(chosen)) != 0)
		fail_msg("cut before step %d, survivors: %s: a mixture was chosen",
				 cut->step, what);
	if (!is_new && cut->first_durable)
		fail_msg("cut before step %d, survivors: %s: the old one came back",
				 cut->step, what);
	cut->n_images++;
	cut->n_new += is_new;
}

static void
TestPowerCut(void **state)
{
	static CutCase cut;
	PCacheSuperblock new;
	char		image[AREA_SIZE];

	SeedRandom();
	for (int flushes = 0; flushes < 2; flushes++)
	{
		MakeOldAndNew(&cut.old, &new);
		MakeStored(&new, &cut.stored);
		MakeImage(image, &cut.old);

		cut.n_images = cut.n_new = 0;
		for (cut.step = 0;; cut.step++)
		{
			bool		was_cut;

			Reset(image);
			pmem.memcpy_flushes = flushes;
			was_cut = StoreUntilCut(&new, cut.step);
			cut.first_durable = !was_cut ||
				memcmp(pmem.media, &cut.stored, 4096) == 0;
			ForEachSurvivor(50, CheckOldOrNew, &cut);
			if (!was_cut)
				break;
		}
		print_message("%d steps, %llu images, new in %llu\n", cut.step,
					  (unsigned long long) cut.n_images,
					  (unsigned long long) cut.n_new);
		assert_true(cut.step >= 2 * (8 + 3));
		assert_true(cut.n_new > 0 && cut.n_new < cut.n_images);
	}
}

/*
 * Power fails, comes back, and fails again while the next superblock is
 * written, as a server does that starts from what it found.
 */
typedef struct SecondCut
{
	PCacheSuperblock new;		/* of the second server */
	int			first_step;
	uint64		n_images;
} SecondCut;

static void
CheckAfterSecondCut(const char *image, const char *what, void *arg)
{
	SecondCut  *second = arg;
	PCacheSuperblock chosen;
	PCacheError err;

	if (ChooseFrom(image, &chosen, &err) == PCACHE_SB_NONE)
		fail_msg("first cut before step %d, second one with survivors: %s: none is intact: %s",
				 second->first_step, what, err.message);
	second->n_images++;
}

static void
CutAgain(const char *image, const char *what, void *arg)
{
	SecondCut  *second = arg;
	char		saved_media[AREA_SIZE];
	char		saved_cpu[AREA_SIZE];
	LineState	saved_lines[N_LINES];
	static const int steps[] = {4, 9, 12, 17, 21};

	/* a sample: most of the images are alike */
	if (Random() % 40 != 0)
		return;

	memcpy(saved_media, pmem.media, AREA_SIZE);
	memcpy(saved_cpu, pmem.cpu, AREA_SIZE);
	memcpy(saved_lines, pmem.lines, sizeof(saved_lines));
	for (int i = 0; i < lengthof(steps); i++)
	{
		PCacheSuperblock next;
		PCacheError err;

		Reset(image);
		assert_int_not_equal(ChooseFrom(image, &next, &err), PCACHE_SB_NONE);
		next.incarnation++;
		RandomBytes(next.boot_id, sizeof(next.boot_id));
		RandomBytes(next.reserved, sizeof(next.reserved));
		StoreUntilCut(&next, steps[i]);
		ForEachSurvivor(0, CheckAfterSecondCut, second);
	}
	memcpy(pmem.media, saved_media, AREA_SIZE);
	memcpy(pmem.cpu, saved_cpu, AREA_SIZE);
	memcpy(pmem.lines, saved_lines, sizeof(saved_lines));
}

static void
TestTwoPowerCuts(void **state)
{
	static SecondCut second;
	PCacheSuperblock old;
	PCacheSuperblock new;
	char		image[AREA_SIZE];

	SeedRandom();
	MakeOldAndNew(&old, &new);
	MakeImage(image, &old);
	pmem.memcpy_flushes = true;
	for (second.first_step = 0;; second.first_step += 4)
	{
		bool		was_cut;

		Reset(image);
		was_cut = StoreUntilCut(&new, second.first_step);
		ForEachSurvivor(0, CutAgain, &second);
		if (!was_cut)
			break;
	}
	print_message("%llu images\n", (unsigned long long) second.n_images);
	assert_true(second.n_images > 1000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestChooseIntact),
		cmocka_unit_test(TestChooseDamaged),
		cmocka_unit_test(TestChooseBothDamaged),
		cmocka_unit_test(TestChooseOtherVersion),
		cmocka_unit_test(TestStore),
		cmocka_unit_test(TestStoreUpdates),
		cmocka_unit_test(TestStoreFails),
		cmocka_unit_test(TestStoreAvoids),
		cmocka_unit_test(TestPowerCut),
		cmocka_unit_test(TestTwoPowerCuts),
	};

	return cmocka_run_group_tests_name("superblock", tests, NULL, NULL);
}
