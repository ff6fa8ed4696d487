/*-------------------------------------------------------------------------
 *
 * pg_pcache.h
 *	  Declarations shared by the verbs of pg_pcache.
 *
 * A verb has a file of its own, or shares it with one that is much the same: it finds out, or
 * does, what it is about, and prints that at the end, as text or as JSON (output.c).
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/pg_pcache.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_PCACHE_H
#define PG_PCACHE_H

#include "common/logging.h"
#include "fe_utils/connect_utils.h"
#include "fe_utils/simple_list.h"
#include "storage/pcache_gate.h"
#include "storage/pcache_pool.h"

/* Exit status; see usage(). */
#define EXIT_WARM		0
#define EXIT_ERROR		1
#define EXIT_COLD		2
#define EXIT_UNKNOWN	3

/*
 * What shared_preload_libraries must have.  The patched server, of whose tree we are a part
 * unless the makefile says where an unpatched one is, preloads it by itself.
 */
#define LIBRARY_NAME	"pg_pcache"
#ifdef PCACHE_SERVER_BINDIR
#define PRELOADS_BY_ITSELF	false
#else
#define PRELOADS_BY_ITSELF	true
#define PCACHE_SERVER_BINDIR ""
#endif

/* shared_buffers has the same limits. */
#define MIN_CAPACITY	16
#define MAX_CAPACITY	(INT_MAX / 2)

/* To be or'ed, see options.c. */
typedef enum PCacheVerb
{
	VERB_INIT = 1,
	VERB_REBUILD = 2,
	VERB_STATUS = 4,
	VERB_VERIFY = 8,
	VERB_DROP = 16,
	VERB_CHECK = 32,
	VERB_SAVE = 64,
	VERB_LOAD = 128,
	VERB_SETUP = 256,
	VERB_PREPARE = 512,
	VERB_RESTART = 1024,
	VERB_ALL = 2047,
} PCacheVerb;

/* These tell how the next start will be, or want to know, and change no pool. */
#define VERBS_OF_A_RUNNING_SERVER	(VERB_CHECK | VERB_PREPARE | VERB_RESTART)
#define VERBS_THAT_CONNECT			(VERB_PREPARE | VERB_RESTART)
#define VERBS_THAT_FORETELL			(VERBS_OF_A_RUNNING_SERVER | VERB_VERIFY)

typedef struct PCacheOptions
{
	const char *argv0;
	const char *progname;
	int			verb;			/* one PCacheVerb */
	int			(*run) (const struct PCacheOptions *options);	/* its function */
	const char *datadir;		/* as given */
	const char *cluster;		/* likewise, VERSION/NAME; NULL if not given */
	char		pgdata[MAXPGPATH];	/* absolute, links resolved */
	const char *config_file;	/* NULL if not given */
	const char *directory;		/* likewise */
	const char *size;			/* likewise */
	const char *to;				/* likewise; absolute, as the next one */
	const char *from;			/* likewise */
	const char *compress;		/* likewise */
	const char *mode;			/* likewise */
	const char *command;		/* likewise */
	const char *dirty_limit;	/* likewise */
	const char *drain_timeout;	/* likewise */
	const char *max_pause;		/* likewise */
	const char *on_failure;		/* likewise */
	SimpleStringList pgbouncers;	/* connection strings */
	ConnParams	params;
	int			jobs;			/* 0 if not given */
	bool		pages;
	bool		if_host_stops;
	bool		keep;
	bool		allow_cold;
	bool		dry_run;
	bool		apply;
	bool		no_restart;
	bool		force;
	bool		json;
	bool		progress;
	bool		version;
	bool		help;			/* verb is 0 for that of all of them */
} PCacheOptions;

/* What a comparison of a page with its data file can say. */
typedef enum PageComparison
{
	PAGE_EQUAL,					/* but for the checksum, perhaps */
	PAGE_HINTS,					/* differs in hints only */
	PAGE_OLDER,					/* after power was lost: redo repeats it */
	PAGE_IMPOSSIBLE,			/* must not be */
	PAGE_UNREADABLE,			/* in the pool, or in the file */
	PAGE_STORED_CHECKSUM,		/* equal, and the file's checksum is wrong */
	NUM_PAGE_COMPARISONS
} PageComparison;

typedef struct PageComparisons
{
	uint64		counts[NUM_PAGE_COMPARISONS];
} PageComparisons;

/* The configuration of the next start; each may be unknown. */
typedef struct Configuration
{
	char	   *mode;			/* NULL if unknown */
	char	   *directory;		/* NULL if unknown */
	int64		nbuffers;		/* -1 if unknown */
	uint64		pool_size;		/* of a pool that is created, in blocks */
	bool		cold_on_media_unknown;
	bool		required;		/* the server does not start without it */
	char	   *io_method;		/* NULL if unknown */
	char	   *debug_io_direct;	/* NULL if unknown */
	char	   *libraries;		/* shared_preload_libraries; NULL if unknown */
	bool		preloaded;		/* somebody honors our settings */
	bool		needs_huge_pages;	/* huge_pages is "on" */
	uint64		huge_page_kb;	/* huge_page_size, or 0 */
	int			server_version; /* as PG_VERSION_NUM; 0 if unknown */
	bool		allow_unknown_minor;
} Configuration;

