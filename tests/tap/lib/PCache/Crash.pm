
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Crash - what does the next start make of a server that was killed?

=head1 DESCRIPTION

kill_all() kills a server as a whole.  The other subs give it something to keep
before that, start it again, and compare what it keeps with what pg_pcache
verify foretold.

=cut

package PCache::Crash;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use PCache::Buffers;
use PCache::Command;
use PCache::Node;
use PCache::PoolFile;
use PCache::Start;
use PCache::Tables;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(
  query_broken_server
  wait_until_back
  $SIGHTED
  pause_for_sighting
  kill_all
  kill_seen
  change_and_crash
  warm_after_crash
  cold_after_crash
);
our @EXPORT_OK = qw(wait_for_death);

# Send a query to a server whose pool is broken.  Its session may die as soon as it
# begins, so psql may end before it is told what to ask.  Returns psql's exit status.
sub query_broken_server
{
	my ($node, $sql) = @_;
	my $rc = eval { $node->psql('postgres', $sql, stdout => \my $out, stderr => \my $err) };

	die $@ if !defined $rc && $@ !~ /Broken pipe/;
	return $rc // 2;
}

# Wait until a server that starts, or restarts after a crash of a process, answers.
# A psql that it turns away may end before it is told what to ask, which
# poll_query_until() does not survive.
sub wait_until_back
{
	my ($node) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if query_broken_server($node, 'SELECT 1') == 0;
		select undef, undef, undef, 0.1;
	}
	die 'the server does not come back';
}

# How long it takes until the worker has surely said that the server lives, and until a
# file that is changed is surely changed later than the server itself can have done.
our $SIGHTED = 1.1;

sub pause_for_sighting { select undef, undef, undef, $_[0] // $SIGHTED; return }

# SIGKILL to all processes, once the worker has said that the server lives after all that
# was done.  On a busy machine it may be late, and then files count as changed by others.
sub kill_seen
{
	my ($node) = @_;
	my $now = time;

	for (1 .. 200)
	{
		last if read_sighting(pool_file($node))->{seen_at} > $now * 1e9;
		pause_for_sighting(0.01);
	}
	kill_all($node);
	return;
}

# SIGKILL to the postmaster and to all of its children, and wait for them to
# be gone.
sub kill_all
{
	my ($node) = @_;
	my $postmaster = $node->{_pid};
	my @pids = ($postmaster);

	# Nobody may notice that another one has died, and clean up.
	kill 'STOP', $postmaster;
	for my $stat (glob '/proc/[0-9]*/stat')
	{
		my $line = eval { slurp_file($stat) } // next;
		push @pids, $1 if $line =~ /^(\d+) \(.*\) \S+ $postmaster /s;
	}
	kill 'KILL', reverse @pids;
	wait_for_death(@pids);
	$node->{_pid} = undef;

	# A zombie that its new parent is slow to reap still counts as a server.
	for (1 .. 100)
	{
		return if !-e "/proc/$postmaster";
		select undef, undef, undef, 0.1;
	}
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# Wait until none of these processes is alive.
sub wait_for_death
{
	my @pids = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return
		  if !grep {
			my $line = eval { slurp_file("/proc/$_/stat") };
			defined $line && $line !~ /^\d+ \(.*\) [ZX] /s
		  } @pids;
		select undef, undef, undef, 0.1;
	}
	croak "processes @pids do not die";
}

# How often change_and_crash() was called.
my $changes = 0;

# Change the tables, each time in another way, have a checkpoint write that, read all
# tables, and kill the server.  Returns their checksums, but for the unlogged one, and the
# number of valid buffers that may be kept.
sub change_and_crash
{
	my ($node) = @_;
	my ($expected, $valid);

	$changes++;
	$node->safe_psql('postgres',
		"UPDATE t_heap SET grp = grp + 1 WHERE id % 13 = $changes % 13");
	$expected = checksums($node, tables => [LOGGED]);
	warm_up($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$valid = permanent_buffers($node);
	kill_seen($node);
	return ($expected, $valid);
}

=pod

=item warm_after_crash(node, valid, name, ratio => 0.98)

A server in mode always is down after a crash, with that many buffers before it that may
be kept.  pg_pcache verify foretells a warm start; start it; it must keep the ratio
(default: 0.9), and what was foretold.

=cut

sub warm_after_crash
{
	my ($node, $valid, $name, %params) = @_;
	my $ratio = $params{ratio} // 0.9;
	my $verdict = verify_json($node, '--restore-target-wal');
	my $offset = log_offset($node);
	my $outcome;

	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm")
	  or diag($verdict->{detail} // $verdict->{stderr});
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start")
	  or diag($outcome->{reason} // 'no word of it in the log');
	cmp_ok($outcome->{kept}, '>=', $ratio * $valid,
		"$name: kept $outcome->{kept} of $valid valid buffers");
	is($outcome->{kept}, $verdict->{pages}{kept},
		"$name: pg_pcache verify and the server agree");
	note(join ', ', map { "dropped: $_ $outcome->{dropped}{$_}" } sort keys %{ $outcome->{dropped} });
	return $outcome;
}

# The same where nothing may be kept, for a reason as pg_pcache verify gives it
# (undef: do not ask it) and a message of the server, as a pattern.  Returns the
# outcome.
sub cold_after_crash
{
	my ($node, $reason, $message, $name) = @_;
	my ($verdict, $offset, $outcome);

	if (defined $reason)
	{
		$verdict = verify_json($node, '--restore-target-wal');
		is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
		is($verdict->{reason}, $reason, "$name: pg_pcache verify says why");
	}
	$offset = log_offset($node);
	$node->start;
	# redo may have read pages of the tables already
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', "$name: cold start");
	like($outcome->{reason} // '', $message, "$name: for the right reason");
	is($outcome->{reason}, $verdict->{detail},
		"$name: pg_pcache verify and the server agree")
	  if defined $reason && $reason ne 'new';
	return $outcome;
}

1;
