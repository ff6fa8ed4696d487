/*-------------------------------------------------------------------------
 *
 * fuzz_input.c
 *	  From a fuzzer's input to bytes on media, and back.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_input.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_input.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "access/xlog_internal.h"
#include "common/hashfn.h"
#include "port/pg_crc32c.h"
#include "storage/pcache_pool.h"

void
FuzzFail(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
	__builtin_trap();
}

void
FuzzExpandSuperblock(const FuzzSuperblock *packed, PCacheSuperblock *sb)
{
	memset(sb, 0, sizeof(*sb));
	memcpy(sb, packed->head, sizeof(packed->head));
	sb->crc = packed->crc;
	memcpy(sb->tail, packed->tail, sizeof(sb->tail));
}

void
FuzzPackSuperblock(const PCacheSuperblock *sb, FuzzSuperblock *packed)
{
	memcpy(packed->head, sb, sizeof(packed->head));
	packed->crc = sb->crc;
	memcpy(packed->tail, sb->tail, sizeof(sb->tail));
}

/* Have the pool be of this boot, or of another one. */
static void
SetBoot(FuzzInput *input)
{
	static uint8 boot_id[PCACHE_UUID_LEN];
	static bool known = false;
	FuzzSuperblock *superblocks[] = {&input->first, &input->copy};

	if (!known && !PCacheReadBootId(boot_id))
		abort();
	known = true;
	for (int i = 0; i < lengthof(superblocks); i++)
	{
		PCacheSuperblock sb;
		bool		intact;

		FuzzExpandSuperblock(superblocks[i], &sb);
		intact = sb.crc == PCacheCrcOf(&sb);
		memcpy(sb.boot_id, boot_id, PCACHE_UUID_LEN);
		if (input->facts & FUZZ_OTHER_BOOT)
			sb.boot_id[0]++;
		if (intact)
			PCacheSuperblockSetCrc(&sb);
		FuzzPackSuperblock(&sb, superblocks[i]);
	}
}

/* Bytes beyond the end of an input count as zeros. */
void
FuzzLoad(FuzzInput *input, const uint8_t *data, size_t size)
{
	memset(input, 0, sizeof(*input));
	memcpy(input, data, Min(size, sizeof(*input)));
	/* no compiler has to know what another value of a bool is */
	*(uint8 *) &input->control.wal_log_hints &= 1;
	SetBoot(input);
}

static uint32
Crc(const void *bytes, size_t len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, len);
	FIN_CRC32C(crc);
	return crc;
}

/* The note of a fault, with a death that depends on what else there is. */
void
FuzzMakeSuspect(const FuzzInput *input, PCacheSuspect *suspect)
{
	memset(suspect, 0, sizeof(*suspect));
	if (!(input->facts & (FUZZ_SUSPECT | FUZZ_SUSPECT_DAMAGED)))
		return;
	memcpy(suspect, input->wal, Min(sizeof(*suspect), sizeof(input->wal)));
	suspect->died |= 1;
	suspect->crc = Crc(suspect, offsetof(PCacheSuspect, crc));
	if (input->facts & FUZZ_SUSPECT_DAMAGED)
		suspect->crc++;
}

/* Where a prepared transaction was rolled back: somewhere near the redo point. */
uint64
FuzzRolledBackAt(const FuzzInput *input)
{
	if (!(input->facts & FUZZ_ROLLED_BACK))
		return 0;
	return input->control.checkPointCopy.redo + (int8) input->wal[0];
}

/* Which of the sightings counts?  Returns false if none does. */
bool
FuzzChooseSighting(const FuzzInput *input, PCacheSighting *sighting)
{
	memset(sighting, 0, sizeof(*sighting));
	for (int i = 0; i < lengthof(input->sightings); i++)
	{
		const PCacheSighting *s = &input->sightings[i];

		if (s->number > sighting->number && s->crc == Crc(s, offsetof(PCacheSighting, crc)))
			*sighting = *s;
	}
	return sighting->number != 0;
}

