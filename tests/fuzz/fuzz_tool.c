/*-------------------------------------------------------------------------
 *
 * fuzz_tool.c
 *	  Fuzz target: pg_pcache, all of it, on a cluster that was tampered with.
 *
 * The tool's main() is called as often as there are inputs.  It is written
 * for a process of its own, and leaves to exit() what it has allocated,
 * opened and mapped; so these calls lead to here (ld --wrap), and what a run
 * has left is cleaned up after it.
 *
 * The server's configuration, which the tool would ask "postgres -C" for, is
 * part of the input.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_tool.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_input.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"

#define MAX_ARGS			10
#define MAX_POOL_SIZE		((uint64) 16 * 1024 * 1024)
#define FREE_SLOTS			256
#define CONTROL_FILE		"global/pg_control"

typedef struct Command
{
	const char *args[MAX_ARGS];
	bool		writes;			/* the pool has to be made again */
	bool		reads_files;	/* of relations */
	bool		foretells;		/* the exit status is that of verify after it */
} Command;

/* A pool without the sparse input's descriptors has only free ones. */
static const Command commands[] = {
	{{"status"}},
	{{"status", "--json"}},
	{{"status", "-u"}},
	{{"verify"}},
	{{"verify", "--json"}},
	{{"verify", "-u", "--json"}},
	{{"init", "--size=128kB"},.writes = true},
	{{"init", "--dry-run", "--size=128kB", "--json"}},
	{{"init", "--dry-run", "--force", "-u"}},
	{{"init", "--force", "--size=128kB", "--json"},.writes = true},
	{{"status", "--relations", "--json"}},
	{{"verify", "--pages"},.reads_files = true},
	{{"verify", "--pages", "--json"},.reads_files = true},
	{{"verify", "--pages", "--deep", "--json"},.reads_files = true},
	{{"rebuild", "--dry-run"}},
	{{"rebuild", "--dry-run", "--resize=256kB", "--json"}},
	{{"rebuild"},.writes = true,.foretells = true},
	{{"rebuild", "--json"},.writes = true,.foretells = true},
	{{"rebuild", "--reset", "--force"},.writes = true},
	{{"rebuild", "--resize=256kB", "--json"},.writes = true,.foretells = true},
	{{"rebuild", "--resize=4MB"},.writes = true,.foretells = true},
	{{"rebuild", "--warm-from-files", "--dry-run", "--json"},.reads_files = true},
	{{"rebuild", "--warm-from-files"},.writes = true,.foretells = true,.reads_files = true},
	{{"rebuild", "--warm-from-files", "--relations=5/16384,global/1260", "--json"},.writes = true,.foretells = true,.reads_files = true},
	{{"drop", "--dry-run", "--json"}},
	{{"drop", "--json"},.writes = true},
	{{"drop", "--force"},.writes = true},
};

extern int	PgPcacheMain(int argc, char *argv[]);

static char data_directory[MAXPGPATH];
static char pool_directory[MAXPGPATH];
static char pool_path[MAXPGPATH];
static int	control_fd;
static int	output_fd;
static int	first_fd;			/* from here on all are a run's */
static bool tell;				/* what the tool says, on stderr */
static bool pool_is_sound;		/* it has the shape that we gave it */
static RelPathStr written_relations[FUZZ_DESCRIPTORS];
static int	n_written_relations;

static const FuzzInput *current;
static bool running;
static jmp_buf out;
static pthread_t main_thread;
static int	exit_status;
static uint64 n_exits[lengthof(commands)][4];

/* What a run has to be relieved of. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **blocks;
static size_t n_blocks;
static size_t max_blocks;
static void (*exit_functions[8]) (void);
static int	n_exit_functions;
static PCacheMapping mappings[8];
static int	n_mappings;

/* Functions that the linker puts before those of the same name. */
extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *block, size_t size);
extern void __real_free(void *block);
extern char *__real_strdup(const char *string);
extern int	__real_atexit(void (*function) (void));
pg_noreturn extern void __real_exit(int status);
extern bool __real_PCacheMap(const char *path, bool volatile_memory, PCacheMapping *map);
extern bool __real_PCacheUnmap(PCacheMapping *map);
extern int	__real_madvise(void *address, size_t length, int advice);

extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__wrap_realloc(void *block, size_t size);
extern void __wrap_free(void *block);
extern char *__wrap_strdup(const char *string);
extern int	__wrap_atexit(void (*function) (void));
pg_noreturn extern void __wrap_exit(int status);
extern bool __wrap_PCacheMap(const char *path, bool volatile_memory, PCacheMapping *map);
extern bool __wrap_PCacheUnmap(PCacheMapping *map);
extern bool __wrap_PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN]);
extern int	__wrap_find_other_exec(const char *argv0, const char *target,
								   const char *versionstr, char *retpath);
extern void __wrap_set_pglocale_pgservice(const char *argv0, const char *app);
extern FILE *__wrap_popen(const char *command, const char *type);
extern int	__wrap_pclose(FILE *pipe);
extern void __wrap_pg_usleep(long microsec);
extern int	__wrap_posix_fallocate(int fd, off_t offset, off_t len);
extern int	__wrap_madvise(void *address, size_t length, int advice);

static void *
Remember(void *block)
{
	if (!running || block == NULL)
		return block;
	pthread_mutex_lock(&lock);
	if (n_blocks == max_blocks)
	{
		max_blocks = Max(1024, 2 * max_blocks);
		blocks = __real_realloc(blocks, max_blocks * sizeof(*blocks));
	}
	blocks[n_blocks++] = block;
	pthread_mutex_unlock(&lock);
	return block;
}

