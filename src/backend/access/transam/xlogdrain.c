/*-------------------------------------------------------------------------
 *
 * xlogdrain.c
 *	  WAL that becomes durable when stores to persistent memory are drained.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/access/transam/xlogdrain.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogdrain.h"

bool		(*WalIsDrained) (void) = NULL;
void		(*WalDrainHook) (void) = NULL;