/* What the pool says of the cluster: as if it had been saved like that. */
static void
CopyFromControl(const ControlFileData *control, PCacheSuperblock *sb)
{
	sb->system_identifier = control->system_identifier;
	sb->catalog_version = control->catalog_version_no;
	sb->data_checksum_version = control->data_checksum_version;
	sb->control_state = control->state;
	sb->min_recovery_point = control->minRecoveryPoint;
	sb->min_recovery_point_timeline = control->minRecoveryPointTLI;
	sb->saved.location = control->checkPoint;
	sb->saved.redo = control->checkPointCopy.redo;
	sb->saved.timeline = control->checkPointCopy.ThisTimeLineID;
}

/*
 * Make checksums right, as whoever wrote these bytes would have done, so that
 * what is behind the check for them is reached.  Each bit of which stands for
 * some of them.
 */
void
FuzzRepair(FuzzInput *input, uint32 which)
{
	FuzzSuperblock *superblocks[] = {&input->first, &input->copy};

	if (which & 0x01)
		input->control.crc = Crc(&input->control, offsetof(ControlFileData, crc));
	for (int i = 0; i < lengthof(superblocks); i++)
	{
		PCacheSuperblock sb;

		FuzzExpandSuperblock(superblocks[i], &sb);
		if (which & FUZZ_REPAIR_CLUSTER)
			CopyFromControl(&input->control, &sb);
		if (which & 0x02)
		{
			sb.saved.control_crc = input->control.crc;
			memcpy(sb.magic, PCACHE_MAGIC_HEAD, PCACHE_MAGIC_LEN);
			memcpy(sb.tail, PCACHE_MAGIC_TAIL, PCACHE_MAGIC_LEN);
		}
		if (which & (0x04 << i))
			PCacheSuperblockSetCrc(&sb);
		FuzzPackSuperblock(&sb, superblocks[i]);
	}
	for (int i = 0; i < lengthof(input->sightings); i++)
	{
		PCacheSighting *seen = &input->sightings[i];
		PCacheWatermark *w = &seen->wal;

		if ((which & 0x10) && w->witness != 0 &&
			IsValidWalSegSize(input->control.xlog_seg_size) &&
			(w->witness - 1) % input->control.xlog_seg_size + 1 >= PCACHE_WITNESS_LEN)
			w->witness_hash = hash_bytes_extended((unsigned char *) input->wal, sizeof(input->wal),
												  w->witness ^ ((uint64) w->timeline << 40));
		/* one of them goes with pg_control, or both */
		if ((which & 0x20) && (which & (0x400 << i)))
		{
			seen->generation = PCacheGenerationOf(&input->control);
			seen->checkpoint = input->control.checkPoint;
			if (!(which & 0x2000))
				seen->min_recovery_point = input->control.minRecoveryPoint;
			seen->number = Max(seen->number, 1);
		}
		if (which & 0x20)
			seen->crc = Crc(seen, offsetof(PCacheSighting, crc));
	}
	if (which & 0x40)
	{
		for (int i = 0; i < FUZZ_MEMORY_ERRORS; i++)
			input->errors[i].crc = Crc(&input->errors[i],
									   offsetof(PCacheMemoryError, crc));
	}
	if (which & 0x80)
	{
		for (int i = 0; i < FUZZ_DESCRIPTORS; i++)
		{
			input->descs[i].slot = i;
			if ((which & 0x1000) && PCacheSeqIsSealed(input->descs[i].seq) &&
				input->descs[i].seq != PCACHE_DESC_SAVED_SEQ)
			{
				PCacheSuperblock sb;

				FuzzExpandSuperblock(&input->first, &sb);
				input->descs[i].seq = PCacheLedgerGeneration(&sb, &input->control);
			}
			input->descs[i].crc = PCacheDescriptorCrc(&input->descs[i]);
		}
	}
}

static volatile sig_atomic_t run_number;
static volatile sig_atomic_t seconds_in_run;

/* It comes at any time, and must not look like something an input has reached. */
__attribute__((no_sanitize("coverage")))
static void
CpuSecond(int signum)
{
	static sig_atomic_t last_run;

	if (run_number != last_run)
		seconds_in_run = 0;
	last_run = run_number;
	if (++seconds_in_run > 5)
		FuzzFail("a run ends", __FILE__, __LINE__);
}

/*
 * Time that passes is no measure, as the machine may have other things to do;
 * libFuzzer has no other one, and stays there for a run that sleeps.
 */
