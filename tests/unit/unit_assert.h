/*-------------------------------------------------------------------------
 *
 * unit_assert.h
 *	  Assertions for a source of the server that a test includes after this.
 *
 * The build has none, and the pg_config.h that meson makes undefines what the
 * command line defines, so they are defined once pg_config.h has been read.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * tests/unit/unit_assert.h
 *
 *-------------------------------------------------------------------------
 */
#undef USE_ASSERT_CHECKING
#define USE_ASSERT_CHECKING 1

#undef Assert
#define Assert(condition) \
	((condition) ? (void) 0 : ExceptionalCondition(#condition, __FILE__, __LINE__))
