/*-------------------------------------------------------------------------
 *
 * setup.h
 *	  pg_pcache setup: what is known of a cluster and its machine, what is to be done,
 *	  and how it is done.
 *
 * setupmachine.c and setupcluster.c gather facts, setupplan.c makes the plan of them
 * and looks at nothing else, setupapply.c carries it out, and setup.c prints it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/setup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_SETUP_H
#define PCACHE_SETUP_H

#include "debian.h"

/* Each cluster has a mount of its own below. */
#define SETUP_MOUNTS		"/srv/pcache"
#define SETUP_UNITS			"/etc/systemd/system"
#define SETUP_CONF_DIR		"conf.d"
#define SETUP_CONF_FILE		"pcache.conf"

/* Files of ours are shorter. */
#define SETUP_MAX_FILE		4096

/* What follows the comment sign in the first line of a file that is ours. */
#define SETUP_MARK			"Written by \"pg_pcache setup"

/* Whether the kernel gives huge pages to files of tmpfs. */
typedef enum SetupHugePages
{
	SETUP_THP_MISSING,			/* it knows no such option */
	SETUP_THP_DENIED,			/* by shmem_enabled */
	SETUP_THP_POSSIBLE,
} SetupHugePages;

/* What everybody can see of the machine. */
typedef struct SetupMachine
{
	bool		knows_noswap;	/* tmpfs */
	SetupHugePages thp;
	uint64		memory;			/* in bytes, as what follows */
	uint64		available;
	uint64		swap;
	uint64		huge_page_size; /* default */
	uint64		huge_pages;		/* that are reserved; a number */
	char		mounted[32];	/* type of what is mounted there, or "" */
	uint64		mounted_size;	/* in bytes */
	bool		mounted_well;	/* belongs to the server's user alone */
	char		untrusted[1024];	/* what others can change above it, or "" */
	bool		unit_enabled;
	char		unit_text[SETUP_MAX_FILE];	/* that is there, or "" */
} SetupMachine;

/*
 * What only the server's user can read.  A child process fills this in shared memory, so
 * it has no pointers.
 */
typedef struct SetupCluster
{
	int			server_pid;		/* 0 if no server is running */
	bool		uses_pool;		/* the one in the mount */
	uint64		capacity;		/* of the pool, in blocks */
	uint64		shared_buffers; /* in blocks */
	bool		huge_pages_on;
	uint64		huge_page_size; /* of the setting, in bytes; 0 for the default */
	bool		needs_library;	/* false if the server has it by itself */
	bool		preloaded;
	char		library[MAXPGPATH]; /* its file */
	bool		library_installed;
	char		libraries[MAXPGPATH];	/* to be preloaded by the next start */
	char		mode[MAXPGPATH];	/* of the next start, as what follows; ""
									 * if not set */
	char		directory[MAXPGPATH];
	char		conf_text[SETUP_MAX_FILE];	/* that is there, or "" */
} SetupCluster;

typedef struct SetupFacts
{
	DebianCluster cluster;
	char		service[128];
	char		mount_point[MAXPGPATH];
	char		unit[MAXPGPATH];	/* name of the mount's unit */
	const char *mode;			/* NULL if not given */
	SetupMachine machine;
	SetupCluster server;
} SetupFacts;

/* Something that speaks against the plan, or that one should know. */
typedef struct SetupNote
{
	bool		refused;
	const char *code;
	const char *message;
	const char *hint;			/* or NULL */
} SetupNote;

#define SETUP_MAX_NOTES		16

typedef struct SetupPlan
{
	SetupNote	notes[SETUP_MAX_NOTES];
	int			n_notes;
	bool		refused;		/* by one of them */
	const char *type;			/* of the mount */
	const char *options;		/* likewise */
	uint64		mount_size;		/* in bytes, as what follows */
	uint64		pool_size;
	uint64		huge_pages;		/* that hugetlbfs needs; a number */
	char	   *unit_text;
	char	   *conf_text;
	bool		write_unit;
	bool		write_conf;
	bool		enable;
	bool		mount;
	bool		remount;		/* it is to be larger */
	bool		restart;
} SetupPlan;

/* setupmachine.c */
extern char *SetupUnitName(const char *mount_point);
extern void LookAtMachine(SetupFacts *facts);

/* setupcluster.c */
extern bool LookAtCluster(const PCacheOptions *options, SetupFacts *facts);

/* setupplan.c */
extern void MakeSetupPlan(const SetupFacts *facts, SetupPlan *plan);
extern bool SetupHasNothingToDo(const SetupPlan *plan);

/* setupfile.c */
extern char *SetupUnitFile(const SetupFacts *facts);
extern char *SetupConfDir(const SetupFacts *facts);
extern char *SetupConfFile(const SetupFacts *facts);
extern bool ReadWholeFile(const char *path, char *text);
extern bool ReplaceFile(int dir_fd, const char *directory, const char *name, const char *text);

/* setupapply.c */
extern void LogSetupNotes(const SetupPlan *plan);
extern bool ApplySetup(const PCacheOptions *options, SetupFacts *facts, const SetupPlan *plan,
					   bool *restarted);

#endif							/* PCACHE_SETUP_H */
