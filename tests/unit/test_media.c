/*-------------------------------------------------------------------------
 *
 * test_media.c
 *	  Unit tests of the persistent cache's media health queries.
 *
 * There is one description of regions, namespaces and DIMMs.  It is written out as a fake
 * sysfs, and the ndctl_* functions below, which take the place of libndctl, answer from it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_media.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include <ndctl/libndctl.h>

#include "pcache_media_internal.h"

#define KB(n)	((uint64) (n) * 1024)
#define MB(n)	((uint64) (n) * 1024 * 1024)
#define SECTOR	512

#define POOL_SIZE		MB(64)
/* Where the base world's only extent is, on the device. */
#define POOL_PHYSICAL	MB(128)
#define DISK_SIZE		MB(1024)

#define POOL_PATH		"/pm/cache/pool"

/*
 * The fake machine
 */

#define FAKE_DIMMS		40
#define FAKE_REGIONS	3

struct ndctl_dimm
{
	char		name[16];
	char		id[64];			/* "": none */
	int64		count;			/* -1: none */
	char		flags[128];		/* as in sysfs */
};

typedef struct FakeRegion
{
	char		name[16];
	char		domain[32];
	int			n_dimms;
	int			dimms[FAKE_DIMMS];	/* indexes of world.dimms */
	char		claim[32];		/* of the only namespace */
	char		namespace_name[32];
	char		disk[16];
	const char *badblocks;		/* of the disk; NULL: no such file */
	/* what only libndctl tells */
	bool		lost_dimm;
} FakeRegion;

typedef struct FakeExtent
{
	uint64		logical;
	uint64		physical;
	uint64		length;
	uint32		flags;
} FakeExtent;

typedef struct FakeWorld
{
	char		root[64];

	struct ndctl_dimm dimms[FAKE_DIMMS];
	int			n_regions;
	FakeRegion	regions[FAKE_REGIONS];
	int			ndctl_error;	/* of ndctl_new() */
	bool		ndctl_empty;	/* libndctl sees nothing */
	int			n_contexts;		/* not yet released */

	int			stat_error;
	struct stat stat;

	int			extents_error;
	int			n_extents;
	FakeExtent *extents;
	int			per_call;		/* extents the kernel returns at once */
	int			n_calls;
	int			n_syncs;

	const char *denied;			/* end of an attribute's path */
	int			denied_errno;
} FakeWorld;

static FakeWorld world;

static PCacheMediaReport report;

static void Put(const char *content,
				const char *fmt,...) pg_attribute_printf(2, 3);

