/*-------------------------------------------------------------------------
 *
 * pcache_compat.h
 *	  What differs between the major versions that the library knows.
 *
 * The library and its program are compiled for PostgreSQL 15 to 18, from sources that
 * are written for 18.  The compiler includes this header before each of them
 * (module.mk, and tree.mk for the patched server), and it gives older versions what 18
 * has, by the names of 18.  So it is the only file that asks for the version.  Files of
 * pool/, which library and program share, include it first, in place of postgres.h or
 * postgres_fe.h.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * src/include/storage/pcache_compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PCACHE_COMPAT_H
#define PCACHE_COMPAT_H

#ifndef FRONTEND
#include "postgres.h"
#else

/*
 * This is what postgres_fe.h has.  It comes with libpq, and where that is of
 * another major version than the server it would bring in that one's headers.
 */
#define POSTGRES_FE_H
#include "c.h"
#include "common/fe_memutils.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "the cache knows PostgreSQL 15 to 18"
#endif


/* --------------------------------------------------------------------------
 * Libraries
 *
 * The server's pg_config.h says with which it was built.  Whoever compiles us
 * may have others.
 * --------------------------------------------------------------------------
 */

#ifdef PCACHE_WITHOUT_LZ4
#undef USE_LZ4
#endif
#ifdef PCACHE_WITHOUT_ZSTD
#undef USE_ZSTD
#endif


/* --------------------------------------------------------------------------
 * Both library and program
 * --------------------------------------------------------------------------
 */
#include "common/relpath.h"
#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
#else
#include "storage/relfilelocator.h"
#endif

/* 16: relfilenodes got new names, and pointers a macro each */
#if PG_VERSION_NUM < 160000
#define RelFileLocator RelFileNode
#define RelFileLocatorEquals RelFileNodeEquals
#define spcOid		spcNode
#define dbOid		dbNode
#define relNumber	relNode
#define RelFileNumber Oid
#define InvalidRelFileNumber InvalidOid
#define RelFileNumberIsValid(number) OidIsValid(number)

#define PG_IO_ALIGN_SIZE	4096

/* a block that may be read past the page cache */
typedef union PGIOAlignedBlock
{
	pg_attribute_aligned(PG_IO_ALIGN_SIZE)
	char		data[BLCKSZ];
	double		force_align_d;
	int64		force_align_i64;
} PGIOAlignedBlock;
#endif

/*
 * 16, and later minor releases of 15, allocate by types.  Those of November 2026 call
 * functions for that which older ones lack, and a library that was built with the newer
 * headers would keep such a server down.  pg_pcache has the functions in it.
 */
#if !defined(FRONTEND)
#include "storage/shmem.h"
#undef palloc_array
#undef palloc0_array
#undef repalloc_array
#define palloc_array(type, count) ((type *) palloc(mul_size(sizeof(type), count)))
#define palloc0_array(type, count) ((type *) palloc0(mul_size(sizeof(type), count)))
#define repalloc_array(pointer, type, count) \
	((type *) repalloc(pointer, mul_size(sizeof(type), count)))
#elif !defined(palloc_object)
#define palloc_array(type, count) ((type *) palloc(sizeof(type) * (count)))
#define palloc0_array(type, count) ((type *) palloc0(sizeof(type) * (count)))
#define repalloc_array(pointer, type, count) \
	((type *) repalloc(pointer, sizeof(type) * (count)))
#endif
#ifndef palloc_object
#define palloc_object(type) ((type *) palloc(sizeof(type)))
#define palloc0_object(type) ((type *) palloc0(sizeof(type)))
#endif

/* 18: the path of a relation is no allocated string any more */
#if PG_VERSION_NUM < 180000
typedef struct RelPathStr
{
	char		str[MAXPGPATH];
} RelPathStr;

static inline RelPathStr
PCacheRelPath(RelFileLocator rlocator, ForkNumber fork)
{
	RelPathStr	result;
	char	   *path = GetRelationPath(rlocator.dbOid, rlocator.spcOid,
									   rlocator.relNumber, -1, fork);

	strlcpy(result.str, path, sizeof(result.str));
	pfree(path);
	return result;
}

#undef relpathperm
#define relpathperm(rlocator, fork) PCacheRelPath(rlocator, fork)
#endif

/* 17: comparing integers, and names of directories */
#if PG_VERSION_NUM < 170000
static inline int
pg_cmp_s32(int32 a, int32 b)
{
	return (a > b) - (a < b);
}

static inline int
pg_cmp_u32(uint32 a, uint32 b)
{
	return (a > b) - (a < b);
}
#endif

#ifndef PG_TBLSPC_DIR
#define PG_TBLSPC_DIR "pg_tblspc"
#endif

/* 18: an attribute has to stand before the declaration */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif


/* --------------------------------------------------------------------------
 * The library only
 * --------------------------------------------------------------------------
 */
#ifndef FRONTEND

/* 16: all settings, of which there are *n */
#if PG_VERSION_NUM < 160000
#define PCacheGucVariables(n)	(*(n) = GetNumConfigOptions(), get_guc_variables())
#define ClearBufferTag(tag)		CLEAR_BUFFERTAG(*(tag))
#else
#define PCacheGucVariables(n)	get_guc_variables(n)
#endif

/* 18: a hint that is translated already */
#if PG_VERSION_NUM < 180000
#define errhint_internal		errhint
#endif

/* 18: the list of background workers has links in both directions */
#if PG_VERSION_NUM < 180000
#define PCacheWorkerIter		slist_iter
#define PCacheForEachWorker(i)	slist_foreach(i, &BackgroundWorkerList)
#define PCacheWorkerOf(i)		slist_container(RegisteredBgWorker, rw_lnode, (i).cur)
#else
#define PCacheWorkerIter		dlist_iter
#define PCacheForEachWorker(i)	dlist_foreach(i, &BackgroundWorkerList)
#define PCacheWorkerOf(i)		dlist_container(RegisteredBgWorker, rw_lnode, (i).cur)
#endif

/* 17: relations of no backend have no process number, instead of no backend ID */
#if PG_VERSION_NUM < 170000
#define INVALID_PROC_NUMBER		InvalidBackendId
#endif

/* 16: files of relations are dropped by the names of relations */
#if PG_VERSION_NUM < 160000
#define DropRelationsAllBuffers	DropRelFileNodesAllBuffers
#define InitBufferTag(tag, rlocator, fork, block) \
	INIT_BUFFERTAG(*(tag), *(rlocator), fork, block)
#define BufTagGetRelFileLocator(tag) ((tag)->rnode)
#endif

/* 17: freezing and both kinds of pruning have a record each, of one kind */
#if PG_VERSION_NUM < 170000
#define XLOG_HEAP2_PRUNE_ON_ACCESS		XLOG_HEAP2_PRUNE
#define XLOG_HEAP2_PRUNE_VACUUM_SCAN	XLOG_HEAP2_FREEZE_PAGE
#define XLOG_HEAP2_PRUNE_VACUUM_CLEANUP XLOG_HEAP2_VACUUM
#endif

#endif							/* !FRONTEND */

#endif							/* PCACHE_COMPAT_H */
