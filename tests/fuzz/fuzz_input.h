/*-------------------------------------------------------------------------
 *
 * fuzz_input.h
 *	  What the fuzzers mutate: the metadata of a pool and of its cluster.
 *
 * A pool file is megabytes of zeros with little in between.  An input has the
 * little only, at fixed places, so that mutations hit something.  It is made
 * from a real cluster by fuzz_pack.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/fuzz/fuzz_input.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include "postgres_fe.h"

#include "storage/pcache_gate.h"

#define FUZZ_DESCRIPTORS	16
#define FUZZ_MEMORY_ERRORS	8
#define FUZZ_PAGES			2
#define FUZZ_PAGE_PART		384

/* FuzzInput.facts */
#define FUZZ_READ_ERRORS		0x0001	/* were ignored */
#define FUZZ_BACKUP_LABEL		0x0002
#define FUZZ_RECOVERY_SIGNAL	0x0004
#define FUZZ_STANDBY_SIGNAL		0x0008
#define FUZZ_OTHER_BOOT			0x0010
#define FUZZ_MEDIA_UNKNOWN		0x0020	/* and so the DIMMs */
#define FUZZ_COLD_ON_UNKNOWN	0x0040
#define FUZZ_NO_WAL				0x0080
#define FUZZ_OTHER_DIMMS		0x0100
#define FUZZ_NO_POOL			0x0200
#define FUZZ_PAGE_CHECKSUMS		0x0400	/* as they are: else right ones */
#define FUZZ_MANY_BAD_BLOCKS	0x0800	/* more than a list has room for */
#define FUZZ_SUSPECT			0x1000	/* a process died of a fault */
#define FUZZ_SUSPECT_DAMAGED	0x2000	/* likewise, and the CRC is wrong */
#define FUZZ_ROLLED_BACK		0x4000	/* a prepared transaction was */
#define FUZZ_NOT_SYNCED			0x8000	/* fsync was off */

/* A superblock without its unused bytes, which are zero. */
typedef struct FuzzSuperblock
{
	char		head[offsetof(PCacheSuperblock, reserved)];
	uint32		crc;
	char		tail[PCACHE_MAGIC_LEN];
} FuzzSuperblock;

/* The first and the last bytes of a page; the others are zero. */
typedef struct FuzzPage
{
	char		head[FUZZ_PAGE_PART];
	char		end[FUZZ_PAGE_PART];
} FuzzPage;

typedef struct FuzzInput
{
	uint16		command;		/* of fuzz_tool; modulo how many there are */
	uint16		facts;
	int32		nbuffers;		/* shared_buffers of the next start */
	uint64		file_size;		/* of the pool */
	ControlFileData control;
	FuzzSuperblock first;
	FuzzSuperblock copy;
	PCacheSighting sightings[2];
	PCacheMemoryError errors[FUZZ_MEMORY_ERRORS];
	PCacheDescriptor descs[FUZZ_DESCRIPTORS];
	char		headers[FUZZ_DESCRIPTORS][PCACHE_HEADER_SIZE];
	char		wal[PCACHE_WITNESS_LEN];	/* the bytes before the witness */
	FuzzPage	pages[FUZZ_PAGES];	/* in the first slots */
	FuzzPage	files[FUZZ_PAGES];	/* the same pages in the data files */
} FuzzInput;

/* The slots from here on are free. */
extern void FuzzExpandSuperblock(const FuzzSuperblock *packed, PCacheSuperblock *sb);
extern void FuzzPackSuperblock(const PCacheSuperblock *sb, FuzzSuperblock *packed);

/* A bit of FuzzRepair(): the pool agrees with pg_control. */
#define FUZZ_REPAIR_CLUSTER		0x200
extern void FuzzRepair(FuzzInput *input, uint32 which);
extern void FuzzMakeSuspect(const FuzzInput *input, PCacheSuspect *suspect);
extern uint64 FuzzRolledBackAt(const FuzzInput *input);
extern bool FuzzChooseSighting(const FuzzInput *input, PCacheSighting *sighting);
extern void FuzzLoad(FuzzInput *input, const uint8_t *data, size_t size);

/* Private files of a fuzzer, all below one directory on tmpfs. */
extern const char *FuzzMakeDirectory(void);
extern void FuzzWriteFile(int fd, const void *bytes, size_t len, off_t offset);
extern uint32 FuzzWalPlace(const FuzzInput *input, char path[MAXPGPATH]);
extern void FuzzPlaceWal(const FuzzInput *input);

#define FUZZ_RELATION_BLOCKS	24

extern FILE *FuzzOpenCounts(void);

/* At the start of each run; a run may take five seconds of CPU time. */
extern void FuzzWatch(void);

/* Stop as a sanitizer would: libFuzzer keeps the input. */
#define FuzzExpect(condition) \
	do { \
		if (!(condition)) \
			FuzzFail(#condition, __FILE__, __LINE__); \
	} while (0)
pg_noreturn extern void FuzzFail(const char *condition, const char *file, int line);

extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
									  size_t max_size, unsigned int seed);
extern size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1,
										const uint8_t *data2, size_t size2,
										uint8_t *out, size_t max_out_size,
										unsigned int seed);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

#endif							/* FUZZ_INPUT_H */
