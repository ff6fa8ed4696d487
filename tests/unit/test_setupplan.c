/*-------------------------------------------------------------------------
 *
 * test_setupplan.c
 *	  What pg_pcache setup is going to do, for machines that are not here.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_setupplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "unit.h"

#include "setup.h"

/* A plan is made once, and its texts stay until the program ends. */
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

static SetupFacts facts;
static SetupPlan plan;

/* In place of report.c's and debian.c's. */
const char *
FormatBytes(uint64 bytes)
{
	return psprintf("%llu bytes", (unsigned long long) bytes);
}

int
OpenTrustedDirectory(const char *path, uid_t *user, PCacheError *err)
{
	fail();
	return -1;
}

/* Debian's 17/main as it was installed, with shared_buffers = 16GB and the library's package. */
static void
Debian(void)
{
	memset(&facts, 0, sizeof(facts));
	strcpy(facts.cluster.version, "17");
	strcpy(facts.cluster.name, "main");
	strcpy(facts.cluster.user, "postgres");
	strcpy(facts.cluster.config_dir, "/etc/postgresql/17/main");
	facts.cluster.uid = 103;
	facts.cluster.gid = 107;
	strcpy(facts.service, "postgresql@17-main.service");
	strcpy(facts.mount_point, "/srv/pcache/17-main");
	strcpy(facts.unit, "srv-pcache-17\\x2dmain.mount");
	facts.machine.knows_noswap = true;
	facts.machine.thp = SETUP_THP_POSSIBLE;
	facts.machine.memory = GIB(64);
	facts.machine.available = GIB(60);
	facts.machine.huge_page_size = MIB(2);
	facts.server.server_pid = 4711;
	facts.server.capacity = facts.server.shared_buffers = GIB(16) / BLCKSZ;
	facts.server.needs_library = true;
	strcpy(facts.server.library, "/usr/lib/postgresql/17/lib/pg_pcache.so");
	facts.server.library_installed = true;
	strcpy(facts.server.mode, "off");
}

/* After the plan was carried out. */
static void
CarryOut(void)
{
	strcpy(facts.machine.mounted, plan.type);
	facts.machine.mounted_size = plan.mount_size;
	facts.machine.mounted_well = true;
	facts.machine.unit_enabled = true;
	strcpy(facts.machine.unit_text, plan.unit_text);
	strcpy(facts.server.conf_text, plan.conf_text);
	facts.server.uses_pool = true;
	if (!facts.server.preloaded)
		snprintf(facts.server.libraries, MAXPGPATH, "%s%spg_pcache", facts.server.libraries,
				 facts.server.libraries[0] != '\0' ? ", " : "");
	facts.server.preloaded = true;
	strcpy(facts.server.mode,
		   strstr(plan.conf_text, "= always") != NULL ? "always" : "planned_restart");
	strcpy(facts.server.directory, facts.mount_point);
}

