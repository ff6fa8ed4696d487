/*-------------------------------------------------------------------------
 *
 * fuzz_image.c
 *	  Fuzz target: "pg_pcache load" of images that were tampered with.
 *
 * Two stops of one cluster are saved, in all kinds of images.  An input chooses
 * one of them, damages it, and has it loaded where no pool is; and then perhaps
 * another one, over what the first load has left.
 *
 * What is in the pool after that, under whatever tag, must be what the last stop
 * has saved.  If digests were made to fit again, the tool still must not touch memory,
 * or bytes of the file, that are not its own, and must use a slot once.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/fuzz/fuzz_image.c
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "image.h"
#include "storage/bufpage.h"
#include "storage/checksum.h"

#define CAPACITY			1200	/* three chunks */
#define MAX_IMAGE_SIZE		(1024 * 1024)
#define MAX_DAMAGES			6
#define MAX_LOADS			2

typedef enum DamageKind
{
	FLIP_BIT,
	CUT_OFF,
	EXTEND,
	EXCHANGE_CHUNKS,
	EXCHANGE_ENTRIES,
	COPY_ENTRY,
	APPEND_ENTRY,
	POKE_HEADER,
	POKE_SUPERBLOCK,
	POKE_ENTRY,
	POKE_DESCRIPTOR,
	INFLATE,					/* more pages than a chunk has slots */
	TAKE_HEADER,				/* from another image */
	TAKE_SUPERBLOCK,
	TAKE_INDEX,
	TAKE_CHUNK,
	TAKE_DESCRIPTOR,
	TAKE_RANGE,
	N_DAMAGES,
} DamageKind;

typedef struct Damage
{
	uint8		kind;			/* DamageKind */
	uint8		other;			/* which image to take something from */
	uint16		which;			/* chunk, entry or field */
	uint32		place;
	uint64		value;
} Damage;

/* What is made to fit again; FIT_DESCRIPTOR goes with POKE_DESCRIPTOR. */
#define FIT_CHUNKS			0x01
#define FIT_INDEX			0x02
#define FIT_SUPERBLOCK		0x04
#define FIT_HEADER			0x08
#define FIT_DESCRIPTOR		0x10
#define FIT					0x80	/* the others count */

#define LOAD_KEEP			0x02
#define LOAD_VERIFY			0x04	/* ask whether it would be loaded first */
#define LOAD_JOBS			0x18	/* one more than that */

typedef struct ImageLoad
{
	uint8		image;
	uint8		options;
	uint8		fit;
	uint8		n_damages;
	uint32		unused;
	Damage		damages[MAX_DAMAGES];
} ImageLoad;

typedef struct ImageInput
{
	ImageLoad	loads[MAX_LOADS];	/* one without damage ends it */
} ImageInput;

typedef struct SavedPage
{
	PCacheDescriptor desc;
	PGAlignedBlock page;
} SavedPage;

/* An image in memory. */
typedef struct ImageBytes
{
	char	   *data;
	size_t		size;
} ImageBytes;

/* The slots of the pages: neighbours, ends of chunks, and some alone. */
static const uint32 slots[] = {
	0, 1, 2, 3, 77, 78, 300, 510, 511,
	512, 513, 600, 602, 604, 1023,
	1024, 1025, 1026, 1027, 1028, 1100, 1150, 1198, 1199,
};

#define N_PAGES				lengthof(slots)
#define LAST_STOP			0	/* in pages[]; an earlier one is 1 */
#define N_STOPS				2
#define N_KINDS				3
#define N_IMAGES			(N_STOPS * N_KINDS)

static const char *const kinds[N_KINDS] = {
	"--compress=none", "--compress=lz4", "--compress=zstd",
};

static FuzzInput cluster;		/* as the last stop has left it */
static SavedPage pages[N_STOPS][N_PAGES];
static ImageBytes images[N_IMAGES];
static char image_path[MAXPGPATH];
static uint64 n_exits[N_KINDS][2][4];	/* by kind, and whether one that was
										 * made to fit is believed */

extern bool __real_ReadImage(const Image *image, char *data, size_t size, uint64 offset);
extern bool __wrap_ReadImage(const Image *image, char *data, size_t size, uint64 offset);