static void
Put(const char *content, const char *fmt,...)
{
	char		path[MAXPGPATH];
	va_list		args;
	int			len;
	FILE	   *file;

	len = snprintf(path, sizeof(path), "%s/", world.root);
	va_start(args, fmt);
	vsnprintf(path + len, sizeof(path) - len, fmt, args);
	va_end(args);
	for (char *slash = path + len; (slash = strchr(slash, '/')) != NULL; slash++)
	{
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(content, file);
	fclose(file);
}

static void
Link(const char *target, const char *path)
{
	char		full_target[MAXPGPATH];
	char		full_path[MAXPGPATH];

	snprintf(full_target, sizeof(full_target), "%s/%s", world.root, target);
	snprintf(full_path, sizeof(full_path), "%s/%s", world.root, path);
	assert_int_equal(symlink(full_target, full_path), 0);
}

static int
RemoveEntry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void
RemoveSysfs(void)
{
	assert_int_equal(nftw(world.root, RemoveEntry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Write the regions out to a new sysfs. */
static void
BuildSysfs(void)
{
	char		value[64];

	RemoveSysfs();
	assert_int_equal(mkdir(world.root, 0700), 0);
	for (int i = 0; i < world.n_regions; i++)
	{
		const FakeRegion *region = &world.regions[i];
		char		path[128];

		snprintf(path, sizeof(path), "devices/acpi/ndbus0/%s", region->name);
		snprintf(value, sizeof(value), "%llu\n",
				 (unsigned long long) (DISK_SIZE / SECTOR));
		Put(value, "%s/%s/block/%s/size", path, region->claim, region->disk);
		if (region->badblocks != NULL)
			Put(region->badblocks, "%s/%s/block/%s/badblocks", path,
				region->claim, region->disk);
	}
	Put("", "dev/block/none");
	if (world.n_regions > 0)
		Link("devices/acpi/ndbus0/region0/pfn0.1/block/pmem0", "dev/block/259:0");
}

static void
FakeDimm(int i, const char *id, int64 count)
{
	memset(&world.dimms[i], 0, sizeof(world.dimms[i]));
	snprintf(world.dimms[i].name, sizeof(world.dimms[i].name), "nmem%d", i);
	strlcpy(world.dimms[i].id, id, sizeof(world.dimms[i].id));
	world.dimms[i].count = count;
}

static int
StatFile(int fd, struct stat *st)
{
	if (world.stat_error != 0)
	{
		errno = world.stat_error;
		return -1;
	}
	*st = world.stat;
	return 0;
}

/* What a file system does for FS_IOC_FIEMAP */
static int
GetExtents(int fd, struct fiemap *map)
{
	world.n_calls++;
	if (map->fm_flags & FIEMAP_FLAG_SYNC)
		world.n_syncs++;
	if (world.extents_error != 0)
	{
		errno = world.extents_error;
		return -1;
	}
	map->fm_mapped_extents = 0;
	for (int i = 0; i < world.n_extents; i++)
	{
		const FakeExtent *from = &world.extents[i];
		struct fiemap_extent *to;

		if (from->logical + from->length <= map->fm_start)
			continue;
		if (map->fm_mapped_extents == map->fm_extent_count ||
			map->fm_mapped_extents == world.per_call)
			break;
		to = &map->fm_extents[map->fm_mapped_extents++];
		memset(to, 0, sizeof(*to));
		to->fe_logical = from->logical;
		to->fe_physical = from->physical;
		to->fe_length = from->length;
		to->fe_flags = from->flags;
		if (i == world.n_extents - 1)
			to->fe_flags |= FIEMAP_EXTENT_LAST;
	}
	return 0;
}

static int
OpenAttribute(const char *path)
{
	size_t		len = strlen(path);

	if (world.denied != NULL && strlen(world.denied) <= len &&
		strcmp(path + len - strlen(world.denied), world.denied) == 0)
	{
		errno = world.denied_errno;
		return -1;
	}
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Ask about the pool in the world as it is now. */
static void
AskKind(PCacheFsKind kind)
{
	PCacheMediaEnv env = {
		.sysfs_root = world.root,
		.stat_file = StatFile,
		.get_extents = GetExtents,
		.open_attribute = OpenAttribute,
	};

	PCacheMediaReportFree(&report);
	PCacheMediaQueryEnv(&env, POOL_PATH, 7, kind, &report);
	assert_int_equal(world.n_contexts, 0);
}

static void
Ask(void)
{
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
}

/*
 * The base world: one fsdax namespace over two DIMMs, no trouble, and the
 * pool in one extent.
 */
static int
SetUp(void **state)
{
	static FakeExtent one_extent;
	FakeRegion *region = &world.regions[0];

	memset(&world, 0, sizeof(world));
	memset(&report, 0, sizeof(report));
	strlcpy(world.root, "/tmp/test_media.XXXXXX", sizeof(world.root));
	assert_non_null(mkdtemp(world.root));

	FakeDimm(0, "8089-a2-1807-00000b0b", 7);
	FakeDimm(1, "8089-a2-1807-00000a0a", 9);
	world.n_regions = 1;
	strlcpy(region->name, "region0", sizeof(region->name));
	strlcpy(region->domain, "memory_controller", sizeof(region->domain));
	region->n_dimms = 2;
	region->dimms[0] = 0;
	region->dimms[1] = 1;
	strlcpy(region->claim, "pfn0.1", sizeof(region->claim));
	strlcpy(region->namespace_name, "namespace0.0", sizeof(region->namespace_name));
	strlcpy(region->disk, "pmem0", sizeof(region->disk));
	region->badblocks = "";

	world.stat.st_mode = S_IFREG | 0600;
	world.stat.st_dev = makedev(259, 0);
	world.stat.st_size = POOL_SIZE;

	one_extent.logical = 0;
	one_extent.physical = POOL_PHYSICAL;
	one_extent.length = POOL_SIZE;
	one_extent.flags = 0;
	world.extents = &one_extent;
	world.n_extents = 1;
	world.per_call = INT_MAX;
	return 0;
}

static int
TearDown(void **state)
{
	PCacheMediaReportFree(&report);
	RemoveSysfs();
	return 0;
}

/* Add a region like the first one, with namespace and disk of its own. */
static FakeRegion *
AddRegion(void)
{
	int			i = world.n_regions++;
	FakeRegion *region = &world.regions[i];

	*region = world.regions[0];
	snprintf(region->name, sizeof(region->name), "region%d", i);
	snprintf(region->claim, sizeof(region->claim), "pfn%d.1", i);
	snprintf(region->namespace_name, sizeof(region->namespace_name), "namespace%d.0", i);
	snprintf(region->disk, sizeof(region->disk), "pmem%d", i);
	return region;
}

/* A "badblocks" line for a range of the device, in bytes */
static const char *
BadList(uint64 offset, uint64 length)
{
	static char line[64];

	snprintf(line, sizeof(line), "%llu %llu\n",
			 (unsigned long long) (offset / SECTOR),
			 (unsigned long long) (length / SECTOR));
	return line;
}

static void
AssertRange(uint32 i, uint64 offset, uint64 length)
{
	assert_true(i < report.bad.n_ranges);
	assert_int_equal(report.bad.ranges[i].offset, offset);
	assert_int_equal(report.bad.ranges[i].length, length);
}

static void
AssertBlocksUnknown(const char *why)
{
	assert_int_equal(report.blocks, PCACHE_MEDIA_UNKNOWN);
	assert_int_equal(report.bad.n_ranges, 0);
	assert_false(report.bad.truncated);
	assert_false(PCacheMediaRangeIsBad(&report, 0, POOL_SIZE));
	if (strstr(report.blocks_why, why) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", why, report.blocks_why);
}

static void
AssertDimmsUnknown(const char *why)
{
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_UNKNOWN);
	if (strstr(report.dimms_why, why) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", why, report.dimms_why);
}

static void
AssertClean(void)
{
	assert_string_equal(report.blocks_why, "");
	assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.bad.n_ranges, 0);
	assert_false(report.bad.truncated);
}

/*
 * libndctl
 *
 * A region has one namespace, and all are on one bus; so pointers to the
 * region stand for either.
 */

#define REGION(p)	((FakeRegion *) (p))

static int	fake_mapping;
static FakeRegion *mapped_region;

int
ndctl_new(struct ndctl_ctx **ctx)
{
	if (world.ndctl_error != 0)
		return -world.ndctl_error;
	world.n_contexts++;
	*ctx = (struct ndctl_ctx *) &world;
	return 0;
}

struct ndctl_ctx *
ndctl_unref(struct ndctl_ctx *ctx)
{
	world.n_contexts--;
	return NULL;
}

void
ndctl_set_log_fn(struct ndctl_ctx *ctx,
				 void (*log_fn) (struct ndctl_ctx *ctx, int priority,
								 const char *file, int line, const char *fn,
								 const char *format, va_list args))
{
}

struct ndctl_bus *
ndctl_bus_get_first(struct ndctl_ctx *ctx)
{
	return world.ndctl_empty ? NULL : (struct ndctl_bus *) &world;
}

struct ndctl_bus *
ndctl_bus_get_next(struct ndctl_bus *bus)
{
	return NULL;
}

struct ndctl_region *
ndctl_region_get_first(struct ndctl_bus *bus)
{
	return (struct ndctl_region *) &world.regions[0];
}

struct ndctl_region *
ndctl_region_get_next(struct ndctl_region *region)
{
	FakeRegion *next = REGION(region) + 1;

	return next < &world.regions[world.n_regions] ?
		(struct ndctl_region *) next : NULL;
}

const char *
ndctl_region_get_devname(struct ndctl_region *region)
{
	return REGION(region)->name;
}

enum ndctl_persistence_domain
ndctl_region_get_persistence_domain(struct ndctl_region *region)
{
	const char *domain = REGION(region)->domain;

	if (strcmp(domain, "cpu_cache") == 0)
		return PERSISTENCE_CPU_CACHE;
	if (strcmp(domain, "memory_controller") == 0)
		return PERSISTENCE_MEM_CTRL;
	if (strcmp(domain, "none") == 0)
		return PERSISTENCE_NONE;
	return PERSISTENCE_UNKNOWN;
}

struct ndctl_namespace *
ndctl_namespace_get_first(struct ndctl_region *region)
{
	return (struct ndctl_namespace *) region;
}

struct ndctl_namespace *
ndctl_namespace_get_next(struct ndctl_namespace *ndns)
{
	return NULL;
}

const char *
ndctl_namespace_get_devname(struct ndctl_namespace *ndns)
{
	return REGION(ndns)->namespace_name;
}

struct ndctl_region *
ndctl_namespace_get_region(struct ndctl_namespace *ndns)
{
	return (struct ndctl_region *) ndns;
}

struct ndctl_pfn *
ndctl_namespace_get_pfn(struct ndctl_namespace *ndns)
{
	return strncmp(REGION(ndns)->claim, "pfn", 3) == 0 ?
		(struct ndctl_pfn *) ndns : NULL;
}

const char *
ndctl_pfn_get_devname(struct ndctl_pfn *pfn)
{
	return REGION(pfn)->claim;
}

struct ndctl_btt *
ndctl_namespace_get_btt(struct ndctl_namespace *ndns)
{
	return strncmp(REGION(ndns)->claim, "btt", 3) == 0 ?
		(struct ndctl_btt *) ndns : NULL;
}

const char *
ndctl_btt_get_devname(struct ndctl_btt *btt)
{
	return REGION(btt)->claim;
}

struct ndctl_mapping *
ndctl_mapping_get_first(struct ndctl_region *region)
{
	fake_mapping = 0;
	mapped_region = REGION(region);
	return fake_mapping < mapped_region->n_dimms ?
		(struct ndctl_mapping *) mapped_region : NULL;
}

struct ndctl_mapping *
ndctl_mapping_get_next(struct ndctl_mapping *mapping)
{
	return ++fake_mapping < mapped_region->n_dimms ? mapping : NULL;
}

struct ndctl_dimm *
ndctl_mapping_get_dimm(struct ndctl_mapping *mapping)
{
	if (mapped_region->lost_dimm)
		return NULL;
	return &world.dimms[mapped_region->dimms[fake_mapping]];
}

const char *
ndctl_dimm_get_devname(struct ndctl_dimm *dimm)
{
	return dimm->name;
}

const char *
ndctl_dimm_get_unique_id(struct ndctl_dimm *dimm)
{
	return dimm->id[0] != '\0' ? dimm->id : NULL;
}

long long
ndctl_dimm_get_dirty_shutdown(struct ndctl_dimm *dimm)
{
	return dimm->count >= 0 ? dimm->count : -ENOENT;
}

static bool
HasFlag(struct ndctl_dimm *dimm, const char *flag)
{
	return strstr(dimm->flags, flag) != NULL;
}

int
ndctl_dimm_failed_arm(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "not_armed");
}

int
ndctl_dimm_failed_map(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "map_fail");
}

int
ndctl_dimm_failed_flush(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "flush_fail");
}

int
ndctl_dimm_failed_save(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "save_fail");
}

int
ndctl_dimm_failed_restore(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "restore_fail");
}

