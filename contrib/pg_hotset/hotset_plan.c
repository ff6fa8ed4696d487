/*-------------------------------------------------------------------------
 *
 * hotset_plan.c
 *	  Which of the missing pages are read, and which buffers make room?
 *
 * Free buffers are used first, for the hottest pages.  Then a page may take the
 * buffer of one that is colder by two or more; a difference of one is what a
 * single use makes, and two servers would exchange such pages forever.  A page
 * that was here and has been evicted since shows that somebody needs the room
 * more.  It gets free buffers only, for some rounds.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_plan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "hotset.h"
#include "utils/memutils.h"

/* rounds that a page waits after it was evicted again; one less is remembered, as a usage count */
#define ROUNDS_TO_WAIT		(HOTSET_MAX_HEAT + 1)

/* a page that we have not brought, and that was not here */
#define NOT_REMEMBERED		UINT8_MAX

static inline bool
IsHere(const bits8 *here, uint32 index)
{
	return (here[index / 8] & (1 << (index % 8))) != 0;
}

/*
 * For each page of the list: how many rounds does it still have to wait?  0 if
 * it was here after the last round.  The memory is a list itself, with these
 * numbers as usage counts.
 */
static uint8 *
Recall(const HotsetSet *list, const StringInfo memory)
{
	uint8	   *waits = MemoryContextAllocHuge(CurrentMemoryContext, Max(list->npages, 1));
	const char *problem;
	HotsetSet  *old;
	uint32		o = 0;

	memset(waits, NOT_REMEMBERED, list->npages);
	if (memory->len == 0)
		return waits;
	if ((old = HotsetDecode(memory->data, memory->len, &problem)) == NULL)
		elog(ERROR, "could not decode what pg_hotset remembers: %s", problem);
	for (uint32 r = 0; r < list->nrelations; r++)
	{
		const HotsetRelation *relation = &list->relations[r];
		const uint64 *page = old->pages;
		const uint64 *end = page;

		while (o < old->nrelations && HotsetForkCompare(&old->relations[o].fork, &relation->fork) < 0)
			o++;
		if (o < old->nrelations && HotsetForkCompare(&old->relations[o].fork, &relation->fork) == 0)
		{
			page = old->pages + old->relations[o].first;
			end = page + old->relations[o].npages;
		}
		for (uint32 i = relation->first; i < relation->first + relation->npages && page < end; i++)
		{
			while (page < end && HotsetBlock(*page) < HotsetBlock(list->pages[i]))
				page++;
			if (page < end && HotsetBlock(*page) == HotsetBlock(list->pages[i]))
				waits[i] = HotsetHeat(*page);
		}
	}
	return waits;
}

/* A set with the list's relations and room for its pages, but without any. */
static HotsetSet *
EmptyLike(const HotsetSet *list)
{
	HotsetSet  *set = palloc(sizeof(HotsetSet));

	*set = *list;
	set->nrelations = set->npages = 0;
	set->relations = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(HotsetRelation) * Max(list->nrelations, 1));
	set->pages = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * Max(list->npages, 1));
	return set;
}

static void
AddPage(HotsetSet *set, const HotsetRelation *relation, uint64 page)
{
	HotsetRelation *last = set->nrelations > 0 ? &set->relations[set->nrelations - 1] : NULL;

	if (last == NULL || HotsetForkCompare(&last->fork, &relation->fork) != 0)
	{
		last = &set->relations[set->nrelations++];
		*last = (HotsetRelation)
		{
			.fork = relation->fork,.first = set->npages
		};
	}
	set->pages[set->npages++] = page;
	last->npages++;
}

/*
 * Decide what to do about the pages that are missing.  The memory is what
 * HotsetRemember() made of the last round, or empty.
 */
HotsetPlan *
HotsetMakePlan(const HotsetSet *list, const HotsetComparison *comparison, const StringInfo memory)
{
	HotsetPlan *plan = palloc0(sizeof(HotsetPlan));
	uint8	   *waits = plan->waits = Recall(list, memory);
	uint32		missing[HOTSET_HEAT_MASK + 1] = {0};
	uint32		waiting = 0;
	uint32		total = 0;

	for (uint32 i = 0; i < list->npages; i++)
	{
		if (IsHere(comparison->here, i))
			continue;
		if (waits[i] == 0)
		{
			plan->evicted_again++;
			waits[i] = ROUNDS_TO_WAIT;
		}
		if (waits[i] != NOT_REMEMBERED)
			waiting++;
		else
			missing[HotsetHeat(list->pages[i])]++;
	}

	/* From here on, missing[] is what is read. */
	for (int heat = HOTSET_HEAT_MASK; heat >= 0; heat--)
	{
		uint32		room = comparison->nfree + comparison->colder[Max(heat - 1, 0)];
		uint32		reads = Min(missing[heat], room > total ? room - total : 0);

		plan->no_room += missing[heat] - reads;
		missing[heat] = reads;
		total += reads;
	}
	{
		uint32		room = comparison->nfree + comparison->colder[0];
		uint32		reads = Min(waiting, room > total ? room - total : 0);

		plan->no_room += waiting - reads;
		waiting = reads;
		total += reads;
	}

	plan->missing = EmptyLike(list);
	for (uint32 r = 0; r < list->nrelations; r++)
	{
		const HotsetRelation *relation = &list->relations[r];

		for (uint32 i = relation->first; i < relation->first + relation->npages; i++)
		{
			uint64		page = list->pages[i];
			uint32	   *left = plan->waits[i] != NOT_REMEMBERED ? &waiting : &missing[HotsetHeat(page)];

			if (!IsHere(comparison->here, i) && *left > 0)
			{
				(*left)--;
				AddPage(plan->missing, relation, page);
			}
		}
	}
	plan->was_read = palloc_extended(plan->missing->npages / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	plan->victims = comparison->candidates;
	plan->nvictims = Min(total > comparison->nfree ? total - comparison->nfree : 0, comparison->ncandidates);
	for (plan->victim_heat = 0; plan->victim_heat < HOTSET_HEAT_MASK; plan->victim_heat++)
		if (comparison->colder[plan->victim_heat + 1] >= plan->nvictims)
			break;
	return plan;
}

/* Make the memory for the next round, once this one has read what it could. */
void
HotsetRemember(const HotsetSet *list, const HotsetComparison *comparison, const HotsetPlan *plan, StringInfo memory)
{
	HotsetSet  *remembered = EmptyLike(list);
	uint32		m = 0;			/* next page of plan->missing */

	for (uint32 r = 0, missing_relation = 0; r < list->nrelations; r++)
	{
		const HotsetRelation *relation = &list->relations[r];
		uint32		end = m;

		if (missing_relation < plan->missing->nrelations &&
			HotsetForkCompare(&plan->missing->relations[missing_relation].fork, &relation->fork) == 0)
			end += plan->missing->relations[missing_relation++].npages;
		for (uint32 i = relation->first; i < relation->first + relation->npages; i++)
		{
			BlockNumber block = HotsetBlock(list->pages[i]);
			bool		here = IsHere(comparison->here, i);

			if (m < end && HotsetBlock(plan->missing->pages[m]) == block)
				here = IsHere(plan->was_read, m++);
			if (here)
				AddPage(remembered, relation, HotsetPage(block, 0));
			else if (plan->waits[i] != NOT_REMEMBERED && plan->waits[i] > 1)
				AddPage(remembered, relation, HotsetPage(block, plan->waits[i] - 1));
		}
	}
	HotsetEncode(remembered, 0, memory);
}
