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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"

static const char *directory;
static int	pool_fd;
static int	state_fd;

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	directory = FuzzMakeDirectory();
	pool_fd = memfd_create("pool", MFD_CLOEXEC);
	state_fd = open(PCACHE_STATE_FILE, O_RDWR | O_CREAT, 0600);
	if (pool_fd < 0 || state_fd < 0 || mkdir("pg_wal", 0700) < 0)
	{
		fprintf(stderr, "could not create the files of the fuzzer: %m\n");
		exit(1);
	}
	FuzzMakeRelations();
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
	report->blocks = PCACHE_MEDIA_CLEAN;
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

	FuzzExpect(sb->format_version == PCACHE_FORMAT_VERSION);
	FuzzExpect(sb->block_size == BLCKSZ);
	FuzzExpect(sb->capacity <= PCACHE_MAX_CAPACITY);
	FuzzExpect(sb->slots_used <= sb->capacity);
	FuzzExpect(sb->blocks_offset >= PCACHE_DESCRIPTORS_OFFSET +
			   sb->capacity * sizeof(PCacheDescriptor));
	FuzzExpect(sb->blocks_offset + sb->capacity * BLCKSZ <= facts->file_size);
	FuzzExpect(sb->system_identifier == control->system_identifier);
	FuzzExpect(facts->state != NULL);
	FuzzExpect(memcmp(sb->pool_uuid, facts->state->pool_uuid, PCACHE_UUID_LEN) == 0);
	FuzzExpect(sb->incarnation == facts->state->incarnation);
	FuzzExpect(sb->data_checksum_version == control->data_checksum_version);
	FuzzExpect(!facts->backup_label && !facts->recovery_target);
	FuzzExpect(!media->bad.truncated);
	if (facts->cold_on_media_unknown)
		FuzzExpect(media->blocks != PCACHE_MEDIA_UNKNOWN);
	if (sb->state == PCACHE_STATE_CLEAN)
	{
		FuzzExpect(control->state == DB_SHUTDOWNED ||
				   control->state == DB_SHUTDOWNED_IN_RECOVERY);
		FuzzExpect(sb->confirmed.location == control->checkPoint);
		FuzzExpect(sb->confirmed.control_crc == control->crc);
	}
	else
	{
		FuzzExpect(sb->state == PCACHE_STATE_DIRTY);
		FuzzExpect(sb->mode == PERSISTENT_CACHE_ALWAYS);
		FuzzExpect(sb->confirmed.location == control->checkPoint ||
				   sb->pending.location == control->checkPoint);
		FuzzExpect(facts->watermark.flushed >= control->checkPointCopy.redo);
		FuzzExpect(facts->watermark.timeline == facts->recovery_timeline);
		if (memcmp(sb->boot_id, facts->boot_id, PCACHE_UUID_LEN) != 0)
			FuzzExpect(sb->fs_kind == PCACHE_FS_FSDAX);
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
	if (desc->flags & PCACHE_DESC_PERMANENT)
		FuzzExpect(desc->page_lsn <= facts->lsn_limit);
	else
		FuzzExpect(!facts->drop_unlogged);
	FuzzExpect(!PCacheMediaRangeIsBad(facts->media,
									  facts->blocks_offset + (uint64) slot * BLCKSZ,
									  BLCKSZ));
}

/* Have the state file read, unless it is the same as the last time. */
static PCacheStateFileResult
ReadState(const FuzzInput *input, PCacheStateFile *state)
{
	static char last_text[FUZZ_STATE_LEN];
	static size_t last_len = 0;
	static PCacheStateFile last_state;
	static PCacheStateFileResult last_result = PCACHE_STATEFILE_ERROR;
	char		text[FUZZ_STATE_LEN + MAXPGPATH];
	PCacheError err;

	if (input->state_len != last_len ||
		memcmp(input->state, last_text, last_len) != 0)
	{
		size_t		len = FuzzExpandState(input, directory, text, sizeof(text));

		FuzzWriteFile(state_fd, text, len, 0);
		if (ftruncate(state_fd, len) < 0)
			abort();
		last_result = PCacheStateFileRead(".", &last_state, &err);
		last_len = input->state_len;
		memcpy(last_text, input->state, last_len);
	}
	*state = last_state;
	return last_result;
}

