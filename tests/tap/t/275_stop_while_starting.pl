
# Copyright (c) 2026, the persistent-cache developers

# A server that is stopped while its start looks at the pool stops at once, and
# leaves cluster and pool as they were.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

need_inject_module();

my $given_up = qr/LOG:  persistent cache: the start was given up, because the server is to be stopped/;
my ($expected, $logged, $verdict);

# After a clean stop, in both modes.
for my $mode (qw(planned_restart always))
{
	my $node = new_node($mode, mode => $mode, init => { allows_streaming => 1 });

	$node->start;
	load_data($node);
	$node->backup('b') if $mode eq 'always';
	$expected = checksums($node);
	warm_up($node);
	$node->stop;

	for my $how (qw(fast smart))
	{
		my $control = control_file($node);

		stop_at($node, $how, 'persistent-cache-media', 1, "$mode, clean, $how");
		is(control_file($node), $control,
			"$mode, clean, $how: pg_control is as it was");
		start_again($node, "$mode, clean, $how");
		warm_up($node);
		$node->stop;
	}
	# the image of the last stop is still good then
	verb_json($node, 'save');
	my $record = slurp_file(state_file($node));
	like($record, qr/^image = /m, "$mode, in the rebuild: the record names an image");
	stop_at($node, 'fast', 'persistent-cache-rebuilding', 2, "$mode, in the rebuild");
	is(slurp_file(state_file($node)), $record, "$mode, in the rebuild: the record is as it was");
	start_again($node, "$mode, in the rebuild");

	# nobody waits for a start that is stopped at once
	warm_up($node);
	$node->stop;
	$verdict = verify_json($node);
	stop_at($node, 'immediate', 'persistent-cache-rebuilding', 2, "$mode, immediate stop");
	is(verify_json($node)->{reason}, 'attaching', "$mode, immediate stop: like a crash");
	$node->start;
	is(checksums($node), $expected, "$mode, immediate stop: contents are right");
	$node->stop;
}

# After a crash, also while descriptors are made odd.
my $node = new_node('crash', mode => 'always', init => { allows_streaming => 1 });
$node->start;
load_data($node);
$node->backup('b');
for my $point ([ 'persistent-cache-rebuilding', 2 ], [ 'persistent-cache-unsealing', 3 ])
{
	my $name = "crash, $point->[0]";
	my ($valid, $control);

	($expected, $valid) = change_and_crash($node);
	$control = control_file($node);
	stop_at($node, 'fast', @$point, $name);
	is(control_file($node), $control,
		"$name: pg_control is as it was");
	warm_after_crash($node, $valid, $name);
	contents_right($node, $expected, $name);
}

# If two slots have the same page, and one of them was made odd, the other one
# would be believed next time.
my $valid;
($expected, $valid) = change_and_crash($node);
my $pool = pool_file($node);
my @slots = sealed_slots($pool, sub { $_[0]->{fork_number} == 0 });
my ($low, $high) = @slots[ 0, -1 ];
my $twin = read_descriptor($pool, $low);
write_descriptor($pool, $high, map { $_ => $twin->{$_} }
	  qw(spc_oid db_oid rel_number fork_number block_number flags page_lsn));
stop_at($node, 'fast', 'persistent-cache-unsealing', 2, 'two slots with the same page');
cold_after_crash($node, 'attaching', qr/^the last start did not reach a consistent state, or pg_pcache was interrupted/,
	'two slots with the same page');
contents_right($node, $expected, 'two slots with the same page');

# A standby.
my $standby = new_standby('standby', $node, 'b', mode => 'always');
$standby->start;
$node->wait_for_replay_catchup($standby);
warm_up($standby);
$standby->stop;
$verdict = verify_json($standby);
stop_at($standby, 'fast', 'persistent-cache-rebuilding', 2, 'standby');
is_deeply(verify_json($standby)->{pages}, $verdict->{pages}, 'standby: the pool is as it was');
my $offset = log_offset($standby);
$standby->start;
is(start_outcome($standby, $offset)->{kept}, $verdict->{pages}{kept}, 'standby: it is warm');
$node->wait_for_replay_catchup($standby);
contents_right($standby, $expected, 'standby');