int
ndctl_dimm_smart_pending(struct ndctl_dimm *dimm)
{
	return HasFlag(dimm, "smart_event");
}


/*
 * From the file down to the namespace
 */

static void
NoTrouble(void **state)
{
	Ask();
	AssertClean();
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_string_equal(report.dimms_why, "");
	assert_int_equal(report.n_dimms, 2);
	/* sorted by id, names along with them */
	assert_string_equal(report.dimms[0].id, "8089-a2-1807-00000a0a");
	assert_int_equal(report.dimms[0].unsafe_shutdowns, 9);
	assert_string_equal(report.dimm_names[0], "nmem1");
	assert_string_equal(report.dimms[1].id, "8089-a2-1807-00000b0b");
	assert_int_equal(report.dimms[1].unsafe_shutdowns, 7);
	assert_string_equal(report.dimm_names[1], "nmem0");
	assert_int_equal(report.health, 0);
	assert_int_equal(report.domain, PCACHE_DOMAIN_MEMORY_CONTROLLER);
	assert_string_equal(report.block_device, "pmem0");
	assert_string_equal(report.region_name, "region0");
	/* no bad blocks: nobody has to sync the file */
	assert_int_equal(world.n_calls, 0);
}

static void
MemoryBacked(void **state)
{
	PCacheFsKind kinds[] = {PCACHE_FS_TMPFS, PCACHE_FS_HUGETLBFS};

	for (int i = 0; i < lengthof(kinds); i++)
	{
		world.stat_error = EBADF;
		AskKind(kinds[i]);
		assert_int_equal(report.blocks, PCACHE_MEDIA_CLEAN);
		assert_string_equal(report.blocks_why, "memory-backed");
		assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
		assert_int_equal(report.n_dimms, 0);
	}
}

static void
NotPersistentMemory(void **state)
{
	world.n_regions = 0;
	BuildSysfs();
	Put("1000\n", "devices/pci/virtio1/block/vda/size");
	Link("devices/pci/virtio1/block/vda", "dev/block/259:0");
	AskKind(PCACHE_FS_FILE);
	AssertBlocksUnknown("not on persistent memory");
	AssertDimmsUnknown("not on persistent memory");
	assert_string_equal(report.block_device, "vda");
}

/* A name like a region's does not make a disk one of libnvdimm's. */
static void
LooksLikeNamespace(void **state)
{
	world.n_regions = 0;
	BuildSysfs();
	Put("1000\n", "devices/region0/pfn0.1/block/sda/size");
	Put("", "devices/region0/pfn0.1/block/sda/badblocks");
	Link("devices/region0/pfn0.1/block/sda", "dev/block/259:0");
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("not on persistent memory");
}

static void
NoBlockDevice(void **state)
{
	world.stat.st_dev = makedev(0, 45);
	Ask();
	AssertBlocksUnknown("dev/block/0:45\": No such file or directory");
	AssertDimmsUnknown("dev/block/0:45\": No such file or directory");
}

static void
StatFails(void **state)
{
	world.stat_error = EIO;
	Ask();
	AssertBlocksUnknown("could not stat file \"" POOL_PATH "\": Input/output error");
	AssertDimmsUnknown("could not stat file");
}

static void
DeviceDax(void **state)
{
	world.stat.st_mode = S_IFCHR | 0600;
	Ask();
	AssertBlocksUnknown("device-dax");
	AssertDimmsUnknown("device-dax");
}

static void
RawNamespace(void **state)
{
	FakeRegion *region = &world.regions[0];

	strlcpy(region->claim, "namespace0.0", sizeof(region->claim));
	region->badblocks = BadList(POOL_PHYSICAL, SECTOR);
	BuildSysfs();
	Link("devices/acpi/ndbus0/region0/namespace0.0/block/pmem0", "dev/block/259:1");
	world.stat.st_dev = makedev(259, 1);
	AskKind(PCACHE_FS_FSDAX);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	AssertRange(0, 0, SECTOR);
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
}

static void
SectorMode(void **state)
{
	FakeRegion *region = &world.regions[0];

	strlcpy(region->claim, "btt0.0", sizeof(region->claim));
	strlcpy(region->disk, "pmem0s", sizeof(region->disk));
	BuildSysfs();
	Link("devices/acpi/ndbus0/region0/btt0.0/block/pmem0s", "dev/block/259:1");
	world.stat.st_dev = makedev(259, 1);
	AskKind(PCACHE_FS_FILE);
	AssertBlocksUnknown("pmem0s is in sector mode");
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.n_dimms, 2);

	/* Of several reasons the first one is given. */
	world.denied = "/badblocks";
	world.denied_errno = EACCES;
	AskKind(PCACHE_FS_FILE);
	AssertBlocksUnknown("Permission denied");
}

/* Partition 2 of the disk: 256 MiB from 64 MiB on */
static void
BuildPartition(void)
{
	const char *path = "devices/acpi/ndbus0/region0/pfn0.1/block/pmem0/pmem0p2";
	char		value[32];

	BuildSysfs();
	Put("2\n", "%s/partition", path);
	snprintf(value, sizeof(value), "%llu\n", (unsigned long long) (MB(64) / SECTOR));
	Put(value, "%s/start", path);
	snprintf(value, sizeof(value), "%llu\n", (unsigned long long) (MB(256) / SECTOR));
	Put(value, "%s/size", path);
	Link(path, "dev/block/259:3");
	world.stat.st_dev = makedev(259, 3);
}

static void
Partition(void **state)
{
	/* The disk's list counts from the disk's start, extents from ours. */
	world.regions[0].badblocks = BadList(MB(64) + POOL_PHYSICAL + KB(12), KB(4));
	BuildPartition();
	AskKind(PCACHE_FS_FSDAX);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, KB(12), KB(4));
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_string_equal(report.block_device, "pmem0p2");
}

