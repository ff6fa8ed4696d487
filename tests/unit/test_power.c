/*-------------------------------------------------------------------------
 *
 * test_power.c
 *	  Unit tests of what a start is going to go by if power is lost.
 *
 * pcache_power.c is included below, once as it is and once as without libpmem.
 * Whether there are sums is for the test to say.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_power.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "storage/pcache_gate.h"

#undef USE_LIBPMEM
#define PCachePowerRuleFor	RuleWithoutLibpmem
#define PCachePowerRuleName	NameWithoutLibpmem
#define PCachePowerGate	GateWithoutLibpmem
#define PCacheHostRestarted	HostRestartedWithoutLibpmem
#define Cold	ColdWithoutLibpmem
#define RefuseWithoutRule	RefuseWithoutLibpmem
#define GatePower	GatePowerWithoutLibpmem
#define warm	warm_without_libpmem
extern PCachePowerRule RuleWithoutLibpmem(const PCachePowerFacts *facts, PCacheError *why);
extern const char *NameWithoutLibpmem(PCachePowerRule rule);
#include "pcache_power.c"
#undef PCachePowerRuleFor
#undef PCachePowerRuleName
#undef PCachePowerGate
#undef PCacheHostRestarted
#undef Cold
#undef RefuseWithoutRule
#undef GatePower
#undef warm

#define USE_LIBPMEM 1
#include "pcache_power.c"

static bool has_sums;

bool
PCacheHasSums(void)
{
	return has_sums;
}

uint64
PCacheSumOf(const char *page)
{
	return 0;
}

#define IN_MEMORY	"the pool is in memory, which is lost with the power"
#define IN_FILE		"the pool is an ordinary file, whose pages reach the media in any order"
#define NO_LIBPMEM	"pg_pcache was built without libpmem"
#define NO_FSYNC	"\"fsync\" is off, or was off before a clean stop"
#define NO_HINTS	"hint bits are not logged"
#define NOT_SAVED	"the platform does not save what was flushed to the DIMMs"
#define NOT_KNOWN	"it is not known whether the platform saves what was flushed to the DIMMs"
#define NO_WAL		"\"wal_level\" is \"minimal\""
#define NO_SUMS		"pg_pcache was built without libxxhash"

typedef PCachePowerRule (*RuleFor) (const PCachePowerFacts *facts, PCacheError *why);

/* message is "" if there is nothing to say. */
static void
ExpectRule(RuleFor rule_for, const PCachePowerFacts *facts, PCachePowerRule expected,
		   const char *message)
{
	PCacheError why;

	/* whatever was there before */
	memset(&why, 'x', sizeof(why));
	assert_int_equal(rule_for(facts, &why), expected);
	assert_string_equal(why.message, message);
	assert_string_equal(why.hint, strcmp(message, NO_HINTS) == 0 ?
						"Switch on data checksums or \"wal_log_hints\"." : "");
	assert_int_equal(expected == PCACHE_POWER_COLD, message[0] != '\0');
}

/* The best of all, with sums. */
static PCachePowerFacts
MakeFacts(void)
{
	PCachePowerFacts facts = {.fs_kind = PCACHE_FS_FSDAX,.domain = PCACHE_DOMAIN_CPU_CACHE,
	.fsync = true,.logs_hints = true,.logs_all = true};

	has_sums = true;
	return facts;
}

/* Change some of it, and expect a rule. */
#define EXPECT_RULE(expected, message, ...) \
	do { \
		facts = MakeFacts(); \
		__VA_ARGS__; \
		ExpectRule(PCachePowerRuleFor, &facts, expected, message); \
	} while (0)

/* Each field in turn. */
static void
TestFields(void **state)
{
	PCachePowerFacts facts;

	EXPECT_RULE(PCACHE_POWER_HEADERS, "", (void) 0);

	EXPECT_RULE(PCACHE_POWER_COLD, IN_MEMORY, facts.fs_kind = PCACHE_FS_TMPFS);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_MEMORY, facts.fs_kind = PCACHE_FS_HUGETLBFS);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_FILE, facts.fs_kind = PCACHE_FS_FILE);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_FILE, facts.fs_kind = 0);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_FILE, facts.fs_kind = 99);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_FSYNC, facts.fsync = false);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_HINTS, facts.logs_hints = false);

	EXPECT_RULE(PCACHE_POWER_LEDGER, "", facts.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER);
	EXPECT_RULE(PCACHE_POWER_COLD, NOT_SAVED, facts.domain = PCACHE_DOMAIN_NONE);
	/* a page is believed by its sum, unless it is not wanted */
	EXPECT_RULE(PCACHE_POWER_LEDGER, "", facts.domain = PCACHE_DOMAIN_UNKNOWN);
	EXPECT_RULE(PCACHE_POWER_COLD, NOT_KNOWN, facts.domain = PCACHE_DOMAIN_UNKNOWN,
				facts.cold_on_media_unknown = true);
	/* what is known is not asked for */
	EXPECT_RULE(PCACHE_POWER_HEADERS, "", facts.cold_on_media_unknown = true);
	EXPECT_RULE(PCACHE_POWER_LEDGER, "", facts.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER,
				facts.cold_on_media_unknown = true);
	EXPECT_RULE(PCACHE_POWER_COLD, NOT_SAVED, facts.domain = PCACHE_DOMAIN_NONE,
				facts.cold_on_media_unknown = true);

	/* headers are about what is there, and need no sums */
	EXPECT_RULE(PCACHE_POWER_HEADERS, "", facts.logs_all = false);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_WAL, facts.logs_all = false,
				facts.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_WAL, facts.logs_all = false,
				facts.domain = PCACHE_DOMAIN_UNKNOWN);
	EXPECT_RULE(PCACHE_POWER_HEADERS, "", has_sums = false);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_SUMS, has_sums = false,
				facts.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_SUMS, has_sums = false,
				facts.domain = PCACHE_DOMAIN_UNKNOWN);
}

