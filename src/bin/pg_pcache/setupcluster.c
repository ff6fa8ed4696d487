/*-------------------------------------------------------------------------
 *
 * setupcluster.c
 *	  pg_pcache setup: what only the server's user can see of a cluster.
 *
 * For root, a child process that is that user looks, and leaves what it has found in memory
 * that both have.  Of that, root relies on numbers within bounds only.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupcluster.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/logging.h"
#include "port/pg_bitutils.h"
#include "setup.h"

typedef struct LookArguments
{
	PCacheOptions options;
	const SetupFacts *facts;
	SetupCluster *server;		/* in memory that both processes have */
} LookArguments;

/* Copy a value, NULL being "", to a place of MAXPGPATH bytes. */
static void
CopySetting(char *to, const char *name, const char *value)
{
	if (strlcpy(to, value != NULL ? value : "", MAXPGPATH) >= MAXPGPATH)
		pg_fatal("value of \"%s\" is too long", name);
}

/* Has the server that runs our pool open?  It keeps that locked. */
static bool
UsesPool(const SetupFacts *facts)
{
	PCachePool	pool;
	PCacheError err;
	PCacheOpenResult result = PCachePoolOpen(facts->mount_point, PCACHE_OPEN_TRY, &pool, &err);

	if (result == PCACHE_OPEN_OK)
		PCachePoolClose(&pool);
	return result == PCACHE_OPEN_LOCKED;
}

static void
ReadServerSettings(const PCacheOptions *options, SetupCluster *server)
{
	Configuration conf;

	ReadConfiguration(options, &conf);
	RequireReadableConfiguration();
	if (conf.nbuffers < 0)
		pg_fatal("could not find out the value of \"%s\"", "shared_buffers");
	server->shared_buffers = conf.nbuffers;
	server->capacity = Max(conf.nbuffers, (int64) conf.pool_size);
	server->preloaded = conf.preloaded;
	server->needs_library = !PRELOADS_BY_ITSELF;
	CopySetting(server->libraries, "shared_preload_libraries", conf.libraries);
	CopySetting(server->mode, PCacheSetting("mode"), conf.mode);
	CopySetting(server->directory, PCacheSetting("directory"), conf.directory);
	server->huge_pages_on = conf.needs_huge_pages;
	server->huge_page_size = conf.huge_page_kb * 1024;
}

static int
Look(void *arg)
{
	LookArguments *look = arg;
	PCacheOptions *options = &look->options;
	SetupCluster *server = look->server;
	char	   *library;
	char	   *conf_file = SetupConfFile(look->facts);

	LocateCluster(options);
	ReadServerSettings(options, server);
	library = LibraryFile(options);
	if (library == NULL)
		pg_fatal("could not find out where the server's libraries are");
	strlcpy(server->library, library, sizeof(server->library));
	server->library_installed = access(library, R_OK) == 0;
	if (!ReadWholeFile(conf_file, server->conf_text))
		pg_fatal("could not read file \"%s\": %m", conf_file);
	server->server_pid = RunningServer(options->pgdata);
	server->uses_pool = server->server_pid != 0 && UsesPool(look->facts);
	return 0;
}

/* Make a text one that ends, and that says nothing to a terminal. */
static void
CleanText(char *text, size_t size)
{
	unsigned char last = 0;

	text[size - 1] = '\0';
	TakeControls(text, strlen(text), &last);
}

/* What came from the user's process has to be what ours could have sent. */
static void
CheckReceived(SetupCluster *server)
{
	CleanText(server->library, sizeof(server->library));
	CleanText(server->conf_text, sizeof(server->conf_text));
	CleanText(server->libraries, sizeof(server->libraries));
	CleanText(server->mode, sizeof(server->mode));
	CleanText(server->directory, sizeof(server->directory));
	if (server->capacity < MIN_CAPACITY || server->capacity > MAX_CAPACITY)
		pg_fatal("value of \"%s\" is out of range", PCacheSetting("size"));
	if (server->huge_page_size != 0 &&
		(server->huge_page_size > UINT64CONST(1) << 40 || server->huge_page_size < UINT64CONST(1) << 20 ||
		 pg_nextpower2_64(server->huge_page_size) != server->huge_page_size))
		pg_fatal("value of \"%s\" is out of range", "huge_page_size");
}

/*
 * Fill in facts->server, by the server's user.  Returns false if that has failed, and then
 * it has been said why.
 */
bool
LookAtCluster(const PCacheOptions *options, SetupFacts *facts)
{
	SetupCluster *server = &facts->server;
	SetupCluster *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	LookArguments look = {*options, facts, shared};
	int			rc;

	if (shared == MAP_FAILED)
		pg_fatal("could not map memory: %m");
	rc = geteuid() == 0 ? RunAsOwner(&facts->cluster, Look, &look) : Look(&look);
	/* nobody else can change our copy once it is checked */
	memcpy(server, shared, sizeof(*server));
	munmap(shared, sizeof(*shared));
	if (rc == 0)
		CheckReceived(server);
	return rc == 0;
}
