/*-------------------------------------------------------------------------
 *
 * pcache_sigbus.c
 *	  Memory errors in the pool: say which page is lost, and die of it.
 *
 * The kernel sends SIGBUS to a process that touches a page of the pool which
 * cannot be read: an uncorrectable memory error, a bad block of persistent
 * memory, or a pool file that somebody has truncated.  The postmaster then
 * does what it does after any crash of a child.
 *
 * The exception is the checkpointer's save at a clean stop (rule "a memory
 * error does not make a stop a crash").
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/core/pcache_sigbus.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/pcache_core.h"
#include "utils/builtins.h"

/* Does this process save the cache?  If so, another attempt follows its death. */
bool		PCacheSaving = false;

/*
 * Where the checkpointer goes on after a memory error, while it saves.  It holds
 * no lock then, and allocates no memory.
 */
sigjmp_buf *volatile PCacheMemoryErrorEscape = NULL;

/* Of what the kernel manages memory in; larger pages get split. */
#define SMALL_PAGE_SIZE		4096

/* A line of text, put together without calling anything. */
typedef struct SafeLine
{
	char		text[256];
	size_t		len;
} SafeLine;

static void
AppendText(SafeLine *line, const char *text)
{
	while (*text != '\0' && line->len < sizeof(line->text))
		line->text[line->len++] = *text++;
}

static void
AppendNumber(SafeLine *line, uint64 number)
{
	char		digits[32];

	digits[pg_ulltoa_n(number, digits)] = '\0';
	AppendText(line, digits);
}

static void
AppendTag(SafeLine *line, const BufferTag *tag)
{
	ForkNumber	fork = BufTagGetForkNum(tag);

	AppendText(line, "relation ");
	AppendNumber(line, tag->spcOid);
	AppendText(line, "/");
	AppendNumber(line, tag->dbOid);
	AppendText(line, "/");
	AppendNumber(line, BufTagGetRelNumber(tag));
	AppendText(line, ", fork ");
	AppendText(line, fork >= 0 && fork <= MAX_FORKNUM ? forkNames[fork] : "unknown");
	AppendText(line, ", block ");
	AppendNumber(line, tag->blockNum);
}

/*
 * Write what is lost to the server's log.  Not by ereport(), which allocates
 * memory and takes locks.
 */
static void
WriteReport(const char *level, uint64 offset)
{
	uint64		blocks_offset = PCacheCtl->superblock.blocks_offset;
	SafeLine	line = {.len = 0};
	ssize_t		rc;

	AppendText(&line, level);
	AppendText(&line, ":  memory error in persistent cache pool, process ");
	AppendNumber(&line, MyProcPid);
	AppendText(&line, ": ");
	if (offset >= blocks_offset && offset - blocks_offset < (uint64) NBuffers * BLCKSZ)
	{
		int			slot = (offset - blocks_offset) / BLCKSZ;

		AppendText(&line, "buffer ");
		AppendNumber(&line, slot + 1);
		AppendText(&line, ", ");
		AppendTag(&line, &GetBufferDescriptor(slot)->tag);
	}
	else
	{
		AppendText(&line, offset >= PCACHE_DESCRIPTORS_OFFSET ?
				   "descriptors, at byte " : "superblock, at byte ");
		AppendNumber(&line, offset);
	}
	AppendText(&line, "\n");
	rc = write(STDERR_FILENO, line.text, line.len);
	(void) rc;
}

/*
 * Remember, for the next start, what cannot be used any more.  Returns false if
 * that is not possible.
 *
 * A huge page of hugetlbfs is lost as a whole.  Elsewhere, a memory error
 * costs the page that it is in, whatever the size of the mapping was.
 */
static bool
Remember(uint64 offset, const siginfo_t *info)
{
	uint64		blocks_offset = PCacheCtl->superblock.blocks_offset;
	uint64		size = SMALL_PAGE_SIZE;
	uint64		start;

	if (offset >= blocks_offset)
		size = Max(size, BLCKSZ);
	if (PCacheThePool.fs_kind == PCACHE_FS_HUGETLBFS &&
		info->si_code == BUS_MCEERR_AR && info->si_addr_lsb > 12 &&
		info->si_addr_lsb <= 30)
		size = UINT64CONST(1) << info->si_addr_lsb;
	start = offset - offset % size;

	/* if nothing can be done for the superblock, admit it */
	return start >= PCACHE_DESCRIPTORS_OFFSET &&
		PCacheNoteMemoryError(&PCacheThePool.map, start, size);
}

/*
 * A memory error was met by the save.  The kernel may put zeros where the page
 * was, and a further attempt must not take them for a page.  So it must know of
 * the range, or else nothing that it saves is believed.
 */
static void
HandleErrorInSave(uint64 offset, const siginfo_t *info)
{
	WriteReport(PCacheMemoryErrorEscape != NULL ? "LOG" : "PANIC", offset);
	if (!Remember(offset, info))
	{
		PCacheNoteOwnFault(SIGBUS);
		return;
	}
	/* the kernel may also tell of an error while we are elsewhere */
	if (PCacheMemoryErrorEscape != NULL && info->si_code != BUS_MCEERR_AO)
		siglongjmp(*PCacheMemoryErrorEscape, 1);
	PCacheExplainDeath(SIGBUS);
}

/*
 * SA_RESETHAND has restored the default action already, so that a memory error
 * that we run into here ends the process as well.
 */
static void
HandleSigbus(int signo, siginfo_t *info, void *context)
{
	const char *addr = info->si_addr;
	const PCacheMapping *map = &PCacheThePool.map;

	/* si_code is positive if the kernel sent it, for a fault */
	if (info->si_code > 0 && addr >= map->base && addr < map->base + map->length)
	{
		if (PCacheSaving)
			HandleErrorInSave(addr - map->base, info);
		else
		{
			/* first: what else we do may meet a memory error itself */
			PCacheExplainDeath(SIGBUS);
			WriteReport("PANIC", addr - map->base);
			(void) Remember(addr - map->base, info);
		}
	}
	else
		PCacheNoteOwnFault(SIGBUS);
	raise(SIGBUS);				/* once we have returned */
}

/*
 * Called by each child of the postmaster when it starts, and by one that has
 * escaped from a memory error.
 */
void
PersistentCacheInitChild(void)
{
	struct sigaction action;

	if (PCacheThePool.map.base == NULL)
		return;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = HandleSigbus;
	action.sa_flags = SA_SIGINFO | SA_RESETHAND;
	/* see PCacheCatchFaults() */
	sigfillset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, NULL) < 0)
		elog(FATAL, "could not set handler for SIGBUS: %m");
	PCacheCatchFaults();
}
