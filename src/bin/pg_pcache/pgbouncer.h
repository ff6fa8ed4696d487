/*-------------------------------------------------------------------------
 *
 * pgbouncer.h
 *	  What the files about PgBouncer share.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/pgbouncer.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGBOUNCER_H
#define PGBOUNCER_H

#include "restart.h"

/* The console of PgBouncer is a database of that name. */
#define CONSOLE		"pgbouncer"

/* pgbouncer.c */
extern PGconn *ConnectToConsole(const char *conninfo, const char **databases);
extern PGresult *ShowOf(const Pooler *pooler, const char *query);

/* pgbouncerinfo.c */
extern bool IsTarget(const Pooler *pooler, const char *database);

/* pgbouncerblock.c */
extern bool TellWhoBlocks(const Restart *restart, const Pooler *pooler, double longer_than);

#endif							/* PGBOUNCER_H */
