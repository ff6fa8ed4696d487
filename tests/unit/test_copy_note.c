/*-------------------------------------------------------------------------
 *
 * test_copy_note.c
 *	  Notes of databases whose files redo has copied: how they are stored and
 *	  removed, and what is read of them.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  tests/unit/test_copy_note.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "storage/pcache_copy_note.h"
#include "unit.h"

#define LAST	(PCACHE_MAX_COPY_NOTES - 1)

static char image[PCACHE_COPY_NOTES_OFFSET + PCACHE_MAX_COPY_NOTES * sizeof(PCacheCopyNote)];
static PCacheCopyNote *const notes = (PCacheCopyNote *) (image + PCACHE_COPY_NOTES_OFFSET);
static PCacheMapping map = {.base = image,.length = sizeof(image),.kind = PCACHE_PERSIST_MEMORY};

static int
Clear(void **state)
{
	memset(image, 0, sizeof(image));
	return 0;
}

/* Is exactly this database, or none (0), copied by redo from this redo point? */
static void
ExpectOnly(uint64 redo, uint32 db_oid)
{
	uint32		copied[PCACHE_MAX_COPY_NOTES];
	uint32		n = PCacheCopyNotesList(notes, redo, copied);

	assert_true(PCacheCopyNotesAreIntact(notes));
	assert_false(PCacheCopyNotesOverflow(notes, redo));
	assert_int_equal(n, db_oid != 0);
	if (n > 0)
		assert_int_equal(copied[0], db_oid);
}

/* Redo begins with the record at the redo point, so that one counts. */
static void
TestRedoPoint(void **state)
{
	ExpectOnly(0, 0);
	PCacheCopyNoteStore(&map, 5, 1000);
	ExpectOnly(999, 5);
	ExpectOnly(1000, 5);
	ExpectOnly(1001, 0);
	assert_true(PCacheCopyNotesForget(&map, 1000));
	ExpectOnly(1000, 5);
	assert_true(PCacheCopyNotesForget(&map, 1001));
	ExpectOnly(0, 0);
}

/* Of two copies the later one counts, also if redo has come to the first again. */
static void
TestSameDatabase(void **state)
{
	PCacheCopyNoteStore(&map, 5, 1000);
	PCacheCopyNoteStore(&map, 5, 2000);
	PCacheCopyNoteStore(&map, 5, 1000);
	ExpectOnly(2000, 5);
	ExpectOnly(2001, 0);

	/* also behind an entry that is free by now */
	PCacheCopyNoteStore(&map, 6, 500);
	notes[0].lsn = 0;
	PCacheCopyNoteStore(&map, 6, 600);
	ExpectOnly(1, 6);
}

static void
TestOverflow(void **state)
{
	uint32		copied[PCACHE_MAX_COPY_NOTES];

	for (uint32 i = 0; i < LAST; i++)
		PCacheCopyNoteStore(&map, 100 + i, 1000 + i);
	assert_false(PCacheCopyNotesOverflow(notes, 0));
	assert_int_equal(PCacheCopyNotesList(notes, 0, copied), LAST);
	for (uint32 i = 0; i < LAST; i++)
		assert_int_equal(copied[i], 100 + i);

	/* one that is there already needs no room */
	PCacheCopyNoteStore(&map, 100, 5000);
	assert_false(PCacheCopyNotesOverflow(notes, 0));
	PCacheCopyNoteStore(&map, 99, 6000);
	PCacheCopyNoteStore(&map, 98, 5500);
	assert_true(PCacheCopyNotesOverflow(notes, 6000));
	assert_false(PCacheCopyNotesOverflow(notes, 6001));
	assert_true(PCacheCopyNotesAreIntact(notes));

	/* the redo point gets beyond some: there is room again */
	assert_true(PCacheCopyNotesForget(&map, 1003));
	PCacheCopyNoteStore(&map, 97, 7000);
	assert_false(PCacheCopyNotesOverflow(notes, 6001));
	assert_true(PCacheCopyNotesOverflow(notes, 6000));
	assert_true(PCacheCopyNotesForget(&map, 6001));
	ExpectOnly(1, 97);
	assert_true(PCacheCopyNotesForget(&map, PG_UINT64_MAX));
	ExpectOnly(0, 0);
}

/* Any bit that changes shows, unless no note is left. */
static void
TestDamaged(void **state)
{
	PCacheCopyNoteStore(&map, 5, 1000);
	for (int bit = 0; bit < 8 * (int) sizeof(PCacheCopyNote); bit++)
	{
		((char *) &notes[0])[bit / 8] ^= 1 << bit % 8;
		assert_false(PCacheCopyNotesAreIntact(notes));
		((char *) &notes[0])[bit / 8] ^= 1 << bit % 8;
	}
	memset(notes, 0xFF, sizeof(PCacheCopyNote));
	assert_false(PCacheCopyNotesAreIntact(notes));
	assert_true(PCacheCopyNotesForget(&map, PG_UINT64_MAX));
	assert_true(PCacheCopyNotesAreIntact(notes));
}

/* What is read from a file; what cannot be read is damaged. */
static void
TestRead(void **state)
{
	char		path[] = "/tmp/test_copy_note.XXXXXX";
	PCacheCopyNote read[PCACHE_MAX_COPY_NOTES];
	int			fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	PCacheCopyNoteStore(&map, 5, 1000);
	assert_int_equal(pwrite(fd, image, sizeof(image), 0), sizeof(image));
	PCacheCopyNotesRead(fd, read);
	assert_memory_equal(read, notes, sizeof(read));
	assert_int_equal(ftruncate(fd, sizeof(image) - 1), 0);
	PCacheCopyNotesRead(fd, read);
	assert_false(PCacheCopyNotesAreIntact(read));
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(TestRedoPoint, Clear),
		cmocka_unit_test_setup(TestSameDatabase, Clear),
		cmocka_unit_test_setup(TestOverflow, Clear),
		cmocka_unit_test_setup(TestDamaged, Clear),
		cmocka_unit_test_setup(TestRead, Clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
