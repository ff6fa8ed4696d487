/*-------------------------------------------------------------------------
 *
 * listfile.c
 *	  Lists of pages that others have made: pg_hotset, pg_prewarm, or whoever
 *	  has saved pg_buffercache as CSV.
 *
 * The extension pg_hotset reads the same files, by hotset_decode.c and
 * hotset_text.c, which are compiled into both.
 *
 * A list may be from the cluster that pg_upgrade made this one of.  It keeps the
 * numbers of databases, tablespaces and files, except for those of the system
 * catalogs.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/listfile.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/transam.h"
#include "common/logging.h"
#include "hotset_set.h"
#include "warm.h"

pg_noreturn static void
RefuseFile(const char *path, const char *problem)
{
	pg_log_error("could not use file \"%s\" as a list of pages", path);
	pg_log_error_detail("%s", problem);
	exit(EXIT_ERROR);
}

/* Read a whole file, and put a null byte behind it. */
static char *
ReadWholeFile(const char *path, size_t *length)
{
	int			fd = open(path, O_RDONLY | PG_BINARY, 0);
	struct stat st;
	char	   *data;
	ssize_t		got;

	if (fd < 0)
		pg_fatal("could not open file \"%s\": %m", path);
	if (fstat(fd, &st) < 0)
		pg_fatal("could not stat file \"%s\": %m", path);
	if (!S_ISREG(st.st_mode))
		RefuseFile(path, _("It is not a regular file."));
	data = pg_malloc(st.st_size + 1);
	*length = 0;
	while (*length < st.st_size && (got = read(fd, data + *length, st.st_size - *length)) != 0)
	{
		if (got < 0)
			pg_fatal("could not read file \"%s\": %m", path);
		*length += got;
	}
	data[*length] = '\0';
	close(fd);
	return data;
}

static void
AddPage(struct PageList *list, const HotsetFork *fork, BlockNumber block, int heat)
{
	PCachePageKey key = PageKey(&fork->locator, fork->number, block);

	AddToPageList(list, &key, heat);
}

static void
AddSet(struct PageList *list, const HotsetSet *set, bool is_foreign)
{
	for (uint32 r = 0; r < set->nrelations; r++)
	{
		const HotsetRelation *relation = &set->relations[r];

		if (!HotsetForkCanBe(&relation->fork))
			list->result.gone += relation->npages;
		else if (is_foreign && relation->fork.locator.relNumber < FirstNormalObjectId)
			list->result.catalogs += relation->npages;
		else
		{
			for (uint32 i = relation->first; i < relation->first + relation->npages; i++)
				AddPage(list, &relation->fork, HotsetBlock(set->pages[i]), HotsetHeat(set->pages[i]));
		}
	}
}

/*
 * Read a list of any kind, or exit with an error.  A text does not say of which
 * cluster it is, so its pages of catalogs are always left out; list->result
 * counts what is.
 */
struct PageList *
ReadListFile(const char *path, uint64 system_identifier)
{
	struct PageList *list = CreatePageList();
	size_t		length;
	char	   *data = ReadWholeFile(path, &length);

	if (HotsetIsList(data, length))
	{
		const char *problem;
		const HotsetSet *set = HotsetDecode(data, length, &problem);

		if (set == NULL)
			RefuseFile(path, problem);
		AddSet(list, set, set->origin.system_identifier != system_identifier);
	}
	else
	{
		HotsetText	text;

		HotsetTextBegin(&text, data, length);
		while (HotsetTextNext(&text))
			AddPage(list, &text.fork, text.block, text.heat);
		if (text.problem != NULL)
			RefuseFile(path, text.problem);
		list->result.catalogs = text.catalogs;
		list->result.gone = text.impossible;
	}
	pg_free(data);
	return list;
}
