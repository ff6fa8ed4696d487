/*-------------------------------------------------------------------------
 *
 * hotset_set.h
 *	  A set of pages, and the files that name one.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_set.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOTSET_SET_H
#define HOTSET_SET_H

#include "access/xlogdefs.h"
#include "catalog/pg_tablespace_d.h"
#include "common/int.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "storage/relfilelocator.h"

/* A page is one number: its block, and its usage count in the low bits. */
#define HOTSET_HEAT_BITS	3
#define HOTSET_HEAT_MASK	((1 << HOTSET_HEAT_BITS) - 1)
#define HOTSET_MAX_HEAT		5	/* BM_MAX_USAGE_COUNT */
#define HotsetPage(block, heat) (((uint64) (block) << HOTSET_HEAT_BITS) | (heat))
#define HotsetBlock(page)	((BlockNumber) ((page) >> HOTSET_HEAT_BITS))
#define HotsetHeat(page)	((int) ((page) & HOTSET_HEAT_MASK))

/* A fork of a relation.  There are no padding bytes, since this is a key. */
typedef struct HotsetFork
{
	RelFileLocator locator;
	ForkNumber	number;
} HotsetFork;

typedef struct HotsetRelation
{
	HotsetFork	fork;
	uint32		first;			/* its first page in HotsetSet.pages */
	uint32		npages;
} HotsetRelation;

/* When and where a set was taken */
typedef struct HotsetOrigin
{
	uint64		system_identifier;
	XLogRecPtr	lsn;
	TimestampTz taken;
	TimestampTz server_start;
	TimeLineID	timeline;
	uint32		nbuffers;		/* that the server has */
} HotsetOrigin;

/* Pages by relation, both in ascending order */
typedef struct HotsetSet
{
	HotsetOrigin origin;
	uint32		nrelations;
	uint32		npages;
	HotsetRelation *relations;
	uint64	   *pages;
} HotsetSet;

/* What a column of a text means */
typedef enum HotsetColumn
{
	HOTSET_DATABASE,
	HOTSET_TABLESPACE,
	HOTSET_RELATION,
	HOTSET_FORK,
	HOTSET_BLOCK,
	HOTSET_HEAT,				/* optional */
	HOTSET_COLUMNS
} HotsetColumn;

/* A text on its way: autoprewarm.blocks, or pg_buffercache as CSV */
typedef struct HotsetText
{
	char	   *rest;
	int			places[HOTSET_COLUMNS]; /* -1: there is no such column */
	uint64		promised;		/* lines behind the first; of
								 * autoprewarm.blocks */
	bool		is_autoprewarm;
	uint64		nlines;
	const char *problem;		/* what is wrong with the file, or NULL */

	/* pages that were left out */
	uint64		catalogs;
	uint64		impossible;

	/* the page that was read last */
	HotsetFork	fork;
	BlockNumber block;
	int			heat;
} HotsetText;

/* The order of a set's relations: all of one database are neighbours. */
static inline int
HotsetForkCompare(const HotsetFork *a, const HotsetFork *b)
{
	int			result = pg_cmp_u32(a->locator.dbOid, b->locator.dbOid);

	if (result == 0)
		result = pg_cmp_u32(a->locator.spcOid, b->locator.spcOid);
	if (result == 0)
		result = pg_cmp_u32(a->locator.relNumber, b->locator.relNumber);
	if (result == 0)
		result = pg_cmp_s32(a->number, b->number);
	return result;
}

/* Is there such a file in any cluster?  The path of another one is undefined. */
static inline bool
HotsetForkCanBe(const HotsetFork *fork)
{
	return OidIsValid(fork->locator.spcOid) && RelFileNumberIsValid(fork->locator.relNumber) &&
		(fork->locator.spcOid == GLOBALTABLESPACE_OID) == (fork->locator.dbOid == InvalidOid) &&
		fork->number >= MAIN_FORKNUM && fork->number < INIT_FORKNUM;
}

/* hotset_decode.c */
extern bool HotsetIsList(const void *data, Size length);
extern HotsetSet *HotsetDecode(const void *data, Size length, const char **problem);

/* hotset_text.c */
extern void HotsetTextBegin(HotsetText *text, char *data, Size length);
extern bool HotsetTextNext(HotsetText *text);

#endif							/* HOTSET_SET_H */
