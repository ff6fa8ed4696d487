
# Copyright (c) 2026, the persistent-cache developers

# Mode always on a standby that gets its WAL from the archive only: each
# segment that is restored moves the watermark.

use strict;
use warnings FATAL => 'all';

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

$standby->promote;
$standby->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 4');
$expected = checksums($standby, tables => [LOGGED]);
$valid = seal_and_kill($standby);
warm_after_crash($standby, $valid, 'promoted, crash');
is(checksums($standby, tables => [LOGGED]), $expected, 'promoted, crash: contents are right');
$standby->stop;
$primary->stop;
done_testing();

sub wait_for_replay
{
	$standby->poll_query_until('postgres',
		"SELECT pg_last_wal_replay_lsn() >= '$_[0]'::pg_lsn")
	  or die 'no replay';
	return;
}
