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
#include "storage/pcache_fs.h"
#include "storage/pcache_suspect.h"

/*
 * Files are in memory: the functions that the linker puts before the real
 * ones (ld --wrap) know those that the gates ask for.  A system call takes
 * longer than most of the gates.
 */
#define POOL_FD		100000
#define STATE_FD	100001
#define WAL_FD		100002

static const FuzzInput *current;	/* NULL: it is libFuzzer who asks */
static char state_text[FUZZ_STATE_LEN + MAXPGPATH];
static size_t state_len;
static char wal_path[MAXPGPATH];	/* "" if there is no WAL */
static off_t wal_end;			/* in that segment */
static bool wal_is_open;

static uint64 n_verdicts[PCACHE_NUM_REFUSALS];
static uint64 n_page_verdicts[PCACHE_NUM_PAGE_VERDICTS];

extern int	__real_open(const char *path, int flags,...);
extern int	__real_close(int fd);
extern ssize_t __real_read(int fd, void *buf, size_t len);
extern ssize_t __real_pread(int fd, void *buf, size_t len, off_t offset);
extern int	__real_stat(const char *path, struct stat *st);

extern int	__wrap_open(const char *path, int flags,...);
extern int	__wrap_close(int fd);
extern ssize_t __wrap_read(int fd, void *buf, size_t len);
extern ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t offset);
extern int	__wrap_stat(const char *path, struct stat *st);

int
__wrap_open(const char *path, int flags,...)
{
	if (current == NULL)
	{
		va_list		ap;
		int			mode;

		va_start(ap, flags);
		mode = (flags & O_CREAT) ? va_arg(ap, int) : 0;
		va_end(ap);
		return __real_open(path, flags, mode);
	}
	FuzzExpect(flags == (O_RDONLY | O_CLOEXEC));
	if (strcmp(path, "./" PCACHE_RECORD_FILE) == 0)
		return STATE_FD;
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
	if (current == NULL)
		return __real_close(fd);
	FuzzExpect(fd == STATE_FD || fd == WAL_FD);
	if (fd == WAL_FD)
		wal_is_open = false;
	return 0;
}

