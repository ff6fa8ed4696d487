/*-------------------------------------------------------------------------
 *
 * pcache_record.c
 *	  What PGDATA remembers of its pool.
 *
 * A small text file with one "key = value" a line and a CRC-32C at its end.
 * It lies in PGDATA proper, not beside the pool, so that a lost mount is told
 * from a pool that never was, and so that a PGDATA that was put back from
 * somewhere else does not match the pool any more.
 *
 * The library has none: unpatched pg_basebackup and pg_rewind would copy it.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_record.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/pcache_dir.h"
#include "storage/pcache_fs.h"
#include "storage/pcache_record.h"

#define RECORD_VERSION	1
#define RECORD_MAX		(MAXPGPATH + 1024)

/* Find "key = " at the start of a line; the value reaches to its end. */
static bool
GetValue(const char *text, const char *key, char *value, size_t value_size)
{
	size_t		keylen = strlen(key);

	for (const char *line = text; line != NULL && *line != '\0';)
	{
		const char *eol = strchr(line, '\n');

		if (eol == NULL)
			return false;
		if (strncmp(line, key, keylen) == 0 &&
			strncmp(line + keylen, " = ", 3) == 0)
		{
			const char *start = line + keylen + 3;

			if (eol - start >= value_size)
				return false;
			memcpy(value, start, eol - start);
			value[eol - start] = '\0';
			return true;
		}
		line = eol + 1;
	}
	return false;
}

static bool
ParseHex(const char *text, uint8 *bytes, int nbytes)
{
	if (strlen(text) != 2 * nbytes)
		return false;
	for (int i = 0; i < nbytes; i++)
	{
		unsigned int byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		bytes[i] = byte;
	}
	return true;
}

static bool
ParseRecord(const char *text, PCacheRecord *record)
{
	char		value[MAXPGPATH];
	unsigned long long number;
	bool		known = false;

	if (!GetValue(text, "version", value, sizeof(value)) ||
		atoi(value) != RECORD_VERSION)
		return false;
	/* who looks for the part of it that exists ends at the root directory */
	if (!GetValue(text, "directory", record->directory, MAXPGPATH) ||
		!is_absolute_path(record->directory))
		return false;
	if (!GetValue(text, "capacity", value, sizeof(value)) ||
		sscanf(value, "%llu", &number) != 1 || number == 0 || number > PCACHE_MAX_CAPACITY)
		return false;
	record->capacity = number;
	if (!GetValue(text, "pool_uuid", value, sizeof(value)) ||
		!ParseHex(value, record->pool_uuid, PCACHE_UUID_LEN))
		return false;
	if (!GetValue(text, "file_system", value, sizeof(value)))
		return false;
	for (PCacheFsKind kind = PCACHE_FS_FILE; kind <= PCACHE_FS_FSDAX; kind++)
	{
		if (strcmp(value, PCacheFsKindName(kind)) == 0)
		{
			record->fs_kind = kind;
			known = true;
		}
	}
	if (!known)
		return false;
	if (!GetValue(text, "incarnation", value, sizeof(value)) ||
		sscanf(value, "%llx", &number) != 1)
		return false;
	record->incarnation = number;
	/* what has saved no image has no such line */
	return !GetValue(text, "image", value, sizeof(value)) ||
		ParseHex(value, record->image, PCACHE_DIGEST_LEN);
}

