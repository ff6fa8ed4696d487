/*-------------------------------------------------------------------------
 *
 * limits.c
 *	  What the memory of a machine gives, for tools/bench/sections/limits.
 *
 * limits memory DIRECTORY MEGABYTES
 * limits flush DIRECTORY MEGABYTES
 *
 * Both map a file of that size in DIRECTORY, as the server maps its pool, and
 * print lines "quantity,unit,value".  "memory" reads and copies it, and visits
 * its cache lines in random order.  "flush" flushes cache lines and drains the
 * stores.  The exit status is 77 if the processor has neither clwb nor
 * clflushopt.
 *
 * IDENTIFICATION
 *	  tools/bench/limits.c
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define CACHE_LINE 64
#define RANDOM_VISITS 4000000
#define DRAINS 200000

/* What is computed from memory goes here, so that no compiler leaves it out. */
static volatile uint64_t sink;

static void
fail(const char *what)
{
	perror(what);
	exit(1);
}

static double
seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static uint64_t
next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A mapped file that is gone when the process is. */
static char *
map_file(const char *directory, size_t size)
{
	char		name[4096];
	char	   *memory;
	int			fd;

	snprintf(name, sizeof(name), "%s/limits.XXXXXX", directory);
	fd = mkstemp(name);
	if (fd < 0)
		fail(name);
	unlink(name);
	if (posix_fallocate(fd, 0, size) != 0)
		fail("posix_fallocate");
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	close(fd);
	memset(memory, 1, size);
	return memory;
}

static void
print(const char *quantity, const char *unit, double value)
{
	printf("%s,%s,%.3f\n", quantity, unit, value);
}

static void
measure_memory(char *memory, size_t size)
{
	uint64_t   *words = (uint64_t *) memory;
	size_t		lines = size / CACHE_LINE;
	size_t		half = size / 2;
	uint64_t	sum = 0;
	uint64_t	state = 88172645463325252;
	double		begin;
	uint32_t   *order;
	size_t		at = 0;

	begin = seconds();
	for (size_t i = 0; i < size / sizeof(uint64_t); i += 4)
		sum += words[i] + words[i + 1] + words[i + 2] + words[i + 3];
	print("read", "GB/s", size / (seconds() - begin) / 1e9);

	begin = seconds();
	memcpy(memory + half, memory, half);
	print("copy", "GB/s", half / (seconds() - begin) / 1e9);

	/*
	 * The next address is known beforehand: the processor overlaps the
	 * misses.
	 */
	begin = seconds();
	for (int i = 0; i < RANDOM_VISITS; i++)
		sum += words[next_random(&state) % lines * (CACHE_LINE / sizeof(uint64_t))];
	print("random-overlapped", "ns", (seconds() - begin) / RANDOM_VISITS * 1e9);

	/*
	 * A cycle through all lines, in random order: each address is in the
	 * last.
	 */
	order = malloc(lines * sizeof(uint32_t));
	if (order == NULL)
		fail("malloc");
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i > 0; i--)
	{
		size_t		j = next_random(&state) % (i + 1);
		uint32_t	swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
	for (size_t i = 0; i < lines; i++)
		words[(size_t) order[i] * (CACHE_LINE / sizeof(uint64_t))] = order[(i + 1) % lines];
	free(order);
	begin = seconds();
	for (int i = 0; i < RANDOM_VISITS; i++)
		at = words[at * (CACHE_LINE / sizeof(uint64_t))];
	print("random", "ns", (seconds() - begin) / RANDOM_VISITS * 1e9);

	sink = sum + at;
}

#if defined(__x86_64__)

static bool have_clwb;

/* Is there an instruction that flushes without waiting for each line? */
static bool
find_flush(void)
{
	unsigned int eax,
				ebx,
				ecx,
				edx;

	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		return false;
	have_clwb = (ebx & (1u << 24)) != 0;
	return have_clwb || (ebx & (1u << 23)) != 0;
}

__attribute__((target("clwb")))
static void
clwb(char *line)
{
	_mm_clwb(line);
}

__attribute__((target("clflushopt")))
static void
clflushopt(char *line)
{
	_mm_clflushopt(line);
}

static void
measure_flush(char *memory, size_t size)
{
	void		(*flush) (char *line) = have_clwb ? clwb : clflushopt;
	size_t		lines = size / CACHE_LINE;
	uint64_t	state = 88172645463325252;
	double		begin;

	begin = seconds();
	for (size_t i = 0; i < lines; i++)
	{
		memory[i * CACHE_LINE]++;
		flush(memory + i * CACHE_LINE);
	}
	_mm_sfence();
	print("flush", have_clwb ? "GB/s (clwb)" : "GB/s (clflushopt)",
		  size / (seconds() - begin) / 1e9);

	/*
	 * Scattered, and each one is waited for: what an entry of the ledger
	 * costs.
	 */
	begin = seconds();
	for (int i = 0; i < DRAINS; i++)
	{
		char	   *line = memory + next_random(&state) % lines * CACHE_LINE;

		(*line)++;
		flush(line);
		_mm_sfence();
	}
	print("drain", "ns", (seconds() - begin) / DRAINS * 1e9);
}

#else

static bool
find_flush(void)
{
	return false;
}

static void
measure_flush(char *memory, size_t size)
{
}

#endif

int
main(int argc, char **argv)
{
	size_t		size;

	if (argc != 4 || (size = strtoul(argv[3], NULL, 10)) < 1 || size > 65536 ||
		(strcmp(argv[1], "memory") != 0 && strcmp(argv[1], "flush") != 0))
	{
		fprintf(stderr, "usage: limits memory|flush DIRECTORY MEGABYTES\n");
		return 1;
	}
	size <<= 20;
	if (strcmp(argv[1], "memory") == 0)
		measure_memory(map_file(argv[2], size), size);
	else
	{
		if (!find_flush())
		{
			fprintf(stderr, "limits: the processor has neither clwb nor clflushopt\n");
			return 77;
		}
		measure_flush(map_file(argv[2], size), size);
	}
	return 0;
}
