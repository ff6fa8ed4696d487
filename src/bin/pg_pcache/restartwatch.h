/*-------------------------------------------------------------------------
 *
 * restartwatch.h
 *	  How far a restart has come, for the process that watches over it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/restartwatch.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef RESTARTWATCH_H
#define RESTARTWATCH_H

#define WATCH_NOTHING	'N'		/* has been done */
#define WATCH_PAUSING	'P'		/* PAUSE is about to be sent */
#define WATCH_STOPPING	'S'		/* it is about to be told to stop */
#define WATCH_STARTING	'L'		/* whoever starts it has been begun */
#define WATCH_RESUME	'R'		/* only the poolers are left */
#define WATCH_DONE		'D'

#endif							/* RESTARTWATCH_H */