static void
OtherPartition(void **state)
{
	/* Within the pool's extent, if that were the disk's. */
	world.regions[0].badblocks = BadList(MB(63), MB(1));
	BuildPartition();
	AskKind(PCACHE_FS_FSDAX);
	AssertClean();
	/* nothing below our partition, so there is nothing to map */
	assert_int_equal(world.n_calls, 0);
}

static void
PartitionStartDenied(void **state)
{
	BuildPartition();
	world.denied = "/start";
	world.denied_errno = EACCES;
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("/pmem0p2/start\": Permission denied");
	AssertDimmsUnknown("Permission denied");
}

static void
PartitionDenied(void **state)
{
	BuildPartition();
	world.denied = "/partition";
	world.denied_errno = EACCES;
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("/pmem0p2/partition\": Permission denied");
}

/* dm-0 over two namespaces, the second one through a partition of its disk */
static void
BuildDeviceMapper(void)
{
	const char *partition = "devices/acpi/ndbus0/region1/pfn1.1/block/pmem1/pmem1p1";

	BuildSysfs();
	Put("1\n", "%s/partition", partition);
	Put("2048\n", "%s/start", partition);
	Put("2048\n", "%s/size", partition);
	Put("4096\n", "devices/virtual/block/dm-0/size");
	Put("", "devices/virtual/block/dm-0/slaves/.keep");
	Link("devices/acpi/ndbus0/region0/pfn0.1/block/pmem0", "devices/virtual/block/dm-0/slaves/pmem0");
	Link(partition, "devices/virtual/block/dm-0/slaves/pmem1p1");
	Link("devices/virtual/block/dm-0", "dev/block/253:0");
	world.stat.st_dev = makedev(253, 0);
}

static void
DeviceMapperClean(void **state)
{
	FakeRegion *region = AddRegion();

	FakeDimm(2, "8089-a2-1807-00000c0c", 3);
	region->n_dimms = 2;
	region->dimms[0] = 1;		/* shared with the first region */
	region->dimms[1] = 2;
	strlcpy(region->domain, "cpu_cache", sizeof(region->domain));
	/* right before and right behind the partition */
	region->badblocks = "2040 8\n4096 8\n";
	BuildDeviceMapper();
	AskKind(PCACHE_FS_FSDAX);
	AssertClean();
	assert_string_equal(report.block_device, "dm-0");
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.n_dimms, 3);
	assert_string_equal(report.dimms[2].id, "8089-a2-1807-00000c0c");
	assert_int_equal(report.domain, PCACHE_DOMAIN_MEMORY_CONTROLLER);

	/* The weakest domain, whichever comes first */
	strlcpy(world.regions[0].domain, "cpu_cache", sizeof(region->domain));
	strlcpy(region->domain, "memory_controller", sizeof(region->domain));
	BuildDeviceMapper();
	AskKind(PCACHE_FS_FSDAX);
	assert_int_equal(report.domain, PCACHE_DOMAIN_MEMORY_CONTROLLER);
}

static void
DeviceMapperBad(void **state)
{
	/* In the last sector of the partition */
	AddRegion()->badblocks = "4095 1\n";
	BuildDeviceMapper();
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("pmem1 has bad blocks, whose place in dm-0 is not known");
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_int_equal(world.n_calls, 0);
}

/* One linear slave only: its layout is as unknown as any. */
static void
DeviceMapperLinear(void **state)
{
	world.regions[0].badblocks = BadList(MB(900), SECTOR);
	BuildSysfs();
	Put("", "devices/virtual/block/dm-0/slaves/.keep");
	Link("devices/acpi/ndbus0/region0/pfn0.1/block/pmem0", "devices/virtual/block/dm-0/slaves/pmem0");
	Link("devices/virtual/block/dm-0", "dev/block/253:0");
	world.stat.st_dev = makedev(253, 0);
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("pmem0 has bad blocks");
}

static void
DeviceMapperStacked(void **state)
{
	AddRegion();
	BuildDeviceMapper();
	Put("", "devices/virtual/block/dm-1/slaves/.keep");
	Link("devices/virtual/block/dm-0", "devices/virtual/block/dm-1/slaves/dm-0");
	Link("devices/virtual/block/dm-1", "dev/block/253:1");
	world.stat.st_dev = makedev(253, 1);
	AskKind(PCACHE_FS_FSDAX);
	AssertClean();
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.n_dimms, 2);
}

static void
DeviceMapperMixed(void **state)
{
	AddRegion();
	BuildDeviceMapper();
	Put("1000\n", "devices/pci/block/sda/size");
	Link("devices/pci/block/sda", "devices/virtual/block/dm-0/slaves/sda");
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("dm-0 is partly on sda");
	AssertDimmsUnknown("dm-0 is partly on sda");
}

static void
DeviceMapperLoop(void **state)
{
	AddRegion();
	BuildDeviceMapper();
	Link("devices/virtual/block/dm-0", "devices/virtual/block/dm-0/slaves/dm-0");
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("stacked too deep");
}

static void
DeviceMapperBroken(void **state)
{
	AddRegion();
	BuildDeviceMapper();
	Link("nowhere", "devices/virtual/block/dm-0/slaves/sdz");
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("slaves/sdz\": No such file or directory");
	AssertDimmsUnknown("slaves/sdz\": No such file or directory");
}

/*
 * Bad blocks
 */

static void
BadSuperblock(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + PCACHE_SUPERBLOCK_OFFSET, SECTOR);
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, 0, SECTOR);
	assert_true(PCacheMediaRangeIsBad(&report, PCACHE_SUPERBLOCK_OFFSET, PCACHE_SUPERBLOCK_SIZE));
	assert_false(PCacheMediaRangeIsBad(&report, PCACHE_COPY_OFFSET, PCACHE_SUPERBLOCK_SIZE));
}

static void
BadCopy(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + PCACHE_COPY_OFFSET, SECTOR);
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_false(PCacheMediaRangeIsBad(&report, PCACHE_SUPERBLOCK_OFFSET, PCACHE_SUPERBLOCK_SIZE));
	assert_true(PCacheMediaRangeIsBad(&report, PCACHE_COPY_OFFSET, PCACHE_SUPERBLOCK_SIZE));
	assert_false(PCacheMediaRangeIsBad(&report, PCACHE_NOTES_OFFSET, PCACHE_CACHE_LINE));
}

static void
BadDescriptors(void **state)
{
	const uint64 offset = PCACHE_DESCRIPTORS_OFFSET + KB(8);

	world.regions[0].badblocks = BadList(POOL_PHYSICAL + offset, SECTOR);
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	AssertRange(0, offset, SECTOR);
	assert_false(PCacheMediaRangeIsBad(&report, offset - PCACHE_CACHE_LINE, PCACHE_CACHE_LINE));
	for (int i = 0; i < SECTOR / PCACHE_CACHE_LINE; i++)
		assert_true(PCacheMediaRangeIsBad(&report, offset + i * PCACHE_CACHE_LINE, PCACHE_CACHE_LINE));
	assert_false(PCacheMediaRangeIsBad(&report, offset + SECTOR, PCACHE_CACHE_LINE));
}

