/*-------------------------------------------------------------------------
 *
 * pcache_shrink.c
 *	  Which pages stay when shared buffers get smaller.
 *
 * The pool's last user had more slots than the next one will have.  Of all
 * pages that passed their gates the hottest are kept, by usage count.  Those
 * of them that lie in a slot which goes move into slots that stay and that
 * hold no page, or a colder one.
 *
 * This is the choice only.  It looks at nothing but what it was told, so the
 * server, which then moves the pages, and pg_pcache verify, which foretells
 * what the server will keep, come to the same result.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_shrink.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <unistd.h>

#include "common/hashfn.h"
#ifdef FRONTEND
#include "common/logging.h"
#endif
#include "storage/pcache_descriptor.h"
#include "storage/pcache_harvest.h"
#include "storage/pcache_shrink.h"

/*
 * What is known of a slot.  Before the choice it is one of the first two, or
 * how hot the page in it is: FIRST_PAGE + usage count.
 */
#define NO_USE			0		/* bad, or one that goes and has no page */
#define NO_PAGE			1		/* its page need not be kept, if it has one */
#define FIRST_PAGE		2
#define LAST_PAGE		PG_UINT8_MAX
#define N_LEVELS		(LAST_PAGE + 1)

/* After the choice it is one of these. */
#define LEAVE			0		/* bad, or its page is not kept */
#define STAYS			1
#define MOVES			2
#define HAS_ROOM		3		/* its page, if it has one, did not pass */
#define MAKES_ROOM		4		/* its page passed, but was not chosen */
#define TWIN			5		/* its page is claimed by another slot, too */

#define DESCRIPTORS_PER_READ	4096

/* What a slot claims to hold. */
typedef struct Claim
{
	PCachePageKey key;
	uint32		slot;
	char		status;			/* for simplehash */
} Claim;

/* So that nobody can forge a pool whose pages have the same hash values. */
static uint64 claim_seed;

#define SH_PREFIX		claim
#define SH_ELEMENT_TYPE Claim
#define SH_KEY_TYPE		PCachePageKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	(uint32) hash_bytes_extended((const unsigned char *) &(k), sizeof(PCachePageKey), claim_seed)
#define SH_EQUAL(tb, a, b)	(memcmp(&(a), &(b), sizeof(PCachePageKey)) == 0)
#define SH_SCOPE		static inline
#define SH_RAW_ALLOCATOR	palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/*
 * The pool's last user had that many slots, and the first ones stay.  All that
 * is done with the result takes time in proportion to the number of slots,
 * whatever is in them.
 */
