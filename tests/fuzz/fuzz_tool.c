/*-------------------------------------------------------------------------
 *
 * fuzz_tool.c
 *	  Fuzz target: pg_pcache, all of it, on a cluster that was tampered with.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_tool.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_process.h"

#include <fcntl.h>
#include <unistd.h>

#define MAX_ARGS			10

typedef struct Command
{
	const char *args[MAX_ARGS];
	bool		writes;			/* the pool has to be made again */
	bool		reads_files;	/* of relations */
	bool		foretells;		/* the exit status is that of verify after it */
} Command;

/* A pool without the sparse input's descriptors has only free ones. */
static const Command commands[] = {
	{{"status"}},
	{{"status", "--json"}},
	{{"verify"}},
	{{"verify", "--json"}},
	{{"init", "--size=128kB"},.writes = true},
	{{"init", "--dry-run", "--size=128kB", "--json"}},
	{{"init", "--dry-run", "--force"}},
	{{"init", "--force", "--size=128kB", "--json"},.writes = true},
	{{"verify", "--pages"},.reads_files = true},
	{{"verify", "--pages", "--json"},.reads_files = true},
	{{"rebuild", "--dry-run"}},
	{{"rebuild", "--dry-run", "--json"}},
	{{"rebuild"},.writes = true,.foretells = true},
	{{"rebuild", "--json"},.writes = true,.foretells = true},
	{{"drop", "--dry-run", "--json"}},
	{{"drop", "--json"},.writes = true},
	{{"drop", "--force"},.writes = true},
};

static uint64 n_exits[lengthof(commands)][4];

/* How often each command ended in which way. */
static void
WriteCounts(void)
{
	FILE	   *file = FuzzOpenCounts();

	if (file == NULL)
		return;
	for (int i = 0; i < lengthof(commands); i++)
	{
		for (int j = 0; commands[i].args[j] != NULL; j++)
			fprintf(file, j == 0 ? "%s" : " %s", commands[i].args[j]);
		for (int j = 0; j < lengthof(n_exits[i]); j++)
			fprintf(file, "\t%llu", (unsigned long long) n_exits[i][j]);
		fprintf(file, "\n");
	}
	fclose(file);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	FuzzMakeCluster();
	FuzzStartProcess();
	atexit(WriteCounts);
	return 0;
}

/* For the shared_buffers of the input? */
static bool
PoolIsTooSmall(void)
{
	PCacheSuperblock sb;
	int			fd = open(fuzz_pool_path, O_RDONLY);
	bool		known = fd >= 0 &&
		PCacheReadExact(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET);

	if (fd >= 0)
		close(fd);
	return known && fuzz_current->nbuffers >= 0 && sb.capacity < fuzz_current->nbuffers;
}

/*
 * Only "drop" takes the pool away, and without --force only one that is known to
 * be the cluster's.  Nobody takes anything else.
 */
static void
CheckFiles(const FuzzInput *input, const char *const *args)
{
	bool		drops = strcmp(args[0], "drop") == 0;
	bool		force = false;
	PCacheSuperblock first;
	PCacheSuperblock copy;

	FuzzExpect(access("global/pg_control", F_OK) == 0 && access("pg_wal", F_OK) == 0 &&
			   access("pg_tblspc", F_OK) == 0 && access("base/5", F_OK) == 0);
	if ((input->facts & FUZZ_NO_POOL) || access(fuzz_pool_path, F_OK) == 0)
		return;
	for (int i = 1; args[i] != NULL; i++)
	{
		force = force || strcmp(args[i], "--force") == 0;
		drops = drops && strcmp(args[i], "--dry-run") != 0;
	}
	FuzzExpandSuperblock(&input->first, &first);
	FuzzExpandSuperblock(&input->copy, &copy);
	FuzzExpect(drops);
	FuzzExpect(force ||
			   first.system_identifier == input->control.system_identifier ||
			   copy.system_identifier == input->control.system_identifier);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const look[] = {"verify", "--json", NULL};
	FuzzInput	input;
	const Command *command;
	int			status;

	FuzzWatch();
	FuzzLoad(&input, data, size);
	command = &commands[input.command % lengthof(commands)];
	fuzz_current = &input;
	FuzzWriteCluster(&input, command->reads_files);
	status = FuzzRun(command->args);
	FuzzCheckOutput(command->args, status);
	CheckFiles(&input, command->args);
	n_exits[command - commands][status]++;
	FuzzEmptyRelations();
	if (command->writes)
	{
		int			seen = FuzzRun(look);

		FuzzCheckOutput(look, seen);
		/* a pool that is too small is no failure of rebuild */
		if (command->foretells && status != 1)
			FuzzExpect(seen == status || (seen == 1 && PoolIsTooSmall()));
		FuzzForgetPool();
	}
	return 0;
}
