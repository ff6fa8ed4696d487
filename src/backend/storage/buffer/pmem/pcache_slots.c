/*-------------------------------------------------------------------------
 *
 * pcache_slots.c
 *	  A set of slots that is made once and walked through once.
 *
 * A Bitmapset would be copied again and again while millions of members are
 * added in ascending order.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pcache_slots.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pcache_internal.h"
#include "port/pg_bitutils.h"

#define BITS_PER_WORD	64

static inline uint32
NumWords(const PCacheSlotSet *set)
{
	return (set->nslots + BITS_PER_WORD - 1) / BITS_PER_WORD;
}

/* Add a slot, below nslots.  Allocates in the current memory context. */
void
PCacheSlotSetAdd(PCacheSlotSet *set, uint32 slot)
{
	Assert(slot < set->nslots);
	if (set->words == NULL)
		set->words = palloc0_array(uint64, NumWords(set));
	set->words[slot / BITS_PER_WORD] |= UINT64CONST(1) << (slot % BITS_PER_WORD);
}

/*
 * Find the first member that is not below *slot.  Returns false if there is
 * none.
 */
bool
PCacheSlotSetNext(const PCacheSlotSet *set, uint32 *slot)
{
	uint32		word = *slot / BITS_PER_WORD;
	uint64		mask = PG_UINT64_MAX << (*slot % BITS_PER_WORD);

	if (set->words == NULL)
		return false;
	for (; word < NumWords(set); word++, mask = PG_UINT64_MAX)
	{
		uint64		bits = set->words[word] & mask;

		if (bits != 0)
		{
			*slot = word * BITS_PER_WORD + pg_rightmost_one_pos64(bits);
			return true;
		}
	}
	return false;
}

void
PCacheSlotSetFree(PCacheSlotSet *set)
{
	if (set->words != NULL)
		pfree(set->words);
	set->words = NULL;
}