PCacheShrink *
PCacheShrinkCreate(uint64 slots, uint64 staying)
{
	PCacheShrink *shrink = palloc0(sizeof(PCacheShrink));

	Assert(staying < slots);
	shrink->slots = slots;
	shrink->staying = staying;
	/* a byte for each slot, which may be more than 1 GB */
	shrink->what = palloc_extended(slots, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	return shrink;
}

void
PCacheShrinkFree(PCacheShrink *shrink)
{
	pfree(shrink->what);
	pfree(shrink);
}

/*
 * Tell of a slot: whether its block or its descriptor is bad, what the page
 * gates say of its page, and the usage count in its descriptor.  To be called
 * once for each slot, before the choice.
 */
void
PCacheShrinkAdd(PCacheShrink *shrink, uint64 slot, bool is_bad,
				PCachePageVerdict verdict, uint8 usage_count)
{
	uint8	   *what = &shrink->what[slot];

	Assert(slot < shrink->slots);
	if (is_bad)
		*what = NO_USE;
	else if (verdict == PCACHE_PAGE_KEPT)
		*what = FIRST_PAGE + Min(usage_count, LAST_PAGE - FIRST_PAGE);
	else
		*what = slot < shrink->staying ? NO_PAGE : NO_USE;
}

/*
 * Choose, when all slots are told.
 *
 * Pages with a higher usage count come first, and of pages with the same one
 * those in lower slots: so a page moves only for one that is colder, and
 * nothing moves that could as well stay.
 */
void
PCacheShrinkChoose(PCacheShrink *shrink)
{
	uint64		pages[N_LEVELS] = {0};
	uint64		room = 0;
	int			coldest;
	uint64		of_coldest = 0;

	for (uint64 slot = 0; slot < shrink->slots; slot++)
	{
		pages[shrink->what[slot]]++;
		if (slot < shrink->staying && shrink->what[slot] != NO_USE)
			room++;
	}

	/* all hotter than that are kept, and so many of those that are as hot */
	for (coldest = LAST_PAGE; coldest >= FIRST_PAGE; coldest--)
	{
		if (pages[coldest] > room)
		{
			of_coldest = room;
			break;
		}
		room -= pages[coldest];
	}

	for (uint64 slot = 0; slot < shrink->slots; slot++)
	{
		uint8		level = shrink->what[slot];
		bool		stays = slot < shrink->staying;
		bool		keep = level > coldest && level >= FIRST_PAGE;

		if (level == coldest && level >= FIRST_PAGE && of_coldest > 0)
		{
			keep = true;
			of_coldest--;
		}
		if (level >= FIRST_PAGE && !keep)
			shrink->not_fitting++;

		if (keep)
			shrink->what[slot] = stays ? STAYS : MOVES;
		else
			shrink->what[slot] = (!stays || level == NO_USE) ? LEAVE :
				level >= FIRST_PAGE ? MAKES_ROOM : HAS_ROOM;
	}
}

/* Was the page in this slot chosen, whether or not it moves? */
bool
PCacheShrinkKeeps(const PCacheShrink *shrink, uint64 slot)
{
	return shrink->what[slot] == STAYS || shrink->what[slot] == MOVES;
}

typedef void (*Visit) (PCacheShrink *shrink, uint64 slot,
					   const PCacheDescriptor *desc, void *state);

/* Read the descriptors of all slots, in turn. */
static void
VisitSlots(PCacheShrink *shrink, int fd, Visit visit, void *state)
{
	PCacheDescriptor *descs = palloc_array(PCacheDescriptor, DESCRIPTORS_PER_READ);

	for (uint64 first = 0; first < shrink->slots; first += DESCRIPTORS_PER_READ)
	{
		uint32		n = Min(DESCRIPTORS_PER_READ, shrink->slots - first);

		/* descriptors that can't be read come back damaged */
		(void) PCacheReadLedger(fd, shrink->superblock, shrink->generation, first, n, descs);
		for (uint32 i = 0; i < n; i++)
			visit(shrink, first + i, &descs[i], state);
		if (shrink->interrupts != NULL)
			shrink->interrupts();
	}
	pfree(descs);
}

/* Ask the page gates, and tell the result. */
static void
Judge		(PCacheShrink *shrink, uint64 slot, const PCacheDescriptor *desc,
			 void *state)
{
	const PCachePageFacts *facts = state;
	PCachePageVerdict verdict = PCachePageGate(desc, slot, facts);
	bool		is_bad =
		PCacheMediaRangeIsBad(facts->media,
							  PCACHE_DESCRIPTORS_OFFSET +
							  slot * sizeof(PCacheDescriptor),
							  sizeof(PCacheDescriptor)) ||
		PCacheMediaRangeIsBad(facts->media,
							  facts->blocks_offset + slot * BLCKSZ, BLCKSZ);

	PCacheShrinkAdd(shrink, slot, is_bad, verdict, desc->usage_count);
	if (shrink->seen != NULL)
		shrink->seen(slot, verdict, shrink->arg);
}

static void
AddTwin(PCacheShrink *shrink, uint64 slot)
{
	if (shrink->what[slot] == TWIN)
		return;
	if (shrink->what[slot] == MAKES_ROOM)
		shrink->not_fitting--;
	shrink->what[slot] = TWIN;
	shrink->twins++;
}

/* A page that makes room: who else does so and claims the same one? */
static void
RememberClaim(PCacheShrink *shrink, uint64 slot, const PCacheDescriptor *desc,
			  void *state)
{
	Claim	   *claim;
	bool		found;

	if (shrink->what[slot] != MAKES_ROOM)
		return;
	claim = claim_insert(state, PCacheDescriptorKey(desc), &found);
	if (found)
	{
		AddTwin(shrink, claim->slot);
		AddTwin(shrink, slot);
	}
	else
		claim->slot = slot;
}

/* A page that was chosen: is it one that makes room elsewhere? */
static void
CompareClaim(PCacheShrink *shrink, uint64 slot, const PCacheDescriptor *desc,
			 void *state)
{
	Claim	   *claim;

	if (!PCacheShrinkKeeps(shrink, slot))
		return;
	claim = claim_lookup(state, PCacheDescriptorKey(desc));
	if (claim != NULL)
	{
		AddTwin(shrink, claim->slot);
		AddTwin(shrink, slot);
	}
}

/*
 * Find pages that were chosen although another slot, whose page was not,
 * claims to hold the same one.  None of the two is kept (rule "two claims of
 * one page drop both"), which nobody would see once one of them has made room.
 *
 * Needs memory for the key of each page that has to make room.
 */
static void
FindTwins(PCacheShrink *shrink, int fd)
{
	claim_hash *claims;

	if (shrink->not_fitting == 0)
		return;
	/* only the time that a forged pool takes depends on how good that is */
	if (claim_seed == 0 && !pg_strong_random(&claim_seed, sizeof(claim_seed)))
		claim_seed = (uint64) getpid() * UINT64CONST(0x9E3779B97F4A7C15);
	claims = claim_create(1024, NULL);
	VisitSlots(shrink, fd, RememberClaim, claims);
	VisitSlots(shrink, fd, CompareClaim, claims);
	claim_destroy(claims);
}

/*
 * Ask the page gates about all slots of the pool that is open as fd, and choose.
 *
 * shrink->seen is called with each verdict, and shrink->interrupts from time to
 * time; both may be NULL.
 */
void
PCacheShrinkDecide(PCacheShrink *shrink, int fd, const PCachePageFacts *facts)
{
	shrink->generation = facts->generation;
	VisitSlots(shrink, fd, Judge, unconstify(PCachePageFacts *, facts));
	PCacheShrinkChoose(shrink);
	FindTwins(shrink, fd);
}

/* Is the page in this slot not kept, because another slot claims it as well? */
bool
PCacheShrinkIsTwin(const PCacheShrink *shrink, uint64 slot)
{
	return shrink->what[slot] == TWIN;
}

/* Did the page in this slot pass its gates, and has to make room? */
bool
PCacheShrinkMakesRoom(const PCacheShrink *shrink, uint64 slot)
{
	return shrink->what[slot] == MAKES_ROOM;
}

/*
 * Which page is to be moved next, and where to?  Returns false if that was
 * all.  Both go upwards, and each slot comes up once.
 */
bool
PCacheShrinkNextMove(PCacheShrink *shrink, uint32 *from, uint32 *to)
{
	uint64		page = Max(shrink->next_page, shrink->staying);
	uint64		room = shrink->next_room;

	while (page < shrink->slots && shrink->what[page] != MOVES)
		page++;
	shrink->next_page = page + 1;
	if (page >= shrink->slots)
		return false;

	while (room < shrink->staying && shrink->what[room] < HAS_ROOM)
		room++;
	/* no more pages are chosen than there is room for */
	Assert(room < shrink->staying);
	shrink->next_room = room + 1;
	*from = page;
	*to = room;
	return true;
}
