/*-------------------------------------------------------------------------
 *
 * fuzz_process.h
 *	  pg_pcache in the process of a fuzzer, and the cluster that it works on.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/fuzz/fuzz_process.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_PROCESS_H
#define FUZZ_PROCESS_H

#include "fuzz_input.h"

#define FUZZ_MAX_POOL_SIZE	((uint64) 16 * 1024 * 1024)

/* fuzz_process.c */
extern const FuzzInput *fuzz_current;	/* has the server's configuration */
extern char *fuzz_output;		/* of the last run; on stdout */
extern size_t fuzz_allocated;	/* in the last run, in bytes, freed or not */

extern void FuzzStartProcess(void);
extern int	FuzzRun(const char *const *args);
extern void FuzzCheckOutput(const char *const *args, int status);

/* fuzz_cluster.c */
extern char fuzz_data_directory[MAXPGPATH];
extern char fuzz_pool_directory[MAXPGPATH];
extern char fuzz_pool_path[MAXPGPATH];

extern void FuzzMakeCluster(void);
extern void FuzzWriteCluster(const FuzzInput *input, bool with_pages);
extern void FuzzEmptyRelations(void);
extern void FuzzForgetPool(void);
extern void FuzzGiveUp(const char *what);

#endif							/* FUZZ_PROCESS_H */
