/*-------------------------------------------------------------------------
 *
 * unit_protocol.h
 *	  What test_protocol.c and test_protocol_startstop.c share: what is found
 *	  wrong, what mutants[] says of that, and parts of the server that play no
 *	  role in either.
 *
 * Defines functions, so that a program includes it once.  The test itself has
 * defined Expected, mutants[], mutant, N_SLOTS and FIRST_REL.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit_protocol.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_PROTOCOL_H
#define UNIT_PROTOCOL_H

#include "unit_shmem.h"
#include "violation.h"

/* What the server defines elsewhere. */
int			NBuffers = N_SLOTS;
int			MaxBackends = 1;
ProcNumber	MyProcNumber = 0;
Block	   *LocalBufferBlockPointers = NULL;
volatile sig_atomic_t InterruptPending = false;
volatile sig_atomic_t ShutdownRequestPending = false;

static uint64 n_images;
static uint64 n_kept;

/*
 * Print what a mutant has led to, in the scenario of that name, or in none if it
 * is NULL.  Returns 1 if that is not what is expected of it, or else 0.
 */
static int
JudgeMutant(const char *const names[], const char *scenario)
{
	Expected	found = scenario != NULL ? violation_kind : HARMLESS;

	print_message("%-64s %-13s %s%s%s\n", mutants[mutant].what, names[found],
				  scenario != NULL ? scenario : "",
				  scenario != NULL ? ": " : "", scenario != NULL ? violation : "");
	if (found == mutants[mutant].expected)
		return 0;
	print_message("    expected: %s\n", names[mutants[mutant].expected]);
	return 1;
}

static void
SetTag(BufferTag *buffer_tag, int tag)
{
	RelFileLocator rlocator = {DEFAULTTABLESPACE_OID, 5, FIRST_REL + tag};

	InitBufferTag(buffer_tag, &rlocator, MAIN_FORKNUM, 0);
}

/* Which blocks a page names is not part of this. */
bool
PCacheNamesBlocks(const BufferTag *tag, Page page)
{
	return false;
}

void
ProcessInterrupts(void)
{
	abort();
}

/* Counters, for people to look at */
void
PCacheRoundBegin(void)
{
}

void
PCacheRoundDone(void)
{
}

void
PCacheCountSeals(uint64 seals, uint64 failed)
{
}

#endif							/* UNIT_PROTOCOL_H */