/* Facts for the gates; see GatherPoolFacts(). */
typedef struct Judge
{
	PCacheGateFacts facts;
	PCacheMediaReport media;
	bool		drop_unlogged;	/* the next start resets unlogged relations */
} Judge;

/* What the page gates say of all slots. */
typedef struct PageScan
{
	uint64		slots;			/* the first ones, which will be used */
	uint8	   *verdicts;		/* PCachePageVerdict, for each of them */
	uint64		counts[PCACHE_NUM_PAGE_VERDICTS];
	uint64		sealed;			/* also beyond slots */
	uint64		saved;			/* pages that the pool ought to hold */
	uint64		redo;			/* see PCachePageFacts */
	uint64		generation;		/* likewise */
} PageScan;

/*
 * The cluster that a verb is about, and its pool.  OpenCluster() fills
 * in all up to judge.
 */
typedef struct Cluster
{
	const PCacheOptions *options;
	const ControlFileData *control;
	int			server_pid;		/* only for check: 0 if no server is running */
	Configuration conf;
	char		directory[MAXPGPATH];	/* of the pool; links resolved if that
										 * is open, for verbs that do more
										 * than look */
	PCacheOpenResult opened;
	PCacheError open_error;		/* if it is not open */
	PCachePool	pool;			/* what follows is known if it is open */
	PCacheNextEvent event;		/* that the next start comes after */
	PCacheSuperblocks superblocks;	/* chosen is what is on media, or is about
									 * to be */
	Judge		judge;
	PageScan	scan;			/* before anything was changed, of all slots;
								 * if the superblock is usable */
} Cluster;

/* What there is to tell, in the two forms of the output; see output.c. */
typedef struct FieldValue
{
	const char *text;			/* NULL for no line */
	const char *json;
} FieldValue;


#define NUM_END_SIGNALS		4

/* One file each, but for verify: the verbs, which return the exit status */
extern int	DoCheck(const PCacheOptions *options);
extern int	DoDrop(const PCacheOptions *options);
extern int	DoInit(const PCacheOptions *options);
extern int	DoLoad(const PCacheOptions *options);
extern int	DoRebuild(const PCacheOptions *options);
extern int	DoRestart(const PCacheOptions *options);
extern int	DoSave(const PCacheOptions *options);
extern int	DoSetup(const PCacheOptions *options);
extern int	DoStatus(const PCacheOptions *options);

/* options.c */
extern void ParseOptions(int argc, char *argv[], PCacheOptions *options);

/* help.c */
extern void ShowHelp(const char *progname, int verb);

/* child.c */
extern const int end_signals[NUM_END_SIGNALS];
extern void OnEndSignals(pqsigfunc handler);
extern pid_t ForkChild(void);
extern int	WaitForChild(pid_t pid);
extern bool CloseFiles(const int *keep, int n);
extern char *FirstLineOf(char *const argv[], char **envp, const char *directory);

/* cluster.c */
extern ControlFileData *ReadControlFile(const PCacheOptions *options);
extern int	RunningServer(const char *pgdata);
extern char *LineOf(const char *pgdata, const char *name, int number);
extern char *LockFileLine(const char *pgdata, int number);
extern void FindServer(const PCacheOptions *options, ConnParams *params);
extern void RefuseRunningServer(const char *pgdata);
extern void CheckClusterUnchanged(const PCacheOptions *options,
								  const ControlFileData *before);
extern bool FileExists(const char *directory, const char *name);
extern void TakeDirectory(const char *given, char *directory);
extern void FindDirectory(const PCacheOptions *options, const char *configured,
						  char *directory);
extern const char *WhyForeign(const PCacheSuperblocks *superblocks,
							  const ControlFileData *control);

/* postgres.c */
extern const char *VersionOf(const char *program);
extern const char *FindPostgres(const PCacheOptions *options);
extern int	ServerVersion(void);
extern char *LibraryFile(const PCacheOptions *options);
extern void AskWithArguments(const char *arguments);
extern char *DefaultOf(const char *name);
extern char *AskPostgres(const PCacheOptions *options, const char *directory,
						 const char *config_file, int n,
						 const char *const names[], char *values[]);

/* locate.c */
extern void LocateCluster(PCacheOptions *options);
extern const char *ConfigFileIn(const char *argument);
extern const char *ServerArguments(const PCacheOptions *options);
extern const char *LocateConfigFile(const PCacheOptions *options);

