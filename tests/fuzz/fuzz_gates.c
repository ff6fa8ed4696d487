/*-------------------------------------------------------------------------
 *
 * fuzz_gates.c
 *	  Fuzz target: the gates that server and pg_pcache share.
 *
 * Beside what the sanitizers see, this checks by other means what the gates
 * must never let pass.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_gates.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "pcache_media_internal.h"
#include "storage/pcache_pool.h"

/*
 * Files are in memory: the functions that the linker puts before the real
 * ones (ld --wrap) know those that the gates ask for.  A system call takes
 * longer than most of the gates.
 */
#define POOL_FD		100000
#define WAL_FD		100002

static const FuzzInput *current;	/* NULL: it is libFuzzer who asks */
static char wal_path[MAXPGPATH];	/* "" if there is no WAL */
static off_t wal_end;			/* in that segment */
static bool wal_is_open;
static uint64 headers_offset;	/* in the pool */
static uint64 blocks_offset;

static uint64 n_verdicts[PCACHE_NUM_REFUSALS];
static uint64 n_page_verdicts[PCACHE_NUM_PAGE_VERDICTS];

extern int	__real_open(const char *path, int flags,...);
extern int	__real_close(int fd);
extern ssize_t __real_pread(int fd, void *buf, size_t len, off_t offset);
extern int	__real_stat(const char *path, struct stat *st);

extern int	__wrap_open(const char *path, int flags,...);
extern int	__wrap_close(int fd);
extern ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t offset);
extern int	__wrap_stat(const char *path, struct stat *st);

int
__wrap_open(const char *path, int flags,...)
{
	if (current == NULL || strncmp(path, "/proc/", strlen("/proc/")) == 0)
	{
		va_list		ap;
		int			mode;

		va_start(ap, flags);
		mode = (flags & O_CREAT) ? va_arg(ap, int) : 0;
		va_end(ap);
		return __real_open(path, flags, mode);
	}
	FuzzExpect(flags == (O_RDONLY | O_CLOEXEC));
	FuzzExpect(strncmp(path, XLOGDIR "/", strlen(XLOGDIR "/")) == 0);
	if (strcmp(path, wal_path) == 0)
	{
		FuzzExpect(!wal_is_open);
		wal_is_open = true;
		return WAL_FD;
	}
	errno = ENOENT;
	return -1;
}

int
__wrap_close(int fd)
{
	if (fd < POOL_FD)
		return __real_close(fd);
	FuzzExpect(fd == WAL_FD);
	wal_is_open = false;
	return 0;
}

/* Read from zeros with something in between; where that ends the file does. */
static ssize_t
ReadFrom(const char *bytes, off_t start, off_t end, char *buf, size_t len,
		 off_t offset)
{
	if (offset >= end)
		return 0;
	len = Min(len, end - offset);
	memset(buf, 0, len);
	for (size_t i = 0; i < len; i++)
	{
		if (offset + i >= start)
			buf[i] = bytes[offset + i - start];
	}
	return len;
}

/* The pages in the first slots are those of the input; the others are zeros. */
static ssize_t
ReadPage(off_t offset, char *buf, size_t len)
{
	size_t		slot = offset / BLCKSZ;

	FuzzExpect(offset % BLCKSZ == 0 && len <= BLCKSZ && slot < FUZZ_DESCRIPTORS);
	memset(buf, 0, len);
	if (slot < FUZZ_PAGES)
		memcpy(buf, current->pages[slot].head, Min(len, FUZZ_PAGE_PART));
	return len;
}

ssize_t
__wrap_pread(int fd, void *buf, size_t len, off_t offset)
{
	if (current == NULL)
		return __real_pread(fd, buf, len, offset);
	if (fd == WAL_FD)
		return ReadFrom(current->wal, wal_end - PCACHE_WITNESS_LEN, wal_end,
						buf, len, offset);
	FuzzExpect(fd == POOL_FD);
	if (offset == PCACHE_MEMORY_ERRORS_OFFSET)
	{
		memset(buf, 0, len);
		memcpy(buf, current->errors, sizeof(current->errors));
		return len;
	}
	if (offset == PCACHE_SUSPECT_OFFSET)
	{
		FuzzExpect(len == sizeof(PCacheSuspect));
		FuzzMakeSuspect(current, buf);
		return len;
	}
	if (offset == PCACHE_SIGHTING_OFFSET)
	{
		FuzzExpect(len == sizeof(current->sightings));
		memcpy(buf, current->sightings, len);
		return len;
	}
	if (offset >= (off_t) blocks_offset)
		return ReadPage(offset - blocks_offset, buf, len);
	if (offset >= (off_t) headers_offset)
	{
		FuzzExpect(len == PCACHE_HEADER_SIZE);
		memcpy(buf, current->headers[(offset - headers_offset) / PCACHE_HEADER_SIZE], len);
		return len;
	}
	FuzzExpect(offset == PCACHE_DESCRIPTORS_OFFSET && len == sizeof(current->descs));
	memcpy(buf, current->descs, len);
	return len;
}

