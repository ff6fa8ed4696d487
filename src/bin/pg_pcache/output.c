/*-------------------------------------------------------------------------
 *
 * output.c
 *	  What pg_pcache's verbs print: aligned text, or one JSON object.
 *
 * A verb says each thing that it has to tell once, by PrintField().  Most values
 * look different in the two forms.  In JSON, keys are in snake_case; identifiers
 * of 64 bits are strings, since many readers of JSON would round them; sizes are
 * numbers of bytes.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/output.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>
#include <time.h>

#include "lib/stringinfo.h"
#include "pg_pcache.h"

/* Width of the label, its colon and the gap, in text output. */
#define LABEL_WIDTH	24

/* In the text, in JSON, and for scripts. */
typedef struct Outcome
{
	const char *name;
	const char *title;
	int			exit_status;
} Outcome;

static struct
{
	bool		json;
	StringInfoData buf;			/* the JSON so far */
	int			depth;
	bool		empty;			/* nothing in the innermost object yet */
}			out;

static void
EscapeJson(StringInfo buf, const char *str)
{
	appendStringInfoCharMacro(buf, '"');
	for (const char *p = str; *p != '\0'; p++)
	{
		if ((unsigned char) *p < ' ')
			appendStringInfo(buf, "\\u%04x", (int) *p);
		else
		{
			if (*p == '"' || *p == '\\')
				appendStringInfoCharMacro(buf, '\\');
			appendStringInfoCharMacro(buf, *p);
		}
	}
	appendStringInfoCharMacro(buf, '"');
}

static void
NewLine(void)
{
	appendStringInfoChar(&out.buf, '\n');
	appendStringInfoSpaces(&out.buf, 2 * out.depth);
}

/* The next element begins: of an object with its key, or of an array. */
static void
BeginElement(const char *key)
{
	if (!out.empty)
		appendStringInfoChar(&out.buf, ',');
	NewLine();
	if (key != NULL)
	{
		EscapeJson(&out.buf, key);
		appendStringInfoString(&out.buf, ": ");
	}
	out.empty = false;
}

static void
Open(char bracket)
{
	appendStringInfoChar(&out.buf, bracket);
	out.depth++;
	out.empty = true;
}

static void
Close(char bracket)
{
	out.depth--;
	NewLine();
	appendStringInfoChar(&out.buf, bracket);
	out.empty = false;
}

/* From here on all that is told is printed, in the form that was asked for. */
void
BeginOutput(const PCacheOptions *options)
{
	out.json = options->json;
	initStringInfo(&out.buf);
	Open('{');
}

void
EndOutput(void)
{
	Close('}');
	if (out.json)
		puts(out.buf.data);
	pfree(out.buf.data);
}

/* What only the text has. */
void
Text(const char *fmt,...)
{
	va_list		ap;

	if (out.json)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
}

/*
 * Print "label: value", values aligned, or a key and its value in JSON.  Without
 * a label, or without a text, the text has no such line; without a key, JSON has
 * no such value.
 */
void
PrintField(const char *label, const char *key, FieldValue value)
{
	if (label != NULL && value.text != NULL)
		Text("%s:%*s%s\n", label, Max(1, (int) (LABEL_WIDTH - 1 - strlen(label))), "",
			 value.text);
	if (key == NULL)
		return;
	BeginElement(key);
	appendStringInfoString(&out.buf, value.json);
}

/* Objects and arrays, which text does not have; without a key they are elements. */
void
OpenObject(const char *key)
{
	BeginElement(key);
	Open('{');
}

void
CloseObject(void)
{
	Close('}');
}

void
OpenArray(const char *key)
{
	BeginElement(key);
	Open('[');
}

void
CloseArray(void)
{
	Close(']');
}

/* An element of an array. */
void
Element(FieldValue value)
{
	BeginElement(NULL);
	appendStringInfoString(&out.buf, value.json);
}

/* A string, or nothing, which is null in JSON. */
FieldValue
AsString(const char *string)
{
	FieldValue	value = {string, "null"};
	StringInfoData buf;

	if (string == NULL)
		return value;
	initStringInfo(&buf);
	EscapeJson(&buf, string);
	value.json = buf.data;
	return value;
}

FieldValue
AsNumber(uint64 number)
{
	const char *digits = psprintf("%llu", (unsigned long long) number);
	FieldValue	value = {digits, digits};

	return value;
}

