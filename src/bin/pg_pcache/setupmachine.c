/*-------------------------------------------------------------------------
 *
 * setupmachine.c
 *	  pg_pcache setup: what everybody can see of the machine.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/bin/pg_pcache/setupmachine.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <ctype.h>
#include <mntent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/logging.h"
#include "lib/stringinfo.h"
#include "setup.h"
#include "storage/pcache_pool.h"

#define MEMINFO			"/proc/meminfo"
#define MOUNTS			"/proc/self/mounts"
#define UID_MAP			"/proc/self/uid_map"
#define SHMEM_ENABLED	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/*
 * The name of a mount's unit is its path, with "-" for "/" and other characters
 * escaped: see systemd.unit(5), "String escaping for inclusion in unit names".
 */
char *
SetupUnitName(const char *mount_point)
{
	StringInfoData name;

	initStringInfo(&name);
	for (const char *p = mount_point + 1; *p != '\0'; p++)
	{
		if (*p == '/')
			appendStringInfoChar(&name, '-');
		else if (isalnum((unsigned char) *p) || *p == '_' || *p == ':' || (*p == '.' && name.len > 0))
			appendStringInfoChar(&name, *p);
		else
			appendStringInfo(&name, "\\x%02x", (unsigned char) *p);
	}
	appendStringInfoString(&name, ".mount");
	return name.data;
}

/* So many kB as bytes. */
static uint64
Meminfo(const char *name)
{
	uint64		number;

	if (!PCacheReadNumber(MEMINFO, name, &number))
		pg_fatal("could not find \"%s\" in file \"%s\"", name, MEMINFO);
	return number * 1024;
}

/* A tmpfs can be kept out of swap from Linux 6.4 on, except by root of a user namespace. */
static bool
KnowsNoswap(void)
{
	struct utsname kernel;
	int			major;
	int			minor;
	uint64		all;

	return uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
		(major > 6 || (major == 6 && minor >= 4)) &&
		PCacheReadNumber(UID_MAP, "         0          0 ", &all) && all == 4294967295;
}

static SetupHugePages
HugePagesOfTmpfs(void)
{
	char		text[SETUP_MAX_FILE];

	if (!ReadWholeFile(SHMEM_ENABLED, text))
		pg_fatal("could not read file \"%s\": %m", SHMEM_ENABLED);
	if (text[0] == '\0')
		return SETUP_THP_MISSING;
	return strstr(text, "[deny]") != NULL ? SETUP_THP_DENIED : SETUP_THP_POSSIBLE;
}

/* What is mounted there, if anything: of several mounts the last one. */
static void
LookAtMount(SetupFacts *facts)
{
	SetupMachine *machine = &facts->machine;
	FILE	   *file = setmntent(MOUNTS, "r");
	struct mntent *mount;
	struct stat st;
	struct statvfs vfs;

	if (file == NULL)
		pg_fatal("could not open file \"%s\" for reading: %m", MOUNTS);
	while ((mount = getmntent(file)) != NULL)
	{
		if (strcmp(mount->mnt_dir, facts->mount_point) == 0)
			strlcpy(machine->mounted, mount->mnt_type, sizeof(machine->mounted));
	}
	endmntent(file);
	if (machine->mounted[0] == '\0')
		return;
	if (stat(facts->mount_point, &st) < 0 || statvfs(facts->mount_point, &vfs) < 0)
		pg_fatal("could not stat directory \"%s\": %m", facts->mount_point);
	machine->mounted_well = st.st_uid == facts->cluster.uid && (st.st_mode & 0777) == S_IRWXU;
	machine->mounted_size = (uint64) vfs.f_blocks * vfs.f_frsize;
}

/*
 * Root must not mount where somebody else could exchange the directory.  What does not
 * exist yet, systemd makes.
 */
static void
CheckMountPoint(SetupFacts *facts)
{
	char	   *path = pg_strdup(facts->mount_point);
	uid_t		root = 0;
	PCacheError err;
	int			fd;

	/* the root directory of what is mounted there is another matter */
	if (facts->machine.mounted[0] != '\0')
		get_parent_directory(path);
	while ((fd = OpenTrustedDirectory(path, &root, &err)) < 0 && errno == ENOENT)
		get_parent_directory(path);
	if (fd >= 0)
		close(fd);
	else
		strlcpy(facts->machine.untrusted, err.message, sizeof(facts->machine.untrusted));
	free(path);
}

/* Fill in what is known of the machine, and what follows from the cluster's name. */
void
LookAtMachine(SetupFacts *facts)
{
	SetupMachine *machine = &facts->machine;
	char	   *unit_file;

	memset(machine, 0, sizeof(*machine));
	snprintf(facts->service, sizeof(facts->service), "postgresql@%s-%s.service",
			 facts->cluster.version, facts->cluster.name);
	snprintf(facts->mount_point, sizeof(facts->mount_point), "%s/%s-%s", SETUP_MOUNTS,
			 facts->cluster.version, facts->cluster.name);
	strlcpy(facts->unit, SetupUnitName(facts->mount_point), sizeof(facts->unit));

	machine->memory = Meminfo("MemTotal:");
	machine->available = Meminfo("MemAvailable:");
	machine->swap = Meminfo("SwapTotal:");
	/* a kernel without huge pages has no such lines */
	(void) PCacheReadNumber(MEMINFO, "Hugepagesize:", &machine->huge_page_size);
	machine->huge_page_size *= 1024;
	(void) PCacheReadNumber(MEMINFO, "HugePages_Total:", &machine->huge_pages);
	machine->knows_noswap = KnowsNoswap();
	machine->thp = HugePagesOfTmpfs();
	LookAtMount(facts);
	CheckMountPoint(facts);
	machine->unit_enabled = access(psprintf("%s/%s.wants/%s", SETUP_UNITS, facts->service, facts->unit), F_OK) == 0;
	unit_file = SetupUnitFile(facts);
	if (!ReadWholeFile(unit_file, machine->unit_text))
		pg_fatal("could not read file \"%s\": %m", unit_file);
}
