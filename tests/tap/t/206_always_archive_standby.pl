
# Copyright (c) 2026, the persistent-cache developers

# Mode always on a standby that gets its WAL from the archive only: each
# segment that is restored moves the watermark.

use strict;
use warnings FATAL => 'all';

use File::Copy;
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef,
	init => { has_archiving => 1, allows_streaming => 1, extra => [ '--wal-segsize' => 1 ] });
my ($standby, $expected, $valid, $outcome, $lsn);

$primary->start;
$primary->backup('b');
load_data($primary);
$standby = new_standby('standby', $primary, 'b', mode => 'always', init => { has_restoring => 1 });
$standby->append_conf('postgresql.conf', 'wal_retrieve_retry_interval = 100ms');
$standby->start;

# Without a restart: only segments that were restored since tell how far WAL
# is durable.
for my $round (1 .. 3)
{
	my $name = "crash $round";

	$primary->safe_psql('postgres',
		"UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = $round; VACUUM t_heap");
	$expected = checksums($primary, tables => [LOGGED]);
	$lsn = $primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	wait_for_replay($lsn);
	$valid = seal_and_kill($standby);
	$outcome = warm_after_crash($standby, $valid, $name);
	is_deeply($outcome->{dropped}, {}, "$name: nothing was dropped");
	wait_for_replay($lsn);
	is(checksums($standby, tables => [LOGGED]), $expected, "$name: contents are right");
}

# Nothing but reads since the last restart.
$valid = seal_and_kill($standby);
warm_after_crash($standby, $valid, 'reads, crash');
wait_for_replay($lsn);
is(checksums($standby, tables => [LOGGED]), $expected, 'reads, crash: contents are right');

# After a clean restart: the segment with the redo point was restored before the
# pool was judged, and no other one comes.
$primary->safe_psql('postgres', 'CHECKPOINT; UPDATE t_heap SET grp = grp + 1 WHERE id < 10');
$expected = checksums($primary, tables => [LOGGED]);
$lsn = $primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
wait_for_replay($lsn);
$standby->safe_psql('postgres', 'CHECKPOINT');
$standby->restart;
wait_for_replay($lsn);
$valid = seal_and_kill($standby);
$outcome = warm_after_crash($standby, $valid, 'one segment, crash');
is_deeply($outcome->{dropped}, {}, 'one segment, crash: nothing was dropped');
wait_for_replay($lsn);
is(checksums($standby, tables => [LOGGED]), $expected, 'one segment, crash: contents are right');

$standby->promote;
$standby->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 4');
$expected = checksums($standby, tables => [LOGGED]);
$valid = seal_and_kill($standby);
warm_after_crash($standby, $valid, 'promoted, crash');
is(checksums($standby, tables => [LOGGED]), $expected, 'promoted, crash: contents are right');
$standby->stop;

# A standby that lags on purpose.  After a clean restart it replays pg_wal for a long
# time, in which a restartpoint moves the redo point.  A shutdown checkpoint is its own
# redo point, and its record begins a segment here, since the primary archives.
# Both standbys stream, so a checkpoint must not remove WAL that they have not fetched.
$primary->append_conf('postgresql.conf', 'wal_keep_size = 100MB');
$primary->reload;
foreach my $kind ('online', 'shutdown')
{
	$primary->backup($kind);
	my $lagging = new_standby("lagging_$kind", $primary, $kind, mode => 'always', init => { has_streaming => 1 });
	my $offset;

	$lagging->start;
	$primary->wait_for_replay_catchup($lagging);
	$lagging->append_conf('postgresql.conf', 'recovery_min_apply_delay = 1h');
	$lagging->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$lagging->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'no pause';
	if ($kind eq 'online')
	{
		$primary->safe_psql('postgres', 'BEGIN; UPDATE t_heap SET grp = grp + 1 WHERE id % 101 = 2; CHECKPOINT; UPDATE t_heap SET grp = grp + 1 WHERE id % 101 = 3; COMMIT');
		$primary->wait_for_catchup($lagging, 'flush', $primary->lsn('flush'));
		$lagging->stop;
	}
	else
	{
		my $segment;

		# no walreceiver comes again while replay is paused, so we bring the rest
		$primary->restart;
		$primary->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id = 2');
		$segment = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
		$lagging->stop;
		copy($primary->data_dir . "/pg_wal/$segment", $lagging->data_dir . "/pg_wal/$segment") or die "copy: $!";
	}
	$lagging->start;
	$lagging->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'RecoveryApplyDelay'}) or die 'no delay';
	$lagging->safe_psql('postgres', 'CHECKPOINT');
	seal_and_kill($lagging);
	$offset = log_offset($lagging);
	$lagging->start;
	is(start_outcome($lagging, $offset)->{start}, 'warm', "lagging, $kind checkpoint, crash: warm start");
	$lagging->append_conf('postgresql.conf', 'recovery_min_apply_delay = 0');
	$lagging->reload;
	$primary->wait_for_replay_catchup($lagging);
	is(checksums($lagging, tables => [LOGGED]), checksums($primary, tables => [LOGGED]), "lagging, $kind checkpoint, crash: contents are right");
	$lagging->stop;
}
$primary->stop;
done_testing();

sub wait_for_replay
{
	$standby->poll_query_until('postgres',
		"SELECT pg_last_wal_replay_lsn() >= '$_[0]'::pg_lsn")
	  or die 'no replay';
	return;
}
