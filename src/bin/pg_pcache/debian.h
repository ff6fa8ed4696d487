/*-------------------------------------------------------------------------
 *
 * debian.h
 *	  A cluster in the layout of Debian's packages, and whose it is.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/debian.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_DEBIAN_H
#define PCACHE_DEBIAN_H

#include "pg_pcache.h"

#define UNKNOWN_USER	((uid_t) -1)

typedef struct DebianCluster
{
	char		version[8];
	char		name[64];
	char		config_dir[MAXPGPATH];
	uid_t		uid;			/* of the server's user, as what follows; for
								 * root and for setup */
	gid_t		gid;
	char		user[64];
	char		home[MAXPGPATH];
} DebianCluster;

/* debian.c */
extern char *FindOnlyCluster(void);
extern char *FindOnlyConfiguration(void);
extern void FindNamedCluster(PCacheOptions *options, DebianCluster *cluster);
extern int	OpenTrustedDirectory(const char *path, uid_t *user, PCacheError *err);

/* asuser.c */
extern void TakeControls(char *text, size_t len, unsigned char *last);
extern void KeepForRoot(const char *command);
extern pid_t StartRootCommand(void);
extern int	RunAsOwner(const DebianCluster *cluster, int (*run) (void *arg), void *arg);

#endif							/* PCACHE_DEBIAN_H */
