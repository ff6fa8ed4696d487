/*-------------------------------------------------------------------------
 *
 * powercut.c
 *	  Cut the power: make of pool and image what is found after the next boot.
 *
 *	powercut POOL IMAGE SEED
 *
 * No process may use the pool any more.  Lines in which the two differ were
 * stored, but need not have arrived; of these, a random set does.  Pool and
 * image are the same afterwards, and there is a new boot id.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/powercut/powercut.c
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "powercut.h"

#define CHUNK	4096

static uint64_t state;

/* splitmix64 */
uint64_t
random_number(void)
{
	uint64_t	z = (state += 0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
	return z ^ (z >> 31);
}

static char *
map(const char *path, size_t *size)
{
	struct stat st;
	int			fd = open(path, O_RDWR);
	char	   *p;

	if (fd < 0 || fstat(fd, &st) < 0 ||
		(p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
	{
		fprintf(stderr, "powercut: could not map \"%s\": %s\n", path, strerror(errno));
		exit(1);
	}
	close(fd);
	*size = st.st_size;
	return p;
}

/* How many of 1024 lines arrive. */
static unsigned
share(void)
{
	static const unsigned shares[] = {0, 10, 100, 512, 900, 1024};

	return shares[random_number() % (sizeof(shares) / sizeof(shares[0]))];
}

int
main(int argc, char **argv)
{
	size_t		size;
	size_t		image_size;
	char	   *pool;
	char	   *image;
	unsigned	meta_share;
	unsigned	page_share;
	unsigned long differ = 0;
	unsigned long arrived = 0;
	char		path[PATH_MAX];
	FILE	   *boot;
	uint64_t	a;
	uint64_t	b;

	if (argc != 4)
	{
		fprintf(stderr, "usage: powercut POOL IMAGE SEED\n");
		return 1;
	}
	pool = map(argv[1], &size);
	image = map(argv[2], &image_size);
	if (size != image_size)
	{
		fprintf(stderr, "powercut: \"%s\" has %zu bytes, \"%s\" has %zu\n",
				argv[1], size, argv[2], image_size);
		return 1;
	}
	state = strtoull(argv[3], NULL, 0);
	meta_share = share();
	page_share = share();

	for (size_t chunk = 0; chunk < size; chunk += CHUNK)
	{
		if (memcmp(pool + chunk, image + chunk, CHUNK) == 0)
			continue;
		for (size_t line = chunk; line < chunk + CHUNK; line += LINE_SIZE)
		{
			uint64_t	blocks = *(uint64_t *) (image + BLOCKS_OFFSET_FIELD);

			if (memcmp(pool + line, image + line, LINE_SIZE) == 0)
				continue;
			differ++;
			if (random_number() % 1024 < (line < blocks ? meta_share : page_share))
			{
				memcpy(image + line, pool + line, LINE_SIZE);
				arrived++;
			}
			else
				memcpy(pool + line, image + line, LINE_SIZE);
		}
	}

	snprintf(path, sizeof(path), "%s.boot", argv[2]);
	boot = fopen(path, "w");
	a = random_number();
	b = random_number();
	if (boot == NULL ||
		fprintf(boot, "%08x-%04x-%04x-%04x-%012llx\n", (unsigned) (a >> 32),
				(unsigned) (a >> 16) & 0xFFFF, (unsigned) a & 0xFFFF,
				(unsigned) (b >> 48), (unsigned long long) b & 0xFFFFFFFFFFFF) < 0 ||
		fclose(boot) != 0)
	{
		fprintf(stderr, "powercut: could not write \"%s\"\n", path);
		return 1;
	}
	printf("%lu lines were stored only, %lu of them arrived (metadata %u/1024, pages %u/1024)\n",
		   differ, arrived, meta_share, page_share);
	return 0;
}
