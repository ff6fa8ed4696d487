/*-------------------------------------------------------------------------
 *
 * pg_pcache.h
 *	  Declarations shared by the verbs of pg_pcache.
 *
 * A verb finds out, or does, what it is about and fills a struct declared
 * here; printing that struct as text is at the end of the verb's own file,
 * printing it as JSON is in json.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/pg_pcache.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_PCACHE_H
#define PG_PCACHE_H

#include "storage/pcache_pool.h"

/* Exit status; see usage(). */
#define EXIT_WARM		0
#define EXIT_ERROR		1
#define EXIT_COLD		2
#define EXIT_UNKNOWN	3

/* shared_buffers has the same limits. */
#define MIN_CAPACITY	16
#define MAX_CAPACITY	(INT_MAX / 2)

typedef struct PCacheOptions
{
	const char *argv0;
	const char *progname;
	char		pgdata[MAXPGPATH];	/* absolute, links resolved */
	const char *config_file;	/* NULL if not given */
	const char *directory;		/* likewise */
	const char *size;			/* likewise */
	bool		dry_run;
	bool		force;
	bool		json;
	bool		human;
	bool		progress;
} PCacheOptions;

typedef struct InitResult
{
	bool		dry_run;
	bool		replaced;		/* there was a pool, --force replaced it */
	char		directory[MAXPGPATH];
	char		link[MAXPGPATH];	/* PGDATA/pg_pcache if that is a symbolic
									 * link, else "" */
	PCacheFsKind fs_kind;
	PCacheGeometry geometry;
	uint64		system_identifier;
	uint8		pool_uuid[PCACHE_UUID_LEN]; /* not in a dry run */
	bool		huge_pages;		/* on tmpfs; not in a dry run */
} InitResult;

/* The two superblocks of a pool, and which of them to believe. */
typedef struct Superblocks
{
	PCacheSuperblockSource source;
	PCacheSuperblock chosen;	/* not set if the source is none */
	bool		first_intact;
	bool		copy_intact;
	PCacheError first_error;	/* set if it is not intact */
	PCacheError copy_error;
} Superblocks;

typedef struct StatusResult
{
	int			server_pid;		/* 0 if no server is running */
	PCachePool	pool;
	Superblocks superblocks;
	PCacheStateFileResult state_result;
	PCacheStateFile state;
} StatusResult;

typedef enum NextStart
{
	NEXT_START_WARM,
	NEXT_START_COLD,
	NEXT_START_UNKNOWN,
} NextStart;

typedef struct VerifyResult
{
	NextStart	next_start;
	const char *reason;			/* a short name; NULL if warm */
	char		detail[1024];
	char		pool[MAXPGPATH];	/* of the file */
	bool		scanned;		/* the rest was counted */
	uint64		slots;			/* looked at */
	uint64		saved;			/* pages that the pool ought to hold */
	uint64		not_fitting;	/* saved in slots that shared_buffers is now
								 * too small for */
	uint64		counts[PCACHE_NUM_PAGE_VERDICTS];
} VerifyResult;

/* init.c, status.c, verify.c: the verbs, which return the exit status */
extern int	DoInit(const PCacheOptions *options);
extern int	DoStatus(const PCacheOptions *options);
extern int	DoVerify(const PCacheOptions *options);

/* cluster.c */
extern ControlFileData *ReadControlFile(const PCacheOptions *options);
extern int	RunningServer(const char *pgdata);
extern void RefuseRunningServer(const char *pgdata);
extern bool FileExists(const char *directory, const char *name);
extern char *ReadSetting(const PCacheOptions *options, const char *name);
extern int64 ReadSharedBuffers(const PCacheOptions *options);
extern void ResolvePath(const char *path, char *resolved);
extern void ExistingPart(const char *path, char *existing);
extern void ReadSuperblocks(const PCachePool *pool, Superblocks *superblocks);

/* report.c */
extern void ReportError(const PCacheError *err);
pg_noreturn extern void FailWith(const PCacheError *err);
extern void PrintLine(const char *key, const char *fmt,...) pg_attribute_printf(2, 3);
extern const char *FormatBytes(uint64 bytes, bool human);
extern const char *FormatSetting(uint64 bytes);
extern const char *FormatUuid(const uint8 uuid[PCACHE_UUID_LEN]);
extern const char *FormatTime(int64 seconds);
extern const char *FormatTimeUtc(int64 seconds);
extern const char *StateName(uint32 state);
extern const char *ModeName(uint32 mode);
extern void ReportProgress(uint64 done, uint64 total, bool finished);

/* json.c */
extern void InitResultToJson(const InitResult *result, bool human);
extern void StatusResultToJson(const StatusResult *result, bool human);
extern void VerifyResultToJson(const VerifyResult *result);

#endif							/* PG_PCACHE_H */
