/*-------------------------------------------------------------------------
 *
 * hotset_forks.c
 *	  Which number has a fork of a relation, among those of a set?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_forks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "hotset.h"

typedef struct ForkEntry
{
	HotsetFork	fork;
	uint32		number;
	char		status;
} ForkEntry;

/* Neighbouring buffers often have pages of one relation, so the last is remembered. */
struct HotsetForkMap
{
	struct forktable_hash *table;
	uint64		seed;			/* so that no list can have forks of one hash
								 * value */
	uint32		count;
	bool		last_valid;
	HotsetFork	last;
	uint32		last_number;
};

#define SH_PREFIX		forktable
#define SH_ELEMENT_TYPE	ForkEntry
#define SH_KEY_TYPE		HotsetFork
#define SH_KEY			fork
#define SH_HASH_KEY(tb, key) \
	((uint32) hash_bytes_extended((const unsigned char *) &(key), sizeof(HotsetFork), ((HotsetForkMap *) (tb)->private_data)->seed))
#define SH_EQUAL(tb, a, b) (memcmp(&(a), &(b), sizeof(HotsetFork)) == 0)
#define SH_SCOPE		static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

/* An empty map in the current memory context. */
HotsetForkMap *
HotsetForkMapCreate(void)
{
	HotsetForkMap *map = palloc0(sizeof(HotsetForkMap));

	map->seed = pg_prng_uint64(&pg_global_prng_state);
	map->table = forktable_create(CurrentMemoryContext, 256, map);
	return map;
}

static inline bool
IsLast(const HotsetForkMap *map, const HotsetFork *fork)
{
	return map->last_valid && memcmp(&map->last, fork, sizeof(HotsetFork)) == 0;
}

static inline void
Remember(HotsetForkMap *map, const HotsetFork *fork, uint32 number)
{
	map->last = *fork;
	map->last_number = number;
	map->last_valid = true;
}

/* The fork's number.  One that is not known gets the next number. */
uint32
HotsetForkMapAdd(HotsetForkMap *map, const HotsetFork *fork)
{
	ForkEntry  *entry;
	bool		found;

	if (IsLast(map, fork))
		return map->last_number;
	entry = forktable_insert(map->table, *fork, &found);
	if (!found)
		entry->number = map->count++;
	Remember(map, fork, entry->number);
	return entry->number;
}

/* Is the fork known?  If so, *number is its number. */
bool
HotsetForkMapFind(HotsetForkMap *map, const HotsetFork *fork, uint32 *number)
{
	ForkEntry  *entry;

	if (!IsLast(map, fork))
	{
		entry = forktable_lookup(map->table, *fork);
		if (entry == NULL)
			return false;
		Remember(map, fork, entry->number);
	}
	*number = map->last_number;
	return true;
}

uint32
HotsetForkMapCount(const HotsetForkMap *map)
{
	return map->count;
}

/* All forks, by their numbers.  The array has HotsetForkMapCount() elements. */
void
HotsetForkMapList(HotsetForkMap *map, HotsetRelation *relations)
{
	forktable_iterator iterator;
	ForkEntry  *entry;

	forktable_start_iterate(map->table, &iterator);
	while ((entry = forktable_iterate(map->table, &iterator)) != NULL)
		relations[entry->number].fork = entry->fork;
}