/* Of all that is wrong, what is said first is what comes first here. */
static void
TestOrder(void **state)
{
	PCachePowerFacts facts;

	EXPECT_RULE(PCACHE_POWER_COLD, NO_WAL, has_sums = facts.logs_all = false,
				facts.domain = PCACHE_DOMAIN_MEMORY_CONTROLLER);
	EXPECT_RULE(PCACHE_POWER_COLD, NOT_SAVED, facts.logs_all = false, facts.domain = PCACHE_DOMAIN_NONE);
	EXPECT_RULE(PCACHE_POWER_COLD, NOT_KNOWN, facts.logs_all = false, facts.domain = PCACHE_DOMAIN_UNKNOWN,
				facts.cold_on_media_unknown = true);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_HINTS, facts.logs_hints = false, facts.domain = PCACHE_DOMAIN_NONE);
	EXPECT_RULE(PCACHE_POWER_COLD, NO_FSYNC, facts.fsync = facts.logs_hints = false);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_FILE, facts.fsync = false, facts.fs_kind = PCACHE_FS_FILE);
	EXPECT_RULE(PCACHE_POWER_COLD, IN_MEMORY, facts.fsync = false, facts.fs_kind = PCACHE_FS_TMPFS);
}

/*
 * All there is: something to go by only on fsdax, with fsync and with logged hints; and
 * headers only if the platform says that it saves the CPU caches.
 */
static void
TestAll(void **state)
{
	PCachePowerFacts facts;
	PCacheError why;

	for (int n = 0; n < 4 * 4 * 32; n++)
	{
		PCachePowerRule rule;

		facts.fs_kind = PCACHE_FS_FILE + n % 4;
		facts.domain = n / 4 % 4;
		facts.cold_on_media_unknown = (n & 16) != 0;
		facts.fsync = (n & 32) != 0;
		facts.logs_hints = (n & 64) != 0;
		facts.logs_all = (n & 128) != 0;
		has_sums = (n & 256) != 0;
		rule = PCachePowerRuleFor(&facts, &why);
		assert_int_equal(rule == PCACHE_POWER_COLD, why.message[0] != '\0');
		if (rule != PCACHE_POWER_COLD)
			assert_true(facts.fs_kind == PCACHE_FS_FSDAX && facts.fsync && facts.logs_hints &&
						facts.domain != PCACHE_DOMAIN_NONE);
		if (rule == PCACHE_POWER_LEDGER)
			assert_true(has_sums && facts.logs_all);
		assert_true(rule != PCACHE_POWER_HEADERS || facts.domain == PCACHE_DOMAIN_CPU_CACHE);
		assert_int_not_equal(RuleWithoutLibpmem(&facts, &why), PCACHE_POWER_LEDGER);
	}
}

/* Without libpmem nothing is flushed, so persistent memory is like a file. */
static void
TestWithoutLibpmem(void **state)
{
	PCachePowerFacts facts = MakeFacts();

	ExpectRule(RuleWithoutLibpmem, &facts, PCACHE_POWER_COLD, NO_LIBPMEM);
	facts.fsync = facts.logs_hints = false;
	ExpectRule(RuleWithoutLibpmem, &facts, PCACHE_POWER_COLD, NO_LIBPMEM);
	facts.fs_kind = PCACHE_FS_TMPFS;
	ExpectRule(RuleWithoutLibpmem, &facts, PCACHE_POWER_COLD, IN_MEMORY);
	facts.fs_kind = PCACHE_FS_FILE;
	ExpectRule(RuleWithoutLibpmem, &facts, PCACHE_POWER_COLD, IN_FILE);
}

static void
TestNames(void **state)
{
	static const char *const names[] = {"cold", "ledger", "headers", "unknown"};

	for (int rule = PCACHE_POWER_COLD; rule <= PCACHE_POWER_HEADERS + 1; rule++)
	{
		assert_string_equal(PCachePowerRuleName(rule), names[rule]);
		assert_string_equal(NameWithoutLibpmem(rule), names[rule]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestFields),
		cmocka_unit_test(TestOrder),
		cmocka_unit_test(TestAll),
		cmocka_unit_test(TestWithoutLibpmem),
		cmocka_unit_test(TestNames),
	};

	return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
