/*-------------------------------------------------------------------------
 *
 * pcache_huge.h
 *	  How many huge pages has the machine?
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_huge.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_HUGE_H
#define PCACHE_HUGE_H

/* Huge pages of one size, those that hugetlbfs and huge_pages take. */
typedef struct PCacheHugePages
{
	uint64		size_kb;		/* of one */
	uint64		reserved;		/* vm.nr_hugepages */
	uint64		unused;			/* of these, that nobody has asked for */
	uint64		more;			/* that the kernel may still add to them */
} PCacheHugePages;

extern bool PCacheReadHugePages(uint64 size_kb, PCacheHugePages *pages);

#endif							/* PCACHE_HUGE_H */