static void
BadPages(void **state)
{
	/* Unsorted: the last sector of page 1, and pages 3 and 4 as a whole */
	char		badblocks[128];
	const uint64 pages = MB(4);

	snprintf(badblocks, sizeof(badblocks), "%llu 32\n%llu 1\n",
			 (unsigned long long) ((POOL_PHYSICAL + pages + 3 * KB(8)) / SECTOR),
			 (unsigned long long) ((POOL_PHYSICAL + pages + 2 * KB(8)) / SECTOR - 1));
	world.regions[0].badblocks = badblocks;
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_int_equal(report.bad.n_ranges, 2);
	AssertRange(0, pages + 2 * KB(8) - SECTOR, SECTOR);
	AssertRange(1, pages + 3 * KB(8), 2 * KB(8));
	for (int i = 0; i < 7; i++)
		assert_int_equal(PCacheMediaRangeIsBad(&report, pages + i * KB(8), KB(8)),
						 i == 1 || i == 3 || i == 4);
	assert_false(PCacheMediaRangeIsBad(&report, pages + 3 * KB(8), 0));
	assert_true(PCacheMediaRangeIsBad(&report, 0, POOL_SIZE));
}

/* The list need not be in order. */
static void
BadUnsorted(void **state)
{
	char		badblocks[128];

	snprintf(badblocks, sizeof(badblocks), "%llu 8\n0 8\n",
			 (unsigned long long) (POOL_PHYSICAL / SECTOR));
	world.regions[0].badblocks = badblocks;
	Ask();
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, 0, KB(4));
}

/* The pool's last bytes, in a range that goes on behind it */
static void
BadEnd(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + POOL_SIZE - KB(4), KB(64));
	Ask();
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, POOL_SIZE - KB(4), KB(4));
}

/* In a range that begins before it */
static void
BadBegin(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL - KB(64), KB(68));
	Ask();
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, 0, KB(4));
}

static void
BadOutside(void **state)
{
	char		badblocks[128];

	snprintf(badblocks, sizeof(badblocks), "%llu 8\n%llu 8\n",
			 (unsigned long long) (POOL_PHYSICAL / SECTOR - 8),
			 (unsigned long long) ((POOL_PHYSICAL + POOL_SIZE) / SECTOR));
	world.regions[0].badblocks = badblocks;
	Ask();
	AssertClean();
	assert_int_equal(world.n_calls, 1);
	assert_int_equal(world.n_syncs, 1);
}

/*
 * A hole has no blocks, so no bad ones: on the device the bytes between the
 * extents' are another file's.
 */
static void
BadHole(void **state)
{
	FakeExtent	extents[] = {
		{0, POOL_PHYSICAL, MB(2), 0},
		{MB(4), POOL_PHYSICAL + MB(4), MB(2), 0},
	};

	world.extents = extents;
	world.n_extents = 2;
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + MB(2), MB(2));
	Ask();
	AssertClean();
}

/* A file that ends with a hole, the extents before it not marked as last */
static void
HoleAtEnd(void **state)
{
	FakeExtent	extents[] = {
		{0, POOL_PHYSICAL, MB(2), 0},
		{POOL_SIZE + MB(1), POOL_PHYSICAL + MB(4), MB(2), 0},
	};

	world.extents = extents;
	world.n_extents = 2;
	world.per_call = 1;
	/* below the second extent, which is behind the file's end */
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + MB(4), MB(2));
	Ask();
	AssertClean();

	world.n_extents = 0;
	AskKind(PCACHE_FS_FSDAX);
	AssertClean();
}

/* What is preallocated behind the end of the file is nothing to us. */
static void
BehindEnd(void **state)
{
	FakeExtent	extents[] = {{0, POOL_PHYSICAL, POOL_SIZE + MB(2), 0}};

	world.extents = extents;
	world.regions[0].badblocks = BadList(POOL_PHYSICAL + POOL_SIZE, KB(4));
	Ask();
	AssertClean();
}

static void
MultipleExtents(void **state)
{
	/* In reverse order on the device, and with a gap there */
	FakeExtent	extents[] = {
		{0, MB(500), MB(2), 0},
		{MB(2), MB(400), MB(2), FIEMAP_EXTENT_UNWRITTEN},
		{MB(4), MB(300), MB(2), FIEMAP_EXTENT_SHARED},
		{MB(6), MB(200), POOL_SIZE - MB(6), 0},
	};
	char		badblocks[256];

	world.extents = extents;
	world.n_extents = 4;
	snprintf(badblocks, sizeof(badblocks), "%llu 8\n%llu 8\n%llu 8\n%llu 8\n%llu 8\n",
			 (unsigned long long) (MB(200) / SECTOR),
			 (unsigned long long) (MB(301) / SECTOR),
			 (unsigned long long) (MB(350) / SECTOR),
			 (unsigned long long) (MB(401) / SECTOR),
			 (unsigned long long) (MB(501) / SECTOR));
	world.regions[0].badblocks = badblocks;
	BuildSysfs();
	for (world.per_call = 1; world.per_call <= 5; world.per_call++)
	{
		world.n_calls = 0;
		world.n_syncs = 0;
		AskKind(PCACHE_FS_FSDAX);
		assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
		assert_int_equal(report.bad.n_ranges, 4);
		AssertRange(0, MB(1), KB(4));
		AssertRange(1, MB(3), KB(4));
		AssertRange(2, MB(5), KB(4));
		AssertRange(3, MB(6), KB(4));
		assert_int_equal(world.n_calls, (4 + world.per_call - 1) / world.per_call);
		assert_int_equal(world.n_syncs, 1);
	}
}

/* More extents than are asked for at once, all of them bad */
static void
ManyExtents(void **state)
{
	const int	n = 1000;
	FakeExtent *extents = calloc(n, sizeof(FakeExtent));

	assert_non_null(extents);
	for (int i = 0; i < n; i++)
	{
		extents[i].logical = i * KB(8);
		extents[i].physical = MB(900) - i * KB(16);
		extents[i].length = KB(8);
	}
	world.extents = extents;
	world.n_extents = n;
	world.stat.st_size = n * KB(8);
	world.regions[0].badblocks = BadList(0, DISK_SIZE);
	Ask();
	free(extents);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	/* adjacent in the file, if not on the device */
	assert_int_equal(report.bad.n_ranges, 1);
	AssertRange(0, 0, n * KB(8));
}

static void
AdjacentMerged(void **state)
{
	/* touching, overlapping, contained, and one sector apart */
	char		badblocks[256];
	const unsigned long long first = POOL_PHYSICAL / SECTOR;

	snprintf(badblocks, sizeof(badblocks),
			 "%llu 8\n%llu 8\n%llu 8\n%llu 2\n%llu 8\n",
			 first, first + 8, first + 12, first + 13, first + 21);
	world.regions[0].badblocks = badblocks;
	Ask();
	assert_int_equal(report.bad.n_ranges, 2);
	AssertRange(0, 0, 20 * SECTOR);
	AssertRange(1, 21 * SECTOR, 8 * SECTOR);
}

static void
EmptyRangeIgnored(void **state)
{
	PCacheRangeList list = {0};

	world.regions[0].badblocks = BadList(POOL_PHYSICAL, 0);
	Ask();
	AssertClean();

	PCacheRangeAdd(&list, KB(4), 0);
	assert_int_equal(list.n_ranges, 0);
	/* The end must have an address, too. */
	PCacheRangeAdd(&list, PG_UINT64_MAX, 8);
	assert_int_equal(list.n_ranges, 0);
	PCacheRangeAdd(&list, PG_UINT64_MAX - 1, 8);
	assert_int_equal(list.n_ranges, 1);
	assert_int_equal(list.ranges[0].length, 1);
	free(list.ranges);
}

