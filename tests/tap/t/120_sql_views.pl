
# Copyright (c) 2026, the persistent-cache developers

# The extension pg_pcache in each mode, and on a standby: its regression test,
# counters against the pool file, pg_pcache_seal(), and whether
# pg_pcache_next_start() foretells what really happens.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Columns of either view, which have one row each.
my $stat = sub {
	my ($node, $columns) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM pg_pcache_pool, pg_stat_pcache");
};

# As "make installcheck" in contrib/pg_pcache does.
sub run_regress
{
	my ($node, $name) = @_;
	my $dir = "$ENV{top_builddir}/contrib/pg_pcache";
	my $outputdir = PostgreSQL::Test::Utils::tempdir();

	$node->command_ok(
		[
			$ENV{PG_REGRESS}, "--inputdir=$dir", "--outputdir=$outputdir",
			'--bindir=', '--host=' . $node->host, '--port=' . $node->port,
			'--dbname=contrib_regression', 'pg_pcache'
		],
		"$name: regression test");
	diag(slurp_file("$outputdir/regression.diffs")) if -s "$outputdir/regression.diffs";
	return;
}

# What the views say of relations must be what pg_buffercache says.
sub relations_agree
{
	my ($node, $name) = @_;

	is( $node->safe_psql('postgres', q{
WITH a AS MATERIALIZED (SELECT relfilenode, reltablespace, reldatabase, relforknumber, buffers
      FROM pg_pcache_relations),
  b AS MATERIALIZED (SELECT relfilenode, reltablespace, reldatabase, relforknumber, count(*) AS buffers
      FROM pg_buffercache WHERE relfilenode IS NOT NULL GROUP BY 1, 2, 3, 4)
SELECT * FROM ((TABLE a EXCEPT TABLE b) UNION ALL (TABLE b EXCEPT TABLE a)) s}),
		'', "$name: relations as in pg_buffercache");
	return;
}

# ---------------------------------------------------------------------------
# off
# ---------------------------------------------------------------------------
my $node = new_node('off', mode => undef);
$node->start;
load_data($node);
run_regress($node, 'off');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
is($stat->($node, q{mode, num_nulls(pg_pcache_pool.*, pg_stat_pcache.*)}), 'off|0', 'off: a row');
is($stat->($node, q{(SELECT count(*) FROM jsonb_each(to_jsonb(pg_pcache_pool) || to_jsonb(pg_stat_pcache)) WHERE value <> 'null')}),
	2, 'off: mode and buffers are all there is');
relations_agree($node, 'off');
is($node->safe_psql('postgres', 'SELECT warm, reason, detail FROM pg_pcache_next_start($$crash$$)'),
	'f|off|persistent_cache_mode is off', 'off: the next start');
is($node->safe_psql('postgres', 'SELECT pg_pcache_seal() IS NULL'), 't', 'off: nothing to seal');
$node->stop;

# ---------------------------------------------------------------------------
# planned_restart
# ---------------------------------------------------------------------------
$node = new_node('planned');
$node->start;
load_data($node);
run_regress($node, 'planned_restart');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
is($stat->($node, 'mode, file_system, state, last_start, last_start_reason, media, dimms'),
	'planned_restart|tmpfs|dirty|cold|new|clean|clean', 'planned_restart: first start');
my $offset = log_offset($node);
my $valid = warm_up($node);
$node->restart;
my $outcome = start_outcome($node, $offset);
is($stat->($node, 'last_start, kept, dropped'), "warm|$outcome->{kept}|0",
	'planned_restart: the log and the view agree');
is($stat->($node, 'num_nonnulls(sealer_pid, marks, seals, seal_failures, bytes_flushed, drains, queue_length, sealed, sealed_fraction, watermark)'),
	0, 'planned_restart: nothing is sealed while running');
relations_agree($node, 'planned_restart');
is($node->safe_psql('postgres', 'SELECT warm, reason, detail FROM pg_pcache_next_start($$crash$$)'),
	'f|dirty|the server was not shut down cleanly', 'planned_restart: the next start');

# Dropped pages, by reason.
$node->stop;
my @slots = sealed_slots(pool_file($node));
write_descriptor(pool_file($node), $slots[7], crc => 1);
$node->start;
is($stat->($node, q{dropped, dropped_by_reason->>'damaged_descriptor', dropped_by_reason->>'bad_block'}),
	'1|1|0', 'planned_restart: a damaged descriptor shows');
$node->stop;

