/*-------------------------------------------------------------------------
 *
 * setupcluster.c
 *	  pg_pcache setup: what only the server's user can see of a cluster.
 *
 * For root, a child process that is that user looks, and sends what it has found through a
 * pipe.  Of that, root relies on numbers within bounds only.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupcluster.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "common/logging.h"
#include "port/pg_bitutils.h"
#include "setup.h"

typedef struct LookArguments
{
	PCacheOptions *options;
	SetupFacts *facts;
	int			to;				/* where to send what was found; -1 for
								 * nowhere */
} LookArguments;

static void
CopySetting(SetupCluster *server, SetupSetting setting, const char *value)
{
	if (strlcpy(server->settings[setting], value != NULL ? value : "", sizeof(server->settings[setting])) >=
		sizeof(server->settings[setting]))
		pg_fatal("value of \"%s\" is too long", SetupSettingName(setting));
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
	server->needs_library = !PreloadsByItself();
	CopySetting(server, SETUP_LIBRARIES, conf.libraries);
	CopySetting(server, SETUP_MODE, conf.mode);
	CopySetting(server, SETUP_DIRECTORY, conf.directory);
	server->huge_pages_on = conf.needs_huge_pages;
	server->huge_page_size = conf.huge_page_kb * 1024;
}

static int
Look(void *arg)
{
	LookArguments *look = arg;
	PCacheOptions *options = look->options;
	SetupFacts *facts = look->facts;
	SetupCluster *server = &facts->server;
	char	   *library;
	char	   *conf_file = SetupConfFile(facts);

	LocateCluster(options);
	UseDataDirectory(options);
	strlcpy(server->data_dir, options->pgdata, sizeof(server->data_dir));
	ReadServerSettings(options, server);
	library = LibraryFile(options);
	if (library == NULL)
		pg_fatal("could not find out where the server's libraries are");
	strlcpy(server->library, library, sizeof(server->library));
	server->library_installed = access(library, R_OK) == 0;
	FindOtherSettings(facts->cluster.config_dir, server);
	if (!ReadWholeFile(conf_file, server->conf_text))
		pg_fatal("could not read file \"%s\": %m", conf_file);
	server->server_pid = RunningServer(options->pgdata);
	server->uses_pool = server->server_pid != 0 && UsesPool(facts);

	if (look->to >= 0)
	{
		const char *from = (const char *) server;
		size_t		left = sizeof(*server);

		while (left > 0)
		{
			ssize_t		written = write(look->to, from, left);

			if (written < 0)
				pg_fatal("could not write to pipe: %m");
			from += written;
			left -= written;
		}
	}
	return 0;
}

/* Make a text one that ends, and that says nothing to a terminal. */
static void
CleanText(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (char *p = text; *p != '\0'; p++)
	{
		if ((unsigned char) *p < ' ' && *p != '\n' && *p != '\t')
			*p = '?';
	}
}

/* What came from the user's process has to be what ours could have sent. */
static void
CheckReceived(SetupCluster *server)
{
	CleanText(server->data_dir, sizeof(server->data_dir));
	CleanText(server->library, sizeof(server->library));
	CleanText(server->conf_text, sizeof(server->conf_text));
	CleanText(server->earlier, sizeof(server->earlier));
	for (int i = 0; i < SETUP_NUM_SETTINGS; i++)
	{
		CleanText(server->settings[i], sizeof(server->settings[i]));
		CleanText(server->others[i].value, sizeof(server->others[i].value));
		CleanText(server->others[i].place, sizeof(server->others[i].place));
	}
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
LookAtCluster(PCacheOptions *options, SetupFacts *facts)
{
	PCacheOptions copy = *options;
	LookArguments look = {&copy, facts, -1};
	SetupCluster *server = &facts->server;
	int			fds[2];
	int			rc;

	memset(server, 0, sizeof(*server));
	if (geteuid() != 0)
	{
		rc = Look(&look);
		CheckReceived(server);
		return rc == 0;
	}
	/* it has room for all of it, so nobody waits for us to read */
	if (pipe2(fds, O_CLOEXEC) < 0)
		pg_fatal("could not create pipe: %m");
	if (fcntl(fds[1], F_SETPIPE_SZ, (int) sizeof(*server)) < (int) sizeof(*server))
		pg_fatal("could not enlarge pipe: %m");
	look.to = fds[1];
	rc = RunAsOwner(&facts->cluster, Look, &look);
	close(fds[1]);
	if (rc == 0)
	{
		char	   *to = (char *) server;
		size_t		left = sizeof(*server);
		ssize_t		len;

		while (left > 0 && (len = read(fds[0], to, left)) > 0)
		{
			to += len;
			left -= len;
		}
		if (left > 0)
			pg_fatal("could not read from pipe: unexpected end");
		CheckReceived(server);
	}
	close(fds[0]);
	return rc == 0;
}
