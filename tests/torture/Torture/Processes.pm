
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Processes - which processes does a server have, and how do they die?

=head1 DESCRIPTION

A server is named by its data directory, $data.

=cut

package Torture::Processes;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use Programs;
use Torture::State;

our @EXPORT = qw(postmaster_pid server_processes wait_gone forget_pid kill_all kill_live kill_one);

# The process id in postmaster.pid, or undef.
sub postmaster_pid
{
	my ($data) = @_;
	return slurp("$data/postmaster.pid") =~ /^(\d+)/ ? $1 : undef;
}

# The live processes of a postmaster, itself included: a reference to a hash,
# pid => title.
sub server_processes
{
	my ($pm) = @_;
	my %p;
	opendir(my $dh, '/proc') or die;
	for my $pid (grep { /^\d+$/ } readdir $dh)
	{
		my $stat = slurp("/proc/$pid/stat");
		next unless $stat =~ /^\d+ \(.*\) (\S) (\d+)/s;
		next if $1 eq 'Z' || ($pid != $pm && $2 != $pm);
		my $title = slurp("/proc/$pid/cmdline");
		$title =~ tr/\0/ /;
		$p{$pid} = $title;
	}
	closedir $dh;
	return \%p;
}

# Wait until none of these processes, given as a reference to a list, is alive.
sub wait_gone
{
	my ($data, $pids) = @_;
	my $deadline = time + 60;
	while (time < $deadline)
	{
		my $alive = 0;
		for my $pid (@$pids)
		{
			my $stat = slurp("/proc/$pid/stat");
			$alive++ if $stat =~ /^\d+ \(.*\) (\S)/s && $1 ne 'Z';
		}
		return 1 if !$alive;
		sleep 0.02;
	}
	die "server in $data does not go away";
}

# What a killed postmaster leaves behind; its process id may be in use again.
sub forget_pid
{
	my ($data) = @_;
	unlink "$data/postmaster.pid", "$work/.s.PGSQL.$port", "$work/.s.PGSQL.$port.lock";
	return;
}

# SIGKILL to all processes of a server, at one moment.  Returns false if there is
# no server.
sub kill_all
{
	my ($data) = @_;
	my $pm = postmaster_pid($data) // return 0;
	kill 'STOP', $pm;
	my $p = server_processes($pm);
	kill 'STOP', $_ for keys %$p;
	# forked before the postmaster stopped
	$p = server_processes($pm);
	kill 'KILL', $_ for keys %$p;
	wait_gone($data, [ keys %$p ]);
	forget_pid($data);
	return 1;
}

# SIGKILL to a process, which is stopped before, so that it cannot end by itself
# meanwhile.  Returns false if it has.
sub kill_live
{
	my ($pid) = @_;
	kill 'STOP', $pid;
	while (1)
	{
		my $state = slurp("/proc/$pid/stat") =~ /^\d+ \(.*\) (\S)/s ? $1 : 'Z';
		return 0 if $state =~ /[ZX]/;
		last if $state eq 'T';
		sleep 0.001;
	}
	kill 'KILL', $pid;
	return 1;
}

# kill_live() of one process whose title has this pattern, and wait for the whole
# server to end.  Returns false if there is none.
sub kill_one
{
	my ($data, $like) = @_;
	my $pm = postmaster_pid($data) // return 0;
	my $p = server_processes($pm);
	my @victims = grep { $p->{$_} =~ $like } keys %$p;
	return 0 if !@victims || !kill_live($victims[ int rand @victims ]);
	wait_gone($data, [ keys %$p ]);
	forget_pid($data);
	return 1;
}

1;