/* All forks of each relation are there if its number is even. */
int
__wrap_stat(const char *path, struct stat *st)
{
	const char *name;

	if (current == NULL)
		return __real_stat(path, st);
	FuzzExpect(path[0] != '/');
	name = strrchr(path, '/');
	FuzzExpect(name != NULL);
	if (strtoul(name + 1, NULL, 10) % 2 != 0)
	{
		errno = ENOENT;
		return -1;
	}
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFREG;
	st->st_size = FUZZ_RELATION_BLOCKS * BLCKSZ;
	return 0;
}

static void
WriteCounts(void)
{
	FILE	   *file = FuzzOpenCounts();

	if (file == NULL)
		return;
	for (int i = 0; i < lengthof(n_verdicts); i++)
		fprintf(file, "pool\t%s\t%llu\n", PCacheRefusalName(i),
				(unsigned long long) n_verdicts[i]);
	for (int i = 0; i < lengthof(n_page_verdicts); i++)
		fprintf(file, "page\t%s\t%llu\n", PCachePageVerdictName(i),
				(unsigned long long) n_page_verdicts[i]);
	fclose(file);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	atexit(WriteCounts);
	return 0;
}

static void
CheckRanges(const PCacheMediaReport *report)
{
	const PCacheRangeList *bad = &report->bad;

	for (uint32 i = 0; i < bad->n_ranges; i++)
	{
		const PCacheByteRange *range = &bad->ranges[i];

		FuzzExpect(range->length > 0);
		FuzzExpect(range->length <= PG_UINT64_MAX - range->offset);
		FuzzExpect(PCacheMediaRangeIsBad(report, range->offset, 1));
		FuzzExpect(PCacheMediaRangeIsBad(report, range->offset + range->length - 1, 1));
		FuzzExpect(i == 0 || range->offset > range[-1].offset + range[-1].length);
	}
}

/* All the DIMMs that the pool remembers, or others. */
static void
MakeMediaReport(const FuzzInput *input, const PCacheSuperblock *sb,
				PCacheMediaReport *report)
{
	memset(report, 0, sizeof(*report));
	if (input->facts & FUZZ_MEDIA_UNKNOWN)
	{
		strlcpy(report->blocks_why, "fuzzer", PCACHE_MEDIA_WHY_LEN);
		return;
	}
	report->bad.truncated = (input->facts & FUZZ_MANY_BAD_BLOCKS) != 0;
	report->blocks = report->bad.truncated ? PCACHE_MEDIA_BAD : PCACHE_MEDIA_CLEAN;
	report->dimms_state = PCACHE_MEDIA_CLEAN;
	for (uint32 i = 0; i < Min(sb->n_dimms, PCACHE_MAX_DIMMS); i++)
	{
		char		id[PCACHE_DIMM_ID_LEN];

		strlcpy(id, sb->dimms[i].id, sizeof(id));
		PCacheMediaAddDimm(report, "nmem", id,
						   sb->dimms[i].unsafe_shutdowns +
						   ((input->facts & FUZZ_OTHER_DIMMS) != 0), 0);
	}
}