void
FuzzWatch(void)
{
	static bool started = false;

	if (!started)
	{
		struct sigaction action = {.sa_handler = CpuSecond,.sa_flags = SA_RESTART};
		struct itimerval second = {{1, 0}, {1, 0}};

		if (sigaction(SIGPROF, &action, NULL) < 0 ||
			setitimer(ITIMER_PROF, &second, NULL) < 0)
			abort();
		/* a handler that libFuzzer has set since LLVMFuzzerInitialize() */
		if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
			abort();
		started = true;
	}
	run_number = run_number + 1;
}

/*
 * The file for what a target has counted when it ends, or NULL if nobody wants
 * that.
 */
FILE *
FuzzOpenCounts(void)
{
	const char *path = getenv("FUZZ_COUNTS");
	FILE	   *file;

	if (path == NULL)
		return NULL;
	file = fopen(path, "w");
	if (file == NULL)
		fprintf(stderr, "could not create \"%s\": %m\n", path);
	return file;
}

static char directory[MAXPGPATH];
static pid_t directory_owner;

/* It has two levels of names only, and only we put anything there. */
static void
RemoveDirectory(void)
{
	char		command[MAXPGPATH + 16];

	if (getpid() != directory_owner)
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", directory);
	if (system(command) != 0)
		fprintf(stderr, "could not remove \"%s\"\n", directory);
}

/*
 * Make a directory that goes when the process does, and go there.  FUZZ_DIR
 * says where.
 */
const char *
FuzzMakeDirectory(void)
{
	const char *parent = getenv("FUZZ_DIR");

	snprintf(directory, sizeof(directory), "%s/pcache-fuzz.XXXXXX",
			 parent != NULL ? parent : "/dev/shm");
	if (mkdtemp(directory) == NULL || chdir(directory) < 0)
	{
		fprintf(stderr, "could not create directory \"%s\": %m\n", directory);
		exit(1);
	}
	directory_owner = getpid();
	atexit(RemoveDirectory);
	return directory;
}

void
FuzzWriteFile(int fd, const void *bytes, size_t len, off_t offset)
{
	if (pwrite(fd, bytes, len, offset) != len)
	{
		fprintf(stderr, "could not write a file of the fuzzer: %m\n");
		exit(1);
	}
}

/*
 * Where the witness of the sighting that counts looks for WAL.  Fills in the
 * path, from PGDATA, and returns the end of the WAL in that file.  If there is
 * to be none the path is "".
 */
uint32
FuzzWalPlace(const FuzzInput *input, char path[MAXPGPATH])
{
	char		name[MAXFNAMELEN];
	PCacheSighting seen;
	uint32		segment_size = input->control.xlog_seg_size;
	uint32		end;
	XLogSegNo	segno;

	path[0] = '\0';
	if ((input->facts & FUZZ_NO_WAL) != 0 ||
		!IsValidWalSegSize(segment_size) ||
		!FuzzChooseSighting(input, &seen) ||
		seen.wal.witness == 0)
		return 0;
	end = XLogSegmentOffset(seen.wal.witness - 1, segment_size) + 1;
	if (end < PCACHE_WITNESS_LEN)
		return 0;
	XLByteToPrevSeg(seen.wal.witness, segno, segment_size);
	XLogFileName(name, seen.wal.timeline, segno, segment_size);
	snprintf(path, MAXPGPATH, XLOGDIR "/%s", name);
	return end;
}

/*
 * Put the WAL there.  A segment that is larger than files may be here is not
 * there.
 */
void
FuzzPlaceWal(const FuzzInput *input)
{
	static char last_path[MAXPGPATH];
	uint32		end;
	int			fd;

	if (last_path[0] != '\0')
		unlink(last_path);
	end = FuzzWalPlace(input, last_path);
	if (last_path[0] == '\0')
		return;
	fd = open(last_path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return;
	if (ftruncate(fd, end) == 0)
		FuzzWriteFile(fd, input->wal, sizeof(input->wal), end - PCACHE_WITNESS_LEN);
	else if (errno == EFBIG)
		unlink(last_path);
	else
		abort();
	close(fd);
}
