-- The same output in each pcache.mode, on a primary.
CREATE EXTENSION pg_pcache;

-- One row; what does not apply is null.
SELECT count(*) AS pool FROM pg_pcache_pool;
SELECT mode = current_setting('pcache.mode') AS mode,
  buffers = (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers') AS buffers,
  (pool IS NULL) = (mode = 'off') AS pool,
  (capacity >= buffers) IS DISTINCT FROM (mode = 'off') AS capacity,
  (file_system_size > pool_size AND file_system_free BETWEEN 0 AND file_system_size - pool_size)
    IS DISTINCT FROM (mode = 'off') AS room,
  (last_start IN ('warm', 'cold')) IS DISTINCT FROM (mode = 'off') AS last_start,
  (last_start_reason IS NULL) = (mode = 'off' OR last_start = 'warm') AS reason,
  (kept >= 0) IS DISTINCT FROM (mode = 'off') AS kept,
  (rebuild_ms <= startup_ms) IS DISTINCT FROM (mode = 'off') AS times,
  (last_start_time BETWEEN pg_postmaster_start_time() - interval '1 minute' AND now()) IS DISTINCT FROM (mode = 'off') AS last_start_time,
  (media IS NULL) = (mode = 'off') AS media,
  (power_loss IN ('cold', 'ledger', 'headers')) IS DISTINCT FROM (mode = 'off') AS power_loss
FROM pg_pcache_pool;
SELECT s.mode = 'off' OR s.dropped = (SELECT sum(value::int8) FROM jsonb_each_text(s.dropped_by_reason)) AS dropped
FROM pg_pcache_pool s;
SELECT coalesce(bool_and(key ~ '^[a-z_]+$'), true) AS keys
FROM pg_pcache_pool, jsonb_object_keys(dropped_by_reason) key;

-- A relation that is cached.
CREATE TABLE pcache_test (id int, filler text) WITH (autovacuum_enabled = off);
INSERT INTO pcache_test SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i;
SELECT buffers = pg_relation_size('pcache_test') / current_setting('block_size')::int AS buffers
FROM pg_pcache_relations
WHERE relfilenode = pg_relation_filenode('pcache_test') AND relforknumber = 0
  AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database());
-- Each row once, with a name if there is one here.
SELECT relation, reldatabase = 0 AS shared
FROM pg_pcache_relations
WHERE relation IN ('pcache_test'::regclass, 'pg_class'::regclass, 'pg_database'::regclass) AND relforknumber = 0
ORDER BY relation::text;
SELECT count(*) = count(DISTINCT (relfilenode, reltablespace, reldatabase, relforknumber)) AS once,
  count(relation) FILTER (WHERE reldatabase NOT IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))) AS elsewhere
FROM pg_pcache_relations;
DROP TABLE pcache_test;

-- Would a crash now start warm?  The server needs a moment to note a checkpoint.
CHECKPOINT;
DO $$ BEGIN PERFORM pg_sleep(1); END $$;
SELECT warm = (mode = 'always') AS warm,
  reason = CASE mode WHEN 'off' THEN 'off' WHEN 'always' THEN 'warm' ELSE 'dirty' END AS reason
FROM pg_pcache_next_start('crash'), pg_pcache_pool;
SELECT NOT warm OR file_system = 'fsdax' AS warm
FROM pg_pcache_next_start('host crash'), pg_pcache_pool;
SELECT warm IS NULL AS strict FROM pg_pcache_next_start(NULL);
SELECT warm = (mode <> 'off') AS warm,
  reason = CASE mode WHEN 'off' THEN 'off' ELSE 'warm' END AS reason, hint
FROM pg_pcache_next_start(), pg_pcache_pool;
SELECT * FROM pg_pcache_next_start('an earthquake');

-- Not for everybody.
SET ROLE pg_database_owner;
SELECT * FROM pg_pcache_pool;
SELECT * FROM pg_pcache_pool();
SELECT * FROM pg_pcache_relations;
SELECT * FROM pg_pcache_relations();
SELECT * FROM pg_pcache_next_start('crash');
RESET ROLE;

SET ROLE pg_monitor;
SELECT count(*) FROM pg_pcache_pool;
SELECT count(*) > 0 AS relations, count(relation) > 0 AS names FROM pg_pcache_relations;
SELECT count(*) FROM pg_pcache_next_start('crash');
RESET ROLE;

-- From the version that release 1.0.0 had: what is gone from it, and a view that is another one.
CREATE FUNCTION pg_stat_pcache() RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8';
CREATE VIEW pg_stat_pcache AS SELECT pg_stat_pcache();
CREATE FUNCTION pg_pcache_seal() RETURNS int8 LANGUAGE sql AS 'SELECT 1::int8';
ALTER EXTENSION pg_pcache ADD FUNCTION pg_stat_pcache();
ALTER EXTENSION pg_pcache ADD VIEW pg_stat_pcache;
ALTER EXTENSION pg_pcache ADD FUNCTION pg_pcache_seal();
ALTER EXTENSION pg_pcache DROP VIEW pg_pcache_relations;
DROP VIEW pg_pcache_relations;
ALTER EXTENSION pg_pcache DROP FUNCTION pg_pcache_relations();
DROP FUNCTION pg_pcache_relations();
CREATE FUNCTION pg_pcache_relations(OUT relfilenode oid, OUT sealed int8) RETURNS SETOF record
AS '$libdir/pg_pcache' LANGUAGE C;
CREATE VIEW pg_pcache_relations AS SELECT * FROM pg_pcache_relations();
ALTER EXTENSION pg_pcache ADD FUNCTION pg_pcache_relations();
ALTER EXTENSION pg_pcache ADD VIEW pg_pcache_relations;
UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'pg_pcache';
SELECT * FROM pg_pcache_relations;
ALTER EXTENSION pg_pcache UPDATE;
\dx+ pg_pcache
SELECT has_table_privilege('pg_monitor', 'pg_pcache_relations', 'SELECT') AS monitor,
  has_table_privilege('pg_database_owner', 'pg_pcache_relations', 'SELECT') AS others;
SELECT count(*) > 0 AS relations, count(relation) > 0 AS names FROM pg_pcache_relations;
DROP EXTENSION pg_pcache;