/* imagehead.c reads the head and the index, and imagechunk.c only chunks. */
bool
__wrap_ReadImage(const Image *image, char *data, size_t size, uint64 offset)
{
	const PCacheImageHeader *header = &image->header;
	bool		is_head = offset == 0 && size == PCACHE_IMAGE_CHUNKS_OFFSET;
	bool		is_index = offset == header->index_offset &&
		size == ImageAlign(header->n_chunks * sizeof(PCacheImageEntry));

	FuzzExpect(is_head || is_index ||
			   (offset >= PCACHE_IMAGE_CHUNKS_OFFSET && offset <= header->index_offset &&
				size <= header->index_offset - offset));
	return __real_ReadImage(image, data, size, offset);
}

/* A page that no other tag, and no other stop, has. */
static void
MakeSavedPage(SavedPage *saved, const PCacheDescriptor *like, int stop, int number)
{
	PCacheDescriptor *desc = &saved->desc;
	char	   *page = saved->page.data;
	PageHeader	header = (PageHeader) page;
	uint64		value = (stop + 1) * 1000003 + number;

	*desc = *like;
	desc->slot = slots[number];
	desc->spc_oid = DEFAULTTABLESPACE_OID;
	desc->db_oid = 5;
	desc->fork_number = MAIN_FORKNUM;
	/* the LSN of the page, and no bound */
	desc->page_lsn = Min(desc->page_lsn, cluster.control.checkPoint);
	desc->flags &= ~PCACHE_DESC_LSN_BOUND;
	/* in the earlier stop the same tags are in other slots */
	number = (number + 5 * stop) % N_PAGES;
	desc->rel_number = number % 2 == 0 ? 16384 : 1259;
	desc->block_number = number / 2;
	desc->crc = PCacheDescriptorCrc(desc);

	/* half of it is noise, so that compressed pages do not get tiny */
	for (int i = 0; i < BLCKSZ; i += sizeof(value))
	{
		value = value * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
		if (i < BLCKSZ / 2)
			memcpy(page + i, &value, sizeof(value));
		else
			memset(page + i, number + 100 * stop, sizeof(value));
	}
	memset(header, 0, SizeOfPageHeaderData);
	PageXLogRecPtrSet(header->pd_lsn, desc->page_lsn);
	header->pd_lower = SizeOfPageHeaderData;
	header->pd_upper = BLCKSZ / 4;
	header->pd_special = BLCKSZ;
	header->pd_pagesize_version = BLCKSZ | PG_PAGE_LAYOUT_VERSION;
	header->pd_checksum = pg_checksum_page(page, desc->block_number);
}

/* The page where the relation has it. */
static void
WriteToRelation(const SavedPage *saved)
{
	const PCacheDescriptor *desc = &saved->desc;
	RelFileLocator rlocator = {desc->spc_oid, desc->db_oid, desc->rel_number};
	RelPathStr	path = relpathperm(rlocator, desc->fork_number);
	int			fd = open(path.str, O_WRONLY, 0);

	if (fd < 0)
		FuzzGiveUp(path.str);
	FuzzWriteFile(fd, saved->page.data, BLCKSZ, (off_t) desc->block_number * BLCKSZ);
	close(fd);
}

/* Have the cluster and its pool as one of the stops has left them. */
static void
MakeStop(int stop)
{
	PCacheGeometry g = PCacheComputeGeometry(CAPACITY, PCACHE_ALIGNMENT);
	PCacheDescriptor descs[CAPACITY] = {0};
	const PCacheDescriptor *like = NULL;
	PCacheSuperblock sb;
	int			fd;

	if (stop != LAST_STOP)
		cluster.control.checkPoint -= 64;
	FuzzRepair(&cluster, ~0);
	cluster.nbuffers = CAPACITY;
	cluster.file_size = g.pool_size;
	FuzzExpandSuperblock(&cluster.first, &sb);
	sb.capacity = CAPACITY;
	sb.blocks_offset = g.blocks_offset;
	sb.pool_size = g.pool_size;
	sb.slots_used = CAPACITY;
	sb.saved_pages = N_PAGES;
	PCacheSuperblockSetCrc(&sb);
	FuzzPackSuperblock(&sb, &cluster.first);
	cluster.copy = cluster.first;

	for (int i = 0; i < FUZZ_DESCRIPTORS && like == NULL; i++)
	{
		if (PCacheSeqIsSealed(cluster.descs[i].seq) &&
			(cluster.descs[i].flags & PCACHE_DESC_PERMANENT))
			like = &cluster.descs[i];
	}
	FuzzExpect(like != NULL);
	FuzzForgetPool();
	FuzzWriteCluster(&cluster, false);
	for (int i = 0; i < CAPACITY; i++)
		descs[i].seq = PCACHE_DESC_FREE_SEQ;
	fd = open(fuzz_pool_path, O_WRONLY);
	if (fd < 0)
		FuzzGiveUp(fuzz_pool_path);
	for (int i = 0; i < N_PAGES; i++)
	{
		SavedPage  *saved = &pages[stop][i];

		MakeSavedPage(saved, like, stop, i);
		descs[saved->desc.slot] = saved->desc;
		FuzzWriteFile(fd, saved->page.data, BLCKSZ,
					  g.blocks_offset + (off_t) saved->desc.slot * BLCKSZ);
		if (stop == LAST_STOP)
			WriteToRelation(saved);
	}
	FuzzWriteFile(fd, descs, sizeof(descs), PCACHE_DESCRIPTORS_OFFSET);
	close(fd);
}

