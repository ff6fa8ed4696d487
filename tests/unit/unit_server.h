/*-------------------------------------------------------------------------
 *
 * unit_server.h
 *	  How errors end in unit tests that are made of the server's sources.
 *
 * Defines functions, so that a program includes it once.  To be included after
 * unit.h.  The test itself defines errstart().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit_server.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_SERVER_H
#define UNIT_SERVER_H

void
errfinish(const char *filename, int lineno, const char *funcname)
{
}

void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	abort();
}

#endif							/* UNIT_SERVER_H */
