/*-------------------------------------------------------------------------
 *
 * fuzz_process.c
 *	  pg_pcache in the process of a fuzzer, as often as it is asked for.
 *
 * The tool's main() is written for a process of its own, and leaves to exit()
 * what it has allocated, opened and mapped; so these calls lead to here
 * (ld --wrap), and what a run has left is cleaned up after it.
 *
 * The server's configuration, which the tool would ask "postgres -C" for, is
 * part of the input.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_process.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_process.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/jsonapi.h"
#include "mb/pg_wchar.h"

#define MAX_ARGS			12

extern int	PgPcacheMain(int argc, char *argv[]);

const FuzzInput *fuzz_current;
char	   *fuzz_output;
size_t		fuzz_allocated;

static int	output_fd;
static int	first_fd;			/* from here on all are a run's */
static bool tell;				/* what the tool says, on stderr */

static bool running;
static jmp_buf out;
static pthread_t main_thread;
static int	exit_status;

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
extern int	__real_posix_memalign(void **block, size_t alignment, size_t size);
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
extern int	__wrap_posix_memalign(void **block, size_t alignment, size_t size);
extern char *__wrap_strdup(const char *string);
extern int	__wrap_atexit(void (*function) (void));
pg_noreturn extern void __wrap_exit(int status);
extern bool __wrap_PCacheMap(const char *path, bool volatile_memory, PCacheMapping *map);
extern bool __wrap_PCacheUnmap(PCacheMapping *map);
extern void __wrap_set_pglocale_pgservice(const char *argv0, const char *app);
extern FILE *__wrap_popen(const char *command, const char *type);
extern int	__wrap_pclose(FILE *pipe);
extern void __wrap_pg_usleep(long microsec);
extern int	__wrap_posix_fallocate(int fd, off_t offset, off_t len);
extern int	__wrap_madvise(void *address, size_t length, int advice);

static void *
Remember(void *block, size_t size)
{
	if (!running || block == NULL)
		return block;
	pthread_mutex_lock(&lock);
	fuzz_allocated += size;
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
	return Remember(__real_malloc(size), size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return Remember(__real_calloc(n, size), n * size);
}

void *
__wrap_realloc(void *block, size_t size)
{
	Forget(block);
	return Remember(__real_realloc(block, size), size);
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
	return Remember(__real_strdup(string), 0);
}

int
__wrap_posix_memalign(void **block, size_t alignment, size_t size)
{
	int			rc = __real_posix_memalign(block, alignment, size);

	if (rc == 0)
		Remember(*block, size);
	return rc;
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

void
__wrap_set_pglocale_pgservice(const char *argv0, const char *app)
{
}

/* Answers "postgres ... -C NAME".  Several of these may be open at a time. */
FILE *
__wrap_popen(const char *command, const char *type)
{
	const char *name = strrchr(command, ' ') + 1;
	FILE	   *answer = fmemopen(NULL, MAXPGPATH, "w+");

	if (strcmp(name, "-V") == 0)
		fputs("postgres (PostgreSQL) " PG_VERSION, answer);
	else if (strstr(name, "pcache.mode"))
		fputs(fuzz_current->nbuffers == 0 ? "off" : "always", answer);
	else if (strstr(name, "pcache.size"))
		fputs("0", answer);
	else if (strstr(name, "pcache.directory"))
		fputs(fuzz_pool_directory, answer);
	else if (strstr(name, "shared_buffers"))
		fprintf(answer, "%d", fuzz_current->nbuffers);
	else if (strstr(name, "shared_preload_libraries"))
		fputs("pg_pcache", answer);
	else if (strstr(name, "pcache.on_media_unknown"))
		fputs(fuzz_current->facts & FUZZ_COLD_ON_UNKNOWN ? "cold" : "use", answer);
	fputc('\n', answer);
	rewind(answer);
	return answer;
}

/* A server that cannot read its configuration fails. */
int
__wrap_pclose(FILE *pipe)
{
	fclose(pipe);
	return fuzz_current->nbuffers < 0 ? 256 : 0;
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
	if (offset + len > FUZZ_MAX_POOL_SIZE)
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

/* To be called once, when the cluster is there. */
void
FuzzStartProcess(void)
{
	/* a file that was cut off gets the size that its superblock says */
	struct rlimit file_size = {4 * FUZZ_MAX_POOL_SIZE, 4 * FUZZ_MAX_POOL_SIZE};

	output_fd = memfd_create("output", 0);
	if (output_fd < 0 || dup2(output_fd, STDOUT_FILENO) < 0)
		FuzzGiveUp("output");
	if (setrlimit(RLIMIT_FSIZE, &file_size) < 0)
		FuzzGiveUp("RLIMIT_FSIZE");
	main_thread = pthread_self();
	tell = getenv("FUZZ_TELL") != NULL;
}

/* Run the tool, and clean up after it. */
int
FuzzRun(const char *const *args)
{
	char	   *argv[MAX_ARGS + 4] = {"pg_pcache", "-D", fuzz_data_directory};
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
	fuzz_allocated = 0;
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
	if (chdir(fuzz_data_directory) < 0)
		FuzzGiveUp(fuzz_data_directory);
	fflush(stdout);
	return exit_status;
}

/*
 * What the run has printed is in fuzz_output from now on.  JSON goes to
 * programs, so it must be JSON whatever the files say.
 */
void
FuzzCheckOutput(const char *const *args, int status)
{
	off_t		len = lseek(STDOUT_FILENO, 0, SEEK_CUR);
	bool		json = false;

	FuzzExpect(status >= 0 && status <= 3);
	for (int i = 0; args[i] != NULL; i++)
		json = json || strcmp(args[i], "--json") == 0;
	free(fuzz_output);
	fuzz_output = malloc(len + 1);
	FuzzExpect(PCacheReadExact(STDOUT_FILENO, fuzz_output, len, 0));
	fuzz_output[len] = '\0';
	if (tell)
	{
		fprintf(stderr, "pg_pcache");
		for (int i = 0; args[i] != NULL; i++)
			fprintf(stderr, " %s", args[i]);
		fprintf(stderr, ": exit status %d\n%s\n", status, fuzz_output);
	}
	if (json && status != 1)
	{
		JsonLexContext *lex;

		lex = makeJsonLexContextCstringLen(NULL, fuzz_output, len, PG_SQL_ASCII, true);
		FuzzExpect(pg_parse_json(lex, &nullSemAction) == JSON_SUCCESS);
		freeJsonLexContext(lex);
	}
	if (ftruncate(STDOUT_FILENO, 0) < 0 || lseek(STDOUT_FILENO, 0, SEEK_SET) < 0)
		abort();
}