/* Save it in all kinds of images. */
static void
SaveStop(int stop)
{
	for (int kind = 0; kind < N_KINDS; kind++)
	{
		const char *const args[] = {"save", "--to", image_path, kinds[kind], "--json", "-j", "1", NULL};
		ImageBytes *image = &images[stop * N_KINDS + kind];
		struct stat st;
		int			status;
		int			fd;

		fuzz_current = &cluster;
		status = FuzzRun(args);
		FuzzCheckOutput(args, status);
		FuzzExpect(status == 0);
		fd = open(image_path, O_RDONLY);
		FuzzExpect(fd >= 0 && fstat(fd, &st) == 0 && st.st_size <= MAX_IMAGE_SIZE);
		image->size = st.st_size;
		image->data = malloc(image->size);
		FuzzExpect(PCacheReadExact(fd, image->data, image->size, 0));
		close(fd);
		unlink(image_path);
	}
}

static void
WriteCounts(void)
{
	FILE	   *file = FuzzOpenCounts();

	if (file == NULL)
		return;
	for (int kind = 0; kind < N_KINDS; kind++)
	{
		for (int fits = 0; fits < 2; fits++)
		{
			fprintf(file, "%s%s", kinds[kind], fits ? ", made to fit and believed" : "");
			for (int i = 0; i < 4; i++)
				fprintf(file, "\t%llu", (unsigned long long) n_exits[kind][fits][i]);
			fprintf(file, "\n");
		}
	}
	fclose(file);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int			fd = open(SEED_OF_CLUSTER, O_RDONLY);
	char		seed[sizeof(FuzzInput)];

	if (fd < 0 || !PCacheReadExact(fd, seed, sizeof(seed), 0))
		FuzzGiveUp(SEED_OF_CLUSTER);
	close(fd);
	FuzzMakeCluster();
	FuzzStartProcess();
	atexit(WriteCounts);
	snprintf(image_path, sizeof(image_path), "%s.image", fuzz_data_directory);

	/* the last one is what the inputs find */
	for (int stop = N_STOPS; stop-- > 0;)
	{
		FuzzLoad(&cluster, (uint8 *) seed, sizeof(seed));
		MakeStop(stop);
		SaveStop(stop);
	}
	cluster.facts |= FUZZ_NO_POOL;
	return 0;
}

/* Where an image, undamaged or not, says that its index is; NULL if nowhere. */
static PCacheImageEntry *
FindIndex(const ImageBytes *image, uint32 *n)
{
	const PCacheImageHeader *header = (PCacheImageHeader *) image->data;

	*n = header->n_chunks;
	if (image->size < PCACHE_IMAGE_CHUNKS_OFFSET || header->index_offset % 8 != 0 ||
		header->index_offset >= image->size ||
		(image->size - header->index_offset) / sizeof(PCacheImageEntry) < *n || *n == 0)
		return NULL;
	return (PCacheImageEntry *) (image->data + header->index_offset);
}

/* The bytes of a chunk, or NULL if they are not in the image. */
static char *
FindChunk(const ImageBytes *image, const PCacheImageEntry *entry, size_t size)
{
	if (entry->offset >= image->size || size > image->size - entry->offset)
		return NULL;
	return image->data + entry->offset;
}

