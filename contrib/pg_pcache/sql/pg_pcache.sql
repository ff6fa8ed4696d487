-- The same output in each pcache.mode, on a primary.
CREATE EXTENSION pg_pcache;

-- One row each; what does not apply is null.
SELECT (SELECT count(*) FROM pg_pcache_pool) AS pool, (SELECT count(*) FROM pg_stat_pcache) AS stat;
SELECT mode = current_setting('pcache.mode') AS mode,
  buffers = (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers') AS buffers,
  (pool IS NULL) = (mode = 'off') AS pool,
  (capacity >= buffers) IS DISTINCT FROM (mode = 'off') AS capacity,
  (file_system_size > pool_size AND file_system_free BETWEEN 0 AND file_system_size - pool_size)
    IS DISTINCT FROM (mode = 'off') AS room,
  (last_start IN ('warm', 'cold')) IS DISTINCT FROM (mode = 'off') AS last_start,
  (last_start_reason IS NULL) = (mode = 'off' OR last_start = 'warm') AS reason,
  (kept >= 0 AND kept_dirty = 0) IS DISTINCT FROM (mode = 'off') AS kept,
  (rebuild_ms <= startup_ms) IS DISTINCT FROM (mode = 'off') AS times,
  (last_start_time BETWEEN pg_postmaster_start_time() - interval '1 minute' AND now()) IS DISTINCT FROM (mode = 'off') AS last_start_time,
  (media IS NULL) = (mode = 'off') AS media
FROM pg_pcache_pool;
SELECT num_nonnulls(sealer_pid, marks, seals, queue_length, sealed, watermark) AS nonnulls, pg_pcache_seal() FROM pg_stat_pcache;
SELECT s.mode = 'off' OR s.dropped = (SELECT sum(value::int8) FROM jsonb_each_text(s.dropped_by_reason)) AS dropped
FROM pg_pcache_pool s;
SELECT coalesce(bool_and(key ~ '^[a-z_]+$'), true) AS keys
FROM pg_pcache_pool, jsonb_object_keys(dropped_by_reason) key;

-- A relation that is cached.
CREATE TABLE pcache_test (id int, filler text) WITH (autovacuum_enabled = off);
INSERT INTO pcache_test SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i;
SELECT buffers = pg_relation_size('pcache_test') / current_setting('block_size')::int AS buffers, sealed, kept
FROM pg_pcache_relations
WHERE relfilenode = pg_relation_filenode('pcache_test') AND relforknumber = 0
  AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database());
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
SELECT * FROM pg_stat_pcache;
SELECT * FROM pg_stat_pcache();
SELECT * FROM pg_pcache_relations;
SELECT * FROM pg_pcache_relations();
SELECT * FROM pg_pcache_next_start('crash');
SELECT pg_pcache_seal();
RESET ROLE;

SET ROLE pg_monitor;
SELECT count(*) FROM pg_pcache_pool;
SELECT count(*) FROM pg_stat_pcache;
SELECT count(*) > 0 AS relations FROM pg_pcache_relations;
SELECT count(*) FROM pg_pcache_next_start('crash');
SELECT pg_pcache_seal();
RESET ROLE;

DROP EXTENSION pg_pcache;