/* The last one is the most likely. */
static void
Forget(void *block)
{
	if (!running || block == NULL)
		return;
	pthread_mutex_lock(&lock);
	for (size_t i = n_blocks; i-- > 0;)
	{
		if (blocks[i] == block)
		{
			blocks[i] = blocks[--n_blocks];
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

void *
__wrap_malloc(size_t size)
{
	return Remember(__real_malloc(size));
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return Remember(__real_calloc(n, size));
}

void *
__wrap_realloc(void *block, size_t size)
{
	Forget(block);
	return Remember(__real_realloc(block, size));
}

void
__wrap_free(void *block)
{
	Forget(block);
	__real_free(block);
}

char *
__wrap_strdup(const char *string)
{
	return Remember(__real_strdup(string));
}

int
__wrap_atexit(void (*function) (void))
{
	if (!running)
		return __real_atexit(function);
	FuzzExpect(n_exit_functions < lengthof(exit_functions));
	exit_functions[n_exit_functions++] = function;
	return 0;
}

void
__wrap_exit(int status)
{
	if (!running)
		__real_exit(status);
	FuzzExpect(pthread_equal(pthread_self(), main_thread));
	exit_status = status;
	longjmp(out, 1);
}

bool
__wrap_PCacheMap(const char *path, bool volatile_memory, PCacheMapping *map)
{
	if (!__real_PCacheMap(path, volatile_memory, map))
		return false;
	FuzzExpect(n_mappings < lengthof(mappings));
	mappings[n_mappings++] = *map;
	return true;
}

bool
__wrap_PCacheUnmap(PCacheMapping *map)
{
	for (int i = 0; i < n_mappings; i++)
	{
		if (mappings[i].base == map->base)
			mappings[i] = mappings[--n_mappings];
	}
	return __real_PCacheUnmap(map);
}

bool
__wrap_PCacheReadBootId(uint8 boot_id[PCACHE_UUID_LEN])
{
	memcpy(boot_id, current->first.head + offsetof(PCacheSuperblock, boot_id),
		   PCACHE_UUID_LEN);
	if (current->facts & FUZZ_OTHER_BOOT)
		boot_id[0]++;
	return true;
}

/* The server's program is there if its configuration is known. */
int
__wrap_find_other_exec(const char *argv0, const char *target,
					   const char *versionstr, char *retpath)
{
	strcpy(retpath, "postgres");
	return 0;
}

void
__wrap_set_pglocale_pgservice(const char *argv0, const char *app)
{
}

/* Answers "postgres ... -C NAME". */
FILE *
__wrap_popen(const char *command, const char *type)
{
	static char answer[64];
	const char *name = strrchr(command, ' ') + 1;

	if (strstr(name, "persistent_cache_mode"))
		strcpy(answer, current->nbuffers == 0 ? "off\n" : "always\n");
	else if (strstr(name, "persistent_cache_size"))
		strcpy(answer, "0\n");
	else if (strstr(name, "persistent_cache_directory"))
		strcpy(answer, "pg_pcache\n");
	else if (strstr(name, "shared_buffers"))
		snprintf(answer, sizeof(answer), "%d\n", current->nbuffers);
	else if (strstr(name, "persistent_cache_on_media_unknown"))
		strcpy(answer, current->facts & FUZZ_COLD_ON_UNKNOWN ? "cold\n" : "use\n");
	else if (strstr(name, "recovery_target_timeline"))
		strcpy(answer, "latest\n");
	else
		strcpy(answer, "\n");
	return fmemopen(answer, strlen(answer), "r");
}

/* A server that cannot read its configuration fails. */
int
__wrap_pclose(FILE *pipe)
{
	fclose(pipe);
	return current->nbuffers < 0 ? 256 : 0;
}

/* What the tool would wait for does not come: it is alone. */
void
__wrap_pg_usleep(long microsec)
{
}

/*
 * The memory, and huge pages, for a pool that lasts for one run would take
 * most of its time.
 */
int
__wrap_posix_fallocate(int fd, off_t offset, off_t len)
{
	struct stat st;

	FuzzExpect(running && offset >= 0 && len > 0);
	if (offset + len > MAX_POOL_SIZE)
		return ENOSPC;
	if (fstat(fd, &st) < 0)
		return errno;
	if (st.st_size < offset + len && ftruncate(fd, offset + len) < 0)
		return errno;
	return 0;
}

int
__wrap_madvise(void *address, size_t length, int advice)
{
	return running ? 0 : __real_madvise(address, length, advice);
}

static void
Fail(const char *what)
{
	fprintf(stderr, "could not make the cluster of the fuzzer: %s: %m\n", what);
	exit(1);
}

static void
SetFile(const char *name, bool there)
{
	int			fd;

	if (!there)
	{
		unlink(name);
		return;
	}
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		Fail(name);
	close(fd);
}

/* Those that the seeds' descriptors speak of, but for a few. */
static void
MakeRelations(void)
{
	static const struct
	{
		RelFileNumber number;
		ForkNumber	last_fork;
		bool		shared;
	}			relations[] = {
		{1260, MAIN_FORKNUM, true}, {1262, VISIBILITYMAP_FORKNUM, true},
		{1255, VISIBILITYMAP_FORKNUM}, {1259, VISIBILITYMAP_FORKNUM},
		{2608, MAIN_FORKNUM}, {2619, FSM_FORKNUM}, {2653, MAIN_FORKNUM},
		{2659, MAIN_FORKNUM}, {2662, MAIN_FORKNUM}, {2663, MAIN_FORKNUM},
		{2673, MAIN_FORKNUM}, {2674, MAIN_FORKNUM}, {2685, MAIN_FORKNUM},
		{2696, MAIN_FORKNUM}, {2704, MAIN_FORKNUM},
		{16384, VISIBILITYMAP_FORKNUM},
	};

	for (int i = 0; i < lengthof(relations); i++)
	{
		for (ForkNumber fork = MAIN_FORKNUM; fork <= relations[i].last_fork; fork++)
		{
			RelFileLocator rlocator = {
				relations[i].shared ? GLOBALTABLESPACE_OID : DEFAULTTABLESPACE_OID,
				relations[i].shared ? InvalidOid : 5, relations[i].number
			};
			RelPathStr	path = relpathperm(rlocator, fork);

			SetFile(path.str, true);
			if (truncate(path.str, FUZZ_RELATION_BLOCKS * BLCKSZ) < 0)
				Fail(path.str);
		}
	}
}

/* How often each command ended in which way. */
static void
WriteCounts(void)
{
	FILE	   *file = FuzzOpenCounts();

	if (file == NULL)
		return;
	for (int i = 0; i < lengthof(commands); i++)
	{
		for (int j = 0; commands[i].args[j] != NULL; j++)
			fprintf(file, j == 0 ? "%s" : " %s", commands[i].args[j]);
		for (int j = 0; j < lengthof(n_exits[i]); j++)
			fprintf(file, "\t%llu", (unsigned long long) n_exits[i][j]);
		fprintf(file, "\n");
	}
	fclose(file);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *directory;

	/* a file that was cut off gets the size that its superblock says */
	struct rlimit file_size = {4 * MAX_POOL_SIZE, 4 * MAX_POOL_SIZE};

	if (geteuid() == 0)
	{
		fprintf(stderr, "pg_pcache does nothing for root; see tools/as-user\n");
		exit(1);
	}
	directory = FuzzMakeDirectory();
	snprintf(data_directory, sizeof(data_directory), "%s/data", directory);
	snprintf(pool_directory, sizeof(pool_directory), "%s/pool", directory);
	snprintf(pool_path, sizeof(pool_path), "%s/%s", pool_directory, PCACHE_POOL_FILE);
	if (mkdir(data_directory, 0700) < 0 || mkdir(pool_directory, 0700) < 0 ||
		chdir(data_directory) < 0 || mkdir("pg_wal", 0700) < 0 ||
		mkdir("pg_tblspc", 0700) < 0 || mkdir("global", 0700) < 0 ||
		mkdir("base", 0700) < 0 || mkdir("base/5", 0700) < 0 ||
		symlink(pool_directory, PCACHE_DEFAULT_DIRECTORY) < 0)
		Fail(data_directory);
	MakeRelations();
	control_fd = open(CONTROL_FILE, O_RDWR | O_CREAT, 0600);
	output_fd = memfd_create("output", 0);
	if (control_fd < 0 || ftruncate(control_fd, PG_CONTROL_FILE_SIZE) < 0 ||
		output_fd < 0 || dup2(output_fd, STDOUT_FILENO) < 0)
		Fail(CONTROL_FILE);
	if (setrlimit(RLIMIT_FSIZE, &file_size) < 0)
		Fail("RLIMIT_FSIZE");
	main_thread = pthread_self();
	tell = getenv("FUZZ_TELL") != NULL;
	__real_atexit(WriteCounts);
	return 0;
}

/* Is there room for a page in the file that WritePool() makes? */
static bool
IsPlaceOfPage(const FuzzInput *input, uint64 offset)
{
	return offset >= PCACHE_DESCRIPTORS_OFFSET + sizeof(input->descs) &&
		offset <= MAX_POOL_SIZE - BLCKSZ &&
		offset + BLCKSZ <= input->file_size;
}

static void
ExpandPage(const FuzzPage *packed, PGAlignedBlock *page)
{
	memset(page, 0, sizeof(*page));
	memcpy(page->data, packed->head, FUZZ_PAGE_PART);
	memcpy(page->data + BLCKSZ - FUZZ_PAGE_PART, packed->end, FUZZ_PAGE_PART);
}

static void
WritePool(const FuzzInput *input)
{
	PCacheSuperblock sb;
	PCacheSuspect suspect;
	struct stat st;
	uint64		size = Min(input->file_size, MAX_POOL_SIZE);
	int			fd;

	if (!pool_is_sound || (input->facts & FUZZ_NO_POOL))
		unlink(pool_path);
	pool_is_sound = false;
	if (input->facts & FUZZ_NO_POOL)
		return;

	fd = open(pool_path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		Fail(pool_path);
	if (st.st_size != size && ftruncate(fd, 0) < 0)
		Fail(pool_path);
	if (st.st_size != size)
	{
		PCacheDescriptor descs[FREE_SLOTS] = {0};

		for (int i = 0; i < FREE_SLOTS; i++)
			descs[i].seq = PCACHE_DESC_FREE_SEQ;
		FuzzWriteFile(fd, descs, sizeof(descs), PCACHE_DESCRIPTORS_OFFSET);
	}
	FuzzExpandSuperblock(&input->copy, &sb);
	FuzzWriteFile(fd, &sb, sizeof(sb), PCACHE_COPY_OFFSET);
	FuzzExpandSuperblock(&input->first, &sb);
	FuzzWriteFile(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET);
	FuzzWriteFile(fd, input->watermarks, sizeof(input->watermarks), PCACHE_WATERMARK_OFFSET);
	FuzzWriteFile(fd, input->control_seen, sizeof(input->control_seen), PCACHE_CONTROL_OFFSET);
	FuzzMakeSuspect(input, &suspect);
	FuzzWriteFile(fd, &suspect, sizeof(suspect), PCACHE_SUSPECT_OFFSET);
	FuzzWriteFile(fd, input->errors, sizeof(input->errors), PCACHE_MEMORY_ERRORS_OFFSET);
	FuzzWriteFile(fd, input->descs, sizeof(input->descs), PCACHE_DESCRIPTORS_OFFSET);
	for (int i = 0; i < FUZZ_PAGES; i++)
	{
		uint64		offset = sb.blocks_offset + i * BLCKSZ;

		if (IsPlaceOfPage(input, offset))
		{
			PGAlignedBlock page;

			ExpandPage(&input->pages[i], &page);
			FuzzWriteFile(fd, page.data, BLCKSZ, offset);
		}
	}
	if (ftruncate(fd, size) < 0)
		Fail(pool_path);
	close(fd);
	/* a file that grew to hold what is written to it was sparse in between */
	pool_is_sound = size >= PCACHE_DESCRIPTORS_OFFSET + sizeof(PCacheDescriptor) * FREE_SLOTS;
}

/*
 * A page that an input has only a descriptor of: nothing but a header with its
 * LSN.  It is that in the pool, and in its file.
 */
static void
MakePage(const PCacheDescriptor *desc, PGAlignedBlock *page)
{
	PageHeader	header = (PageHeader) page->data;

	memset(page, 0, sizeof(*page));
	if (desc->page_lsn == 0)
		return;					/* new */
	PageXLogRecPtrSet(header->pd_lsn, desc->page_lsn);
	header->pd_lower = SizeOfPageHeaderData;
	header->pd_upper = BLCKSZ;
	header->pd_special = BLCKSZ;
	header->pd_pagesize_version = BLCKSZ | PG_PAGE_LAYOUT_VERSION;
}

/* The pages of all descriptors, in pool and data files. */
static void
WritePages(const FuzzInput *input)
{
	PCacheSuperblock sb;
	int			pool_fd = open(pool_path, O_WRONLY);

	FuzzExpandSuperblock(&input->first, &sb);
	for (int i = 0; i < FUZZ_DESCRIPTORS; i++)
	{
		const PCacheDescriptor *desc = &input->descs[i];
		RelFileLocator rlocator = {desc->spc_oid, desc->db_oid, desc->rel_number};
		uint64		offset = sb.blocks_offset + (uint64) i * BLCKSZ;
		PGAlignedBlock page;
		RelPathStr	path;
		int			fd;

		if (i < FUZZ_PAGES)
			ExpandPage(&input->files[i], &page);
		else
		{
			MakePage(desc, &page);
			if (pool_fd >= 0 && IsPlaceOfPage(input, offset))
				FuzzWriteFile(pool_fd, page.data, BLCKSZ, offset);
		}

		if (desc->fork_number < 0 || desc->fork_number > MAX_FORKNUM ||
			desc->block_number >= FUZZ_RELATION_BLOCKS ||
			(desc->db_oid == InvalidOid) != (desc->spc_oid == GLOBALTABLESPACE_OID))
			continue;
		path = relpathperm(rlocator, desc->fork_number);
		fd = open(path.str, O_WRONLY, 0);
		if (fd < 0)
			continue;
		if (!(input->facts & FUZZ_PAGE_CHECKSUMS) && !PageIsNew((Page) page.data))
			((PageHeader) page.data)->pd_checksum =
				pg_checksum_page(page.data, desc->block_number);
		FuzzWriteFile(fd, page.data, BLCKSZ, (off_t) desc->block_number * BLCKSZ);
		close(fd);
		written_relations[n_written_relations++] = path;
	}
	if (pool_fd >= 0)
		close(pool_fd);
	pool_is_sound = false;
}

/* The next run finds them as empty as this one did. */
static void
EmptyRelations(void)
{
	while (n_written_relations > 0)
	{
		const char *path = written_relations[--n_written_relations].str;

		if (truncate(path, 0) < 0 ||
			truncate(path, FUZZ_RELATION_BLOCKS * BLCKSZ) < 0)
			Fail(path);
	}
}

static void
WriteCluster(const FuzzInput *input, const Command *command)
{
	static int	last_files = -1;
	int			files = input->facts &
		(FUZZ_BACKUP_LABEL | FUZZ_RECOVERY_SIGNAL | FUZZ_STANDBY_SIGNAL);
	char		text[FUZZ_STATE_LEN + MAXPGPATH];
	size_t		len = FuzzExpandState(input, pool_directory, text, sizeof(text));
	int			fd;

	/* they may have been dropped */
	if ((mkdir(pool_directory, 0700) < 0 && errno != EEXIST) ||
		(symlink(pool_directory, PCACHE_DEFAULT_DIRECTORY) < 0 && errno != EEXIST))
		Fail(pool_directory);
	FuzzWriteFile(control_fd, &input->control, sizeof(input->control), 0);
	unlink(PCACHE_RECORD_FILE);
	if (!(input->facts & FUZZ_NO_RECORD))
	{
		fd = open(PCACHE_RECORD_FILE, O_WRONLY | O_CREAT, 0600);
		if (fd < 0)
			Fail(PCACHE_RECORD_FILE);
		FuzzWriteFile(fd, text, len, 0);
		close(fd);
	}
	if (files != last_files)
	{
		SetFile("backup_label", (files & FUZZ_BACKUP_LABEL) != 0);
		SetFile("recovery.signal", (files & FUZZ_RECOVERY_SIGNAL) != 0);
		SetFile("standby.signal", (files & FUZZ_STANDBY_SIGNAL) != 0);
		last_files = files;
	}
	FuzzPlaceWal(input);
	WritePool(input);
	if (command->reads_files)
		WritePages(input);
}

/* Run the tool, and clean up after it. */
static int
Run(const char *const *args)
{
	char	   *argv[MAX_ARGS + 4] = {"pg_pcache", "-D", data_directory};
	int			argc = 3;
	int			highest;

	while (args[argc - 3] != NULL)
	{
		argv[argc] = unconstify(char *, args[argc - 3]);
		argc++;
	}
	argv[argc] = NULL;

	first_fd = dup(output_fd);
	close(first_fd);
	optind = 0;
	running = true;
	if (setjmp(out) == 0)
		exit_status = PgPcacheMain(argc, argv);
	while (n_exit_functions > 0)
		exit_functions[--n_exit_functions] ();
	running = false;

	while (n_mappings > 0)
		FuzzExpect(__real_PCacheUnmap(&mappings[--n_mappings]));
	while (n_blocks > 0)
		__real_free(blocks[--n_blocks]);
	/* what it has opened got the lowest numbers that were free */
	highest = dup(output_fd);
	for (int fd = first_fd; fd <= Max(highest, first_fd + 8); fd++)
		close(fd);
	if (chdir(data_directory) < 0)
		Fail(data_directory);
	fflush(stdout);
	return exit_status;
}

/* JSON goes to programs, so it must be JSON whatever the pool says. */
static void
CheckOutput(const char *const *args, int status)
{
	off_t		len = lseek(STDOUT_FILENO, 0, SEEK_CUR);
	bool		json = false;
	char	   *text = NULL;

	FuzzExpect(status >= 0 && status <= 3);
	for (int i = 0; args[i] != NULL; i++)
		json = json || strcmp(args[i], "--json") == 0;
	if (tell || (json && status != 1))
	{
		text = malloc(len + 1);
		FuzzExpect(PCacheReadExact(STDOUT_FILENO, text, len, 0));
		text[len] = '\0';
	}
	if (tell)
	{
		fprintf(stderr, "pg_pcache");
		for (int i = 0; args[i] != NULL; i++)
			fprintf(stderr, " %s", args[i]);
		fprintf(stderr, ": exit status %d\n%s\n", status, text);
	}
	if (json && status != 1)
	{
		JsonLexContext *lex;

		lex = makeJsonLexContextCstringLen(NULL, text, len, PG_SQL_ASCII, true);
		FuzzExpect(pg_parse_json(lex, &nullSemAction) == JSON_SUCCESS);
		freeJsonLexContext(lex);
	}
	free(text);
	if (ftruncate(STDOUT_FILENO, 0) < 0 || lseek(STDOUT_FILENO, 0, SEEK_SET) < 0)
		abort();
}

/* For the shared_buffers of the input? */
static bool
PoolIsTooSmall(void)
{
	PCacheSuperblock sb;
	int			fd = open(pool_path, O_RDONLY);
	bool		known = fd >= 0 &&
		PCacheReadExact(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET);

	if (fd >= 0)
		close(fd);
	return known && current->nbuffers >= 0 && sb.capacity < current->nbuffers;
}

/*
 * Only "drop" takes the pool away, and without --force only one that is known to
 * be the cluster's.  Nobody takes anything else.
 */
static void
CheckFiles(const FuzzInput *input, const char *const *args)
{
	bool		drops = strcmp(args[0], "drop") == 0;
	bool		force = false;
	PCacheSuperblock first;
	PCacheSuperblock copy;

	FuzzExpect(access(CONTROL_FILE, F_OK) == 0 && access("pg_wal", F_OK) == 0 &&
			   access("pg_tblspc", F_OK) == 0 && access("base/5", F_OK) == 0);
	if ((input->facts & FUZZ_NO_POOL) || access(pool_path, F_OK) == 0)
		return;
	for (int i = 1; args[i] != NULL; i++)
	{
		force = force || strcmp(args[i], "--force") == 0;
		drops = drops && strcmp(args[i], "--dry-run") != 0;
	}
	FuzzExpandSuperblock(&input->first, &first);
	FuzzExpandSuperblock(&input->copy, &copy);
	FuzzExpect(drops);
	FuzzExpect(force ||
			   (!(input->facts & FUZZ_NO_RECORD) &&
				(first.system_identifier == input->control.system_identifier ||
				 copy.system_identifier == input->control.system_identifier)));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const look[] = {"verify", "--json", NULL};
	FuzzInput	input;
	const Command *command;
	int			status;

	FuzzWatch();
	FuzzLoad(&input, data, size);
	command = &commands[input.command % lengthof(commands)];
	current = &input;
	WriteCluster(&input, command);
	status = Run(command->args);
	CheckOutput(command->args, status);
	CheckFiles(&input, command->args);
	n_exits[command - commands][status]++;
	EmptyRelations();
	if (command->writes)
	{
		int			seen = Run(look);

		CheckOutput(look, seen);
		/* of a pool that is too small rebuild only warns */
		if (command->foretells && status != 1)
			FuzzExpect(seen == status || (seen == 1 && PoolIsTooSmall()));
		pool_is_sound = false;
	}
	return 0;
}
