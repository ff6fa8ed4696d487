
# Copyright (c) 2026, the persistent-cache developers

# A standby that was stopped keeps what is permanent, of a main fork, and older than the
# redo point.  Promotion and switchover after that, and recovery to a target.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PCache::Wal qw(lsn_number);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = module_node('primary', standby => 1, conf => "wal_keep_size = 512MB\n");
my $standby = PostgreSQL::Test::Cluster->new('standby');
my ($offset, $outcome, $right, $valid);

# Work on the primary, which the standby has replayed and cached.  Its restartpoint writes
# what is younger than the redo point, too.  What comes later stays dirty.
sub work
{
	my ($from, $to) = @_;

	change_tables($from);
	$from->safe_psql('postgres', 'CHECKPOINT');
	change_tables($from);
	replay_until($from);
	contents($to);
	$to->safe_psql('postgres', 'CHECKPOINT');
	$from->safe_psql('postgres', q{UPDATE t_kinds SET p = p + point(1, 0) WHERE id % 50 = 3});
	replay_until($from);
	warm_pages($to);
	return;
}

# What the rule leaves of the entries of a pool, and what it drops, by reason.
sub by_rule
{
	my ($node) = @_;
	my ($out) = run_command([ 'pg_controldata', $node->data_dir ]);
	my ($redo) = $out =~ /^Latest checkpoint's REDO location: +(\S+)/m;
	my %n = (kept => 0);

	for my $e (pool_entries(pool_file($node)))
	{
		my $reason =
			!($e->{flags} & 1) ? 'unlogged'
		  : $e->{fork_number} != 0 ? 'not a main fork'
		  : $e->{page_lsn} <= 1 ? 'no LSN'
		  : $e->{page_lsn} >= lsn_number($redo) ? 'younger than redo'
		  : 'kept';

		$n{$reason}++;
	}
	return \%n;
}

# A standby that is down: start it, and look at what it keeps.
sub start_standby
{
	my ($node, $name) = @_;
	my $expected = by_rule($node);
	my $kept = delete $expected->{kept};
	my $result = start_and_compare($node, $name);

	is($result->{start}, 'warm', "$name: warm");
	is($result->{kept}, $kept, "$name: kept what the rule says");
	# those that are dirty have no entry
	delete $result->{dropped}{dirty};
	is_deeply($result->{dropped}, $expected, "$name: dropped what the rule says");
	return $result;
}

$primary->start;
load_tables($primary);
$primary->backup('b');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
module_settings($standby, conf => "wal_keep_size = 512MB\n");
$standby->start;
work($primary, $standby);
$standby->stop;

# The clean pages are what the files have, up to hints; pages younger than redo and maps
# are among them, which makes this a test of the rule.
cmp_ok(pool_equals_files($standby, 'first stop', hints => 1), '>', 500, 'first stop: pages');
my $rule = by_rule($standby);
cmp_ok($rule->{$_} // 0, '>', 0, "first stop: saved pages, $_") for 'kept', 'not a main fork', 'younger than redo';
$primary->stop;
$outcome = start_standby($standby, 'first restart');
cmp_ok($outcome->{kept}, '>', 500, 'first restart: pages are kept');
# Without new WAL the next stop leaves pg_control as it was, but for its time.
$standby->stop;
start_standby($standby, 'second restart');
$standby->stop;
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''\npcache.mode = off");
my $second = time;
$standby->start;
# pg_control has seconds
select undef, undef, undef, 0.02 while time == $second;
$standby->stop;
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'\npcache.mode = planned_restart");
cold_start($standby, qr/^the control file was changed since the pool was saved$/, 'a run without the library and without WAL');

# hot_standby = off: it is ready when recovery has begun
warm_pages($standby);
$standby->append_conf('postgresql.conf', 'hot_standby = off');
$offset = log_offset($standby);
$standby->restart;
is(start_outcome($standby, $offset)->{start}, 'warm', 'hot_standby = off: warm');
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if read_superblock(pool_file($standby))->{state} == STATE_DIRTY;
	select undef, undef, undef, 0.1;
}
is(read_superblock(pool_file($standby))->{state}, STATE_DIRTY, 'hot_standby = off: ready');
$standby->stop;
$standby->append_conf('postgresql.conf', 'hot_standby = on');
is(start_and_compare($standby, 'hot_standby = on again')->{start}, 'warm', 'hot_standby = on again: warm');

# cold: killed, and from a recovery target on
$primary->start;
work($primary, $standby);
kill_all($standby);
cold_start($standby, qr/^the server was not shut down cleanly$/, 'standby killed');
work($primary, $standby);
$standby->stop;
$standby->append_conf('postgresql.conf', "recovery_target_name = 'never'");
cold_start($standby, qr/^point-in-time recovery was requested$/, 'a recovery target');
$standby->stop;
$standby->append_conf('postgresql.conf', "recovery_target_name = ''");
$standby->start;

# Switchover: the old primary has unlogged tables, and becomes a standby.  The new one was
# started warm before.
work($primary, $standby);
$standby->stop;
start_standby($standby, 'before promotion');
$primary->wait_for_catchup($standby);
warm_pages($primary);
$primary->stop;
cmp_ok((grep { !($_->{flags} & 1) } pool_entries(pool_file($primary))), '>', 50, 'switchover: pages of unlogged tables are saved');
$standby->promote;
my $logged = sub { join "\n", grep { !/^(t_unlogged|t_seq|indexes)/ } split /\n/, $_[0] };
$primary->append_conf('postgresql.conf', 'primary_conninfo = \'' . $standby->connstr . " application_name=primary'");
append_to_file($primary->data_dir . '/standby.signal', '');
$outcome = start_and_compare($primary, 'switchover');
is($outcome->{start}, 'warm', 'switchover: warm');
is_deeply([ keys %{ $outcome->{dropped} } ], ['unlogged'], 'switchover: only unlogged pages are dropped');
cmp_ok($outcome->{dropped}{unlogged}, '>', 50, 'switchover: they all are');
work($standby, $primary);
is($logged->(contents($primary)), $logged->(contents($standby)), 'switchover: the standby has what the primary has');
warm_restart($standby, 'promoted', hints => 1);

# and back
$standby->stop;
$primary->promote;
is($primary->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'), 0, 'promoted: unlogged tables are empty');
$primary->safe_psql('postgres', q{INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i});
change_tables($primary);
warm_restart($primary, 'promoted again', hints => 1);

$primary->stop;
done_testing();