/* What must be true of a pool whose pages are kept. */
static void
CheckWarmPool(const PCacheSuperblock *sb, const PCacheGateFacts *facts,
			  const PCacheMediaReport *media)
{
	const ControlFileData *control = facts->control;
	const PCacheSighting *seen = &facts->sighting;
	bool		other_boot = PCacheHostRestarted(sb, facts);

	FuzzExpect(sb->format_version == PCACHE_FORMAT_VERSION);
	FuzzExpect(sb->block_size == BLCKSZ);
	FuzzExpect(sb->capacity <= PCACHE_MAX_CAPACITY);
	FuzzExpect(sb->slots_used <= sb->capacity);
	FuzzExpect(sb->blocks_offset >= PCACHE_DESCRIPTORS_OFFSET +
			   sb->capacity * (sizeof(PCacheDescriptor) + PCACHE_HEADER_SIZE));
	/* the file may have been cut off behind the descriptors */
	FuzzExpect(sb->blocks_offset <= facts->file_size);
	FuzzExpect(facts->file_size <= sb->pool_size);
	FuzzExpect(sb->blocks_offset + sb->capacity * BLCKSZ <= sb->pool_size);
	FuzzExpect(sb->system_identifier == control->system_identifier);
	FuzzExpect(!facts->backup_label && !facts->recovery_target);
	FuzzExpect(!media->bad.truncated);
	FuzzExpect(!(current->facts & (FUZZ_SUSPECT | FUZZ_SUSPECT_DAMAGED)));
	FuzzExpect(!PCacheMediaRangeIsBad(media, PCACHE_SUSPECT_OFFSET, sizeof(PCacheSuspect)));
	FuzzExpect(!facts->read_errors_ignored);
	FuzzExpect(facts->rolled_back_at < control->checkPointCopy.redo);
	if (facts->cold_on_media_unknown)
		FuzzExpect(media->blocks != PCACHE_MEDIA_UNKNOWN);
	if (sb->state == PCACHE_STATE_CLEAN)
	{
		FuzzExpect(control->state == sb->control_state);
		FuzzExpect(!other_boot || control->state == DB_SHUTDOWNED ||
				   control->state == DB_SHUTDOWNED_IN_RECOVERY);
		FuzzExpect(sb->data_checksum_version == control->data_checksum_version);
		FuzzExpect(sb->saved.location == control->checkPoint);
		FuzzExpect(sb->saved.control_crc == control->crc);
	}
	else
	{
		FuzzExpect(sb->state == PCACHE_STATE_DIRTY);
		FuzzExpect(sb->mode == PERSISTENT_CACHE_ALWAYS);
		if (other_boot)
		{
			FuzzExpect(sb->fs_kind == PCACHE_FS_FSDAX);
			FuzzExpect(sb->power_rule != PCACHE_POWER_COLD && !facts->not_synced);
			FuzzExpect(control->data_checksum_version != 0 || control->wal_log_hints);
			FuzzExpect(control->minRecoveryPoint >= seen->synced_recovery_point);
			if (sb->power_rule == PCACHE_POWER_HEADERS)
				FuzzExpect(seen->synced_generation == PCacheGenerationOf(control) ||
						   seen->generation == PCacheGenerationOf(control));
		}
		else
		{
			FuzzExpect(seen->generation == PCacheGenerationOf(control));
			FuzzExpect(control->minRecoveryPoint >= seen->min_recovery_point);
			FuzzExpect(wal_path[0] != '\0');
			FuzzExpect(facts->pool_inode == seen->pool_inode);
		}
	}
}

/* What must be true of a page that is kept. */
static void
CheckKeptPage(const PCacheDescriptor *desc, uint32 slot,
			  const PCachePageFacts *facts)
{
	FuzzExpect(desc->seq % 2 == 0);
	FuzzExpect(desc->slot == slot);
	FuzzExpect(desc->crc == PCacheDescriptorCrc(desc));
	FuzzExpect(desc->fork_number >= MAIN_FORKNUM && desc->fork_number <= INIT_FORKNUM);
	FuzzExpect(desc->block_number < FUZZ_RELATION_BLOCKS);
	FuzzExpect(desc->seq == facts->generation ||
			   (desc->seq == PCACHE_DESC_SAVED_SEQ && !facts->sums_only));
	if (desc->flags & PCACHE_DESC_PERMANENT)
		FuzzExpect(facts->all_written ||
				   (desc->fork_number == MAIN_FORKNUM && desc->page_lsn < facts->redo &&
					desc->page_lsn > GIST_BUILD_LSN));
	else
		FuzzExpect(!facts->drop_unlogged);
	FuzzExpect(!PCacheMediaRangeIsBad(facts->media,
									  facts->blocks_offset + (uint64) slot * BLCKSZ,
									  BLCKSZ));
	FuzzExpect(facts->blocks_offset + (uint64) (slot + 1) * BLCKSZ <= facts->file_size);
}

