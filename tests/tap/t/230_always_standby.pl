
# Copyright (c) 2026, the persistent-cache developers

# Mode always on a standby: kept over a crash, with nobody let in before recovery
# has reached what the pages contain, and after a promotion.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 }, conf => "wal_keep_size = 320MB\nsynchronous_commit = on");

$primary->start;
$primary->backup('b');
my $standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->start;
load_data($primary);
$primary->wait_for_replay_catchup($standby);

for my $case ([ 'kill -9', sub { kill_all($standby) } ],
	[ 'stop immediate', sub { $standby->stop('immediate') } ],
	[ 'kill -9 once more', sub { kill_all($standby) } ])
{
	my ($name, $crash) = @$case;
	my ($expected, $valid, $outcome, $high, $low, $max);

	$primary->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 1; VACUUM t_heap');
	$primary->wait_for_replay_catchup($standby);
	$expected = checksums($primary, tables => [LOGGED]);
	warm_up($standby);
	$valid = permanent_buffers($standby);
	wait_for_seals();
	$crash->();
	# alone: nobody sends what it may lack
	$primary->stop;
	$max = (sort { $b <=> $a } map { read_descriptor(pool_file($standby), $_)->{page_lsn} }
		  sealed_slots(pool_file($standby)))[0];
	$outcome = warm_after_crash($standby, $valid, $name, ratio => 0.95);
	($high, $low) = $outcome->{log} =~ /consistent recovery state reached at ([0-9A-F]+)\/([0-9A-F]+)/;
	cmp_ok(hex($high) * 2**32 + hex($low), '>=', $max, "$name: consistency is not reached before what the pages contain");
	is(checksums($standby, tables => [LOGGED]), $expected, "$name: contents are right");
	$primary->start;
	$primary->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 2');
	$primary->wait_for_replay_catchup($standby);
	is(checksums($standby, tables => [LOGGED]), checksums($primary, tables => [LOGGED]),
		"$name: it follows on");
}

# Clean stop.
my $valid = warm_up($standby);
my $offset = log_offset($standby);
$standby->restart;
is_warm($standby, $offset, $valid, 'clean stop');

# A standby of the standby.
$standby->backup('c');
my $cascade = new_standby('cascade', $standby, 'c', mode => 'always');
$cascade->start;
for my $round (1, 2)
{
	my $name = "cascading standby, crash $round";

	$primary->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = $round");
	$primary->wait_for_replay_catchup($standby);
	$standby->wait_for_replay_catchup($cascade, $primary);
	my $sums = checksums($primary, tables => [LOGGED]);
	my $buffers = seal_and_kill($cascade);
	warm_after_crash($cascade, $buffers, $name);
	is(checksums($cascade, tables => [LOGGED]), $sums, "$name: contents are right");
}
$cascade->stop;

# Promotion, then a crash.
my $expected = checksums($primary, tables => [LOGGED]);
$primary->wait_for_replay_catchup($standby);
$primary->stop;
$standby->promote;
is(checksums($standby, tables => [LOGGED]), $expected, 'promoted: contents are right');
warm_up($standby);
$valid = permanent_buffers($standby);
wait_for_seals();
kill_all($standby);
warm_after_crash($standby, $valid, 'promoted, kill -9', ratio => 0.95);
is(checksums($standby, tables => [LOGGED]), $expected, 'promoted, kill -9: contents are right');
$standby->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 3');
$expected = checksums($standby, tables => [LOGGED]);
warm_up($standby);
$valid = permanent_buffers($standby);
wait_for_seals();
kill_all($standby);
warm_after_crash($standby, $valid, 'promoted, written, kill -9');
is(checksums($standby, tables => [LOGGED]), $expected, 'promoted, written, kill -9: contents are right');
pages_equal_disk($standby, 'promoted');
$standby->stop;
done_testing();
