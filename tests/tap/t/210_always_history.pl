
# Copyright (c) 2026, the persistent-cache developers

# Mode always: a data directory that is not what the pool's server left, or
# that goes another way from there, is cold after a crash, for the right
# reason and with the right data.

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', mode => 'always',
	init => { has_archiving => 1, allows_streaming => 1, extra => [ '--wal-segsize' => 1 ] },
	conf => "wal_keep_size = 64MB\nwal_log_hints = on");
my $data = $node->data_dir;
my $snapshot = $node->basedir . '/snapshot';
my ($expected, $valid, $offset, $outcome);

$node->start;
load_data($node);
$node->backup('b');
($expected, $valid) = change_and_crash($node);
warm_after_crash($node, $valid, 'plain crash');
contents_right($node, $expected, 'plain crash');

# Where a ratio is given: new pages without LSN, which lost transactions have
# left at the end of a table, are not kept.

# --- a snapshot of the running data directory is put back: the same
# incarnation, and no checkpoint since
my $then = take_snapshot();
($expected, $valid) = change_and_crash($node);
isnt($expected, $then, 'snapshot: something has changed since');
put_back($node, $snapshot);
$expected = $then;
cold_then_warm($node, $expected, 'watermark', qr/^the WAL before .* is not what was written$|^could not (open|read) file/, 'snapshot', ratio => 0.95);

# One that lacks but one small transaction, which may end anywhere in a page.
for my $before (16, 40, 80)
{
	my $name = "snapshot that lacks a row, $before bytes before a page's end";
	my $position;

	warm_up($node);
	# a row and its commit in one flush
	$position = $node->safe_psql('postgres', q{CHECKPOINT; SELECT pg_current_wal_insert_lsn() - '0/0'});
	my $length = (8192 - 128 - $before - $position % 8192 - 56) % 8192;
	$length += 8192 if $length < 64;
	$node->safe_psql('postgres', "SELECT pg_logical_emit_message(false, '', repeat('x', $length), true)");
	$then = take_snapshot();
	$node->safe_psql('postgres', q{INSERT INTO t_other VALUES (17, 'lost')});
	$node->safe_psql('postgres', 'SELECT count(*) FROM t_other');
	wait_for_seals();
	kill_all($node);
	put_back($node, $snapshot);
	$expected = $then;
	cold_after_crash($node, 'watermark', qr/^the WAL before .* is not what was written$|^could not (open|read) file/, $name);
	contents_right($node, $expected, $name);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM t_other WHERE id = 17}), 0, "$name: the row is lost");
}

# A snapshot of an earlier run.
$then = take_snapshot();
$node->restart;
($expected, $valid) = change_and_crash($node);
put_back($node, $snapshot);
$expected = $then;
cold_then_warm($node, $expected, 'incarnation', qr/^the pool was last used by incarnation/, 'snapshot of an earlier run', ratio => 0.95);

# --- a base backup is put back, below the record of the pool
($expected, $valid) = change_and_crash($node);
my $state = slurp_file(state_file($node));
my $restored = checksums_of_backup();
rename $data, "$data.old" or die $!;
$node->init_from_backup($node, 'b');
append_to_file(state_file($node), $state);
chmod 0600, state_file($node);
$expected = $restored;
cold_then_warm($node, $expected, undef, qr/^the pool knows of checkpoints |^could not open file/, 'base backup', ratio => 0.95);

# --- pg_resetwal
($expected, $valid) = change_and_crash($node);
unlink "$data/postmaster.pid";
command_ok([ 'pg_resetwal', '-f', '-D' => $data ], 'pg_resetwal -f');
# contents are not what they were: the same without the pool
my $copy = copy_of_data();
cold_after_crash($node, 'checkpoint', qr/^the pool knows of checkpoints /, 'pg_resetwal');
same_without_pool($copy, 'pg_resetwal');

# --- pg_checksums
for my $action ('--disable', '--enable')
{
	warm_up($node);
	$expected = checksums($node, tables => [LOGGED]);
	$node->stop;
	command_ok([ 'pg_checksums', $action, '--no-sync', '-D' => $data ], "pg_checksums $action");
	cold_then_warm($node, $expected, 'data_checksums', qr/^data checksums were switched on or off$/, "pg_checksums $action", ratio => 0.95);
}

# --- recovery from the archive, in place, to its end
($expected, $valid) = change_and_crash($node);
my $conf = slurp_file("$data/postgresql.conf");
$node->append_conf('postgresql.conf', q{restore_command = 'false'});
append_to_file("$data/recovery.signal", '');
cold_after_crash($node, 'recovery_target', qr/^point-in-time recovery was requested$/, 'archive recovery');
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
contents_right($node, $expected, 'archive recovery');
$valid = seal_and_kill($node);
warm_after_crash($node, $valid, 'archive recovery, then a crash', ratio => 0.95);
contents_right($node, $expected, 'archive recovery, then a crash');