static void
AssertHas(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void
AssertLacks(const char *text, const char *part)
{
	if (strstr(text, part) != NULL)
		fail_msg("\"%s\" is in \"%s\"", part, text);
}

/* The plan is refused for this one reason; or with NULL, is not, and there is nothing to note. */
static void
AssertNote(const char *code, bool refused)
{
	MakeSetupPlan(&facts, &plan);
	assert_int_equal(plan.refused, refused);
	assert_int_equal(plan.n_notes, code != NULL ? 1 : 0);
	if (code != NULL)
		assert_string_equal(plan.notes[0].code, code);
}

static void
TestUsual(void **state)
{
	Debian();
	AssertNote(NULL, false);
	assert_string_equal(plan.unit_text,
						"# Written by \"pg_pcache setup 17/main --apply\", which replaces this file.\n"
						"[Unit]\n"
						"Description=Persistent cache of PostgreSQL cluster 17/main\n"
						"Before=postgresql@17-main.service\n"
						"\n"
						"[Mount]\n"
						"What=tmpfs\n"
						"Where=/srv/pcache/17-main\n"
						"Type=tmpfs\n"
						"Options=nodev,nosuid,noexec,size=17G,mode=0700,uid=103,gid=107,huge=within_size,noswap\n"
						"\n"
						"[Install]\n"
						"WantedBy=postgresql@17-main.service\n");
	assert_string_equal(plan.conf_text,
						"# Written by \"pg_pcache setup 17/main --apply\", which replaces this file.\n"
						"shared_preload_libraries = 'pg_pcache'\n"
						"pcache.mode = planned_restart\n"
						"pcache.directory = '/srv/pcache/17-main'\n");
	assert_true(plan.write_unit && plan.write_conf && plan.enable && plan.mount && plan.restart);
	assert_false(plan.remount);

	/* and once more */
	CarryOut();
	AssertNote(NULL, false);
	assert_true(SetupHasNothingToDo(&plan));

	/* a server that was not restarted, or that is down */
	facts.server.uses_pool = false;
	AssertNote(NULL, false);
	assert_true(plan.restart && !plan.write_conf && !plan.mount);
	facts.server.server_pid = 0;
	AssertNote(NULL, false);
	assert_true(SetupHasNothingToDo(&plan));
}

static void
TestSizes(void **state)
{
	static const struct
	{
		uint64		shared_buffers;
		uint64		gigabytes;
	}			sizes[] = {{MIB(128), 1}, {GIB(1), 2}, {GIB(16), 17}, {GIB(64), 66}, {GIB(256), 262}};

	Debian();
	facts.machine.memory = facts.machine.available = GIB(1024);
	for (int i = 0; i < lengthof(sizes); i++)
	{
		facts.server.capacity = sizes[i].shared_buffers / BLCKSZ;
		AssertNote(NULL, false);
		assert_int_equal(plan.mount_size, GIB(sizes[i].gigabytes));
	}
	SeedRandom();
	for (int i = 0; i < 10000; i++)
	{
		facts.server.capacity = MIN_CAPACITY + Random() % (GIB(900) / BLCKSZ);
		facts.server.huge_pages_on = i % 2 != 0;
		facts.server.huge_page_size = i % 4 == 3 ? GIB(1) : 0;
		MakeSetupPlan(&facts, &plan);
		assert_true(plan.mount_size >= plan.pool_size);
		assert_true(plan.pool_size > facts.server.capacity * BLCKSZ);
		assert_true(plan.mount_size < plan.pool_size / 100 * 102 + GIB(2));
	}

	/* a larger pool is a larger mount, and a smaller one leaves it as it is */
	Debian();
	MakeSetupPlan(&facts, &plan);
	CarryOut();
	facts.server.capacity *= 2;
	AssertNote(NULL, false);
	assert_true(plan.remount && plan.write_unit && !plan.mount && !plan.write_conf);
	facts.machine.mounted_size = GIB(100);
	AssertNote(NULL, false);
	assert_false(plan.remount);
}

static void
TestHugePages(void **state)
{
	Debian();
	facts.server.huge_pages_on = true;
	AssertNote("huge_pages", true);
	assert_string_equal(plan.type, "hugetlbfs");
	AssertHas(plan.unit_text, "What=hugetlbfs\nWhere=/srv/pcache/17-main\nType=hugetlbfs\n");
	AssertHas(plan.options, ",pagesize=2M");
	AssertLacks(plan.options, "huge=");
	AssertLacks(plan.options, "noswap");
	/* the pool has 16,642 MB, and the rest of shared memory is 439 MB */
	assert_true(plan.huge_pages >= (16642 + 439) / 2);
	facts.machine.huge_pages = plan.huge_pages - 1;
	AssertNote("huge_pages", true);
	facts.machine.huge_pages++;
	AssertNote(NULL, false);
	facts.server.huge_page_size = GIB(1);
	MakeSetupPlan(&facts, &plan);
	AssertHas(plan.options, ",pagesize=1024M");
	assert_int_equal(plan.pool_size % GIB(1), 0);

	/* on tmpfs, the kernel may have none */
	Debian();
	facts.machine.thp = SETUP_THP_DENIED;
	AssertNote("huge_pages", false);
	AssertHas(plan.options, "huge=within_size");
	facts.machine.thp = SETUP_THP_MISSING;
	AssertNote("huge_pages", false);
	AssertLacks(plan.options, "huge=");
	Debian();
	facts.machine.knows_noswap = false;
	AssertNote(NULL, false);
	AssertLacks(plan.options, "noswap");
	facts.machine.swap = GIB(1);
	AssertNote("swap", false);
}

static void
TestLibraries(void **state)
{
	char	   *settings = facts.server.libraries;

	Debian();
	strcpy(settings, "pg_cron, \"o'brien\"");
	AssertNote(NULL, false);
	AssertHas(plan.conf_text, "shared_preload_libraries = 'pg_cron, \"o''brien\", pg_pcache'\n");
	CarryOut();
	AssertNote(NULL, false);
	assert_true(SetupHasNothingToDo(&plan));

	/* what was appended to our line stays */
	strcpy(facts.server.conf_text, "# " SETUP_MARK "\"\nshared_preload_libraries = 'pg_pcache, auto_explain'\n");
	strcpy(settings, "pg_pcache, auto_explain");
	AssertNote(NULL, false);
	AssertHas(plan.conf_text, "shared_preload_libraries = 'pg_pcache, auto_explain'\n");

	/* somebody else loads it already */
	Debian();
	strcpy(settings, "pg_pcache, pg_cron");
	facts.server.preloaded = true;
	AssertNote(NULL, false);
	AssertLacks(plan.conf_text, "shared_preload_libraries");
	CarryOut();
	AssertNote(NULL, false);
	assert_true(SetupHasNothingToDo(&plan));

	/* the patched server does so by itself */
	Debian();
	facts.server.preloaded = true;
	facts.server.needs_library = facts.server.library_installed = false;
	AssertNote(NULL, false);
	AssertLacks(plan.conf_text, "shared_preload_libraries");

	Debian();
	facts.server.library_installed = false;
	AssertNote("library", true);
}

static void
TestMode(void **state)
{
	Debian();
	facts.mode = "always";
	AssertNote(NULL, false);
	AssertHas(plan.conf_text, "pcache.mode = always\n");
	CarryOut();
	facts.mode = NULL;
	AssertNote(NULL, false);
	assert_true(SetupHasNothingToDo(&plan));
	facts.mode = "planned_restart";
	AssertNote(NULL, false);
	assert_true(plan.write_conf && plan.restart && !plan.write_unit && !plan.mount);
}

static void
TestRefused(void **state)
{
	Debian();
	strcpy(facts.machine.unit_text, "[Mount]\n");
	AssertNote("foreign_file", true);
	Debian();
	strcpy(facts.server.conf_text, "pcache.mode = off\n");
	AssertNote("foreign_file", true);

	/* the same by somebody else, or ours of another version */
	Debian();
	MakeSetupPlan(&facts, &plan);
	strcpy(facts.machine.unit_text, plan.unit_text);
	strcpy(facts.server.conf_text, "# " SETUP_MARK " of long ago\"\n");
	AssertNote(NULL, false);
	assert_true(!plan.write_unit && plan.write_conf);

	Debian();
	strcpy(facts.server.directory, "/srv/pcache");
	AssertNote("other_directory", true);

	/* the file is there, and something else wins */
	for (int i = 0; i < 3; i++)
	{
		static const char *const names[] = {"shared_preload_libraries", "pcache.mode", "pcache.directory"};

		Debian();
		MakeSetupPlan(&facts, &plan);
		CarryOut();
		AssertNote(NULL, false);
		if (i == 0)
			facts.server.preloaded = false;
		else
			strcpy(i == 1 ? facts.server.mode : facts.server.directory, i == 1 ? "off" : "");
		AssertNote("overridden", true);
		AssertHas(plan.notes[0].hint, psprintf("ALTER SYSTEM RESET %s", names[i]));
	}

	Debian();
	facts.machine.memory = GIB(16);
	AssertNote("memory", true);
	facts.machine.memory = GIB(17);
	AssertNote("memory", false);
	Debian();
	strcpy(facts.machine.untrusted, "directory \"/srv\" can be changed by other users");
	AssertNote("untrusted", true);
	Debian();
	strcpy(facts.machine.mounted, "tmpfs");
	facts.machine.mounted_size = GIB(17);
	AssertNote("mounted", true);
	facts.machine.mounted_well = true;
	AssertNote(NULL, false);
	assert_false(plan.mount);
	strcpy(facts.machine.mounted, "ext4");
	AssertNote("mounted", true);
}

static void
TestUnitName(void **state)
{
	/* what systemd-escape --path --suffix=mount says */
	assert_string_equal(SetupUnitName("/srv/pcache/17-main"), "srv-pcache-17\\x2dmain.mount");
	assert_string_equal(SetupUnitName("/.a/b_c.d"), "\\x2ea-b_c.d.mount");
}

static void
WriteTo(const char *path, const char *text)
{
	FILE	   *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void
TestReplaceFile(void **state)
{
	char		directory[] = "/tmp/setupfile.XXXXXX";
	char		text[SETUP_MAX_FILE];
	int			fd;

	pg_logging_init("test_setupplan");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(chdir(directory), 0);
	fd = open(".", O_PATH | O_DIRECTORY);
	assert_true(ReadWholeFile("x", text));
	assert_string_equal(text, "");
	WriteTo(".pg_pcache-setup.tmp", "left");
	assert_true(ReplaceFile(fd, ".", "x", "one\n"));
	assert_true(ReplaceFile(fd, ".", "x", "two\n"));
	assert_true(ReadWholeFile("x", text));
	assert_string_equal(text, "two\n");
	/* a link is replaced, and what it leads to is not */
	assert_int_equal(symlink("x", "y"), 0);
	assert_true(ReplaceFile(fd, ".", "y", "three\n"));
	assert_true(ReadWholeFile("x", text));
	assert_string_equal(text, "two\n");
	/* what cannot be replaced stays, and nothing is left beside it */
	assert_int_equal(mkdir("z", 0700), 0);
	assert_false(ReplaceFile(fd, ".", "z", "four\n"));
	assert_int_equal(access(".pg_pcache-setup.tmp", F_OK), -1);
	assert_true(ReplaceFile(fd, ".", "x", ""));
	assert_int_equal(access("x", F_OK), -1);
	assert_true(ReplaceFile(fd, ".", "x", ""));
	/* an empty file is there, and is not ours */
	WriteTo("x", "");
	assert_true(ReadWholeFile("x", text));
	assert_string_not_equal(text, "");
	close(fd);
	assert_int_equal(system(psprintf("rm -r %s", directory)), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TestUsual),
		cmocka_unit_test(TestSizes),
		cmocka_unit_test(TestHugePages),
		cmocka_unit_test(TestLibraries),
		cmocka_unit_test(TestMode),
		cmocka_unit_test(TestRefused),
		cmocka_unit_test(TestUnitName),
		cmocka_unit_test(TestReplaceFile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
