
# Copyright (c) 2026, the persistent-cache developers

# Redo changes the same pages again and again.  Each of them is sealed once, when
# redo is through with what the kept pages contain (rule 90).

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	ROWS => 10000,
	ROUNDS => 20,
};

my $node = new_node('main', mode => 'always', shared_buffers => '64MB', conf => q{
persistent_cache_seal_delay = 1ms
max_wal_size = 10GB
checkpoint_timeout = 1h
autovacuum = off});
my ($offset, $outcome, $log, $seals, $marks, $used);

$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_pcache');
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
kill_all($node);

# Nearly no page of the table was sealed, so redo brings them all back.
$node->append_conf('postgresql.conf', 'persistent_cache_seal_delay = 1ms');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'warm after the crash');
wait_for_seals();
($seals, $marks, $used) = split /\|/, $node->safe_psql('postgres', q{
SELECT seals, marks, (SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NOT NULL) FROM pg_stat_pcache});

# A mark is of a page that was kept; what else was sealed came into another slot.
note("seals: $seals, marks: $marks, kept: $outcome->{kept}, buffers in use: $used");
cmp_ok($used - $outcome->{kept}, '>', 300, 'redo has brought back pages that were not kept');
cmp_ok($seals, '<=', 1.05 * ($marks + $used - $outcome->{kept}), 'a page that redo has changed is sealed once');
is($node->safe_psql('postgres', 'SELECT count(*), min(v), max(v) FROM t'), ROWS . '|' . ROUNDS . '|' . ROUNDS, 'contents are right');
$node->stop;
done_testing();
