
# Copyright (c) 2026, the persistent-cache developers

# A pool is not part of a base backup, and a cluster that was restored from a
# backup, or recovers to a point in time, never starts warm.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => { allows_streaming => 1, has_archiving => 1 });
my $data = $node->data_dir;

$node->start;
load_data($node);
restart_warm($node, 'before');

# What is in a backup, plain and tar.
$node->backup('plain');
my $backup = $node->backup_dir . '/plain';

ok(-f "$backup/global/pg_control", 'the backup has the cluster');
ok(!-e "$backup/pg_pcache", 'the backup has no directory of a pool');
ok(!-e "$backup/pg_pcache.state", 'the backup has no record of the pool');
command_ok([ 'pg_verifybackup', $backup ], 'pg_verifybackup passes');

# The same with a pool that lies in the data directory.
my $inside = PostgreSQL::Test::Cluster->new('inside');
$inside->init(allows_streaming => 1);
$inside->append_conf('postgresql.conf', 'shared_buffers = 16MB');
is((pcache($inside, 'init'))[0], 0, 'pool in the data directory: init');
set_mode($inside, 'planned_restart');
$inside->start;
$inside->backup('plain');
ok(-f $inside->data_dir . '/pg_pcache/pool', 'pool in the data directory: it is there');
is_deeply([ slurp_dir_entries($inside->backup_dir . '/plain/pg_pcache') ],
	[], 'pool in the data directory: the backup does not have it');
$inside->stop;

# Restore: a new cluster with the contents of the old, and with its pool.
my $expected = checksums($node, tables => [LOGGED]);
warm_up($node);
$node->stop;

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($node, 'plain');

my $offset = log_offset($restored);
$restored->start;
is_cold($restored, $offset, qr/^the data directory has no record of a pool$/,
	'restored backup on the old pool');
is(checksums($restored, tables => [LOGGED]),
	$expected, 'restored backup on the old pool: contents are right');
restart_warm($restored, 'restored backup, then a clean stop');
$restored->stop;

$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/incarnation/, 'the old cluster after that');
is(checksums($node, tables => [LOGGED]),
	$expected, 'the old cluster after that: contents are right');

# Restore over the old cluster, whose record of the pool survives.
warm_up($node);
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = 1');
$node->stop;
my $state = slurp_file(state_file($node));
rename $data, "$data.old" or die $!;
$node->init_from_backup($node, 'plain');
append_to_file(state_file($node), $state);
chmod 0600, state_file($node);
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'cold',
	'backup restored below the record of the pool: cold');
is(start_outcome($node, $offset)->{reason},
	'the cluster was run without the pool, and not shut down cleanly',
	'backup restored below the record of the pool: reason');
is(checksums($node, tables => [LOGGED]),
	$expected, 'backup restored below the record of the pool: contents are right');
restart_warm($node, 'backup restored below the record of the pool, then a clean stop');

# Point-in-time recovery that begins at the very checkpoint that the pool was
# saved at.  No target can be reached from there; the server says so, but not
# before it has refused the pool.
$node->stop;
$node->append_conf('postgresql.conf', qq{
restore_command = 'cp "@{[$node->archive_dir]}/%f" "%p"'
recovery_target_action = 'promote'
recovery_target = 'immediate'});
append_to_file("$data/recovery.signal", '');
my $verdict = verify_json($node);
is($verdict->{rc}, 2, 'recovery target: pg_pcache verify says cold');
is($verdict->{reason}, 'recovery_target', 'recovery target: pg_pcache verify says why');
$offset = log_offset($node);
start_fails($node,
	qr/persistent cache: starting cold: point-in-time recovery was requested\n.*FATAL:  recovery ended before configured recovery target was reached/s,
	'recovery target');
$node->adjust_conf('postgresql.conf', 'recovery_target', undef);
unlink "$data/recovery.signal";
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the server was not shut down cleanly$/,
	'recovery target given up');
is(checksums($node, tables => [LOGGED]),
	$expected, 'recovery target given up: contents are right');

# Recovery from the archive to its end starts another timeline.
warm_up($node);
$node->stop;
append_to_file("$data/recovery.signal", '');
is(verify_json($node)->{reason}, 'recovery_target',
	'archive recovery: pg_pcache verify says why');
$offset = log_offset($node);
$node->start;
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'no promotion';
is_cold($node, $offset, qr/^point-in-time recovery was requested$/,
	'archive recovery');
is(checksums($node, tables => [LOGGED]),
	$expected, 'archive recovery: contents are right');
$node->safe_psql('postgres', 'CHECKPOINT');
isnt($node->safe_psql('postgres',
		'SELECT timeline_id FROM pg_control_checkpoint()'),
	'1', 'archive recovery: it is another timeline');
restart_warm($node, 'archive recovery, then a clean stop');
is(checksums($node, tables => [LOGGED]),
	$expected, 'archive recovery, then a clean stop: contents are right');

# Point-in-time recovery from the backup, to a point before a mistake.
$node->safe_psql('postgres', q{SELECT pg_create_restore_point('before')});
$node->safe_psql('postgres', 'DELETE FROM t_heap');
warm_up($node);
$node->stop;
$state = slurp_file(state_file($node));
rename $data, "$data.old2" or die $!;
$node->init_from_backup($node, 'plain', has_restoring => 1, standby => 0);
append_to_file(state_file($node), $state);
chmod 0600, state_file($node);
$node->append_conf('postgresql.conf', q{
recovery_target_action = 'promote'
recovery_target_name = 'before'});
$offset = log_offset($node);
$node->start;
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'no promotion';
is(start_outcome($node, $offset)->{start}, 'cold', 'point-in-time recovery: cold');
is(checksums($node, tables => [LOGGED]),
	$expected, 'point-in-time recovery: contents are right');
restart_warm($node, 'point-in-time recovery, then a clean stop');
is(checksums($node, tables => [LOGGED]),
	$expected, 'point-in-time recovery, then a clean stop: contents are right');
# A backup_label alone is enough, even if it says nothing but what pg_control
# says.
warm_up($node);
$node->stop;
my ($control) = run_command([ 'pg_controldata', $data ]);
my ($checkpoint) = $control =~ /^Latest checkpoint location:\s+(\S+)/m;
my ($redo) = $control =~ /REDO location:\s+(\S+)/;
my ($walfile) = $control =~ /REDO WAL file:\s+(\S+)/;
my ($tli) = $control =~ /Latest checkpoint's TimeLineID:\s+(\d+)/;
append_to_file("$data/backup_label", <<"EOT");
START WAL LOCATION: $redo (file $walfile)
CHECKPOINT LOCATION: $checkpoint
BACKUP METHOD: by hand
BACKUP FROM: primary
START TIME: 2026-01-01 00:00:00 UTC
LABEL: by hand
START TIMELINE: $tli
EOT
$verdict = verify_json($node);
is($verdict->{rc}, 2, 'backup_label: pg_pcache verify says cold');
is($verdict->{reason}, 'backup', 'backup_label: pg_pcache verify says why');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the cluster starts from a backup$/, 'backup_label');
is(checksums($node, tables => [LOGGED]),
	$expected, 'backup_label: contents are right');
restart_warm($node, 'backup_label, then a clean stop');

$node->stop;

done_testing();

sub slurp_dir_entries
{
	return grep { !/^\.\.?$/ } slurp_dir($_[0]);
}