# It is stopped before anybody has looked at the pool: the first file of the archive
# does not come.
my $asked = $standby->basedir . '/asked';
for my $how ('immediate', 'fast')
{
	my $name = "in restore_command after $how stop";

	warm_up($standby);
	$standby->stop($how);
	my $control = control_file($standby);
	$verdict = verify_json($standby);
	cmp_ok($verdict->{pages}{kept}, '>', 100, "$name: there is something to lose");
	$standby->append_conf('postgresql.conf', "restore_command = 'touch $asked && sleep 600 # %f %p'");
	start_nowait($standby);
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if -e $asked;
		usleep(100_000);
	}
	ok(-e $asked, "$name: the archive is asked");
	stop_nowait($standby, 'fast');
	wait_until_gone($standby);
	unlink $asked;
	$standby->append_conf('postgresql.conf', "restore_command = ''");
	is(control_file($standby), $control, "$name: pg_control is as it was");
	is_deeply(verify_json($standby)->{pages}, $verdict->{pages}, "$name: the pool is as it was");
	$offset = log_offset($standby);
	$standby->start;
	is(start_outcome($standby, $offset)->{kept}, $verdict->{pages}{kept}, "$name: it is warm");
	$node->wait_for_replay_catchup($standby);
	contents_right($standby, $expected, $name);
}
$standby->stop;

# The postmaster waits for who has locked the pool.
$node->stop;
$verdict = verify_json($node);
open my $lock, '<', $pool or die "could not open $pool: $!";
flock $lock, LOCK_EX or die "could not lock $pool: $!";
$offset = log_offset($node);
start_nowait($node);
stop_nowait($node, 'fast');
wait_until_gone($node);
$logged = slurp_file($node->logfile, $offset);
like($logged, $given_up, 'the pool is locked: the start is given up');
unlike($logged, qr/FATAL/, 'the pool is locked: which is no failure');
close $lock;
is_deeply(verify_json($node)->{pages}, $verdict->{pages}, 'the pool is locked: it is as it was');
$node->start;
contents_right($node, $expected, 'the pool was locked');
$node->stop;

done_testing();

# Start a server, and stop it when its startup process has come to an injection
# point for the n'th time.
sub stop_at
{
	my ($who, $how, $point, $pass, $name) = @_;
	my $conf = slurp_file($who->data_dir . '/postgresql.conf');
	my $verdict = verify_json($who);
	my $log;

	$offset = log_offset($who);
	$who->append_conf('postgresql.conf', qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.hold_at = '$point'
pcache_inject.hold_pass = $pass});
	start_nowait($who);
	$who->wait_for_log(qr/waits at injection point "$point"/, $offset);
	stop_nowait($who, $how);
	wait_until_gone($who);

	$log = slurp_file($who->logfile, $offset);
	if ($how eq 'immediate')
	{
		unlike($log, qr/persistent cache: (?:kept|starting cold)/, "$name: the start is cut short");
	}
	else
	{
		like($log, $given_up, "$name: the start is given up");
		unlike($log, qr/persistent cache: (?:kept|starting cold|saved)/, "$name: at once");
		unlike($log, qr/FATAL|PANIC|WARNING/, "$name: which is no failure");
		if ($log =~ /The pool is as it was before/)
		{
			my $now = verify_json($who);

			is($now->{next_start}, $verdict->{next_start}, "$name: verify says what it said before");
			is_deeply($now->{pages}, $verdict->{pages}, "$name: and has the same pages");
		}
	}
	unlink $who->data_dir . '/postgresql.conf';
	append_to_file($who->data_dir . '/postgresql.conf', $conf);
	chmod 0600, $who->data_dir . '/postgresql.conf';
	return;
}

# A start after that keeps what was there, and the contents are right.
sub start_again
{
	my ($who, $name) = @_;
	my $verdict = verify_json($who);
	my $outcome;

	is($verdict->{rc}, 0, "$name: the next start will be warm");
	$offset = log_offset($who);
	$who->start;
	$outcome = start_outcome($who, $offset);
	is($outcome->{kept}, $verdict->{pages}{kept}, "$name: the next start is warm");
	is($outcome->{kept}, $verdict->{saved_pages}, "$name: with all pages");
	# unlogged tables as well
	is(checksums($who), $expected, "$name: contents are right");
	return;
}

sub stop_nowait
{
	my ($who, $how) = @_;

	system_or_bail('pg_ctl', '--no-wait', '--pgdata' => $who->data_dir,
		'--mode' => $how, 'stop');
	return;
}

sub wait_until_gone
{
	my ($who) = @_;
	my $pidfile = $who->data_dir . '/postmaster.pid';

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if !-e $pidfile;
		select undef, undef, undef, 0.1;
	}
	BAIL_OUT('the server does not stop') if -e $pidfile;
	$who->{_pid} = undef;
	return;
}

# As text.
sub control_file
{
	my ($who) = @_;

	return unpack 'H*', slurp_file($who->data_dir . '/global/pg_control');
}
