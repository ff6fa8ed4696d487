/*-------------------------------------------------------------------------
 *
 * restart.h
 *	  What the files of "pg_pcache restart" share.
 *
 * Times are in milliseconds, by NowMs().
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/restart.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef RESTART_H
#define RESTART_H

#include "catalog/pg_control.h"
#include "libpq-fe.h"
#include "pg_pcache.h"

/* Exit status: the server is down, or clients are kept waiting. */
#define EXIT_DOWN		3

typedef enum RestartPhase
{
	PHASE_CHECK,
	PHASE_CHECKPOINT,
	PHASE_PAUSE,
	PHASE_STOP,
	PART_SESSIONS,				/* until the shutdown checkpoint begins */
	PART_CHECKPOINT,			/* until it is done */
	PART_EXIT,					/* until the server has ended */
	PHASE_START,
	PART_LAUNCH,				/* until the server has its memory */
	PART_ANSWER,				/* until it answers */
	PHASE_RESUME,
	NUM_RESTART_PHASES
} RestartPhase;

/* How far a restart has come, for the process that watches over it. */
typedef enum WatchState
{
	WATCH_NOTHING,				/* has been done */
	WATCH_PAUSING,				/* PAUSE is about to be sent */
	WATCH_STOPPING,				/* it is about to be told to stop */
	WATCH_STARTING,				/* whoever starts it has been begun */
	WATCH_RESUME,				/* only the poolers are left */
	WATCH_DONE,
} WatchState;

/* The server that runs, and how to start it again.  Nothing of it is looked up again. */
typedef struct RestartServer
{
	const char *pgdata;
	int			pid;
	int			pidfd;			/* -1 if the kernel has none */
	bool		ends_whole;		/* wait for its end, not only for its lock
								 * file's */
	const char *command;		/* that restarts it; NULL: we do, as follows */
	char	  **argv;			/* beginning with the program's path */
	char	  **envp;
	int			stderr_fd;		/* -1 if it is not to be had */
	int			log_fd;			/* the same file, to read it; -1 if it is none */
	off_t		log_start;		/* its size before the stop */
	struct stat collector;		/* the logging collector's file, as it was
								 * before the stop */
	double		timeout;		/* for its stop, and for its start */
} RestartServer;

/* What there is to find out about how a server was started again. */
typedef struct StartedServer
{
	pid_t		child;			/* that we have started; 0 if it has ended */
	int			child_status;	/* if it has */
	int			pid;			/* 0 if it does not run */
	bool		launched;		/* it has its memory, and begins its work */
	bool		accepts;		/* connections, or as many as it ever will */
} StartedServer;

/* A PgBouncer that is to hold the clients back. */
typedef struct Pooler
{
	const char *conninfo;		/* as given */
	const char *name;			/* for messages, without secrets */
	PGconn	   *control;		/* for all but PAUSE */
	const char *version;
} Pooler;

/* One PAUSE on its way. */
typedef struct PauseTarget
{
	const Pooler *pooler;
	const char *database;		/* NULL for all */
	PGconn	   *conn;			/* that waits for it, or NULL */
	bool		sent;
	bool		paused;
} PauseTarget;

/* All about a restart. */
typedef struct Restart
{
	const PCacheOptions *options;
	PCacheVerdict forecast;
	ConnParams	params;
	PGconn	   *conn;			/* to the server; NULL if there is none */
	const char *password;		/* that was given for it */
	RestartServer server;
	Pooler	   *poolers;
	int			n_poolers;
	PauseTarget *targets;		/* of all poolers */
	int			n_targets;
	double		drain_timeout;
	double		max_pause;		/* 0 for none */
	uint64		dirty_limit;	/* in blocks */
	bool		stay_paused;	/* --on-failure=pause */

	SimpleStringList warnings;
	PGresult   *settings;		/* that change: "name", "now", and "then",
								 * which is null for its default */
	const char *version_now;
	const char *version_then;	/* NULL if unknown */
	bool		uses_pool;		/* the server that runs */
	double		estimate;		/* of the outage */

	double		phases[NUM_RESTART_PHASES]; /* how long; 0 if it was not
											 * reached */
	int			checkpoints;
	uint64		checkpoint_buffers; /* that it wrote */
	double		stop_at;		/* when it was told to stop */
	double		outage;
	double		pause_at;		/* when the first PAUSE was sent; 0 if none */
	double		paused;			/* how long clients waited at most */
	int			new_pid;		/* 0 if the server did not come up */
	pid_t		command_pid;	/* that is to be waited for; 0 if none */
	const char *start;			/* "warm", "cold", "off", "unavailable" or
								 * "unknown"; NULL if it did not start */
	const char *start_detail;	/* or NULL */
	int64		kept;			/* pages; -1 if unknown */
} Restart;

/* restartquery.c */
extern bool IsUpgrade(const Restart *restart);
extern void ProgressOf(const Restart *restart, const char *fmt,...) pg_attribute_printf(2, 3);
extern void WarnOf(Restart *restart, const char *hint, const char *fmt,...) pg_attribute_printf(3, 4);
extern void CatchSignals(void);
extern bool WasInterrupted(void);
extern void GoOnIfInterrupted(void);
extern bool WaitReadable(int fd, double until);
extern PGresult *QueryOf(PGconn *conn, const char *query);
extern PGresult *AskConsole(PGconn *conn, const char *query);
extern PGresult *TryQuery(Restart *restart, const char *query, const char *what);
extern char *ValueOf(PGconn *conn, const char *query);
extern const char *FirstValue(const PGresult *res);
extern const char *ColumnOf(const PGresult *res, int row, const char *column);
extern const char *Complaint(const PGconn *conn);

/* restartserver.c */
extern char *ReadProc(int pid, const char *name, size_t *len);
extern int	ParentOf(int pid, int *session);
extern char *ChildrenOf(int pid);
extern DBState StateOf(const RestartServer *server);
extern void HoldServer(RestartServer *server);
extern void StopServer(const RestartServer *server);
extern bool IsStopping(const RestartServer *server);
extern bool HasStopped(const RestartServer *server);
extern bool HasEnded(const RestartServer *server, int timeout_ms);
extern pid_t LaunchServer(const RestartServer *server);
extern pid_t RunCommand(const RestartServer *server);
extern void LookAtServer(const RestartServer *server, StartedServer *started);

/* restartfacts.c */
extern void ConnectToServer(Restart *restart);
extern void GatherFacts(Restart *restart);
extern double EstimateOutage(const Restart *restart);

/* restartplan.c */
extern void PlanRestart(Restart *restart);

/* pgbouncerinfo.c */
extern PGconn *ConnectToConsole(const char *conninfo);
extern void ConnectToPoolers(Restart *restart);
extern bool TellWhoBlocks(const Restart *restart, const Pooler *pooler, double longer_than);

/* pgbouncer.c */
extern bool PausePoolers(Restart *restart);
extern bool ResumePoolers(Restart *restart, bool reconnect);
extern bool ResumeAnew(const Restart *restart, const Pooler *pooler);

/* restartwatch.c */
extern void BeginWatch(const Restart *restart);
extern void TellWatch(WatchState state);
extern bool EndWatch(bool all_done);

/* restartrun.c */
extern int	StopAndStart(Restart *restart);

/* restartlog.c */
extern void MarkLogs(RestartServer *server);
extern void ShowLogEnd(const RestartServer *server);
extern void FindStart(Restart *restart);

/* restartreport.c */
extern void PrintRestart(const Restart *restart);

#endif							/* RESTART_H */
