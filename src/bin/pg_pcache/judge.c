/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  How will the next start be?  What the server will find, and decide.
 *
 * The gates are those of the server (pcache_gate.c); what is here gathers the
 * facts for them, as pcache_attach.c does in the server, and asks them.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/judge.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "pg_pcache.h"

#ifdef USE_INJECTION_POINTS
/*
 * For tests: PG_PCACHE_BAD_BLOCKS is a list of offset:length.  Such a range is
 * bad as long as there is anything but zeros in it, which is what there is
 * once it was cleared; with a "!" it cannot be cleared.
 */
static void
InjectBadBlocks(const PCachePool *pool, PCacheMediaReport *media)
{
	const char *list = getenv("PG_PCACHE_BAD_BLOCKS");

	if (list == NULL)
		return;
	if (media->bad.n_ranges == 0)
		media->blocks = PCACHE_MEDIA_CLEAN;
	while (*list != '\0')
	{
		char	   *end;
		uint64		offset = strtoull(list, &end, 10);
		uint64		length = strtoull(end + 1, &end, 10);
		bool		bad = (*end == '!');
		char	   *bytes = pg_malloc0(length);

		if (PCacheReadExact(pool->fd, bytes, length, offset))
		{
			for (uint64 i = 0; i < length && !bad; i++)
				bad = bytes[i] != 0;
		}
		pg_free(bytes);
		if (bad)
		{
			media->blocks = PCACHE_MEDIA_BAD;
			PCacheRangeAdd(&media->bad, offset, length);
		}
		end += (*end == '!');
		list = (*end == ',') ? end + 1 : end;
		if (end == list && *end != '\0')
			pg_fatal("could not parse PG_PCACHE_BAD_BLOCKS");
	}
	PCacheRangeMerge(&media->bad);
}
#endif

/* Find out, once more if need be, what is wrong with the pool's media. */
void
QueryMedia(const PCachePool *pool, PCacheMediaReport *media)
{
	PCacheMediaReportFree(media);
	PCacheMediaQuery(pool->path, pool->fd, pool->fs_kind, media);
#ifdef USE_INJECTION_POINTS
	InjectBadBlocks(pool, media);
#endif
}

/* Does a standby have a recovery target?  Unknown counts as yes. */
static bool
HasRecoveryTarget(const PCacheOptions *options)
{
	char	   *values[PCACHE_N_RECOVERY_TARGETS];
	bool		has_target = false;

	ReadSettings(options, lengthof(values), PCacheRecoveryTargets, values);
	for (int i = 0; i < lengthof(values); i++)
	{
		has_target |= (values[i] == NULL || values[i][0] != '\0');
		free(values[i]);
	}
	return has_target;
}

/*
 * Gather what the pool gates look at beside the pool: what the cluster tells.
 * Makes PGDATA the working directory, where the gates look for files.
 */
void
GatherClusterFacts(const Cluster *c, Judge *judge)
{
	PCacheGateFacts *facts = &judge->facts;
	PCacheSignals signals;

	if (chdir(c->options->pgdata) < 0)
		pg_fatal("could not change directory to \"%s\": %m", c->options->pgdata);
	memset(judge, 0, sizeof(*judge));
	facts->control = c->control;
	facts->cold_on_media_unknown = c->conf.cold_on_media_unknown;

	PCacheReadSignals(c->options->pgdata, &signals);
	PCacheSetRecovery(facts, &signals,
					  signals.standby && HasRecoveryTarget(c->options));
	judge->drop_unlogged = c->control->state != DB_SHUTDOWNED ||
		signals.backup_label || signals.recovery || signals.standby;
}

/*
 * Gather all that the gates look at beside the superblocks, which were read.  The facts
 * point into c, which must stay where it is.
 */
void
GatherPoolFacts(Cluster *c)
{
	PCacheMediaReportFree(&c->judge.media);
	GatherClusterFacts(c, &c->judge);
	QueryMedia(&c->pool, &c->judge.media);
	PCacheGatherFacts(&c->pool, &c->judge.media, &c->judge.facts);
}

/* Is the next start to use the pool?  Warm stands for yes. */
PCacheVerdict
JudgeConfiguration(const Configuration *conf)
{
	PCacheVerdict verdict = {PCACHE_WARM};

	if (conf->mode != NULL && strcmp(conf->mode, "off") == 0)
		verdict = PCacheRefuse(PCACHE_OFF, _("%s is off"), PCacheSetting("mode"));
	else if (!conf->preloaded)
	{
		verdict = PCacheRefuse(PCACHE_OFF,
							   _("\"shared_preload_libraries\" does not have \"pg_pcache\", without which the settings of the cache have no effect"));
		PCacheSetHint(&verdict.why, _("Add \"pg_pcache\" to \"shared_preload_libraries\"."));
	}
	else if (conf->mode == NULL || conf->nbuffers < 0)
		verdict = PCacheRefuse(PCACHE_UNKNOWN_CONFIGURATION,
							   _("the server's configuration could not be read"));
	return verdict;
}

