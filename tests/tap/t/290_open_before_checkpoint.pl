
# Copyright (c) 2026, the persistent-cache developers

# After a crash with kept pages, connections are allowed before the checkpoint at
# the end of recovery.  The server may crash again before that checkpoint has
# completed, several times in a row, with a standby and an archive following.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $early = qr/connections are allowed before the checkpoint at the end of recovery/;
my $late = qr/connections are allowed after the checkpoint at the end of recovery, because the last 3 starts did not complete one/;
my $violation = qr/redo invariant violated/;
my $primary = new_node('primary',
	mode => 'always',
	init => { allows_streaming => 1, has_archiving => 1, extra => ['--data-checksums'] },
	conf => "max_prepared_transactions = 5\nhot_standby_feedback = off");
my ($standby, $restored, $checkpoint, $expected, $valid, $offset, $log, $session, $relation);

$primary->start;
load_data($primary);
$primary->backup('b');
$standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
set_mode($standby, undef);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = -1");
$standby->start;
$primary->wait_for_replay_catchup($standby);

# What must come through: a prepared transaction with its locks, pages that are
# in no file, and a visibility map whose bits come and go.
$primary->safe_psql('postgres', q{
CREATE TABLE map (id int, v int) WITH (autovacuum_enabled = off);
INSERT INTO map SELECT i, 0 FROM generate_series(1, 5000) i;
VACUUM (FREEZE) map;
-- locked by transactions, so apart from what is read to warm up
CREATE SCHEMA apart;
CREATE TABLE apart.held (id int);
CREATE TABLE apart.prepared (id int);
CHECKPOINT});
$checkpoint = checkpoint_of($primary);
for my $crash (1 .. 3)
{
	my $name = "crash $crash without a checkpoint";

	# A transaction that the crash ends holds a lock on the standby.  A standby
	# does not know of its end while an older one is prepared.
	$session = $primary->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('BEGIN; LOCK TABLE apart.held; INSERT INTO apart.held VALUES (-1)');
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->wait_for_replay_catchup($standby);
	is(locks_of($standby, 'apart.held'), 1, "$name: the standby holds the lock") if $crash == 1;

	($expected, $valid) = change_and_crash($primary);
	eval { $session->quit };
	same_without_pool($name);
	$offset = log_offset($primary);
	warm_after_crash($primary, $valid, $name, ratio => 0.95);
	$log = slurp_file($primary->logfile, $offset);
	like($log, $early, "$name: connections are allowed before the checkpoint");
	unlike($log, $violation, "$name: redo finds nothing wrong");
	is(checkpoint_of($primary), $checkpoint, "$name: no checkpoint was completed");
	like(control_data($primary), qr/^Minimum recovery ending location:\s+0\/0$/m, "$name: a standby would replay all of its WAL first");
	contents_right($primary, $expected, $name);

	$primary->wait_for_replay_catchup($standby);
	is(locks_of($standby, 'apart.held'), 0, "$name: the standby has released the lock") if $crash == 1;
	is(checksums($standby, tables => [LOGGED]), $expected, "$name: the standby has the same contents");
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM apart.held'), 0, "$name: what was not committed is not there");
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'), 0, "$name: an unlogged table is empty");
	$primary->safe_psql('postgres', q{
BEGIN;
LOCK TABLE apart.prepared;
INSERT INTO apart.prepared VALUES (1);
PREPARE TRANSACTION 'one'}) if $crash == 1;
	is($primary->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'), 'one', "$name: the prepared transaction is there");
	$primary->safe_psql('postgres', qq{
INSERT INTO t_unlogged SELECT i, 'x' FROM generate_series(1, 100) i;
UPDATE map SET v = $crash WHERE id % 3 = $crash % 3;
VACUUM (FREEZE) map;
UPDATE map SET v = -v WHERE id % 50 = $crash});
}

# No more than that in a row.
($expected, $valid) = change_and_crash($primary);
$offset = log_offset($primary);
warm_after_crash($primary, $valid, 'the next one', ratio => 0.95);
$log = slurp_file($primary->logfile, $offset);
like($log, $late, 'the next one: connections are allowed after the checkpoint');
isnt(checkpoint_of($primary), $checkpoint, 'the next one: a checkpoint was completed');
contents_right($primary, $expected, 'the next one');
$checkpoint = checkpoint_of($primary);

# From the new checkpoint on it may be done again; an unpatched server takes over.
crash_early('after that checkpoint');
$primary->safe_psql('postgres', q{COMMIT PREPARED 'one'});
($expected, $valid) = change_and_crash($primary);
SKIP:
{
	my $vanilla = vanilla_install();

	skip 'PCACHE_VANILLA does not name an unpatched installation', 1 if !defined $vanilla;
	is(contents_of_copy('unpatched', sub { with_install($_[0], $vanilla, $_[1]) }), $expected, 'an unpatched server has the same contents');
}
warm_after_crash($primary, $valid, 'the prepared transaction is committed', ratio => 0.95);
is($primary->safe_psql('postgres', 'SELECT count(*) FROM apart.prepared'), 1, 'the prepared transaction is committed');

# As a standby, such a server first replays all of its WAL.
$primary->safe_psql('postgres', 'CREATE TABLE late AS SELECT generate_series(1, 1000) AS i');
($expected, $valid) = change_and_crash($primary);
$relation = contents_of_copy('turned', sub { $_[0]->set_standby_mode; $_[1]->() }, 'SELECT count(*) FROM late');
is($relation, 1000, 'a standby has all that its WAL has when it allows connections');
$primary->start;

# The archive alone has it all, too.
$restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'b', has_restoring => 1, standby => 0);
set_mode($restored, undef);
$restored->append_conf('postgresql.conf', 'archive_mode = off');
wait_for_archive();
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no end of recovery';
is(checksums($restored, tables => [LOGGED]), $expected, 'from the archive: contents are right');
$restored->stop;