/* Change an aligned integer, to something that a bound may have forgotten. */
static void
Poke(void *data, size_t length, const Damage *d)
{
	static const uint64 values[] = {
		0, 1, 2, 3, 4, 24, 63, 64, 511, 512, 513, 1199, 1200, 1201, 4095, 4096,
		BLCKSZ, 65535, 65536, PCACHE_ALIGNMENT, PG_INT32_MAX,
		(uint64) PG_INT32_MAX + 1, PG_UINT32_MAX - 4095, PG_UINT32_MAX - 1, PG_UINT32_MAX,
		(uint64) PG_UINT32_MAX + 1, PG_INT64_MAX, (uint64) PG_INT64_MAX + 1,
		PG_UINT64_MAX - 4095, PG_UINT64_MAX - 1, PG_UINT64_MAX,
	};
	size_t		width = (size_t) 1 << (1 + d->other % 3);
	char	   *bytes = (char *) data + d->place % (length / width) * width;
	uint64		value = 0;

	memcpy(&value, bytes, width);
	switch (d->which % 4)
	{
		case 0:
			value = values[d->value % lengthof(values)];
			break;
		case 1:
			value += (int64) (d->value % 9) - 4;
			break;
		case 2:
			/* a few chunks, or pieces of the file, further on */
			value += (d->value % 4 + 1) * ((d->value & 4) ? 512 : 4096);
			break;
		case 3:
			value ^= UINT64CONST(1) << (d->value % (8 * width));
			break;
	}
	memcpy(bytes, &value, width);
}

/*
 * The contents of a chunk, with what they were compressed to in stored, where
 * another such chunk has room.  Both are the caller's to free; raw.data is NULL
 * if there is no such chunk.
 */
static void
ExpandFrom(const ImageBytes *image, const PCacheImageEntry *entry,
		   ImageBuffer *raw, ImageBuffer *stored)
{
	const PCacheImageHeader *header = (PCacheImageHeader *) image->data;
	const char *chunk = FindChunk(image, entry, entry->stored_size);
	size_t		raw_size = ChunkRawSize(entry->n_pages);
	size_t		max_size = ChunkMaxSize(header->compression, entry->n_pages);

	raw->data = stored->data = NULL;
	if (chunk == NULL || entry->n_pages == 0 || raw_size > MAX_IMAGE_SIZE ||
		entry->stored_size > max_size)
		return;
	*raw = AllocateImageBuffer(raw_size);
	*stored = AllocateImageBuffer(max_size);
	memcpy(stored->data, chunk, entry->stored_size);
	if (header->compression == PCACHE_IMAGE_PLAIN && entry->stored_size == raw_size)
		memcpy(raw->data, chunk, raw_size);
	else if (!ExpandChunk(header->compression, stored, entry->stored_size, raw, raw_size))
	{
		free(raw->data);
		raw->data = NULL;
	}
}

/*
 * Change one field of a descriptor, or replace it by one of another image.  In a
 * chunk that is compressed, too, if it has room for what comes of it.
 */
static void
ChangeDescriptor(ImageBytes *image, const Damage *d, uint8 fit)
{
	const PCacheImageHeader *header = (PCacheImageHeader *) image->data;
	const ImageBytes *other = &images[d->other % N_IMAGES];
	PCacheImageEntry *entry;
	ImageBuffer raw;
	ImageBuffer stored;
	ImageBuffer from;
	ImageBuffer from_stored;
	PCacheDescriptor *desc;
	uint32		number;
	size_t		size;
	char	   *chunk;
	uint32		n;

	entry = FindIndex(image, &n);
	if (entry == NULL)
		return;
	entry += d->which / 4 % n;
	ExpandFrom(image, entry, &raw, &stored);
	if (raw.data == NULL)
	{
		free(stored.data);
		return;
	}
	size = ChunkRawSize(entry->n_pages);
	number = d->value / 64 % entry->n_pages;
	desc = (PCacheDescriptor *) raw.data + number;
	if (d->kind % N_DAMAGES == POKE_DESCRIPTOR)
	{
		Poke(desc, sizeof(*desc), d);
		if ((fit & FIT) && (fit & FIT_DESCRIPTOR))
			desc->crc = PCacheDescriptorCrc(desc);
	}
	else
	{
		const PCacheImageEntry *theirs = FindIndex(other, &n) + d->which / 4 % n;

		ExpandFrom(other, theirs, &from, &from_stored);
		if (number < theirs->n_pages)
			*desc = ((PCacheDescriptor *) from.data)[number];
		free(from.data);
		free(from_stored.data);
	}
	chunk = FindChunk(image, entry, 0);
	if (header->compression == PCACHE_IMAGE_PLAIN)
		memcpy(chunk, raw.data, size);
	else if (CompressChunk(header->compression, &raw, size, &stored, &size) &&
			 ImageAlign(size) <= ImageAlign(entry->stored_size) &&
			 FindChunk(image, entry, size) != NULL)
	{
		memcpy(chunk, stored.data, size);
		entry->stored_size = size;
	}
	free(raw.data);
	free(stored.data);
}

