/*-------------------------------------------------------------------------
 *
 * fuzz_mutator.c
 *	  Mutations that know where the fields of a pool are.
 *
 * libFuzzer's own mutations nearly never leave a checksum right.  These are
 * made field by field, some of them by libFuzzer, and then most of the inputs
 * get right checksums again.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_mutator.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_input.h"

#include "storage/bufpage.h"

/* Parts of an input, with how often they are hit. */
typedef struct Part
{
	size_t		offset;
	size_t		length;
	int			weight;
} Part;

#define FIELD(name, weight) \
	{offsetof(FuzzInput, name), sizeof(((FuzzInput *) NULL)->name), weight}
#define SUPERBLOCK(name, from, to, weight) \
	{offsetof(FuzzInput, name.head) + offsetof(PCacheSuperblock, from), \
	 offsetof(PCacheSuperblock, to) - offsetof(PCacheSuperblock, from), weight}

static const Part parts[] = {
	FIELD(command, 2),
	FIELD(facts, 2),
	FIELD(nbuffers, 1),
	FIELD(file_size, 2),
	FIELD(control, 4),
	FIELD(control.xlog_seg_size, 1),
	FIELD(control.state, 1),
	SUPERBLOCK(first, magic, block_size, 2),
	SUPERBLOCK(first, block_size, slots_used, 3),
	SUPERBLOCK(first, slots_used, n_dimms, 4),
	SUPERBLOCK(first, state, incarnation, 2),
	SUPERBLOCK(first, n_dimms, reserved, 2),
	SUPERBLOCK(copy, magic, block_size, 1),
	SUPERBLOCK(copy, block_size, slots_used, 1),
	SUPERBLOCK(copy, slots_used, n_dimms, 1),
	SUPERBLOCK(copy, n_dimms, reserved, 1),
	FIELD(sightings, 3),
	FIELD(errors, 2),
	FIELD(descs, 6),
	FIELD(headers, 3),
	FIELD(wal, 1),
	FIELD(pages, 3),
	{offsetof(FuzzInput, pages), sizeof(PageHeaderData), 3},
	FIELD(files, 1),
};

static uint64 random_state;

/* splitmix64 */
static uint64
Random(void)
{
	uint64		z = (random_state += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static const Part *
ChoosePart(size_t limit)
{
	for (;;)
	{
		const Part *part = &parts[Random() % lengthof(parts)];

		if (part->offset + part->length <= limit && Random() % 6 < part->weight)
			return part;
	}
}

/* Change one aligned integer, to something that a bound may have forgotten. */
static void
PokeInteger(FuzzInput *input, const Part *part)
{
	static const uint64 values[] = {
		0, 1, 2, 3, 4, 16, 31, 32, 33, 63, 64, 0xFFFF,
		PG_INT32_MAX - 1, PG_INT32_MAX, (uint64) PG_INT32_MAX + 1,
		PG_UINT32_MAX - 1, PG_UINT32_MAX, (uint64) PG_UINT32_MAX + 1,
		PG_INT64_MAX - 1, PG_INT64_MAX, (uint64) PG_INT64_MAX + 1,
		PG_UINT64_MAX - BLCKSZ, PG_UINT64_MAX - 1, PG_UINT64_MAX,
		BLCKSZ, BLCKSZ - 1, PCACHE_ALIGNMENT, 2 * PCACHE_ALIGNMENT,
		PCACHE_ALIGNMENT - 1, PCACHE_SUPERBLOCK_SIZE, RELSEG_SIZE,
	};
	char	   *bytes = (char *) input + part->offset;
	size_t		width = (size_t) 1 << (Random() % 4);
	size_t		place;
	size_t		from;
	uint64		value = 0;

	while (width > part->length)
		width /= 2;
	place = Random() % (part->length / width) * width;
	memcpy(&value, bytes + place, width);
	switch (Random() % 6)
	{
		case 0:
		case 1:
			value = values[Random() % lengthof(values)];
			break;
		case 2:
			value ^= UINT64CONST(1) << (Random() % (8 * width));
			break;
		case 3:
			value += (int64) (Random() % 9) - 4;
			break;
		case 4:
			value = Random();
			break;
		case 5:
			/* what is said elsewhere */
			from = Random() % ((sizeof(FuzzInput) - 8) / 4) * 4;
			memcpy(&value, (char *) input + from, width);
			break;
	}
	memcpy(bytes + place, &value, width);
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
						unsigned int seed)
{
	FuzzInput	input;
	size_t		limit = Min(max_size, sizeof(input));

	random_state = seed;
	FuzzLoad(&input, data, size);
	/* else those that show little that is new would be left out */
	if (Random() % 2 == 0)
		input.command = (uint16) Random();
	for (int n = 1 + Random() % 4; n > 0; n--)
	{
		const Part *part = ChoosePart(limit);
		uint8	   *bytes = (uint8 *) &input + part->offset;

		switch (Random() % 8)
		{
			case 0:
				input.copy = input.first;
				break;
			case 1:
				input.first = input.copy;
				break;
			case 2:
				input.descs[Random() % FUZZ_DESCRIPTORS] =
					input.descs[Random() % FUZZ_DESCRIPTORS];
				break;
			case 3:
				if (Random() % 4 == 0)
				{
					/* what is compared in spite of its header */
					for (int i = 0; i < FUZZ_PAGES; i++)
						memcpy(input.files[i].head, input.pages[i].head,
							   sizeof(PageHeaderData));
					break;
				}
				/* FALLTHROUGH */
			case 4:
				(void) LLVMFuzzerMutate(bytes, part->length, part->length);
				break;
			default:
				PokeInteger(&input, part);
		}
	}
	switch (Random() % 8)
	{
		case 0:
			break;
		case 1:
			FuzzRepair(&input, (uint32) Random());
			break;
		case 2:
		case 3:
			FuzzRepair(&input, ~0);
			break;
		default:
			FuzzRepair(&input, ~FUZZ_REPAIR_CLUSTER);
	}
	memcpy(data, &input, limit);
	return limit;
}

size_t
LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1,
						  const uint8_t *data2, size_t size2,
						  uint8_t *out, size_t max_out_size, unsigned int seed)
{
	FuzzInput	input;
	FuzzInput	other;
	size_t		limit = Min(max_out_size, sizeof(input));

	random_state = seed;
	FuzzLoad(&input, data1, size1);
	FuzzLoad(&other, data2, size2);
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (Random() % 4 == 0)
			memcpy((char *) &input + parts[i].offset,
				   (char *) &other + parts[i].offset, parts[i].length);
	}
	if (Random() % 8 != 0)
		FuzzRepair(&input, ~FUZZ_REPAIR_CLUSTER);
	memcpy(out, &input, limit);
	return limit;
}