/* The reverse of ParseHex(); text has room for the digits and a zero. */
static void
FormatHex(const uint8 *bytes, int nbytes, char *text)
{
	for (int i = 0; i < nbytes; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
}

/* Read PGDATA's record. */
PCacheRecordResult
PCacheRecordRead(const char *datadir, PCacheRecord *record,
				 PCacheError *err)
{
	char		path[MAXPGPATH];
	char		text[RECORD_MAX];
	char		expected[32];
	int			fd;
	ssize_t		len;
	char	   *crc_line;

	memset(record, 0, sizeof(*record));
	if (PCacheIsLibrary())
		return PCACHE_RECORD_MISSING;
	snprintf(path, sizeof(path), "%s/%s", datadir, PCACHE_RECORD_FILE);
	fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
	{
		PCacheSetError(err, _("could not open file \"%s\": %m"), path);
		return errno == ENOENT ? PCACHE_RECORD_MISSING : PCACHE_RECORD_ERROR;
	}
	len = read(fd, text, sizeof(text) - 1);
	if (len < 0)
	{
		PCacheSetError(err, _("could not read file \"%s\": %m"), path);
		close(fd);
		return PCACHE_RECORD_ERROR;
	}
	close(fd);
	text[len] = '\0';

	crc_line = strstr(text, "\ncrc = ");
	if (crc_line != NULL)
		snprintf(expected, sizeof(expected), "crc = %08x\n",
				 PCacheCrc(text, crc_line + 1 - text));
	if (crc_line == NULL || strcmp(crc_line + 1, expected) != 0 ||
		!ParseRecord(text, record))
	{
		PCacheSetError(err, _("file \"%s\" is damaged"), path);
		PCacheSetHint(err, _("Run \"pg_pcache init --force\" with option --directory to create the persistent cache anew."));
		return PCACHE_RECORD_ERROR;
	}
	return PCACHE_RECORD_OK;
}

/*
 * Could PGDATA's record name this directory, and be written?  It is asked before
 * a pool is created, since the server needs the record to start.  datadir is NULL
 * if it is not known.
 */
bool
PCacheRecordMayBeWritten(const char *datadir, const char *directory, PCacheError *err)
{
	static const char *const suffixes[] = {"", ".tmp"};

	if (strchr(directory, '\n') != NULL)
	{
		PCacheSetError(err, _("directory name \"%s\" contains a newline"), directory);
		PCacheSetHint(err, _("Choose another directory for the persistent cache."));
		return false;
	}
	for (int i = 0; !PCacheIsLibrary() && datadir != NULL && i < lengthof(suffixes); i++)
	{
		char		path[MAXPGPATH];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s%s", datadir, PCACHE_RECORD_FILE, suffixes[i]);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
		{
			PCacheSetError(err, _("could not write file \"%s\": it is a directory"), path);
			PCacheSetHint(err, _("Remove the directory."));
			return false;
		}
	}
	return true;
}

/* Write PGDATA's record durably, replacing the old one atomically. */
bool
PCacheRecordWrite(const char *datadir, int file_mode,
				  const PCacheRecord *record, PCacheError *err)
{
	static const uint8 no_image[PCACHE_DIGEST_LEN] = {0};
	char		path[MAXPGPATH];
	char		tmp_path[MAXPGPATH];
	char		text[RECORD_MAX];
	char		uuid[2 * PCACHE_UUID_LEN + 1];
	char		digest[2 * PCACHE_DIGEST_LEN + 1];
	int			len;
	int			fd;

	if (PCacheIsLibrary())
		return true;
	if (!PCacheRecordMayBeWritten(datadir, record->directory, err))
		return false;
	if (record->capacity == 0 || record->capacity > PCACHE_MAX_CAPACITY)
	{
		PCacheSetError(err, _("a persistent cache cannot have a capacity of %llu blocks"),
					   (unsigned long long) record->capacity);
		return false;
	}
	FormatHex(record->pool_uuid, PCACHE_UUID_LEN, uuid);
	FormatHex(record->image, PCACHE_DIGEST_LEN, digest);

	len = snprintf(text, sizeof(text),
				   "# Where the persistent cache of this cluster is.  Do not edit.\n"
				   "version = %d\n"
				   "directory = %s\n"
				   "capacity = %llu\n"
				   "pool_uuid = %s\n"
				   "file_system = %s\n"
				   "incarnation = %016llx\n",
				   RECORD_VERSION,
				   record->directory,
				   (unsigned long long) record->capacity,
				   uuid,
				   PCacheFsKindName(record->fs_kind),
				   (unsigned long long) record->incarnation);
	if (memcmp(record->image, no_image, PCACHE_DIGEST_LEN) != 0)
		len += snprintf(text + len, sizeof(text) - len, "image = %s\n", digest);
	len += snprintf(text + len, sizeof(text) - len, "crc = %08x\n",
					PCacheCrc(text, len));

	snprintf(path, sizeof(path), "%s/%s", datadir, PCACHE_RECORD_FILE);
	snprintf(tmp_path, sizeof(tmp_path), "%s.tmp", path);
	/* what a crash has left may not be writable */
	unlink(tmp_path);
	fd = open(tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file_mode);
	if (fd < 0)
	{
		PCacheSetError(err, _("could not create file \"%s\": %m"), tmp_path);
		return false;
	}
	errno = ENOSPC;				/* for a short write */
	if (write(fd, text, len) != len || fsync(fd) < 0)
	{
		PCacheSetError(err, _("could not write file \"%s\": %m"), tmp_path);
		close(fd);
		unlink(tmp_path);
		return false;
	}
	close(fd);

	if (rename(tmp_path, path) < 0)
	{
		PCacheSetError(err, _("could not rename file \"%s\" to \"%s\": %m"),
					   tmp_path, path);
		unlink(tmp_path);
		return false;
	}
	fd = open(datadir, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0 || fsync(fd) < 0)
	{
		PCacheSetError(err, _("could not fsync directory \"%s\": %m"), datadir);
		if (fd >= 0)
			close(fd);
		return false;
	}
	close(fd);
	return true;
}