# ---------------------------------------------------------------------------
# always
# ---------------------------------------------------------------------------
$node = new_node('always', mode => 'always', conf => "synchronous_commit = on\nwal_level = replica\nrestart_after_crash = on");
$node->start;
load_data($node);
run_regress($node, 'always');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache; CREATE EXTENSION dblink');
warm_up($node);
relations_agree($node, 'always');

# But for those that looking at it seals, unseals or replaces.
sub is_about
{
	my ($got, $expected, $name) = @_;

	cmp_ok(abs($got - $expected), '<=', 20, "$name ($got, $expected)");
	return;
}

# The number of sealed slots comes from counters: they must agree with the
# descriptors, whatever happened before.
sub counters_agree
{
	my ($name) = @_;
	my ($left, $sealed);

	$left = $node->safe_psql('postgres', 'SELECT pg_pcache_seal()');
	is($left, 0, "$name: all that can be is sealed");
	$sealed = $stat->($node, 'sealed');
	is_about($sealed, scalar(sealed_slots(pool_file($node))), "$name: as many as in the pool file");
	is_about($sealed, $node->safe_psql('postgres', 'SELECT sum(sealed) FROM pg_pcache_relations'),
		"$name: as many as in the relations");
	is_about($stat->($node, 'queue_length'), 0, "$name: the queue is empty");
	return $sealed;
}
my $sealed = counters_agree('always');
cmp_ok($sealed, '>', 1000, 'always: that is most of them');
is($stat->($node, "sealed_fraction = sealed::float8 / buffers"), 't', 'always: fraction');
is($stat->($node, 'sealer_pid'),
	$node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'persistent cache sealer'"),
	'always: the sealer');

# Work of all kinds; marks and evictions.
$node->command_ok([ 'pgbench', '-i', '-q', '-s', 4, 'postgres' ], 'always: pgbench -i');
my $marks = $stat->($node, 'marks');
$node->command_ok([ 'pgbench', '-n', '-t', 500, '-c', 4, 'postgres' ], 'always: pgbench');
cmp_ok($stat->($node, 'marks'), '>', $marks, 'always: marks are counted');
$node->safe_psql('postgres', 'VACUUM pgbench_accounts; DROP TABLE pgbench_history; CREATE UNLOGGED TABLE u AS SELECT * FROM t_heap');
counters_agree('always, after work');
is( $stat->($node, 'marks + 2 * (seals - 1) / 256 + 1 <= drains AND bytes_flushed = (seals + seal_failures) * (8192 + 64)'),
	't', 'always: drains and bytes');
is($stat->($node, 'watermark <= pg_current_wal_flush_lsn() AND watermark_timeline = 1'),
	't', 'always: the watermark');

# Warm after a crash, as foretold, with the counters beginning anew.
is($node->safe_psql('postgres', 'SELECT warm, reason, detail FROM pg_pcache_next_start($$crash$$)'), 't|warm|', 'always: the next start');
is($node->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$host crash$$)'),
	'f|new', 'always: tmpfs does not survive the host');
# redo is not to evict what was kept
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'UPDATE t_heap SET filler = filler WHERE id <= 1000; SELECT pg_pcache_seal()');
kill_all($node);
$outcome = warm_after_crash($node, $sealed / 2, 'always, kill -9');
is($stat->($node, 'last_start, kept'), "warm|$outcome->{kept}", 'always, kill -9: the log and the view agree');
my $kept = $node->safe_psql('postgres', 'SELECT sum(kept) FROM pg_pcache_relations');
cmp_ok($kept, '<=', $outcome->{kept}, 'always, kill -9: relations know what was kept');
cmp_ok($kept, '>', 0.9 * $outcome->{kept}, 'always, kill -9: most of that is still there');
counters_agree('always, kill -9');
my $dirty = $stat->($node, 'kept_dirty');
cmp_ok($dirty, '>', 0, 'always, kill -9: some are dirty');
like($outcome->{log}, qr/$dirty of the kept pages (?:is|are) dirty/, 'always, kill -9: dirty ones');
counters_agree('always, once more');
$outcome = restart_warm($node, 'always, restarted');
is($node->safe_psql('postgres', 'SELECT sum(kept) > 0.9 * %d AND sum(kept) <= %d FROM pg_pcache_relations' =~ s/%d/$outcome->{kept}/gr),
	't', 'always, restarted: relations know what was kept');
counters_agree('always, restarted');

