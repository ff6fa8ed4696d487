/*-------------------------------------------------------------------------
 *
 * hotset_encode.c
 *	  Packs a set of pages into a list, whose form hotset_format.h describes.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_encode.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "hotset.h"
#include "hotset_format.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "port/pg_crc32c.h"

typedef struct BitWriter
{
	StringInfo	out;
	uint64		bits;
	int			nbits;
} BitWriter;

static inline void
PutBits(BitWriter *writer, uint32 value, int n)
{
	writer->bits |= (uint64) value << writer->nbits;
	writer->nbits += n;
	while (writer->nbits >= 8)
	{
		appendStringInfoCharMacro(writer->out, (char) writer->bits);
		writer->bits >>= 8;
		writer->nbits -= 8;
	}
}

static inline void
PutRice(BitWriter *writer, uint32 value, int k)
{
	uint32		quotient = value >> k;

	for (; quotient >= 24; quotient -= 24)
		PutBits(writer, 0, 24);
	PutBits(writer, 1U << quotient, quotient + 1);
	if (k > 0)
		PutBits(writer, value & ((UINT64CONST(1) << k) - 1), k);
}

/*
 * Is the page among those that stay, if some must go?  A cut is four times a
 * usage count, and the rest chooses a quarter of those with that usage count.
 */
static inline bool
StaysAbove(int cut, uint64 page)
{
	return HotsetHeat(page) * 4 + (murmurhash32(HotsetBlock(page)) & 3) >= cut;
}

/* Write a relation's pages above the cut; returns their number. */
static uint32
PutRelation(BitWriter *writer, const HotsetRelation *relation, const HotsetFork *before,
			const uint64 *pages, int cut)
{
	uint32		npages = 0;
	uint32		changes = 0;
	uint64		last = 0;
	int			first_heat = 0;
	int			heat = 0;
	int			k = 0;
	int64		previous = -1;
	HeatCode	code;

	for (uint32 i = 0; i < relation->npages; i++)
	{
		if (!StaysAbove(cut, pages[i]))
			continue;
		if (npages++ == 0)
			first_heat = heat = HotsetHeat(pages[i]);
		if (HotsetHeat(pages[i]) != heat)
			changes++;
		heat = HotsetHeat(pages[i]);
		last = HotsetBlock(pages[i]);
	}
	if (npages == 0)
		return 0;

	/* A parameter from the mean bounds what one wide gap can cost. */
	if ((last + 1 - npages) / npages > 0)
		k = pg_leftmost_one_pos64((last + 1 - npages) / npages);
	code = changes == 0 ? HEAT_SAME :
		npages + HOTSET_HEAT_BITS * (uint64) changes < HOTSET_HEAT_BITS * (uint64) npages ? HEAT_CHANGES : HEAT_EACH;

	if (before != NULL && before->locator.dbOid == relation->fork.locator.dbOid &&
		before->locator.spcOid == relation->fork.locator.spcOid)
		PutBits(writer, 1, 1);
	else
	{
		PutBits(writer, 0, 1);
		PutBits(writer, relation->fork.locator.dbOid, 32);
		PutBits(writer, relation->fork.locator.spcOid, 32);
	}
	PutBits(writer, relation->fork.locator.relNumber, 32);
	PutBits(writer, relation->fork.number, 2);
	PutBits(writer, npages, 32);
	PutBits(writer, k, 5);
	PutBits(writer, code, 2);
	PutBits(writer, first_heat, HOTSET_HEAT_BITS);

	heat = first_heat;
	for (uint32 i = 0; i < relation->npages; i++)
	{
		if (!StaysAbove(cut, pages[i]))
			continue;
		PutRice(writer, (uint32) (HotsetBlock(pages[i]) - previous - 1), k);
		previous = HotsetBlock(pages[i]);
		if (code == HEAT_EACH)
			PutBits(writer, HotsetHeat(pages[i]), HOTSET_HEAT_BITS);
		else if (code == HEAT_CHANGES && HotsetHeat(pages[i]) == heat)
			PutBits(writer, 0, 1);
		else if (code == HEAT_CHANGES)
			PutBits(writer, 1 | HotsetHeat(pages[i]) << 1, 1 + HOTSET_HEAT_BITS);
		heat = HotsetHeat(pages[i]);
	}
	return npages;
}

static void
EncodeAbove(const HotsetSet *set, int cut, StringInfo out)
{
	ListHeader	header = {
		.version = LIST_VERSION,
		.block_size = BLCKSZ,
		.nbuffers = set->origin.nbuffers,
		.system_identifier = set->origin.system_identifier,
		.lsn = set->origin.lsn,
		.taken = set->origin.taken,
		.server_start = set->origin.server_start,
		.timeline = set->origin.timeline,
	};
	BitWriter	writer = {.out = out};
	const HotsetFork *before = NULL;
	pg_crc32c	crc;

	memcpy(header.magic, LIST_MAGIC, sizeof(header.magic));
	resetStringInfo(out);
	appendBinaryStringInfo(out, &header, sizeof(header));
	for (uint32 i = 0; i < set->nrelations; i++)
	{
		const HotsetRelation *relation = &set->relations[i];
		uint32		npages = PutRelation(&writer, relation, before, set->pages + relation->first, cut);

		if (npages > 0)
		{
			header.nrelations++;
			header.npages += npages;
			before = &relation->fork;
		}
		CHECK_FOR_INTERRUPTS();
	}
	if (writer.nbits > 0)
		PutBits(&writer, 0, 8 - writer.nbits);
	header.length = out->len + sizeof(crc);
	memcpy(out->data, &header, sizeof(header));
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, out->data, out->len);
	FIN_CRC32C(crc);
	appendBinaryStringInfo(out, &crc, sizeof(crc));
}

/*
 * Pack a set into out, which is emptied first.  If the list would have more
 * than max_bytes, the coldest pages are left out; 0 is no limit.
 */
void
HotsetEncode(const HotsetSet *set, Size max_bytes, StringInfo out)
{
	int			low = 0;		/* known to be too long, unless 0 */
	int			high = (HOTSET_HEAT_MASK + 1) * 4;	/* leaves out everything */

	EncodeAbove(set, 0, out);
	if (max_bytes == 0 || out->len <= max_bytes)
		return;
	while (high - low > 1)
	{
		int			cut = (low + high) / 2;

		EncodeAbove(set, cut, out);
		if (out->len <= max_bytes)
			high = cut;
		else
			low = cut;
	}
	EncodeAbove(set, high, out);
}
