/*-------------------------------------------------------------------------
 *
 * hotset_decode.c
 *	  Unpacks a list.
 *
 * The decoder believes nothing, since a list comes from another server or from
 * a file.  It allocates no more than the bits that are there can describe.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_decode.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "hotset_format.h"
#include "hotset_set.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "port/pg_crc32c.h"
#include "utils/memutils.h"

/*
 * A page may take one bit in a list, but some 40 bytes of memory in a round.  So
 * the number of pages is limited.  A list from a server with up to 16 times as
 * many shared buffers is accepted.
 */
#define MAX_PAGES		Max((uint64) NBuffers * 16, 1024 * 1024)

typedef struct BitReader
{
	const uint8 *next;
	const uint8 *end;
	uint64		bits;
	int			nbits;
	bool		failed;			/* asked for more than there is */
} BitReader;

static inline void
FillBits(BitReader *reader)
{
	while (reader->nbits <= 56 && reader->next < reader->end)
	{
		reader->bits |= (uint64) *reader->next++ << reader->nbits;
		reader->nbits += 8;
	}
}

static inline uint32
GetBits(BitReader *reader, int n)
{
	uint32		value;

	if (reader->nbits < n)
		FillBits(reader);
	if (reader->nbits < n)
	{
		reader->failed = true;
		return 0;
	}
	value = reader->bits & ((UINT64CONST(1) << n) - 1);
	reader->bits >>= n;
	reader->nbits -= n;
	return value;
}

static inline uint32
GetRice(BitReader *reader, int k)
{
	uint64		quotient = 0;
	int			zeros;

	while (reader->bits == 0)
	{
		quotient += reader->nbits;
		reader->nbits = 0;
		FillBits(reader);
		if (reader->nbits == 0)
		{
			reader->failed = true;
			return 0;
		}
	}
	zeros = pg_rightmost_one_pos64(reader->bits);
	quotient += zeros;
	/* in two steps, since a shift by 64 is undefined */
	reader->bits >>= zeros;
	reader->bits >>= 1;
	reader->nbits -= zeros + 1;
	if (quotient > (PG_UINT32_MAX >> k))
	{
		reader->failed = true;
		return 0;
	}
	return ((uint32) quotient << k) + (k > 0 ? GetBits(reader, k) : 0);
}

/*
 * Read one relation, for whose pages there is so much room; false if the stream
 * cannot be right.
 */
static bool
GetRelation(BitReader *reader, HotsetSet *set, HotsetRelation *relation, uint32 room)
{
	const HotsetRelation *before = relation > set->relations ? relation - 1 : NULL;
	uint64		block = 0;
	int			k;
	HeatCode	code;
	int			heat;

	if (GetBits(reader, 1) == 0)
	{
		relation->fork.locator.dbOid = GetBits(reader, 32);
		relation->fork.locator.spcOid = GetBits(reader, 32);
	}
	else if (before != NULL)
		relation->fork.locator = before->fork.locator;
	else
		return false;
	relation->fork.locator.relNumber = GetBits(reader, 32);
	relation->fork.number = GetBits(reader, 2);
	relation->first = set->npages;
	relation->npages = GetBits(reader, 32);
	k = GetBits(reader, 5);
	code = GetBits(reader, 2);
	heat = GetBits(reader, HOTSET_HEAT_BITS);
	if (reader->failed || code > HEAT_CHANGES || relation->npages == 0 || relation->npages > room ||
		!HotsetForkCanBe(&relation->fork) ||
		(before != NULL && HotsetForkCompare(&before->fork, &relation->fork) >= 0))
		return false;

	for (uint32 i = 0; i < relation->npages; i++)
	{
		block += (uint64) GetRice(reader, k) + (i > 0);
		if (code == HEAT_EACH || (code == HEAT_CHANGES && GetBits(reader, 1) == 1))
			heat = GetBits(reader, HOTSET_HEAT_BITS);
		if (reader->failed || block > MaxBlockNumber || heat > HOTSET_MAX_HEAT)
			return false;
		set->pages[set->npages++] = HotsetPage(block, heat);
	}
	return true;
}

/* Does it claim to be a list? */
bool
HotsetIsList(const void *data, Size length)
{
	return length >= strlen(LIST_MAGIC) && memcmp(data, LIST_MAGIC, strlen(LIST_MAGIC)) == 0;
}

/*
 * Unpack a list into the current memory context.  Returns NULL if it is not a
 * whole list, and then *problem says why, as an errdetail.
 */
HotsetSet *
HotsetDecode(const void *data, Size length, const char **problem)
{
	ListHeader	header;
	BitReader	reader;
	HotsetSet  *set;
	uint64		nbits;
	pg_crc32c	stored;
	pg_crc32c	crc;

	if (length < sizeof(ListHeader) + sizeof(crc) || !HotsetIsList(data, length))
	{
		*problem = "This is not a list of pg_hotset.";
		return NULL;
	}
	memcpy(&header, data, sizeof(header));
	if (header.version != LIST_VERSION)
	{
		*problem = "The list has the format of another version of pg_hotset.";
		return NULL;
	}
	memcpy(&stored, (const char *) data + length - sizeof(stored), sizeof(stored));
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, length - sizeof(crc));
	FIN_CRC32C(crc);
	if (header.length != length || !EQ_CRC32C(crc, stored))
	{
		*problem = "The list is damaged.";
		return NULL;
	}
	if (header.block_size != BLCKSZ)
	{
		*problem = "The list is from a server with another block size.";
		return NULL;
	}

	/* The CRC says nothing of who computed it. */
	*problem = "The list contradicts itself.";
	nbits = (length - sizeof(header) - sizeof(crc)) * 8;
	if (header.npages > nbits || header.nrelations > nbits / 77 || header.nrelations > header.npages ||
		header.reserved != 0 ||
		!IS_VALID_TIMESTAMP(header.taken) || !IS_VALID_TIMESTAMP(header.server_start))
		return NULL;

	if (header.npages > MAX_PAGES)
	{
		*problem = "The list is of a server that has more than 16 times as many shared buffers as this one.";
		return NULL;
	}

	set = palloc0(sizeof(HotsetSet));
	set->origin.system_identifier = header.system_identifier;
	set->origin.lsn = header.lsn;
	set->origin.taken = header.taken;
	set->origin.server_start = header.server_start;
	set->origin.timeline = header.timeline;
	set->origin.nbuffers = header.nbuffers;
	set->nrelations = header.nrelations;
	set->relations = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(HotsetRelation) * Max(header.nrelations, 1));
	set->pages = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * Max(header.npages, 1));
	reader = (BitReader)
	{
		.next = (const uint8 *) data + sizeof(header),
			.end = (const uint8 *) data + length - sizeof(crc)
	};

	for (uint32 i = 0; i < header.nrelations; i++)
	{
		if (!GetRelation(&reader, set, &set->relations[i], header.npages - set->npages))
			return NULL;
		CHECK_FOR_INTERRUPTS();
	}
	if (set->npages != header.npages || reader.next != reader.end || reader.nbits >= 8)
		return NULL;
	return set;
}