/* Each extent bad, none adjacent to another: more ranges than we keep */
static void
CapExceeded(void **state)
{
	const int	n = PCACHE_MAX_RANGES + 1;
	FakeExtent *extents = calloc(n, sizeof(FakeExtent));

	assert_non_null(extents);
	for (int i = 0; i < n; i++)
	{
		extents[i].logical = i * KB(16);
		extents[i].physical = i * KB(16);
		extents[i].length = KB(8);
	}
	world.extents = extents;
	world.n_extents = n;
	world.stat.st_size = n * KB(16);
	world.regions[0].badblocks = BadList(0, DISK_SIZE);
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_true(report.bad.truncated);
	assert_true(strstr(report.blocks_why, "too many bad blocks") != NULL);
	/* in a hole, even */
	assert_true(PCacheMediaRangeIsBad(&report, KB(8), KB(8)));

	/* One less still fits. */
	world.n_extents--;
	AskKind(PCACHE_FS_FSDAX);
	free(extents);
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_false(report.bad.truncated);
	assert_int_equal(report.bad.n_ranges, PCACHE_MAX_RANGES);
	assert_false(PCacheMediaRangeIsBad(&report, KB(8), KB(8)));
	assert_true(PCacheMediaRangeIsBad(&report, KB(16), KB(8)));
}

/* The kernel shows one page of text, and cuts the last line. */
static void
ListCut(void **state)
{
	const long	page_size = sysconf(_SC_PAGESIZE);
	char	   *badblocks = calloc(1, page_size + 100);
	int			len = 0;
	unsigned long long sector = 10000000;

	assert_non_null(badblocks);
	for (; len < page_size - 1; sector += 2)
		len += snprintf(badblocks + len, 32, "%llu 1\n", sector);
	badblocks[page_size - 1] = '\0';
	world.regions[0].badblocks = badblocks;
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_true(report.bad.truncated);
	assert_true(PCacheMediaRangeIsBad(&report, 0, 1));

	/* A byte less, and we have seen it all: nothing of it is ours. */
	badblocks[page_size - 20] = '\0';
	*(strrchr(badblocks, '\n') + 1) = '\0';
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	free(badblocks);
	AssertClean();
}

/* The kernel keeps an eighth of a page of ranges, and forgets the others. */
static void
ListFull(void **state)
{
	const long	max = sysconf(_SC_PAGESIZE) / 8;
	char	   *badblocks = calloc(max, 8);
	char	   *end = badblocks;

	assert_non_null(badblocks);
	for (int i = 0; i < max; i++)
		end += sprintf(end, "%d 1\n", i);
	world.regions[0].badblocks = badblocks;
	Ask();
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_true(report.bad.truncated);

	*strrchr(badblocks, '\n') = '\0';
	*(strrchr(badblocks, '\n') + 1) = '\0';
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	free(badblocks);
	AssertClean();
}

static void
ListMalformed(void **state)
{
	const char *const malformed[] = {
		"x\n", "12\n", "12 8", "12 -8\n", "-12 8\n", " 12 8\n", "12  8\n", "12 8 \n", "12 8\n\n", "12,8\n",
		"99999999999999999999 8\n", "18446744073709551615 8\n",
		"12 36028797018963968\n"
	};

	BuildSysfs();
	for (int i = 0; i < lengthof(malformed); i++)
	{
		Put(malformed[i], "devices/acpi/ndbus0/region0/pfn0.1/block/pmem0/badblocks");
		AskKind(PCACHE_FS_FSDAX);
		AssertBlocksUnknown("/pmem0/badblocks\": Invalid argument");
		assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	}
}

static void
ListDenied(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL, KB(4));
	world.denied = "/badblocks";
	world.denied_errno = EACCES;
	Ask();
	AssertBlocksUnknown("/pmem0/badblocks\": Permission denied");
	/* What can be read is told all the same. */
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
}

static void
ListMissing(void **state)
{
	world.regions[0].badblocks = NULL;
	Ask();
	AssertBlocksUnknown("/pmem0/badblocks\": No such file or directory");
}

static void
ExtentsFail(void **state)
{
	world.regions[0].badblocks = BadList(POOL_PHYSICAL, KB(4));
	world.extents_error = EOPNOTSUPP;
	Ask();
	AssertBlocksUnknown("could not get extents of file \"" POOL_PATH "\": Operation not supported");
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
}

static void
ExtentsNotMapped(void **state)
{
	const uint32 flags[] = {
		FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_DELALLOC, FIEMAP_EXTENT_ENCODED,
		FIEMAP_EXTENT_DATA_ENCRYPTED, FIEMAP_EXTENT_DATA_INLINE, FIEMAP_EXTENT_DATA_TAIL
	};

	world.regions[0].badblocks = BadList(POOL_PHYSICAL, KB(4));
	BuildSysfs();
	for (int i = 0; i < lengthof(flags); i++)
	{
		/* Behind a good one, whose bad block must not be the whole answer */
		FakeExtent	extents[] = {
			{0, POOL_PHYSICAL, MB(2), 0},
			{MB(2), MB(800), POOL_SIZE - MB(2), flags[i]},
		};

		world.extents = extents;
		world.n_extents = 2;
		AskKind(PCACHE_FS_FSDAX);
		AssertBlocksUnknown("extent at offset 2097152");
	}
}

/* A kernel that does not get on must not hold us. */
static void
ExtentsWithoutProgress(void **state)
{
	FakeExtent	extents[] = {
		{0, POOL_PHYSICAL, MB(4), 0},
		{0, POOL_PHYSICAL, MB(4), 0},
	};

	world.extents = extents;
	world.n_extents = 2;
	world.regions[0].badblocks = BadList(POOL_PHYSICAL, KB(4));
	Ask();
	AssertBlocksUnknown("make no sense");

	extents[1].logical = MB(4);
	extents[1].physical = PG_UINT64_MAX - MB(1);
	AskKind(PCACHE_FS_FSDAX);
	AssertBlocksUnknown("make no sense");
}

/*
 * DIMMs
 */

static void
DimmHealth(void **state)
{
	char		names[PCACHE_MEDIA_HEALTH_LEN];

	strlcpy(world.dimms[0].flags, "save_fail restore_fail flush_fail not_armed ",
			sizeof(world.dimms[0].flags));
	strlcpy(world.dimms[1].flags, "map_fail smart_event", sizeof(world.dimms[1].flags));
	Ask();
	assert_int_equal(report.health,
					 PCACHE_DIMM_SAVE_FAIL | PCACHE_DIMM_RESTORE_FAIL |
					 PCACHE_DIMM_FLUSH_FAIL | PCACHE_DIMM_NOT_ARMED |
					 PCACHE_DIMM_MAP_FAIL | PCACHE_DIMM_SMART_EVENT);
	/* Ill health is not an unknown count. */
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);

	assert_string_equal(PCacheMediaHealthText(PCACHE_DIMM_MAP_FAIL | PCACHE_DIMM_SMART_EVENT,
											  names, sizeof(names)),
						"map_fail smart_event");
	assert_string_equal(PCacheMediaHealthText(0, names, sizeof(names)), "ok");
	assert_string_equal(PCacheMediaHealthText(PG_UINT32_MAX, names, sizeof(names)),
						"not_armed map_fail flush_fail save_fail restore_fail "
						"smart_event");
}