static void
ScanPages(const FuzzInput *input, const PCacheSuperblock *sb,
		  const PCacheGateFacts *facts, const PCacheMediaReport *media)
{
	PCachePageFacts page_facts = {0};
	PCacheDescriptor descs[FUZZ_DESCRIPTORS];

	PCacheSetPageFacts(&page_facts, sb, facts);
	page_facts.drop_unlogged = facts->control->state != DB_SHUTDOWNED;
	page_facts.sizes = PCacheRelSizesCreate(0, false);
	page_facts.media = media;
	page_facts.blocks_offset = sb->blocks_offset;
	page_facts.file_size = facts->file_size;
	headers_offset = PCacheComputeGeometry(sb->capacity, PCACHE_ALIGNMENT).headers_offset;
	blocks_offset = sb->blocks_offset;
	FuzzExpect(PCacheReadLedger(POOL_FD, sb, page_facts.generation, 0, FUZZ_DESCRIPTORS, descs));
	for (uint32 slot = 0; slot < FUZZ_DESCRIPTORS; slot++)
	{
		PCachePageVerdict verdict = PCachePageGate(&descs[slot], slot, &page_facts);

		FuzzExpect(PCachePageVerdictName(verdict)[0] != '\0');
		FuzzExpect(verdict < PCACHE_NUM_PAGE_VERDICTS);
		n_page_verdicts[verdict]++;
		if (verdict == PCACHE_PAGE_KEPT)
			CheckKeptPage(&descs[slot], slot, &page_facts);
	}
	PCacheRelSizesFree(page_facts.sizes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzInput	input;
	PCacheSuperblock first;
	PCacheSuperblock copy;
	PCacheSuperblock chosen;
	PCacheSuperblockSource source;
	PCacheGateFacts facts = {0};
	PCacheSighting seen;
	PCacheMediaReport media;
	PCacheError err;
	PCacheVerdict verdict;
	char		why[256];

	FuzzWatch();
	FuzzLoad(&input, data, size);
	current = &input;

	/* the superblocks */
	FuzzExpandSuperblock(&input.first, &first);
	FuzzExpandSuperblock(&input.copy, &copy);
	source = PCacheSuperblockChoose(&first, &copy, &chosen, &err);
	if (source == PCACHE_SB_NONE)
		memset(&chosen, 0, sizeof(chosen));
	else if (chosen.format_version == PCACHE_FORMAT_VERSION)
	{
		PCacheSuperblock again = chosen;

		PCacheSuperblockSetCrc(&again);
		FuzzExpect(memcmp(&again, &chosen, sizeof(again)) == 0);
	}

	/* the pool's other metadata */
	MakeMediaReport(&input, &chosen, &media);
	PCacheMediaAddMemoryErrors(&media, POOL_FD);
	CheckRanges(&media);
	(void) PCacheMediaCompareDimms(&chosen, &media, why, sizeof(why));
	headers_offset = blocks_offset = PG_INT64_MAX;
	FuzzExpect(PCacheReadSighting(POOL_FD, &facts.sighting) == FuzzChooseSighting(&input, &seen));
	FuzzExpect(memcmp(&facts.sighting, &seen, sizeof(seen)) == 0);
	PCacheSuspectRead(POOL_FD, &facts.suspect);
	FuzzExpect(PCacheSuspectIsIntact(&facts.suspect) ==
			   ((input.facts & (FUZZ_SUSPECT | FUZZ_SUSPECT_DAMAGED)) == FUZZ_SUSPECT));

	/* the cluster */
	wal_end = FuzzWalPlace(&input, wal_path);

	facts.control = &input.control;
	facts.file_size = input.file_size;
	facts.backup_label = (input.facts & FUZZ_BACKUP_LABEL) != 0;
	facts.recovery_target = (input.facts & FUZZ_RECOVERY_SIGNAL) != 0;
	facts.media = &media;
	facts.cold_on_media_unknown = (input.facts & FUZZ_COLD_ON_UNKNOWN) != 0;
	facts.read_errors_ignored = (input.facts & FUZZ_READ_ERRORS) != 0;
	facts.rolled_back_at = FuzzRolledBackAt(&input);
	facts.not_synced = (input.facts & FUZZ_NOT_SYNCED) != 0;
	facts.pool_device = facts.sighting.pool_device;
	facts.pool_inode = input.facts & FUZZ_NO_POOL ? 0 : facts.sighting.pool_inode;
	(void) PCacheReadBootId(facts.boot_id);

	/* not only if a gate before it asks for it */
	(void) PCacheWitnessMatches(&facts.sighting.wal, input.control.xlog_seg_size, &err);

	verdict = PCachePoolGate(&chosen, &facts);
	FuzzExpect(PCacheRefusalName(verdict.refusal)[0] != '\0');
	FuzzExpect(verdict.refusal < PCACHE_NUM_REFUSALS);
	n_verdicts[verdict.refusal]++;
	FuzzExpect((verdict.refusal == PCACHE_WARM) == (verdict.why.message[0] == '\0'));
	if (verdict.refusal == PCACHE_WARM)
		CheckWarmPool(&chosen, &facts, &media);
	if (chosen.format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(&chosen, input.file_size).refusal == PCACHE_WARM &&
		chosen.capacity >= FUZZ_DESCRIPTORS)
		ScanPages(&input, &chosen, &facts, &media);

	PCacheMediaReportFree(&media);
	FuzzExpect(!wal_is_open);
	current = NULL;
	return 0;
}
