/* contrib/pg_hotset/pg_hotset--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_hotset" to load this file. \quit

CREATE FUNCTION pg_hotset()
RETURNS bytea
AS 'MODULE_PATHNAME', 'pg_hotset'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION pg_hotset_pages(
	list bytea,
	OUT reltablespace oid,
	OUT reldatabase oid,
	OUT relfilenode oid,
	OUT relforknumber int2,
	OUT relblocknumber int8,
	OUT usagecount int2)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pg_hotset_pages'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION pg_hotset_info(
	list bytea,
	OUT system_identifier int8,
	OUT timeline int4,
	OUT lsn pg_lsn,
	OUT taken timestamptz,
	OUT server_start timestamptz,
	OUT buffers int8,
	OUT relations int8,
	OUT pages int8)
RETURNS record
AS 'MODULE_PATHNAME', 'pg_hotset_info'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION pg_hotset_load(
	file text,
	OUT read int8,
	OUT here int8,
	OUT skipped int8)
RETURNS record
AS 'MODULE_PATHNAME', 'pg_hotset_load'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION pg_stat_hotset(
	OUT pid int4,
	OUT state text,
	OUT list_from text,
	OUT received timestamptz,
	OUT taken timestamptz,
	OUT lsn pg_lsn,
	OUT timeline int4,
	OUT list_bytes int8,
	OUT list_pages int8,
	OUT pages_here int8,
	OUT percent_warm float8,
	OUT no_room int8,
	OUT compared timestamptz,
	OUT lists int8,
	OUT failures int8,
	OUT pages_read int8,
	OUT pages_skipped int8,
	OUT buffers_evicted int8,
	OUT evicted_again int8,
	OUT problem text,
	OUT problem_since timestamptz,
	OUT source_buffers int8)
RETURNS record
AS 'MODULE_PATHNAME', 'pg_stat_hotset'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW pg_stat_hotset AS
	SELECT * FROM pg_stat_hotset();

-- What is in shared buffers tells something of everybody's data.
REVOKE ALL ON FUNCTION pg_hotset() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_hotset_pages(bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_hotset_info(bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_hotset_load(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_stat_hotset() FROM PUBLIC;

GRANT EXECUTE ON FUNCTION pg_hotset() TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_hotset_pages(bytea) TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_hotset_info(bytea) TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_stat_hotset() TO pg_monitor;
GRANT SELECT ON pg_stat_hotset TO pg_monitor;