# pg_pcache_seal() does not wait for the sealer's own pace ...
$node->append_conf('postgresql.conf', 'persistent_cache_seal_delay = 10s');
$node->restart;
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1');
cmp_ok($node->safe_psql('postgres', q{SELECT buffers - sealed FROM pg_pcache_relations
WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0}),
	'>', 100, 'slow sealer: it is behind');
warm_up($node);
counters_agree('slow sealer');
$valid = permanent_buffers($node);
is($node->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, 'slow sealer: all is sealed');
kill_all($node);
# but for catalog pages that the last session had in change
warm_after_crash($node, $valid, 'slow sealer, kill -9', ratio => 0.99);

# ... and can be interrupted while the sealer is stuck.
my $sealer = $stat->($node, 'sealer_pid');
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1');
kill 'STOP', $sealer;
my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '500ms'; SELECT pg_pcache_seal()");
like($stderr, qr/canceling statement due to statement timeout/, 'stuck sealer: interrupted');
kill 'CONT', $sealer;
counters_agree('stuck sealer goes on');

# A restart after a crash of a process is a start, too, and has its own time.
my $started = $stat->($node, 'last_start_time');
is($stat->($node, "last_start_time > pg_postmaster_start_time()"), 't', 'restart after a crash: the time of the start of the server');
$offset = log_offset($node);
kill 'KILL', $stat->($node, 'sealer_pid');
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
wait_until_back($node);
ok($node->poll_query_until('postgres', "SELECT last_start_time > '$started' FROM pg_pcache_pool"), 'restart after a crash: a later time');
ok($node->poll_query_until('postgres', 'SELECT sealer_pid IS NOT NULL FROM pg_stat_pcache'), 'restart after a crash: there is a sealer again');

# What keeps the next start cold shows at once.
my $superblocks = read_bytes(pool_file($node), 0, CONTROL_OFFSET + 128);
for my $case (
	[ 'a damaged superblock', 'superblock', sub { damage_superblock(pool_file($node), 'state', 0, COPY_OFFSET) } ],
	[ 'another cluster', 'system identifier', sub { patch_superblock(pool_file($node), system_identifier => 1) } ],
	[ 'another incarnation', 'incarnation', sub { patch_superblock(pool_file($node), incarnation => 1) } ],
	[ 'another checkpoint', 'checkpoint', sub { write_bytes(pool_file($node), CONTROL_OFFSET + 64 * $_ + 16, pack('Q', 1)) for 0, 1 } ])
{
	my ($name, $reason, $damage) = @$case;

	$damage->();
	is($node->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$crash$$)'),
		"f|$reason", "$name: cold");
	write_bytes(pool_file($node), 0, $superblocks);
	is($node->safe_psql('postgres', 'SELECT warm FROM pg_pcache_next_start($$crash$$)'), 't', "$name, mended: warm");
}
rename pool_file($node), pool_file($node) . '.moved' or die "rename: $!";
is($node->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$crash$$)'), 'f|new', 'no pool: cold');
rename pool_file($node) . '.moved', pool_file($node) or die "rename: $!";
append_to_file($node->data_dir . '/recovery.signal', '');
is($node->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$crash$$)'),
	'f|recovery target', 'recovery.signal: cold');
unlink $node->data_dir . '/recovery.signal';
is($node->safe_psql('postgres', 'SELECT warm FROM pg_pcache_next_start($$crash$$)'), 't', 'all is well again');
$node->stop;

# ---------------------------------------------------------------------------
# A standby
# ---------------------------------------------------------------------------
my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 }, conf => "wal_keep_size = 320MB\nsynchronous_commit = on");
$primary->start;
$primary->backup('b');
my $standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->start;
load_data($primary);
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
is($stat->($standby, 'mode, last_start'), 'always|cold', 'standby: a row');
warm_up($standby);
is($standby->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, 'standby: all is sealed');
$node = $standby;
counters_agree('standby');
relations_agree($standby, 'standby');
$valid = permanent_buffers($standby);
my $foretold = $standby->safe_psql('postgres', 'SELECT warm, reason FROM pg_pcache_next_start($$crash$$)');
is($foretold, 't|warm', 'standby: the next start');
kill_all($standby);
warm_after_crash($standby, $valid, 'standby, kill -9', ratio => 0.95);
is($stat->($standby, 'last_start'), 'warm', 'standby, kill -9: the view says so');
$primary->stop;
$standby->promote;
is($standby->safe_psql('postgres', 'SELECT pg_pcache_seal() >= 0'), 't', 'promoted: sealed');
$standby->stop;
done_testing();