static void
ScanPages(const FuzzInput *input, const PCacheSuperblock *sb,
		  const PCacheGateFacts *facts, const PCacheMediaReport *media)
{
	static struct PCacheRelSizes *sizes = NULL;
	static int	n_scans = 0;
	PCachePageFacts page_facts = {0};
	PCacheDescriptor descs[FUZZ_DESCRIPTORS];

	/* the files are the same in all runs, so this saves most of the calls */
	if (n_scans++ % 64 == 0)
	{
		if (sizes != NULL)
			PCacheRelSizesFree(sizes);
		sizes = PCacheRelSizesCreate();
	}

	page_facts.lsn_limit = PCacheLsnLimit(sb, facts);
	page_facts.completed_epoch = PCacheCompletedEpoch(sb, facts->control);
	page_facts.drop_unlogged = facts->control->state != DB_SHUTDOWNED;
	page_facts.sizes = sizes;
	page_facts.media = media;
	page_facts.blocks_offset = sb->blocks_offset;
	FuzzExpect(PCacheReadDescriptors(pool_fd, 0, FUZZ_DESCRIPTORS, descs));
	for (uint32 slot = 0; slot < FUZZ_DESCRIPTORS; slot++)
	{
		PCachePageVerdict verdict = PCachePageGate(&descs[slot], slot, &page_facts);

		(void) PCachePageIsDirty(&descs[slot], &page_facts);
		FuzzExpect(PCachePageVerdictName(verdict)[0] != '\0');
		if (verdict == PCACHE_PAGE_KEPT)
			CheckKeptPage(&descs[slot], slot, &page_facts);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzInput	input;
	PCacheSuperblock first;
	PCacheSuperblock copy;
	PCacheSuperblock chosen;
	PCacheSuperblockSource source;
	PCacheStateFile state;
	PCacheStateFileResult state_result;
	PCacheGateFacts facts = {0};
	PCacheMediaReport media;
	PCacheError err;
	PCacheVerdict verdict;
	char		why[256];

	FuzzWatch();
	FuzzLoad(&input, data, size);

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
	FuzzWriteFile(pool_fd, input.errors, sizeof(input.errors),
				  PCACHE_MEMORY_ERRORS_OFFSET);
	FuzzWriteFile(pool_fd, input.descs, sizeof(input.descs),
				  PCACHE_DESCRIPTORS_OFFSET);
	MakeMediaReport(&input, &chosen, &media);
	PCacheAddMemoryErrors(pool_fd, &media);
	CheckRanges(&media);
	(void) PCacheMediaCompareDimms(&chosen, &media, why, sizeof(why));
	if (PCacheWatermarkChoose(input.watermarks, &facts.watermark))
		FuzzExpect(facts.watermark.crc == PCacheWatermarkCrc(&facts.watermark));
	else
		facts.watermark.flushed = 0;

	/* the cluster */
	state_result = ReadState(&input, &state);
	if (state_result == PCACHE_STATEFILE_OK)
	{
		FuzzExpect(is_absolute_path(state.directory));
		FuzzExpect(state.capacity > 0);
		FuzzExpect(PCacheFsKindName(state.fs_kind)[0] != '\0');
	}
	FuzzPlaceWal(&input);

	facts.control = &input.control;
	facts.state = state_result == PCACHE_STATEFILE_OK &&
		!(input.facts & FUZZ_NO_STATE_FILE) ? &state : NULL;
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
	FuzzExpect((verdict.refusal == PCACHE_WARM) == (verdict.detail[0] == '\0'));
	if (verdict.refusal == PCACHE_WARM)
		CheckWarmPool(&chosen, &facts, &media);
	if (chosen.format_version == PCACHE_FORMAT_VERSION &&
		PCacheGeometryGate(&chosen, input.file_size).refusal == PCACHE_WARM)
		ScanPages(&input, &chosen, &facts, &media);

	PCacheMediaReportFree(&media);
	return 0;
}
