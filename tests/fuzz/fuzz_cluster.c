/*-------------------------------------------------------------------------
 *
 * fuzz_cluster.c
 *	  The cluster of a fuzzer that runs pg_pcache, on tmpfs.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_cluster.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"

#define FREE_SLOTS			256
#define CONTROL_FILE		"global/pg_control"

char		fuzz_data_directory[MAXPGPATH];
char		fuzz_pool_path[MAXPGPATH];

char		fuzz_pool_directory[MAXPGPATH];
static int	control_fd;
static bool pool_is_sound;		/* it has the shape that we gave it */
static RelPathStr written_relations[FUZZ_DESCRIPTORS];
static int	n_written_relations;

void
FuzzGiveUp(const char *what)
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
		FuzzGiveUp(name);
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
				FuzzGiveUp(path.str);
		}
	}
}

/*
 * The files are made when the target starts, which is after the clean stop of most inputs.
 * Nobody has written to them since.
 */
#define TELL_OLD(function) \
extern int __real_##function(const char *path, struct stat *st); \
extern int __wrap_##function(const char *path, struct stat *st); \
int \
__wrap_##function(const char *path, struct stat *st) \
{ \
	int			rc = __real_##function(path, st); \
	if (rc == 0) \
		st->st_mtim.tv_sec = 0; \
	return rc; \
}

TELL_OLD(stat)
TELL_OLD(lstat)

/* Make the cluster, and go to its data directory.  To be called once. */
void
FuzzMakeCluster(void)
{
	const char *directory;

	if (geteuid() == 0)
	{
		fprintf(stderr, "pg_pcache does nothing for root; see tools/as-user\n");
		exit(1);
	}
	directory = FuzzMakeDirectory();
	snprintf(fuzz_data_directory, sizeof(fuzz_data_directory), "%s/data", directory);
	snprintf(fuzz_pool_directory, sizeof(fuzz_pool_directory), "%s/pool", directory);
	snprintf(fuzz_pool_path, sizeof(fuzz_pool_path), "%s/%s", fuzz_pool_directory, PCACHE_POOL_FILE);
	if (mkdir(fuzz_data_directory, 0700) < 0 || mkdir(fuzz_pool_directory, 0700) < 0 ||
		chdir(fuzz_data_directory) < 0 || mkdir("pg_wal", 0700) < 0 ||
		mkdir("pg_tblspc", 0700) < 0 || mkdir("global", 0700) < 0 ||
		mkdir("base", 0700) < 0 || mkdir("base/5", 0700) < 0)
		FuzzGiveUp(fuzz_data_directory);
	MakeRelations();
	control_fd = open(CONTROL_FILE, O_RDWR | O_CREAT, 0600);
	if (control_fd < 0 || ftruncate(control_fd, PG_CONTROL_FILE_SIZE) < 0)
		FuzzGiveUp(CONTROL_FILE);
}

/* Is there room for a page in the file that WritePool() makes? */
static bool
IsPlaceOfPage(const FuzzInput *input, uint64 offset)
{
	return offset >= PCACHE_DESCRIPTORS_OFFSET + sizeof(input->descs) &&
		offset <= FUZZ_MAX_POOL_SIZE - BLCKSZ &&
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
	uint64		notes[3];
	uint64		headers_offset;
	struct stat st;
	uint64		size = Min(input->file_size, FUZZ_MAX_POOL_SIZE);
	int			fd;

	if (!pool_is_sound || (input->facts & FUZZ_NO_POOL))
		unlink(fuzz_pool_path);
	pool_is_sound = false;
	if (input->facts & FUZZ_NO_POOL)
		return;

	fd = open(fuzz_pool_path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		FuzzGiveUp(fuzz_pool_path);
	if (st.st_size != size && ftruncate(fd, 0) < 0)
		FuzzGiveUp(fuzz_pool_path);
	if (st.st_size != size)
	{
		static const char zeros[PCACHE_DESCRIPTORS_OFFSET];
		PCacheDescriptor descs[FREE_SLOTS] = {0};

		for (int i = 0; i < FREE_SLOTS; i++)
			descs[i].seq = PCACHE_DESC_FREE_SEQ;
		FuzzWriteFile(fd, descs, sizeof(descs), PCACHE_DESCRIPTORS_OFFSET);
		/* a hole there would be a reason to keep nothing */
		FuzzWriteFile(fd, zeros, sizeof(zeros), 0);
	}
	FuzzExpandSuperblock(&input->copy, &sb);
	FuzzWriteFile(fd, &sb, sizeof(sb), PCACHE_COPY_OFFSET);
	FuzzExpandSuperblock(&input->first, &sb);
	FuzzWriteFile(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET);
	FuzzWriteFile(fd, input->sightings, sizeof(input->sightings), PCACHE_SIGHTING_OFFSET);
	FuzzMakeSuspect(input, &suspect);
	FuzzWriteFile(fd, &suspect, sizeof(suspect), PCACHE_SUSPECT_OFFSET);
	notes[0] = (input->facts & FUZZ_READ_ERRORS) != 0;
	notes[1] = FuzzRolledBackAt(input);
	notes[2] = (input->facts & FUZZ_NOT_SYNCED) != 0;
	FuzzWriteFile(fd, notes, sizeof(notes), PCACHE_READ_ERRORS_OFFSET);
	FuzzWriteFile(fd, input->errors, sizeof(input->errors), PCACHE_MEMORY_ERRORS_OFFSET);
	FuzzWriteFile(fd, input->descs, sizeof(input->descs), PCACHE_DESCRIPTORS_OFFSET);
	headers_offset = PCacheComputeGeometry(sb.capacity, PCACHE_ALIGNMENT).headers_offset;
	if (IsPlaceOfPage(input, headers_offset))
		FuzzWriteFile(fd, input->headers, sizeof(input->headers), headers_offset);
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
		FuzzGiveUp(fuzz_pool_path);
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
	int			pool_fd = open(fuzz_pool_path, O_WRONLY);

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
void
FuzzEmptyRelations(void)
{
	while (n_written_relations > 0)
	{
		const char *path = written_relations[--n_written_relations].str;

		if (truncate(path, 0) < 0 ||
			truncate(path, FUZZ_RELATION_BLOCKS * BLCKSZ) < 0)
			FuzzGiveUp(path);
	}
}

/* Make the cluster that of an input, with the pages of its relations or without. */
void
FuzzWriteCluster(const FuzzInput *input, bool with_pages)
{
	static int	last_files = -1;
	int			files = input->facts &
		(FUZZ_BACKUP_LABEL | FUZZ_RECOVERY_SIGNAL | FUZZ_STANDBY_SIGNAL);

	/* it may have been dropped */
	if (mkdir(fuzz_pool_directory, 0700) < 0 && errno != EEXIST)
		FuzzGiveUp(fuzz_pool_directory);
	FuzzWriteFile(control_fd, &input->control, sizeof(input->control), 0);
	if (files != last_files)
	{
		SetFile("backup_label", (files & FUZZ_BACKUP_LABEL) != 0);
		SetFile("recovery.signal", (files & FUZZ_RECOVERY_SIGNAL) != 0);
		SetFile("standby.signal", (files & FUZZ_STANDBY_SIGNAL) != 0);
		last_files = files;
	}
	FuzzPlaceWal(input);
	WritePool(input);
	if (with_pages)
		WritePages(input);
}

/* The next input finds no pool that it might use again. */
void
FuzzForgetPool(void)
{
	pool_is_sound = false;
}
