/*-------------------------------------------------------------------------
 *
 * drop.h
 *	  What drop.c and dropplan.c share.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/drop.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef DROP_H
#define DROP_H

#include "pg_pcache.h"

/* What was removed, or would be; each path is "" if there is no such thing. */
typedef struct DropResult
{
	bool		dry_run;
	bool		nothing;		/* none of the rest */
	char		pool[MAXPGPATH];	/* of the file */
	char		leftover[MAXPGPATH];	/* likewise, of an interrupted
										 * creation */
	char		directory[MAXPGPATH];
	const char *directory_stays;	/* why it is not removed, or NULL */
	uint64		freed;			/* bytes */
} DropResult;

/* Everything that drop finds out before it starts. */
typedef struct DropPlan
{
	ControlFileData *control;
	char		directory[MAXPGPATH];	/* of the pool */
	PCacheDir	dir;			/* the same, open if it exists */
	PCachePool	pool;			/* open and locked, if there is one */
	bool		is_untrusted;	/* nothing is looked at in the directory */
	int			leftover_fd;	/* locked; -1 if not to be removed */
	bool		remove_directory;
} DropPlan;

/* dropplan.c */
extern void PlanDrop(const PCacheOptions *options, DropPlan *plan,
					 DropResult *result);

#endif							/* DROP_H */