/* A chunk that expands to more than its readers have room for. */
static void
Inflate(ImageBytes *image, const Damage *d)
{
	const PCacheImageHeader *header = (PCacheImageHeader *) image->data;
	PCacheImageEntry *entry;
	uint32		n_pages = PCACHE_IMAGE_SLOTS_PER_CHUNK + d->value % 4;
	ImageBuffer raw;
	ImageBuffer stored;
	size_t		size;
	uint32		n;

	entry = FindIndex(image, &n);
	if (entry == NULL)
		return;
	entry += d->which % n;
	raw = AllocateImageBuffer(ChunkRawSize(n_pages));
	stored = AllocateImageBuffer(ChunkMaxSize(header->compression, n_pages));
	memset(raw.data, 0, raw.size);
	if (CompressChunk(header->compression, &raw, raw.size, &stored, &size) &&
		ImageAlign(size) <= ImageAlign(entry->stored_size) &&
		FindChunk(image, entry, size) != NULL)
	{
		memcpy(FindChunk(image, entry, size), stored.data, size);
		entry->stored_size = size;
		entry->n_pages = n_pages;
	}
	free(raw.data);
	free(stored.data);
}

/* Copy a range of another image, as far as both have it. */
static void
Take(ImageBytes *image, const ImageBytes *other, uint64 offset, uint64 size)
{
	size_t		end = Min(image->size, other->size);

	if (offset < end)
		memcpy(image->data + offset, other->data + offset, Min(size, end - offset));
}