/* The configuration, as the questions about the next start want it. */
PCacheNextConfig
NextConfig(const Configuration *conf)
{
	PCacheNextConfig config = {
		.size = conf->pool_size,
		.nbuffers = Max(conf->nbuffers, 0),
		.cold_on_media_unknown = conf->cold_on_media_unknown,
		.required = conf->required,
		.server_version = conf->server_version,
		.allow_unknown_minor = conf->allow_unknown_minor,
	};

	return config;
}

/*
 * Does the configuration let the server use a pool in that place?  No pool is used
 * if a read could go on after its server, see pcache_setting.c.
 */
bool
SettingsAllowPool(const Cluster *c, PCacheError *err)
{
	const Configuration *conf = &c->conf;

	if (conf->io_method != NULL && conf->debug_io_direct != NULL &&
		!PCacheReadsEndWithProcess(conf->io_method, conf->debug_io_direct, err))
		return false;
	return c->options->directory != NULL ||
		PCacheDirectoryIsAllowed(c->options->pgdata, c->directory, err);
}

/* What do the pool gates say of the pool? */
PCacheVerdict
AskPoolGates(const Cluster *c)
{
	return PCacheSuperblocksGate(&c->superblocks, &c->judge.facts);
}

/* What will a start make of the open pool, which the settings allow, after that event? */
PCacheVerdict
ForetellStart(const Cluster *c, PCacheNextEvent event)
{
	PCacheNextConfig config = NextConfig(&c->conf);

	return PCacheForetellPool(&c->pool, &c->superblocks, &c->judge.facts, &config, event).verdict;
}

/*
 * How will the next start be?  The one answer of all verbs; c is as OpenCluster() leaves
 * it.  Each question is asked once, in the order in which a start asks: the settings, the
 * pool, its pages, and then whether the configuration was known at all.
 *
 * Which pages there will be is not known as long as a server runs.  Otherwise c->scan has
 * them afterwards, if the pool gates let them pass.
 */
PCacheVerdict
Foretell(Cluster *c)
{
	PCacheNextConfig config = NextConfig(&c->conf);

	/* if the pool cannot be used, does the server start without it? */
	PCacheVerdict verdict = {PCacheWithoutPool(c->conf.required)};

	pg_free(c->scan.verdicts);
	c->scan.verdicts = NULL;
	if (ModeIsOff(&c->conf))
		return JudgeConfiguration(&c->conf);
	if (SettingsAllowPool(c, &verdict.why))
	{
		switch (c->opened)
		{
			case PCACHE_OPEN_OK:
				verdict = ForetellStart(c, c->event);
				break;
			case PCACHE_OPEN_MISSING:
				if (c->options->directory != NULL)
					Refuse(_("Run \"pg_pcache init\" to create the persistent cache."), "%s", c->open_error.message);
				verdict = PCacheForetellMissing(c->directory, &config, &c->open_error).verdict;
				break;
			case PCACHE_OPEN_LOCKED:
			case PCACHE_OPEN_ERROR:
				verdict.why = c->open_error;
				break;
		}
	}
	if (verdict.refusal == PCACHE_WARM && c->event == PCACHE_NEXT_NOTHING)
	{
		ScanPages(c, c->conf.nbuffers, c->options->progress, &c->scan);
		verdict = JudgePages(&c->superblocks.chosen, &c->scan);
	}
	return verdict.refusal == PCACHE_WARM ? JudgeConfiguration(&c->conf) : verdict;
}

/*
 * The same of a pool that a verb has changed, which is open.  c->scan has pages that the
 * pool gates let pass also if the server could not use them as it is configured now.
 */
PCacheVerdict
ForetellChanged(Cluster *c)
{
	PCacheVerdict verdict;

	c->opened = PCACHE_OPEN_OK;
	PCacheReadSuperblocks(c->pool.fd, &c->superblocks);
	GatherPoolFacts(c);
	verdict = Foretell(c);
	if (c->scan.verdicts == NULL && AskPoolGates(c).refusal == PCACHE_WARM)
		ScanPages(c, c->conf.nbuffers, false, &c->scan);
	return verdict;
}