/* config.c */
extern void RequireReadableConfiguration(void);
extern char *ReadPoolDirectory(const PCacheOptions *options);
extern void ReadSettings(const PCacheOptions *options, int n,
						 const char *const names[], char *values[]);
extern char *ReadSetting(const PCacheOptions *options, const char *name);
extern uint64 ParseSize(const char *size, const char *option);
extern void ReadSizes(const PCacheOptions *options, int64 *size, int64 *nbuffers);
extern void ReadConfiguration(const PCacheOptions *options, Configuration *conf);
extern bool ModeIsOff(const Configuration *conf);

/* hugepages.c */
extern bool HugePagesAreLacking(const Cluster *c, PCacheError *err);

/* open.c */
extern bool ServerUsesPool(int pid, const PCachePool *pool, bool *uses);
extern void ReadLiveSuperblocks(const PCachePool *pool,
								PCacheSuperblocks *superblocks);
extern bool OpenPoolOrFail(const char *directory, PCacheOpenMode mode, PCachePool *pool, PCacheError *err);
extern void OpenCluster(const PCacheOptions *options, Cluster *c);

/* judge.c */
extern void QueryMedia(const PCachePool *pool, PCacheMediaReport *media);
extern void GatherClusterFacts(const Cluster *c, Judge *judge);
extern void GatherPoolFacts(Cluster *c);
extern PCacheVerdict JudgeConfiguration(const Configuration *conf);
extern PCacheNextConfig NextConfig(const Configuration *conf);
extern bool SettingsAllowPool(const Cluster *c, PCacheError *err);
extern PCacheVerdict AskPoolGates(const Cluster *c);
extern PCacheVerdict ForetellStart(const Cluster *c, PCacheNextEvent event);
extern PCacheVerdict Foretell(Cluster *c);
extern PCacheVerdict ForetellChanged(Cluster *c);

/* scan.c */
extern void ScanPages(const Cluster *c, int64 nbuffers, bool progress,
					  PageScan *scan);
extern PCacheVerdict JudgePages(const PCacheSuperblock *sb,
								const PageScan *scan);

/* pages.c */
extern void ComparePool(const Cluster *c, PageComparisons *result);

/* poolio.c */
extern void Step(const char *name);
extern bool SuperblockIsUsable(const Cluster *c);
extern PCacheDescriptor *MappedDescriptor(const Cluster *c, uint64 slot);
pg_noreturn extern void FailToWrite(const Cluster *c);
extern void DrainPool(const Cluster *c);
extern void StoreSuperblock(Cluster *c);
extern bool OldPoolMustGo(const PCacheDir *existing, PCacheFsKind fs_kind, uint64 capacity,
						  const PCachePool *old_pool, PCacheGeometry *geometry);
extern void ShedPool(PCachePool *pool);

/* report.c */
pg_noreturn extern void Refuse(const char *hint, const char *fmt,...) pg_attribute_printf(2, 3);
pg_noreturn extern void FailWith(const PCacheError *err);
extern const char *FormatBytes(uint64 bytes);
extern const char *FormatSetting(uint64 bytes);
extern const char *FormatUuid(const uint8 uuid[PCACHE_UUID_LEN]);
extern const char *PageComparisonName(PageComparison comparison);
extern const char *FormatKept(uint64 kept, uint64 saved);
extern double NowMs(void);
extern void ReportProgress(uint64 done, uint64 total, bool finished);

/* check.c */
extern PCacheVerdict ForetellRestart(const PCacheOptions *options, Cluster *c);

/* unfinished.c */
extern void WatchUnfinished(int dir_fd, const char *name);
extern void WatchPoolFile(int dir_fd);
extern void NoteUnfinished(bool made);

/* output.c */
extern void BeginOutput(const PCacheOptions *options);
extern void EndOutput(void);
extern void Text(const char *fmt,...) pg_attribute_printf(1, 2);
extern void PrintField(const char *label, const char *key, FieldValue value);
extern void OpenObject(const char *key);
extern void CloseObject(void);
extern void OpenArray(const char *key);
extern void CloseArray(void);
extern void Element(FieldValue value);
extern FieldValue AsString(const char *string);
extern FieldValue AsNumber(uint64 number);
extern FieldValue AsBoolean(bool yes);
extern FieldValue AsBytes(uint64 bytes);
extern FieldValue AsBlocks(uint64 blocks);
extern FieldValue AsPages(uint64 pages);
extern FieldValue AsSeconds(double seconds);
extern FieldValue AsTime(int64 seconds);
extern FieldValue AsLsn(XLogRecPtr lsn);
extern FieldValue AsIdentifier(uint64 identifier);
extern FieldValue Shown(FieldValue value, const char *text);
extern const char *SnakeCase(const char *name);
extern void PrintVerdict(const PCacheVerdict *verdict, const char *if_warm);
extern int	ExitStatus(const PCacheVerdict *verdict);

#endif							/* PG_PCACHE_H */