/* Entries and chunks are those of the image as it is now. */
static void
DamageImage(ImageBytes *image, const Damage *d, uint8 fit)
{
	PCacheImageHeader *header = (PCacheImageHeader *) image->data;
	const ImageBytes *other = &images[d->other % N_IMAGES];
	PCacheImageEntry *entries;
	PCacheImageEntry *one;
	PCacheImageEntry *two;
	char	   *bytes[2];
	size_t		size;
	uint32		n;

	if (image->size < PCACHE_IMAGE_CHUNKS_OFFSET)
		return;
	switch ((DamageKind) (d->kind % N_DAMAGES))
	{
		case FLIP_BIT:
			image->data[(d->place ^ d->value) % image->size] ^= 1 << (d->which % 8);
			return;
		case CUT_OFF:
			image->size = d->place % image->size;
			if (d->which % 2 == 0)
				image->size = image->size / PCACHE_IMAGE_ALIGNMENT * PCACHE_IMAGE_ALIGNMENT;
			return;
		case EXTEND:
			size = Min(MAX_IMAGE_SIZE - image->size, (d->place % 8 + 1) * PCACHE_IMAGE_ALIGNMENT);
			memset(image->data + image->size, d->which, size);
			image->size += size;
			return;
		case POKE_HEADER:
			Poke(header, offsetof(PCacheImageHeader, reserved), d);
			return;
		case POKE_SUPERBLOCK:
			Poke(image->data + PCACHE_IMAGE_SUPERBLOCK_OFFSET,
				 offsetof(PCacheSuperblock, reserved), d);
			return;
		case POKE_DESCRIPTOR:
		case TAKE_DESCRIPTOR:
			ChangeDescriptor(image, d, fit);
			return;
		case INFLATE:
			Inflate(image, d);
			return;
		case TAKE_HEADER:
			Take(image, other, 0, PCACHE_IMAGE_HEADER_SIZE);
			return;
		case TAKE_SUPERBLOCK:
			Take(image, other, PCACHE_IMAGE_SUPERBLOCK_OFFSET, PCACHE_SUPERBLOCK_SIZE);
			return;
		case TAKE_RANGE:
			Take(image, other, d->place % image->size, d->value % 65536);
			return;
		case TAKE_INDEX:
			/* to where ours is */
			entries = FindIndex(image, &n);
			if (entries != NULL)
				memcpy(entries, FindIndex(other, &n), Min(n * sizeof(*entries),
														  image->data + image->size - (char *) entries));
			return;
		case TAKE_CHUNK:
			entries = FindIndex(image, &n);
			if (entries == NULL)
				return;
			one = entries + d->which % n;
			two = FindIndex(other, &n) + d->place % n;
			size = Min(one->stored_size, two->stored_size);
			if ((d->value & 1) && ImageAlign(two->stored_size) <= ImageAlign(one->stored_size))
			{
				/* with all that the index says of it */
				size = two->stored_size;
				one->first_slot = two->first_slot;
				one->n_pages = two->n_pages;
				one->stored_size = two->stored_size;
				memcpy(one->digest, two->digest, PCACHE_DIGEST_LEN);
			}
			bytes[0] = FindChunk(image, one, size);
			if (bytes[0] != NULL)
				memcpy(bytes[0], FindChunk(other, two, size), size);
			return;
		case EXCHANGE_CHUNKS:
		case EXCHANGE_ENTRIES:
		case COPY_ENTRY:
		case APPEND_ENTRY:
		case POKE_ENTRY:
		case N_DAMAGES:
			break;
	}

	entries = FindIndex(image, &n);
	if (entries == NULL)
		return;
	one = entries + d->which % n;
	two = entries + d->place % n;
	switch ((DamageKind) (d->kind % N_DAMAGES))
	{
		case POKE_ENTRY:
			{
				Damage		field = *d;

				field.other = 1 + d->other % 2;
				field.place = d->value >> 32;
				Poke(two, offsetof(PCacheImageEntry, digest), &field);
			}
			return;
		case APPEND_ENTRY:
			if ((image->size - header->index_offset) / sizeof(*entries) <= n)
				return;
			entries[n] = *one;
			entries[n].first_slot = d->value % 8 * 512;
			header->n_chunks++;
			return;
		case EXCHANGE_CHUNKS:
			size = Min(one->stored_size, two->stored_size);
			bytes[0] = FindChunk(image, one, size);
			bytes[1] = FindChunk(image, two, size);
			if (one == two || bytes[0] == NULL || bytes[1] == NULL)
				return;
			for (size_t i = 0; i < size; i++)
			{
				char		byte = bytes[0][i];

				bytes[0][i] = bytes[1][i];
				bytes[1][i] = byte;
			}
			return;
		default:
			{
				PCacheImageEntry old = *one;
				bool		exchange = d->kind % N_DAMAGES == EXCHANGE_ENTRIES;

				/* some of their fields */
				if (d->value & 1)
					one->offset = two->offset;
				if (d->value & 2)
					one->first_slot = two->first_slot;
				if (d->value & 4)
					one->n_pages = two->n_pages;
				if (d->value & 8)
					one->stored_size = two->stored_size;
				if (d->value & 16)
					memcpy(one->digest, two->digest, PCACHE_DIGEST_LEN);
				if (!exchange)
					return;
				if (d->value & 1)
					two->offset = old.offset;
				if (d->value & 2)
					two->first_slot = old.first_slot;
				if (d->value & 4)
					two->n_pages = old.n_pages;
				if (d->value & 8)
					two->stored_size = old.stored_size;
				if (d->value & 16)
					memcpy(two->digest, old.digest, PCACHE_DIGEST_LEN);
			}
	}
}

/* Make checksums, and what else is said twice, right again. */
static void
FitImage(ImageBytes *image, uint8 fit)
{
	PCacheImageHeader *header = (PCacheImageHeader *) image->data;
	PCacheSuperblock *sb = (PCacheSuperblock *) (image->data + PCACHE_IMAGE_SUPERBLOCK_OFFSET);
	PCacheImageEntry *entries;
	uint32		n;

	if (!(fit & FIT) || image->size < PCACHE_IMAGE_CHUNKS_OFFSET)
		return;
	entries = FindIndex(image, &n);
	if (entries != NULL && (fit & FIT_CHUNKS))
	{
		for (uint32 i = 0; i < n; i++)
		{
			char	   *chunk = FindChunk(image, &entries[i], entries[i].stored_size);

			if (chunk != NULL)
				ChunkDigest(chunk, entries[i].stored_size, entries[i].digest);
		}
	}
	if (entries != NULL && (fit & FIT_INDEX))
	{
		header->n_pages = 0;
		for (uint32 i = 0; i < n; i++)
			header->n_pages += entries[i].n_pages;
	}
	if (fit & FIT_SUPERBLOCK)
	{
		PCacheSuperblockSetCrc(sb);
		header->system_identifier = sb->system_identifier;
	}
	if (fit & FIT_HEADER)
	{
		header->image_size = image->size;
		if (entries != NULL)
			ImageDigest(header, sb, entries, header->digest);
	}
}

