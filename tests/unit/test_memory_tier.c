/*-------------------------------------------------------------------------
 *
 * test_memory_tier.c
 *	  Unit tests of what is found out about the NUMA nodes of a pool in memory,
 *	  and about the dax devices that are such nodes.
 *
 * The functions below take the place of libnuma and libdaxctl, and a fake
 * sysfs says the same as libdaxctl does.  Compiled with USE_LIBNDCTL this
 * tests pcache_media_daxctl.c, otherwise pcache_media_dax_none.c.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_memory_tier.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef USE_LIBNDCTL
#include <daxctl/libdaxctl.h>
#endif
#ifdef USE_LIBNUMA
#include <numa.h>
#endif

#include "pcache_media_internal.h"

#define NODE(n)		(UINT64CONST(1) << (n))
#define MB(n)		((uint64) (n) * 1024 * 1024)

/* Two sockets, and a memory expander near each: node 2 at 1, node 3 at 0. */
#define FAKE_NODES	4
#define FAKE_DEVICES	24

struct daxctl_dev
{
	char		name[16];
	int			target_node;
	bool		system_ram;
	int			region;
};

static struct
{
	char		root[64];		/* of sysfs */
	bool		has_cpus[FAKE_NODES];
	int			distance[FAKE_NODES][FAKE_NODES];
	bool		numa_missing;
	uint64		pool_nodes;		/* as get_nodes says */
	int			n_devices;
	struct daxctl_dev devices[FAKE_DEVICES];
	int			n_regions;
	bool		daxctl_fails;
	int			n_contexts;		/* not yet released */
	int			n_queries;		/* contexts that were ever made */

	/* what move_pages() says of the page at an address */
	int			(*node_of_page) (uint64 place);
	int			move_pages_rc;
	int			n_asked;
}			world;

static PCacheMediaReport report;

#ifdef USE_LIBNUMA

int
numa_available(void)
{
	return world.numa_missing ? -1 : 0;
}

int
numa_max_node(void)
{
	return FAKE_NODES - 1;
}

int
numa_node_to_cpus(int node, struct bitmask *cpus)
{
	if (node >= FAKE_NODES)
	{
		errno = ENOENT;
		return -1;
	}
	numa_bitmask_clearall(cpus);
	if (world.has_cpus[node])
		numa_bitmask_setbit(cpus, node);
	return 0;
}

int
numa_distance(int node1, int node2)
{
	return node1 < FAKE_NODES && node2 < FAKE_NODES ? world.distance[node1][node2] : 0;
}

int
numa_move_pages(int pid, unsigned long count, void **pages,
				const int *nodes, int *status, int flags)
{
	assert_int_equal(pid, 0);
	assert_null(nodes);			/* nothing is to be moved */
	for (unsigned long i = 0; i < count; i++)
	{
		unsigned char resident;

		assert_int_equal(mincore(pages[i], 1, &resident), 0);
		assert_true(resident & 1);
		status[i] = world.node_of_page((uint64) pages[i]);
	}
	world.n_asked += count;
	return world.move_pages_rc;
}

#endif

#ifdef USE_LIBNDCTL

int
daxctl_new(struct daxctl_ctx **ctx)
{
	world.n_queries++;
	if (world.daxctl_fails)
		return -ENOMEM;
	world.n_contexts++;
	*ctx = (struct daxctl_ctx *) &world;
	return 0;
}

void
daxctl_unref(struct daxctl_ctx *ctx)
{
	world.n_contexts--;
}

void
daxctl_set_log_fn(struct daxctl_ctx *ctx,
				  void (*log_fn) (struct daxctl_ctx *ctx, int priority,
								  const char *file, int line, const char *fn,
								  const char *format, va_list args))
{
}

/* A region is its number, plus one. */
struct daxctl_region *
daxctl_region_get_first(struct daxctl_ctx *ctx)
{
	return world.n_regions > 0 ? (struct daxctl_region *) 1 : NULL;
}

struct daxctl_region *
daxctl_region_get_next(struct daxctl_region *region)
{
	uintptr_t	next = (uintptr_t) region + 1;

	return next <= world.n_regions ? (struct daxctl_region *) next : NULL;
}

static struct daxctl_dev *
NextDevice(int i, int region)
{
	for (; i < world.n_devices; i++)
	{
		if (world.devices[i].region == region)
			return &world.devices[i];
	}
	return NULL;
}

