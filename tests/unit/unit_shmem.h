/*-------------------------------------------------------------------------
 *
 * unit_shmem.h
 *	  How sizes of shared memory are computed in unit tests.
 *
 * Defines functions, so that a program includes it once.  To be included after
 * unit.h.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit_shmem.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_SHMEM_H
#define UNIT_SHMEM_H

#include "storage/shmem.h"

Size
add_size(Size a, Size b)
{
	assert_true(a + b >= a);
	return a + b;
}

Size
mul_size(Size a, Size b)
{
	assert_true(a == 0 || a * b / a == b);
	return a * b;
}

#endif							/* UNIT_SHMEM_H */