# A promoted standby that crashes before its first checkpoint: pg_control says
# where the promotion was, which must not outlive the next start.
{
	my $promoted = new_standby('promoted', $primary, 'b', mode => 'always', init => { has_streaming => 1, has_restoring => 1 });

	$promoted->append_conf('postgresql.conf', "archive_mode = off");
	$promoted->start;
	$primary->wait_for_replay_catchup($promoted);
	$promoted->promote;
	($expected, $valid) = change_and_crash($promoted);
	unlike(control_data($promoted), qr/^Minimum recovery ending location:\s+0\/0$/m, 'promoted: the crash comes before the first checkpoint');
	$offset = log_offset($promoted);
	warm_after_crash($promoted, $valid, 'promoted', ratio => 0.95);
	unlike(slurp_file($promoted->logfile, $offset), $early, 'promoted: the checkpoint comes first');
	like(control_data($promoted), qr/^Minimum recovery ending location:\s+0\/0$/m, 'promoted: a standby would replay all of its WAL first');
	contents_right($promoted, $expected, 'promoted');
	$promoted->stop;
}

# Where an unpatched server's checkpoint is needed, it comes first.
for my $case ([ 'full_page_writes = off', 'full_page_writes = off' ],
	[ 'full_page_writes again', 'full_page_writes = on' ],
	[ 'track_commit_timestamp', 'track_commit_timestamp = on' ],
	[ 'max_connections', 'max_connections = 50' ],
	[ 'wal_level = minimal', "wal_level = minimal\nmax_wal_senders = 0\narchive_mode = off" ])
{
	my ($name, $conf) = @$case;

	$primary->append_conf('postgresql.conf', $conf);
	($expected, $valid) = change_and_crash($primary);
	$offset = log_offset($primary);
	warm_after_crash($primary, $valid, $name, ratio => 0.95);
	unlike(slurp_file($primary->logfile, $offset), $early, "$name: the checkpoint comes first");
	contents_right($primary, $expected, $name);
}
$primary->stop;
$standby->stop;
done_testing();

sub checkpoint_of
{
	my ($node) = @_;

	return control_data($node) =~ /^Latest checkpoint location:\s+(\S+)$/m ? $1 : die 'no checkpoint';
}

sub control_data
{
	my ($node) = @_;

	return (run_command([ 'pg_controldata', $node->data_dir ]))[0];
}

sub locks_of
{
	my ($node, $table) = @_;

	return $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE relation = '$table'::regclass AND mode = 'AccessExclusiveLock'");
}

sub crash_early
{
	my ($name) = @_;

	($expected, $valid) = change_and_crash($primary);
	$offset = log_offset($primary);
	warm_after_crash($primary, $valid, $name, ratio => 0.95);
	like(slurp_file($primary->logfile, $offset), $early, "$name: connections are allowed before the checkpoint");
	contents_right($primary, $expected, $name);
	return;
}

# What a query says in a copy of the crashed primary without the pool, or the
# checksums of its tables.  $how is called with the copy and what starts it.
sub contents_of_copy
{
	my ($name, $how, $query) = @_;
	my $copy = PostgreSQL::Test::Cluster->new($name);
	my $result;

	$primary->backup_fs_cold($name);
	$copy->init_from_backup($primary, $name);
	set_mode($copy, undef);
	unlink state_file($copy);
	$copy->append_conf('postgresql.conf', "archive_mode = off\nprimary_conninfo = ''");
	$how->($copy, sub { $copy->start });
	$result = defined $query ? $copy->safe_psql('postgres', $query) : checksums($copy, tables => [LOGGED]);
	$copy->stop('immediate');
	$copy->clean_node;
	return $result;
}

# The number of the crash is part of the name of the copy.
my $copies = 0;

sub same_without_pool
{
	my ($name) = @_;

	$copies++;
	is(contents_of_copy("copy$copies", sub { $_[1]->() }), $expected, "$name: a start without the pool gives the same contents");
	return;
}

# Wait until the archive has all WAL so far.
sub wait_for_archive
{
	my $last;

	# an empty segment would not be switched
	$primary->safe_psql('postgres', 'SELECT txid_current()');
	$last = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
	$primary->poll_query_until('postgres', "SELECT last_archived_wal >= '$last' FROM pg_stat_archiver")
	  or die 'archiving does not get on';
	return;
}
