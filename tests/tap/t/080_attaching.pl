
# Copyright (c) 2026, the persistent-cache developers

# A crash while a start takes up the pool: the next start is cold, so that
# pages which make recovery crash cannot do so forever.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

my $attaching = qr/^the last start did not reach a consistent state, or pg_pcache was interrupted/;
my $node = new_node('main',
	init => { allows_streaming => 1 }, conf => 'wal_keep_size = 320MB');
my ($offset, $expected, $valid);

$node->start;
$node->backup('b');
load_data($node);
$expected = checksums($node);

for my $case (
	[ 'crash after the pool was taken up', 'persistent-cache-attaching' ])
{
	my ($name, $point) = @$case;

	warm_up($node);
	$node->stop;
	is(verify_json($node)->{rc}, 0, "$name: it would be warm");

	for my $round (1, 2)
	{
		$offset = log_offset($node);
		crash_at($node, $point);
		is(start_outcome($node, $offset)->{start},
			$round == 1 ? 'warm' : 'cold', "$name, $round. time: it came to that");
		my $status = status_json($node);
		is($status->{state}, 'attaching', "$name, $round. time: state of the pool");
		my $verdict = verify_json($node);
		is($verdict->{rc}, 2, "$name, $round. time: pg_pcache verify says cold");
		is($verdict->{reason}, 'attaching', "$name, $round. time: and why");
	}

	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, $attaching, $name);
	# nothing was changed by what crashed, so not even unlogged tables are reset
	is(checksums($node), $expected, "$name: contents are right");
	is(status_json($node)->{state}, 'dirty', "$name: the state is dirty in use");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node), $expected, "$name, then a clean stop: contents are right");
}

# With restart_after_crash the postmaster does not come back either: a startup
# process that dies takes it down.  The same on a standby, which passes
# through a state that is not consistent.
my $standby = new_standby('standby', $node, 'b');
$standby->start;
$node->wait_for_replay_catchup($standby);
warm_up($standby);
$standby->stop;
crash_at($standby, 'persistent-cache-attaching');
is(verify_json($standby)->{reason}, 'attaching', 'standby: state of the pool');
$offset = log_offset($standby);
$standby->start;
is_cold($standby, $offset, $attaching, 'standby');
$node->wait_for_replay_catchup($standby);
is(checksums($standby, tables => [LOGGED]),
	checksums($node, tables => [LOGGED]),
	'standby: contents are right');
restart_warm($standby, 'standby, then a clean stop');
$standby->stop;
$node->stop;

done_testing();

# Start a server whose startup process dies at an injection point.
sub crash_at
{
	my ($who, $point) = @_;
	my $conf = slurp_file($who->data_dir . '/postgresql.conf');

	$who->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.crash_at = '$point'
restart_after_crash = off});
	like(start_and_fail($who, $who->name . ", crash at $point"),
		qr/dies at injection point "$point".*startup process \(PID \d+\) was terminated by signal 9/s,
		$who->name . ": it was the startup process that crashed at $point");
	unlink $who->data_dir . '/postgresql.conf';
	append_to_file($who->data_dir . '/postgresql.conf', $conf);
	chmod 0600, $who->data_dir . '/postgresql.conf';
	return;
}
