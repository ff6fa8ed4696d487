
# Copyright (c) 2026, the persistent-cache developers

# Redo changes the same pages again and again.  Each of them is sealed once, when redo is
# through with what the kept pages contain (rule "the sealer begins when the pool is in use").

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	ROWS => 10000,
	ROUNDS => 20,
	OTHERS => 32,    # of the few that the server reads or changes by itself
};

my $node = new_node('main', mode => 'always', shared_buffers => '64MB', conf => q{
persistent_cache_seal_delay = 1ms
max_wal_size = 10GB
checkpoint_timeout = 1h
autovacuum = off});
my ($offset, $outcome, $seals, $changed);

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache; CREATE EXTENSION pg_walinspect');
$node->safe_psql('postgres', sprintf(q{
CREATE TABLE t (id int, v int) WITH (fillfactor = 10);
INSERT INTO t SELECT i, 0 FROM generate_series(1, %d) i;
CHECKPOINT}, ROWS));
wait_for_seals();
$node->append_conf('postgresql.conf', 'persistent_cache_seal_delay = 10s');
$node->reload;
for my $round (1 .. ROUNDS)
{
	$node->safe_psql('postgres', "UPDATE t SET v = $round");
}
$changed = $node->safe_psql('postgres', q{
SELECT count(DISTINCT (reltablespace, reldatabase, relfilenode, relforknumber, relblocknumber))
FROM pg_get_wal_block_info((SELECT redo_lsn FROM pg_control_checkpoint()), pg_current_wal_flush_lsn())});
kill_all($node);

# Nearly no page of the table was sealed, so redo brings them all back.
$node->append_conf('postgresql.conf', 'persistent_cache_seal_delay = 1ms');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'warm after the crash');
wait_for_seals();
$seals = $node->safe_psql('postgres', 'SELECT seals FROM pg_stat_pcache');
note("$seals seals, $changed pages in WAL");
cmp_ok($changed, '>', 400, 'redo goes over many pages');
cmp_ok($seals, '<=', 1.05 * $changed + OTHERS, 'a page that redo has changed is sealed once');
is($node->safe_psql('postgres', 'SELECT count(*), min(v), max(v) FROM t'), ROWS . '|' . ROUNDS . '|' . ROUNDS, 'contents are right');
$node->stop;
done_testing();
