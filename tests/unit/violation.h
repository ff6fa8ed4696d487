/*-------------------------------------------------------------------------
 *
 * violation.h
 *	  What a check of a protocol has found first.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/violation.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef VIOLATION_H
#define VIOLATION_H

static char violation[512];		/* empty: nothing is wrong */
static int	violation_kind;		/* as the test numbers them */

static void Violation(int kind, const char *fmt,...) pg_attribute_printf(2, 3);

static void
Violation(int kind, const char *fmt,...)
{
	va_list		args;

	if (violation[0] != '\0')
		return;
	violation_kind = kind;
	va_start(args, fmt);
	vsnprintf(violation, sizeof(violation), fmt, args);
	va_end(args);
}

#endif							/* VIOLATION_H */
