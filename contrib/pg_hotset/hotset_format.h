/*-------------------------------------------------------------------------
 *
 * hotset_format.h
 *	  The compact form of a set of pages, a list.
 *
 * A list is a header, a stream of bits, and a CRC-32C of both.  Numbers of the
 * header are in the byte order of the machine, as data files are.  The stream
 * has, for each relation in ascending order of database, tablespace, number and
 * fork:
 *
 *	   1 bit	are database and tablespace those of the relation before?
 *	  64 bits	if not: database, tablespace
 *	  32 bits	relfilenumber
 *	   2 bits	fork
 *	  32 bits	number of pages
 *	   5 bits	Rice parameter k
 *	   2 bits	how usage counts are stored: see HeatCode
 *	   3 bits	the first usage count
 *
 * and then for each page, in ascending order, the blocks that are left out
 * since the page before as a Rice code (the quotient by 2^k in unary, then k
 * bits), and its usage count.  A table that is held as a whole takes one or two
 * bits a page.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 *	  contrib/pg_hotset/hotset_format.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef HOTSET_FORMAT_H
#define HOTSET_FORMAT_H

#define LIST_MAGIC			"PGHOTSET"
#define LIST_VERSION		1

typedef struct ListHeader
{
	char		magic[8];
	uint32		version;
	uint32		length;			/* of the whole list, with the CRC */
	uint32		block_size;
	uint32		nbuffers;
	uint64		system_identifier;
	uint64		lsn;
	int64		taken;
	int64		server_start;
	uint32		timeline;
	uint32		nrelations;
	uint32		npages;
	uint32		reserved;		/* 0 */
} ListHeader;

StaticAssertDecl(sizeof(ListHeader) == 72, "ListHeader has padding bytes");

typedef enum HeatCode
{
	HEAT_SAME,					/* all as the first */
	HEAT_EACH,					/* 3 bits a page */
	HEAT_CHANGES,				/* 0: as the page before; 1: 3 bits follow */
} HeatCode;

#endif							/* HOTSET_FORMAT_H */