FieldValue
AsBoolean(bool yes)
{
	FieldValue	value = {yes ? _("yes") : _("no"), yes ? "true" : "false"};

	return value;
}

FieldValue
AsBytes(uint64 bytes)
{
	return Shown(AsNumber(bytes), FormatBytes(bytes));
}

FieldValue
AsBlocks(uint64 blocks)
{
	return Shown(AsNumber(blocks), psprintf("%llu blocks", (unsigned long long) blocks));
}

FieldValue
AsPages(uint64 pages)
{
	return Shown(AsNumber(pages), psprintf(ngettext("%llu page", "%llu pages", pages),
										   (unsigned long long) pages));
}

FieldValue
AsSeconds(double seconds)
{
	const char *digits = psprintf("%.3f", seconds);
	FieldValue	value = {psprintf("%s s", digits), digits};

	return value;
}

static const char *
FormatTm(const struct tm *tm, const char *format)
{
	char		buf[64];

	/* the time comes from the pool, which may hold anything */
	if (tm == NULL || strftime(buf, sizeof(buf), format, tm) == 0)
		return pstrdup("invalid");
	return pstrdup(buf);
}

/* Local, and in JSON by ISO 8601. */
FieldValue
AsTime(int64 seconds)
{
	time_t		t = seconds;

	return Shown(AsString(FormatTm(gmtime(&t), "%Y-%m-%dT%H:%M:%SZ")),
				 FormatTm(localtime(&t), "%Y-%m-%d %H:%M:%S %Z"));
}

FieldValue
AsLsn(XLogRecPtr lsn)
{
	return AsString(psprintf("%X/%X", LSN_FORMAT_ARGS(lsn)));
}

FieldValue
AsIdentifier(uint64 identifier)
{
	return AsString(psprintf("%llu", (unsigned long long) identifier));
}

/* The same value with another text; NULL for none. */
FieldValue
Shown(FieldValue value, const char *text)
{
	value.text = text;
	return value;
}

/* A name that is made for readers, as a key or a keyword. */
const char *
SnakeCase(const char *name)
{
	char	   *result = pstrdup(name);

	for (char *p = result; *p != '\0'; p++)
		*p = (*p == ' ') ? '_' : pg_ascii_tolower((unsigned char) *p);
	return result;
}

/* What a verdict comes to. */
static const Outcome *
OutcomeOf(const PCacheVerdict *verdict)
{
	static const Outcome warm = {"warm", "WARM", EXIT_WARM};
	static const Outcome cold = {"cold", "COLD", EXIT_COLD};
	static const Outcome none = {"none", "NONE", EXIT_ERROR};
	static const Outcome unknown = {"unknown", "UNKNOWN", EXIT_UNKNOWN};

	switch (verdict->refusal)
	{
		case PCACHE_WARM:
			return &warm;
		case PCACHE_REFUSED:
			return &none;
		case PCACHE_UNKNOWN_CONFIGURATION:
			return &unknown;
		default:
			return &cold;
	}
}

/*
 * Print what the next start will be, and why if it is not warm.  The text has that only
 * if if_warm, which is what it says of a warm one, is not NULL.
 */
void
PrintVerdict(const PCacheVerdict *verdict, const char *if_warm)
{
	const Outcome *outcome = OutcomeOf(verdict);
	bool		is_warm = verdict->refusal == PCACHE_WARM;
	const char *hint = verdict->why.hint[0] != '\0' ? verdict->why.hint : NULL;

	PrintField(NULL, "next_start", AsString(outcome->name));
	PrintField(NULL, "reason",
			   AsString(is_warm ? NULL : SnakeCase(PCacheRefusalName(verdict->refusal))));
	PrintField(NULL, "detail", AsString(is_warm ? NULL : verdict->why.message));
	PrintField(NULL, "hint", AsString(hint));
	if (if_warm != NULL)
		Text("next start: %s%s %s\n", outcome->title, is_warm ? "," : ":",
			 is_warm ? if_warm : verdict->why.message);
	if (hint != NULL)
		Text(_("hint: %s\n"), hint);
}

/* What a verb exits with that tells of the next start. */
int
ExitStatus(const PCacheVerdict *verdict)
{
	return OutcomeOf(verdict)->exit_status;
}
