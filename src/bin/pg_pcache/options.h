/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The options and verbs of pg_pcache, for who reads them and who prints the help.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/bin/pg_pcache/options.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_OPTIONS_H
#define PCACHE_OPTIONS_H

#include "pg_pcache.h"

typedef enum OptionKind
{
	OPTION_FLAG,				/* bool */
	OPTION_STRING,				/* const char * */
	OPTION_JOBS,				/* int */
	OPTION_LIST,				/* SimpleStringList; may be repeated */
	OPTION_YES,					/* enum trivalue */
	OPTION_NO,					/* likewise */
} OptionKind;

typedef struct Option
{
	const char *name;			/* without the dashes */
	char		letter;			/* short form, or 0 */
	OptionKind	kind;
	size_t		offset;			/* in PCacheOptions */
	int			verbs;			/* that it can be used with */
	const char *help;
	const char *beside;			/* it makes no sense without that one; or NULL */
} Option;

typedef struct Verb
{
	const char *name;
	PCacheVerb	verb;
	int			(*run) (const PCacheOptions *options);	/* returns the exit
														 * status */
	const char *help;
} Verb;

extern const Option options_table[];
extern const int num_options;
extern const Verb verbs_table[];
extern const int num_verbs;

extern char *ListVerbs(int verbs, const char *quote, const char *before_last);

#endif							/* PCACHE_OPTIONS_H */
