-- What pg_hotset() tells, to whom, and what becomes of damaged lists.
CREATE EXTENSION pg_hotset;
CREATE EXTENSION pg_prewarm;

CREATE TABLE hot AS SELECT i, repeat('x', 300) AS filler FROM generate_series(1, 2000) i;
CREATE INDEX hot_i ON hot (i);
CREATE UNLOGGED TABLE hot_unlogged AS SELECT i FROM generate_series(1, 2000) i;
CREATE TEMPORARY TABLE hot_temporary AS SELECT i FROM generate_series(1, 2000) i;
SELECT pg_prewarm('hot') > 0 AS hot, pg_prewarm('hot_i') > 0 AS hot_i, pg_prewarm('hot_unlogged') > 0 AS hot_unlogged;

-- each page once, of permanent relations only
CREATE TABLE list AS SELECT pg_hotset() AS list;
CREATE VIEW pages AS SELECT p.* FROM list, pg_hotset_pages(list) p;
SELECT c.relname, count(p) * current_setting('block_size')::int = pg_relation_size(c.oid) AS all_pages,
	   count(DISTINCT relblocknumber) = count(*) AS each_once, min(usagecount) > 0 AS used
	FROM pg_class c LEFT JOIN pages p
		ON p.relfilenode = pg_relation_filenode(c.oid) AND relforknumber = 0 AND
		   reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
	WHERE c.relname LIKE 'hot%' GROUP BY c.oid ORDER BY c.relname COLLATE "C";
SELECT count(*) FROM pages WHERE relforknumber > 2;

-- the header
SELECT i.system_identifier = c.system_identifier AS system_identifier, timeline > 0 AS timeline,
	   lsn <= pg_current_wal_lsn() AS lsn, taken <= now() + interval '1 hour' AS taken,
	   server_start = pg_postmaster_start_time() AS server_start,
	   buffers = pg_size_bytes(current_setting('shared_buffers')) / current_setting('block_size')::int AS buffers,
	   pages = (SELECT count(*) FROM pages) AS pages,
	   relations = (SELECT count(DISTINCT (reldatabase, reltablespace, relfilenode, relforknumber)) FROM pages) AS relations
	FROM list, pg_hotset_info(list) i, pg_control_system() c;

-- A list never has more than a byte for each buffer, or 64 kB.
SELECT length(list) <= greatest(buffers, 65536) AS short FROM list, pg_hotset_info(list);

-- EXECUTE on the function is all that is needed, and without it there is nothing.
CREATE ROLE regress_hotset_reader;
SET ROLE regress_hotset_reader;
SELECT length(pg_hotset()) > 0;
SELECT * FROM pg_hotset_pages('\x');
SELECT * FROM pg_hotset_info('\x');
SELECT * FROM pg_stat_hotset;
SELECT * FROM pg_hotset_load('pg_hotset.list');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_hotset() TO regress_hotset_reader;
GRANT EXECUTE ON FUNCTION pg_hotset_load(text) TO regress_hotset_reader;
SET ROLE regress_hotset_reader;
SELECT length(pg_hotset()) > 0 AS has_list;
SELECT * FROM pg_hotset_load('pg_hotset.list');
RESET ROLE;
REVOKE ALL ON FUNCTION pg_hotset(), pg_hotset_load(text) FROM regress_hotset_reader;
DROP ROLE regress_hotset_reader;

-- Each byte matters, and so does the length.
SELECT * FROM pg_hotset_info('\x');
SELECT * FROM pg_hotset_info('\x50474853');
SELECT * FROM pg_hotset_info(convert_to(repeat('PGHOTSET', 10), 'UTF8'));
CREATE FUNCTION is_refused(bytea) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM * FROM pg_hotset_info($1);
	RETURN false;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN true;
END $$;
SELECT count(*) AS accepted
	FROM list, generate_series(0, length(list) - 1) n, (VALUES (1), (128), (255)) v(bits)
	WHERE NOT is_refused(set_byte(list, n, get_byte(list, n) # bits));
SELECT count(*) AS accepted FROM list, generate_series(0, length(list) - 1, 7) n WHERE NOT is_refused(substr(list, 1, n));
SELECT is_refused(list || '\x00') FROM list;

-- What nobody can have made, with a CRC that is right: set_crc() makes one.
CREATE FUNCTION set_crc(list bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT body || (SELECT decode(string_agg(substr(hex, n, 2), '' ORDER BY n DESC), 'hex')
					FROM (SELECT lpad(to_hex(crc32c(body)), 8, '0') AS hex) h, generate_series(1, 7, 2) n)
	FROM (SELECT substr(list, 1, length(list) - 4) AS body) b
$$;
SELECT set_crc(list) = list AS same FROM list;
SELECT count(*) FILTER (WHERE is_refused(set_crc(set_byte(list, n, get_byte(list, n) # bits)))) > 100 AS some_refused,
	   count(*) > 1000 AS all_done
	FROM list, generate_series(8, length(list) - 5) n, (VALUES (1), (128), (255)) v(bits);

-- files
SELECT * FROM pg_hotset_load('no_such_file');
SELECT * FROM pg_hotset_load('PG_VERSION');
SELECT * FROM pg_hotset_load('base');

-- Nothing is loaded by the server, so nothing is known of a primary.
SELECT pid, state, list_from, lists, failures, problem FROM pg_stat_hotset;

DROP FUNCTION is_refused, set_crc;
DROP VIEW pages;
DROP TABLE list, hot, hot_unlogged;
DROP EXTENSION pg_hotset;
DROP EXTENSION pg_prewarm;