# --- point-in-time recovery from a backup, to an earlier time
$node->backup('c');
$node->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
my $target = checksums($node, tables => [LOGGED]);
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
($expected, $valid) = change_and_crash($node);
isnt($expected, $target, 'PITR: something has changed since');
$state = slurp_file(state_file($node));
rename $data, "$data.old2" or die $!;
$node->init_from_backup($node, 'c', has_restoring => 1, standby => 0);
append_to_file(state_file($node), $state);
chmod 0600, state_file($node);
$node->append_conf('postgresql.conf', q{
recovery_target_name = 'here'
recovery_target_action = promote});
cold_after_crash($node, undef, qr/^the pool knows of checkpoints |^could not open file/, 'PITR');
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
$expected = $target;
contents_right($node, $expected, 'PITR');
$valid = seal_and_kill($node);
warm_after_crash($node, $valid, 'PITR, then a crash', ratio => 0.95);
contents_right($node, $expected, 'PITR, then a crash');
$node->stop;

# --- a standby is promoted; the old primary crashes, and is started again
my $old = new_node('old', mode => 'always',
	init => { allows_streaming => 1 }, conf => "wal_keep_size = 320MB\nwal_log_hints = on");

$old->start;
$old->backup('b');
my $new = new_standby('new', $old, 'b', mode => 'always');
$new->start;
load_data($old);
$old->wait_for_replay_catchup($new);
$new->promote;
$new->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1000 WHERE id % 5 = 0');
$old->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 2000 WHERE id % 7 = 0');
my %sum = map { $_->name => checksums($_, tables => [LOGGED]) } $old, $new;
$valid = seal_and_kill($old);
warm_after_crash($old, $valid, 'old primary');
is(checksums($old, tables => [LOGGED]), $sum{old}, 'old primary: it has its own contents');
$valid = seal_and_kill($new);
warm_after_crash($new, $valid, 'new primary');
is(checksums($new, tables => [LOGGED]), $sum{new}, 'new primary: it has its own contents');

# The old one becomes a standby of the new one, by pg_rewind after a crash.
seal_and_kill($old);
$conf = slurp_file($old->data_dir . '/postgresql.conf');
$new->safe_psql('postgres', 'CHECKPOINT');
command_ok([ 'pg_rewind', '--no-sync', '--source-server' => $new->connstr('postgres'),
		'--target-pgdata' => $old->data_dir ], 'pg_rewind after a crash');
unlink $old->data_dir . '/postgresql.conf';
append_to_file($old->data_dir . '/postgresql.conf', $conf);
chmod 0600, $old->data_dir . '/postgresql.conf';
$old->enable_streaming($new);
$old->set_standby_mode;
# it has recovered the cluster in single-user mode first
cold_after_crash($old, undef, qr/^the cluster was run without the pool$/, 'pg_rewind');
$new->wait_for_replay_catchup($old);
is(checksums($old, tables => [LOGGED]), $sum{new}, 'pg_rewind: contents of the new primary');
$valid = seal_and_kill($old);
warm_after_crash($old, $valid, 'pg_rewind, then a crash');
is(checksums($old, tables => [LOGGED]), $sum{new}, 'pg_rewind, then a crash: contents are right');
$old->stop;
$new->stop;
done_testing();

# Copy the data directory of the running server, as a file system's snapshot
# would do, and return the checksums of that time.
sub take_snapshot
{
	my $sums = checksums($node, tables => [LOGGED]);

	remove_tree($snapshot);
	system_or_bail('cp', '-a', $data, $snapshot);
	return $sums;
}

# A copy of the crashed data directory, to be started without the pool.
sub copy_of_data
{
	my $twin = PostgreSQL::Test::Cluster->new('twin');

	system_or_bail('cp', '-a', $data, $twin->data_dir);
	unlink $twin->data_dir . '/postmaster.pid';
	$twin->append_conf('postgresql.conf', 'port = ' . $twin->port);
	$twin->append_conf('postgresql.conf', 'archive_mode = off');
	set_mode($twin, 'off');
	return $twin;
}

sub same_without_pool
{
	my ($twin, $name) = @_;

	$twin->start;
	is(checksums($node, tables => [LOGGED]), checksums($twin, tables => [LOGGED]),
		"$name: contents are the same without the pool");
	$twin->stop;
	return;
}

# What is in the base backup.
sub checksums_of_backup
{
	my $twin = PostgreSQL::Test::Cluster->new('of_backup');
	my $sums;

	$twin->init_from_backup($node, 'b');
	$twin->append_conf('postgresql.conf', 'archive_mode = off');
	set_mode($twin, 'off');
	$twin->start;
	$sums = checksums($twin, tables => [LOGGED]);
	$twin->stop;
	return $sums;
}