/* Each flag is itself, and no other. */
static void
DimmHealthEach(void **state)
{
	static const struct
	{
		const char *word;
		uint32		flag;
	}			flags[] =
	{
		{"not_armed", PCACHE_DIMM_NOT_ARMED},
		{"map_fail", PCACHE_DIMM_MAP_FAIL},
		{"flush_fail", PCACHE_DIMM_FLUSH_FAIL},
		{"save_fail", PCACHE_DIMM_SAVE_FAIL},
		{"restore_fail", PCACHE_DIMM_RESTORE_FAIL},
		{"smart_event", PCACHE_DIMM_SMART_EVENT},
		{"smart_notify", 0},	/* someone wants to be told: no trouble */
	};

	BuildSysfs();
	for (int i = 0; i < lengthof(flags); i++)
	{
		strlcpy(world.dimms[0].flags, flags[i].word, sizeof(world.dimms[0].flags));
		Put(flags[i].word, "devices/acpi/ndbus0/nmem0/nfit/flags");
		AskKind(PCACHE_FS_FSDAX);
		assert_int_equal(report.health, flags[i].flag);
	}
}

static void
PersistenceDomains(void **state)
{
	static const struct
	{
		const char *word;
		PCachePersistenceDomain domain;
	}			domains[] =
	{
		{"cpu_cache", PCACHE_DOMAIN_CPU_CACHE},
		{"memory_controller", PCACHE_DOMAIN_MEMORY_CONTROLLER},
		{"none", PCACHE_DOMAIN_NONE},
		{"", PCACHE_DOMAIN_UNKNOWN},
	};

	BuildSysfs();
	for (int i = 0; i < lengthof(domains); i++)
	{
		strlcpy(world.regions[0].domain, domains[i].word, sizeof(world.regions[0].domain));
		Put(domains[i].word, "devices/acpi/ndbus0/region0/persistence_domain");
		AskKind(PCACHE_FS_FSDAX);
		assert_int_equal(report.domain, domains[i].domain);
		assert_string_equal(PCachePersistenceDomainName(report.domain),
							domains[i].word[0] != '\0' ? domains[i].word : "unknown");
	}
}

static void
CountUnknown(void **state)
{
	world.dimms[1].count = -1;
	Ask();
	AssertDimmsUnknown("unsafe shutdown count of DIMM nmem1 is not available");
	/* Health and bad blocks are told all the same. */
	assert_int_equal(report.n_dimms, 2);
	assert_int_equal(report.dimms[0].unsafe_shutdowns, 0);
	AssertClean();
}

static void
NoId(void **state)
{
	world.dimms[0].id[0] = '\0';
	Ask();
	AssertDimmsUnknown("DIMM nmem0 has no unique id");
}

static void
LongId(void **state)
{
	memset(world.dimms[0].id, 'x', PCACHE_DIMM_ID_LEN);
	Ask();
	AssertDimmsUnknown("unique id of DIMM nmem0 is too long");

	world.dimms[0].id[PCACHE_DIMM_ID_LEN - 1] = '\0';
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_string_equal(report.dimms[1].id, world.dimms[0].id);
}

static void
SameId(void **state)
{
	strlcpy(world.dimms[0].id, world.dimms[1].id, sizeof(world.dimms[0].id));
	Ask();
	AssertDimmsUnknown("have the same unique id");
}

static void
NoDimms(void **state)
{
	world.regions[0].n_dimms = 0;
	Ask();
	AssertDimmsUnknown("region0 has no DIMMs");
	AssertClean();
}

static void
ManyDimms(void **state)
{
	FakeRegion *region = &world.regions[0];

	for (int i = 0; i <= PCACHE_MAX_DIMMS; i++)
	{
		char		id[16];

		snprintf(id, sizeof(id), "dimm-%02d", (i * 7) % (PCACHE_MAX_DIMMS + 1));
		FakeDimm(i, id, i);
		region->dimms[i] = i;
	}
	region->n_dimms = PCACHE_MAX_DIMMS;
	Ask();
	assert_int_equal(report.dimms_state, PCACHE_MEDIA_CLEAN);
	assert_int_equal(report.n_dimms, PCACHE_MAX_DIMMS);
	for (int i = 1; i < PCACHE_MAX_DIMMS; i++)
	{
		assert_true(strcmp(report.dimms[i - 1].id, report.dimms[i].id) < 0);
		/* counts are the kernel's numbers here, so are the names */
		assert_int_equal(atoi(report.dimm_names[i] + strlen("nmem")),
						 report.dimms[i].unsafe_shutdowns);
	}

	region->n_dimms++;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertDimmsUnknown("there are more than 32 DIMMs");
	assert_int_equal(report.n_dimms, PCACHE_MAX_DIMMS);
}

/* The id is stored on media, zero-padded. */
static void
IdsArePadded(void **state)
{
	/* Makes room where a longer one was */
	strlcpy(world.dimms[1].id, "80", sizeof(world.dimms[1].id));
	Ask();
	assert_string_equal(report.dimms[0].id, "80");
	for (int i = 0; i < report.n_dimms; i++)
		for (int j = strlen(report.dimms[i].id); j < PCACHE_DIMM_ID_LEN; j++)
			assert_int_equal(report.dimms[i].id[j], 0);
}

static void
Remember(PCacheSuperblock *sb)
{
	memset(sb, 0, sizeof(*sb));
	sb->dimms_state = report.dimms_state;
	sb->n_dimms = report.n_dimms;
	memcpy(sb->dimms, report.dimms, sizeof(sb->dimms));
}

static void
AssertComparison(const PCacheSuperblock *sb, PCacheMediaAnswer expected,
				 const char *why_expected)
{
	char		why[256] = "x";

	assert_int_equal(PCacheMediaCompareDimms(sb, &report, why, sizeof(why)), expected);
	assert_string_equal(why, why_expected);
}

static void
CompareSame(void **state)
{
	PCacheSuperblock sb;

	Ask();
	Remember(&sb);
	AssertComparison(&sb, PCACHE_MEDIA_CLEAN, "");

	/* Order is not ours to rely on. */
	sb.dimms[2] = sb.dimms[0];
	sb.dimms[0] = sb.dimms[1];
	sb.dimms[1] = sb.dimms[2];
	AssertComparison(&sb, PCACHE_MEDIA_CLEAN, "");

	AskKind(PCACHE_FS_TMPFS);
	Remember(&sb);
	AssertComparison(&sb, PCACHE_MEDIA_CLEAN, "");
}

static void
CompareMoved(void **state)
{
	PCacheSuperblock sb;

	Ask();
	Remember(&sb);
	world.dimms[0].count = 8;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_BAD,
					 "unsafe shutdown count of DIMM 8089-a2-1807-00000b0b went from 7 to 8");

	/* Backwards is no better. */
	world.dimms[0].count = 6;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_BAD,
					 "unsafe shutdown count of DIMM 8089-a2-1807-00000b0b went from 7 to 6");
}

