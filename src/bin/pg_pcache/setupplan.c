/*-------------------------------------------------------------------------
 *
 * setupplan.c
 *	  What is to be done so that a cluster has its pool: facts in, plan out.
 *
 * Nothing is looked at here, so a test can ask about any machine.
 *
 * The mount is the same as that of ndctl-setup's profile dram.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupplan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "lib/stringinfo.h"
#include "setup.h"
#include "storage/pcache_pool.h"

#define GIGABYTE	(UINT64CONST(1) << 30)
#define MEGABYTE	(UINT64CONST(1) << 20)

static void
UnitText(const SetupFacts *facts, SetupPlan *plan)
{
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

/* Does our file make this setting, perhaps to that value? */
static bool
HasLine(const SetupCluster *server, const char *name, const char *value)
{
	return strstr(server->conf_text, psprintf("\n%s = %s", name, value)) != NULL;
}

/*
 * The list of libraries for our file, or NULL if it needs none, since another file has
 * the library or the server loads it by itself.
 */
static const char *
PlanLibraries(const SetupCluster *server)
{
	const char *list = server->libraries;

	if (server->preloaded)
		return HasLine(server, "shared_preload_libraries", "") ? list : NULL;
	return psprintf("%s%s%s", list, list[0] != '\0' ? ", " : "", LIBRARY_NAME);
}

/* The mode stays as it is unless another one is asked for. */
static const char *
PlanMode(const SetupFacts *facts)
{
	if (facts->mode != NULL)
		return facts->mode;
	return strcmp(facts->server.mode, "always") == 0 ? "always" : "planned_restart";
}

/* The lines for conf.d. */
static void
ConfText(const SetupFacts *facts, SetupPlan *plan)
{
	const char *libraries = PlanLibraries(&facts->server);
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "# " SETUP_MARK " %s/%s --apply\", which replaces this file.\n",
					 facts->cluster.version, facts->cluster.name);
	if (libraries != NULL)
		appendStringInfo(&text, "shared_preload_libraries = '%s'\n", escape_single_quotes_ascii(libraries));
	appendStringInfo(&text, PCacheSetting("mode") " = %s\n" PCacheSetting("directory") " = '%s'\n",
					 PlanMode(facts), escape_single_quotes_ascii(facts->mount_point));
	plan->conf_text = text.data;
}

static void
Note(SetupPlan *plan, bool refused, const char *code, const char *message, const char *hint)
{
	SetupNote	note = {refused, code, message, hint};

	Assert(plan->n_notes < SETUP_MAX_NOTES);
	plan->notes[plan->n_notes++] = note;
	plan->refused |= refused;
}

/*
 * How large the pool and its mount are.  The limit of a mount takes no memory, so it is what
 * the guide has: two percent more than shared buffers, and then the next gigabyte.
 */
static void
PlanSize(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupCluster *server = &facts->server;
	uint64		page_size = PCACHE_ALIGNMENT;
	uint64		bytes;

	if (server->huge_pages_on)
		page_size = server->huge_page_size != 0 ? server->huge_page_size : facts->machine.huge_page_size;
	page_size = Max(page_size, PCACHE_ALIGNMENT);
	plan->pool_size = TYPEALIGN64(page_size, PCacheComputeGeometry(server->capacity, page_size).pool_size);
	bytes = server->capacity * BLCKSZ / 50 * 51 + 16 * MEGABYTE;
	plan->mount_size = TYPEALIGN64(GIGABYTE, Max(bytes, plan->pool_size));

	/* the rest of shared memory is in such pages as well */
	if (server->huge_pages_on)
		plan->huge_pages = (plan->pool_size + PCACHE_SEGMENT_BESIDE(plan->pool_size) + page_size - 1) / page_size;
}

static void
PlanMount(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupMachine *machine = &facts->machine;
	const SetupCluster *server = &facts->server;
	StringInfoData options;

	plan->type = server->huge_pages_on ? "hugetlbfs" : "tmpfs";
	initStringInfo(&options);
	appendStringInfo(&options, "nodev,nosuid,noexec,size=%lluG,mode=0700,uid=%ld,gid=%ld",
					 (unsigned long long) (plan->mount_size / GIGABYTE),
					 (long) facts->cluster.uid, (long) facts->cluster.gid);
	if (server->huge_pages_on)
	{
		uint64		page_size = server->huge_page_size != 0 ? server->huge_page_size : machine->huge_page_size;

		appendStringInfo(&options, ",pagesize=%lluM", (unsigned long long) (page_size / MEGABYTE));
	}
	else
	{
		if (machine->thp != SETUP_THP_MISSING)
			appendStringInfoString(&options, ",huge=within_size");
		if (machine->knows_noswap)
			appendStringInfoString(&options, ",noswap");
	}
	plan->options = options.data;
}

/* A file with this name may be replaced if it is ours. */
static bool
MustWrite(SetupPlan *plan, const char *file, const char *there, const char *text)
{
	if (strcmp(there, text) == 0)
		return false;
	if (there[0] != '\0' && strncmp(there, "# " SETUP_MARK, strlen("# " SETUP_MARK)) != 0)
		Note(plan, true, "foreign_file", psprintf(_("file \"%s\" is there, and was not written by this command"), file),
			 _("Move it away, or write there yourself what is shown here."));
	return true;
}

