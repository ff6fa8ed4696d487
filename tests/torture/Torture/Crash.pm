
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Crash - how does a server end?

=head1 DESCRIPTION

The kinds, as a plan has them:

  all           SIGKILL to all processes at one moment
  immediate     pg_ctl stop -m immediate
  backend, worker, checkpointer
                SIGKILL to one such process; the worker is that of the library
  checkpoint    as all, in a checkpoint or soon after
  recovery      as all; Torture::Round makes it happen during recovery
  site          the power is cut at a site (Torture::PowerCut)
  stop          a clean stop, and then the power is cut
  stopping      as all, somewhere in a clean stop
  reboot        a clean stop, and then the host is restarted (Torture::Reboot)
  save          the power is cut while a clean stop saves the pool

If a process dies and restart_after_crash is on, the postmaster starts all over;
there is more work then, and after that a kill as by "all".

=cut

package Torture::Crash;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);
use LibraryPool;

use Programs;
use Torture::Load;
use Torture::Log;
use Torture::PowerCut;
use Torture::Processes;
use Torture::Reboot;
use Torture::Server;
use Torture::State;
use Workload qw(pick number);

our @EXPORT = qw(crash);

# Whose death it is.
my %VICTIM = (
	backend => qr/postgres: postgres \S+ \[local\]/,
	worker => qr/postgres: persistent cache *$/,
	checkpointer => qr/postgres: checkpointer/);

# Crash the server of a data directory in one of these ways, in a round with the
# plan $s.  It is down afterwards.
sub crash
{
	my ($data, $kind, $s) = @_;
	my $result = crash_by($data, $kind, $s);
	$s->{killed_at} = time;
	return $result;
}

sub crash_by
{
	my ($data, $kind, $s) = @_;

	return stop_immediately($data) if $kind eq 'immediate';
	return crash_and_restart($data, $kind, $s)
	  if exists $VICTIM{$kind} && $s->{conf}{restart_after_crash} eq 'on';
	return kill_one($data, $VICTIM{$kind}) || kill_all($data) if $VICTIM{$kind};
	return cut_at_site($data, "$dir/pool") if $kind eq 'site';
	return cut_while_saving($data, $s) if $kind eq 'save';
	return stop_cleanly($data) if $kind eq 'stop';
	return kill_while_stopping($data) if $kind eq 'stopping';
	return stop_and_reboot($s) if $kind eq 'reboot';
	wait_for_checkpoint() if $kind eq 'checkpoint';
	return kill_all($data);
}

sub stop_immediately
{
	my ($data) = @_;
	my $pm = postmaster_pid($data);
	my $p = server_processes($pm);
	stop_server($data, 'immediate');
	wait_gone($data, [ keys %$p ]);
	return 1;
}

# The postmaster starts all over; work on, then kill all of it.
sub crash_and_restart
{
	my ($data, $kind, $s) = @_;
	my $pm = postmaster_pid($data);
	my $p = server_processes($pm);
	my $size = -s "$dir/server.log";
	my @victims = grep { $p->{$_} =~ $VICTIM{$kind} } keys %$p;
	kill 'KILL', $victims[0] if @victims;
	end_load();
	if (rand() < 0.8)
	{
		my $deadline = time + 60;
		sleep 0.1;
		sleep 0.1
		  while run_to("$dir/ready.out", "$bin/pg_isready", '-q', '-p', $port) != 0 && time < $deadline;
		my ($line, $dropped) = outcome("$dir/server.log", $size);
		say_line("    restart after the crash of a $kind: $line $dropped");
		short_recovery("$dir/server.log", $s, $size);
		judge_restart($kind, $line) if $s->{mode} eq 'always' && $line ne '';
		start_load($s, "restart-" . int(time));
		sleep rand 2;
	}
	else
	{
		sleep rand 0.5;
	}
	return kill_all($data);
}

# The postmaster begins anew in mode always.  What it was to keep is not known,
# because nobody has looked at the pool in between.
sub judge_restart
{
	my ($kind, $line) = @_;
	my $late = may_be_cold($line);
	$totals{ $line =~ /^kept [1-9]/ ? 'restart: warm' : $late ? 'restart: cold, pg_control was just written' : 'restart: nothing kept' }++;
	problem("restart after the crash of a $kind: $line") if $line !~ /^kept \d/ && !$late;
	return;
}

# While a clean stop saves the pool: it flushes each page, then all of the ledger at once.
# In mode always the worker has flushed entries before.
sub cut_while_saving
{
	my ($data, $s) = @_;
	my $pm = postmaster_pid($data);
	my $p = server_processes($pm);
	my $site = $set{site} // pick('page', 'entry', 'superblock');
	my %most = (page => 3000, entry => $s->{mode} eq 'always' ? 100 : 1, superblock => 2);
	$site = arm_shim("$dir/pool", $site, event => $site eq 'page' ? 1 : number(1, 3), most => $most{$site});
	stop_server($data, 'fast');
	wait_gone($data, [ keys %$p ]);
	forget_pid($data) if postmaster_pid($data);
	say_line("    $site: " . (slurp("$dir/server.log") =~ /database system is shut down\n\z/ ? 'did not come to it' : 'cut'));
	return 1;
}

# To the end, but the power goes before anything else reaches the media.
sub stop_cleanly
{
	my ($data) = @_;
	my $pm = postmaster_pid($data);
	my $p = server_processes($pm);
	stop_server($data, 'fast') == 0 or problem('the server does not stop');
	wait_gone($data, [ keys %$p ]);
	return 1;
}

sub kill_while_stopping
{
	my ($data) = @_;
	my $seconds = rand pick(0.05, 0.3, 1);
	my $pid = start_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-w', '-m', 'fast', 'stop');
	sleep $seconds;
	my $killed = kill_all($data);
	waitpid($pid, 0);
	say_line(sprintf('    %s %.3f s after a stop began', $killed ? 'killed' : 'not killed', $seconds));
	return 1;
}

# To be in a checkpoint, or soon after: CREATE DATABASE and others ask for them.
sub wait_for_checkpoint
{
	my $size = -s "$dir/server.log";
	my $deadline = time + 3;
	while (time < $deadline)
	{
		last if substr(slurp("$dir/server.log"), $size) =~ /checkpoint starting/;
		sleep 0.002;
	}
	sleep rand pick(0.005, 0.02, 0.1);
	return;
}

1;
