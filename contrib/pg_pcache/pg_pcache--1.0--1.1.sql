/* contrib/pg_pcache/pg_pcache--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION pg_pcache UPDATE TO '1.1'" to load this file. \quit

-- What 1.0.0 did while its server ran is done no more.
DROP VIEW pg_stat_pcache;
DROP FUNCTION pg_stat_pcache();
DROP FUNCTION pg_pcache_seal();

-- Their columns differ.
DROP VIEW pg_pcache_pool;
DROP FUNCTION pg_pcache_pool();
DROP VIEW pg_pcache_relations;
DROP FUNCTION pg_pcache_relations();

CREATE FUNCTION pg_pcache_pool(
	OUT mode text,
	OUT buffers int4,
	OUT pool text,
	OUT file_system text,
	OUT capacity int8,
	OUT pool_size int8,
	OUT file_system_size int8,
	OUT file_system_free int8,
	OUT state text,
	OUT last_start text,
	OUT last_start_time timestamptz,
	OUT last_start_reason text,
	OUT last_start_detail text,
	OUT kept int8,
	OUT dropped int8,
	OUT dropped_by_reason jsonb,
	OUT retired int4,
	OUT startup_ms float8,
	OUT rebuild_ms float8,
	OUT younger int8,
	OUT redo_skipped int8,
	OUT redo_called int8,
	OUT media_checked timestamptz,
	OUT media text,
	OUT media_detail text,
	OUT bad_bytes int8,
	OUT dimms text,
	OUT dimms_detail text,
	OUT dimm_health text,
	OUT persistence_domain text,
	OUT power_loss text,
	OUT power_loss_detail text)
AS 'MODULE_PATHNAME', 'pg_pcache_pool'
LANGUAGE C VOLATILE PARALLEL SAFE;

CREATE VIEW pg_pcache_pool AS
	SELECT * FROM pg_pcache_pool();

CREATE FUNCTION pg_pcache_relations(
	OUT relfilenode oid,
	OUT reltablespace oid,
	OUT reldatabase oid,
	OUT relforknumber int2,
	OUT buffers int8)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_pcache_relations'
LANGUAGE C VOLATILE PARALLEL SAFE;

-- A relation has a name in its own database only, and a temporary one is in no shared buffer.
CREATE VIEW pg_pcache_relations AS
	SELECT r.relfilenode, r.reltablespace, r.reldatabase, r.relforknumber, r.buffers,
		c.oid::regclass AS relation
	FROM pg_pcache_relations() r
	LEFT JOIN (pg_class c JOIN pg_database d ON d.datname = current_database())
		ON r.relfilenode = pg_relation_filenode(c.oid)
		AND r.reltablespace = CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace END
		AND r.reldatabase = CASE WHEN c.relisshared THEN 0 ELSE d.oid END
		AND c.relpersistence <> 't';

-- Don't want these to be available to public.
REVOKE ALL ON FUNCTION pg_pcache_pool() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_pcache_relations() FROM PUBLIC;
REVOKE ALL ON pg_pcache_pool FROM PUBLIC;
REVOKE ALL ON pg_pcache_relations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_pcache_pool() TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_pcache_relations() TO pg_monitor;
GRANT SELECT ON pg_pcache_pool TO pg_monitor;
GRANT SELECT ON pg_pcache_relations TO pg_monitor;