/* Do the lines of our file that are there have an effect?  The last line that makes a setting wins. */
static void
CheckLines(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupCluster *server = &facts->server;
	const char *lost = NULL;

	if (HasLine(server, PCacheSetting("mode"), "") &&
		!HasLine(server, PCacheSetting("mode"), psprintf("%s\n", server->mode)))
		lost = PCacheSetting("mode");
	else if (HasLine(server, PCacheSetting("directory"), "") && server->directory[0] == '\0')
		lost = PCacheSetting("directory");
	else if (HasLine(server, "shared_preload_libraries", "") && !server->preloaded)
		lost = "shared_preload_libraries";
	if (lost != NULL)
		Note(plan, true, "overridden",
			 psprintf(_("the line for \"%s\" in \"%s\" has no effect"), lost, SetupConfFile(facts)),
			 psprintf(_("Run ALTER SYSTEM RESET %s, or take it out of the file that is read later, and see that postgresql.conf includes \"%s\"."),
					  lost, SETUP_CONF_DIR));
	if (server->directory[0] != '\0' && strcmp(server->directory, facts->mount_point) != 0)
		Note(plan, true, "other_directory",
			 psprintf(_("\"%s\" is \"%s\" already"), PCacheSetting("directory"), server->directory),
			 _("To move the pool, stop the server, run pg_pcache drop, and take the setting out of the configuration."));
}

static void
CheckMemory(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupMachine *machine = &facts->machine;

	if (plan->pool_size > machine->memory)
		Note(plan, true, "memory",
			 psprintf(_("the pool takes %s, and the machine has %s of memory"), FormatBytes(plan->pool_size), FormatBytes(machine->memory)),
			 _("Make \"shared_buffers\" smaller."));
	else if (plan->pool_size + PCACHE_MEMORY_BESIDE(plan->pool_size) > machine->memory)
		Note(plan, false, "memory",
			 psprintf(_("the pool takes %s of %s of memory, which leaves little for sessions"), FormatBytes(plan->pool_size), FormatBytes(machine->memory)),
			 _("Make \"shared_buffers\" smaller."));
	if (machine->swap > 0 && !machine->knows_noswap && strcmp(plan->type, "tmpfs") == 0)
		Note(plan, false, "swap", _("the machine has swap, and this kernel cannot keep a tmpfs out of it"), NULL);
	if (strcmp(plan->type, "tmpfs") == 0 && machine->thp != SETUP_THP_POSSIBLE)
		Note(plan, false, "huge_pages", _("this kernel gives no huge pages to files of tmpfs"),
			 machine->thp == SETUP_THP_DENIED ?
			 _("Set /sys/kernel/mm/transparent_hugepage/shmem_enabled to \"never\" or \"advise\".") : NULL);
	if (plan->huge_pages > machine->huge_pages)
		Note(plan, true, "huge_pages",
			 psprintf(_("\"huge_pages\" is on, so pool and server need %llu huge pages, and %llu are reserved"),
					  (unsigned long long) plan->huge_pages, (unsigned long long) machine->huge_pages),
			 psprintf(_("Set vm.nr_hugepages = %llu in a file in /etc/sysctl.d, and run \"sysctl --system\"."),
					  (unsigned long long) plan->huge_pages));
}

/* Is there something mounted already, and will it do? */
static void
CheckMount(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupMachine *machine = &facts->machine;

	if (machine->untrusted[0] != '\0')
		Note(plan, true, "untrusted",
			 psprintf(_("\"%s\" will not do for a mount: %s"), facts->mount_point, machine->untrusted),
			 _("It and those above it should belong to root, and be writable for nobody else."));
	plan->mount = machine->mounted[0] == '\0';
	if (plan->mount)
		return;
	if (strcmp(machine->mounted, plan->type) != 0 || !machine->mounted_well)
		Note(plan, true, "mounted",
			 psprintf(_("a file system of type %s is mounted on \"%s\" already, which is not one of type %s that belongs to user \"%s\" alone"),
					  machine->mounted, facts->mount_point, plan->type, facts->cluster.user),
			 _("Unmount it, with the server stopped if that uses it."));
	plan->remount = machine->mounted_size < plan->mount_size;
}

/* Make the plan.  All texts in it are allocated, and facts has to outlive it. */
void
MakeSetupPlan(const SetupFacts *facts, SetupPlan *plan)
{
	const SetupMachine *machine = &facts->machine;
	const SetupCluster *server = &facts->server;

	memset(plan, 0, sizeof(*plan));
	PlanSize(facts, plan);
	PlanMount(facts, plan);
	UnitText(facts, plan);
	ConfText(facts, plan);
	if (server->needs_library && !server->library_installed)
		Note(plan, true, "library", psprintf(_("the library is not installed for this server: there is no file \"%s\""), server->library),
			 psprintf(_("Install the package %s."), psprintf("postgresql-%s-pcache", facts->cluster.version)));
	CheckMemory(facts, plan);
	CheckLines(facts, plan);
	CheckMount(facts, plan);
	plan->write_unit = MustWrite(plan, SetupUnitFile(facts), machine->unit_text, plan->unit_text);
	plan->enable = !machine->unit_enabled;
	plan->write_conf = MustWrite(plan, SetupConfFile(facts), server->conf_text, plan->conf_text);
	plan->restart = server->server_pid != 0 && (plan->write_conf || plan->mount || !server->uses_pool);
}

/* Does all that is to be there exist, and does the server use it? */
bool
SetupHasNothingToDo(const SetupPlan *plan)
{
	return !plan->write_unit && !plan->write_conf && !plan->enable && !plan->mount &&
		!plan->remount && !plan->restart;
}