struct daxctl_dev *
daxctl_dev_get_first(struct daxctl_region *region)
{
	return NextDevice(0, (int) (uintptr_t) region - 1);
}

struct daxctl_dev *
daxctl_dev_get_next(struct daxctl_dev *dev)
{
	return NextDevice(dev - world.devices + 1, dev->region);
}

const char *
daxctl_dev_get_devname(struct daxctl_dev *dev)
{
	return dev->name;
}

int
daxctl_dev_get_target_node(struct daxctl_dev *dev)
{
	return dev->target_node;
}

struct daxctl_memory *
daxctl_dev_get_memory(struct daxctl_dev *dev)
{
	return dev->system_ram ? (struct daxctl_memory *) dev : NULL;
}

#endif

static void
MakeDirectory(const char *path)
{
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* Write the devices out to sysfs, as the kernel has them. */
static void
BuildSysfs(void)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/bus", world.root);
	MakeDirectory(path);
	snprintf(path, sizeof(path), "%s/bus/dax", world.root);
	MakeDirectory(path);
	snprintf(path, sizeof(path), "%s/bus/dax/devices", world.root);
	MakeDirectory(path);
	for (int i = 0; i < 2; i++)
	{
		snprintf(path, sizeof(path), "%s/%s", world.root, i == 0 ? "kmem" : "device_dax");
		MakeDirectory(path);
	}
	for (int i = 0; i < world.n_devices; i++)
	{
		const struct daxctl_dev *device = &world.devices[i];
		char		target[MAXPGPATH];
		FILE	   *file;

		snprintf(path, sizeof(path), "%s/bus/dax/devices/%s", world.root, device->name);
		MakeDirectory(path);
		snprintf(path, sizeof(path), "%s/bus/dax/devices/%s/target_node", world.root, device->name);
		file = fopen(path, "w");
		assert_non_null(file);
		fprintf(file, "%d\n", device->target_node);
		fclose(file);
		snprintf(path, sizeof(path), "%s/bus/dax/devices/%s/driver", world.root, device->name);
		snprintf(target, sizeof(target), "%s/%s", world.root,
				 device->system_ram ? "kmem" : "device_dax");
		unlink(path);
		assert_int_equal(symlink(target, path), 0);
	}
}

static void
AddDevice(int region, int target_node, bool system_ram)
{
	struct daxctl_dev *device = &world.devices[world.n_devices];

	assert_true(world.n_devices < FAKE_DEVICES);
	snprintf(device->name, sizeof(device->name), "dax%d.%d", region, world.n_devices);
	device->region = region;
	device->target_node = target_node;
	device->system_ram = system_ram;
	world.n_devices++;
	world.n_regions = Max(world.n_regions, region + 1);
}

static uint64
GetNodes(int fd)
{
	return world.pool_nodes;
}