/*
 * Write the file that is to be loaded.  Returns whether it was made to fit.
 */
static bool
WriteDamaged(const ImageLoad *load)
{
	static char *data;
	static char *before;
	const ImageBytes *from = &images[load->image % N_IMAGES];
	ImageBytes	image = {.size = from->size};
	bool		fits;
	int			fd;

	if (data == NULL)
	{
		data = AllocateImageBuffer(MAX_IMAGE_SIZE).data;
		before = AllocateImageBuffer(MAX_IMAGE_SIZE).data;
	}
	image.data = data;
	memcpy(image.data, from->data, from->size);
	for (int i = 0; i < load->n_damages % (MAX_DAMAGES + 1); i++)
		DamageImage(&image, &load->damages[i], load->fit);
	memcpy(before, image.data, image.size);
	FitImage(&image, load->fit);
	fits = memcmp(before, image.data, image.size) != 0;

	fd = open(image_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		FuzzGiveUp(image_path);
	FuzzWriteFile(fd, image.data, image.size, 0);
	close(fd);
	return fits;
}

static const SavedPage *
FindSaved(const PCacheDescriptor *desc)
{
	PCachePageKey key = PCacheDescriptorKey(desc);

	for (int i = 0; i < N_PAGES; i++)
	{
		PCachePageKey saved = PCacheDescriptorKey(&pages[LAST_STOP][i].desc);

		if (memcmp(&key, &saved, sizeof(key)) == 0)
			return &pages[LAST_STOP][i];
	}
	return NULL;
}

/* Compare the pool with what was saved.  Returns how many pages it has. */
static uint64
CheckPool(bool fits)
{
	PCacheSuperblock sb;
	bool		seen[N_PAGES] = {0};
	uint64		n = 0;
	int			fd = open(fuzz_pool_path, O_RDONLY);

	if (fd < 0)
		return 0;
	FuzzExpect(PCacheReadExact(fd, &sb, sizeof(sb), PCACHE_SUPERBLOCK_OFFSET));
	FuzzExpect(sb.capacity <= FUZZ_MAX_POOL_SIZE / BLCKSZ);
	for (uint32 slot = 0; slot < sb.capacity; slot++)
	{
		PCacheDescriptor desc;
		PGAlignedBlock page;
		const SavedPage *saved;

		FuzzExpect(PCacheReadExact(fd, &desc, sizeof(desc), PCACHE_DESCRIPTORS_OFFSET +
								   (uint64) slot * sizeof(desc)));
		if (!PCacheSeqIsSealed(desc.seq) || !PCacheDescriptorIsIntact(&desc, slot))
			continue;
		n++;
		if (fits)
			continue;
		saved = FindSaved(&desc);
		FuzzExpect(saved != NULL && !seen[saved - pages[LAST_STOP]]);
		seen[saved - pages[LAST_STOP]] = true;
		FuzzExpect(desc.page_lsn == saved->desc.page_lsn && desc.flags == saved->desc.flags);
		FuzzExpect(PCacheReadExact(fd, page.data, BLCKSZ, sb.blocks_offset + (uint64) slot * BLCKSZ));
		FuzzExpect(memcmp(page.data, saved->page.data, BLCKSZ) == 0);
	}
	close(fd);
	return n;
}

/* A number in the last output. */
static uint64
Told(const char *name)
{
	char		key[64];
	const char *place;

	snprintf(key, sizeof(key), "\"%s\":", name);
	place = strstr(fuzz_output, key);
	FuzzExpect(place != NULL);
	return strtoull(place + strlen(key), NULL, 10);
}

static bool
ToldTrue(const char *name)
{
	char		key[64];
	const char *place;

	snprintf(key, sizeof(key), "\"%s\":", name);
	place = strstr(fuzz_output, key);
	FuzzExpect(place != NULL);
	place += strlen(key);
	return strncmp(place + strspn(place, " "), "true", 4) == 0;
}

static int
Ask(const char *const *args)
{
	int			status = FuzzRun(args);

	FuzzCheckOutput(args, status);
	return status;
}

/*
 * Load an image.  fits says whether one since the pool was made was made to fit.
 */
static void
TryLoad(const ImageLoad *load, bool first, bool *fits)
{
	static const char *const verify_pool[] = {"verify", "--json", NULL};
	const char *const dry_run[] = {"load", "--dry-run", "--from", image_path, "--json", NULL};
	char		jobs[8];
	const char *args[12] = {"load", "--from", image_path, "--json", "-j", jobs};
	int			n_args = 6;
	int			n_jobs = 1 + (load->options & LOAD_JOBS) / 8;
	struct stat st;
	int			foretold = -1;
	int			status;
	int			seen;
	bool		loaded;
	uint64		told;

	*fits = WriteDamaged(load) || *fits;
	if (stat(image_path, &st) < 0)
		FuzzGiveUp(image_path);
	snprintf(jobs, sizeof(jobs), "%d", n_jobs);
	if (load->options & LOAD_KEEP)
		args[n_args++] = "--keep";
	if (load->options & LOAD_VERIFY)
	{
		foretold = Ask(dry_run);
		FuzzExpect(access(fuzz_pool_path, F_OK) != 0 || !first);
	}

	status = Ask(args);
	n_exits[load->image % N_KINDS][*fits][status]++;
	/* for each thread a chunk, and what it was compressed to; and the index */
	FuzzExpect(fuzz_allocated <= (size_t) n_jobs * 10 * 1024 * 1024 + 4 * st.st_size + 2 * 1024 * 1024);
	FuzzExpect(status == 0 || access(image_path, F_OK) == 0);
	FuzzExpect(!(load->options & LOAD_KEEP) || access(image_path, F_OK) == 0);
	loaded = status != 1 && ToldTrue("loaded");
	told = loaded ? Told("pages_loaded") : 0;
	if (first)
	{
		/* a dry run does not read the chunks, which may all be damaged */
		if (foretold == 0)
			FuzzExpect(status == 0 || status == 2);
		if (foretold > 0)
			FuzzExpect(status == foretold);
	}

	if (loaded)
		FuzzExpect(CheckPool(*fits) == told);
	else
		(void) CheckPool(*fits);
	seen = Ask(verify_pool);
	FuzzExpect((seen == 0) == (status == 0));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ImageInput	input = {0};
	bool		fits = false;

	memcpy(&input, data, Min(size, sizeof(input)));
	FuzzWatch();
	fuzz_current = &cluster;
	FuzzWriteCluster(&cluster, false);
	for (int i = 0; i < MAX_LOADS; i++)
	{
		if (i > 0 && input.loads[i].n_damages == 0)
			break;
		TryLoad(&input.loads[i], i == 0, &fits);
	}
	return 0;
}

static uint64 random_state;

/* splitmix64 */
static uint64
Random(void)
{
	uint64		z = (random_state += UINT64CONST(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static void
DrawDamage(Damage *d)
{
	d->kind = Random() % N_DAMAGES;
	d->other = Random();
	d->which = Random();
	d->place = Random();
	d->value = Random();
	/* near the places that count */
	if (Random() % 2 == 0)
		d->place %= 4096;
}

static void
DrawLoad(ImageLoad *load)
{
	load->image = Random();
	/* the last stop more often, as an earlier one is refused at once */
	if (Random() % 4 != 0)
		load->image = load->image % N_KINDS;
	load->options = Random();
	load->fit = Random() % 2 == 0 ? 0 : FIT | (Random() % 2 == 0 ? 0x1F : Random());
	load->n_damages = 1 + Random() % 3;
	for (int i = 0; i < MAX_DAMAGES; i++)
		DrawDamage(&load->damages[i]);
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
						unsigned int seed)
{
	ImageInput	input = {0};
	ImageLoad  *load;

	random_state = seed;
	memcpy(&input, data, Min(size, sizeof(input)));
	load = &input.loads[Random() % 4 == 0];
	switch (Random() % 4)
	{
		case 0:
			DrawDamage(&load->damages[Random() % 3]);
			load->n_damages = Max(load->n_damages, 1 + Random() % 3);
			break;
		case 1:
			(void) LLVMFuzzerMutate((uint8 *) &input, sizeof(input), sizeof(input));
			break;
		default:
			memset(&input, 0, sizeof(input));
			DrawLoad(&input.loads[0]);
			if (Random() % 4 == 0)
				DrawLoad(&input.loads[1]);
			break;
	}
	size = Min(max_size, sizeof(input));
	memcpy(data, &input, size);
	return size;
}
