
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Crash - how is a server killed, and when is it back?

=head1 DESCRIPTION

kill_all() kills a server as a whole, kill_seen() once its worker has seen all that was
done, and wait_until_back() waits for one that begins again by itself.

=cut

package PCache::Crash;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use PCache::Node;
use PCache::PoolFile;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

our @EXPORT = qw(
  query_broken_server
  wait_until_back
  pause_for_sighting
  wait_for_sighting
  kill_all
  is_sighted
  kill_seen
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
my $SIGHTED = 1.1;

sub pause_for_sighting { select undef, undef, undef, $_[0] // $SIGHTED; return }

# Does the worker say within so many seconds that the server lives?
sub is_sighted
{
	my ($node, $seconds) = @_;
	my $now = time;

	while (time < $now + $seconds)
	{
		return 1 if read_sighting(pool_file($node))->{seen_at} > $now * 1e9;
		pause_for_sighting(0.01);
	}
	return 0;
}

# Wait until the worker has said that the server lives after all that was done.  On a busy
# machine it may be late, and then files count as changed by others.
sub wait_for_sighting
{
	my ($node) = @_;

	is_sighted($node, $PostgreSQL::Test::Utils::timeout_default) or die 'the worker does not say that the server lives';
	return;
}

# SIGKILL to all processes after that.
sub kill_seen
{
	my ($node) = @_;

	wait_for_sighting($node);
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

1;