static int
OpenAttribute(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Ask about a pool on tmpfs whose pages are on the given nodes. */
static void
Ask(uint64 pool_nodes)
{
	PCacheMediaEnv env = {
		.sysfs_root = world.root,
		.get_nodes = GetNodes,
		.open_attribute = OpenAttribute,
	};

	BuildSysfs();
	world.pool_nodes = pool_nodes;
	PCacheMediaQueryEnv(&env, "/srv/pcache/pool", 7, PCACHE_FS_TMPFS, &report);
	assert_int_equal(world.n_contexts, 0);
	assert_int_equal(report.place.numa_nodes, pool_nodes);
}

static void
AssertPlace(const char *expected)
{
	char		text[PCACHE_PLACE_TEXT_LEN];

#ifndef USE_LIBNUMA
	expected = "";				/* no node is known to be without CPUs */
#endif
	assert_string_equal(PCachePlaceText(&report.place, text, sizeof(text)), expected);
}

static int
SetUp(void **state)
{
	static const int distance[FAKE_NODES][FAKE_NODES] = {
		{10, 21, 24, 14},
		{21, 10, 14, 24},
		{24, 14, 10, 26},
		{14, 24, 26, 10},
	};

	memset(&world, 0, sizeof(world));
	memcpy(world.distance, distance, sizeof(distance));
	world.has_cpus[0] = world.has_cpus[1] = true;
	strlcpy(world.root, "/tmp/test_memory_tier.XXXXXX", sizeof(world.root));
	assert_non_null(mkdtemp(world.root));
	return 0;
}

static int
RemoveEntry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int
TearDown(void **state)
{
	return nftw(world.root, RemoveEntry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The devices of the pool's node are named, and no others */
static void
DevicesAreNamed(void **state)
{
	AddDevice(1, 2, true);
	AddDevice(0, 3, true);
	AddDevice(1, 2, false);		/* still devdax */
	AddDevice(2, -1, true);
	AddDevice(2, 70, true);
	Ask(NODE (2));
	AssertPlace("dax1.0 (system-ram, NUMA node 2)");
	Ask(NODE (3));
	AssertPlace("dax0.1 (system-ram, NUMA node 3)");
	Ask(NODE (2) | NODE (3));
	AssertPlace("dax0.1 (system-ram, NUMA node 3), dax1.0 (system-ram, NUMA node 2)");
}

/* Memory that was added to a node with CPUs can't be told from its own */
static void
MixedNode(void **state)
{
	AddDevice(0, 1, true);
	Ask(NODE (1));
	AssertPlace("");
	AddDevice(1, 2, true);
	Ask(NODE (1) | NODE (2));
	AssertPlace("dax1.1 (system-ram, NUMA node 2)");
}

/* Where all nodes have CPUs, or none is known, nobody is asked */
static void
OrdinaryMemory(void **state)
{
	AddDevice(0, 2, true);
	Ask(0);
	AssertPlace("");
	Ask(NODE (0) | NODE (1));
	AssertPlace("");
	assert_int_equal(world.n_queries, 0);
}

static void
NoDevices(void **state)
{
	Ask(NODE (2));
	AssertPlace("");
#ifdef USE_LIBNDCTL
	AddDevice(0, 2, true);
	world.daxctl_fails = true;
	Ask(NODE (2));
	AssertPlace("");
#else
	assert_int_equal(TearDown(NULL), 0);
	assert_int_equal(mkdir(world.root, 0700), 0);
	Ask(NODE (2));
	AssertPlace("");
#endif
}

static void
ManyDevices(void **state)
{
	char		text[PCACHE_PLACE_TEXT_LEN];

	for (int i = 0; i < FAKE_DEVICES; i++)
		AddDevice(0, 2, true);
	Ask(NODE (2));
#ifdef USE_LIBNUMA
	assert_int_equal(report.place.n_devices, FAKE_DEVICES);
	PCachePlaceText(&report.place, text, sizeof(text));
	assert_non_null(strstr(text, "dax0.0 (system-ram, NUMA node 2), dax0.1 ("));
	assert_string_equal(text + strlen(text) - strlen("), ..."), "), ...");
	/* the last that fits, in order of names */
	assert_string_equal(report.place.devices[PCACHE_MAX_MEMORY_DEVICES - 1].name, "dax0.22");
#else
	AssertPlace("");
	(void) text;
#endif
}

/* The longest texts there can be fit into the buffers that are meant for them */
static void
LongTexts(void **state)
{
	PCacheMemoryPlace place = {0};
	char		devices[2 * PCACHE_PLACE_TEXT_LEN];
	char		nodes[2 * PCACHE_NUMA_TEXT_LEN];

	for (int i = 0; i < 20; i++)
		PCachePlaceAddDevice(&place, "a-name-of-thirty-one-characters-", PCACHE_MEMORY_SYSTEM_RAM, 1000);
	PCachePlaceText(&place, devices, sizeof(devices));
	assert_true(strlen(devices) < PCACHE_PLACE_TEXT_LEN);
	PCacheNumaNodesText(PG_UINT64_MAX, nodes, sizeof(nodes));
	assert_true(strlen(nodes) < PCACHE_NUMA_TEXT_LEN);
	assert_string_equal(nodes + strlen(nodes) - 4, ", 63");
}

static void
Numbers(void **state)
{
	char		text[PCACHE_NUMA_TEXT_LEN];

	assert_int_equal(PCacheNumaNode(0), -1);
	assert_int_equal(PCacheNumaNode(NODE (0)), 0);
	assert_int_equal(PCacheNumaNode(NODE (63)), 63);
	assert_int_equal(PCacheNumaNode(NODE (2) | NODE (3)), -1);
	assert_string_equal(PCacheNumaNodesText(0, text, sizeof(text)), "");
	assert_string_equal(PCacheNumaNodesText(NODE (2), text, sizeof(text)), "2");
	assert_string_equal(PCacheNumaNodesText(NODE (2) | NODE (11), text, sizeof(text)), "2, 11");
}

#ifdef USE_LIBNUMA

static void
MemoryOnly(void **state)
{
	assert_int_equal(PCacheMemoryOnlyNodes(0xf), NODE (2) | NODE (3));
	assert_int_equal(PCacheMemoryOnlyNodes(NODE (1)), 0);
	assert_int_equal(PCacheMemoryOnlyNodes(0), 0);
	/* one that libnuma does not know is taken for one with CPUs */
	assert_int_equal(PCacheMemoryOnlyNodes(NODE (50)), 0);

	world.numa_missing = true;
	assert_int_equal(PCacheMemoryOnlyNodes(NODE (2)), 0);
}

/* Pages on a real tmpfs, whose nodes move_pages() makes up */

static int
OneNode(uint64 place)
{
	return 2;
}

static int
Interleaved(uint64 place)
{
	return 2 + place / MB(2) % 2;
}

/* samples at equal distances, one in each MB, would all be on one node */
static int
InterleavedFinely(uint64 place)
{
	return 2 + place / (MB(1) / 2) % 2;
}

/* as of sixteen nodes with equal shares */
static int
SmallShare(uint64 place)
{
	return place / MB(4) % 16 == 0 ? 3 : 2;
}

static int
NotPresent(uint64 place)
{
	return -ENOENT;
}

static int
HighNode(uint64 place)
{
	return place / MB(2) % 2 ? 64 : 2;
}

static uint64
NodesOfFile(int (*node_of_page) (uint64 place), int rc, bool hole)
{
	int			fd = memfd_create("pool", 0);
	struct stat before;
	struct stat after;
	uint64		nodes;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, MB(64)), 0);
	assert_int_equal(posix_fallocate(fd, 0, hole ? MB(32) : MB(64)), 0);
	assert_int_equal(fstat(fd, &before), 0);
	world.node_of_page = node_of_page;
	world.move_pages_rc = rc;
	world.n_asked = 0;
	nodes = PCacheMediaGetNodes(fd);
	assert_int_equal(fstat(fd, &after), 0);
	assert_int_equal(before.st_blocks, after.st_blocks);
	close(fd);
	return nodes;
}

static void
PagesAreSampled(void **state)
{
	assert_int_equal(NodesOfFile(OneNode, 0, false), NODE (2));
	assert_true(world.n_asked >= 16 && world.n_asked <= 1024);
	assert_int_equal(NodesOfFile(Interleaved, 0, false), NODE (2) | NODE (3));
	assert_int_equal(NodesOfFile(InterleavedFinely, 0, false), NODE (2) | NODE (3));
	assert_int_equal(NodesOfFile(SmallShare, 0, false), NODE (2) | NODE (3));
	assert_int_equal(NodesOfFile(NotPresent, 0, false), 0);
	assert_int_equal(NodesOfFile(HighNode, 0, false), 0);
	assert_int_equal(NodesOfFile(OneNode, -1, false), 0);
}

/* What has holes is left as it is; so is what is no file */
static void
PagesThatCannotBeSampled(void **state)
{
	assert_int_equal(NodesOfFile(OneNode, 0, true), 0);
	assert_int_equal(world.n_asked, 0);
	assert_int_equal(PCacheMediaGetNodes(-1), 0);
	world.numa_missing = true;
	assert_int_equal(NodesOfFile(OneNode, 0, false), 0);
	assert_int_equal(world.n_asked, 0);
}

#endif

#define TEST(f)	cmocka_unit_test_setup_teardown(f, SetUp, TearDown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(DevicesAreNamed),
		TEST(MixedNode),
		TEST(OrdinaryMemory),
		TEST(NoDevices),
		TEST(ManyDevices),
		TEST(LongTexts),
		TEST(Numbers),
#ifdef USE_LIBNUMA
		TEST(MemoryOnly),
		TEST(PagesAreSampled),
		TEST(PagesThatCannotBeSampled),
#endif
	};

#ifdef USE_LIBNDCTL
	return cmocka_run_group_tests_name("memory tier, libdaxctl", tests, NULL, NULL);
#else
	return cmocka_run_group_tests_name("memory tier, sysfs only", tests, NULL, NULL);
#endif
}
