/*-------------------------------------------------------------------------
 *
 * setuptext.c
 *	  pg_pcache setup: what goes into the files, the mount's unit and that in conf.d.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setuptext.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "lib/stringinfo.h"
#include "setup.h"

#define LIBRARY_NAME	"pg_pcache"

/* The unit, or without systemd the line of fstab. */
void
SetupUnitText(const SetupFacts *facts, SetupPlan *plan)
{
	if (!facts->machine.has_systemd)
	{
		plan->fstab = psprintf("%s %s %s %s,nofail 0 0", plan->type, facts->mount_point,
							   plan->type, plan->options);
		return;
	}
	plan->unit_text = psprintf("# " SETUP_MARK " %s/%s --apply\", which replaces this file.\n"
							   "[Unit]\n"
							   "Description=Persistent cache of PostgreSQL cluster %s/%s\n"
							   "Before=%s\n"
							   "\n"
							   "[Mount]\n"
							   "What=%s\n"
							   "Where=%s\n"
							   "Type=%s\n"
							   "Options=%s\n"
							   "\n"
							   "[Install]\n"
							   "WantedBy=%s\n",
							   facts->cluster.version, facts->cluster.name,
							   facts->cluster.version, facts->cluster.name, facts->service,
							   plan->type, facts->mount_point, plan->type, plan->options,
							   facts->service);
}

/* In quotes, as the configuration file wants it. */
static char *
Quoted(const char *value)
{
	char	   *escaped = escape_single_quotes_ascii(value);

	return psprintf("'%s'", escaped);
}

/* Append those elements of a list of libraries that are not in the other list yet. */
static void
AppendMissing(StringInfo list, const char *libraries)
{
	char	   *rest = NULL;

	for (char *element = strtok_r(pg_strdup(libraries), ",", &rest); element != NULL;
		 element = strtok_r(NULL, ",", &rest))
	{
		char	   *there = NULL;
		bool		found = false;
		size_t		len;

		element += strspn(element, " \t");
		for (len = strlen(element); len > 0 && strchr(" \t", element[len - 1]) != NULL;)
			element[--len] = '\0';
		for (char *other = strtok_r(pg_strdup(list->data), ",", &there); other != NULL && !found;
			 other = strtok_r(NULL, ",", &there))
			found = strcmp(other + strspn(other, " \t"), element) == 0;
		if (len > 0 && !found)
			appendStringInfo(list, "%s%s", list->len > 0 ? ", " : "", element);
	}
}

/*
 * The list of libraries for our file, or NULL if it needs none, since another file has
 * the library or the server loads it by itself.  Our list hides that of the files before, so
 * what has come there since is taken over.
 */
static const char *
PlanLibraries(const SetupCluster *server)
{
	bool		is_ours = strstr(server->conf_text, SetupSettingName(SETUP_LIBRARIES)) != NULL;
	StringInfoData list;

	if (server->preloaded && !is_ours)
		return NULL;
	initStringInfo(&list);
	if (is_ours)
		AppendMissing(&list, server->earlier);
	AppendMissing(&list, server->settings[SETUP_LIBRARIES]);
	if (!server->preloaded)
		AppendMissing(&list, LIBRARY_NAME);
	return list.data;
}

/*
 * The lines for conf.d, and the values that they have, NULL for no line.  The mode stays as
 * it is unless another one is asked for.
 */
void
SetupConfText(const SetupFacts *facts, SetupPlan *plan, const char *values[SETUP_NUM_SETTINGS])
{
	const SetupCluster *server = &facts->server;
	const char *mode = server->settings[SETUP_MODE];
	StringInfoData text;

	if (facts->mode != NULL)
		mode = facts->mode;
	else if (strcmp(mode, "always") != 0)
		mode = "planned_restart";
	values[SETUP_MODE] = mode;
	values[SETUP_DIRECTORY] = facts->mount_point;
	values[SETUP_LIBRARIES] = PlanLibraries(server);

	initStringInfo(&text);
	appendStringInfo(&text, "# " SETUP_MARK " %s/%s --apply\", which replaces this file.\n",
					 facts->cluster.version, facts->cluster.name);
	if (values[SETUP_LIBRARIES] != NULL)
		appendStringInfo(&text, "%s = %s\n", SetupSettingName(SETUP_LIBRARIES), Quoted(values[SETUP_LIBRARIES]));
	appendStringInfo(&text, "%s = %s\n%s = %s\n", SetupSettingName(SETUP_MODE), mode,
					 SetupSettingName(SETUP_DIRECTORY), Quoted(facts->mount_point));
	plan->conf_text = text.data;
}