ssize_t
__wrap_read(int fd, void *buf, size_t len)
{
	if (current == NULL)
		return __real_read(fd, buf, len);
	FuzzExpect(fd == STATE_FD);
	len = Min(len, state_len);
	memcpy(buf, state_text, len);
	return len;
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
	if (offset == PCACHE_COPY_NOTES_OFFSET)
	{
		FuzzExpect(len == PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote));
		FuzzMakeCopyNotes(current, buf);
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

/*
 * What the pool must say of pg_control: what it was, or was about to become.
 * Returns the epoch that goes with it.
 */
static uint64
CheckControlSeen(const PCacheControlSeen seen[2], const ControlFileData *control)
{
	const PCacheControlSeen *pending = &seen[0];
	const PCacheControlSeen *confirmed = &seen[1];
	bool		is_confirmed = confirmed->number > 0 &&
		confirmed->crc == PCacheControlSeenCrc(confirmed);

	if (is_confirmed &&
		confirmed->contents == PCacheControlConfirmed(control, 1, 0).contents &&
		confirmed->time == control->time &&
		confirmed->control_crc == control->crc)
		return confirmed->completed_epoch;
	FuzzExpect(pending->number > 0);
	FuzzExpect(pending->crc == PCacheControlSeenCrc(pending));
	FuzzExpect(!is_confirmed || pending->number > confirmed->number);
	FuzzExpect(pending->contents == PCacheControlConfirmed(control, 1, 0).contents);
	FuzzExpect(control->time == pending->time || control->time - 1 == pending->time);
	return pending->completed_epoch;
}

/* What must be true of a pool whose pages are kept. */
static void
CheckWarmPool(const PCacheSuperblock *sb, const PCacheGateFacts *facts,
			  const PCacheMediaReport *media)
{
	const ControlFileData *control = facts->control;

	FuzzExpect(sb->format_version == PCACHE_FORMAT_VERSION);
	FuzzExpect(sb->block_size == BLCKSZ);
	FuzzExpect(sb->capacity <= PCACHE_MAX_CAPACITY);
	FuzzExpect(sb->slots_used <= sb->capacity);
	FuzzExpect(sb->blocks_offset >= PCACHE_DESCRIPTORS_OFFSET +
			   sb->capacity * sizeof(PCacheDescriptor));
	/* the file may have been cut off behind the descriptors */
	FuzzExpect(sb->blocks_offset <= facts->file_size);
	FuzzExpect(facts->file_size <= sb->pool_size);
	FuzzExpect(sb->blocks_offset + sb->capacity * BLCKSZ <= sb->pool_size);
	FuzzExpect(sb->system_identifier == control->system_identifier);
	FuzzExpect(facts->record != NULL);
	FuzzExpect(memcmp(sb->pool_uuid, facts->record->pool_uuid, PCACHE_UUID_LEN) == 0);
	FuzzExpect(sb->incarnation == facts->record->incarnation);
	FuzzExpect(!facts->backup_label && !facts->recovery_target);
	FuzzExpect(!media->bad.truncated);
	FuzzExpect(!(current->facts & (FUZZ_SUSPECT | FUZZ_SUSPECT_DAMAGED)));
	FuzzExpect(!PCacheMediaRangeIsBad(media, PCACHE_SUSPECT_OFFSET, sizeof(PCacheSuspect)));
	FuzzExpect(!(current->facts & FUZZ_COPY_NOTE_DAMAGED));
	FuzzExpect(facts->copies[PCACHE_MAX_COPY_NOTES - 1].lsn == 0 ||
			   facts->copies[PCACHE_MAX_COPY_NOTES - 1].lsn < control->checkPointCopy.redo);
	if (facts->cold_on_media_unknown)
		FuzzExpect(media->blocks != PCACHE_MEDIA_UNKNOWN);
	if (sb->state == PCACHE_STATE_CLEAN)
	{
		FuzzExpect(control->state == DB_SHUTDOWNED ||
				   control->state == DB_SHUTDOWNED_IN_RECOVERY);
		FuzzExpect(sb->data_checksum_version == control->data_checksum_version);
		FuzzExpect(sb->saved.location == control->checkPoint);
		FuzzExpect(sb->saved.control_crc == control->crc);
	}
	else
	{
		FuzzExpect(sb->state == PCACHE_STATE_DIRTY);
		FuzzExpect(sb->mode == PERSISTENT_CACHE_ALWAYS);
		(void) CheckControlSeen(facts->control_seen, control);
		FuzzExpect(facts->watermark.flushed >= control->checkPointCopy.redo);
		FuzzExpect(facts->watermark.timeline == facts->recovery_timeline);
		if (memcmp(sb->boot_id, facts->boot_id, PCACHE_UUID_LEN) != 0)
			FuzzExpect(sb->fs_kind == PCACHE_FS_FSDAX);
	}
}

/* What must be true of a page that is kept. */
static void
CheckKeptPage(const PCacheDescriptor *desc, uint32 slot,
			  const PCachePageFacts *facts, const PCacheCopyNote *copies)
{
	FuzzExpect(desc->seq % 2 == 0);
	FuzzExpect(desc->slot == slot);
	FuzzExpect(desc->crc == PCacheDescriptorCrc(desc));
	FuzzExpect(desc->fork_number >= MAIN_FORKNUM && desc->fork_number <= INIT_FORKNUM);
	FuzzExpect(desc->block_number < FUZZ_RELATION_BLOCKS);
	for (uint32 i = 0; i < PCACHE_MAX_COPY_NOTES - 1; i++)
		FuzzExpect(copies[i].lsn == 0 || copies[i].lsn < facts->redo ||
				   copies[i].db_oid != desc->db_oid);
	if (desc->flags & PCACHE_DESC_PERMANENT)
	{
		FuzzExpect(desc->page_lsn <= facts->lsn_limit);
		FuzzExpect((desc->flags & PCACHE_DESC_NAMES_BLOCKS) == 0 ||
				   !facts->host_restarted || !PCachePageIsDirty(desc, facts));
	}
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

	page_facts.lsn_limit = PCacheLsnLimit(sb, facts);
	PCacheSetCompleted(&page_facts, sb, facts);
	PCacheSetCopied(&page_facts, facts);
	page_facts.drop_unlogged = facts->control->state != DB_SHUTDOWNED;
	page_facts.host_restarted = PCacheHostRestarted(sb, facts);
	page_facts.sizes = PCacheRelSizesCreate(0);
	page_facts.media = media;
	page_facts.blocks_offset = sb->blocks_offset;
	page_facts.file_size = facts->file_size;
	FuzzExpect(PCacheReadDescriptors(POOL_FD, 0, FUZZ_DESCRIPTORS, descs));
	for (uint32 slot = 0; slot < FUZZ_DESCRIPTORS; slot++)
	{
		PCachePageVerdict verdict = PCachePageGate(&descs[slot], slot, &page_facts);

		if (!PCachePageIsDirty(&descs[slot], &page_facts))
		{
			FuzzExpect(sb->state == PCACHE_STATE_CLEAN ||
					   descs[slot].dirty_epoch < CheckControlSeen(facts->control_seen, facts->control));
			FuzzExpect((descs[slot].flags & PCACHE_DESC_PERMANENT) == 0 ||
					   descs[slot].page_lsn <= facts->control->checkPointCopy.redo);
		}
		FuzzExpect(PCachePageVerdictName(verdict)[0] != '\0');
		FuzzExpect(verdict < PCACHE_NUM_PAGE_VERDICTS);
		n_page_verdicts[verdict]++;
		if (verdict == PCACHE_PAGE_KEPT)
			CheckKeptPage(&descs[slot], slot, &page_facts, facts->copies);
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
	PCacheRecord record;
	PCacheRecordResult record_result;
	PCacheGateFacts facts = {0};
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
	if (PCacheWatermarkChoose(input.watermarks, &facts.watermark))
		FuzzExpect(facts.watermark.crc == PCacheWatermarkCrc(&facts.watermark));
	else
		facts.watermark.flushed = 0;
	memcpy(facts.control_seen, input.control_seen, sizeof(facts.control_seen));
	PCacheSuspectRead(POOL_FD, &facts.suspect);
	FuzzExpect(PCacheSuspectIsIntact(&facts.suspect) ==
			   ((input.facts & (FUZZ_SUSPECT | FUZZ_SUSPECT_DAMAGED)) == FUZZ_SUSPECT));

	PCacheCopyNotesRead(POOL_FD, facts.copies);
	FuzzExpect(PCacheCopyNotesAreIntact(facts.copies) ==
			   !(input.facts & FUZZ_COPY_NOTE_DAMAGED));

	/* the cluster */
	state_len = FuzzExpandState(&input, "/dev/shm/pool", state_text, sizeof(state_text));
	record_result = PCacheRecordRead(".", &record, &err);
	if (record_result == PCACHE_RECORD_OK)
	{
		FuzzExpect(is_absolute_path(record.directory));
		FuzzExpect(record.capacity > 0);
		FuzzExpect(PCacheFsKindName(record.fs_kind)[0] != '\0');
	}
	wal_end = FuzzWalPlace(&input, wal_path);

	facts.control = &input.control;
	facts.record = record_result == PCACHE_RECORD_OK &&
		!(input.facts & FUZZ_NO_RECORD) ? &record : NULL;
	facts.file_size = input.file_size;
	facts.backup_label = (input.facts & FUZZ_BACKUP_LABEL) != 0;
	facts.recovery_target = (input.facts & FUZZ_RECOVERY_SIGNAL) != 0;
	facts.media = &media;
	facts.cold_on_media_unknown = (input.facts & FUZZ_COLD_ON_UNKNOWN) != 0;
	facts.recovery_timeline = input.recovery_timeline;
	memcpy(facts.boot_id, first.boot_id, PCACHE_UUID_LEN);
	if (input.facts & FUZZ_OTHER_BOOT)
		facts.boot_id[0]++;

	/* not only if a gate before it asks for it */
	(void) PCacheWitnessMatches(&facts.watermark, input.control.xlog_seg_size, &err);

	verdict = PCachePoolGate(&chosen, &facts);
	FuzzExpect(PCacheRefusalName(verdict.refusal)[0] != '\0');
	FuzzExpect(verdict.refusal < PCACHE_NUM_REFUSALS);
	n_verdicts[verdict.refusal]++;
	FuzzExpect((verdict.refusal == PCACHE_WARM) == (verdict.why.message[0] == '\0'));
	if (verdict.refusal == PCACHE_WARM)
		CheckWarmPool(&chosen, &facts, &media);
	if (chosen.format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(&chosen, input.file_size).refusal == PCACHE_WARM)
		ScanPages(&input, &chosen, &facts, &media);

	PCacheMediaReportFree(&media);
	FuzzExpect(!wal_is_open);
	current = NULL;
	return 0;
}