static void
CompareAdded(void **state)
{
	PCacheSuperblock sb;

	Ask();
	Remember(&sb);
	FakeDimm(2, "8089-a2-1807-00000c0c", 0);
	world.regions[0].dimms[2] = 2;
	world.regions[0].n_dimms = 3;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_BAD,
					 "there were 2 DIMMs below the pool, now there are 3");

	world.regions[0].n_dimms = 1;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_BAD,
					 "there were 2 DIMMs below the pool, now there are 1");
}

static void
CompareReplaced(void **state)
{
	PCacheSuperblock sb;

	Ask();
	Remember(&sb);
	FakeDimm(1, "8089-a2-1807-00000d0d", 9);
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_BAD,
					 "DIMM 8089-a2-1807-00000d0d was not below the pool before");
}

static void
CompareUnknown(void **state)
{
	PCacheSuperblock sb;

	Ask();
	Remember(&sb);
	sb.dimms_state = PCACHE_MEDIA_UNKNOWN;
	AssertComparison(&sb, PCACHE_MEDIA_UNKNOWN,
					 "unsafe shutdown counts were not known when the pool was last used");
	sb.dimms_state = 77;
	AssertComparison(&sb, PCACHE_MEDIA_UNKNOWN,
					 "unsafe shutdown counts were not known when the pool was last used");
	sb.dimms_state = PCACHE_MEDIA_CLEAN;
	sb.n_dimms = PCACHE_MAX_DIMMS + 1;
	AssertComparison(&sb, PCACHE_MEDIA_UNKNOWN,
					 "unsafe shutdown counts were not known when the pool was last used");

	Remember(&sb);
	world.dimms[0].count = -1;
	BuildSysfs();
	AskKind(PCACHE_FS_FSDAX);
	AssertComparison(&sb, PCACHE_MEDIA_UNKNOWN,
					 "unsafe shutdown counts are not known now: "
					 "the unsafe shutdown count of DIMM nmem0 is not available");
}

static void
AnswerNames(void **state)
{
	assert_string_equal(PCacheMediaAnswerName(PCACHE_MEDIA_UNKNOWN), "unknown");
	assert_string_equal(PCacheMediaAnswerName(PCACHE_MEDIA_CLEAN), "clean");
	assert_string_equal(PCacheMediaAnswerName(PCACHE_MEDIA_BAD), "bad");
	/* stored on media */
	assert_int_equal(PCACHE_MEDIA_UNKNOWN, 0);
	assert_int_equal(PCACHE_MEDIA_CLEAN, 1);
	assert_int_equal(PCACHE_MEDIA_BAD, 2);
}

/*
 * The real environment: whatever this machine is, there is an answer.
 */
static void
RealFile(void **state)
{
	char		path[MAXPGPATH];
	int			fd;

	snprintf(path, sizeof(path), "%s/pool", world.root);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	PCacheMediaQuery(path, fd, PCACHE_FS_FILE, &report);
	close(fd);
	assert_true(report.blocks == PCACHE_MEDIA_CLEAN || report.blocks_why[0] != '\0');
	assert_true(report.dimms_state == PCACHE_MEDIA_CLEAN || report.dimms_why[0] != '\0');

	PCacheMediaReportFree(&report);
	PCacheMediaQuery(path, -1, PCACHE_FS_FILE, &report);
	AssertBlocksUnknown("Bad file descriptor");
}


/*
 * What only libndctl tells
 */

static void
NdctlFails(void **state)
{
	world.ndctl_error = ENOMEM;
	world.regions[0].badblocks = BadList(POOL_PHYSICAL, KB(4));
	Ask();
	AssertDimmsUnknown("could not initialize libndctl: Cannot allocate memory");
	/* Bad blocks come from sysfs. */
	assert_int_equal(report.blocks, PCACHE_MEDIA_BAD);
	assert_int_equal(report.bad.n_ranges, 1);
}

static void
NoNamespace(void **state)
{
	world.ndctl_empty = true;
	Ask();
	AssertDimmsUnknown("libndctl knows no namespace of pfn0.1");
	AssertClean();
}

static void
LostDimm(void **state)
{
	world.regions[0].lost_dimm = true;
	Ask();
	AssertDimmsUnknown("a DIMM of region0 is missing");
}

/* The second region's namespace, and not the first one found */
static void
RightNamespace(void **state)
{
	FakeRegion *region = AddRegion();

	region->n_dimms = 1;
	BuildSysfs();
	Link("devices/acpi/ndbus0/region1/pfn1.1/block/pmem1", "dev/block/259:1");
	world.stat.st_dev = makedev(259, 1);
	AskKind(PCACHE_FS_FSDAX);
	assert_string_equal(report.region_name, "region1");
	assert_int_equal(report.n_dimms, 1);
}

#define TEST(f)	cmocka_unit_test_setup_teardown(f, SetUp, TearDown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(NoTrouble),
		TEST(MemoryBacked),
		TEST(NotPersistentMemory),
		TEST(LooksLikeNamespace),
		TEST(NoBlockDevice),
		TEST(StatFails),
		TEST(DeviceDax),
		TEST(RawNamespace),
		TEST(SectorMode),
		TEST(Partition),
		TEST(OtherPartition),
		TEST(PartitionStartDenied),
		TEST(PartitionDenied),
		TEST(DeviceMapperClean),
		TEST(DeviceMapperBad),
		TEST(DeviceMapperLinear),
		TEST(DeviceMapperStacked),
		TEST(DeviceMapperMixed),
		TEST(DeviceMapperLoop),
		TEST(DeviceMapperBroken),
		TEST(BadSuperblock),
		TEST(BadCopy),
		TEST(BadDescriptors),
		TEST(BadPages),
		TEST(BadUnsorted),
		TEST(BadEnd),
		TEST(BadBegin),
		TEST(BadOutside),
		TEST(BadHole),
		TEST(HoleAtEnd),
		TEST(BehindEnd),
		TEST(MultipleExtents),
		TEST(ManyExtents),
		TEST(AdjacentMerged),
		TEST(EmptyRangeIgnored),
		TEST(CapExceeded),
		TEST(ListCut),
		TEST(ListFull),
		TEST(ListMalformed),
		TEST(ListDenied),
		TEST(ListMissing),
		TEST(ExtentsFail),
		TEST(ExtentsNotMapped),
		TEST(ExtentsWithoutProgress),
		TEST(DimmHealth),
		TEST(DimmHealthEach),
		TEST(PersistenceDomains),
		TEST(CountUnknown),
		TEST(NoId),
		TEST(LongId),
		TEST(SameId),
		TEST(NoDimms),
		TEST(ManyDimms),
		TEST(IdsArePadded),
		TEST(CompareSame),
		TEST(CompareMoved),
		TEST(CompareAdded),
		TEST(CompareReplaced),
		TEST(CompareUnknown),
		TEST(AnswerNames),
		TEST(RealFile),
		TEST(NdctlFails),
		TEST(NoNamespace),
		TEST(LostDimm),
		TEST(RightNamespace),
	};

	return cmocka_run_group_tests_name("media, libndctl", tests, NULL, NULL);
}
