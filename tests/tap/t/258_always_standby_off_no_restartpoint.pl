
# Copyright (c) 2026, the persistent-cache developers

# Mode always on a standby: a crash, then a run without the pool that goes
# further but makes no restartpoint, then always again.  The last checkpoint in
# pg_control is the one that the pool knows, but minRecoveryPoint is beyond what
# its pages contain.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $vanilla = vanilla_install();
my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 }, conf => "wal_keep_size = 480MB\nsynchronous_commit = on");

$primary->start;
$primary->backup('b');
my $standby = new_standby('standby', $primary, 'b', mode => 'always');
$standby->start;
load_data($primary);
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');

sub checkpoint_of
{
	my ($text) = run_command([ 'pg_controldata', $standby->data_dir ]);

	$text =~ /^Latest checkpoint location:\s+(\S+)/m or die;
	return $1;
}

my $round = 0;

for my $case (
	[ 'off, a clean stop', undef, 'stop' ],
	[ 'off, kill -9', undef, 'kill' ],
	[ 'unpatched server, a clean stop', $vanilla, 'stop' ],
	[ 'unpatched server, kill -9', $vanilla, 'kill' ])
{
	my ($name, $install, $how) = @$case;
	my ($checkpoint, $offset, $log, $expected);

  SKIP:
	{
		skip 'PCACHE_VANILLA does not name an unpatched installation', 1
		  if $name =~ /unpatched/ && !defined $install;

		$round++;
		$primary->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1 WHERE id % 3 = $round % 3");
		$primary->wait_for_replay_catchup($standby);
		seal_and_kill($standby);
		is(verify_json($standby)->{rc}, 0, "$name: it would have been warm");
		$checkpoint = checkpoint_of();

		# many more changes of the same pages than those few buffers hold
		set_mode($standby, defined $install ? undef : 'off');
		$standby->adjust_conf('postgresql.conf', 'shared_buffers', '400kB');
		my $run = sub {
			$standby->start;
			$primary->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 7; VACUUM t_heap');
			$primary->wait_for_replay_catchup($standby);
			$how eq 'stop' ? $standby->stop : kill_all($standby);
		};
		defined $install ? with_install($standby, $install, $run) : $run->();
		$standby->adjust_conf('postgresql.conf', 'shared_buffers', '32MB');
		set_mode($standby, 'always');
		is(checkpoint_of(), $checkpoint, "$name: there was no restartpoint");

		$expected = checksums($primary, tables => [LOGGED]);
		$offset = log_offset($standby);
		cold_after_crash($standby,
			defined $install
			? ('control_file', qr/^the control file is not what the pool's server last wrote$/)
			: ('incarnation', qr/^the cluster was run without the pool$/), $name);
		$primary->wait_for_replay_catchup($standby);
		is(checksums($standby, tables => [LOGGED]), $expected, "$name: contents are right");
		$standby->stop;
		$log = slurp_file($standby->logfile, $offset);
		unlike($log, qr/WARNING:.*redo invariant|redo invariant violated/, "$name: no false alarm");
		$standby->start;
	}
}
$standby->stop;
$primary->stop;
done_testing();
