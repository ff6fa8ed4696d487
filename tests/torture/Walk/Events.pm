
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events - what may happen to a cluster

=head1 DESCRIPTION

%EVENTS is the table, in parts by topic (Walk/Events/*.pm): by name

  weight  how often it is drawn where it is possible; may be code, which gets
          the walk and the clusters
  when    ($walk, $cluster): is it possible?
  run     ($walk, $cluster, $random): do it; returns a text for the progress report

All that an event chooses, it draws from $random by name, so that it can be
given: "crash@b:how=immediate,load=none".

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep);

use Walk::Load;
use Walk::Util;

our @EXPORT = qw(%EVENTS follow);

our %EVENTS;

# Processes by their titles.
our %VICTIM = (
	backend => qr/postgres: postgres \S+ \[local\]/,
	worker => qr/postgres: persistent cache *$/,
	checkpointer => qr/postgres: checkpointer/,
	bgwriter => qr/postgres: background writer/,
	walwriter => qr/postgres: walwriter/,
	startup => qr/postgres: startup/,
	walreceiver => qr/postgres: walreceiver/);

sub up { return $_[1]{up}; }
sub down { return !$_[1]{up} && !$_[1]{dead}; }
sub writable { return $_[1]{up} && $_[1]{role} eq 'primary' && !$_[1]{recovery}; }
sub standby_up { return $_[1]{up} && $_[1]{role} eq 'standby' && ($_[1]{recovery} // '') eq 'standby'; }
sub standby_down { return down(@_) && ($_[1]{recovery} // '') eq 'standby'; }
sub alone { return keys %{ $_[0]{clusters} } == 1; }

sub other_primary
{
	my ($w, $c) = @_;
	my ($o) = grep { $_ ne $c && $_->{up} && $_->{role} eq 'primary' } map { $w->{clusters}{$_} } sort keys %{ $w->{clusters} };
	return $o;
}

sub draw_load
{
	my ($r, @kinds) = @_;
	@kinds = ('tpcb', 'fill', 'queue', 'update', 'mixed', 'mixed', 'ddl', 'bulk') if !@kinds;
	return (kind => $r->pick('load', @kinds), sync => $r->pick('sync', 'on', 'off', 'off', 'local'),
		vacuum => $r->chance('vacuum', 0.3), clients => $r->number('clients', 2, 6), seed => $r->seed);
}

# Let a load run for a random time, at the end of which something happens.
sub under_load
{
	my ($c, $r, $run) = @_;
	my %load = draw_load($r, 'none', 'tpcb', 'queue', 'drain', 'drain', 'update', 'mixed', 'mixed', 'ddl', 'bulk');
	my $seconds = $r->fraction('after', $c->{walk}{brief} ? 0.3 : 0.9);
	my $checkpoint = $r->chance('checkpoint', 0.25);
	my $delay = $r->fraction('then', 0.15);
	if ($load{kind} eq 'none' || $c->{role} ne 'primary')
	{
		$run->();
		return;
	}
	my $pids = start_load($c, %load);
	sleep $seconds;
	my @asked;
	if ($checkpoint)
	{
		# the moments around a checkpoint's redo point
		push @asked, start_to("$c->{out}", "$c->{walk}{bin}/psql", '-Xq', '-h', $c->{walk}{sockets}, '-p', $c->{port}, '-U', 'postgres', '-d', 'postgres', '-c', 'CHECKPOINT');
		sleep $delay;
	}
	$run->();
	end_load([ @$pids, @asked ]);
	return;
}

# Wait for a line of the log, or the end of the start, or of the server.
sub wait_for_line
{
	my ($c, $line, $seconds) = @_;
	my $deadline = time + $seconds;
	while (time < $deadline)
	{
		my $text = $c->log_since;
		return 1 if $text =~ /$line|ready to accept connections/;
		return 0 if defined $c->ended;
		sleep 0.0005;
	}
	return 0;
}

require "Walk/Events/$_.pm" for qw(Work Ends Starts Stores Standbys Backups Damage Reboots);

1;
